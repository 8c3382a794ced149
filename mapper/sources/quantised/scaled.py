"""Weights in 8 bits beside their scales.

A scale is of the whole map, of each row, or of each block of it; the weight is the product. So stored are DeepSeek-V3
(its repository's `weight_dequant`), and what compressed-tensors and fbgemm write.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mapper.checkpoint import Checkpoint
from mapper.errors import FormatError, shorten
from mapper.sources.quantised.part import CONFIG, Part

if TYPE_CHECKING:
    import torch

SMALL = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
WHOLE = "I8"
SCALES = ("_scale_inv", "_scale")  # after a weight's name; the first is a factor too, whatever its name says
ZERO = "_zero_point"
INPUTS = ("input_scale", "activation_scale")  # of what a map is given: rounding that plain maps leave out
BLOCK = 128  # rows and columns, where the config does not say


def scaled(checkpoint: Checkpoint) -> Iterator[Part]:
    """Weights that have scales of their names."""
    for name, info in checkpoint.tensors.items():
        if info.dtype not in (*SMALL, WHOLE) or len(info.shape) < 2 or name + ZERO in checkpoint.tensors:
            continue
        scale = next((name + word for word in SCALES if name + word in checkpoint.tensors), None)
        if scale is not None:
            how = f"weights of {info.dtype} are multiplied by their scales"
            yield Part(name, info.shape, (name, scale), _times(_block(checkpoint, name, scale)), how)


def _times(block: tuple[int, ...]) -> Any:
    return lambda weight, scale: product(weight, scale, block)


def _block(checkpoint: Checkpoint, name: str, scale: str) -> tuple[int, ...]:
    """Rows and columns of a block. Raises FormatError where the scale's shape fits none."""
    shape, has = checkpoint.tensors[name].shape, checkpoint.tensors[scale].shape
    if math.prod(has) == 1:
        return shape[-2:]
    if has in (shape[:-1], (*shape[:-1], 1)):
        return 1, shape[-1]
    block = _said(checkpoint.config) or (BLOCK, BLOCK)
    if has == (*shape[:-2], *(-(-extent // size) for extent, size in zip(shape[-2:], block, strict=True))):
        return block
    raise FormatError(
        f"{checkpoint.source}: {shorten(scale)} has the shape {list(has)}, which does not fit {list(shape)} in blocks of "
        f"{list(block)}"
    )


def _said(config: dict[str, Any] | None) -> tuple[int, int] | None:
    """The block's extents as the config has them."""
    said = (config or {}).get(CONFIG)
    block = said.get("weight_block_size") if isinstance(said, dict) else None
    good = (
        isinstance(block, list) and len(block) == 2 and all(type(size) is int and size > 0 for size in block)
    )
    return (block[0], block[1]) if good and block is not None else None


def product(weight: torch.Tensor, scale: torch.Tensor, block: tuple[int, ...]) -> torch.Tensor:
    """The weight (..., rows, columns) in 32 bits, each block of it times its scale."""
    plain, factor = weight.float(), scale.float()
    if factor.numel() == 1:
        return plain * factor.reshape(())
    if factor.dim() < plain.dim():
        factor = factor.unsqueeze(-1)
    rows, columns = block
    factor = factor.repeat_interleave(rows, -2)[..., : plain.shape[-2], :]
    return plain * factor.repeat_interleave(columns, -1)[..., : plain.shape[-1]]
