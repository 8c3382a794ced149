"""Nested plain values (the `aux` of a save) as strict JSON beside tensors, and back: types, bits and sharing.

A container is an object with one tag: `{"list": [...]}`, `{"dict": {...}}`; a dict whose keys are not all strings is
`{"items": [[key, value], ...]}`. What is reached twice, and what lies too deep for a JSON reader, is one of `parts`,
which stand in the order in which they can be built: `{"part": 0}` refers to the first. Dicts keep their order, so
the JSON must be written without sorting its keys.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from mapper import limits
from mapper.errors import FormatError, UnsupportedLeaf
from mapper.weights.values.described import (
    array_node,
    array_value,
    scalar_node,
    scalar_value,
    tensor_node,
    tensor_value,
)
from mapper.weights.values.keys import accessor, key_node, key_value
from mapper.weights.values.plain import is_text, plain_node, plain_value, shorten_json
from mapper.weights.values.state_table import Tree

ROOT = "aux"
# The kinds of dict that come back as what they are, and the one attribute that they may have besides their items: in
# a state dict of torch the versions of its modules, in a tree of mapper's its ties. Counter: MultiStepLR has one.
_DICTS: dict[type, str | None] = {dict: None, Counter: None, OrderedDict: "_metadata", Tree: "tied"}


def encode(aux: dict[Any, Any]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """A structure of strict JSON, and the tensors to store under these names; no dense tensor is copied.

    `UnsupportedLeaf` names the place of what cannot be stored, `aux['opt']['hooks'][1]`.
    """
    if type(aux) is not dict:
        raise UnsupportedLeaf(f"{ROOT} is a dict, not {type(aux).__qualname__}", ROOT)
    encoder = _Encoder()
    root = encoder.walk(aux)
    return {"root": root, "parts": encoder.parts()}, encoder.tensors


def decode(structure: Any, read: Callable[[str], torch.Tensor]) -> dict[Any, Any]:
    """The `aux` that `encode` was given. `read` gives a stored tensor, which becomes part of it; each is read once."""
    if not isinstance(structure, dict) or not isinstance(structure.get("parts", []), list):
        raise FormatError(f"the structure of {ROOT} is an object with root and parts")
    decoder = _Decoder(read)
    for node in structure.get("parts", []):
        decoder.parts.append(decoder.value(node, 0))
    aux = decoder.value(structure.get("root"), 0)
    if type(aux) is not dict:
        raise FormatError(f"{ROOT} is a dict, not {type(aux).__qualname__}")
    return aux


class _Node(dict[str, Any]):
    """The JSON object of one container or array; `deep` counts the levels in it, `part` says it stands by itself."""

    deep = 0
    part = False


class _Frame:
    """A container on the way down: what is left of it, and the JSON of what is done."""

    def __init__(
        self, value: Any, keys: list[Any], children: list[Any], node: _Node, done: list[Any]
    ) -> None:
        self.value, self.node, self.done = value, node, done
        self.keys = keys
        self.children: Iterator[Any] = iter(children)


class _Encoder:
    """Walks without recursion: ten thousand lists in each other are nothing a user should see a limit of."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.frames: list[_Frame] = []
        self.known: dict[int, _Node | None] = {}  # by id; None while its contents are being walked
        self.finished: list[_Node] = []
        self.alive: list[Any] = []  # an id is only good while its object lives

    def keep(self, tensor: torch.Tensor) -> str:
        name = str(len(self.tensors))
        self.tensors[name] = tensor
        return name

    def walk(self, root: Any) -> Any:
        self.open(root)
        while True:
            frame = self.frames[-1]
            for child in frame.children:
                node = self.leaf(child)
                if node is NotImplemented:
                    self.open(child)
                    break
                frame.done.append(node)
            else:
                node = self.close(self.frames.pop())
                if not self.frames:
                    return node
                self.frames[-1].done.append(node)

    def leaf(self, value: Any) -> Any:
        """The JSON of what is no container or is known already; else `NotImplemented`."""
        if id(value) in self.known:
            node = self.known[id(value)]
            if node is None:
                self.refuse(f"a {type(value).__qualname__} that contains itself cannot be stored")
            else:
                node.part = True
            return node
        try:
            node = plain_node(value, self.keep)
            if node is NotImplemented and isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
                return self.array(value)
        except UnsupportedLeaf as error:
            self.refuse(str(error))
        return node

    def array(self, value: Any) -> Any:
        if isinstance(value, np.generic):
            return scalar_node(value)
        is_tensor = isinstance(value, torch.Tensor)
        stored, fields = tensor_node(value) if is_tensor else array_node(value)
        tag = "torch.tensor" if is_tensor else "numpy.array"
        return self.finish(value, _Node({tag: self.keep(stored)} | fields))

    def finish(self, value: Any, node: _Node) -> _Node:
        self.known[id(value)] = node
        self.alive.append(value)
        self.finished.append(node)
        return node

    def open(self, value: Any) -> None:
        """Start on the contents of a container."""
        done: list[Any] = []
        if type(value) in (list, tuple):
            frame = _Frame(value, [*range(len(value))], [*value], _Node({type(value).__name__: done}), done)
        elif type(value) in _DICTS:
            frame = _Frame(value, [*value], [*value.values()], _Node(), done)
            self.attributes(frame)
        else:
            self.refuse(_unsupported(value))
        self.known[id(value)] = None
        self.frames.append(frame)

    def attributes(self, frame: _Frame) -> None:
        """What a dict of another class has besides its items."""
        extra, name = getattr(frame.value, "__dict__", {}), _DICTS[type(frame.value)]
        if not extra:
            return
        if set(extra) != {name}:
            self.refuse(f"a {type(frame.value).__qualname__} with attributes of its own cannot be stored")
        frame.keys.append(_Attribute(name))
        frame.children = iter([*frame.value.values(), extra[name]])

    def close(self, frame: _Frame) -> _Node:
        node, done = frame.node, frame.done
        if not node:
            if frame.keys and type(frame.keys[-1]) is _Attribute:
                node[str(frame.keys[-1])] = done.pop()
            node |= self.items(frame)
        node.deep = 1 + max(
            (child.deep for child in done if isinstance(child, _Node) and not child.part), default=0
        )
        node.part = node.deep >= limits.NESTED
        inert = type(frame.value) is tuple and not any(isinstance(child, _Node) for child in done)
        if inert:  # a constant such as (0.9, 0.999), which Python shares as it likes: written out each time
            del self.known[id(frame.value)]
            return node
        return self.finish(frame.value, node)

    def items(self, frame: _Frame) -> dict[str, Any]:
        keys, name = frame.keys[: len(frame.done)], type(frame.value).__name__
        if name == "dict" and all(type(key) is str and is_text(key) for key in keys):
            return {"dict": dict(zip(keys, frame.done, strict=True))}
        rows = [[self.key(frame, at), node] for at, node in enumerate(frame.done)]
        return {"items" if name == "dict" else name: rows}

    def key(self, frame: _Frame, at: int) -> Any:
        try:
            return key_node(frame.keys[at])
        except UnsupportedLeaf as error:
            path = self.path() + accessor(frame.keys[at])
            raise UnsupportedLeaf(f"{path}: {error}", path) from None

    def path(self) -> str:
        """The place of the child that is being walked; inside `close`, of the container."""
        steps = [frame.keys[len(frame.done)] for frame in self.frames]
        return ROOT + "".join(f".{step}" if type(step) is _Attribute else accessor(step) for step in steps)

    def refuse(self, reason: str) -> None:
        path = self.path()
        raise UnsupportedLeaf(f"{path}: {reason}", path) from None

    def parts(self) -> list[dict[str, Any]]:
        """The objects that stand by themselves; where they were, a reference is left."""
        found: list[dict[str, Any]] = []
        for node in self.finished:  # the inner one before the outer one
            if node.part:
                found.append(dict(node))
                node.clear()
                node["part"] = len(found) - 1
        return found


