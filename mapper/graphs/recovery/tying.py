"""Whether a layer has the weight of a table: one tensor that both use, or two with the same numbers, one of them transposed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from mapper.checkpoint import DTYPE_BYTES, FLOATS, Observed
from mapper.errors import MapperError
from mapper.graphs.graph import Node, TensorRef
from mapper.graphs.recovery.origins import Origin, origin
from mapper.graphs.recovery.scalars import CHUNK
from mapper.graphs.recovery.wiring import Wiring
from mapper.sources.files import open_regular, stamp

if TYPE_CHECKING:
    import numpy as np

    from mapper.graphs.recovery.parameters import Table

PRODUCTS = ("MatMul", "Gemm")
TURNED = (1, 0)
WEIGHT = ".weight"


class Laid(NamedTuple):
    """A matrix as it lies in the file; `is_turned` where what is meant is its transpose."""

    ref: TensorRef
    is_turned: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """That of what is meant."""
        return self.ref.shape[::-1] if self.is_turned else self.ref.shape


@dataclass(frozen=True)
class Tie:
    """A layer that gives as many numbers as a table has rows, of the rows' width: a head over the table's words."""

    head: str  # the names of both weights
    table: str
    is_tied: bool
    node: Node  # the product

    def observed(self) -> Iterator[Observed]:
        """What it shows of both."""
        said = f"{self.node.operator} {self.node.name}".strip()
        how = "the numbers of" if self.is_tied else "numbers other than those of"
        for name in (self.head, self.table):
            yield Observed(
                "head.tied", name.removesuffix(WEIGHT), self.is_tied, f"{said}: {how} {self.table}"
            )


def ties(wiring: Wiring, table: Table) -> list[Tie]:
    """The heads over each table that is looked up in; those of which it is not sure are left out."""
    tables: dict[str, Laid] = {}
    heads: dict[str, tuple[Laid, Node]] = {}
    for node in wiring.graph.nodes:
        if node.operator == "Gather":
            tables |= _used(wiring, table, node, 0)
        elif node.operator in PRODUCTS:
            heads |= {name: (held, node) for name, held in _used(wiring, table, node, 1).items()}
    found = []
    for head, (weight, node) in heads.items():
        for name, rows in tables.items():
            same = equal(weight, rows) if head != name and weight.shape == rows.shape else None
            if same is not None:
                found.append(Tie(head, name, same, node))
    return found


def _used(wiring: Wiring, table: Table, node: Node, position: int) -> dict[str, Laid]:
    """The weight that a node takes at a position, as a layer holds it, by its name; nothing where it takes none."""
    held = origin(wiring, node.inputs[position]) if not node.domain and len(node.inputs) > position else None
    name = table.called(held.key, node.operator) if held else ""
    parameter = table.parameters.get(name)
    laid = laid_out(parameter.origin) if parameter and name.endswith(WEIGHT) else None
    return {name: laid} if laid else {}


def laid_out(held: Origin) -> Laid | None:
    """A matrix of floats whose numbers stand in the file as they are used; None for any other weight."""
    is_plain = held.view is None and held.scaled is None and held.dtype == held.ref.dtype
    if not is_plain or len(held.shape) != 2 or held.dtype not in FLOATS or held.ref.packing != "plain":
        return None
    return Laid(held.ref, held.order == TURNED)


def equal(one: Laid, other: Laid) -> bool | None:
    """Whether two matrices of one shape have the same numbers, bit by bit.

    None where that says nothing, as of a matrix of noughts, or where their file is not what it was.
    """
    if one.shape != other.shape or one.ref.dtype != other.ref.dtype:
        return False
    if one == other:
        return True
    try:
        with ExitStack() as stack:
            left, right = (_bits(stack, held) for held in (one, other))
            return _equal(left, right)
    except (MapperError, OSError, ValueError):
        return None


def _bits(stack: ExitStack, held: Laid) -> np.ndarray[Any, Any]:
    """The numbers of a matrix as they lie in the file, not read yet. Raises ValueError for a file that changed."""
    import numpy as np

    file, size = open_regular(held.ref.path)
    stack.enter_context(file)
    if held.ref.end > size or (held.ref.stamp and stamp(file) != held.ref.stamp):
        raise ValueError("another file")
    kind = f"<u{int(DTYPE_BYTES[held.ref.dtype])}"
    found = np.memmap(file, kind, "r", held.ref.start, held.ref.shape)
    return found.T if held.is_turned else found


def _equal(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool | None:
    rows = max(CHUNK // max(one.itemsize * one.shape[1], 1), 1)
    varied = False
    for start in range(0, len(one), rows):
        part = one[start : start + rows]
        if not (part == other[start : start + rows]).all():
            return False
        varied = varied or bool((part != one[0, 0]).any())
    return True if varied else None
