"""Tensors over mapped files: the only place in this package that imports torch."""

from __future__ import annotations

import math
import mmap

import torch

from mapper.checkpoint import DTYPE_BYTES, TensorInfo
from mapper.errors import FormatError, SourceError, shorten
from mapper.sources.files import open_regular, reading, stamp
from mapper.sources.shards import Shard

TORCH_NAMES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32":
    "int32", "I16": "int16",
    "I8": "int8", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64", "BOOL": "bool", "C64":
    "complex64",
    "C128": "complex128", "C32": "complex32", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ":
    "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "F4": "float4_e2m1fn_x2",
}  # fmt: skip


def map_tensors(shard: Shard, names: list[str]) -> dict[str, torch.Tensor]:
    """The named tensors of one file, views of one private mapping: nothing is read before it is used."""
    if not names:
        return {}
    assert shard.path is not None
    file, size = open_regular(shard.path)
    with file, reading(shard.name):
        if size != shard.size:
            raise FormatError(
                f"{shard.name}: has {size:,} bytes and had {shard.size:,} when its header was "
                "read; open it again"
            )
        if shard.stamp and stamp(file) != shard.stamp:
            raise FormatError(f"{shard.name}: was written again after its header was read; open it again")
        mapped = _map(file.fileno(), size)
    return {name: _tensor(mapped, shard, name) for name in names}


def _map(descriptor: int, size: int) -> mmap.mmap:
    """A private mapping: writes to the tensors (training) stay in memory and never reach the file."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY)
    # Without NORESERVE Linux refuses to map a file larger than memory this way.
    flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)
    return mmap.mmap(descriptor, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def _tensor(mapped: mmap.mmap, shard: Shard, name: str) -> torch.Tensor:
    shape, dtype_name = shard.tensors[name]
    if name in shard.decoded:
        return shard.decoded[name](memoryview(mapped))
    dtype = torch_dtype(dtype_name, name)
    if dtype_name == "F4":  # torch counts pairs of four-bit numbers
        shape = (*shape[:-1], shape[-1] // 2)
    strides = shard.strides.get(name)
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    if strides is None:
        return _flat(mapped, dtype, count, shard.offsets[name], DTYPE_BYTES[dtype_name]).view(shape)
    reach = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    return _flat(mapped, dtype, reach, shard.offsets[name], DTYPE_BYTES[dtype_name]).as_strided(
        shape, strides
    )


def plain(data: memoryview, info: TensorInfo, offset: int) -> torch.Tensor:
    """The tensor whose numbers stand in a file as they are, from byte `offset`."""
    shape, dtype = info
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=torch_dtype(dtype, ""))
    return _flat(data, torch_dtype(dtype, ""), count, offset, DTYPE_BYTES[dtype]).view(shape)


def _flat(
    mapped: mmap.mmap | memoryview, dtype: torch.dtype, count: int, offset: int, width: float
) -> torch.Tensor:
    if offset % max(int(width), 1):  # the format allows it, vector instructions may not
        start = bytearray(memoryview(mapped)[offset : offset + int(count * width)])
        return torch.frombuffer(start, dtype=dtype, count=count)
    return torch.frombuffer(mapped, dtype=dtype, count=count, offset=offset)


def torch_dtype(name: str, key: str) -> torch.dtype:
    """The torch dtype that a safetensors dtype name stands for."""
    dtype = getattr(torch, TORCH_NAMES[name], None)
    if not isinstance(dtype, torch.dtype):
        raise SourceError(
            f"tensor {shorten(key)} has the dtype {name}, which torch {torch.__version__} lacks; "
            "install a newer torch"
        )
    return dtype
