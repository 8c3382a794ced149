"""`rename` into a container that has namings of its own: the model by its library's names first, then by theirs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from mapper._progress import Transfer, showing
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.errors import MapperError, joined, shorten
from mapper.outputs.files import whole_file
from mapper.outputs.written import check_place
from mapper.report.wording import counted
from mapper.rulebook.libraries import library_namings
from mapper.sources.gguf import tokenizer_of
from mapper.weights.converting.gguf_files import QUANTISED, SUFFIX, check_package, kind_of, write_gguf
from mapper.weights.converting.streaming import Conversion, check_room
from mapper.weights.renaming.containers import Packed, pack, types_of
from mapper.weights.renaming.fitting import (
    as_checkpoint,
    first_that_fits,
    refuse_what_is_not_known,
)
from mapper.weights.renaming.reading_back import read_back
from mapper.weights.renaming.settings import type_in, type_of

if TYPE_CHECKING:
    import torch

    from mapper.architecture import Architecture

    Tensors = dict[str, tuple[TensorInfo, Callable[[], torch.Tensor]]]

_NO_TOKENIZER = "no tokenizer is in the file, which programs that run it need"


def check_into(
    container: str, place: str, shard_size: int | str | None, quantised: str | None, overwrite: bool
) -> None:
    """Raise MapperError for what such a file cannot be, before anything is read."""
    if not place.endswith(SUFFIX) or shard_size is not None:
        raise MapperError(
            f"{shorten(place)}: {container} is written as one file, whose name ends in {SUFFIX}"
        )
    if quantised not in (None, *QUANTISED):
        raise MapperError(
            f"{shorten(str(quantised))} is no type that is written; {joined(list(QUANTISED))} is"
        )
    check_package()
    check_place(place, None, overwrite=overwrite)


def rename_into(
    container: str, architecture: Architecture, place: str, quantised: str | None, overwrite: bool
) -> Conversion:
    """Write the model as one file of the container. Raises MapperError for what it has no place for."""
    refuse_what_is_not_known(architecture)
    packed, checkpoint = _packed(container, architecture)
    tensors = _tensors(packed, checkpoint)
    sizes = (info.size * (kind := kind_of(name, info.shape, info.dtype, quantised)).bytes // kind.block
             for name, (info, _) in tensors.items())  # fmt: skip
    words = tokenizer_of(architecture.checkpoint)
    notes = [] if words else [_NO_TOKENIZER]
    if packed.rounded:
        notes.append(
            f"{counted(len(packed.rounded), 'tensor')} of other numbers there (1 + w, say) come back rounded"
        )
    done = Conversion(place, [os.path.basename(place)], len(tensors), sum(sizes), notes)
    check_room(place, done.size)
    progress = Transfer(f"writing {os.path.basename(place)}", done.size)
    with showing(progress.line), whole_file(place, overwrite=overwrite) as partial_file:
        write_gguf(partial_file, packed.metadata | words, tensors, quantised, progress.add)
    return done


def _packed(container: str, architecture: Architecture) -> tuple[Packed, Checkpoint]:
    """The file, and the checkpoint that it is made of, once it reads as the same model."""
    failed: list[MapperError] = []
    for make in _under_its_own_names(container, architecture):
        try:
            checkpoint = make()
            packed = pack(container, checkpoint, architecture.rulebook)
            tensors, config = packed.read_again()
            read_back(
                packed.label, tensors, config, architecture, as_stored=checkpoint is architecture.checkpoint
            )
        except MapperError as error:
            failed.append(error)
            continue
        return packed, checkpoint
    if not failed:
        raise MapperError(f"{architecture.checkpoint.source}: {container} has no naming for its model type")
    nearest = min(failed, key=lambda error: len(error.tensors))
    source = f"{architecture.checkpoint.source}: "
    raise MapperError(source + nearest.in_command().removeprefix(source), tensors=nearest.tensors)


def _under_its_own_names(container: str, architecture: Architecture) -> Iterator[Callable[[], Checkpoint]]:
    """Ways to the names and the config that the container's namings are of: by roles, or as they are."""
    types = types_of(container)
    said = type_in(architecture.checkpoint.config or {})
    fitting = [naming for naming in library_namings() if type_of(naming) in types]
    for naming in fitting:
        if type_of(naming) == said:
            yield partial(_by_roles, naming.label, architecture)
    if said in types:
        yield lambda: architecture.checkpoint
        return
    for naming in fitting:
        yield partial(_by_roles, naming.label, architecture)


def _by_roles(label: str, architecture: Architecture) -> Checkpoint:
    naming = next(naming for naming in library_namings() if naming.label == label)
    return as_checkpoint(first_that_fits([naming], architecture), architecture.checkpoint)


def _tensors(packed: Packed, checkpoint: Checkpoint) -> Tensors:
    """Infos as they are stored, and how each tensor is made."""
    import torch

    read = checkpoint.read
    assert read is not None
    found: Tensors = {
        name: (TensorInfo(stored.shape, stored.info.dtype), partial(stored.of, read))
        for name, stored in packed.tensors.items()
    }
    for name, values in packed.small.items():
        found[name] = TensorInfo((len(values),), "F32"), partial(torch.tensor, values)
    return found
