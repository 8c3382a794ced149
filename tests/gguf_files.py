"""Writes GGUF files, by the format's page alone."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

ALIGNMENT = 32
PLAIN = {"float32": 0, "float16": 1, "int8": 24, "int16": 25, "int32": 26, "int64": 27, "float64": 28}


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def setting(value: Any) -> bytes:
    """One value of the metadata, after its type."""
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    items = [setting(item) for item in value]
    kind = items[0][:4] if items else struct.pack("<I", 4)
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(items)) + b"".join(item[4:] for item in items)


def gguf_bytes(
    metadata: dict[str, Any], tensors: dict[str, Any], kinds: dict[str, int] | None = None, version: int = 3
) -> bytes:
    """A file of these arrays; of those in `kinds` the array has the bytes of its blocks, row by row."""
    table, data = b"", b""
    for name, array in tensors.items():
        array = np.ascontiguousarray(array)
        kind = (kinds or {}).get(name, PLAIN.get(array.dtype.name))
        shape = list(array.shape)
        if name in (kinds or {}):
            import gguf

            block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
            shape[-1] = shape[-1] // size * block
        table += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, len(data))
        data += array.tobytes()
        data += bytes(-len(data) % ALIGNMENT)
    entries = b"".join(text(key) + setting(value) for key, value in metadata.items())
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata)) + entries + table
    return head + bytes(-len(head) % ALIGNMENT) + data


def pairs(array: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """What llama.cpp's converter does to queries and keys: rows of the two halves of a head in turn."""
    return array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
