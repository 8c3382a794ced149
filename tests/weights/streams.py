"""Streams as unhelpful as they may be, and trees through them."""

from __future__ import annotations

import io
from typing import Any

import mapper


class Trickle(io.RawIOBase):
    """Cannot seek, gives and takes at most `most` bytes at a time."""

    def __init__(self, data: bytes = b"", most: int = 3) -> None:
        self.inner, self.most, self.written = io.BytesIO(data), most, bytearray()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self.inner.read(min(self.most, size) if size >= 0 else self.most)

    def write(self, data: Any) -> int:
        taken = bytes(data)[: self.most]
        self.written += taken
        return len(taken)


class Plain:
    """Has `read` and `write` and nothing else; counts no bytes."""

    def __init__(self, data: bytes = b"") -> None:
        self.inner, self.written = io.BytesIO(data), bytearray()

    def read(self, size: int) -> bytes:
        return self.inner.read(size)

    def write(self, data: Any) -> None:
        self.written += data


def saved(tree: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    mapper.save_tree(stream, tree, **options)
    return stream.getvalue()


def loaded(data: bytes, like: Any, **options: Any) -> Any:
    return mapper.load_tree(io.BytesIO(data), like, **options)
