"""One side of a comparison: any source of the tool as a table of tensors with its ties."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper.architecture import Origin
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.errors import MapperError, SourceError
from mapper.sources import open_source
from mapper.sources.in_memory import config_of
from mapper.sources.manifest import dtype_name
from mapper.sources.shards import check_names
from mapper.weights.comparing.wrappers import without_wrappers

if TYPE_CHECKING:
    from mapper.architecture import Architecture

# Of adapter_config.json: which base it is for, and what its updates are multiplied by.
_OF_UPDATES = (
    "peft_type", "base_model_name_or_path", "r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "use_dora",
)  # fmt: skip


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Side:
    """A checkpoint, what it is called here, and which of its paths are another path's tensor."""

    name: str
    checkpoint: Checkpoint
    tied: Mapping[str, str] = field(default_factory=dict)  # alias -> owner
    built: Callable[[], Any] = _nothing  # the architecture of a model of mapper's own, as data
    untold: frozenset[str] = frozenset()  # paths of ties that the other side has under another of their paths

    def table(self) -> dict[str, TensorInfo]:
        """Every path under which a tensor is known, those of ties that are stored once too."""
        tensors = self.checkpoint.tensors
        aliases = {alias: owner for alias, owner in self.tied.items() if alias not in tensors}
        return {**tensors, **{alias: tensors[owner] for alias, owner in aliases.items() if owner in tensors}}

    def ties(self) -> dict[str, list[str]]:
        """For each path of a tie all paths of it."""
        groups: dict[str, list[str]] = {}
        for alias, owner in self.tied.items():
            groups.setdefault(owner, [owner]).append(alias)
        return {path: group for group in groups.values() for path in group}

    def beside(self, other: Side) -> Side:
        """This side without those paths of ties that the other stores under another of their paths alone."""
        ties, known = self.ties(), other.table()
        untold = {
            path for path, group in ties.items() if path not in known and any(same in known for same in group)
        }
        return replace(self, untold=frozenset(untold)) if untold else self

    def read(self, paths: Iterable[str]) -> dict[str, Any]:
        """The tensors at these paths."""
        stored = self.checkpoint.tensors
        owners = {path: path if path in stored else self.tied[path] for path in paths}
        assert self.checkpoint.read is not None
        found = self.checkpoint.read(dict.fromkeys(owners.values()))
        return {path: found[owner] for path, owner in owners.items()}

    @cached_property
    def origin(self) -> Origin:
        """What to read it with: its config, or what a model that mapper made was read with."""
        if self.checkpoint.config is None and (data := self.built()) is not None:
            from mapper.weights.built.reader import read_data

            with suppress(MapperError):  # data of a stranger; the tensors may be compared all the same
                return read_data(data)[0].origin
        return Origin(self.checkpoint.config)

    @property
    def adapter(self) -> dict[str, Any]:
        """What the settings of an adapter say of its updates and no tensor shows."""
        said = self.checkpoint.adapter or {}
        return {name: said[name] for name in _OF_UPDATES if said.get(name) not in (None, False, {})}

    def reads_like(self, other: Side) -> bool:
        """Whether nothing speaks for another architecture: equal tables, and configs that do not contradict."""
        tables = [
            {path: info for path, info in side.table().items() if path not in side.untold}
            for side in (self, other)
        ]
        if tables[0] != tables[1] or self.adapter != other.adapter:
            return False
        one, another = self.origin, other.origin
        return one.config is None or another.config is None or one == another

    @cached_property
    def names(self) -> dict[str, str]:
        """The names that wrappers of modules have put words into, each without them."""
        return without_wrappers(self.checkpoint.tensors)

    def reading(self) -> Architecture | None:
        """What the rules say it is, by its names without wrappers; None where they cannot: anything may be compared."""
        return self._reading

    @cached_property
    def _reading(self) -> Architecture | None:
        from mapper._api import read_parts
        from mapper.rulebook.rulebook import rulebook_of
        from mapper.sources.parts import parts_of

        rulebook = rulebook_of(())
        parts = parts_of(self.checkpoint, rulebook)
        return read_parts(self.checkpoint, parts, rulebook) if parts else self._read(self.origin)

    def placed(self) -> Architecture | None:
        """What says which role each tensor has: its reading, else one by its names alone, whatever its config says.

        Several models are placed as if they were one: their names tell them apart.
        """
        reading = self.reading()
        if reading is not None and not reading.parts:
            return reading
        return self._read(Origin(families=reading is not None))

    def _read(self, origin: Origin) -> Architecture | None:
        from mapper.inference import infer
        from mapper.rulebook.rulebook import rulebook_of

        stored = self.checkpoint.tensors
        tensors = {self.names.get(path, path): stored[path] for path in stored if path not in self.untold}
        checkpoint = replace(self.checkpoint, config=origin.config, tensors=tensors)
        try:
            return infer(checkpoint, rulebook_of(()), hints=origin.hints, use_families=origin.families)
        except MapperError:
            return None


