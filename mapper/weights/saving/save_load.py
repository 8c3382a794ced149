"""`save` and `load`: a model with its architecture; `save_states` and `load_states`: its states alone. Each with `aux`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from mapper._dtype import as_torch
from mapper.checkpoint import Checkpoint
from mapper.errors import FormatError, MapperError, SourceError, StructureUnavailable, listed, shorten
from mapper.outputs.files import standing, whole_file, whole_folder
from mapper.outputs.flushed import new_file
from mapper.outputs.written import CONFIG, Replacing, Saving, carried_before, carry, config_text, digests
from mapper.sources import open_source
from mapper.sources.companions import none
from mapper.sources.saved import (
    AUX,
    DOCUMENT,
    METADATA,
    SOURCE,
    SOURCE_METADATA,
    WEIGHTS,
    config_of,
)
from mapper.weights.built.model import why_not_built
from mapper.weights.loading.casting import overflows
from mapper.weights.loading.flat_table import Source
from mapper.weights.loading.hooks import give_extra_state
from mapper.weights.loading.weights import checked_device, fatal_kinds, load_weights
from mapper.weights.loading.writing import put
from mapper.weights.modules import State, States, joined, states_of
from mapper.weights.saving.beside import aux_of, extra_state_of
from mapper.weights.saving.container import write_tensors
from mapper.weights.saving.document import (
    architecture_of,
    as_text,
    document_of,
    model_of,
    set_modes,
    tensors_of,
)
from mapper.weights.saving.placement import laid_out

SUFFIX = ".safetensors"
_ATTEMPTS = 5  # at a path that another process keeps replacing
T = TypeVar("T")


class Loaded(NamedTuple):
    """What `load` gives."""

    model: nn.Module
    aux: dict[Any, Any]


def save(
    path: str | os.PathLike[str],
    model: nn.Module,
    *,
    aux: Mapping[Any, Any] | None = None,
    overwrite: bool = True,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Save a model: its states, its architecture as data where it has one, and `aux`, all of it or nothing.

    A path that ends in .safetensors is one file, any other a folder. `aux` is a dict of plain values, tensors and
    arrays that comes back exactly; `metadata` a table of JSON values. Raises UnsupportedLeaf before a byte is written,
    FileExistsError for what may not be replaced.

        mapper.save("run/step_100", model, aux={"step": 100, "optimizer": optimizer.state_dict()})
    """
    written = write_model(path, model, aux=aux, overwrite=overwrite, metadata=metadata)
    for note in written.notes:
        warnings.warn(note, UserWarning, stacklevel=2)


class Written(NamedTuple):
    """The names of the files that a folder got, those of a tokenizer and the like, and what else to say."""

    files: list[str]
    carried: list[str]
    notes: list[str]


