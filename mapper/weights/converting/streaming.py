"""`convert`: the tensors of any source as safetensors or npz, a tensor at a time, all of it or nothing.

Bytes that stand in a local file as they are to stand in the new one are copied by the system, file to file, without torch;
others are read, one tensor after the other. Extra memory: one tensor, and pieces of `PIECE` bytes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper import limits
from mapper._files import whole_file, whole_folder
from mapper._progress import Transfer, showing
from mapper._units import in_bytes
from mapper.checkpoint import DTYPE_BYTES, Checkpoint, TensorInfo
from mapper.errors import FormatError, MapperError, SourceError, shorten
from mapper.sources import FILE_SUFFIXES, open_source
from mapper.weights.converting.archives import check_array, write_arrays
from mapper.weights.converting.origins import Origins
from mapper.weights.saving.headers import LINE, Entry, header

if TYPE_CHECKING:
    from torch import nn

SAFETENSORS, NPZ = ".safetensors", ".npz"
STEM, INDEX, CONFIG = "model", "model.safetensors.index.json", "config.json"
CASTABLE = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
UNNAMED = ("C128", "C32")  # types that safetensors has no name for
UNITS = {
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}


@dataclass
class Conversion:
    """What `convert` wrote: the files by their names, how many tensors and bytes of them, and what else to know."""

    path: str
    files: list[str]
    tensors: int
    size: int
    notes: list[str] = field(default_factory=list)


@dataclass
class _Part:
    """One file that is to be written: its tensors in the order in which their bytes will lie."""

    name: str
    tensors: dict[str, TensorInfo]

    @property
    def size(self) -> int:
        return sum(bytes_of(info) for info in self.tensors.values())


def convert(
    source: str | Path | Mapping[str, Any] | nn.Module,
    out: str | os.PathLike[str],
    *,
    dtype: Any = None,
    shard_size: int | str | None = None,
    overwrite: bool = False,
    revision: str | None = None,
) -> Conversion:
    """Write the tensors of any source to `out`: a .safetensors or .npz file, or a folder with model.safetensors and config.json.

    `shard_size`, bytes or a text such as "5GB", splits a folder's weights into files of at most that, with an index as
    the hub has it. `dtype` casts floats of 16 bits and more; a value that overflows is an error. Raises SourceError for
    what has no weights, FileExistsError where something stands at `out` unless `overwrite`.

        mapper.convert("pytorch_model.bin", "model.safetensors")
    """
    place = os.fspath(out)
    suffix = _suffix(place)
    largest = _shard_bytes(shard_size, place, suffix)
    checkpoint, notes = _opened(source, revision)
    tensors = _cast(checkpoint.tensors, _dtype_name(dtype))
    check = check_array if suffix == NPZ else _check_named
    for name, info in tensors.items():
        check(name, info, checkpoint.source)
    parts = _split(tensors, largest) if not suffix else [_Part(os.path.basename(place), _placed(tensors))]
    if suffix and checkpoint.config is not None:
        notes.append("the config is not in a file of tensors; name a folder to have it beside them")
    _check_room(place, sum(part.size for part in parts))
    with Origins(checkpoint) as origins:
        files = _write(place, suffix, parts, checkpoint, origins, overwrite)
    return Conversion(place, files, len(tensors), sum(part.size for part in parts), notes)


def bytes_of(info: TensorInfo) -> int:
    """Bytes of a tensor's numbers."""
    return int(info.size * DTYPE_BYTES[info.dtype])


def _suffix(place: str) -> str:
    """What is to be written: safetensors, npz, or "" for a folder. Raises MapperError for other containers."""
    suffix = os.path.splitext(place.rstrip("/"))[1].lower()
    if suffix in (SAFETENSORS, NPZ) and not place.endswith("/"):
        return suffix
    if suffix in FILE_SUFFIXES:
        raise MapperError(f"{shorten(place)}: written are .safetensors, .npz and folders, not {suffix} files")
    return ""


def _shard_bytes(given: int | str | None, place: str, suffix: str) -> int | None:
    """The most bytes of one file; None for all in one."""
    if given is None:
        return None
    if suffix:
        raise MapperError(
            f"{shorten(place)} is one file, which is not split; name a folder for files of {given}"
        )
    text = str(given).strip().upper().replace(",", "").replace("_", "")
    number = text.rstrip("BIKMGT").strip()
    unit = text[len(number) :].strip() or "B"
    factor = 1 if unit == "B" else UNITS.get(unit)
    try:
        size = int(float(number) * factor) if factor else 0
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise MapperError(f"{given!r} is no size of a file; give bytes, or a number and a unit as in 5GB")
    return size


def _opened(source: Any, revision: str | None) -> tuple[Checkpoint, list[str]]:
    """The source with all its names, and notes on what stays behind."""
    checkpoint = open_source(source, purpose="weights", revision=revision)
    if checkpoint.read is None:
        raise SourceError(
            f"{checkpoint.source} is a manifest without weights; name a checkpoint that has them"
        )
    notes = list(checkpoint.notes)
    if checkpoint.document is not None:
        from mapper.weights.built.as_read import as_read

        if checkpoint.hidden:
            notes.append("what was saved beside the model (aux) stays behind: tensors alone are converted")
        checkpoint, _ = as_read(checkpoint)
    return checkpoint, notes


def _dtype_name(dtype: Any) -> str | None:
    """The safetensors name of a type to cast to, given as torch's or as its name."""
    if dtype is None:
        return None
    word = str(dtype).removeprefix("torch.")
    found = next((name for name, known in CASTABLE.items() if known == word), None)
    if found is None:
        raise MapperError(f"dtype is {shorten(word)}; tensors are cast to {', '.join(CASTABLE.values())}")
    return found


