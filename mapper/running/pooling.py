"""One vector of a text: the modules of sentence-transformers, whose settings stand beside the weights.

https://sbert.net/docs/package_reference/sentence_transformer/models.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mapper.errors import FormatError, SourceError
from mapper.running.session import Session

MODULES, LENGTH = "modules.json", "sentence_bert_config.json"
_MODES = {  # settings of a Pooling module, as before and since version 5.2
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
_ACTIVATIONS = {
    "Tanh": torch.tanh,
    "Identity": lambda x: x,
    "ReLU": torch.relu,
    "GELU": torch.nn.functional.gelu,
}


@dataclass(frozen=True)
class Pooling:
    """Steps from all states to one vector a text."""

    modes: tuple[str, ...]  # what is made of the states, side by side
    steps: tuple[Callable[[Tensor], Tensor], ...] = ()
    longest: int | None = None  # tokens of a text
    lower: bool = False  # whether texts are put in small letters first

    def cased(self, text: str) -> str:
        return text.lower() if self.lower else text

    def __call__(self, out: Any, mask: Tensor) -> Iterator[Tensor]:
        """A vector (W,) for each row of a batch. mask (B, T)"""
        states = getattr(out, "last_hidden_state", None)
        if states is None:
            raise SourceError("the model gives no states to pool")
        x = torch.cat([pooled(mode, states.float(), mask.to(states.device)) for mode in self.modes], dim=-1)
        for step in self.steps:
            x = step(x)
        yield from x


def pooled(mode: str, states: Tensor, mask: Tensor) -> Tensor:
    """What one mode makes of the states of positions where the mask is 1. states (B, T, W), mask (B, T) -> (B, W)"""
    weights = mask[..., None].to(states.dtype)
    if mode == "cls":
        return states[torch.arange(len(states)), mask.argmax(-1)]
    if mode == "lasttoken":
        return states[torch.arange(len(states)), mask.shape[1] - 1 - mask.flip(-1).argmax(-1)]
    if mode == "max":
        return states.masked_fill(weights == 0, -torch.inf).amax(1)
    if mode == "weightedmean":
        weights = weights * torch.arange(1, mask.shape[1] + 1, device=mask.device)[None, :, None]
    total = (states * weights).sum(1)
    return (
        total / weights.sum(1).sqrt()
        if mode == "mean_sqrt_len_tokens"
        else total / weights.sum(1).clamp(min=1e-9)
    )


def pooling_of(session: Session) -> Pooling:
    """By modules.json; the mean over all tokens where there is none, which is said."""
    beside = session.beside
    modules = beside.any(MODULES)
    settings = beside.json(LENGTH)
    longest = settings.get("max_seq_length")
    common: dict[str, Any] = {
        "longest": longest if type(longest) is int and longest > 0 else None,
        "lower": settings.get("do_lower_case") is True,
    }
    if modules is None:
        session.note(
            f"no {MODULES} beside the weights says how states become one vector: it is the mean over all tokens, not normalised"
        )
        return Pooling(("mean",), **common)
    if not isinstance(modules, list) or not all(isinstance(item, dict) for item in modules):
        raise FormatError(f"{MODULES} holds no list of modules; download it again")
    modes: tuple[str, ...] = ()
    steps = []
    for module in modules[1:]:
        kind, place = str(module.get("type", "")).rpartition(".")[2], str(module.get("path", ""))
        if kind == "Pooling":
            modes = _modes(beside.json(f"{place}/config.json"), place)
        elif kind not in _STEPS:
            raise SourceError(
                f"{session.source}: {MODULES} has a module {kind!r}, which is not known; known are Pooling, {', '.join(_STEPS)}"
            )
        else:
            steps.append(_STEPS[kind](session, place))
    if not modes:
        raise FormatError(f"{MODULES} names no Pooling module with settings; download its folder too")
    return Pooling(modes, tuple(steps), **common)


def _modes(said: dict[str, Any], place: str) -> tuple[str, ...]:
    told = said.get("pooling_mode")
    named = (told,) if isinstance(told, str) else tuple(told) if isinstance(told, list) else ()
    modes = named or tuple(mode for key, mode in _MODES.items() if said.get(key) is True)
    if not modes or not {*modes} <= {*_MODES.values()}:
        raise FormatError(
            f"{place}/config.json says no way of pooling that is known: {', '.join(_MODES.values())}"
        )
    return modes


def _normalised(session: Session, place: str) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.nn.functional.normalize(x, dim=-1)


def _dropped(session: Session, place: str) -> Callable[[Tensor], Tensor]:
    return lambda x: x  # in evaluation nothing is dropped


def _dense(session: Session, place: str) -> Callable[[Tensor], Tensor]:
    """A linear map with its own file of weights."""
    from safetensors.torch import load

    data = session.beside.data(f"{place}/model.safetensors")
    name = str(session.beside.json(f"{place}/config.json").get("activation_function", "Identity")).rpartition(
        "."
    )[2]
    if data is None or name not in _ACTIVATIONS:
        raise SourceError(
            f"{session.source}: {place} needs model.safetensors and an activation among {', '.join(_ACTIVATIONS)}"
        )
    try:
        tensors = load(data)
        weight, bias = tensors["linear.weight"].float(), tensors.get("linear.bias")
    except Exception as error:  # the library's errors have no base that it names
        raise FormatError(f"{place}/model.safetensors holds no linear map; download it again") from error
    activation = _ACTIVATIONS[name]
    return lambda x: activation(torch.nn.functional.linear(x, weight, None if bias is None else bias.float()))


_STEPS: dict[str, Callable[[Session, str], Callable[[Tensor], Tensor]]] = {
    "Normalize": _normalised,
    "Dropout": _dropped,
    "Dense": _dense,
}
