"""mamba, tiny: written by mapper 0.1.0, rules 505f7d688489.

Reading: exact (family mamba).
tiny: the header is the example 'a tied head, as published' of families/mamba.yaml

Load the weights with `load(path)`; the attributes are the names in the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    hidden_size: int = 64  # shape: backbone.norm_f.weight [64]
    inner_size: int = 128  # shape: backbone.layers.{0..1}.mixer.in_proj.weight [256, 64]
    conv_kernel: int = 4  # shape: backbone.layers.{0..1}.mixer.conv1d.weight [128, 1, 4]
    step_rank: int = 4  # shape: backbone.layers.{0..1}.mixer.dt_proj.weight [128, 4]
    state_size: int = 16  # shape: backbone.layers.{0..1}.mixer.A_log [128, 16]
    norm_eps: float = 1e-5  # config: layer_norm_epsilon
    vocab_size: int = 99  # shape: backbone.embeddings.weight [99, 64]
    layers: int = 2  # name: backbone.layers.*


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


def conv_causal(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Depthwise convolution that sees no later position. x (B, T, C), weight (C, 1, kernel) -> (B, T, C)"""
    x = F.pad(x.transpose(1, 2), (weight.shape[-1] - 1, 0))
    return F.conv1d(x, weight, bias, groups=weight.shape[0]).transpose(1, 2)


def selective_step(
    h: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor
) -> tuple[Tensor, Tensor]:
    """One position: the next state and the output. h (B, I, N), x, dt (B, I), b, c (B, N) -> h, y (B, I)"""
    h = torch.exp(dt[..., None] * a) * h + (dt * x)[..., None] * b[:, None]
    return h, (h @ c[..., None]).squeeze(-1)


