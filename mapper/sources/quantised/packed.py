"""Weights of a few bits, several in each integer, beside the scale and the zero of each group of inputs.

The layouts are those that the libraries write which made them: GPTQ (2210.17323; AutoGPTQ and GPTQModel), AWQ
(2306.00978; AutoAWQ's GEMM), compressed-tensors' `pack-quantized` and MLX's affine maps. The config says how many bits;
types and shapes that do not agree with it are left, and so refused by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mapper.checkpoint import Checkpoint
from mapper.errors import FormatError
from mapper.sources.quantised.bits import WORD, unsigned
from mapper.sources.quantised.part import CONFIG, FLOATS, Part, fit, of_same

if TYPE_CHECKING:
    import torch

MLX = "quantization"
WORDS = ("I32", "U32")
INDICES = ("I32", "I64")
BITS = range(2, 9)
# By `checkpoint_format`: what was taken from a zero before it was packed.
FIRST_ZERO = {"gptq": 1, "gptq_v2": 0}
_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # where the eight columns of an integer stand in it
_AWQ_BITS = 4


def _said(checkpoint: Checkpoint, method: str) -> Mapping[str, Any] | None:
    """What the config says of a method, where it is the one that it names."""
    said = (checkpoint.config or {}).get(CONFIG)
    return said if isinstance(said, Mapping) and said.get("quant_method") == method else None


def _stems(checkpoint: Checkpoint, word: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """What stands before a last word of tensors of packed integers, and their shape."""
    for name, info in checkpoint.tensors.items():
        if name.endswith(word) and info.dtype in WORDS and len(info.shape) == 2 and 0 not in info.shape:
            yield name.removesuffix(word), info.shape


def _filled(count: int, bits: int) -> int:
    """How many numbers of `bits` bits fill so many integers; 0 where they leave a part of the last one."""
    return 0 if count * WORD % bits else count * WORD // bits


def _count(checkpoint: Checkpoint, name: str, axis: int) -> int:
    """An extent of a tensor of two axes; 0 for another."""
    shape = checkpoint.tensors[name].shape
    return shape[axis] if len(shape) == 2 else 0


# --------------------------------------------------------------------------------------------------------------- GPTQ
def by_rows(checkpoint: Checkpoint) -> Iterator[Part]:
    """GPTQ: integers hold inputs one after the other, (inputs * bits / 32, outputs), and zeros of outputs."""
    said = _said(checkpoint, "gptq") or {}
    first, bits = FIRST_ZERO.get(str(said.get("checkpoint_format") or "gptq")), said.get("bits")
    if first is None or type(bits) is not int or bits not in BITS:
        return
    for stem, (rows, outputs) in _stems(checkpoint, "qweight"):
        stored = of_same(checkpoint, stem, ("qweight", "qzeros", "scales"))
        if stored is None:
            continue
        inputs, count = _filled(rows, bits), _count(checkpoint, stored[2], 0)
        order = of_same(checkpoint, stem, ("g_idx",)) or ()
        if not inputs or not count or _filled(_count(checkpoint, stored[1], 1), bits) != outputs:
            continue
        expected = (stored[1], WORDS, (count, outputs * bits // WORD)), (stored[2], FLOATS, (count, outputs))
        if fit(checkpoint, *expected, *((name, INDICES, (inputs,)) for name in order)):
            how = f"weights of {bits} bits (GPTQ) are unpacked"
            yield Part(stem + "weight", (outputs, inputs), (*stored, *order), _of_rows(bits, first), how)


def _of_rows(bits: int, first: int) -> Callable[..., torch.Tensor]:
    def compute(
        qweight: torch.Tensor, qzeros: torch.Tensor, scales: torch.Tensor, groups: torch.Tensor | None = None
    ) -> torch.Tensor:
        found = unsigned(qweight.T, bits).T
        zeros = (unsigned(qzeros, bits) + first) & (
            2**bits - 1
        )  # a zero of 0 was stored as the largest number
        at = _groups(len(found), len(scales), groups)
        return ((found.float() - zeros.float()[at]) * scales.float()[at]).T

    return compute


def _groups(inputs: int, count: int, groups: torch.Tensor | None) -> torch.Tensor:
    """The group of each input; where nothing says it they are as large as each other."""
    import torch

    if groups is None:
        return torch.arange(inputs) // -(-inputs // count)
    if groups.numel() and not 0 <= int(groups.min()) <= int(groups.max()) < count:
        raise FormatError(f"weights of GPTQ: an input is of group {int(groups.max())}, and there are {count}")
    return groups.long()


# ---------------------------------------------------------------------------------------------------------------- AWQ
def by_columns(checkpoint: Checkpoint) -> Iterator[Part]:
    """AWQ: an integer holds eight outputs of an input, (inputs, outputs / 8)."""
    said = _said(checkpoint, "awq")
    if said is None or str(said.get("version") or "gemm").lower() != "gemm" or said.get("bits") != _AWQ_BITS:
        return
    for stem, (inputs, columns) in _stems(checkpoint, "qweight"):
        stored = of_same(checkpoint, stem, ("qweight", "qzeros", "scales"))
        count = _count(checkpoint, stored[2], 0) if stored else 0
        if stored is None or not count or inputs % count:
            continue
        outputs = _filled(columns, _AWQ_BITS)
        if fit(checkpoint, (stored[1], WORDS, (count, columns)), (stored[2], FLOATS, (count, outputs))):
            how = f"weights of {_AWQ_BITS} bits (AWQ) are unpacked"
            yield Part(stem + "weight", (outputs, inputs), stored, _of_columns, how)


def _of_columns(qweight: torch.Tensor, qzeros: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    found, zeros = (
        unsigned(packed, _AWQ_BITS).unflatten(1, (-1, len(_AWQ_ORDER)))[:, :, list(_AWQ_ORDER)].flatten(1)
        for packed in (qweight, qzeros)
    )
    at = _groups(len(found), len(scales), None)
    return ((found.float() - zeros.float()[at]) * scales.float()[at]).T


# ------------------------------------------------------------------------------------------------- compressed-tensors
def compressed(checkpoint: Checkpoint) -> Iterator[Part]:
    """compressed-tensors: integers hold inputs one after the other, (outputs, inputs * bits / 32), each plus half of all numbers."""
    said = _said(checkpoint, "compressed-tensors")
    bits = None if said is None or said.get("format") != "pack-quantized" else _bits_of_all(said)
    if bits is None:
        return
    for stem, (rows, columns) in _stems(checkpoint, "weight_packed"):
        stored = of_same(checkpoint, stem, ("weight_packed", "weight_scale", "weight_shape"))
        if stored is None or stem + "weight_g_idx" in checkpoint.tensors:  # inputs in another order
            continue
        zeros = of_same(checkpoint, stem, ("weight_zero_point",)) or ()
        shape, scale = (rows, _filled(columns, bits)), checkpoint.tensors[stored[1]].shape
        count = scale[1] if len(scale) == 2 else 1
        expected = [(stored[1], FLOATS, (1,) if scale == (1,) else (rows, count)), (stored[2], INDICES, (2,))]
        expected += [(name, WORDS, (-(-rows * bits // WORD), count)) for name in zeros]
        if count and not shape[1] % count and fit(checkpoint, *expected):
            how = f"weights of {bits} bits (compressed-tensors) are unpacked"
            yield Part(stem + "weight", shape, (*stored, *zeros), _of_outputs(bits, shape), how)


def _bits_of_all(said: Mapping[str, Any]) -> int | None:
    """The bits of all groups of layers; None where they differ, or a number is no whole one."""
    groups = said.get("config_groups")
    listed = groups.values() if isinstance(groups, Mapping) else ()
    weights = [group.get("weights") if isinstance(group, Mapping) else None for group in listed]
    found = [
        each.get("num_bits") if isinstance(each, Mapping) and each.get("type") == "int" else None
        for each in weights
    ]
    bits = found[0] if found and all(each == found[0] for each in found) else None
    return bits if type(bits) is int and bits in (4, 8) else None


def _of_outputs(bits: int, shape: tuple[int, int]) -> Callable[..., torch.Tensor]:
    def compute(
        packed: torch.Tensor, scale: torch.Tensor, said: torch.Tensor, zeros: torch.Tensor | None = None
    ) -> torch.Tensor:
        if tuple(said.tolist()) != shape:
            raise FormatError(
                f"weights of compressed-tensors: {list(said.tolist())} do not fill {list(shape)} places"
            )
        factor = scale.float().reshape(-1, scale.shape[-1])
        at = _groups(shape[1], factor.shape[1], None)
        found = unsigned(packed, bits).float()
        if zeros is None:
            return (found - 2 ** (bits - 1)) * factor[:, at]
        return (found - unsigned(zeros.T, bits).T[: shape[0]].float()[:, at]) * factor[:, at]

    return compute


# ---------------------------------------------------------------------------------------------------------------- MLX
def with_offsets(checkpoint: Checkpoint) -> Iterator[Part]:
    """MLX: integers hold inputs one after the other, (..., outputs, inputs * bits / 32); a number times its scale, plus its offset."""
    said = (checkpoint.config or {}).get(MLX)
    if not isinstance(said, Mapping):
        return
    for name, info in checkpoint.tensors.items():
        stem = name.removesuffix("weight")
        stored = (
            of_same(checkpoint, stem, ("weight", "scales", "biases")) if name.endswith("weight") else None
        )
        if stored is None or info.dtype != "U32" or len(info.shape) < 2:
            continue
        bits, size = _of_module(said, stem.rstrip("."))
        inputs = _filled(info.shape[-1], bits) if bits else 0
        if not inputs or inputs % size:
            continue
        grouped = *info.shape[:-1], inputs // size
        if fit(checkpoint, *((each, FLOATS, grouped) for each in stored[1:])):
            how = f"weights of {bits} bits (MLX) are unpacked"
            yield Part(name, (*info.shape[:-1], inputs), stored, _of_offsets(bits, size), how)


def _of_module(said: Mapping[str, Any], name: str) -> tuple[int, int]:
    """Bits and size of a group of one module: its own where the config has them; (0, 0) where they are none that is read."""
    own = said.get(name)
    own = own if isinstance(own, Mapping) else said
    bits, size = own.get("bits"), own.get("group_size")
    is_good = type(bits) is int and bits in BITS and type(size) is int and size > 0
    return (bits, size) if is_good and own.get("mode", "affine") == "affine" else (0, 0)  # type: ignore[return-value]


def _of_offsets(bits: int, size: int) -> Callable[..., torch.Tensor]:
    def compute(weight: torch.Tensor, scales: torch.Tensor, biases: torch.Tensor) -> torch.Tensor:
        found = unsigned(weight, bits).float().unflatten(-1, (-1, size))
        return (found * scales.float().unsqueeze(-1) + biases.float().unsqueeze(-1)).flatten(-2)

    return compute
