"""`rename`: any recognised checkpoint under the names of another library, a tensor at a time, all of it or nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper._api import describe
from mapper.errors import MapperError, joined, shorten
from mapper.outputs.files import write_text
from mapper.outputs.written import check_place
from mapper.weights.converting.streaming import (
    SAFETENSORS,
    TORCH,
    Conversion,
    shard_bytes,
    suffix_of,
    write_all_of,
)
from mapper.weights.converting.torch_files import TorchTable
from mapper.weights.renaming.containers import containers
from mapper.weights.renaming.fitting import Renamed, as_checkpoint, candidates_of, first_that_fits
from mapper.weights.renaming.into_container import check_into, rename_into

if TYPE_CHECKING:
    from torch import nn

    from mapper.architecture import Architecture
    from mapper.rulebook.libraries import LibraryNaming


def rename(
    source: str | Path | Mapping[str, Any] | nn.Module,
    to: str,
    out: str | os.PathLike[str],
    *,
    hints: Mapping[str, Any] | None = None,
    shard_size: int | str | None = None,
    quantised: str | None = None,
    overwrite: bool = False,
    revision: str | None = None,
    rules: Sequence[str | Path] = (),
    follow_links: bool = False,
) -> Conversion:
    """Write the tensors of any recognised source under the names of the library `to`, with its settings beside them.

    `to` is a library ("hf", "meta") or one of its architectures ("hf/llama"). What is written is read again, by names,
    shapes and settings, and must be the same model: what the library cannot say is an error that names it. `out` is a
    folder, or a file of tensors; for the container "gguf" a file, whose maps `quantised` packs ("Q8_0"). Raises SourceError for a source without weights or that is not understood,
    MapperError for what the library has no place for, FileExistsError as `convert` does.

        mapper.rename("./Llama-3.2-1B", to="litgpt", out="./litgpt")
    """
    place = os.fspath(out)
    if to in containers():
        check_into(to, place, shard_size, quantised, overwrite)
        architecture = describe(
            source, hints, purpose="weights", revision=revision, rules=rules, follow_links=follow_links
        )
        return rename_into(to, architecture, place, quantised, overwrite)
    if quantised is not None:
        raise MapperError(f"{shorten(quantised)} is a type of {joined(containers())}; {to} has plain numbers")
    candidates = candidates_of(to)
    if shard_size is None:
        place = _with_own_name(place, candidates)
    suffix = suffix_of(place, TORCH)
    largest = shard_bytes(shard_size, place, suffix)
    is_new = _check_target(os.fspath(out), place, suffix, overwrite)
    architecture = describe(
        source, hints, purpose="weights", revision=revision, rules=rules, follow_links=follow_links
    )
    renamed = first_that_fits(candidates, architecture)
    beside, texts = os.path.dirname(place), _texts(renamed)
    for name in texts if suffix and not is_new else ():
        check_place(os.path.join(beside, name), None, overwrite=overwrite)
    if is_new:
        os.makedirs(out)
    done = Conversion(place, [], 0, 0, _notes(renamed, architecture, suffix))
    checkpoint = as_checkpoint(renamed, architecture.checkpoint)
    tensors, without = checkpoint.tensors, replace(checkpoint, config=None)
    write_all_of(done, without, tensors, texts, largest, overwrite, _torch_table(renamed))
    for name, text in texts.items() if suffix else ():
        write_text(os.path.join(beside, name), text, overwrite=overwrite)
        done.files.append(name)
    return done


def _check_target(out: str, place: str, suffix: str, overwrite: bool) -> bool:
    """Raise OverwriteError for what may not be replaced; whether `place` is a file of a folder that is to be made."""
    is_new = place != out and not os.path.isdir(out)
    check_place(out if is_new else place, None if suffix and not is_new else (), overwrite=overwrite)
    return is_new


def _with_own_name(place: str, candidates: Sequence[LibraryNaming]) -> str:
    """A folder, or the file in it where that is the one of safetensors that the library looks for."""
    names = {naming.weights for naming in candidates}
    if suffix_of(place, TORCH) or len(names) != 1 or not all(name.endswith(SAFETENSORS) for name in names):
        return place
    return os.path.join(place, names.pop())


def _texts(renamed: Renamed) -> dict[str, str]:
    """The file of the settings, by its name."""
    naming, fields = renamed.naming, renamed.settings.fields
    if not naming.settings or naming.is_table or not fields:
        return {}
    whole = {naming.inside: fields} if naming.inside else fields
    if naming.settings.endswith(".json"):
        return {naming.settings: json.dumps(whole, indent=2) + "\n"}
    import yaml

    return {naming.settings: yaml.safe_dump(whole, sort_keys=False)}


def _torch_table(renamed: Renamed) -> TorchTable:
    """What a torch file has around the tensors."""
    naming = renamed.naming
    settings = {naming.settings: renamed.settings.fields} if naming.is_table else {}
    return TorchTable(naming.tensors_in, settings)


def _notes(renamed: Renamed, architecture: Architecture, suffix: str) -> list[str]:
    naming = renamed.naming
    notes = [f"{shorten(name)} was left out: {why}" for name, why in architecture.unused]
    notes += renamed.table.notes + renamed.settings.notes + _shown_by_weights(architecture)
    if naming.weights and not suffix:
        notes.append(f"{naming.library} looks for {naming.weights}: -o FOLDER/{naming.weights} writes it")
    if naming.is_table and suffix not in TORCH:
        notes.append(
            f"{naming.settings}, its settings, stand in a torch file alone: {json.dumps(renamed.settings.fields)}"
        )
    if renamed.hints:
        said = " ".join(
            f"--set {name}={json.dumps(value).strip(chr(34))}" for name, value in renamed.hints.items()
        )
        notes.append(f"{naming.label} has no settings for all of it; to read it, say {said}")
    return notes


def _shown_by_weights(architecture: Architecture) -> list[str]:
    """Facts that no file says and that the settings now do."""
    found = dict.fromkeys(
        f"{item.name} = {json.dumps(item.value)}" for item in architecture.facts if item.evidence == "weights"
    )
    return [f"what the weights alone show is said as if it were known: {', '.join(found)}"] if found else []
