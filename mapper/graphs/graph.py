"""An ONNX model as plain data: nodes, values, and where the tensors are. No bytes of weights, and no torch.

https://github.com/onnx/onnx/blob/main/docs/IR.md
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Union

from mapper.checkpoint import TensorInfo

if TYPE_CHECKING:
    import torch

Key = tuple[str, str, str]  # of a function: domain, name, overload
# Types of which several numbers share a byte, by ONNX's number; the digit is that of their bits.
NARROW = {21: "U4", 22: "I4", 23: "F4", 25: "U2", 26: "I2"}


@dataclass(frozen=True)
class TensorRef:
    """A tensor of the file: what it is, and where its bytes are."""

    name: str  # as the file has it; "" of most constants
    dtype: str  # a key of `checkpoint.DTYPE_BYTES`, or one of `NARROW` or "STRING"
    shape: tuple[int, ...]
    path: str  # the local file
    start: int  # the first byte there
    end: int
    packing: str = "plain"  # "plain": row order, little-endian; "varints": each number as long as it needs;
    # "narrow": several to a byte; "texts": protocol buffer fields
    stamp: tuple[int, ...] = field(default=(), compare=False)  # of the file when it was read

    @property
    def info(self) -> TensorInfo:
        """The entry of a checkpoint's table."""
        return TensorInfo(self.shape, self.dtype)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.info.size

    def read(self) -> torch.Tensor:
        """The tensor, a view of the mapped file where it stands there as it is. Raises FormatError for texts."""
        from mapper.graphs.tensors import read_tensor

        return read_tensor(self)


@dataclass(frozen=True)
class Argument:
    """An attribute of a function's node that the function's caller gives."""

    name: str


@dataclass(frozen=True)
class Value:
    """What is known of an input, an output or a value between nodes."""

    name: str
    dtype: str | None = None  # None where the file does not say
    shape: tuple[int | str | None, ...] | None = None  # a text is a size's name; None: unknown
    kind: str = (
        "tensor"  # or "sequence", "optional", "map", "sparse": dtype and shape are those of the elements
    )
    metadata: dict[str, str] = field(default_factory=dict, compare=False, hash=False)


Attribute = Union[
    int, float, bytes, TensorRef, "Graph", Argument, list[int], list[float], list[bytes], list[TensorRef], list["Graph"]
]  # fmt: skip


@dataclass
class Node:
    """One operation."""

    operator: str
    domain: str = ""  # "" is ONNX's own, which "ai.onnx" also names
    name: str = ""
    inputs: list[str] = field(default_factory=list)  # "" for one that is left out
    outputs: list[str] = field(default_factory=list)
    attributes: dict[str, Attribute] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    overload: str = ""
    version: int | None = None  # of its domain, where a function's differs from the model's

    def graphs(self) -> Iterator[Graph]:
        """The graphs in its attributes."""
        for value in self.attributes.values():
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, Graph):
                    yield item

    def __str__(self) -> str:
        """`Conv` or `com.microsoft.FusedConv`."""
        return f"{self.domain}.{self.operator}" if self.domain else self.operator


@dataclass
class Graph:
    """Nodes, each after those that it needs."""

    name: str = ""
    nodes: list[Node] = field(default_factory=list)
    initialisers: dict[str, TensorRef] = field(default_factory=dict)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)  # of inputs and outputs too
    metadata: dict[str, str] = field(default_factory=dict)

    def given(self) -> list[Value]:
        """The inputs that a caller must give: those without an initialiser."""
        return [value for value in self.inputs if value.name not in self.initialisers]

    def free(self) -> set[str]:
        """The names that it reads from the graphs around it."""
        known = {value.name for value in self.inputs} | set(self.initialisers)
        found: set[str] = set()
        for node in self.nodes:
            found |= {name for name in node.inputs if name} - known
            for inner in node.graphs():
                found |= inner.free() - known
            known |= set(node.outputs)
        return found | {value.name for value in self.outputs} - known


@dataclass
class Function:
    """Nodes that a node calls by a name of its own."""

    name: str
    domain: str
    overload: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    required: list[str] = field(default_factory=list)  # attributes that each caller gives
    defaults: dict[str, Attribute] = field(default_factory=dict)  # attributes with a default
    nodes: list[Node] = field(default_factory=list)
    opsets: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass
class Model:
    """A whole file."""

    graph: Graph
    opsets: dict[str, int]  # domain -> version
    functions: dict[Key, Function] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    ir_version: int = 0
    producer: str = ""
    source: str = ""  # the file's base name

    def function(self, node: Node) -> Function | None:
        """The function of the model that a node calls, if it does."""
        return self.functions.get((node.domain, node.operator, node.overload))
