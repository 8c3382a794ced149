"""Pickles that `pickle.dump` wrote, of tables with NumPy arrays or torch tensors: their numbers stand inside of the pickle.

https://numpy.org/doc/stable/reference/generated/numpy.ndarray.__reduce__.html and `array_setstate` in NumPy's methods.c;
torch's storages are files of their own, as torch.save wrote them before 1.6.
"""

from __future__ import annotations

import math
from typing import Any, BinaryIO, NamedTuple

from mapper import limits
from mapper.checkpoint import DTYPE_BYTES, TensorInfo
from mapper.errors import FormatError
from mapper.sources import npy
from mapper.sources.pickles import Machine, Opaque, Storage, StoredTensor, interpret
from mapper.sources.shards import Shard
from mapper.sources.state_dict import take_tensors

MAGIC = b"\x80"  # of every pickle since protocol 2
_MODULES = ("numpy.core", "numpy._core")
_RECONSTRUCT = {f"{module}.multiarray._reconstruct" for module in _MODULES}
_FROM_BUFFER = {f"{module}.numeric._frombuffer" for module in _MODULES}
_WRAPPER = (
    "joblib.numpy_pickle.NumpyArrayWrapper"  # before the numbers of an array, which stand between two opcodes
)
_STORAGE = "torch.storage._load_from_bytes"
_PARTS = 5  # pickles before the numbers of a storage
_HINT = "save a state dict with torch or safetensors"


class Span(NamedTuple):
    """Bytes of the file."""

    start: int
    size: int


class _Kind(Opaque):
    """A type of NumPy: `f4`, and whether the highest byte comes first."""

    __slots__ = ("letters", "swapped")

    def __init__(self, letters: Any):
        super().__init__(kind="numpy.dtype")
        self.letters = letters if isinstance(letters, str) else ""
        self.swapped = False


class _Array(Opaque):
    """An array before its numbers are given; `memo` has the entries that stand for it."""

    __slots__ = ("memo",)

    def __init__(self) -> None:
        super().__init__(kind="numpy.ndarray")
        self.memo: list[int] = []


