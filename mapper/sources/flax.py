"""Flax's own files: nested tables of arrays as MessagePack.

https://github.com/msgpack/msgpack/blob/master/spec.md; arrays are `flax.serialization`'s extension 1: shape, type, bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from mapper import limits
from mapper.checkpoint import DTYPE_BYTES, TensorInfo
from mapper.errors import FormatError, shorten
from mapper.rulebook.trees import SLASH
from mapper.sources.manifest import DTYPE_NAMES
from mapper.sources.shards import Shard, check_name, check_shape
from mapper.sources.trees import name_as_torch

CONTAINER = "flax"
SUFFIX = ".msgpack"
ARRAY, SCALAR = 1, 3  # extensions
CHUNKED = "__msgpack_chunked_array__"
NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
# First byte -> what follows, and of how many bytes its length is.
SIZED = {
    0xD9: ("text", 1), 0xDA: ("text", 2), 0xDB: ("text", 4), 0xC4: ("bytes", 1), 0xC5: ("bytes", 2), 0xC6: ("bytes", 4),
    0xDC: ("list", 2), 0xDD: ("list", 4), 0xDE: ("table", 2), 0xDF: ("table", 4), 0xC7: ("extension", 1),
    0xC8: ("extension", 2), 0xC9: ("extension", 4),
}  # fmt: skip
FIXED_EXTENSIONS = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


class Token(NamedTuple):
    """One item: a value, or of what kind and size what follows is."""

    kind: str  # "value", "text", "bytes", "list", "table", "extension"
    size: int = 0
    value: Any = None


def read_header(file: BinaryIO, size: int, name: str) -> Shard:
    """The table of the Flax file `file`, under torch's names. The arrays' bytes are not read."""
    shard = Shard(name, CONTAINER, {}, size=size)
    reader = _Reader(file, size, name)
    token = reader.token()
    if token.kind != "table":
        raise reader.damaged(f"a {token.kind} where a table of arrays is needed")
    for words, info, start in reader.arrays(token.size, ()):
        key = SLASH.join(words)
        check_name(key.replace(SLASH, "."), name)
        if key in shard.tensors:
            raise FormatError(f"{name}: two arrays have the name {shorten(key)}")
        shard.tensors[key], shard.offsets[key] = info, start
        if len(shard.tensors) > limits.TENSORS:
            raise FormatError(f"{name}: more than {limits.TENSORS:,} tensors, which is the most that is read")
    if reader.position != size:
        raise reader.damaged(f"{size - reader.position:,} bytes after the table")
    name_as_torch(shard)
    return shard


class _Reader:
    def __init__(self, file: BinaryIO, size: int, name: str):
        self.file, self.size, self.name, self.position = file, size, name, 0
        self.items = 0

    def arrays(self, count: int, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], TensorInfo, int]]:
        """The arrays of a table of `count` entries and of those in it: path, what it is, where its bytes start."""
        if len(path) >= limits.NAME_DEPTH:
            raise FormatError(f"{self.name}: tables nested more than {limits.NAME_DEPTH} levels deep")
        for _ in range(count):
            key = self.text()
            if key == CHUNKED:
                raise FormatError(
                    f"{self.name}: {shorten('.'.join(path))} is in chunks, as Flax writes arrays over 1 GB, which is not "
                    "read; save the model with safetensors"
                )
            token = self.token()
            if token.kind == "table":
                yield from self.arrays(token.size, (*path, key))
            elif token.kind == "extension" and token.value in (ARRAY, SCALAR):
                yield (*path, key), *self.array(token.size, key)
            else:
                self.skip(token)

    def array(self, size: int, key: str) -> tuple[TensorInfo, int]:
        """The array in an extension of `size` bytes, and where its numbers start."""
        end = self.position + size
        if end > self.size:
            raise self.cut()
        outer, dimensions = self.token(), self.token()
        if (outer.kind, outer.size, dimensions.kind) != (
            "list",
            3,
            "list",
        ) or dimensions.size > limits.DIMENSIONS:
            raise self.damaged(f"{shorten(key)} is no array")
        shape = check_shape([self.token().value for _ in range(dimensions.size)], key, self.name)
        word = self.text()
        dtype = DTYPE_NAMES.get(word)
        if dtype is None:
            raise FormatError(
                f"{self.name}: the array {shorten(key)} is of the type {shorten(word)}, which no tensor has",
                tensors=[key],
            )
        data, start = self.token(), self.position
        needed = int(math.prod(shape) * DTYPE_BYTES[dtype])
        if data.kind != "bytes" or data.size != needed or start + needed != end:
            seen = f"has {data.size:,} bytes where {dtype} {list(shape)} needs {needed:,}"
            raise FormatError(
                f"{self.name}: the array {shorten(key)} {seen}; download it again", tensors=[key]
            )
        self.seek(end)
        return TensorInfo(shape, dtype), start

    def token(self) -> Token:
        self.items += 1
        if self.items > limits.MSGPACK_ITEMS:
            raise FormatError(
                f"{self.name}: more than {limits.MSGPACK_ITEMS:,} items, which is the most that is read"
            )
        code = self.take(1)[0]
        if code < 0x80 or code >= 0xE0:
            return Token("value", value=code if code < 0x80 else code - 256)
        if code < 0xC0:
            kind, size = (
                ("table", code & 15)
                if code < 0x90
                else ("list", code & 15)
                if code < 0xA0
                else ("text", code & 31)
            )
            return Token(kind, size)
        if code in CONSTANTS:
            return Token("value", value=CONSTANTS[code])
        if code in NUMBERS:
            form = NUMBERS[code]
            return Token("value", value=struct.unpack(form, self.take(struct.calcsize(form)))[0])
        if code in FIXED_EXTENSIONS:
            return Token("extension", FIXED_EXTENSIONS[code], self.take(1)[0])
        if code not in SIZED:
            raise self.damaged(f"the byte {code:#04x}, which MessagePack does not have")
        kind, width = SIZED[code]
        size = int.from_bytes(self.take(width), "big")
        return Token(kind, size, self.take(1)[0] if kind == "extension" else None)

    def skip(self, token: Token) -> None:
        """Pass over what follows a token."""
        waiting = [token]
        while waiting:
            token = waiting.pop()
            if token.kind in ("text", "bytes", "extension"):
                self.seek(self.position + token.size)
            elif token.size and token.kind in ("list", "table"):
                rest = token.size * (2 if token.kind == "table" else 1) - 1
                waiting += [Token("list", rest), self.token()]

    def text(self) -> str:
        token = self.token()
        if token.kind != "text" or token.size > 4 * limits.NAME_CHARACTERS:
            raise self.damaged(f"a {token.kind} of size {token.size:,} where a name is needed")
        return self.take(token.size).decode("utf-8", "replace")

    def take(self, count: int) -> bytes:
        data = self.file.read(count)
        if len(data) < count:
            raise self.cut()
        self.position += count
        return data

    def seek(self, position: int) -> None:
        if position > self.size:
            raise self.cut()
        self.position = position
        self.file.seek(position)

    def cut(self) -> FormatError:
        return FormatError(
            f"{self.name}: the file ends after {self.size:,} bytes, within its tables; download it again"
        )

    def damaged(self, why: str) -> FormatError:
        return FormatError(f"{self.name}: {why}, before byte {self.position:,}; is it a Flax file?")
