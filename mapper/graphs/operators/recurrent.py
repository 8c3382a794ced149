"""Recurrent layers. https://onnx.ai/onnx/operators/"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mapper.graphs.operators import operator


def activate(name: str, x: Tensor, alpha: float | None, beta: float | None) -> Tensor:
    """An activation of a recurrent layer by its name."""
    name = name.lower()
    if name == "sigmoid":
        return x.sigmoid()
    if name == "tanh":
        return x.tanh()
    if name == "relu":
        return F.relu(x)
    if name == "affine":
        return (1.0 if alpha is None else alpha) * x + (0.0 if beta is None else beta)
    if name == "leakyrelu":
        return F.leaky_relu(x, 0.01 if alpha is None else alpha)
    if name == "thresholdedrelu":
        return torch.where(x > (1.0 if alpha is None else alpha), x, torch.zeros_like(x))
    if name == "scaledtanh":
        return (1.0 if alpha is None else alpha) * ((1.0 if beta is None else beta) * x).tanh()
    if name == "hardsigmoid":
        return ((0.2 if alpha is None else alpha) * x + (0.5 if beta is None else beta)).clamp(0, 1)
    if name == "elu":
        return F.elu(x, 1.0 if alpha is None else alpha)
    if name == "softsign":
        return F.softsign(x)
    if name == "softplus":
        return F.softplus(x)
    raise ValueError(f"no activation {name!r} of recurrent layers is known")


def activations_of(
    names: list[str] | None,
    usual: list[str],
    directions: int,
    alphas: list[float] | None,
    betas: list[float] | None,
) -> list[tuple[str, float | None, float | None]]:
    """Each activation with its numbers, direction after direction; numbers stand for those that take some, in order."""
    left, right = list(alphas or []), list(betas or [])
    first = {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
    second = {"affine", "scaledtanh", "hardsigmoid"}
    found = []
    for name in names or usual * directions:
        word = name.lower()
        alpha = left.pop(0) if left and word in first else None
        beta = right.pop(0) if right and word in second else None
        found.append((name, alpha, beta))
    return found


def held_in(x: Tensor, clip: float | None) -> Tensor:
    return x if clip is None else x.clamp(-clip, clip)


def steps_of(x: Tensor, lengths: Tensor | None, reverse: bool) -> tuple[Tensor, Tensor]:
    """The sequence in the order it is read, each row backwards from its own end, and which steps are real. x (T, B, W)"""
    count, batch = x.shape[:2]
    at = torch.arange(count, device=x.device)[:, None].expand(count, batch)
    ends = torch.full((batch,), count, device=x.device) if lengths is None else lengths.to(torch.int64)
    if reverse:
        at = torch.where(at < ends, ends - 1 - at, at)
    real = torch.arange(count, device=x.device)[:, None] < ends
    return x[at, torch.arange(batch, device=x.device)], real


def directed(
    x: Tensor, lengths: Tensor | None, reverse: bool, state: tuple[Tensor, ...], step: Any
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One direction: a step for each position; rows that have ended keep their state and give zeros. (T, B, H)"""
    ordered, real = steps_of(x, lengths, reverse)
    found = []
    for now, is_real in zip(ordered, real, strict=True):
        after = step(now, *state)
        state = tuple(torch.where(is_real[:, None], new, old) for new, old in zip(after, state, strict=True))
        found.append(torch.where(is_real[:, None], after[0], torch.zeros_like(after[0])))
    y = torch.stack(found) if found else x.new_zeros(0, x.shape[1], state[0].shape[-1])
    return (steps_of(y, lengths, True)[0] if reverse else y), state


def recurrent(
    x: Tensor,
    lengths: Tensor | None,
    direction: str,
    layout: int,
    starts: list[Tensor | None],
    hidden: int,
    steps: list[Any],
) -> tuple[Tensor, ...]:
    """All directions. x (T, B, W) -> outputs (T, D, B, H), and last states (D, B, H)"""
    x = x.transpose(0, 1) if layout else x
    zero = x.new_zeros(x.shape[1], hidden)
    firsts = [start if start is None or not layout else start.transpose(0, 1) for start in starts]
    outputs, lasts = [], []
    for place, step in enumerate(steps):
        state = tuple(zero if first is None else first[place] for first in firsts)
        y, last = directed(x, lengths, direction == "reverse" or place == 1, state, step)
        outputs.append(y)
        lasts.append(last)
    whole = [torch.stack(outputs, 1), *(torch.stack(parts) for parts in zip(*lasts, strict=True))]
    if layout:
        whole = [whole[0].permute(2, 0, 1, 3), *(part.transpose(0, 1) for part in whole[1:])]
    return tuple(whole)


