"""Layers of torch.nn as data: the class, the settings of its constructor, and what differs from what that gives.

    {"class": "Sequential", "children": {"0": {"class": "Linear", "settings": {"in_features": 4, ...}}, "1": {"same": "0"}}}

A model is described, built again from the description, and compared in full; where anything differs, it has none. So a
description never says something wrong. It is data: a name of a class from torch.nn and plain values, nothing to run.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any

from torch import nn

from mapper import limits
from mapper.errors import FormatError
from mapper.weights.modules import joined
from mapper.weights.stock.described import (
    CONTAINERS,
    INTERNAL,
    Builder,
    module_from_stock,
    own,
    registered,
)
from mapper.weights.stock.settings import NotPlain, plain, settings_of, stock_class


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


def _walk(
    module: nn.Module, path: str = "", above: tuple[nn.Module, ...] = ()
) -> Iterator[tuple[str, nn.Module]]:
    """Every module under every one of its paths. Raises NotPlain for a module inside itself."""
    if any(module is ancestor for ancestor in above):
        raise NotPlain
    yield path, module
    for name, child in module._modules.items():
        if child is not None:
            yield from _walk(child, joined(path, name), (*above, module))


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
                name: None if child is None else self.describe(child, joined(path, name))
                for name, child in module._modules.items()
            }
        return node

    def made(self, node: dict[str, Any]) -> nn.Module:
        key = json.dumps(node)
        if key not in self.known:
            self.known[key] = Builder(limits.LAYERS).alone(node)
        return self.known[key]


def _setting(value: Any) -> Any:
    return {"module": _Describer().describe(value)} if isinstance(value, nn.Module) else plain(value)


def _patch(node: dict[str, Any], module: nn.Module, made: nn.Module) -> None:
    """Into `node`: values that the constructor does not give, states that are absent, and shapes of those that differ."""
    other = {
        name: plain(value)
        for name, value in own(module).items()
        if name not in own(made) or not _equal(value, own(made)[name])
    }
    if other:
        node["attributes"] = other
    there, here = registered(made), registered(module)
    absent = [name for name, tensor in here.items() if tensor is None and there.get(name) is not None]
    shapes = {
        name: list(tensor.shape)
        for name, tensor in here.items()
        if tensor is not None and (there.get(name) is None or there[name].shape != tensor.shape)
    }
    node.update({key: value for key, value in (("none", absent), ("shapes", shapes)) if value})


# ---- comparing


def _same(one: nn.Module, other: nn.Module) -> bool:
    """Whether two modules are of the same classes, with the same values and the same states of the same shapes."""
    if type(one) is not type(other) or _hooked(one) or list(one._modules) != list(other._modules):
        return False
    mine, theirs = own(one), own(other)
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
    return any(getattr(module, name) for name in INTERNAL if "_hooks" in name)


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
