"""Writes ONNX files, by the schema alone."""

from __future__ import annotations


def varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def held(field: int, data: bytes | str) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def initialiser(name: str, shape: list[int], kind: int = 1, *fields: bytes) -> bytes:
    return b"".join([*(number(1, extent) for extent in shape), number(2, kind), *fields, held(8, name)])


def beside(location: str, **more: object) -> bytes:
    pairs = {"location": location, **more}
    return number(14, 1) + b"".join(
        held(13, held(1, key) + held(2, str(value))) for key, value in pairs.items()
    )


def model(*initialisers: bytes) -> bytes:
    node = held(1, held(4, "MatMul") + held(3, "node"))
    return (
        number(1, 10)
        + held(7, node + b"".join(held(5, tensor) for tensor in initialisers))
        + held(8, number(2, 21))
    )
