"""Tensors that follow from those of the file alone: turned, cut and put together as the graph does, once, when they are read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mapper.checkpoint import FLOATS
from mapper.graphs.graph import Graph, Node, TensorRef
from mapper.graphs.straight.types import axes_of, integer, slice_bounds, types_of
from mapper.graphs.straight.values import Held, sizes

if TYPE_CHECKING:
    import torch

MOST_WHOLE = 64  # numbers of a constant that is read while nothing is built
STEPS = ("Identity", "Unsqueeze", "Squeeze", "Reshape", "Transpose", "Slice", "Concat")
NARROW = ("I8", "U8", "I16", "U16", "I32")  # types of quantised numbers
Make = Callable[["list[torch.Tensor]"], "torch.Tensor"]


@dataclass(frozen=True)
class Derived(TensorRef):
    """A tensor that is made of others of the file."""

    sources: tuple[TensorRef, ...] = field(default=(), compare=False)
    make: Make | None = field(default=None, compare=False)
    is_turned: bool = field(default=False, compare=False)  # the transpose of its one source

    def read(self) -> torch.Tensor:
        """The tensor, in the order of its own rows."""
        assert self.make is not None
        return self.make([source.read() for source in self.sources]).contiguous()


def derived(shape: tuple[int, ...], sources: list[TensorRef], make: Make) -> Derived:
    """A tensor of that shape; its type is that of the first source."""
    first = sources[0]
    return Derived(first.name, first.dtype, shape, first.path, 0, 0, "made", (), tuple(sources), make)


@dataclass
class Constants:
    """The constants by the names of their values, in one graph and in those around it."""

    held: dict[str, TensorRef] = field(default_factory=dict)
    most: int = 0  # elements of a tensor that is made of others

    def within(self, graph: Graph) -> Constants:
        """Those of a graph inside, with what is around it."""
        found = Constants(dict(self.held), self.most or sum(ref.size for ref in graph.initialisers.values()))
        for value in graph.inputs:
            found.held.pop(value.name, None)
        found.held |= graph.initialisers
        for node in graph.nodes:
            found.add(node)
        return found

    def add(self, node: Node) -> None:
        """What a node gives, if it is a constant."""
        if node.domain or not node.outputs:
            return
        value = node.attributes.get("value")
        if node.operator == "Constant" and isinstance(value, TensorRef):
            self.held[node.outputs[0]] = value
            self.most += value.size
        elif (ref := self._made(node)) is not None:
            self.held[node.outputs[0]] = ref

    def _made(self, node: Node) -> TensorRef | None:
        """The tensor that a node makes of others of the file; None for any other node."""
        if node.operator == "DequantizeLinear":
            return self._dequantised(node)
        return self._step(node) if node.operator in STEPS and node.inputs else None

    def _step(self, node: Node) -> TensorRef | None:
        count = None if node.operator == "Concat" else 1
        refs = [self.held.get(name) for name in node.inputs[:count]]
        sources = [ref for ref in refs if ref is not None]
        if len(sources) < len(refs) or sources[0].dtype not in FLOATS:
            return None
        if node.operator == "Identity":
            return sources[0]
        inputs = [self._held(name, place) for place, name in enumerate(node.inputs)]
        known = types_of(node, inputs)
        shape = known[0][1] if known else None
        make = _made(node, inputs)
        if shape is None or make is None or any(not isinstance(size, int) for size in shape):
            return None
        whole = tuple(size for size in shape if isinstance(size, int))
        return derived(whole, sources, make) if math.prod(whole) <= self.most else None

    def _dequantised(self, node: Node) -> TensorRef | None:
        """The float32 numbers that narrow ones stand for: what the layers compute with, and what can be trained."""
        refs = [self.held.get(name) for name in node.inputs]
        sources = [ref for ref in refs if ref is not None]
        if len(sources) < max(len(refs), 2) or node.attributes.keys() - {"axis"}:
            return None
        if sources[0].dtype not in NARROW or sources[1].dtype != "F32":
            return None
        axis = integer(node, "axis", 1)
        made = derived(sources[0].shape, sources, lambda tensors: _dequantised(tensors, axis))
        return replace(made, dtype="F32")

    def _held(self, name: str, place: int) -> Held | None:
        ref = self.held.get(name)
        if ref is None:
            return None
        if place and ref.dtype in ("I64", "I32") and len(ref.shape) < 2 and ref.size <= MOST_WHOLE:
            from mapper.graphs.recovery.scalars import numbers

            found = numbers(ref)
            return sizes([str(int(item)) for item in found], not ref.shape) if found is not None else None
        return Held(name, dtype=ref.dtype, rank=len(ref.shape), shape=ref.shape)


def _made(node: Node, inputs: list[Held | None]) -> Make | None:
    """How a node's result is computed of its first inputs."""
    given = inputs[1] if len(inputs) > 1 else None
    if node.operator == "Concat":
        axis = integer(node, "axis", 1)
        return lambda tensors: _joined(tensors, axis)
    if node.operator == "Transpose":
        order = axes_of(node, None, "perm")
        return None if order is None else lambda tensors: tensors[0].permute(order)
    if node.operator == "Slice":
        bounds = slice_bounds(node, inputs)
        if bounds is None or any(step != 1 or axis < 0 for axis, _, _, step in bounds):
            return None
        return lambda tensors: _cut(tensors[0], bounds)
    if node.operator == "Reshape":
        shape = given.constants if given is not None else None
        return None if shape is None or 0 in shape else lambda tensors: tensors[0].reshape(shape)
    axes = axes_of(node, given)
    if not axes or min(axes) < 0:
        return None
    if node.operator == "Squeeze":
        return lambda tensors: tensors[0].squeeze(tuple(axes))
    return lambda tensors: _unsqueezed(tensors[0], sorted(axes))


def _dequantised(tensors: list[torch.Tensor], axis: int) -> torch.Tensor:
    from mapper.graphs.operators.quantised import dequantize_linear

    return dequantize_linear(*tensors, axis=axis)


def _joined(tensors: list[torch.Tensor], axis: int) -> torch.Tensor:
    import torch

    return torch.cat(tensors, axis)


def _cut(tensor: torch.Tensor, bounds: list[tuple[int, int, int, int]]) -> torch.Tensor:
    for axis, start, end, _ in bounds:
        tensor = tensor[(slice(None),) * axis + (slice(start, end),)]
    return tensor


def _unsqueezed(tensor: torch.Tensor, axes: list[int]) -> torch.Tensor:
    for axis in axes:
        tensor = tensor.unsqueeze(axis)
    return tensor
