"""Everything about a model that a load may change, as values that can be compared."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

import mapper


def bits(tensor: torch.Tensor | None) -> Any:
    """The bytes of a tensor, with its dtype, shape and device; None and tensors without data have none."""
    if tensor is None:
        return None
    if nn.parameter.is_lazy(tensor):
        return "lazy"
    about = (tensor.dtype, tuple(tensor.shape), str(tensor.device))
    if tensor.is_meta:
        return about
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return (*about, flat.view(torch.uint8).tolist() if flat.numel() else [])


def snapshot(model: nn.Module) -> dict[str, Any]:
    """Values, identities, gradients and flags of all parameters and buffers, and the training flags."""
    found: dict[str, Any] = {}
    for path, parameter in model.named_parameters(remove_duplicate=False):
        grad = None if nn.parameter.is_lazy(parameter) else parameter.grad
        found[path] = (
            id(parameter),
            type(parameter),
            bits(parameter),
            parameter.requires_grad,
            id(grad),
            bits(grad),
        )
    for path, buffer in model.named_buffers(remove_duplicate=False):
        found[path] = (id(buffer), type(buffer), bits(buffer), buffer.requires_grad)
    for path, module in model.named_modules():
        found[f"{path}:module"] = (
            id(module),
            type(module),
            module.training,
            list(module._parameters),
            list(module._buffers),
        )
    return found


@contextlib.contextmanager
def refused(model: nn.Module, error: type[BaseException] = mapper.StructureError) -> Iterator[Any]:
    """The block raises `error`, and the model is bit for bit as it was."""
    before = snapshot(model)
    caught = Caught()
    try:
        yield caught
    except error as raised:
        caught.error = raised
    else:
        raise AssertionError(f"no {error.__name__} was raised")
    assert snapshot(model) == before


class Caught:
    """What the block of `refused` raised."""

    error: Any = None

    @property
    def report(self) -> Any:
        return self.error.report

    @property
    def kinds(self) -> dict[str, str]:
        return {entry.path: entry.kind for entry in self.report.mismatched}


def filled(model: nn.Module, start: float = 1.0) -> nn.Module:
    """The model with another number in every element of every state."""
    with torch.no_grad():
        for tensor in dict.fromkeys(model.state_dict(keep_vars=True).values()):
            numbers = torch.arange(start, start + tensor.numel(), dtype=torch.float64)
            tensor.copy_(numbers.reshape(tensor.shape))
            start += tensor.numel()
    return model


def zeroed(model: nn.Module) -> nn.Module:
    """The model with a zero in every element of every state."""
    with torch.no_grad():
        for tensor in model.state_dict(keep_vars=True).values():
            tensor.zero_()
    return model


def same_states(one: nn.Module, other: nn.Module) -> bool:
    """Whether both modules have states of the same names, dtypes, shapes and bits."""
    first, second = one.state_dict(), other.state_dict()
    return list(first) == list(second) and all(bits(first[key]) == bits(second[key]) for key in first)


def two_layers() -> nn.Sequential:
    """Two linear layers with an activation between: states `0.*` and `2.*`."""
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))


class Tied(nn.Module):
    """An embedding whose matrix is also the head's: `embed.weight` and `head.weight` are one parameter."""

    def __init__(self, tied: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.inner = nn.Linear(3, 3)
        self.head = nn.Linear(3, 5, bias=False)
        if tied:
            self.head.weight = self.embed.weight


class Holder(nn.Module):
    """One module with the given parameters (None for an absent one), buffers and children."""

    def __init__(self, **members: Any) -> None:
        super().__init__()
        for name, member in members.items():
            if member is None:
                self.register_parameter(name, None)
            elif isinstance(member, nn.Parameter | nn.Module):
                setattr(self, name, member)
            else:
                self.register_buffer(name, member)
