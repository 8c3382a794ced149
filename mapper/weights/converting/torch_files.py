"""One torch file, written as it streams: the zip that `torch.save` writes of a table of tensors.

https://docs.pytorch.org/docs/stable/notes/serialization.html
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from mapper.checkpoint import DTYPE_BYTES, TensorInfo
from mapper.outputs.flushed import new_file
from mapper.weights.converting.archives import is_large, padded_record

if TYPE_CHECKING:
    from mapper.weights.converting.origins import Origins

FOLDER = "archive"  # what all records stand in
_PROTOCOL = 2  # of pickles, as torch's own


class TorchTable(NamedTuple):
    """What a torch file holds besides its tensors."""

    inside: str = ""  # the table that has the tensors; "": they are the whole
    beside: Mapping[str, Any] = MappingProxyType({})  # plain values, where they are in a table


class _Storage(NamedTuple):
    """The numbers of one tensor, which stand in a record of their own."""

    key: str
    info: TensorInfo


class _Tensor:
    """A tensor as the pickle has it: how torch is to make it of a storage."""

    def __init__(self, key: str, info: TensorInfo):
        self.key, self.info = key, info

    def __reduce__(self) -> tuple[Any, ...]:
        from torch._utils import _rebuild_tensor_v2

        shape = self.info.shape
        strides = [1]
        for extent in reversed(shape[1:]):
            strides.insert(0, strides[0] * max(extent, 1))
        return _rebuild_tensor_v2, (
            _Storage(self.key, self.info), 0, shape, tuple(strides[: len(shape)]), False, OrderedDict(),
        )  # fmt: skip


class _Pickler(pickle.Pickler):
    def persistent_id(self, item: Any) -> Any:
        """What stands for a storage: its type, its record, and how many numbers it has."""
        if not isinstance(item, _Storage):
            return None
        return "storage", _storage_class(item.info.dtype), item.key, "cpu", item.info.size


def _storage_class(dtype: str) -> Any:
    """The class that stands for a type of numbers, `torch.FloatStorage`; it is named, never made."""
    import torch
    from torch.storage import _dtype_to_storage_type_map

    from mapper.sources.storage import torch_dtype

    name = _dtype_to_storage_type_map().get(torch_dtype(dtype, ""))
    return getattr(torch, name) if name else torch.UntypedStorage


def write_torch(path: Path, tensors: Mapping[str, TensorInfo], origins: Origins, around: TorchTable) -> None:
    """Write the file: a table of the tensors, or one that holds it and what is beside."""
    keys = {name: str(at) for at, name in enumerate(tensors)}
    table: dict[str, Any] = {name: _Tensor(keys[name], info) for name, info in tensors.items()}
    whole = {around.inside: table, **around.beside} if around.inside else table
    with new_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, data in (("data.pkl", _pickled(whole)), ("byteorder", b"little")):
            archive.writestr(_record(file.tell(), name, len(data)), data)
        for name, info in tensors.items():
            size = int(info.size * DTYPE_BYTES[info.dtype])
            record = _record(file.tell(), f"data/{keys[name]}", size)
            with archive.open(record, "w", force_zip64=is_large(size)) as out:
                for piece in origins.pieces(name, info):
                    out.write(piece)
        archive.writestr(_record(file.tell(), "version", 2), b"3\n")


def _pickled(whole: Any) -> bytes:
    out = io.BytesIO()
    _Pickler(out, _PROTOCOL).dump(whole)
    return out.getvalue()


def _record(position: int, name: str, size: int) -> zipfile.ZipInfo:
    """An entry whose bytes start a line."""
    return padded_record(position, f"{FOLDER}/{name}", size, 0)
