"""Protocol buffers as they lie in a file: fields, read where they are, without a schema and without their contents.

https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from mapper import limits
from mapper.errors import FormatError

VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5
VARINT_BYTES = 10
FIXED = {EIGHT: 8, FOUR: 4}


class Field(NamedTuple):
    """One field: `value` of a number as it stands in the file, `start` and `end` of what is stored as bytes."""

    number: int
    wire: int
    start: int
    end: int
    value: int = 0

    @property
    def size(self) -> int:
        return self.end - self.start


class Message:
    """The fields of a file, and of the messages in it."""

    def __init__(self, file: BinaryIO, size: int, name: str):
        self.file, self.size, self.name = file, size, name
        self.read = 0  # fields so far

    def fields(self, start: int = 0, end: int | None = None) -> Iterator[Field]:
        """The fields from `start` to `end`. Raises FormatError where they do not fill that."""
        end = self.size if end is None else end
        while start < end:
            self.read += 1
            if self.read > limits.WIRE_FIELDS:
                raise FormatError(
                    f"{self.name}: more than {limits.WIRE_FIELDS:,} fields, which is the most that is read"
                )
            field = self.field(start, end)
            start = field.end
            yield field

    def field(self, start: int, end: int) -> Field:
        self.file.seek(start)
        data = self.file.read(min(2 * VARINT_BYTES, end - start))
        tag, at = self.varint(data, 0, start)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, after = self.varint(data, at, start)
            return Field(number, wire, start + at, start + after, value)
        if wire == BYTES:
            length, at = self.varint(data, at, start)
        elif wire in FIXED:
            length = FIXED[wire]
        else:
            raise self.damaged(start, f"a field of the kind {wire}")
        if number == 0 or start + at + length > end:
            why = (
                "a field without a number"
                if number == 0
                else f"a field of {length:,} bytes, where {end - start - at:,} are left"
            )
            raise self.damaged(start, why)
        return Field(number, wire, start + at, start + at + length)

    def varint(self, data: bytes, at: int, start: int) -> tuple[int, int]:
        """The number at `at`, and where it ends."""
        value = 0
        for shift in range(VARINT_BYTES):
            if at >= len(data):
                break
            byte = data[at]
            value |= (byte & 0x7F) << 7 * shift
            at += 1
            if byte < 0x80:
                return value & (2**64 - 1), at
        raise self.damaged(start, "a number without an end")

    def damaged(self, at: int, why: str) -> FormatError:
        return FormatError(f"{self.name}: {why} at byte {at:,}; the file is damaged, or of another format")

    def bytes(self, field: Field, limit: int) -> bytes:
        """The contents of a field, which has at most `limit` bytes."""
        if field.wire != BYTES or field.size > limit:
            raise self.damaged(field.start, f"{field.size:,} bytes where at most {limit:,} are read")
        self.file.seek(field.start)
        data = self.file.read(field.size)
        if len(data) < field.size:
            raise self.damaged(field.start, "the end of the file")
        return data

    def text(self, field: Field) -> str:
        return self.bytes(field, 4 * limits.NAME_CHARACTERS).decode("utf-8", "replace")

    def numbers(self, field: Field, limit: int) -> list[int]:
        """One number, or packed ones, of at most `limit`."""
        if field.wire == VARINT:
            return [field.value]
        return varints(self.bytes(field, limit * VARINT_BYTES), limit, self, field.start)


def varints(data: bytes, limit: int, message: Message, start: int) -> list[int]:
    """Packed numbers, at most `limit`."""
    found, at = [], 0
    while at < len(data):
        value, at = message.varint(data, at, start)
        found.append(value)
        if len(found) > limit:
            raise message.damaged(start, f"more than the {limit:,} numbers that are read")
    return found