@operator("RNN", since=7)
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    outputs: int = 2,
) -> tuple[Tensor, ...]:
    """w (D, H, W), r (D, H, H), b (D, 2 H)"""
    hidden, kinds = (
        r.shape[-1],
        activations_of(activations, ["Tanh"], w.shape[0], activation_alpha, activation_beta),
    )

    def step_of(place: int) -> Any:
        bias = x.new_zeros(hidden) if b is None else b[place, :hidden] + b[place, hidden:]

        def step(now: Tensor, h: Tensor) -> tuple[Tensor]:
            name, alpha, beta = kinds[place]
            return (activate(name, held_in(now @ w[place].T + h @ r[place].T + bias, clip), alpha, beta),)

        return step

    found = recurrent(
        x,
        sequence_lens,
        direction,
        layout,
        [initial_h],
        hidden,
        [step_of(place) for place in range(w.shape[0])],
    )
    return found[:outputs]


@operator("GRU", since=7)
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    outputs: int = 2,
) -> tuple[Tensor, ...]:
    """Gates in the order update, reset, hidden. w (D, 3 H, W), r (D, 3 H, H), b (D, 6 H)"""
    hidden = r.shape[-1]
    kinds = activations_of(activations, ["Sigmoid", "Tanh"], w.shape[0], activation_alpha, activation_beta)

    def step_of(place: int) -> Any:
        into, own = (x.new_zeros(2, 3 * hidden) if b is None else b[place].view(2, -1)).unbind()
        (gate, *gate_numbers), (last, *last_numbers) = kinds[2 * place : 2 * place + 2]

        def step(now: Tensor, h: Tensor) -> tuple[Tensor]:
            given = now @ w[place].T + into
            kept = h @ r[place, : 2 * hidden].T + own[: 2 * hidden]
            both = activate(gate, held_in(given[:, : 2 * hidden] + kept, clip), *gate_numbers)
            z, reset = both[:, :hidden], both[:, hidden:]
            if linear_before_reset:
                past = reset * (h @ r[place, 2 * hidden :].T + own[2 * hidden :])
            else:
                past = (reset * h) @ r[place, 2 * hidden :].T + own[2 * hidden :]
            new = activate(last, held_in(given[:, 2 * hidden :] + past, clip), *last_numbers)
            return ((1 - z) * new + z * h,)

        return step

    found = recurrent(
        x,
        sequence_lens,
        direction,
        layout,
        [initial_h],
        hidden,
        [step_of(place) for place in range(w.shape[0])],
    )
    return found[:outputs]


@operator("LSTM", since=7)
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    outputs: int = 3,
) -> tuple[Tensor, ...]:
    """Gates in the order input, output, forget, cell. w (D, 4 H, W), r (D, 4 H, H), b (D, 8 H), p (D, 3 H)"""
    hidden = r.shape[-1]
    usual = ["Sigmoid", "Tanh", "Tanh"]
    kinds = activations_of(activations, usual, w.shape[0], activation_alpha, activation_beta)

    def step_of(place: int) -> Any:
        bias = x.new_zeros(4 * hidden) if b is None else b[place, : 4 * hidden] + b[place, 4 * hidden :]
        peep = (x.new_zeros(3, hidden) if p is None else p[place].view(3, -1)).unbind()
        (gate, *gate_numbers), (cell, *cell_numbers), (last, *last_numbers) = kinds[3 * place : 3 * place + 3]

        def step(now: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
            i, o, f, g = (now @ w[place].T + h @ r[place].T + bias).chunk(4, -1)
            i = activate(gate, held_in(i + peep[0] * c, clip), *gate_numbers)
            f = 1 - i if input_forget else activate(gate, held_in(f + peep[2] * c, clip), *gate_numbers)
            c = f * c + i * activate(cell, held_in(g, clip), *cell_numbers)
            o = activate(gate, held_in(o + peep[1] * c, clip), *gate_numbers)
            return o * activate(last, c, *last_numbers), c

        return step

    starts = [initial_h, initial_c]
    found = recurrent(
        x, sequence_lens, direction, layout, starts, hidden, [step_of(place) for place in range(w.shape[0])]
    )
    return found[:outputs]
