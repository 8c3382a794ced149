"""One safetensors file, written as it streams: the header first, then the tensors one after another.

https://github.com/huggingface/safetensors#format
The header says the tensors in the order given; their bytes lie as `placement` orders them, so that nearly every one can be
used where it lies in a mapped file. Extra memory: one piece of `PIECE` bytes, and only
for a tensor whose bytes are not in row order on the CPU already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import torch

from mapper import limits
from mapper.checkpoint import TORCH_NAMES
from mapper.errors import MapperError, UnsupportedLeaf
from mapper.sources.saved import RAW_BYTES
from mapper.weights.arrays import raw_bytes, why_no_bytes
from mapper.weights.saving.headers import PIECE, Entry, header, write_all
from mapper.weights.saving.placement import in_order

# Names that torch and safetensors read back; all other types go as bytes, with their name beside them.
NAMES = {getattr(torch, word): name for name, word in TORCH_NAMES.items() if word not in RAW_BYTES}


def check_storable(tensor: torch.Tensor, path: str) -> None:
    """Raise UnsupportedLeaf unless `tensor` has bytes in memory, all of them its own."""
    reason = why_no_bytes(tensor)
    if reason:
        raise UnsupportedLeaf(f"{path}: {reason}", path)


def stored_raw(tensors: Mapping[str, torch.Tensor]) -> dict[str, dict[str, Any]]:
    """For each tensor whose type the format cannot name: its torch dtype and its shape, to be kept beside its bytes."""
    return {
        name: {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
        for name, tensor in tensors.items()
        if tensor.dtype not in NAMES
    }


def write_tensors(file: BinaryIO, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Write one safetensors file: `tensors` of any device and memory order, and `metadata` into its header."""
    start, placed = in_order(tensors)
    file.write(_header(tensors, placed, start, metadata))
    for name in placed:
        for piece in pieces(tensors[name].detach()):
            _write(file, raw_bytes(piece))


def _header(
    tensors: Mapping[str, torch.Tensor], placed: Iterable[str], start: int, metadata: Mapping[str, str]
) -> bytes:
    entries = {name: _entry(tensor) for name, tensor in tensors.items()}
    text = header(entries, placed, start, metadata)
    if len(text) - 8 > limits.HEADER_BYTES:
        raise MapperError(
            f"what is to be saved beside the tensors takes {len(text) - 8:,} bytes of JSON, and {limits.HEADER_BYTES:,} "
            "may stand in one header; put long lists of numbers into arrays, or save into a folder"
        )
    return text


def _entry(tensor: torch.Tensor) -> Entry:
    known = NAMES.get(tensor.dtype)
    shape = [tensor.nbytes] if known is None else list(tensor.shape)
    return Entry(known or "U8", shape, tensor.nbytes)


def pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Parts of a tensor in row order: all of it where its bytes can be written as they lie, else small ones."""
    ready = tensor.device.type == "cpu" and tensor.is_contiguous()
    if ready or tensor.nbytes <= PIECE or tensor.dim() == 0:
        yield tensor
        return
    row = tensor.nbytes // tensor.shape[0]
    if row > PIECE:
        for part in tensor:
            yield from pieces(part)
        return
    yield from tensor.split(max(1, PIECE // max(row, 1)))


def _write(file: BinaryIO, raw: torch.Tensor) -> None:
    write_all(file.write, memoryview(raw.numpy().data))
