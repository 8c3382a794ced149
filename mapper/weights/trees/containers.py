"""One level of a nested container: the steps to its children, the children, and the same container with others."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as registry  # the spec names it: what is registered there is a container

from mapper.errors import FormatError
from mapper.weights.values.keys import accessor, key_node, key_value
from mapper.weights.values.plain import shorten_json


@dataclass(frozen=True)
class Step:
    """From a container to one of its children: by key or index, or by the name of an attribute."""

    key: Any
    is_attribute: bool = False

    def text(self) -> str:
        """As Python writes it: `['inner']`, `[1]`, `.w`."""
        return f".{self.key}" if self.is_attribute else accessor(self.key)

    def node(self) -> Any:
        """As JSON. Raises UnsupportedLeaf for a key of a type that is not stored."""
        return {"attribute": self.key} if self.is_attribute else key_node(self.key)


def step_of(node: Any) -> Step:
    """The step of which `Step.node` made `node`."""
    if not isinstance(node, dict) or "attribute" not in node:
        return Step(key_value(node))
    if not isinstance(node["attribute"], str):
        raise FormatError(f"an attribute is a string, not {shorten_json(node['attribute'])}")
    return Step(node["attribute"], True)


@dataclass
class Level:
    """A container taken apart."""

    steps: list[Step]
    children: list[Any]
    rebuilt: Callable[[list[Any]], Any]  # the same container with these children; it stays as it is


def level(value: Any) -> Level | None:
    """A container taken apart; None for a leaf. Modules are no concern of this function."""
    if type(value) in _OWN:
        return _OWN[type(value)](value)
    if isinstance(value, _NO_CONTAINERS):
        return None
    registered = _torch_level(value) or _jax_level(value)
    if registered is not None:
        return registered
    if isinstance(value, tuple):
        return _named_level(value) if hasattr(value, "_fields") and hasattr(value, "_make") else None
    if dataclasses.is_dataclass(value):
        return _dataclass_level(value)
    if isinstance(value, dict):
        return _dict_level(value)
    return _list_level(value) if isinstance(value, list) else None


def _indexed(children: Any, rebuilt: Callable[[list[Any]], Any]) -> Level:
    return Level([Step(index) for index in range(len(children))], list(children), rebuilt)


def _dict_level(value: dict[Any, Any]) -> Level:
    keys = list(value)

    def rebuilt(children: list[Any]) -> Any:
        new = (
            {} if type(value) is dict else copy.copy(value)
        )  # with its class, its factory and its attributes
        for key, child in zip(keys, children, strict=True):
            new[key] = child
        return new

    return Level([Step(key) for key in keys], list(value.values()), rebuilt)


def _list_level(value: list[Any]) -> Level:
    def rebuilt(children: list[Any]) -> Any:
        if type(value) is list:
            return children
        new = copy.copy(value)
        new[:] = children
        return new

    return _indexed(value, rebuilt)


def _named_level(value: Any) -> Level:
    return Level([Step(name, True) for name in value._fields], list(value), type(value)._make)


def _dataclass_level(value: Any) -> Level:
    names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]

    def rebuilt(children: list[Any]) -> Any:
        new = copy.copy(value)  # its constructor may want other arguments, or do something
        for name, child in zip(names, children, strict=True):
            object.__setattr__(new, name, child)  # frozen ones too
        return new

    return Level([Step(name, True) for name in names], [getattr(value, name) for name in names], rebuilt)


_OWN: dict[type, Callable[[Any], Level]] = {
    dict: _dict_level,
    OrderedDict: _dict_level,
    defaultdict: _dict_level,
    list: _list_level,
    tuple: lambda value: _indexed(value, tuple),
}
_NO_CONTAINERS = (torch.Tensor, np.ndarray, np.generic, str, bytes, int, float, complex, type(None), type)


def _torch_level(value: Any) -> Level | None:
    found = registry.SUPPORTED_NODES.get(type(value))
    if found is None:
        return None
    children, context = found.flatten_fn(value)
    steps = [Step(index) for index in range(len(children))]
    if found.flatten_with_keys_fn is not None:
        steps = _named_steps([(key,) for key, _ in found.flatten_with_keys_fn(value)[0]], steps)
    return Level(steps, list(children), lambda new: found.unflatten_fn(new, context))


def _jax_level(value: Any) -> Level | None:
    jax = sys.modules.get("jax")
    trees = getattr(jax, "tree_util", None)
    if trees is None or trees.all_leaves([value]):
        return None
    found, structure = trees.tree_flatten_with_path(value, is_leaf=lambda node: node is not value)
    steps = _named_steps([path for path, _ in found], [Step(index) for index in range(len(found))])
    return Level(steps, [child for _, child in found], structure.unflatten)


def _named_steps(paths: list[Any], numbered: list[Step]) -> list[Step]:
    """The steps by name, where a registered container gives each child one of its own; else by number."""
    steps = []
    for path in paths:
        entry: Any = path[0] if len(path) == 1 else None
        if isinstance(getattr(entry, "name", None), str):
            steps.append(Step(entry.name, True))
        elif hasattr(entry, "key"):
            steps.append(Step(entry.key))
        elif hasattr(entry, "idx"):
            steps.append(Step(entry.idx))
        else:
            return numbered
    return steps if len(set(map(repr, steps))) == len(steps) == len(numbered) else numbered
