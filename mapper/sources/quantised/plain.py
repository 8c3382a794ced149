"""Checkpoints whose weights are stored in fewer bits, as those of the plain weights that these stand for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from mapper.checkpoint import DTYPE_BYTES, FLOATS, Checkpoint, TensorInfo
from mapper.errors import FormatError, listed, shorten
from mapper.sources.quantised.bitsandbytes import eight_bits, four_bits
from mapper.sources.quantised.packed import by_columns, by_rows, compressed, with_offsets
from mapper.sources.quantised.part import Part
from mapper.sources.quantised.scaled import INPUTS, SMALL, scaled

if TYPE_CHECKING:
    import torch

USUAL = "BF16"
_ORDINARY = frozenset(FLOATS)
_FORMATS = (scaled, by_rows, by_columns, compressed, with_offsets, eight_bits, four_bits)


def plain(checkpoint: Checkpoint, fields: Collection[str]) -> Checkpoint:
    """The checkpoint with plain weights, what they are computed from out of sight; itself where it has nothing of the kind.

    `fields` of the config say that weights are quantised, and are none of the plain model's.
    """
    if {info.dtype for info in checkpoint.tensors.values()} <= _ORDINARY:
        return checkpoint  # each format has a weight of integers or of smaller floats
    parts = {part.name: part for find in _FORMATS for part in find(checkpoint)}
    if not parts:
        return checkpoint
    _refuse_both(checkpoint, parts)
    rounded = [name for name in checkpoint.tensors if name.rpartition(".")[2] in INPUTS]
    gone = {name for part in parts.values() for name in (*part.stored, *part.beside)} | set(rounded)
    dtype = _usual(checkpoint, gone)
    tensors = dict(_tensors(checkpoint, parts, gone, dtype))
    notes = [*checkpoint.notes, *_notes(parts.values(), dtype)]
    if rounded:
        notes.append(f"inputs are not rounded to 8 bits; not read: {listed(rounded)}")
    config = checkpoint.config
    if config is not None and not any(info.dtype in SMALL for info in tensors.values()):
        config = {key: value for key, value in config.items() if key not in fields}
    packed = checkpoint.packed | {name: _stored(checkpoint, part) for name, part in parts.items()}
    found = replace(checkpoint, tensors=tensors, notes=notes, config=config, packed=packed)
    if checkpoint.read is not None:
        found.read = lambda names: _read(checkpoint, parts, dtype, names)
    found.where = lambda name: None if name in parts else checkpoint.where(name)
    found.rows = lambda name: [] if name in parts else checkpoint.rows(name)
    return found


def _refuse_both(checkpoint: Checkpoint, parts: dict[str, Part]) -> None:
    """Raises FormatError where a plain weight stands beside what another is computed from: which one is meant nothing says."""
    for name, part in parts.items():
        if name in checkpoint.tensors and name not in part.stored:
            raise FormatError(
                f"{checkpoint.source}: {shorten(name)} is there twice: plain, and as {shorten(part.stored[0])}"
            )


def _tensors(
    checkpoint: Checkpoint, parts: dict[str, Part], gone: set[str], dtype: str
) -> Iterator[tuple[str, TensorInfo]]:
    """The table, each plain weight where the first of its tensors stood."""
    at = {part.stored[0]: part for part in parts.values()}
    for name, info in checkpoint.tensors.items():
        if name in at:
            yield at[name].name, TensorInfo(at[name].shape, dtype)
        elif name not in gone:
            yield name, info


def _notes(parts: Iterable[Part], dtype: str) -> Iterator[str]:
    for how, count in Counter(part.how for part in parts).items():
        yield f"{count} {how}, to {dtype}"


def _stored(checkpoint: Checkpoint, part: Part) -> tuple[str, int]:
    """The type of a weight in the file, and its bytes with those of all that it is computed from."""
    infos = [checkpoint.tensors[name] for name in (*part.stored, *part.beside)]
    return infos[0].dtype, int(sum(info.size * DTYPE_BYTES[info.dtype] for info in infos))


def _usual(checkpoint: Checkpoint, gone: set[str]) -> str:
    """The type of the checkpoint's other floats."""
    others = Counter(
        info.dtype
        for name, info in checkpoint.tensors.items()
        if name not in gone and info.dtype in ("F32", "F16", "BF16")
    )
    return others.most_common(1)[0][0] if others else USUAL


def _read(
    checkpoint: Checkpoint, parts: dict[str, Part], dtype: str, names: Iterable[str]
) -> dict[str, torch.Tensor]:
    """The named tensors: one plain weight after the other, so that no two are held in 32 bits."""
    from mapper.sources.storage import torch_dtype

    assert checkpoint.read is not None
    wanted = list(names)
    read = checkpoint.read([name for name in wanted if name not in parts])
    for name in wanted:
        if name in parts:
            part = parts[name]
            stored = checkpoint.read([*part.stored, *part.beside])
            weight = part.compute(*(stored[each] for each in (*part.stored, *part.beside)))
            read[name] = weight.to(torch_dtype(dtype, name))
    return {name: read[name] for name in wanted}
