"""Local files and model directories: which files are the checkpoint, and its config."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from mapper import limits
from mapper.checkpoint import Checkpoint
from mapper.errors import FormatError, MissingSourceError, SourceError, listed, shorten
from mapper.sources import safetensors, saved, sharded
from mapper.sources.companions import within
from mapper.sources.documents import read_config
from mapper.sources.files import (
    LATER_SUFFIXES,
    SNIFFED,
    base_name,
    open_regular,
    printable,
    reading,
    refuse_impostor,
    refuse_later,
    stamp,
)
from mapper.sources.joining import joined
from mapper.sources.manifest import GZIP, open_manifest
from mapper.sources.pipeline import PIPELINE, NoWeights, open_members
from mapper.sources.settings import beside, note
from mapper.sources.shards import Shard
from mapper.sources.trees import has_flat, name_as_torch

TORCH_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".th", ".pt2", ".torchscript", ".jit")
ARRAY_SUFFIX = ".npy"
ONNX = "onnx"  # the container of which a graph says how its weights are called
MANIFEST_SUFFIXES = (".json", ".json.gz")
INDEX_SUFFIX = ".index.json"
ADAPTER = "adapter_config.json"
PACKAGE = "package:"  # before a package, of which a file stands behind another colon
ADAPTER_STEM = "adapter_model."  # how the weights that belong to it are called
# The suffixes of each format, and what a file of a whole model is called there, the usual name first.
FORMATS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    ((".safetensors",), ("model.safetensors", "diffusion_pytorch_model.safetensors")),
    (TORCH_SUFFIXES, ("pytorch_model.bin", "diffusion_pytorch_model.bin")),
    ((".msgpack",), ("flax_model.msgpack", "diffusion_flax_model.msgpack")),
    ((".npz",), ("model.npz",)),
    ((".gguf",), ("model.gguf",)),
    ((".onnx",), ("model.onnx",)),
)
WHOLE = tuple(name for _, names in FORMATS for name in names)  # a file of such a name is the whole model
# Files of a training run that stand beside a model and hold no part of it.
BESIDE = (
    "training_args.bin",
    "optimizer.bin",
    "optimizer.pt",
    "scheduler.pt",
    "scaler.pt",
    "rng_state.pth",
    "random_states_0.pkl",
)

_CONTAINERS = "read are safetensors, torch's files, ONNX, GGUF, NumPy's npz and Flax's msgpack"


class Choice(NamedTuple):
    """Which files of a directory are the checkpoint: one, several in order, or an index of them."""

    files: list[str]
    listing: str | None = None  # the index
    note: str | None = None


def choose(names: Iterable[str], source: str, before: str = "") -> Choice:
    """The files among `names` that hold the weights: one format only, safetensors before torch.

    `before` is what stands before a file where a command names it: `folder/`, `owner/name:`.
    """
    present = sorted(
        name
        for name in names
        if "/" not in name and name.isprintable() and not name.startswith(".") and name not in BESIDE
    )
    for suffixes, standards in FORMATS:
        files = [name for name in present if name.endswith(suffixes)]
        indices = [
            name for name in present if name.endswith(tuple(suffix + INDEX_SUFFIX for suffix in suffixes))
        ]
        there = {*files, *indices}
        standard = next((name for name in standards if {name, name + INDEX_SUFFIX} & there), standards[0])
        choice = _choose_one_format(files, indices, standard, source, before)
        if choice is not None:
            return choice
    arrays = [name for name in present if name.endswith(ARRAY_SUFFIX)]  # each is one tensor
    if arrays:
        return Choice(arrays)
    later = [name for name in present if name.lower().endswith(tuple(LATER_SUFFIXES))]
    if later:
        word = next(word for suffix, word in LATER_SUFFIXES.items() if later[0].lower().endswith(suffix))
        raise SourceError(
            f"{source}: its weights, {listed(later)}, are in the format {word}, which is "
            "recognised but not read yet"
        )
    hint = (
        "config.json alone does not say which tensors there are"
        if "config.json" in present
        else "expected model.safetensors"
    )
    usual = ", ".join(suffixes[0] for suffixes, _ in FORMATS[:-1])
    raise NoWeights(
        f"{source}: no weights ({hint}); give a directory with {usual} or {FORMATS[-1][0][0]} files"
    )


def _with_weights(folder: str, names: Iterable[str]) -> list[str]:
    """The folders directly in `folder` that have a file of weights."""
    folders = [name for name in sorted(names)[: limits.PACKAGE_ENTRIES] if not name.startswith(".")]
    return [name for name in folders[: limits.MEMBERS] if _has_weights(os.path.join(folder, name))]


def _has_weights(folder: str) -> bool:
    """Whether it is a folder, no link to one, with a file of weights in it."""
    endings = tuple(suffix for suffixes, _ in FORMATS for suffix in suffixes)
    try:
        return not os.path.islink(folder) and any(name.endswith(endings) for name in os.listdir(folder))
    except OSError:  # a file, or a folder that may not be read
        return False


def _choose_one_format(
    files: list[str], indices: list[str], standard: str, source: str, before: str
) -> Choice | None:
    standard_index = standard + INDEX_SUFFIX
    if standard in files:
        note = f"{standard_index} beside {standard} was not read" if standard_index in indices else None
        return Choice([standard], note=note)
    if standard_index in indices or len(indices) == 1:
        return Choice([], standard_index if standard_index in indices else indices[0])
    if len(files) == 1 and not sharded.numbered(files, source):
        return Choice(files)
    if not files:
        return None
    parts = sharded.numbered(files, source)
    if parts is None:
        raise SourceError(
            f"{source}: {len(files)} weight files and none is called {standard}: {listed(files)}; "
            f"name the one to read, as in {before}{files[0]}"
        )
    return Choice(parts)


def open_directory(path: str | Path, source: str, follow_links: bool = False, part: str = "") -> Checkpoint:
    """The checkpoint in the directory at `path`, with its config.json if it has one.

    A pipeline's is that of all its models, or of the `part` of it.
    """
    names = _listed(path, source)
    if PIPELINE in names:
        sharded.refuse_escape(os.fspath(path), PIPELINE, source, follow_links)
        index = read_config(os.path.join(path, PIPELINE))
        return open_members(
            index, source, part, lambda folder: _open_member(os.fspath(path), folder, source, follow_links)
        )
    document = saved.read_folder_document(path, source)
    if document is not None:
        names = [name for name in names if name != saved.AUX]
    choice = _chosen(path, names, source)
    read = [*choice.files, choice.listing, "config.json", ADAPTER, saved.DOCUMENT, saved.AUX]
    for name in filter(None, read):
        sharded.refuse_escape(os.fspath(path), name, source, follow_links)
    config, notes = config_beside(path, follow_links)
    shards = _shards(path, choice, follow_links)
    if document is not None and os.path.lexists(os.path.join(path, saved.AUX)):
        shards.append(open_shard(os.path.join(path, saved.AUX)))
    checkpoint = joined(shards, source, config, [*([choice.note] if choice.note else []), *notes], document)
    checkpoint.companions = partial(within, os.fspath(path), source, follow_links)
    if config is None or any(name.startswith(ADAPTER_STEM) for name in choice.files):
        checkpoint.adapter = _adapter_config(path)
    return checkpoint


def _listed(path: str | Path, source: str) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        raise MissingSourceError(f"{source}: no such directory; check the path") from None
    except OSError as error:
        raise SourceError(f"{source}: the directory cannot be read: {str(error.strerror).lower()}") from error


def _chosen(path: str | Path, names: list[str], source: str) -> Choice:
    """The weights among the files of a directory. Raises NoWeights, which names the folders of it that have some."""
    try:
        return choose(names, source, source + (":" if source.startswith(PACKAGE) else "/"))
    except NoWeights as error:
        if within_it := _with_weights(os.fspath(path), names):
            raise NoWeights(
                f"{source}: no weights, but folders of it have some: {listed(within_it)}; name one, as in {source}/{within_it[0]}"
            ) from error
        raise


def _shards(path: str | Path, choice: Choice, follow_links: bool) -> list[Shard]:
    """What each chosen file holds, or each that an index names."""
    if choice.listing is not None:
        return sharded.open_index(os.path.join(path, choice.listing), open_shard, follow_links)
    opened = [open_shard(os.path.join(path, name)) for name in choice.files]
    return [part for shard in opened for part in with_beside(shard, follow_links)]


def directory_name(path: str | Path) -> str:
    """What a directory is called in reports: its base name, or the hub id where it is a cached snapshot."""
    full = Path(os.path.abspath(path))
    repo = full.parent.parent.name
    if full.parent.name == "snapshots" and repo.startswith("models--"):
        return printable(repo.removeprefix("models--").replace("--", "/"))
    return printable(full.name) or "/"


def sibling_config(directory: str | Path) -> dict[str, Any] | None:
    """The config.json in `directory`, or None where there is none."""
    path = os.path.join(directory, "config.json")
    return read_config(path) if os.path.lexists(path) else None


def config_beside(
    directory: str | Path, follow_links: bool = False
) -> tuple[dict[str, Any] | None, list[str]]:
    """The config of the model in `directory`, or the settings that another library has for it; and a note on these."""
    config = sibling_config(directory)
    if config is not None:
        return config, []
    said = beside(directory, follow_links)
    return (said.config, [note(said)]) if said else (None, [])


def _open_member(path: str, folder: str, source: str, follow_links: bool) -> Checkpoint:
    """The model in one folder of a pipeline."""
    inner = os.path.join(path, folder)
    if not os.path.isdir(inner):
        raise NoWeights(f"{source}: no folder {shorten(folder)} in it; download it")
    sharded.refuse_escape(path, folder, source, follow_links)
    return open_directory(inner, f"{source}/{folder}", follow_links)


def _adapter_config(directory: str | Path) -> dict[str, Any] | None:
    """The adapter_config.json in `directory`, or None where there is none."""
    path = os.path.join(directory, ADAPTER)
    return read_config(path) if os.path.lexists(path) else None


def open_file(path: str | Path, follow_links: bool = False) -> Checkpoint:
    """The checkpoint in one file: weights with the config.json beside them, an index, or a manifest."""
    name, folder = base_name(path), os.path.dirname(os.path.abspath(path))
    if not name.endswith(INDEX_SUFFIX) and (name.endswith(MANIFEST_SUFFIXES) or _looks_like_json(path)):
        return open_manifest(path)
    shards = (
        sharded.open_index(path, open_shard, follow_links)
        if name.endswith(INDEX_SUFFIX)
        else _with_others(open_shard(path), follow_links)
    )
    config, notes = config_beside(folder, follow_links)
    checkpoint = joined(shards, name, config, notes)
    if config is not None:  # else nothing says that the folder is the model's
        checkpoint.companions = partial(within, folder, name, follow_links)
    if name.startswith(ADAPTER_STEM):
        checkpoint.adapter = _adapter_config(folder)
    if len(shards) == 1:
        say_which_shard(checkpoint, os.path.basename(path), os.listdir(folder))
    return checkpoint


def say_which_shard(checkpoint: Checkpoint, name: str, beside: Collection[str]) -> None:
    """Note that a file is one of several that are a checkpoint together, and which of them stand `beside` it."""
    found = sharded.position(name)
    if found is None or len(found[1]) == 1:
        return
    number, parts = found
    absent = [part for part in parts if part not in beside]
    remedy = (
        f"beside it {listed(absent, 3)} {'is' if len(absent) == 1 else 'are'} missing"
        if absent
        else "the others stand beside it: give the whole"
    )
    checkpoint.what = f"shard {number} of {len(parts)}"
    checkpoint.lacking = f"the file is {checkpoint.what} of a checkpoint; {remedy}"


def _looks_like_json(path: str | Path) -> bool:
    file, _ = open_regular(path)
    with file, reading(base_name(path)):
        start = file.read(SNIFFED)
    return start.startswith(GZIP) or (start.lstrip()[:1] == b"{" and not safetensors.has_header(start))


def open_shard(path: str | Path) -> Shard:
    """The table of one weight file."""
    name = base_name(path)
    file, size = open_regular(path)
    with file, reading(name):
        return read_table(file, size, name).opened(os.fspath(path), stamp(file))


def _with_others(shard: Shard, follow_links: bool) -> list[Shard]:
    """One weight file with what it says belongs to it: the other parts of a GGUF file, files with tensors of it."""
    if shard.contents is None:
        return with_beside(shard, follow_links)
    from mapper.sources.gguf import is_part

    if not is_part(shard):
        return with_beside(shard, follow_links)
    folder, own = os.path.split(os.path.abspath(str(shard.path)))
    prefix, suffix = own.rpartition("-of-")[0].rpartition("-")[0], os.path.splitext(own)[1]
    names = [name for name in os.listdir(folder) if name.startswith(f"{prefix}-") and name.endswith(suffix)]
    parts = sharded.numbered(sorted(names)) or []
    if own not in parts:
        raise SourceError(
            f"{shard.name}: a part of a model, and its name is not one of parts (x-00001-of-00003); give the folder"
        )
    for name in parts:
        if name != own:  # which the user named
            sharded.refuse_escape(folder, name, shard.name, follow_links)
    return [open_shard(os.path.join(folder, name)) for name in parts]


def with_beside(shard: Shard, follow_links: bool = False) -> list[Shard]:
    """A weight file and those beside it that hold tensors of it."""
    if shard.container != ONNX:
        return [shard]
    from mapper.graphs.recovery.naming import read_graph

    shards = _with_beside(shard, follow_links)
    read_graph(shards, follow_links)
    return shards


def _with_beside(shard: Shard, follow_links: bool) -> list[Shard]:
    from mapper.sources.onnx import beside

    assert shard.path is not None
    folder, shards = os.path.dirname(os.path.abspath(shard.path)), [shard]
    for location in shard.beside:
        sharded.refuse_outside(folder, location, shard.name, follow_links)
        path = os.path.join(folder, location)
        file, size = open_regular(path)
        with file:
            other = beside(shard, location, size)
            other.stamp = stamp(file)
        other.path = path
        shards.append(other)
    return shards


def read_table(file: BinaryIO, size: int, name: str, *, offsets: bool = True) -> Shard:
    """The table of an open weight file, by its first bytes. Without `offsets` it cannot be read from."""
    shard = _read_table(file, size, name, offsets=offsets)
    if has_flat(shard):
        name_as_torch(shard)
    return shard


def _read_table(file: BinaryIO, size: int, name: str, *, offsets: bool) -> Shard:
    start = file.read(SNIFFED)
    file.seek(0)
    refuse_impostor(start, size, name)
    if name.endswith(".safetensors") and safetensors.has_header(
        start
    ):  # most are: the other readers stay unread
        return safetensors.read_header(file, size, name)
    from mapper.sources import flax, gguf, npy, npz, onnx, pickled_arrays, torch_legacy, torch_zip, zips

    if zips.is_zip(start):
        archive, records = zips.open_records(file, name)
        if npz.is_npz(records, name):
            return npz.read_header(file, records, size, name)
        return torch_zip.read_header(file, archive, size, name, offsets=offsets)
    if start.startswith(gguf.MAGIC):
        return gguf.read_header(file, size, name)
    if start.startswith(npy.MAGIC):
        return npy.read_file(file, size, name)
    if torch_legacy.is_legacy(start):
        return torch_legacy.read_header(file, size, name, offsets=offsets)
    if name.lower().endswith(flax.SUFFIX):
        return flax.read_header(file, size, name)
    if name.lower().endswith(onnx.SUFFIX):
        return onnx.read_header(file, size, name)
    if name.endswith(".safetensors") or safetensors.has_header(start):
        return safetensors.read_header(file, size, name)
    refuse_later(start, name)
    if start.startswith(pickled_arrays.MAGIC):
        return pickled_arrays.read_header(file, size, name)
    seen = shorten(start[:8].decode("latin-1"))
    raise FormatError(f"{name}: no known container of weights; it starts with {seen}; {_CONTAINERS}")
