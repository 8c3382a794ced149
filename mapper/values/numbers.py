"""The numbers of a tensor as NumPy has them, a piece at a time: read from where their bytes stand, or by the container's reader."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mapper.checkpoint import Checkpoint, Span
from mapper.errors import FormatError
from mapper.sources.files import base_name, open_regular, reading, stamp

Array = NDArray[Any]

PIECE = 2**18  # numbers: a copy of them in float64 stays in a processor's cache
_STORED = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2",
    "U8": "u1", "BOOL": "u1", "BF16": "<u2", "F8_E4M3": "u1", "F8_E5M2": "u1", "F8_E8M0": "u1",
}  # fmt: skip


def _four_three(code: int) -> float:
    """A float of 4 bits of exponent and 3 of mantissa, without infinities (2209.05433)."""
    exponent, mantissa = code >> 3 & 15, code & 7
    if code & 127 == 127:
        return math.nan
    size = math.ldexp(mantissa, -9) if exponent == 0 else math.ldexp(8 + mantissa, exponent - 10)
    return -size if code & 128 else size


_TABLES: dict[str, Callable[[], Array]] = {
    "F8_E4M3": lambda: np.array([_four_three(code) for code in range(256)], np.float32),
    "F8_E5M2": lambda: (np.arange(256, dtype=np.uint16) << 8).view(np.float16).astype(np.float32),
    "F8_E8M0": lambda: np.array([*(math.ldexp(1, code - 127) for code in range(255)), math.nan]).astype(
        np.float32
    ),
}


class Numbers:
    """The tensors of a checkpoint as flat pieces; a context, which closes the file that is open."""

    def __init__(self, checkpoint: Checkpoint, tell: Callable[[int], None] = lambda count: None):
        self.checkpoint = checkpoint
        self._tell = tell  # of bytes that were read
        self._path = ""
        self._file: BinaryIO | None = None
        self._open = ExitStack()
        self._tables: dict[str, Array] = {}
        self._last: tuple[str, Any] = "", None  # the tensor that was unpacked last

    def __enter__(self) -> Numbers:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def pieces(self, name: str, dtype: str) -> Iterator[Array]:
        """Flat arrays of at most PIECE numbers, one after the other; complex ones as pairs. Each is valid until the next is asked for."""
        span = self._span(name, dtype)
        if span is None:
            yield from self._unpacked(name)
            return
        stored = np.dtype(_STORED[dtype])
        buffer = np.empty(min(PIECE, max(span.info.size, 1)), stored)
        file = self._opened(span)
        file.seek(span.start)
        left = span.info.size
        while left:
            part = buffer[: min(len(buffer), left)]
            self._fill(file, part, span)
            left -= len(part)
            yield self.decoded(part, dtype)

    def whole(self, name: str, dtype: str, size: int) -> Array:
        """All numbers of a tensor of so many, flat, floats of 32 bits."""
        found = np.empty(size, np.float32)
        at = 0
        for piece in self.pieces(name, dtype):
            found[at : at + len(piece)] = piece
            at += len(piece)
        return found

    def rows(self, name: str, dtype: str, wanted: Sequence[int], width: int) -> Array:
        """Rows of `width` numbers of a tensor, [rows, width], without reading the others."""
        span = self._span(name, dtype)
        if span is None:
            return self._tensor(name).reshape(-1, width)[list(wanted)].float().numpy()
        file, part = self._opened(span), np.empty(width, _STORED[dtype])
        found = np.empty((len(wanted), width), np.float32)
        for at, row in enumerate(wanted):
            file.seek(span.start + row * part.nbytes)
            self._fill(file, part, span)
            found[at] = self.decoded(part, dtype)
        return found

    def content(self, name: str, dtype: str) -> bytes:
        """A digest of the numbers' bytes."""
        import hashlib

        found = hashlib.blake2b(digest_size=16)
        for piece in self.pieces(name, dtype):
            found.update(np.ascontiguousarray(piece).view(np.uint8).data)
        return found.digest()

    def decoded(self, part: Array, dtype: str) -> Array:
        """Stored numbers as NumPy computes with them."""
        if dtype == "BF16":
            return (part.astype(np.uint32) << 16).view(np.float32)
        if dtype in _TABLES:
            if dtype not in self._tables:
                self._tables[dtype] = _TABLES[dtype]()
            return self._tables[dtype][part]
        return part

    def _fill(self, file: BinaryIO, part: Array, span: Span) -> None:
        with reading(base_name(span.path)):
            count = file.readinto(part.data.cast("B"))  # type: ignore[attr-defined]
        if count < part.nbytes:
            raise FormatError(f"{base_name(span.path)}: the file ends within a tensor; download it again")
        self._tell(count)

    def _unpacked(self, name: str) -> Iterator[Array]:
        tensor = self._tensor(name)
        flat = tensor.reshape(-1)
        for at in range(0, len(flat), PIECE):
            part = flat[at : at + PIECE]
            self._tell(part.numel() * part.element_size())
            yield (part if part.dtype.is_floating_point is False else part.float()).numpy()

    def _tensor(self, name: str) -> Any:
        """By the container's reader, as torch has it; pairs for complex numbers."""
        if self._last[0] == name:
            return self._last[1]
        self._last = "", None  # before the next is made: one is in memory
        self._last = name, self._made(name)
        return self._last[1]

    def _made(self, name: str) -> Any:
        import torch

        assert self.checkpoint.read is not None
        tensor = self.checkpoint.read([name])[name].detach()
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor.resolve_conj())
        if str(tensor.dtype) == "torch.float4_e2m1fn_x2":
            return tensor.view(torch.uint8)
        return tensor

    def _span(self, name: str, dtype: str) -> Span | None:
        """Where the numbers stand as `dtype` says; None where they must be unpacked."""
        span = self.checkpoint.where(name) if dtype in _STORED else None
        return span if span is not None and span.info == self.checkpoint.tensors[name] else None

    def _opened(self, span: Span) -> BinaryIO:
        if self._path != span.path or self._file is None:
            self._open.close()
            file, _ = open_regular(span.path)
            self._open.callback(file.close)
            if span.stamp and stamp(file) != span.stamp:
                raise FormatError(
                    f"{base_name(span.path)}: was written again after its header was read; open it again"
                )
            self._path, self._file = span.path, file
        return self._file