def write_model(
    path: str | os.PathLike[str],
    model: nn.Module,
    *,
    aux: Mapping[Any, Any] | None = None,
    overwrite: bool = True,
    metadata: Mapping[str, Any] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Written:
    """`save`. Of a model that was built, `checkpoint` is what from: its config and its tokenizer are kept with the model.

    Then a folder is replaced only where mapper wrote all of it that would change.
    """
    place = _path(path, "save(path, model)")
    states = states_of(model)
    tensors = tensors_of(states)
    architecture, source = architecture_of(states.root)
    without = why_not_built(states.root) if architecture is None else ""
    document, kept = document_of(states, tensors, aux, metadata, architecture, without)
    if place.endswith(SUFFIX):
        _write_file(place, tensors | kept, _header(document, metadata, source), overwrite)
        return Written([os.path.basename(place)], [], [])
    texts = _texts(source, config_of(architecture) if checkpoint is None else checkpoint.config)
    names = [WEIGHTS, *([AUX] if kept else []), *texts, DOCUMENT]
    as_text(
        {**document, "files": names}, indent=1
    )  # so that what it cannot hold is said before a byte is written
    own = Saving(names) if checkpoint is None else Replacing(names, overwrite=overwrite, texts=texts)
    find = checkpoint.companions if checkpoint is not None else None
    companions = find() if find is not None else none()
    with whole_folder(place, own=own, overwrite=overwrite or checkpoint is not None) as folder:
        _write(folder / WEIGHTS, tensors, _plain_header(metadata))
        if kept:
            _write(folder / AUX, kept, {})
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", newline="")
        carried, standing = carry(companions, folder, place)
        record = {"files": names, "digests": digests(folder, names[:-1])}
        record["carried"] = digests(folder, carried) if checkpoint is not None else carried_before(place)
        (folder / DOCUMENT).write_text(
            as_text({**document, **record}, indent=1), encoding="utf-8", newline=""
        )
    return Written(names, carried, [*companions.notes, *standing, *own.notes])


def _texts(source: str | None, config: Mapping[str, Any] | None) -> dict[str, str]:
    """The files of a folder that people read, by name."""
    texts = {SOURCE: source} if source is not None else {}
    return texts | ({CONFIG: config_text(config)} if config is not None else {})


def save_states(
    path: str | os.PathLike[str],
    model: nn.Module,
    aux: Mapping[Any, Any] | None = None,
    *,
    overwrite: bool = True,
) -> None:
    """Save the states of a model and `aux` in one file, which any safetensors reader can read.

    mapper.save_states("step_100.safetensors", model, {"optimizer": optimizer.state_dict()})
    """
    place = _path(path, "save_states(path, model)")
    states = states_of(model)
    tensors = tensors_of(states)
    document, kept = document_of(states, tensors, aux)
    _write_file(place, tensors | kept, _header(document, None, None), overwrite)


def load(
    path: str | os.PathLike[str],
    *,
    model: nn.Module | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | str | None = None,
    strict: bool | Collection[str] = True,
) -> Loaded:
    """The model that `save` wrote, and its `aux`. Nothing that is stored is run: the architecture is data.

    Tensors are mapped into memory, not copied, unless `dtype` (of floating states, torch's or its name) or `device`
    asks for others.
    `model` is filled instead, as by `load_weights`, and is needed where a save has no architecture
    (StructureUnavailable); `device` is then for its parameters on meta.

        model, aux = mapper.load("run/step_100")
    """
    if isinstance(dtype, str):
        dtype = as_torch(dtype)
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"dtype is {dtype!r}; it is a floating type of torch, as torch.float16")
    cast = dtype
    fatal_kinds(strict)
    wanted = checked_device(device)

    def made(checkpoint: Checkpoint) -> Loaded:
        aux = aux_of(checkpoint)
        if model is not None:
            load_weights(model, checkpoint, strict=strict, device=wanted)
            return Loaded(model if cast is None else model.to(cast), aux)
        with torch.device("cpu"):  # the caller's default device is not where a file is read to
            return Loaded(_filled(checkpoint, wanted, cast), aux)

    return _from(_path(path, "load(path)"), made)


def load_states(
    path: str | os.PathLike[str],
    model: nn.Module,
    *,
    strict: bool | Collection[str] = True,
    **options: Any,
) -> dict[Any, Any]:
    """Put the states of a file into `model`, as `load_weights` does with the same options, and return the `aux`.

    If it raises, the model is as before. A file of another tool has the aux {}.

        aux = mapper.load_states("step_100.safetensors", model)
    """

    def filled(checkpoint: Checkpoint) -> dict[Any, Any]:
        aux = aux_of(checkpoint)
        load_weights(model, checkpoint, strict=strict, **options)
        return aux

    return _from(_path(path, "load_states(path, model)"), filled)