def open_side(source: Any, values: bool, follow_links: bool = False) -> Side:
    """The side that `source` is, with a way to its weights where `values` are wanted."""
    side = _opened(source, values, follow_links)
    if values and side.checkpoint.read is None:
        raise SourceError(f"{side.checkpoint.source} is a manifest without weights; compare headers alone")
    return side


def _opened(source: Any, values: bool, follow_links: bool) -> Side:
    if isinstance(source, (str, os.PathLike)):
        name = source if isinstance(source, str) else Path(source)
        checkpoint = open_source(
            name,
            purpose="weights" if values else "headers",
            catalogue=not values,
            follow_links=follow_links,
        )
        document = checkpoint.document or {}
        return Side(str(name), checkpoint, document.get("tied", checkpoint.tied), lambda: _saved(document))
    if isinstance(source, Mapping) and _is_manifest(source):
        checkpoint = open_source(source, purpose="headers")
        return Side(checkpoint.source, checkpoint)
    return _in_memory(source)


def _saved(document: Mapping[str, Any]) -> Any:
    """The architecture of a model of mapper's own in the document of its save."""
    architecture = document.get("architecture") or {}
    return architecture.get("model") if architecture.get("kind") == "generated" else None


def _is_manifest(source: Mapping[Any, Any]) -> bool:
    """Whether a mapping describes tensors instead of having them."""
    table = source["tensors"] if isinstance(source.get("tensors"), Mapping) else source
    return bool(table) and all(_is_described(entry) for entry in table.values())


def _is_described(entry: Any) -> bool:
    shape = entry.get("shape") if isinstance(entry, Mapping) else entry
    return isinstance(shape, (list, tuple)) and all(isinstance(extent, int) for extent in shape)


def _in_memory(source: Any) -> Side:
    """The arrays of a module or a tree, as a load would take them."""
    from mapper.weights.built.model import architecture_data
    from mapper.weights.loading.flat_table import read_source
    from mapper.weights.modules import unwrapped

    found = read_source(source)
    arrays = found.arrays()
    is_module = hasattr(source, "state_dict")
    if is_module:
        source = unwrapped(source)
    elif not arrays and found.leaves:
        raise SourceError(
            f"a {type(source).__name__} without arrays and without shapes; there is nothing to compare"
        )
    name = type(source).__name__
    check_names(arrays, name)
    table = {path: _info(array, path, name) for path, array in arrays.items()}
    config = config_of(source) if is_module else None
    checkpoint = Checkpoint(name, "memory", table, config)
    checkpoint.read = lambda paths: {path: arrays[path].tensor() for path in paths}
    return Side(name, checkpoint, found.tied, (lambda: architecture_data(source)) if is_module else _nothing)


def _info(array: Any, path: str, name: str) -> TensorInfo:
    info = TensorInfo(tuple(array.shape), dtype_name(array.dtype, path, name))
    if info.dtype == "F4":  # torch counts pairs of four-bit numbers, files count numbers
        info = TensorInfo((*info.shape[:-1], 2 * info.shape[-1]), "F4")
    return info
