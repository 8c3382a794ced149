"""Weights of a few bits, several in each integer, beside the scale and the zero of each group of inputs.

The layouts are those that the libraries write which made them: GPTQ (2210.17323; AutoGPTQ and GPTQModel), AWQ
(2306.00978; AutoAWQ's GEMM), compressed-tensors' `pack-quantized` and MLX's affine maps. Numbers of bits follow from
shapes, and must be what the config says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mapper.checkpoint import Checkpoint
from mapper.errors import FormatError
from mapper.sources.quantised.bits import WORD, unsigned
from mapper.sources.quantised.part import Part, of_same

if TYPE_CHECKING:
    import torch

CONFIG = "quantization_config"
MLX = "quantization"
WORDS = ("I32", "U32")
BITS = range(2, 9)
FIRST_ZERO = {
    "gptq": 1,
    "gptq_v2": 0,
}  # by `checkpoint_format`: what was taken from a zero before it was packed
_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # where the eight columns of an integer stand in it
_AWQ_BITS = 4


def _said(checkpoint: Checkpoint, method: str) -> Mapping[str, Any] | None:
    """What the config says of a method, where it is the one that it names."""
    said = (checkpoint.config or {}).get(CONFIG)
    return said if isinstance(said, Mapping) and said.get("quant_method") == method else None


def _stems(checkpoint: Checkpoint, word: str) -> Iterator[str]:
    """What stands before a last word of tensors of packed integers."""
    for name, info in checkpoint.tensors.items():
        if name.endswith(word) and info.dtype in WORDS and len(info.shape) == 2:
            yield name.removesuffix(word)


# --------------------------------------------------------------------------------------------------------------- GPTQ
def by_rows(checkpoint: Checkpoint) -> Iterator[Part]:
    """GPTQ: integers hold inputs one after the other, (inputs * bits / 32, outputs), and zeros of outputs."""
    said = _said(checkpoint, "gptq")
    first = FIRST_ZERO.get(str((said or {}).get("checkpoint_format") or "gptq"))
    if said is None or first is None:
        return
    for stem in _stems(checkpoint, "qweight"):
        stored = of_same(checkpoint, stem, ("qweight", "qzeros", "scales"))
        groups = of_same(checkpoint, stem, ("g_idx",)) or ()
        if stored is None:
            continue
        rows, outputs = checkpoint.tensors[stored[0]].shape
        bits = _bits(checkpoint, stored, outputs)
        if bits is None or bits != said.get("bits"):
            continue
        inputs = rows * WORD // bits
        if groups and checkpoint.tensors[groups[0]].shape != (inputs,):
            continue
        how = f"weights of {bits} bits (GPTQ) are unpacked"
        yield Part(stem + "weight", (outputs, inputs), (*stored, *groups), _of_rows(bits, first), how)


def _bits(checkpoint: Checkpoint, stored: tuple[str, ...], outputs: int) -> int | None:
    """Bits of a number, by how many integers hold the zeros of all outputs; None where shapes do not agree."""
    zeros, scales = (checkpoint.tensors[name].shape for name in stored[1:3])
    if len(zeros) != 2 or scales != (zeros[0], outputs) or not outputs:
        return None
    bits, rest = divmod(zeros[1] * WORD, outputs)
    return bits if not rest and bits in BITS else None


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
    for stem in _stems(checkpoint, "qweight"):
        stored = of_same(checkpoint, stem, ("qweight", "qzeros", "scales"))
        if stored is None:
            continue
        weight, zeros, scales = (checkpoint.tensors[name].shape for name in stored)
        outputs = weight[1] * WORD // _AWQ_BITS
        if scales != (zeros[0], outputs) or zeros != (scales[0], weight[1]) or weight[0] % scales[0]:
            continue
        how = f"weights of {_AWQ_BITS} bits (AWQ) are unpacked"
        yield Part(stem + "weight", (outputs, weight[0]), stored, _of_columns, how)


def _of_columns(qweight: torch.Tensor, qzeros: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    found, zeros = (
        unsigned(packed, _AWQ_BITS).unflatten(1, (-1, len(_AWQ_ORDER)))[:, :, list(_AWQ_ORDER)].flatten(1)
        for packed in (qweight, qzeros)
    )
    at = _groups(len(found), len(scales), None)
    return ((found.float() - zeros.float()[at]) * scales.float()[at]).T


# ------------------------------------------------------------------------------------------------- compressed-tensors
def compressed(checkpoint: Checkpoint) -> Iterator[Part]:
    """compressed-tensors: integers hold inputs one after the other, (outputs, inputs * bits / 32), each number plus half of all."""
    said = _said(checkpoint, "compressed-tensors")
    bits = None if said is None or said.get("format") != "pack-quantized" else _bits_of_all(said)
    if bits is None:
        return
    for stem in _stems(checkpoint, "weight_packed"):
        stored = of_same(checkpoint, stem, ("weight_packed", "weight_scale", "weight_shape"))
        if stored is None or stem + "weight_g_idx" in checkpoint.tensors:  # inputs in another order
            continue
        zeros = of_same(checkpoint, stem, ("weight_zero_point",)) or ()
        rows, columns = checkpoint.tensors[stored[0]].shape
        shape = rows, columns * (WORD // bits)
        how = f"weights of {bits} bits (compressed-tensors) are unpacked"
        yield Part(stem + "weight", shape, (*stored, *zeros), _of_outputs(bits, shape), how)


def _bits_of_all(said: Mapping[str, Any]) -> int | None:
    """The bits of all groups of layers; None where they differ, or a number is no whole one."""
    groups = said.get("config_groups")
    listed = groups.values() if isinstance(groups, Mapping) else ()
    weights = [group.get("weights") if isinstance(group, Mapping) else None for group in listed]
    found = {
        each.get("num_bits") if isinstance(each, Mapping) and each.get("type") == "int" else None
        for each in weights
    }
    bits = found.pop() if len(found) == 1 else None
    return bits if bits in (4, 8) else None


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
    if not isinstance(said, Mapping) or said.get("mode", "affine") != "affine":
        return
    bits, size = said.get("bits"), said.get("group_size")
    if type(bits) is not int or bits not in BITS or type(size) is not int or size < 1:
        return
    for name, info in checkpoint.tensors.items():
        stem = name.removesuffix("weight")
        stored = of_same(checkpoint, stem, ("weight", "scales", "biases"))
        if stored is None or not name.endswith("weight") or info.dtype != "U32" or len(info.shape) < 2:
            continue
        shape = *info.shape[:-1], info.shape[-1] * WORD // bits
        grouped = *info.shape[:-1], shape[-1] // size
        if any(checkpoint.tensors[each].shape != grouped for each in stored[1:]) or shape[-1] % size:
            continue
        yield Part(name, shape, stored, _of_offsets(bits, size), f"weights of {bits} bits (MLX) are unpacked")


def _of_offsets(bits: int, size: int) -> Callable[..., torch.Tensor]:
    def compute(weight: torch.Tensor, scales: torch.Tensor, biases: torch.Tensor) -> torch.Tensor:
        found = unsigned(weight, bits).float().unflatten(-1, (-1, size))
        return (found * scales.float().unsqueeze(-1) + biases.float().unsqueeze(-1)).flatten(-2)

    return compute
