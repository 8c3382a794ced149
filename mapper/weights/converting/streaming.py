"""`convert`: the tensors of any source as safetensors or npz, a tensor at a time, all of it or nothing.

Bytes that stand in a local file as they are to stand in the new one are copied by the system, file to file, without torch;
others are read, one tensor after the other. Extra memory: one tensor, and pieces of `PIECE` bytes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper import limits
from mapper._dtype import CASTABLE, dtype_word, with_dtype
from mapper._progress import Transfer, showing
from mapper._units import in_bytes
from mapper.checkpoint import DTYPE_BYTES, Checkpoint, TensorInfo
from mapper.errors import FormatError, MapperError, SourceError, shorten
from mapper.outputs.files import whole_file, whole_folder
from mapper.outputs.flushed import new_file
from mapper.outputs.written import (
    CONFIG,
    INDEX,
    RECORD,
    STEM,
    Replacing,
    as_record,
    carry,
    check_place,
    config_text,
    digest_of_weights,
    digests,
)
from mapper.sources import FILE_SUFFIXES, open_source
from mapper.sources.companions import none
from mapper.sources.directory import ADAPTER
from mapper.weights.converting.archives import check_array, write_arrays
from mapper.weights.converting.origins import Origins
from mapper.weights.converting.torch_files import TorchTable, write_torch
from mapper.weights.saving.headers import LINE, Entry, header
from mapper.words import close_to

if TYPE_CHECKING:
    from torch import nn

SAFETENSORS, NPZ = ".safetensors", ".npz"
TORCH = (".pth", ".pt", ".bin", ".ckpt")
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
    """What `convert` wrote: the files by their names, how many tensors and bytes of them, and what else to know.

    `carried` are files of the tokenizer and the like, copied as they were.
    """

    path: str
    files: list[str]
    tensors: int
    size: int
    notes: list[str] = field(default_factory=list)
    carried: list[str] = field(default_factory=list)


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
    follow_links: bool = False,
) -> Conversion:
    """Write the tensors of any source to `out`: a .safetensors or .npz file, or a folder with model.safetensors and config.json.

    `shard_size`, bytes or a text such as "5GB", splits a folder's weights into files of at most that, with an index as
    the hub has it. `dtype`, torch's or its name, casts floats of 16 bits and more, and the config says so; a value that
    overflows is an error. A folder gets the files of the tokenizer and the like too. Raises SourceError for what has no
    weights, FileExistsError where something stands at `out` unless `overwrite`, and where that would change what
    mapper did not write.

        mapper.convert("pytorch_model.bin", "model.safetensors")
    """
    place = os.fspath(out)
    suffix = suffix_of(place)
    largest, word = shard_bytes(shard_size, place, suffix), None if dtype is None else dtype_word(dtype)
    check_place(place, None if suffix else (), overwrite=overwrite)
    checkpoint, notes = opened(source, revision, follow_links)
    if suffix and (checkpoint.config, checkpoint.adapter) != (None, None):
        what = "the config is" if checkpoint.adapter is None else "the settings of the adapter are"
        notes.append(f"{what} not in a file of tensors; name a folder to have it beside them")
    if word is not None and checkpoint.config is not None:
        checkpoint = replace(checkpoint, config=with_dtype(checkpoint.config, word))
    texts = {
        name: config_text(settings)
        for name, settings in ((CONFIG, checkpoint.config), (ADAPTER, checkpoint.adapter))
        if settings is not None
    }
    done = Conversion(place, [], 0, 0, notes)
    return write_all_of(done, checkpoint, _cast(checkpoint.tensors, word), texts, largest, overwrite)


def write_all_of(
    done: Conversion,
    checkpoint: Checkpoint,
    tensors: Mapping[str, TensorInfo],
    texts: Mapping[str, str],
    largest: int | None,
    overwrite: bool,
    torch_table: TorchTable | None = None,
) -> Conversion:
    """Write the tensors, as these infos say, where `done` says; a folder gets `texts` too: file -> what it says.

    `torch_table` is for a torch file: which table of it has the tensors, and what stands beside them.
    """
    suffix = suffix_of(done.path, TORCH if torch_table else ())
    check = check_array if suffix == NPZ else _check_named
    for name, info in tensors.items():
        check(name, info, checkpoint.source)
    parts = _split(tensors, largest) if not suffix else [_Part(os.path.basename(done.path), _placed(tensors))]
    done.files, done.tensors = [part.name for part in parts], len(tensors)
    done.size = sum(part.size for part in parts)
    check_room(done.path, done.size)
    with Origins(checkpoint) as origins:
        if suffix:
            _write_one(done, parts[0], checkpoint, origins, overwrite, torch_table)
        else:
            _write_folder(done, parts, checkpoint, origins, texts, overwrite)
    return done


def bytes_of(info: TensorInfo) -> int:
    """Bytes of a tensor's numbers."""
    return int(info.size * DTYPE_BYTES[info.dtype])


def suffix_of(place: str, others: Collection[str] = ()) -> str:
    """What is to be written: safetensors, npz, one of `others`, or "" for a folder. Raises MapperError for other containers."""
    suffix = os.path.splitext(place.rstrip("/"))[1].lower()
    if suffix in (SAFETENSORS, NPZ, *others) and not place.endswith("/"):
        return suffix
    if suffix in FILE_SUFFIXES:
        written = ", ".join((SAFETENSORS, NPZ, *others))
        instead = "; mapper rename SRC --to gguf writes one" if suffix == ".gguf" and not others else ""
        raise MapperError(f"{shorten(place)}: written are {written} and folders, not {suffix} files{instead}")
    meant = close_to(suffix, (SAFETENSORS, NPZ, *others)) if not place.endswith("/") else []
    if meant:  # a word that is nearly a container's is no name of a folder
        raise MapperError(
            f"{shorten(place)}: did you mean {meant[0]}? a folder that is called so ends with /"
        )
    return ""


