"""Tensors over mapped files: the only place in this package that imports torch."""

from __future__ import annotations

import math
import mmap

import torch

from mapper.checkpoint import DTYPE_BYTES, TORCH_NAMES, TensorInfo
from mapper.errors import FormatError, SourceError, shorten
from mapper.sources.files import open_regular, reading, stamp
from mapper.sources.shards import Shard


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
    dtype_name, shape = shard.tensors[name].dtype, shard.tensors[name].torch_shape
    if name in shard.decoded:
        return shard.decoded[name](memoryview(mapped))
    dtype = torch_dtype(dtype_name, name)
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


def plain(
    data: memoryview, info: TensorInfo, offset: int, strides: tuple[int, ...] | None = None
) -> torch.Tensor:
    """The tensor whose numbers stand in a file as they are, from byte `offset`."""
    shape, dtype = info
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=torch_dtype(dtype, ""))
    if strides is not None:
        reach = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        return _flat(data, torch_dtype(dtype, ""), reach, offset, DTYPE_BYTES[dtype]).as_strided(
            shape, strides
        )
    return _flat(data, torch_dtype(dtype, ""), count, offset, DTYPE_BYTES[dtype]).view(shape)


def _flat(
    mapped: mmap.mmap | memoryview, dtype: torch.dtype, count: int, offset: int, width: float
) -> torch.Tensor:
    if offset % max(int(width), 1):  # the format allows it, vector instructions may not
        start = bytearray(memoryview(mapped)[offset : offset + int(count * width)])
        return torch.frombuffer(start, dtype=dtype, count=count)
    return torch.frombuffer(mapped, dtype=dtype, count=count, offset=offset)


def torch_dtype(name: str, key: str) -> torch.dtype:
    """The torch dtype that a safetensors dtype name stands for. Raises SourceError if this torch has none."""
    dtype = getattr(torch, TORCH_NAMES[name], None)
    if not isinstance(dtype, torch.dtype):
        raise SourceError(
            f"tensor {shorten(key)} has the dtype {name}, which torch {torch.__version__} lacks; "
            "install a newer torch",
            tensors=[key],
        )
    return dtype
