"""Weights where they stand in the file, and how the graph arranges them before they are used."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from mapper.checkpoint import FLOATS
from mapper.graphs.graph import Node, TensorRef
from mapper.graphs.recovery.scalars import same_bytes, whole_numbers
from mapper.graphs.recovery.wiring import Wiring

if TYPE_CHECKING:
    import torch

DEEPEST = 16  # nodes between a weight and its use
WHOLE = (
    "I8",
    "U8",
    "I16",
    "U16",
    "I32",
    "I4",
    "U4",
    "I2",
    "U2",
)  # what is taken from these is a whole number


class Scaled(NamedTuple):
    """The values of scale and zero point of a DequantizeLinear; "" for none."""

    scale: str
    zero: str
    axis: int


@dataclass(frozen=True)
class Origin:
    """A weight: the value that holds it, and its axes, shape and numbers as a node gets them."""

    key: str  # the initialiser, or what the Constant's output is called
    ref: TensorRef
    shape: tuple[int, ...]
    dtype: str
    order: tuple[int, ...] | None = None  # of the axes; None: as they are
    view: tuple[int, ...] | None = None  # a shape that it takes, before its axes change places
    scaled: Scaled | None = None

    def transposed(self, order: tuple[int, ...]) -> Origin:
        """The same with its axes in another order."""
        new = tuple(self.order[axis] for axis in order) if self.order else order
        is_same = new == tuple(range(len(new)))
        shape = tuple(self.shape[axis] for axis in order)
        return replace(self, shape=shape, order=None if is_same else new)

    @property
    def is_plain(self) -> bool:
        """Whether the numbers stand in the file as they are used."""
        return (
            self.order is None and self.view is None and self.scaled is None and self.dtype == self.ref.dtype
        )

    def read(self, tensor_of: Callable[[str], torch.Tensor]) -> torch.Tensor:
        """The tensor; `tensor_of` gives those of the file by their own names."""
        tensor = tensor_of(self.key)
        if self.scaled:
            tensor = _dequantised(tensor, self.scaled, tensor_of)
        if self.view is not None:
            tensor = tensor.reshape(self.view)
        if self.order is not None:
            tensor = tensor.permute(self.order)
        if self.dtype != self.ref.dtype and not self.scaled:
            from mapper.sources.storage import torch_dtype

            tensor = tensor.to(torch_dtype(self.dtype, self.key))
        return tensor.contiguous()


def same_numbers(one: Origin, other: Origin) -> bool:
    """Whether two weights that stand in a file twice are the same, number by number."""
    if (one.shape, one.dtype, one.order, one.view, one.scaled) != (
        other.shape, other.dtype, other.order, other.view, other.scaled
    ):  # fmt: skip
        return False
    return (
        one.ref.shape == other.ref.shape
        and one.ref.dtype == other.ref.dtype
        and same_bytes(one.ref, other.ref)
    )


def origin(wiring: Wiring, name: str) -> Origin | None:
    """The weight behind a value, through Identity, Transpose, Cast, Reshape and DequantizeLinear; None where none is."""
    passed: list[Node] = []
    for _ in range(DEEPEST):
        ref = wiring.held.get(name)
        node = wiring.producers.get(name)
        if ref is None and node is not None and node.operator == "Constant" and not node.domain:
            value = node.attributes.get("value")
            ref = value if isinstance(value, TensorRef) else None
        if ref is not None:
            found: Origin | None = Origin(name, ref, ref.shape, ref.dtype)
            for step in reversed(passed):
                found = _after(found, step, wiring) if found else None
            return found
        if node is None or node.domain or not node.inputs or node.operator not in STEPS:
            return None
        passed.append(node)
        name = node.inputs[0]
    return None


def _after(held: Origin, node: Node, wiring: Wiring) -> Origin | None:
    return STEPS[node.operator](held, node, wiring)


def _transpose(held: Origin, node: Node, wiring: Wiring) -> Origin | None:
    count = len(held.shape)
    order = node.attributes.get("perm", list(range(count))[::-1])
    if not isinstance(order, list) or sorted(map(str, order)) != sorted(map(str, range(count))):
        return None
    return held.transposed(tuple(int(axis) for axis in order))  # type: ignore[arg-type]


def _cast(held: Origin, node: Node, wiring: Wiring) -> Origin | None:
    from mapper.sources.onnx import DTYPES

    to = node.attributes.get("to")
    dtype = DTYPES.get(to) if isinstance(to, int) else None
    is_second = held.scaled is not None or held.dtype != held.ref.dtype  # by which digits may have gone
    return replace(held, dtype=dtype) if dtype in FLOATS and held.dtype in FLOATS and not is_second else None


def _reshape(held: Origin, node: Node, wiring: Wiring) -> Origin | None:
    wanted = wiring.constant(node.inputs[1]) if len(node.inputs) > 1 else None
    sizes = (whole_numbers(wanted) or []) if wanted else []
    if held.order is not None or held.view is not None or not sizes or 0 in sizes:
        return None
    shape = sizes_of(sizes, math.prod(held.shape))
    return replace(held, view=shape, shape=shape) if shape else None


def sizes_of(sizes: Iterable[int], count: int) -> tuple[int, ...] | None:
    """The shape that a Reshape of `count` elements gives, with -1 for what is left; None where they do not fit."""
    found = list(sizes)
    known = math.prod(size for size in found if size != -1)
    if found.count(-1) == 1 and known > 0 and count % known == 0:
        found = [count // known if size == -1 else size for size in found]
    return tuple(found) if min(found, default=1) > 0 and math.prod(found) == count else None


def _dequantize(held: Origin, node: Node, wiring: Wiring) -> Origin | None:
    scale, zero = (node.inputs[at] if len(node.inputs) > at else "" for at in (1, 2))
    step = wiring.constant(scale)
    axis = node.attributes.get("axis", 1)
    blocks = node.attributes.get("block_size", 0)
    if not held.is_plain or step is None or step.dtype not in FLOATS or blocks or not isinstance(axis, int):
        return None
    if held.dtype not in WHOLE or node.attributes.get("output_dtype"):
        return None
    if zero and wiring.constant(zero) is None:
        return None
    axis = axis % max(len(held.shape), 1)
    if step.shape not in ((), (1,)) and step.shape != held.shape[axis : axis + 1]:
        return None
    keys = [_key(wiring, name) for name in (scale, zero)]
    return replace(held, dtype=step.dtype, scaled=Scaled(keys[0], keys[1], axis))


def _key(wiring: Wiring, name: str) -> str:
    """The initialiser or Constant that a value is."""
    while name and name not in wiring.held and wiring.producers[name].operator == "Identity":
        name = wiring.producers[name].inputs[0]
    return name


def _identity(held: Origin, node: Node, wiring: Wiring) -> Origin | None:
    return held


STEPS: dict[str, Callable[[Origin, Node, Wiring], Origin | None]] = {
    "Identity": _identity, "Transpose": _transpose, "Cast": _cast, "Reshape": _reshape, "DequantizeLinear": _dequantize,
}  # fmt: skip


def _dequantised(
    tensor: torch.Tensor, scaled: Scaled, tensor_of: Callable[[str], torch.Tensor]
) -> torch.Tensor:
    """(x - zero point) * scale, each of a number for all or one for each entry of an axis, as ONNX defines it."""
    scale = tensor_of(scaled.scale)
    extents = [1] * tensor.dim()
    if scale.numel() > 1:
        extents[scaled.axis] = -1
    whole = tensor.int()
    if scaled.zero:
        whole = whole - tensor_of(scaled.zero).int().reshape(
            extents if scale.numel() > 1 else [1] * tensor.dim()
        )
    return whole.to(scale.dtype) * scale.reshape(extents)
