"""Layers of torch.nn as data: the class, the settings of its constructor, and what differs from what that gives.

    {"class": "Sequential", "children": {"0": {"class": "Linear", "settings": {"in_features": 4, ...}}, "1": {"same": "0"}}}

A model is described, built again from the description, and compared in full; where anything differs, it has none. So a
description never says something wrong. It is data: a name of a class from torch.nn and plain values, nothing to run.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import nn

from mapper import limits
from mapper.errors import FormatError, shorten
from mapper.weights.stock.settings import NotPlain, accepted, from_plain, plain, settings_of, stock_class

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_INTERNAL = frozenset(nn.Module().__dict__)
# Derived from the parameters by the modules themselves; and what `compile()` keeps, which no copy of a module has.
_DERIVED = frozenset({"_flat_weights", "_flat_weight_refs", "_compiled_call_impl"})
_COUNTS = ("num_layers", "num_encoder_layers", "num_decoder_layers")


def stock_data(model: nn.Module) -> dict[str, Any] | None:
    """The description of a composition of torch.nn's own layers; None where `model` has anything else."""
    try:
        paths = dict(_paths(model))
        node = _Describer(_shared(model)).describe(model)
        again = module_from_stock(node, len(paths) + sum(1 for _ in model.parameters()))
    except (NotPlain, FormatError, RecursionError):
        return None
    identities = [(path, paths[id(module)]) for path, module in _walk(model)]
    return node if dict(identities) == dict(_first_paths(again)) and _same(model, again) else None


def module_from_stock(data: dict[str, Any], states: int = limits.TENSORS) -> nn.Module:
    """The model that `data` describes, on the meta device. `states` bounds how often a setting may repeat a layer.

    Raises FormatError for a class that is not one of torch.nn's layers, a value that is no literal, and settings that
    the class does not take.
    """
    try:
        with torch.device("meta"), _undrawn():
            return _build(data, "", {}, states)
    except RecursionError:
        raise FormatError("the architecture is nested too deeply") from None


def _undrawn() -> Any:
    from mapper._build import NothingDrawn

    return NothingDrawn()


def _walk(
    module: nn.Module, path: str = "", above: tuple[nn.Module, ...] = ()
) -> Iterator[tuple[str, nn.Module]]:
    """Every module under every one of its paths. Raises NotPlain for a module inside itself."""
    if any(module is ancestor for ancestor in above):
        raise NotPlain
    yield path, module
    for name, child in module._modules.items():
        if child is not None:
            yield from _walk(child, _join(path, name), (*above, module))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _paths(model: nn.Module) -> Iterator[tuple[int, str]]:
    """The first path of every module, by identity."""
    seen: set[int] = set()
    for path, module in _walk(model):
        if id(module) not in seen:
            seen.add(id(module))
            yield id(module), path


def _first_paths(model: nn.Module) -> Iterator[tuple[str, str]]:
    """Each path, and the first one of the module there."""
    first = dict(_paths(model))
    return ((path, first[id(module)]) for path, module in _walk(model))


def _shared(model: nn.Module) -> set[int]:
    """Modules that are there under several paths."""
    counts = Counter(id(module) for _, module in _walk(model))
    return {identity for identity, count in counts.items() if count > 1}


# ---- describing


