"""The number types of GGML, which GGUF files store tensors in: their sizes, and the numbers that their bytes stand for.

Types in blocks are dequantised by the `gguf` package, an optional dependency: to 32-bit floats, as its authors do.
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from mapper.errors import FormatError, SourceError, shorten

if TYPE_CHECKING:
    import torch


class Type(NamedTuple):
    """One type: `block` numbers take `bytes`. `dtype` is the safetensors name of plain numbers, "" for blocks."""

    name: str
    block: int
    bytes: int
    dtype: str = ""


TYPES = {
    0: Type("F32", 1, 4, "F32"), 1: Type("F16", 1, 2, "F16"), 2: Type("Q4_0", 32, 18), 3: Type("Q4_1", 32, 20),
    6: Type("Q5_0", 32, 22), 7: Type("Q5_1", 32, 24), 8: Type("Q8_0", 32, 34), 10: Type("Q2_K", 256, 84),
    11: Type("Q3_K", 256, 110), 12: Type("Q4_K", 256, 144), 13: Type("Q5_K", 256, 176), 14: Type("Q6_K", 256, 210),
    16: Type("IQ2_XXS", 256, 66), 17: Type("IQ2_XS", 256, 74), 18: Type("IQ3_XXS", 256, 98), 19: Type("IQ1_S", 256, 50),
    20: Type("IQ4_NL", 32, 18), 21: Type("IQ3_S", 256, 110), 22: Type("IQ2_S", 256, 82), 23: Type("IQ4_XS", 256, 136),
    24: Type("I8", 1, 1, "I8"), 25: Type("I16", 1, 2, "I16"), 26: Type("I32", 1, 4, "I32"), 27: Type("I64", 1, 8, "I64"),
    28: Type("F64", 1, 8, "F64"), 29: Type("IQ1_M", 256, 56), 30: Type("BF16", 1, 2, "BF16"), 34: Type("TQ1_0", 256, 54),
    35: Type("TQ2_0", 256, 66), 39: Type("MXFP4", 32, 17),
}  # fmt: skip
ROW = 1_024  # blocks dequantised in one step, of which the package makes sixteen at a time
PACKAGE = "checkpoint-mapper[gguf]"


class Stored(NamedTuple):
    """A tensor as the file has it: of `kind`, from byte `start`; `shape` with the outermost dimension first."""

    name: str
    shape: tuple[int, ...]
    kind: Type
    start: int

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) // self.kind.block * self.kind.bytes

    def part(self, number: int) -> Stored:
        """One of the tensors that are stacked in this one."""
        one = self._replace(shape=self.shape[1:])
        return one._replace(start=self.start + number * one.size)


def lacking(kinds: Iterable[str]) -> str:
    """What is to be installed before tensors of these types can be read; "" where nothing is."""
    blocks = {kind.name for kind in TYPES.values() if not kind.dtype}.intersection(kinds)
    if not blocks or is_installed():
        return ""
    kept = ", ".join(sorted(blocks))
    return f"the weights cannot be read here: the package gguf, which unpacks {kept}, is not installed; pip install '{PACKAGE}'"


def is_installed() -> bool:
    """Whether the package that dequantises is there; it is not imported."""
    return importlib.util.find_spec("gguf") is not None


def type_of(number: int, key: str, name: str) -> Type:
    """The type with this number in files."""
    if number not in TYPES:
        known = ", ".join(kind.name for kind in TYPES.values())
        raise FormatError(
            f"{name}: tensor {shorten(key)} has the type {number} of GGML, known are {known}", tensors=[key]
        )
    return TYPES[number]


def is_float(kind: Type) -> bool:
    return kind.dtype[:1] != "I"


def numbers(stored: Stored, data: memoryview, name: str, dtype: str) -> torch.Tensor:
    """The tensor as `dtype`; blocks become F32. `data` is the whole file."""
    import torch

    piece = data[stored.start : stored.start + stored.size]
    if stored.kind.dtype:
        from mapper.sources.storage import torch_dtype

        own, given = torch_dtype(stored.kind.dtype, stored.name), torch_dtype(dtype, stored.name)
        plain = torch.frombuffer(bytearray(piece), dtype=own) if piece else torch.empty(0, dtype=own)
        return plain.view(stored.shape).to(given)
    return torch.from_numpy(_unpacked(stored, piece, name)).view(stored.shape)


def _unpacked(stored: Stored, piece: memoryview, name: str) -> Any:
    import numpy as np

    try:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError as error:
        raise SourceError(
            f"{name}: {shorten(stored.name)} is of {stored.kind.name}, which the package gguf unpacks; "
            f"pip install '{PACKAGE}'"
        ) from error
    try:
        found, kind, at = (
            np.empty(math.prod(stored.shape), np.float32),
            GGMLQuantizationType[stored.kind.name],
            0,
        )
        with np.errstate(all="ignore"):  # a scale may be no number, as in any file of floats
            for rows in _rows(np.frombuffer(piece, np.uint8), stored.kind.bytes):
                some = dequantize(rows, kind).reshape(-1)
                found[at : at + some.size] = some
                at += some.size
    except (KeyError, NotImplementedError) as error:
        raise SourceError(
            f"{name}: {shorten(stored.name)} is of {stored.kind.name}, which the installed gguf does not unpack; "
            f"pip install -U '{PACKAGE}'"
        ) from error
    return found


def _rows(data: Any, size: int) -> list[Any]:
    """The blocks of `size` bytes in long rows, and what is left in a short one: the package takes 16 rows at a time."""
    whole, step = len(data) // (size * ROW) * size * ROW, 16 * size * ROW
    rows = [data[start : min(start + step, whole)].reshape(-1, size * ROW) for start in range(0, whole, step)]
    return [*rows, data[whole:].reshape(1, -1)] if whole < len(data) else rows
