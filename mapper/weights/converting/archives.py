"""One .npz archive, written as it streams: what `numpy.savez` writes, and each array's numbers at the start of a cache line.

https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mapper.checkpoint import DTYPE_BYTES, TensorInfo
from mapper.errors import MapperError, shorten
from mapper.outputs.flushed import new_file
from mapper.weights.saving.headers import LINE

if TYPE_CHECKING:
    from mapper.weights.converting.origins import Origins

# bfloat16 as NumPy itself stores it, two bytes without a type; `mapper.sources.npy` reads it back. The floats of eight
# bits are not kept apart so, and are refused.
DESCRIPTIONS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "|V2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1", "C64": "<c8", "C128": "<c16",
}  # fmt: skip
DATE = (1980, 1, 1, 0, 0, 0)  # the same input gives the same bytes
LOCAL_HEADER = 30  # bytes, before the name
PADDING = 0x4642  # the id under which torch pads its records
LARGE = 2**31 - 2**16  # bytes from which on a record's size takes 64 bits
LARGE_FIELD = 20  # bytes of that


def check_array(name: str, info: TensorInfo, source: str) -> None:
    """Raise MapperError for what an archive of NumPy cannot hold."""
    if info.dtype not in DESCRIPTIONS:
        raise MapperError(
            f"{source}: {shorten(name)} is of {info.dtype}, which NumPy has no type for; write safetensors",
            tensors=[name],
        )
    if "\0" in name:
        raise MapperError(
            f"{source}: {shorten(name)} has a zero byte, at which a name in a zip file ends", tensors=[name]
        )


def write_arrays(path: Path, tensors: Mapping[str, TensorInfo], origins: Origins) -> None:
    """Write the archive: a .npy of each tensor, in this order."""
    with new_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, info in tensors.items():
            start = _header(info)
            size = len(start) + int(info.size * DTYPE_BYTES[info.dtype])
            record = padded_record(file.tell(), f"{name}.npy", size, len(start))
            large = is_large(size)
            with archive.open(record, "w", force_zip64=large) as out:
                out.write(start)
                for data in origins.pieces(name, info):
                    out.write(data)


def _header(info: TensorInfo) -> bytes:
    """Magic, version and the description of one array, filled up to whole lines."""
    text = f"{{'descr': '{DESCRIPTIONS[info.dtype]}', 'fortran_order': False, 'shape': {info.shape}, }}"
    before = len(b"\x93NUMPY\x01\x00") + 2
    text += " " * (-(before + len(text) + 1) % LINE) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("latin-1")


def is_large(size: int) -> bool:
    """Whether a record of so many bytes has fields of 64 bits."""
    return size >= LARGE


def padded_record(position: int, name: str, size: int, start: int) -> zipfile.ZipInfo:
    """An entry at `position` after whose first `start` bytes, of `size`, a line begins: the rest of them are its header."""
    record = zipfile.ZipInfo(name, DATE)
    before = position + LOCAL_HEADER + len(name.encode()) + (LARGE_FIELD if is_large(size) else 0) + start
    padding = -(before + 4) % LINE
    record.extra = PADDING.to_bytes(2, "little") + padding.to_bytes(2, "little") + bytes(padding)
    return record