def shard_bytes(given: int | str | None, place: str, suffix: str) -> int | None:
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


def opened(source: Any, revision: str | None, follow_links: bool) -> tuple[Checkpoint, list[str]]:
    """The source with all its names, and notes on what stays behind."""
    checkpoint = open_source(source, purpose="weights", revision=revision, follow_links=follow_links)
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


def _cast(tensors: Mapping[str, TensorInfo], dtype: str | None) -> dict[str, TensorInfo]:
    """The table as it will be. Floats of eight bits stay: without their scales they mean nothing."""
    wanted = next((name for name, word in CASTABLE.items() if word == dtype), None)
    return {
        name: TensorInfo(info.shape, wanted if wanted and info.dtype in CASTABLE else info.dtype)
        for name, info in tensors.items()
    }


def _check_named(name: str, info: TensorInfo, source: str) -> None:
    """Raise MapperError for what a safetensors file cannot hold."""
    if info.dtype in UNNAMED:
        raise MapperError(
            f"{source}: {shorten(name)} is of {info.dtype}, which safetensors has no name for", tensors=[name]
        )
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


def check_room(place: str, needed: int) -> None:
    """Raise SourceError where the disk has no room for so many bytes."""
    folder = os.path.dirname(os.path.realpath(place))
    try:
        free = shutil.disk_usage(folder).free
    except OSError:  # no such folder: said where it is made
        return
    if free < needed:
        raise SourceError(f"{shorten(place)} needs {in_bytes(needed)}, and {in_bytes(free)} are free there")


def _write_one(
    done: Conversion,
    part: _Part,
    checkpoint: Checkpoint,
    origins: Origins,
    overwrite: bool,
    torch_table: TorchTable | None,
) -> None:
    """Write the one file that `done` says."""
    suffix = suffix_of(done.path, TORCH if torch_table else ())
    with _shown(done, origins), whole_file(done.path, overwrite=overwrite) as partial:
        if torch_table and suffix in TORCH:
            write_torch(partial, part.tensors, origins, torch_table)
        elif suffix == NPZ:
            write_arrays(partial, part.tensors, origins)
        else:
            _write_part(partial, part, _header(part, checkpoint), origins)


def _write_folder(
    done: Conversion,
    parts: list[_Part],
    checkpoint: Checkpoint,
    origins: Origins,
    texts: Mapping[str, str],
    overwrite: bool,
) -> None:
    """Write a folder: the weights, the index and the config, and what is carried along; `done` gets their names."""
    companions = checkpoint.companions() if checkpoint.companions else none()
    texts = {**_index(parts), **texts}
    done.files += texts
    done.notes += companions.notes
    own = Replacing(done.files, overwrite=overwrite, texts=texts)
    with _shown(done, origins), whole_folder(done.path, own=own) as folder:
        done.carried, kept = carry(companions, folder, done.path)
        done.notes += kept
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", newline="")
        for part, head in zip(
            parts, _headers(parts, checkpoint, folder, [*texts, *done.carried]), strict=True
        ):
            _write_part(folder / part.name, part, head, origins)


@contextmanager
def _shown(done: Conversion, origins: Origins) -> Iterator[None]:
    progress = Transfer(f"writing {os.path.basename(done.path.rstrip('/'))}", done.size)
    origins.count = progress.add
    with showing(progress.line):
        yield


def _headers(
    parts: list[_Part], checkpoint: Checkpoint, folder: Path, others: Collection[str]
) -> list[bytes]:
    """The headers of all files of weights; in that of the first stands what else is in the folder, and how it was written."""
    later = {part.name: _header(part, checkpoint) for part in parts[1:]}
    record = digests(folder, others) | {
        part.name: digest_of_weights(later[part.name], len(later[part.name]) + part.size)
        for part in parts[1:]
    }
    return [_header(parts[0], checkpoint, {RECORD: as_record(record)}), *later.values()]


def _header(part: _Part, checkpoint: Checkpoint, metadata: Mapping[str, str] | None = None) -> bytes:
    """The header of one safetensors file; it has the tensors in the order of the source."""
    entries = {
        name: Entry(info.dtype, list(info.shape), bytes_of(info))
        for name in checkpoint.tensors
        if (info := part.tensors.get(name)) is not None
    }
    text = header(entries, part.tensors, 0, {**_metadata(checkpoint), "format": "pt", **(metadata or {})})
    if len(text) - 8 > limits.HEADER_BYTES:
        raise MapperError(
            f"{part.name}: the names of {len(entries):,} tensors take {len(text) - 8:,} bytes, and {limits.HEADER_BYTES:,} may "
            "stand in one header; split it with --shard-size"
        )
    return text


def _write_part(path: Path, part: _Part, head: bytes, origins: Origins) -> None:
    with new_file(path, buffering=0) as file:
        file.write(head)
        origins.copy(part.tensors, file)


def _metadata(checkpoint: Checkpoint) -> dict[str, str]:
    """What the source's header says, without mapper's own documents: they describe that file."""
    return {key: text for key, text in checkpoint.metadata.items() if key.partition(".")[0] != "mapper"}


def _index(parts: list[_Part]) -> dict[str, str]:
    """The index of several files, as the hub has it."""
    if len(parts) == 1:
        return {}
    table = {name: part.name for part in parts for name in part.tensors}
    index = {"metadata": {"total_size": sum(part.size for part in parts)}, "weight_map": table}
    return {INDEX: json.dumps(index, indent=2, sort_keys=True) + "\n"}
