"""One record of a zip archive of this package, found in its directory without an object for each of the others."""

from __future__ import annotations

import struct
import zlib

_END = struct.Struct("<4s8xLL2x")  # signature, bytes of the directory, where it begins; no comment after it
_ENTRY = struct.Struct(
    "<4s6xH4xLL4xHHH8xL"
)  # signature, method, checksum, stored size, lengths of name, extra and comment, place
_LOCAL = struct.Struct("<4s22xHH")  # signature, lengths of name and extra
_DEFLATED = 8


def read_record(archive: bytes, name: str) -> bytes | None:
    """What stands under a name; None where nothing does. Raises ValueError for an archive that is damaged."""
    word = name.encode()
    signature, size, start = _END.unpack(archive[-_END.size :])
    if signature != b"PK\5\6":
        raise ValueError("no directory at its end")
    at = archive.find(word, start, start + size)
    while at >= 0:
        _, method, checksum, stored, length, *_, place = entry = _ENTRY.unpack_from(archive, at - _ENTRY.size)
        if entry[0] == b"PK\1\2" and length == len(word):
            return _unpacked(archive, method, checksum, stored, place)
        at = archive.find(word, at + 1, start + size)
    return None


def _unpacked(archive: bytes, method: int, checksum: int, stored: int, place: int) -> bytes:
    _, name, extra = _LOCAL.unpack_from(archive, place)
    begin = place + _LOCAL.size + name + extra
    data = archive[begin : begin + stored]
    data = zlib.decompress(data, -zlib.MAX_WBITS) if method == _DEFLATED else data
    if zlib.crc32(data) != checksum:
        raise ValueError("a record whose checksum does not hold")
    return data
