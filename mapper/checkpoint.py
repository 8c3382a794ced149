"""The table of tensors and the config: the only input of naming."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from mapper._dataclass import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    import torch

# Names of the safetensors format, which every container's dtypes are translated to.
DTYPE_BYTES: Mapping[str, float] = {
    "C128": 16, "F64": 8, "I64": 8, "U64": 8, "C64": 8, "C32": 4, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
    "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1, "I8": 1, "U8": 1, "BOOL": 1, "F4": 0.5,
}  # fmt: skip

# What torch calls them; a torch may lack some.
TORCH_NAMES: Mapping[str, str] = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16",
    "I8": "int8", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64", "BOOL": "bool", "C64": "complex64",
    "C128": "complex128", "C32": "complex32", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F4": "float4_e2m1fn_x2",
}  # fmt: skip
FLOATS = ("F64", "F32", "F16", "BF16")  # what torch computes with
COUNTER = "num_batches_tracked"  # what torch calls the count of the inputs of a batch norm


class TensorInfo(NamedTuple):
    """One entry of a checkpoint's header."""

    shape: tuple[int, ...]
    dtype: str  # a key of DTYPE_BYTES

    @property
    def size(self) -> int:
        """Number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def bytes(self) -> int:
        """Bytes of that many numbers of the dtype."""
        return math.ceil(self.size * DTYPE_BYTES.get(self.dtype, 0))

    @property
    def torch_shape(self) -> tuple[int, ...]:
        """The shape as torch holds it: two numbers of four bits are one element."""
        pairs = self.dtype == "F4" and self.shape
        return (*self.shape[:-1], self.shape[-1] // 2) if pairs else tuple(self.shape)


class Span(NamedTuple):
    """Where the bytes of a tensor stand in a local file as safetensors would have them: in row order, little-endian."""

    path: str
    start: int
    stamp: tuple[int, ...]  # of the file when its header was read
    info: TensorInfo  # what the bytes are there, whatever a later stage makes of them


class Rows(NamedTuple):
    """Rows of a tensor in a local file, in another order: what can be moved without being read as numbers."""

    span: Span
    stored: int  # how many rows are there
    order: Sequence[int] | None  # which of them, one after the other; None: all as they stand


@dataclass(frozen=True)
class Observed:
    """What the operations of a graph show of a layer: a fact, and the node that shows it."""

    fact: str
    leaf: str  # the path of the module
    value: Any
    source: str


@dataclass(frozen=True)
class Adapted:
    """An adapter that was added to a checkpoint."""

    base: str  # the sources
    adapter: str
    rank: tuple[int, ...]  # of its updates, each once
    alpha: tuple[float, ...]
    merged: bool  # into the weights, or beside them

    def __str__(self) -> str:
        """`./lora: a LoRA of ./base, rank 8, alpha 16, merged into the weights`."""
        rank, alpha = (" and ".join(f"{value:g}" for value in values) for values in (self.rank, self.alpha))
        where = "merged into" if self.merged else "beside"
        return f"{self.adapter}: a LoRA of {self.base}, rank {rank}, alpha {alpha}, {where} the weights"


UNDONE = "names and arrangement of {} undone"  # a note: other libraries' names, and how they store maps
NAMES_UNDONE = "names of {} undone"  # the same where nothing says how maps are stored


@dataclass
class Companions:
    """Files beside the weights by their names in the model's folder, each with where it is now; and what to know of others."""

    files: dict[str, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass
class Checkpoint:
    """Names, shapes and dtypes of a checkpoint, its config, and a way to its bytes.

    `read` takes names and gives torch tensors, memory-mapped where the container allows; it is None for a manifest,
    which has no weights. Making a `Checkpoint` never imports torch.
    """

    source: str  # hub id or base name, as printed in reports and generated headers: never a path
    container: str  # "safetensors", "torch", "manifest", ...
    tensors: dict[str, TensorInfo]
    config: dict[str, Any] | None = None
    read: Callable[[Iterable[str]], dict[str, torch.Tensor]] | None = None
    notes: list[str] = field(
        default_factory=list
    )  # what a reader must know: "reconstructed header", "from the bundled catalogue"
    weights: list[str] = field(default_factory=list)  # local files that hold the tensors, in reading order
    foreign: list[str] = field(
        default_factory=list
    )  # what a pickle asks to call besides tensors; never called

    hidden: list[str] = field(
        default_factory=list
    )  # tensors that `read` gives and that are no states: of an `aux`
    where: Callable[[str], Span | None] = lambda name: (
        None
    )  # of tensors whose bytes can be copied without being read
    rows: Callable[[str], list[Rows]] = lambda name: (
        []
    )  # of tensors that are rows of others, one after the other; none: they must be read
    metadata: dict[str, str] = field(default_factory=dict)  # texts in the header of a safetensors file
    companions: Callable[[], Companions] | None = (
        None  # looks for files of a tokenizer and the like beside the weights, and fetches what is on the hub alone
    )
    document: dict[str, Any] | None = None  # of what mapper saved: `mapper.sources.saved` says what is in it
    tables: tuple[str, ...] = ()  # of a training file: tables with tensors, whose names all names begin with
    nameless: str = ""  # why names do not say what the model is: an exporter made them up
    others: dict[str, Checkpoint] = field(
        default_factory=dict
    )  # of a training file with several models, of which one is read: each by what the file calls it
    observed: list[Observed] = field(default_factory=list)  # of a graph
    tied: dict[str, str] = field(
        default_factory=dict
    )  # of a graph: names of tensors that are another one's, by their numbers
    packed: dict[str, tuple[str, int]] = field(
        default_factory=dict
    )  # of tensors that are stored otherwise than `tensors` gives them: the type there, and its bytes
    what: str = ""  # what the source itself says that it is, where that is no whole model: "shard 1 of 7"
    lacking: str = ""  # why no model can be made of it alone, with what to do
    adapter: dict[str, Any] | None = None  # adapter_config.json
    adapted: tuple[Adapted, ...] = ()  # adapters that were added to it, each to what those before it made
    parts: dict[str, Checkpoint] = field(default_factory=dict)  # of a pipeline: its models by name
    part: str = ""  # which of several models it is
    prefix: str = ""  # what its names begin with in the file, where several models share one
    class_name: str = ""  # the class that the source says it is of, beside what its config says

    @property
    def parameters(self) -> int:
        """Number of elements in all tensors."""
        return sum(info.size for info in self.tensors.values())

    @property
    def is_packed(self) -> bool:
        """Whether tensors are stored in other types than those that they have once read."""
        return any(self.tensors[name].dtype != dtype for name, (dtype, _) in self.packed.items())

    def stored(self) -> dict[str, tuple[int, int]]:
        """Elements and bytes of each type as the file has it, the type of most elements first."""
        found: dict[str, tuple[int, int]] = {}
        for name, info in self.tensors.items():
            dtype, size = self.packed.get(name) or (info.dtype, info.bytes)
            elements, taken = found.get(dtype, (0, 0))
            found[dtype] = elements + info.size, taken + size
        return dict(sorted(found.items(), key=lambda item: -item[1][0]))