class _Attribute(str):
    """Stands among the keys of a dict for an attribute of this name."""

    __slots__ = ()


def _unsupported(value: Any) -> str:
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if isinstance(value, (dict, list, tuple, int, float, complex, str, bytes)):
        plain = next(base.__name__ for base in type(value).__mro__ if base.__module__ == "builtins")
        return f"a value of type {kind} would not come back as one; give a plain {plain}"
    return f"a value of type {kind} cannot be stored; only numbers, strings, bytes, arrays, dicts, lists and tuples can"


class _Decoder:
    def __init__(self, read: Callable[[str], torch.Tensor]) -> None:
        self.read_stored = read
        self.seen: set[str] = set()
        self.parts: list[Any] = []

    def read(self, name: Any) -> torch.Tensor:
        """A stored tensor. Once: a file of few bytes must not become many tensors."""
        if not isinstance(name, str) or name in self.seen:
            raise FormatError(f"the structure of {ROOT} reads the tensor {shorten_json(name)} more than once")
        self.seen.add(name)
        try:
            return self.read_stored(name)
        except KeyError as error:
            raise FormatError(f"the tensor {name!r} of {ROOT} is not stored") from error

    def value(self, node: Any, depth: int) -> Any:
        value = plain_value(node, self.read)
        if value is not NotImplemented:
            return value
        if depth > limits.NESTED:
            raise FormatError(f"the structure of {ROOT} nests over {limits.NESTED} levels")
        tags = [tag for tag in node if tag in _CONTAINERS] if isinstance(node, dict) else []
        if len(tags) != 1:
            raise FormatError(f"the structure of {ROOT} has {shorten_json(node)} where a value is described")
        return _CONTAINERS[tags[0]](self, node, depth + 1)

    def part(self, node: dict[str, Any], depth: int) -> Any:
        index = node["part"]
        if type(index) is not int or not 0 <= index < len(self.parts):
            raise FormatError(f"part {index!r} of {ROOT} is referred to before it is described")
        return self.parts[index]

    def sequence(self, nodes: Any, depth: int) -> list[Any]:
        if not isinstance(nodes, list):
            raise FormatError(f"the items of {ROOT} are a list, not {shorten_json(nodes)}")
        return [self.value(node, depth) for node in nodes]

    def mapping(self, node: dict[str, Any], depth: int) -> dict[Any, Any]:
        if not isinstance(node["dict"], dict):
            raise FormatError(f"a dict of {ROOT} is an object, not {shorten_json(node['dict'])}")
        return {key: self.value(child, depth) for key, child in node["dict"].items()}

    def pairs(self, rows: Any, depth: int) -> dict[Any, Any]:
        if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 2 for row in rows):
            raise FormatError(f"the items of {ROOT} are pairs, not {shorten_json(rows)}")
        found = {key_value(key): self.value(child, depth) for key, child in rows}
        if len(found) != len(rows):
            raise FormatError(f"a dict of {ROOT} has one key twice")
        return found

    def ordered(self, node: dict[str, Any], depth: int) -> OrderedDict[Any, Any]:
        return self.attributed(OrderedDict(self.pairs(node["OrderedDict"], depth)), node, depth)

    def tree(self, node: dict[str, Any], depth: int) -> Tree:
        return self.attributed(Tree(self.pairs(node["Tree"], depth)), node, depth)

    def attributed(self, found: Any, node: dict[str, Any], depth: int) -> Any:
        name = _DICTS[type(found)]
        if name in node:
            setattr(found, name, self.value(node[name], depth))
        return found

    def counter(self, node: dict[str, Any], depth: int) -> Counter[Any]:
        found: Counter[Any] = Counter()
        dict.update(found, self.pairs(node["Counter"], depth))  # Counter's own would add, and count
        return found

    def tensor(self, node: dict[str, Any], depth: int) -> torch.Tensor:
        return tensor_value(self.read(node["torch.tensor"]), node)

    def array(self, node: dict[str, Any], depth: int) -> np.ndarray[Any, Any]:
        return array_value(self.read(node["numpy.array"]), node)


_CONTAINERS: dict[str, Callable[[_Decoder, dict[str, Any], int], Any]] = {
    "part": _Decoder.part,
    "list": lambda self, node, depth: self.sequence(node["list"], depth),
    "tuple": lambda self, node, depth: tuple(self.sequence(node["tuple"], depth)),
    "dict": _Decoder.mapping,
    "items": lambda self, node, depth: self.pairs(node["items"], depth),
    "OrderedDict": _Decoder.ordered,
    "Tree": _Decoder.tree,
    "Counter": _Decoder.counter,
    "torch.tensor": _Decoder.tensor,
    "numpy.array": _Decoder.array,
    "numpy.scalar": lambda self, node, depth: scalar_value(node, self.read),
}
