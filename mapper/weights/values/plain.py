"""Plain values as strict JSON and back: the same type and the same bits."""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Callable
from typing import Any

import torch

from mapper import limits
from mapper.errors import FormatError, shorten

Keep = Callable[[torch.Tensor], str]  # stores a tensor beside the JSON and says under which name
Read = Callable[[str], torch.Tensor]

_WIDE = 1 << 256  # integers below stand in the JSON as digits; 78 of them, where json reads 640 at least


def payload(data: bytes, keep: Keep | None) -> Any:
    """`data` as base64, or as the name of a byte tensor where it is long and there is a place for one."""
    if keep is None or len(data) <= limits.INLINE_BYTES:
        return base64.b64encode(data).decode("ascii")
    return {"stored": keep(torch.frombuffer(bytearray(data), dtype=torch.uint8))}


def payload_bytes(body: Any, read: Read | None) -> bytes:
    """What `payload` was given."""
    if isinstance(body, str):
        try:
            return base64.b64decode(body, validate=True)
        except ValueError as error:
            raise FormatError(f"{shorten(body)} is not base64") from error
    if read is None or not isinstance(body, dict) or not isinstance(body.get("stored"), str):
        raise FormatError(f"bytes are base64 or stored as a tensor, not {shorten_json(body)}")
    stored = read(body["stored"])
    if stored.dtype != torch.uint8 or stored.dim() != 1:
        raise FormatError(f"the bytes {shorten(body['stored'])} are stored as {stored.dtype}, not as uint8")
    return stored.contiguous().numpy().tobytes()


def shorten_json(node: Any) -> str:
    """The kind of a JSON value, or the value itself where that is short."""
    if isinstance(node, str):
        return shorten(node)
    if isinstance(node, dict):
        return "an object of " + (", ".join(shorten(str(key), 40) for key in list(node)[:4]) or "nothing")
    return f"a list of {len(node)}" if isinstance(node, list) else repr(node)[:80]


def plain_node(value: Any, keep: Keep | None = None) -> Any:
    """A value of a plain type as JSON; `NotImplemented` for every other type, subclasses of the plain ones too."""
    encode = _ENCODERS.get(type(value))
    return NotImplemented if encode is None else encode(value, keep)


def _int_node(value: int, keep: Keep | None) -> Any:
    if -_WIDE < value < _WIDE:
        return value
    size = value.bit_length() // 8 + 1
    return {"int": payload(value.to_bytes(size, "little", signed=True), keep)}


def _float_node(value: float, keep: Keep | None) -> Any:
    return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}


def _str_node(value: str, keep: Keep | None) -> Any:
    if is_text(value) and len(value) <= limits.INLINE_CHARACTERS:
        return value
    # Two surrogates beside each other would come back from JSON as one character.
    return {"str": payload(value.encode("utf-8", "surrogatepass"), keep)}


def is_text(value: str) -> bool:
    """Whether JSON gives the string back: it has no lone surrogates."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _same(value: Any, keep: Keep | None) -> Any:
    return value


_ENCODERS: dict[type, Callable[[Any, Keep | None], Any]] = {
    type(None): _same,
    bool: _same,
    int: _int_node,
    float: _float_node,
    complex: lambda value, keep: {"complex": [_float_node(value.real, keep), _float_node(value.imag, keep)]},
    str: _str_node,
    bytes: lambda value, keep: {"bytes": payload(value, keep)},
    torch.dtype: lambda value, keep: {"torch.dtype": str(value).removeprefix("torch.")},
    torch.device: lambda value, keep: {"torch.device": str(value)},
    torch.Size: lambda value, keep: {"torch.Size": [int(extent) for extent in value]},
}


def plain_value(node: Any, read: Read | None = None) -> Any:
    """The value of which `plain_node` made `node`; `NotImplemented` where the JSON is none of its kinds."""
    if node is None or isinstance(node, (bool, int, str)):
        return node
    if isinstance(node, float):
        if not math.isfinite(node):  # json reads NaN and 1e999, which strict JSON does not have
            raise FormatError(f"{node} is not a number of strict JSON")
        return node
    tags = [tag for tag in node if tag in _DECODERS] if isinstance(node, dict) else []
    return _DECODERS[tags[0]](node[tags[0]], read) if len(tags) == 1 else NotImplemented


def _int_value(body: Any, read: Read | None) -> int:
    return int.from_bytes(payload_bytes(body, read), "little", signed=True)


def _float_value(body: Any, read: Read | None = None) -> float:
    if not isinstance(body, str) or not re.fullmatch("[0-9a-f]{16}", body):
        raise FormatError(f"a float is its 16 hexadecimal digits, not {shorten_json(body)}")
    return float(struct.unpack(">d", bytes.fromhex(body))[0])


def _complex_value(body: Any, read: Read | None) -> complex:
    parts = [plain_value(part) for part in body] if isinstance(body, list) else []
    if [type(part) for part in parts] != [float, float]:
        raise FormatError(f"a complex number is two floats, not {shorten_json(body)}")
    return complex(*parts)


def _str_value(body: Any, read: Read | None) -> str:
    try:
        return payload_bytes(body, read).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise FormatError(f"a string is not UTF-8: {error}") from error


def dtype_value(body: Any, read: Read | None = None) -> torch.dtype:
    """The type that torch has under this name."""
    dtype = vars(torch).get(body) if isinstance(body, str) else None
    if not isinstance(dtype, torch.dtype):
        raise FormatError(f"this torch ({torch.__version__}) has no dtype {shorten_json(body)}")
    return dtype


def _device_value(body: Any, read: Read | None) -> torch.device:
    try:
        return torch.device(body if isinstance(body, str) else "")
    except (RuntimeError, ValueError) as error:
        raise FormatError(f"torch has no device {shorten_json(body)}") from error


def _size_value(body: Any, read: Read | None) -> torch.Size:
    if not isinstance(body, list) or not all(type(n) is int and -(1 << 63) <= n < 1 << 63 for n in body):
        raise FormatError(f"a torch.Size is a list of integers of 64 bits, not {shorten_json(body)}")
    return torch.Size(body)


def extents(body: Any) -> list[int]:
    """A list of sizes, each within the limit."""
    if not isinstance(body, list) or not all(type(n) is int and 0 <= n < limits.EXTENT for n in body):
        raise FormatError(f"a shape is a list of numbers below {limits.EXTENT:,}, not {shorten_json(body)}")
    return list(body)


_DECODERS: dict[str, Callable[[Any, Read | None], Any]] = {
    "int": _int_value,
    "float": _float_value,
    "complex": _complex_value,
    "str": _str_value,
    "bytes": payload_bytes,
    "torch.dtype": dtype_value,
    "torch.device": _device_value,
    "torch.Size": _size_value,
}