def _cast(tensors: Mapping[str, TensorInfo], dtype: str | None) -> dict[str, TensorInfo]:
    """The table as it will be. Floats of eight bits stay: without their scales they mean nothing."""
    return {
        name: TensorInfo(info.shape, dtype if dtype and info.dtype in CASTABLE else info.dtype)
        for name, info in tensors.items()
    }


def _check_named(name: str, info: TensorInfo, source: str) -> None:
    """Raise MapperError for what a safetensors file cannot hold."""
    if info.dtype in UNNAMED:
        raise MapperError(f"{source}: {shorten(name)} is of {info.dtype}, which safetensors has no name for")
    if name == "__metadata__":
        raise FormatError(
            f"{source}: a tensor is called '__metadata__', which no tensor of safetensors can be"
        )


def _split(tensors: Mapping[str, TensorInfo], largest: int | None) -> list[_Part]:
    """Files in the order of the tensors: each takes as many as fit, and one alone that is too large for any."""
    groups: list[dict[str, TensorInfo]] = [{}]
    used = 0
    for name, info in tensors.items():
        size = bytes_of(info)
        if largest is not None and groups[-1] and used + size > largest:
            groups.append({})
            used = 0
        groups[-1][name] = info
        used += size
    if len(groups) > limits.SHARDS:
        raise MapperError(
            f"{len(groups):,} files of at most {largest:,} bytes, where at most {limits.SHARDS:,} are read"
        )
    if len(groups) == 1:
        return [_Part(STEM + SAFETENSORS, _placed(groups[0]))]
    return [
        _Part(f"{STEM}-{at:05}-of-{len(groups):05}{SAFETENSORS}", _placed(group)) for at, group in enumerate(groups, 1)
    ]  # fmt: skip


def _placed(tensors: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """Whole cache lines first, then wide types: each tensor starts at a multiple of its own width."""

    def rank(item: tuple[str, TensorInfo]) -> tuple[bool, float]:
        return bool(bytes_of(item[1]) % LINE), -DTYPE_BYTES[item[1].dtype]

    return dict(sorted(tensors.items(), key=rank))


def _check_room(place: str, needed: int) -> None:
    """Raise SourceError where the disk has no room for so many bytes."""
    folder = os.path.dirname(os.path.realpath(place))
    try:
        free = shutil.disk_usage(folder).free
    except OSError:  # no such folder: said where it is made
        return
    if free < needed:
        raise SourceError(f"{shorten(place)} needs {in_bytes(needed)}, and {in_bytes(free)} are free there")


def _write(
    place: str, suffix: str, parts: list[_Part], checkpoint: Checkpoint, origins: Origins, overwrite: bool
) -> list[str]:
    """Write all parts; the names of the files, as they stand in a folder or as the one file is called."""
    done = Transfer(f"writing {os.path.basename(place.rstrip('/'))}", sum(part.size for part in parts))
    origins.count = done.add
    with showing(done.line):
        if suffix:
            with whole_file(place, overwrite=overwrite) as partial:
                if suffix == NPZ:
                    write_arrays(partial, parts[0].tensors, origins)
                else:
                    _write_part(partial, parts[0], checkpoint, origins)
            return [os.path.basename(place)]
        with whole_folder(place, own=_own if overwrite else None, overwrite=True) as folder:
            for part in parts:
                _write_part(folder / part.name, part, checkpoint, origins)
            texts = _texts(parts, checkpoint.config)
            for name, text in texts.items():
                (folder / name).write_text(text, encoding="utf-8", newline="")
    return [*(part.name for part in parts), *texts]


def _write_part(path: Path, part: _Part, checkpoint: Checkpoint, origins: Origins) -> None:
    """One safetensors file; its header has the tensors in the order of the source."""
    entries = {
        name: Entry(info.dtype, list(info.shape), bytes_of(info))
        for name in checkpoint.tensors
        if (info := part.tensors.get(name)) is not None
    }
    text = header(entries, part.tensors, 0, {**_metadata(checkpoint), "format": "pt"})
    if len(text) - 8 > limits.HEADER_BYTES:
        raise MapperError(
            f"{part.name}: the names of {len(entries):,} tensors take {len(text) - 8:,} bytes, and {limits.HEADER_BYTES:,} may "
            "stand in one header; split it with --shard-size"
        )
    with open(path, "wb", buffering=0) as file:
        file.write(text)
        origins.copy(part.tensors, file)


def _metadata(checkpoint: Checkpoint) -> dict[str, str]:
    """What the source's header says, without mapper's own documents: they describe that file."""
    return {key: text for key, text in checkpoint.metadata.items() if key.partition(".")[0] != "mapper"}


def _texts(parts: list[_Part], config: dict[str, Any] | None) -> dict[str, str]:
    """The index of several files, as the hub has it, and the config."""
    texts = {}
    if len(parts) > 1:
        table = {name: part.name for part in parts for name in part.tensors}
        index = {"metadata": {"total_size": sum(part.size for part in parts)}, "weight_map": table}
        texts[INDEX] = json.dumps(index, indent=2, sort_keys=True) + "\n"
    if config is not None:
        texts[CONFIG] = json.dumps(config, indent=2) + "\n"
    return texts


def _own(folder: Path) -> Collection[str] | None:
    """The files in a folder that a conversion replaces."""
    names = os.listdir(folder)
    return [
        name
        for name in names
        if name in (INDEX, CONFIG) or (name.startswith(STEM) and name.endswith(SAFETENSORS))
    ]
