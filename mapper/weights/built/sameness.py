"""Whether a model is still what its source makes: the code of its classes, its modules, its states and its settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from itertools import zip_longest
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn

from mapper.errors import shorten

_COMPILED = "_compiled_call_impl"  # of `model.compile()`: the same computation


def why_edited(model: nn.Module, text: str) -> str:
    """What differs between a model and a new one from `text`, which its class was made from; "" where nothing does.

    Hooks, dtypes, devices and gradients are no part of the structure.
    """
    return _changed_code(type(model), text) or _changed_modules(model, new_model(type(model)))


def new_model(made_by: type[nn.Module]) -> nn.Module:
    """A model of a generated class with its own sizes, on the meta device."""
    from mapper._build import NothingDrawn

    with torch.device("meta"), NothingDrawn():
        return made_by()


def _changed_code(root: type, text: str) -> str:
    """The first function of the classes of a file, or beside them, that is not the one in its text."""
    written = dict(_codes(compile(text, "<source>", "exec", dont_inherit=True)))
    forward = vars(root).get("forward")
    names = forward.__globals__ if isinstance(forward, FunctionType) else {}
    for name, code in written.items():
        owner, _, method = name.rpartition(".")
        holder: Mapping[str, Any] = (
            names if not owner else vars(root if owner == "Model" else names.get(owner, object))
        )
        if getattr(_function(holder.get(method)), "__code__", None) != code:
            return f"{name} is another function"
    for owner in {name.partition(".")[0] for name in written if "." in name}:
        own = vars(names[owner]).items()
        added = [name for name, value in own if isinstance(_function(value), FunctionType)]
        if is_dataclass(names[owner]):  # what it is made with by its decorator
            added = [name for name in added if not name.startswith("__")]
        if more := [name for name in added if f"{owner}.{name}" not in written]:
            return f"{owner} has a function {shorten(more[0])}"
    return "" if names.get("Model") is root else f"{root.__qualname__} is not the model of its file"


def _function(value: object) -> object:
    """What a property computes its value by; anything else as it is."""
    return value.fget if isinstance(value, property) else value


def _codes(code: CodeType, prefix: str = "") -> Iterator[tuple[str, CodeType]]:
    """The functions that a file defines, those of its classes as `Class.method`."""
    for inner in code.co_consts:
        if not isinstance(inner, CodeType) or inner.co_name.startswith("<"):
            continue
        if inner.co_flags & 0x2:  # CO_NEWLOCALS: a function; the body of a class has none
            yield prefix + inner.co_name, inner
        else:
            yield from _codes(inner, f"{inner.co_name}.")


def _changed_modules(model: nn.Module, other: nn.Module) -> str:
    """The first place where two models are not of the same modules with the same states and settings."""
    pairs = zip_longest(
        model.named_modules(remove_duplicate=False), other.named_modules(remove_duplicate=False)
    )
    for ours, theirs in pairs:
        if ours is None or theirs is None or ours[0] != theirs[0]:
            path = ours[0] if ours is not None else theirs[0]
            return f"it has no module {shorten(path)}, or one more" if path else "it has other modules"
        path, mine = ours
        where = f" at {shorten(path)}" if path else ""
        if type(mine) is not type(theirs[1]):
            return f"{type(theirs[1]).__name__}{where} is {type(mine).__name__}"
        if changed := _changed_states(mine, theirs[1]) or _changed_settings(mine, theirs[1]):
            return f"{type(mine).__name__}{where} has another {shorten(changed)}"
    return ""


def _changed_states(mine: nn.Module, other: nn.Module) -> str:
    """The first parameter or buffer that is of another shape, or that only one of the two has."""
    for ours, theirs in ((mine._parameters, other._parameters), (mine._buffers, other._buffers)):
        for name in (*theirs, *ours):
            if name not in ours or name not in theirs or _form(ours[name]) != _form(theirs[name]):
                return name
    return next(iter(mine._non_persistent_buffers_set ^ other._non_persistent_buffers_set), "")


def _form(tensor: torch.Tensor | None) -> Any:
    return None if tensor is None else tensor.shape


def _changed_settings(mine: nn.Module, other: nn.Module) -> str:
    """The first public attribute with another value, or one that hides what the class has under its name."""
    ours, theirs = vars(mine), vars(other)
    for name, value in theirs.items():
        if name.startswith("_") or name == "training":
            continue
        if name not in ours or not _is_same(ours[name], value):
            return name
    hidden = (name for name in ours if name not in theirs and hasattr(type(mine), name) and name != _COMPILED)
    return next(hidden, "")


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return (
            isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and _form(one) == _form(other)
        )
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # whatever cannot be compared is not known to be the same
        return False