class _Describer:
    """Makes the node of each module. `known` keeps what settings give: most layers of a model are alike."""

    def __init__(self, shared: Collection[int] = ()) -> None:
        self.shared = shared
        self.seen: dict[int, str] = {}  # the first path of every module, by identity
        self.known: dict[str, nn.Module] = {}

    def describe(self, module: nn.Module, path: str = "") -> dict[str, Any]:
        """The node of `module`. Raises NotPlain where something in it is no data."""
        if id(module) in self.seen:
            return {"same": self.seen[id(module)]}
        self.seen[id(module)] = path
        if stock_class(type(module).__name__) is not type(module) or _hooked(module):
            raise NotPlain
        node: dict[str, Any] = {"class": type(module).__name__}
        given = settings_of(module)
        if given:
            node["settings"] = {name: _setting(value) for name, value in given.items()}
        made = self.made(node)
        if not isinstance(module, CONTAINERS):
            below = itertools.islice(module.modules(), 1, None)
            if not any(id(child) in self.shared for child in below) and _same(module, made):
                return node
        _patch(node, module, made)
        if module._modules:
            node["children"] = {
                name: None if child is None else self.describe(child, _join(path, name))
                for name, child in module._modules.items()
            }
        return node

    def made(self, node: dict[str, Any]) -> nn.Module:
        key = json.dumps(node)
        if key not in self.known:
            with torch.device("meta"), _undrawn():
                self.known[key] = _construct(node, limits.LAYERS)
        return self.known[key]


def _setting(value: Any) -> Any:
    return {"module": _Describer().describe(value)} if isinstance(value, nn.Module) else plain(value)


def _patch(node: dict[str, Any], module: nn.Module, made: nn.Module) -> None:
    """Into `node`: values that the constructor does not give, states that are absent, and shapes of those that differ."""
    other = {
        name: plain(value)
        for name, value in _own(module).items()
        if name not in _own(made) or not _equal(value, _own(made)[name])
    }
    if other:
        node["attributes"] = other
    there, here = _states(made), _states(module)
    absent = [name for name, tensor in here.items() if tensor is None and there.get(name) is not None]
    shapes = {
        name: list(tensor.shape)
        for name, tensor in here.items()
        if tensor is not None and (there.get(name) is None or there[name].shape != tensor.shape)
    }
    node.update({key: value for key, value in (("none", absent), ("shapes", shapes)) if value})


def _own(module: nn.Module) -> dict[str, Any]:
    """What the module holds besides states and children."""
    return {
        name: value
        for name, value in module.__dict__.items()
        if name not in _INTERNAL and name not in _DERIVED
    }


def _states(module: nn.Module) -> dict[str, Any]:
    return {**module._parameters, **module._buffers}


# ---- building


def _build(node: Any, path: str, built: dict[str, nn.Module], states: int) -> nn.Module:
    if not isinstance(node, dict):
        raise FormatError(
            f"the architecture has {shorten(str(node))} at {shorten(path)} where a layer is described"
        )
    if "same" in node:
        first = built.get(node["same"]) if isinstance(node["same"], str) else None
        if first is None:
            raise FormatError(
                f"{shorten(path)} is the same module as {shorten(str(node['same']))}, which is not there"
            )
        return first
    module = built[path] = _construct(node, states)
    _restore(module, node, path)
    children = _object(node, "children", path)
    if children and not isinstance(module, CONTAINERS) and children.keys() != module._modules.keys():
        raise FormatError(
            f"{shorten(path)}: a {node['class']} has other parts than {shorten(', '.join(children))}"
        )
    for name, child in children.items():
        if not name or "." in name or (name not in module._modules and hasattr(module, name)):
            raise FormatError(f"{shorten(path)}: {shorten(name)} is no name of a module")
        inner = None if child is None else _build(child, _join(path, name), built, states)
        module._modules[name] = inner
    return module


def _construct(node: dict[str, Any], states: int) -> nn.Module:
    """The module from its class and settings alone."""
    name = node.get("class")
    kind = stock_class(name) if isinstance(name, str) else None
    if kind is None:
        raise FormatError(
            f"the architecture names the class {shorten(str(name))}, which is no layer of torch.nn"
        )
    settings = _object(node, "settings", name)
    unknown = sorted(settings.keys() - accepted(kind))
    if unknown:
        raise FormatError(
            f"the architecture gives {name} the setting {shorten(unknown[0])}, which this torch lacks"
        )
    values = {key: _value(value, states) for key, value in settings.items()}
    for key in _COUNTS:
        if isinstance(values.get(key), int) and values[key] > states:
            raise FormatError(
                f"the architecture asks for {values[key]:,} layers of {name}; there are {states:,} states"
            )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice on settings, which whoever chose them has had
            return kind(**values)
    except RecursionError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise FormatError(
            f"the architecture's settings of {name} are refused: {shorten(reason, 200)}"
        ) from error