class _Arrays(Machine):
    """Runs a pickle in which numbers stand; bytes are no values here but places in the file."""

    def __init__(self, data: bytes, name: str):
        super().__init__(data, name, 0)
        self.arranged: dict[int, npy.Header] = {}  # by the number of a tensor: what must be put in order
        self.texts: dict[
            str, bytes
        ] = {}  # by that too: numbers that were written as text, as protocol 2 and Python 2 do
        self.encoded: dict[str, tuple[str, bytes]] = {}  # by the text: the key of its storage, and its bytes
        self.storages: dict[Span, Storage | Opaque] = {}  # torch's, each read once

    def bytes(self, count: int) -> None:
        start = self.position
        self.take(count)
        self.push(Span(start, count))

    def put(self, index: int) -> None:
        super().put(index)
        if isinstance(self.stack[-1], _Array):
            self.stack[-1].memo.append(index)

    def call(self, function: Any, arguments: Any) -> None:
        name, count = str(function), len(arguments) if isinstance(arguments, tuple) else 0
        if name in _RECONSTRUCT:
            self.push(_Array())
        elif name == _WRAPPER:
            self.push(Opaque(kind=_WRAPPER))
        elif name == "numpy.dtype" and count:
            self.push(_Kind(arguments[0]))
        elif name in _FROM_BUFFER and count == 4:
            held, kind, shape, order = arguments
            self.push(self.tensor(held, kind, shape, order == "F"))
        elif name == "_codecs.encode" and count:
            self.push(arguments[0])
        elif name == _STORAGE and count and isinstance(arguments[0], Span):
            span = arguments[0]
            if span not in self.storages:
                self.storages[span] = self.storage(span)
            self.push(self.storages[span])
        else:
            super().call(function, arguments)

    def build(self) -> None:
        made, state = self.stack[-2], self.stack[-1]
        if isinstance(made, _Kind):
            self.stack.pop()
            made.swapped = isinstance(state, tuple) and state[1:2] == (">",)
        elif isinstance(made, _Array) and isinstance(state, tuple) and len(state) == 5:
            self.stack.pop()
            _, shape, kind, is_fortran, held = state
            self.stack[-1] = tensor = self.tensor(held, kind, shape, is_fortran is True)
            self.memo |= dict.fromkeys(made.memo, tensor)
        else:
            super().build()
            if isinstance(made, Opaque) and made.kind == _WRAPPER:
                self.stack[-1] = self.behind(made.attributes)

    def behind(self, said: dict[Any, Any]) -> StoredTensor | Opaque:
        """The array whose numbers stand behind what joblib says of it, some of them behind bytes that only fill up."""
        kind, shape = said.get("dtype"), said.get("shape", ())
        dtype = npy.DTYPES.get(kind.letters) if isinstance(kind, _Kind) else None
        if dtype is None or dtype not in DTYPE_BYTES or not _are_extents(shape):
            raise FormatError(f"{self.name}: an array of joblib that is not of numbers; {_HINT}")
        if said.get("numpy_array_alignment_bytes") is not None:
            self.take(self.take(1)[0])
        start, size = self.position, int(math.prod(shape) * DTYPE_BYTES[dtype])
        self.take(size)
        return self.tensor(Span(start, size), kind, shape, said.get("order") == "F")

    def tensor(self, held: Any, kind: Any, shape: Any, is_fortran: bool) -> StoredTensor | Opaque:
        """An array of numbers as a view of its bytes; of texts and objects, something that no reader of tensors has a use for."""
        dtype = npy.DTYPES.get(kind.letters) if isinstance(kind, _Kind) else None
        if dtype is None or dtype not in DTYPE_BYTES or not _are_extents(shape):
            return Opaque(kind="numpy.ndarray")
        if isinstance(held, str):
            if held not in self.encoded:
                self.encoded[held] = f"{self.position}", held.encode("latin-1")
            key, text = self.encoded[held]
            self.texts[key], size = text, len(text)
        elif isinstance(held, Span):
            key, size = f"{held.start}", held.size
        else:
            return Opaque(kind="numpy.ndarray")
        if math.prod(shape) * DTYPE_BYTES[dtype] != size:
            raise self.damaged(f"an array of {list(shape)} {dtype} has {size:,} bytes")
        if kind.swapped or key in self.texts:
            info = TensorInfo(shape, dtype)
            self.arranged[len(self.tensors)] = npy.Header(info, kind.letters, kind.swapped, is_fortran, 0)
        strides = _strides(shape, is_fortran)
        found = StoredTensor(Storage(key, dtype, math.prod(shape)), dtype, 0, shape, strides)
        self.tensors.append(found)
        return found

    def storage(self, held: Span) -> Storage | Opaque:
        """What torch wrote into a pickle for one storage: five pickles, how many elements there are, and these."""
        at, values = held.start, []
        for _ in range(_PARTS):
            part = interpret(self.data, self.name, at)
            values.append(part.value)
            at = part.end
        found = values[3]
        if not isinstance(found, Storage) or found.dtype not in DTYPE_BYTES:
            return Opaque("has a dtype that no safetensors name stands for")
        start = at + 8  # after the count
        if start + found.elements * DTYPE_BYTES[found.dtype] > held.start + held.size:
            raise self.damaged("a storage ends before its last element")
        return Storage(f"{start}", found.dtype, found.elements)


def read_header(file: BinaryIO, size: int, name: str) -> Shard:
    """The table of a pickle with arrays or tensors. Raises FormatError where it has none."""
    if size > limits.HEADER_BYTES:
        raise FormatError(
            f"{name}: a pickle of {size:,} bytes that torch.save did not write, of which at most "
            f"{limits.HEADER_BYTES:,} are read; {_HINT}"
        )
    machine = _Arrays(file.read(size), name)
    value = machine.run()
    if not machine.tensors:
        raise FormatError(
            f"{name}: a pickle that torch.save did not write, without arrays of numbers; {_HINT}"
        )
    shard = Shard(name, "pickle", {}, size=size, foreign=list(machine.foreign))
    headers = {id(machine.tensors[number]): header for number, header in machine.arranged.items()}
    for table, found in take_tensors(value, machine.tensors, shard):
        for key, tensor in found.items():
            _place(table, key, tensor, headers.get(id(tensor)), machine.texts)
    return shard


def _place(
    table: Shard, key: str, tensor: StoredTensor, header: npy.Header | None, texts: dict[str, bytes]
) -> None:
    """Enter where the bytes of one tensor lie, or what makes it of them."""
    start, text = int(tensor.storage.key), texts.get(tensor.storage.key)
    table.offsets[key] = start + int(tensor.offset * DTYPE_BYTES[tensor.dtype])
    if header is not None:
        span = slice(start, start + header.size)
        table.strides.pop(key, None)
        table.decoded[key] = lambda data: npy.arranged(data[span] if text is None else text, header)


def _are_extents(shape: Any) -> bool:
    return isinstance(shape, tuple) and all(type(extent) is int and 0 <= extent < 2**63 for extent in shape)


def _strides(extents: tuple[int, ...], is_fortran: bool) -> tuple[int, ...]:
    """Elements between neighbours along each axis."""
    if is_fortran:
        return tuple(math.prod(extents[:axis]) for axis in range(len(extents)))
    return tuple(math.prod(extents[axis + 1 :]) for axis in range(len(extents)))
