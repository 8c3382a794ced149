"""The tensors of an ONNX file, read when they are asked for: mapped where they stand as they are in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from mapper.checkpoint import TensorInfo
from mapper.errors import FormatError, shorten
from mapper.sources.files import base_name, open_regular, reading, stamp
from mapper.sources.onnx import unpacked
from mapper.sources.shards import Shard
from mapper.sources.storage import map_tensors
from mapper.sources.wire import Message

if TYPE_CHECKING:
    from mapper.graphs.graph import TensorRef
TEXT = 6  # the field of a tensor that holds its texts
F4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # OCP Microscaling formats 1.0, table 5


def read_tensor(ref: TensorRef) -> torch.Tensor:
    """The tensor. Narrow whole numbers come in eight bits each, four-bit floats as float32.

    Raises FormatError for texts, and for a file that was written to meanwhile.
    """
    if ref.packing == "texts":
        raise FormatError(
            f"{base_name(ref.path)}: tensor {shorten(ref.name)} holds texts, which torch has none of"
        )
    if ref.packing == "plain":
        shard = _shard(ref)
        return map_tensors(shard, [ref.name])[ref.name]
    if ref.packing == "varints":
        return unpacked(memoryview(_bytes(ref)), ref.info, base_name(ref.path), ref.name)
    return _narrow(ref)


def read_texts(ref: TensorRef) -> list[bytes]:
    """The elements of a tensor of texts, in row order."""
    file, size = open_regular(ref.path)
    with file, reading(base_name(ref.path)):
        message = Message(file, size, base_name(ref.path))
        found = [
            message.bytes(part, part.size)
            for part in message.fields(ref.start, ref.end)
            if part.number == TEXT
        ]
    if len(found) != ref.size:
        raise FormatError(
            f"{base_name(ref.path)}: tensor {shorten(ref.name)} has {len(found):,} texts, not {ref.size:,}"
        )
    return found


def _shard(ref: TensorRef) -> Shard:
    file, size = open_regular(ref.path)
    file.close()
    name = base_name(ref.path)
    return Shard(
        name, "onnx", {ref.name: ref.info}, {ref.name: ref.start}, path=ref.path, size=size, stamp=ref.stamp
    )


def _bytes(ref: TensorRef) -> bytes:
    file, _ = open_regular(ref.path)
    with file, reading(base_name(ref.path)):
        if ref.stamp and stamp(file) != ref.stamp:
            raise FormatError(f"{base_name(ref.path)}: was written again after it was read; open it again")
        file.seek(ref.start)
        return file.read(ref.end - ref.start)


def _narrow(ref: TensorRef) -> torch.Tensor:
    bits, data = int(ref.dtype[1:]), _bytes(ref)
    count = -(-ref.size * bits // 8)
    if ref.packing == "narrow varints":
        kept = TensorInfo((count,), "U8")
        raw = unpacked(memoryview(data), kept, base_name(ref.path), ref.name).numpy()
    else:
        raw = np.frombuffer(data, np.uint8)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    found = ((raw[:, None] >> shifts) & (2**bits - 1)).reshape(-1)[: ref.size].reshape(ref.shape)
    if ref.dtype == "F4":
        signs = np.where(found & 8, -1, 1).astype(np.float32)
        return torch.from_numpy(np.asarray(np.asarray(F4_VALUES, np.float32)[found & 7] * signs))
    if ref.dtype.startswith("I"):
        half = 2 ** (bits - 1)
        signed = (found.astype(np.int16) + half) % (2 * half) - half
        return torch.from_numpy(
            np.asarray(signed, np.int8)
        )  # one number without an axis is no array by itself
    return torch.from_numpy(found)
