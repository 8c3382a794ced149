"""Files of `torch.save` before torch 1.6: five pickles, then each storage as a count and its bytes."""

from __future__ import annotations

from typing import BinaryIO

from mapper import limits
from mapper.checkpoint import DTYPE_BYTES
from mapper.errors import FormatError, shorten
from mapper.sources.pickles import Pickled, StoredTensor, interpret
from mapper.sources.shards import Shard
from mapper.sources.state_dict import take_tensors

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
MAGIC = b"\x8a\x0a" + MAGIC_NUMBER.to_bytes(10, "little")  # after two bytes of protocol
BLOCK = 2**20  # bytes read at a time until the pickles are complete
COUNT_BYTES = 8


def is_legacy(start: bytes) -> bool:
    """Whether a file that starts with these bytes was written so."""
    return start[2:].startswith(MAGIC)


def read_header(file: BinaryIO, size: int, name: str, *, offsets: bool = True) -> Shard:
    """The table of the legacy `file`: its pickles, and with `offsets` the count before each storage."""
    (_, protocol, system, value, keys), end, made, foreign = _pickles(file, size, name)
    if protocol != 1001 or not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        seen = (
            str(protocol) if type(protocol) is int else f"a {type(protocol).__name__}"
        )  # a list may hold itself
        raise FormatError(f"{name}: a legacy torch file of unknown layout ({seen}); save it again with torch")
    if isinstance(system, dict) and system.get("little_endian") is False:
        raise FormatError(f"{name}: written by a big-endian machine; save it again with safetensors")
    shard = Shard(name, "torch", {}, size=size, foreign=foreign)
    tables = take_tensors(value, made, shard)
    if offsets:
        starts = _starts(file, size, name, end, keys, made)
        for table, key, tensor in [(table, *place) for table, found in tables for place in found.items()]:
            if tensor.storage.key not in starts:
                raise FormatError(
                    f"{name}: the bytes of tensor {shorten(key)}, storage "
                    f"{shorten(tensor.storage.key)}, are missing",
                    tensors=[key],
                )
            table.offsets[key] = starts[tensor.storage.key] + int(tensor.offset * DTYPE_BYTES[tensor.dtype])
    return shard


def _pickles(file: BinaryIO, size: int, name: str) -> Pickled:
    """The five values as one. Only reading shows how long a pickle is."""
    read = BLOCK
    while True:
        file.seek(0)
        data = file.read(min(read, limits.HEADER_BYTES))
        values, end, made, foreign = [], 0, [], []
        try:
            for _ in range(5):
                part = interpret(data, name, end)
                values.append(part.value)
                end = part.end
                made += part.tensors
                foreign += part.foreign
            return Pickled(values, end, made, foreign)
        except FormatError:
            if len(data) >= min(size, limits.HEADER_BYTES):
                raise
        read *= 4


def _starts(
    file: BinaryIO, size: int, name: str, position: int, keys: list[str], made: list[StoredTensor]
) -> dict[str, int]:
    """Where each storage's bytes start."""
    storages = {tensor.storage.key: tensor.storage for tensor in made}
    starts = {}
    for key in keys:
        storage = storages.get(key)
        file.seek(position)
        count = int.from_bytes(file.read(COUNT_BYTES), "little")
        if storage is None or not storage.dtype or count != storage.elements:
            raise FormatError(
                f"{name}: storage {shorten(key)} at byte {position:,} is not the one that the "
                "pickle describes"
            )
        starts[key] = position + COUNT_BYTES
        position = starts[key] + int(count * DTYPE_BYTES[storage.dtype])
        if position > size:
            raise FormatError(
                f"{name}: storage {shorten(key)} ends at byte {position:,} but the file has "
                f"{size:,}; download it again"
            )
    return starts