def _path(path: Any, call: str) -> str:
    """The path as text. Raises TypeError for what is none, ValueError for an empty one."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"a path is a str or os.PathLike, not a {type(path).__name__}; call {call}")
    place = os.fspath(path)
    if not place:
        raise ValueError(f"the path is empty; name a file or a folder in {call}")
    return os.fsdecode(place)


def _header(
    document: dict[str, Any], metadata: Mapping[str, Any] | None, source: str | None
) -> dict[str, str]:
    header = {**_plain_header(metadata), METADATA: as_text(document)}
    return header if source is None else {**header, SOURCE_METADATA: source}


def _plain_header(metadata: Mapping[str, Any] | None) -> dict[str, str]:
    """What readers of the format look for, and what of `metadata` the format has a place for."""
    texts = {key: value for key, value in (metadata or {}).items() if type(value) is str}
    return {"format": "pt", **{key: value for key, value in texts.items() if not key.startswith(METADATA)}}


def _write_file(
    path: str, tensors: Mapping[str, torch.Tensor], header: Mapping[str, str], overwrite: bool
) -> None:
    with whole_file(path, overwrite=overwrite) as partial:
        _write(partial, tensors, header)


def _write(path: Path, tensors: Mapping[str, torch.Tensor], header: Mapping[str, str]) -> None:
    with new_file(path, buffering=0) as file:
        write_tensors(file, tensors, header)


def _from(path: str, take: Callable[[Checkpoint], T]) -> T:
    """What `take` makes of the checkpoint at `path`, from the beginning where another save came between."""
    place = Path(path)
    for _ in range(_ATTEMPTS):
        before = _identity(place)
        try:
            checkpoint = open_source(place, purpose="weights")
            if _identity(place) == before:
                return take(checkpoint)
        except (FormatError, SourceError):
            if _identity(place) == before:
                raise
    raise MapperError(f"{shorten(str(place))} is being written again and again; load it when that is done")


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        status = os.stat(standing(path))
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _filled(checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype | None) -> nn.Module:
    """The model of a save with its states."""
    model = model_of(checkpoint)
    if model is None:
        raise StructureUnavailable(
            f"{checkpoint.source} holds {_instead(checkpoint)}; make the model and pass it: load(path, model=...)"
        )
    assert checkpoint.read is not None
    states = states_of(model)
    real = {state.path: state for state in states.states if state.tensor is not None}
    _check_same(real, checkpoint)
    frozen, placement = frozenset(_names(checkpoint, "frozen", list)), _names(checkpoint, "placement", dict)
    moved = dtype is not None or device.type != "cpu"
    whole = {} if moved else checkpoint.read(real)  # one mapping; cast ones are read and dropped one by one
    for path, state in real.items():
        stored = whole.pop(path) if whole else checkpoint.read([path])[path]
        if not moved:
            stored = laid_out(stored, placement.get(path))
        tensor = _as_asked(stored, device, dtype, path)
        put(state, tensor, path not in frozen and (tensor.is_floating_point() or tensor.is_complex()))
    if device.type != "meta":
        _check_nothing_empty(states, checkpoint.source)
    set_modes(model, checkpoint.document or {}, checkpoint.source)
    give_extra_state(states, Source(extra=extra_state_of(checkpoint)))
    return model


def _instead(checkpoint: Checkpoint) -> str:
    """What a checkpoint without an architecture has."""
    if checkpoint.document is not None:
        why = checkpoint.document.get("without")
        return "states and no architecture" + (
            f" ({shorten(why, 200)[1:-1]})" if isinstance(why, str) else ""
        )
    beside = [Path(path).parent for path in checkpoint.weights[:1] if (Path(path).parent / DOCUMENT).exists()]
    return (
        f"the tensors of a save, whose folder is {beside[0]}"
        if beside
        else "an ONNX model, of which mapper.build makes the module: tensors that mapper did not save"
        if checkpoint.container == "onnx"
        else "tensors that mapper did not save, of which mapper.build may make the model"
    )


def _names(checkpoint: Checkpoint, field: str, kind: type[T]) -> T:
    """A field of the document that may not be there: a list of paths, or a table by path."""
    found = (checkpoint.document or {}).get(field, kind())
    if not isinstance(found, kind) or not all(isinstance(path, str) for path in found):  # type: ignore[attr-defined]
        raise FormatError(f"{checkpoint.source}: {field!r} is {shorten(str(found))}")
    return found


def _check_same(states: Mapping[str, State], checkpoint: Checkpoint) -> None:
    """Raise FormatError unless the architecture has exactly the stored tensors."""
    missing = [path for path in states if path not in checkpoint.tensors]
    extra = [name for name in checkpoint.tensors if name not in states]
    if missing or extra:
        first = f"lacks {listed(missing)}" if missing else f"has {listed(extra)}"
        raise FormatError(
            f"{checkpoint.source}: its tensors and its architecture do not agree: the file {first}"
        )
    for path, state in states.items():
        info, tensor = checkpoint.tensors[path], state.tensor
        if tensor is not None and tuple(tensor.shape) != info.torch_shape:
            raise FormatError(
                f"{checkpoint.source}: {shorten(path)} is {list(info.torch_shape)} and {list(tensor.shape)} in its architecture",
                tensors=[path],
            )


def _as_asked(
    tensor: torch.Tensor, device: torch.device, dtype: torch.dtype | None, path: str
) -> torch.Tensor:
    wanted = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    if wanted != tensor.dtype and overflows(tensor, wanted):
        warnings.warn(f"values of {path} are out of the range of {wanted}", UserWarning, stacklevel=5)
    try:
        return tensor.to(device=device, dtype=wanted)
    except (RuntimeError, TypeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise MapperError(
            f"{shorten(path)} cannot be had on {device} as {wanted}: {shorten(reason, 200)}"
        ) from error


def _check_nothing_empty(states: States, source: str) -> None:
    empty = [
        joined(path, name)
        for path, module in states.modules.items()
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]
        if tensor is not None and tensor.is_meta
    ]
    if empty:
        raise FormatError(f"{source}: no tensor for {listed(empty)} of its architecture")