def selective_scan_steps(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """selective_scan one position after another."""
    h = x.new_zeros(x.shape[0], x.shape[2], a.shape[1])
    outputs = []
    for t in range(x.shape[1]):
        h, y = selective_step(h, x[:, t], dt[:, t], a, b[:, t], c[:, t])
        outputs.append(y)
    return torch.stack(outputs, dim=1)


def split_chunks(x: Tensor) -> Tensor:
    """Chunks of 16 positions: two or more, as a count that may be 1 cannot be exported, the last of padding.

    x (B, T, ...) -> (B, n, 16, ...)
    """
    length = x.shape[1]
    x = F.pad(x, (0, 0) * (x.dim() - 2) + (0, 16 * (length // 16 + 2) - length))
    return x.unfold(1, 16, 16).movedim(-1, 2)


def chunk_ends(factors: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> Tensor:
    """State at the end of each chunk that starts from nothing. 16 of (B, n, I, N) each -> (B, n, I, N)"""
    h = inputs[0]
    for factor, u in zip(factors[1:], inputs[1:], strict=True):
        h = factor * h + u
    return h


def linear_scan_pairs(decay: Tensor, x: Tensor) -> Tensor:
    """linear_scan as a sum over all earlier positions. decay and x (B, T, I, N) -> (B, T, I, N)

    Each pair's decay is summed by itself: a difference of running sums would lose the small ones.
    """
    index = torch.arange(x.shape[1], device=x.device)
    ahead = (index - index[:, None])[:, :, None, None]  # the earlier position minus the later one
    between = decay[:, :, None].masked_fill(ahead >= 0, 0.0).cumsum(dim=1)
    return (between.masked_fill(ahead > 0, -torch.inf).exp() * x[:, None]).sum(dim=2)


def join_chunks(parts: list[Tensor], length: int) -> Tensor:
    """Undoes split_chunks, from a list over the 16. 16 of (B, n, ...) -> (B, length, ...)

    A negative pad cuts the end off: a slice would need a proof that there is one.
    """
    x = torch.stack(parts, dim=2).flatten(1, 2)
    return F.pad(x, (0, 0) * (x.dim() - 2) + (0, length - x.shape[1]))


def linear_scan(decay: Tensor, x: Tensor, levels: int) -> Tensor:
    """h_t = exp(decay_t) * h_(t-1) + x_t for all t at once. decay <= 0 and x (B, T, I, N) -> (B, T, I, N)

    In chunks of 16; at the last level, where one element is 16 ** levels positions, as all pairs of elements.
    """
    if levels == 0:
        return linear_scan_pairs(decay, x)
    steps = split_chunks(decay)
    factors, inputs = steps.exp().unbind(2), split_chunks(x).unbind(2)
    h = F.pad(linear_scan(steps.sum(dim=2), chunk_ends(factors, inputs), levels - 1), (0, 0, 0, 0, 1, -1))
    states = []
    for factor, u in zip(factors, inputs, strict=True):
        h = factor * h + u
        states.append(h)
    return join_chunks(states, x.shape[1])


def selective_scan_chunks(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """selective_scan in chunks of 16 side by side: first where each ends, then all of it from its start."""
    steps = split_chunks(dt)
    factors = torch.exp(steps[..., None] * a).unbind(2)  # 16 of (B, n, I, N)
    inputs = (split_chunks(dt * x)[..., None] * split_chunks(b)[..., None, :]).unbind(2)
    h = chunk_ends(factors, inputs)
    h = F.pad(linear_scan(steps.sum(dim=2)[..., None] * a, h, levels=1), (0, 0, 0, 0, 1, -1))
    outputs = []
    for factor, u, w in zip(factors, inputs, split_chunks(c)[..., None].unbind(2), strict=True):
        h = factor * h + u
        outputs.append(h @ w)
    return join_chunks(outputs, x.shape[1]).squeeze(-1)


def selective_scan(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Runs the state space over a sequence in float32.

    x, dt (B, T, I), a (I, N), b, c (B, T, N) -> (B, T, I)
    """
    dtype = x.dtype
    x, dt, a, b, c = x.float(), dt.float(), a.float(), b.float(), c.float()
    if x.device.type == "cpu" and not torch.compiler.is_compiling():
        return selective_scan_steps(x, dt, a, b, c).to(dtype)
    return selective_scan_chunks(x, dt, a, b, c).to(dtype)


def split_halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Cuts a fused [first | second] projection (gate and up). x (..., 2 * N) -> two (..., N)"""
    first, second = x.chunk(2, dim=-1)
    return first, second


def split_sizes(x: Tensor, first: int, second: int, third: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cuts a fused projection in three of these sizes. x (..., first + second + third)"""
    a, b, c = x.split([first, second, third], dim=-1)
    return a, b, c


def zero_padding(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Sets padded positions to zero. x (B, T, C), attention_mask (B, T) or None -> (B, T, C)"""
    return x if attention_mask is None else x * (attention_mask != 0).unsqueeze(-1).to(x.dtype)


class StateSpace(nn.Module):
    """backbone.layers.*.mixer: a short convolution, then a state for each channel that decays and is
    written as its input says, gated.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.step_rank = config.step_rank
        self.state_size = config.state_size
        self.in_proj = nn.Linear(config.hidden_size, 2 * config.inner_size, bias=False)
        self.conv1d = nn.Conv1d(
            config.inner_size, config.inner_size, kernel_size=config.conv_kernel, groups=config.inner_size
        )
        self.x_proj = nn.Linear(config.inner_size, config.step_rank + 2 * config.state_size, bias=False)
        self.dt_proj = nn.Linear(config.step_rank, config.inner_size)
        self.A_log = nn.Parameter(torch.zeros(config.inner_size, config.state_size))
        self.D = nn.Parameter(torch.zeros(config.inner_size))
        self.out_proj = nn.Linear(config.inner_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        x, gate = split_halves(self.in_proj(zero_padding(x, attention_mask)))
        x = F.silu(conv_causal(x, self.conv1d.weight, self.conv1d.bias))
        x = zero_padding(x, attention_mask)
        dt, b, c = split_sizes(self.x_proj(x), self.step_rank, self.state_size, self.state_size)
        y = selective_scan(x, F.softplus(self.dt_proj(dt)), -torch.exp(self.A_log.float()), b, c)
        return self.out_proj((y + x * self.D) * F.silu(gate))


class Layer(nn.Module):
    """backbone.layers.*: pre-norm, a state space inside the residual."""

    def __init__(self, config: Config):
        super().__init__()
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mixer = StateSpace(config)

    def forward(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        return x.float() + self.mixer(self.norm(x.type_as(self.norm.weight)), attention_mask)


class RecurrentDecoder(nn.Module):
    """backbone: embeddings, then layers that carry a state from each position to the next."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm_f = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        x = self.embeddings(input_ids)
        for layer in self.layers:
            x = layer(x, attention_mask)
        return self.norm_f(x.type_as(self.norm_f.weight))


class Model(nn.Module):
    """The model: the next token at every position, read off the word embeddings."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.backbone = RecurrentDecoder(config)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Output:
        """input_ids (batch, length), attention_mask (batch, length)"""
        x = self.backbone(input_ids, attention_mask)
        logits = F.linear(x, self.backbone.embeddings.weight)
        return Output(logits=logits, last_hidden_state=x)


def load(path: str | Path, config: Config = Config()) -> Model:
    """The model with the weights of a .safetensors file or of a directory of them, ready to evaluate."""
    from safetensors.torch import load_file

    files = [Path(path)] if Path(path).is_file() else sorted(Path(path).glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"no .safetensors file in {path}")
    tensors = {name: tensor for file in files for name, tensor in load_file(file).items()}
    with torch.device("meta"):
        model = Model(config)
    model.load_state_dict(tensors, strict=True, assign=True)
    return model.eval()
