"""Weights in 8-bit floats beside their scales: as the plain weights that they stand for.

A scale is of the whole map, of each row, or of each block of it; the weight is the product. So stored are DeepSeek-V3
(its repository's `weight_dequant`), and what compressed-tensors and fbgemm write.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from mapper.checkpoint import DTYPE_BYTES, Checkpoint, TensorInfo
from mapper.errors import FormatError, listed, shorten

if TYPE_CHECKING:
    import torch

SMALL = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
SCALES = ("_scale_inv", "_scale")  # after a weight's name; the first is a factor too, whatever its name says
INPUTS = ("input_scale", "activation_scale")  # of what a map is given: rounding that plain maps leave out
BLOCK = 128  # rows and columns, where the config does not say
USUAL = "BF16"
QUANTISATION = "quantization_config"


class Scaled(NamedTuple):
    """A weight, its scale, and the shape of the blocks that have one scale each."""

    weight: str
    scale: str
    block: tuple[int, ...]


def unscaled(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with plain weights, its scales out of sight; itself where it has none of these."""
    found = {part.weight: part for part in _scaled(checkpoint)}
    if not found:
        return checkpoint
    gone = {part.scale for part in found.values()}
    rounded = [name for name in checkpoint.tensors if name.rpartition(".")[2] in INPUTS]
    dtype = _usual(checkpoint, gone)
    tensors = {
        name: TensorInfo(info.shape, dtype) if name in found else info
        for name, info in checkpoint.tensors.items()
        if name not in gone and name not in rounded
    }
    kinds = ", ".join(sorted({checkpoint.tensors[name].dtype for name in found}))
    notes = [*checkpoint.notes, f"{len(found)} weights of {kinds} are multiplied by their scales, to {dtype}"]
    if rounded:
        notes.append(f"inputs are not rounded to 8 bits; not read: {listed(rounded)}")
    config = checkpoint.config
    if config is not None and not any(info.dtype in SMALL for info in tensors.values()):
        config = {key: value for key, value in config.items() if key != QUANTISATION}
    packed = {**checkpoint.packed, **{name: _stored(checkpoint, part) for name, part in found.items()}}
    plain = replace(checkpoint, tensors=tensors, notes=notes, config=config, packed=packed)
    if checkpoint.read is not None:
        plain.read = lambda names: _read(checkpoint, found, dtype, names)
    return plain


def _scaled(checkpoint: Checkpoint) -> Iterable[Scaled]:
    for name, info in checkpoint.tensors.items():
        if info.dtype not in SMALL or len(info.shape) < 2:
            continue
        scale = next((name + word for word in SCALES if name + word in checkpoint.tensors), None)
        if scale is not None:
            yield Scaled(name, scale, _block(checkpoint, name, scale))


def _stored(checkpoint: Checkpoint, part: Scaled) -> tuple[str, int]:
    """The type of a weight in the file, and its bytes with those of its scale."""
    weight, scale = checkpoint.tensors[part.weight], checkpoint.tensors[part.scale]
    sizes = (info.size * DTYPE_BYTES[info.dtype] for info in (weight, scale))
    return weight.dtype, int(sum(sizes))


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
    said = (config or {}).get(QUANTISATION)
    block = said.get("weight_block_size") if isinstance(said, dict) else None
    good = (
        isinstance(block, list) and len(block) == 2 and all(type(size) is int and size > 0 for size in block)
    )
    return (block[0], block[1]) if good and block is not None else None


def _usual(checkpoint: Checkpoint, scales: set[str]) -> str:
    """The type of the checkpoint's other floats."""
    others = Counter(
        info.dtype
        for name, info in checkpoint.tensors.items()
        if name not in scales
        and name.rpartition(".")[2] not in INPUTS
        and info.dtype in ("F32", "F16", "BF16")
    )
    return others.most_common(1)[0][0] if others else USUAL


def _read(
    checkpoint: Checkpoint, found: dict[str, Scaled], dtype: str, names: Iterable[str]
) -> dict[str, torch.Tensor]:
    """The named tensors: one scaled weight after the other, so that no two are held in 32 bits."""
    from mapper.sources.storage import torch_dtype

    assert checkpoint.read is not None
    wanted = list(names)
    read = checkpoint.read([name for name in wanted if name not in found])
    for name in wanted:
        if name in found:
            part = found[name]
            stored = checkpoint.read([part.weight, part.scale])
            read[name] = product(stored[part.weight], stored[part.scale], part.block).to(
                torch_dtype(dtype, name)
            )
    return {name: read[name] for name in wanted}


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
