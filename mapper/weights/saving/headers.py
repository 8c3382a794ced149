"""The header of a safetensors file, and bytes onto a file: what needs no torch.

https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

LINE = 64  # bytes of a cache line; torch's own memory starts at a multiple of it
PIECE = 2**25  # bytes copied, and bytes written, at a time


class Entry(NamedTuple):
    """One tensor of a header."""

    dtype: str
    shape: list[int]
    size: int  # bytes


def header(
    entries: Mapping[str, Entry], placed: Iterable[str], start: int, metadata: Mapping[str, str]
) -> bytes:
    """Length and JSON, `entries` in their order, for bytes that follow in the order `placed`.

    Spaces fill it up, so that the first byte after it is `start` bytes behind a cache line.
    """
    spans, position = {}, 0
    for name in placed:
        spans[name] = [position, position + entries[name].size]
        position = spans[name][1]
    table: dict[str, Any] = {"__metadata__": dict(metadata)}
    for name, entry in entries.items():
        table[name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": spans[name]}
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * ((start - len(text) - 8) % LINE)
    return len(text).to_bytes(8, "little") + text


def write_all(write: Callable[[memoryview], int | None], data: bytes | memoryview) -> None:
    """Write all of `data`, to a file or stream that may take less at a time; None from one that does not count."""
    left = memoryview(data)
    while len(left):
        part = left[:PIECE]
        taken = write(part)
        left = left[len(part) if taken is None else taken :]
