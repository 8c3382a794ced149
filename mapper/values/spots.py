"""Where each tensor stands in the model: its role, the layer that it is in, and the kind of the module that owns it."""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import product
from typing import NamedTuple

from mapper.architecture import Architecture, Leaf


class Spot(NamedTuple):
    """A tensor and its place."""

    name: str
    own: str  # what its module calls it: "weight"
    leaf: Leaf
    role: str  # "layers.attention.query"; its folded place where nothing says
    layer: tuple[int, ...]  # numbers of the lists that it is in
    is_read: bool  # whether a forward may read it: no buffer, and nothing that the reading calls unused

    @property
    def group(self) -> tuple[str, str]:
        """The same for the same tensor of all layers."""
        return self.role, self.own

    @property
    def module(self) -> str:
        return self.name[: -len(self.own) - 1] if self.own and self.name != self.own else self.name


def spots(architecture: Architecture) -> dict[str, Spot]:
    """Every tensor of the checkpoint, in its order."""
    unused = {name for name, _ in architecture.unused}
    found = {spot.name: spot for leaf in architecture.leaves for spot in _of(leaf, unused)}
    return {name: found[name] for name in architecture.checkpoint.tensors if name in found}


def _of(leaf: Leaf, unused: Container[str]) -> Iterator[Spot]:
    role = _role(leaf)
    lists = [part for at, part in enumerate(leaf.place) if not isinstance(part, str) and at not in leaf.fixed]
    for numbers in product(*lists):
        path = _path(leaf, numbers)
        for own in leaf.tensors:
            name = f"{path}.{own}" if own and path else own or path
            yield Spot(name, own, leaf, role, numbers, leaf.kind != "Buffer" and name not in unused)


def _path(leaf: Leaf, numbers: tuple[int, ...]) -> str:
    left = iter(numbers)
    words = []
    for at, part in enumerate(leaf.place):
        if isinstance(part, str):
            words.append(part)
        else:
            words.append(str(part[0] if at in leaf.fixed else next(left)))
    return ".".join(words)


def _role(leaf: Leaf) -> str:
    if leaf.role is None:
        return ".".join(part if isinstance(part, str) else "{n}" for part in leaf.place)
    return ".".join([*(name for name, _ in leaf.block if name != "tower"), leaf.role])
