"""The bytes of a checkpoint's tensors, one after the other: copied from where they stand, or read and cast."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, BinaryIO

from mapper.checkpoint import DTYPE_BYTES, Checkpoint, Rows, Span, TensorInfo
from mapper.errors import FormatError, MapperError, shorten
from mapper.sources.files import base_name, open_regular, reading, stamp
from mapper.weights.saving.headers import PIECE, write_all

if TYPE_CHECKING:
    import torch


class Origins:
    """Where the tensors of a checkpoint come from; a context, which closes the file that is open."""

    def __init__(self, checkpoint: Checkpoint):
        self.checkpoint = checkpoint
        self.count: Callable[[int], None] = lambda size: None  # told of all bytes that were passed on
        self._path = ""
        self._file: BinaryIO | None = None
        self._open = ExitStack()

    def __enter__(self) -> Origins:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def copy(self, tensors: Mapping[str, TensorInfo], file: BinaryIO) -> None:
        """Write the bytes of all these to `file`, in this order; neighbours in one file are copied together."""
        waiting: list[Span] = []
        size = 0
        for name, info in tensors.items():
            if not _bytes(info):
                continue
            span = self._span(name, info)
            if (
                span is not None
                and waiting
                and (span.path, span.start) == (waiting[0].path, waiting[0].start + size)
            ):
                size += _bytes(info)
                continue
            if waiting:
                self._copy(waiting.pop(), size, file)
            if span is None:
                for data in self._read(name, info):
                    write_all(file.write, data)
            else:
                waiting, size = [span], _bytes(info)
        if waiting:
            self._copy(waiting[0], size, file)

    def pieces(self, name: str, info: TensorInfo) -> Iterator[memoryview]:
        """The bytes of one tensor as `info` says that they are to be."""
        span = self._span(name, info)
        if span is None:
            yield from self._read(name, info) if _bytes(info) else ()
            return
        source = self._opened(span)
        source.seek(span.start)
        yield from self._stream(source, span, _bytes(info))

    def _stream(self, source: BinaryIO, span: Span, left: int) -> Iterator[memoryview]:
        """The next `left` bytes of an open file."""
        while left:
            with reading(base_name(span.path)):
                data = source.read(min(PIECE, left))
            if not data:
                raise _ended(span)
            left -= len(data)
            self.count(len(data))
            yield memoryview(data)

    def _ordered(self, rows: Rows) -> Iterator[memoryview]:
        """The bytes of rows in their order."""
        source, size = self._opened(rows.span), _bytes(rows.span.info)
        source.seek(rows.span.start)
        if rows.order is None:
            yield from self._stream(source, rows.span, size)
            return
        import numpy as np

        with reading(base_name(rows.span.path)):
            data = source.read(size)
        if len(data) < size:
            raise _ended(rows.span)
        ordered = np.frombuffer(data, np.uint8).reshape(rows.stored, -1)[np.asarray(rows.order)]
        self.count(ordered.nbytes)
        yield memoryview(ordered.reshape(-1).data)

    def _span(self, name: str, info: TensorInfo) -> Span | None:
        """Where the tensor stands as it is to be; None where it must be read."""
        span = self.checkpoint.where(name)
        return span if span is not None and span.info == info else None

    def _opened(self, span: Span) -> BinaryIO:
        if self._path != span.path or self._file is None:
            self._open.close()
            file, _ = open_regular(span.path)
            self._open.callback(file.close)
            if span.stamp and stamp(file) != span.stamp:
                raise FormatError(
                    f"{base_name(span.path)}: was written again after its header was read; convert it again"
                )
            self._path, self._file = span.path, file
        return self._file

    def _copy(self, span: Span, size: int, file: BinaryIO) -> None:
        """Copy bytes from file to file, by the system where it can."""
        source, end = self._opened(span), span.start + size
        at = span.start
        while at < end:
            with reading(base_name(span.path)):
                copied = _system_copy(source, file, min(16 * PIECE, end - at), at)
            if not copied:
                raise _ended(span)
            at += copied
            self.count(copied)

    def _read(self, name: str, info: TensorInfo) -> Iterator[memoryview]:
        """The bytes of a tensor that is read, or put together of rows, cast where its type is another."""
        rows = self.checkpoint.rows(name)
        if rows and self.checkpoint.tensors[name] == info:
            for some in rows:
                yield from self._ordered(some)
            return
        from mapper.sources.storage import torch_dtype
        from mapper.weights.arrays import raw_bytes
        from mapper.weights.saving.container import pieces

        assert self.checkpoint.read is not None
        source, wanted = self.checkpoint.source, torch_dtype(info.dtype, name)
        tensor = self.checkpoint.read([name])[name].detach()
        if tensor.nbytes != tensor.dtype.itemsize * _bytes(info) // wanted.itemsize:
            raise FormatError(
                f"{source}: {shorten(name)} has {tensor.nbytes:,} bytes as {tensor.dtype}, not the {_bytes(info):,} of {info.dtype}",
                tensors=[name],
            )
        parts: Iterable[torch.Tensor] = (
            pieces(tensor) if tensor.dtype == wanted else _cast(tensor, wanted, name, source)
        )
        for part in parts:
            raw = raw_bytes(part)
            self.count(raw.nbytes)
            yield memoryview(raw.numpy().data)


def _cast(tensor: torch.Tensor, dtype: torch.dtype, name: str, source: str) -> Iterator[torch.Tensor]:
    """Parts of a tensor in row order as another type. Raises MapperError where a value is out of its range."""
    from mapper.weights.loading.casting import name as named
    from mapper.weights.loading.casting import overflows

    for part in tensor.reshape(-1).split(PIECE // 8):
        if overflows(part, dtype):
            raise MapperError(
                f"{source}: {shorten(name)} has values out of the range of {named(dtype)}; convert to another type",
                tensors=[name],
            )
        yield part.to(dtype)


def _bytes(info: TensorInfo) -> int:
    return int(info.size * DTYPE_BYTES[info.dtype])


def _ended(span: Span) -> FormatError:
    return FormatError(f"{base_name(span.path)}: the file ended while it was read; convert it again")


def _system_copy(source: BinaryIO, file: BinaryIO, size: int, at: int) -> int:
    """Copy up to `size` bytes from `at` to where `file` stands; how many it were."""
    kernel: Any = getattr(os, "copy_file_range", None)
    if kernel is not None:
        try:
            return int(kernel(source.fileno(), file.fileno(), size, at))
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
    source.seek(at)
    data = source.read(min(PIECE, size))
    write_all(file.write, memoryview(data))
    return len(data)


def _codes(*names: str) -> frozenset[int]:
    import errno

    return frozenset(getattr(errno, name) for name in names if hasattr(errno, name))


_NOT_HERE = _codes(
    "EXDEV", "ENOSYS", "EINVAL", "EOPNOTSUPP", "EPERM", "ENOTSUP", "EBADF"
)  # that file systems say