def _value(value: Any, states: int) -> Any:
    if isinstance(value, dict) and "module" in value:
        return _build(value["module"], "", {}, states)
    return from_plain(value)


def _object(node: dict[str, Any], key: str, path: Any) -> dict[str, Any]:
    found = node.get(key, {})
    if not isinstance(found, dict):
        raise FormatError(f"{shorten(str(path))}: {key!r} is {shorten(str(found))} in the architecture")
    return found


def _restore(module: nn.Module, node: dict[str, Any], path: str) -> None:
    """The values, absent states and shapes of `node` that the constructor did not give."""
    for name, value in _object(node, "attributes", path).items():
        if name not in _own(module) and (
            not name.isidentifier() or name.startswith("__") or hasattr(module, name)
        ):
            raise FormatError(f"{shorten(path)}: the attribute {shorten(name)} may not be set")
        module.__dict__[name] = from_plain(value)
    absent, shapes = node.get("none", []), _object(node, "shapes", path)
    for name in [*(absent if isinstance(absent, list) else []), *shapes]:
        if not isinstance(name, str) or name not in _states(module):
            raise FormatError(f"{shorten(path)}: a {node['class']} has no state {shorten(str(name))}")
        _set_state(module, name, None if name not in shapes else _meta(shapes[name], path))


def _meta(shape: Any, path: str) -> torch.Tensor:
    from mapper.sources.shards import check_shape

    try:
        return torch.empty(check_shape(shape, path, "the architecture"), device="meta")
    except RuntimeError as error:  # more elements than 64 bits count
        raise FormatError(f"{shorten(path)}: the shape {shorten(str(shape))} is of no tensor") from error


def _set_state(module: nn.Module, name: str, tensor: torch.Tensor | None) -> None:
    if name in module._buffers:
        module._buffers[name] = tensor
    else:
        module._parameters[name] = None if tensor is None else nn.Parameter(tensor)


# ---- comparing


def _same(one: nn.Module, other: nn.Module) -> bool:
    """Whether two modules are of the same classes, with the same values and the same states of the same shapes."""
    if type(one) is not type(other) or _hooked(one) or list(one._modules) != list(other._modules):
        return False
    mine, theirs = _own(one), _own(other)
    if mine.keys() != theirs.keys() or any(not _equal(value, theirs[name]) for name, value in mine.items()):
        return False
    if one._non_persistent_buffers_set or other._non_persistent_buffers_set:
        return False
    if not all(_same_states(left, right) for left, right in _registers(one, other)):
        return False
    pairs = zip(one._modules.values(), other._modules.values(), strict=True)
    return all(
        left is right if left is None or right is None else _same(left, right) for left, right in pairs
    )


def _hooked(module: nn.Module) -> bool:
    return any(getattr(module, name) for name in _INTERNAL if "_hooks" in name)


def _registers(one: nn.Module, other: nn.Module) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    yield one._parameters, other._parameters
    yield one._buffers, other._buffers


def _same_states(one: dict[str, Any], other: dict[str, Any]) -> bool:
    shape: Callable[[Any], Any] = lambda tensor: None if tensor is None else tuple(tensor.shape)  # noqa: E731
    return list(one) == list(other) and all(shape(one[name]) == shape(other[name]) for name in one)


def _equal(one: Any, other: Any) -> bool:
    """Equal with the same types all through; NaN is NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(_equal(one[key], other[key]) for key in one)
    return one is other or bool(one == other) or (one != one and other != other)
