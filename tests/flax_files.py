"""Writes Flax files, by the specification of MessagePack alone."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np


def packed(value: Any) -> bytes:
    """A value as MessagePack; arrays as `flax.serialization` writes them."""
    if isinstance(value, dict):
        return (
            b"\xdf"
            + struct.pack(">I", len(value))
            + b"".join(packed(key) + packed(item) for key, item in value.items())
        )
    if isinstance(value, (list, tuple)):
        return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(packed, value))
    if isinstance(value, str):
        data = value.encode()
        return (
            bytes([0xA0 | len(data)]) if len(data) < 32 else b"\xda" + struct.pack(">H", len(data))
        ) + data
    if isinstance(value, bytes):
        return b"\xc6" + struct.pack(">I", len(value)) + value
    if isinstance(value, (np.ndarray, np.generic)):
        data = packed((list(value.shape), value.dtype.name, value.tobytes()))
        return (
            b"\xc9"
            + struct.pack(">I", len(data))
            + (b"\x01" if isinstance(value, np.ndarray) else b"\x03")
            + data
        )
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    return bytes([value]) if 0 <= value < 128 else b"\xd3" + struct.pack(">q", value)
