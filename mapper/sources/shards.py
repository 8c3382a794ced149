"""What one weight file holds, and several of them as one checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from mapper import limits
from mapper._dataclass import dataclass
from mapper.checkpoint import Observed, TensorInfo
from mapper.errors import FormatError, shorten
from mapper.sources.documents import is_printable_text

if TYPE_CHECKING:
    import torch

    from mapper.sources.renaming import Contents


class Place(NamedTuple):
    """Where a tensor lies in another file beside that of the model."""

    key: str
    info: TensorInfo
    offset: int
    length: int | None  # None: up to the end of what it needs


@dataclass
class Shard:
    """The table of one weight file."""

    name: str  # base name
    container: str
    tensors: dict[str, TensorInfo]
    offsets: dict[str, int] = field(default_factory=dict)  # of the first byte of each tensor, in the file
    strides: dict[str, tuple[int, ...]] = field(
        default_factory=dict
    )  # in elements; only of tensors that are not contiguous
    decoded: dict[str, Callable[[memoryview], torch.Tensor]] = field(
        default_factory=dict
    )  # of tensors whose bytes are written otherwise: what makes them of the whole file
    path: str | None = None  # None: a remote file
    size: int = 0  # bytes of the file
    stamp: tuple[int, ...] = ()  # tells the file from another that takes its place; of local files
    notes: list[str] = field(default_factory=list)
    contents: Contents[Any] | None = None  # under the names of a container that has its own
    beside: dict[str, list[Place]] = field(default_factory=dict)  # tensors in other files, by file; of ONNX
    foreign: list[str] = field(default_factory=list)  # as in a Checkpoint
    metadata: dict[str, Any] = field(default_factory=dict)  # of a safetensors header, unchecked
    tables: tuple[str, ...] = ()  # as in a Checkpoint
    nameless: str = ""  # as in a Checkpoint
    told: list[str] = field(default_factory=list)  # of ONNX: notes on its names, until its graph is read
    branches: str = ""  # of ONNX: where in graphs inside of operations weights lie
    observed: list[Observed] = field(default_factory=list)  # as in a Checkpoint
    tied: dict[str, str] = field(default_factory=dict)  # as in a Checkpoint
    empty: str = ""  # of ONNX: why it has no tensors
    model: str = ""  # what a training file calls the model that is read, where it holds several
    settings: dict[str, Any] | None = (
        None  # a training file's of its model: its config where there is no other
    )
    others: dict[str, Shard] = field(default_factory=dict)  # and the others, by what it calls them
    packed: dict[str, tuple[str, int]] = field(default_factory=dict)  # as in a Checkpoint

    def opened(self, path: str, stamp: tuple[int, ...]) -> Shard:
        """The table of a local file, with where it is."""
        for shard in (self, *self.others.values()):
            shard.path, shard.stamp = path, stamp
        return self


def check_names(keys: Collection[str], file: str) -> None:
    """Raise FormatError if one of the keys of a parsed JSON object could not be printed or addressed."""
    if not keys:
        return
    if (
        set(map(type, keys)) == {str}
        and "" not in keys
        and max(map(len, keys)) <= limits.NAME_DEPTH
        and "".join(keys).isascii()
    ):
        return
    for key in keys:
        check_name(key, file)


def check_name(key: object, file: str) -> None:
    """Raise FormatError for a key that no later stage could print or address."""
    if not isinstance(key, str) or not key:
        raise FormatError(
            f"{file}: a tensor has "
            f"{'an empty name' if key == '' else f'the name {shorten(str(key))}, not a text'}"
        )
    if len(key) > limits.NAME_CHARACTERS:
        limit = f"at most {limits.NAME_CHARACTERS:,} are read"
        raise FormatError(
            f"{file}: tensor {shorten(key)} has a name of {len(key):,} characters, {limit}", tensors=[key]
        )
    if key.count(".") >= limits.NAME_DEPTH:
        limit = f"at most {limits.NAME_DEPTH} are read"
        raise FormatError(
            f"{file}: tensor {shorten(key)} has a name of {key.count('.') + 1:,} parts, {limit}",
            tensors=[key],
        )
    if not is_printable_text(key):
        raise FormatError(
            f"{file}: tensor {shorten(key)} has half of a surrogate pair in its name; the file is damaged",
            tensors=[key],
        )


def check_shape(shape: object, key: str, file: str) -> tuple[int, ...]:
    """`shape` as a tuple; raises FormatError unless it is a short list of sizes."""
    if not isinstance(shape, (list, tuple)) or any(type(extent) is not int or extent < 0 for extent in shape):
        raise FormatError(
            f"{file}: tensor {shorten(key)} has the shape {shorten(str(shape))}, not a list of sizes",
            tensors=[key],
        )
    if len(shape) > limits.DIMENSIONS:
        limit = f"at most {limits.DIMENSIONS} are read"
        raise FormatError(
            f"{file}: tensor {shorten(key)} has {len(shape):,} dimensions, {limit}", tensors=[key]
        )
    if any(extent > limits.EXTENT for extent in shape):
        limit = f"at most {limits.EXTENT:,} is read"
        raise FormatError(
            f"{file}: tensor {shorten(key)} has a dimension of {shorten(str(max(shape)))}, {limit}",
            tensors=[key],
        )
    return tuple(shape)
