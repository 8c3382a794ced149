"""The settings of other libraries, where there is no config.json: in a file beside the weights, or in the same file."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from mapper import limits
from mapper.errors import FormatError
from mapper.rulebook.rulebook import rule_folders
from mapper.rulebook.settings import FOLDER, Settings, settings_of
from mapper.rulebook.shelf import Shelf
from mapper.sources.documents import check_config, parse, read_config
from mapper.sources.files import base_name, open_regular, reading
from mapper.sources.sharded import refuse_escape

YAML = (".yaml", ".yml")
UNSET: Any = object()  # None is a value that settings may have


class Said(NamedTuple):
    """Settings, and the file or the table in it that they stand in."""

    config: dict[str, Any]
    where: str


@lru_cache(maxsize=1)
def every_settings() -> tuple[Settings, ...]:
    """What each settings file says: the user's own, then the shipped ones."""
    return tuple(map(settings_of, Shelf(FOLDER, rule_folders()).index))


def note(said: Said) -> str:
    """What to say of settings in a file beside the weights."""
    return f"the settings are those in {said.where}"


def beside(folder: str | Path, follow_links: bool = False) -> Said | None:
    """The settings in a file of `folder` that some library writes; None where there is none."""

    def read(name: str) -> dict[str, Any]:
        refuse_escape(os.fspath(folder), name, base_name(folder), follow_links)
        return _read(os.path.join(folder, name))

    there = [name for name in file_names() if os.path.lexists(os.path.join(folder, name))]
    return of_files(there, read)


def file_names() -> list[str]:
    """The files beside weights in which some library keeps settings."""
    return list(dict.fromkeys(name for settings in every_settings() for name in settings.files))


def of_files(names: Collection[str], read: Callable[[str], dict[str, Any]]) -> Said | None:
    """The settings in the first of these files that is what its name says; None where none is."""
    for settings in every_settings():
        for name in settings.files:
            found = settings.of(read(name)) if name in names else None
            if found is not None:
                return Said(found, name)
    return None


def within(saved: Any) -> Said | None:
    """The settings in what training code saved beside a state dict; None where it has none."""
    if not isinstance(saved, Mapping):
        return None
    for settings in every_settings():
        for name in settings.tables:
            item = saved.get(name)
            table = _of_text(item) if isinstance(item, str) else _Plain(*_stand_ins()).of(item)
            found = settings.of(table) if isinstance(table, dict) else None
            if found is not None:
                return Said(found, name)
    return None


def of_metadata(metadata: Mapping[str, Any]) -> Said | None:
    """The settings in the metadata of a safetensors file, whose entries are texts; None where it has none."""
    for settings in every_settings():
        for name in settings.metadata:
            text = metadata.get(name)
            found = settings.of(_of_text(text)) if isinstance(text, str) else None
            if found is not None:
                return Said(found, name)
    return None


def weights_in(records: Collection[str]) -> str:
    """The record of an archive of some library in which its weights are a file of torch.save; "" for none."""
    kept = (record for settings in every_settings() for record in settings.archives)
    return next((record for record in kept if record in records), "")


def of_archive(record: str, read: Callable[[str], dict[str, Any]]) -> Said | None:
    """The settings in the record that an archive has beside its weights; None where they are not what a rule says."""
    for settings in every_settings():
        beside = settings.archives.get(record)
        found = settings.of(read(beside)) if beside else None
        if beside and found is not None:
            return Said(found, beside)
    return None


def told_of(metadata: Mapping[str, Any]) -> list[str]:
    """What is told of the metadata of a safetensors file, a text for each library that writes it."""
    return list(filter(None, (settings.note(metadata) for settings in every_settings())))


def _stand_ins() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Attributes by which an object stands for a value alone, and the texts there that are none."""
    known = every_settings()
    return tuple(word for one in known for word in one.held), tuple(
        text for one in known for text in one.unset
    )


def _of_text(text: str) -> dict[str, Any]:
    """The JSON object that a text is; nothing for another text."""
    try:
        found = parse(text.encode(), "metadata")
        check_config(found, "metadata")
    except FormatError:
        return {}
    return found


def _read(path: str) -> dict[str, Any]:
    if not path.endswith(YAML):
        return read_config(path)
    name = base_name(path)
    file, size = open_regular(path)
    with file, reading(name):
        if size > limits.RULE_FILE_BYTES:
            raise FormatError(f"{name}: {size:,} bytes of YAML, at most {limits.RULE_FILE_BYTES:,} are read")
        return parse_settings(file.read(limits.RULE_FILE_BYTES + 1), name)


def parse_settings(data: bytes, name: str) -> dict[str, Any]:
    """The settings in a file called `name`: JSON, or YAML by its name."""
    if not name.endswith(YAML):
        found = parse(data, name)
        check_config(found, name)
        return found
    return _parse_yaml(data, name)


def _parse_yaml(data: bytes, name: str) -> dict[str, Any]:
    """A YAML file of plain values. No anchors: a few lines of these can stand for more than there is memory."""
    import yaml

    try:
        if any(isinstance(token, (yaml.AliasToken, yaml.AnchorToken)) for token in yaml.scan(data)):
            raise FormatError(f"{name}: an anchor or an alias; plain values are read alone")
        found = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FormatError(f"{name}: not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(found, dict):
        raise FormatError(f"{name}: holds no table of settings")
    config = _Plain().of(found)
    check_config(config, name)
    return dict(config)


class _Plain:
    """Values as JSON has them: what is none is left out, an object of plain values is the table of its attributes.

    What was pickled may hold one table many times over: values are counted wherever they stand.
    """

    def __init__(self, held: tuple[str, ...] = (), unset: tuple[str, ...] = ()) -> None:
        self.left = limits.SETTINGS_VALUES
        from mapper.sources.pickles import Opaque

        self.held, self.unset, self.opaque = held, unset, Opaque

    def of(self, item: Any, depth: int = limits.CONFIG_DEPTH) -> Any:
        """The value, or UNSET where it is none that JSON has."""
        self.left -= 1
        if self.left < 0 or depth < 0:
            return UNSET
        if isinstance(item, self.opaque):
            for word in self.held:
                if word in item.attributes:
                    return self._held(item.attributes[word], depth - 1)
            item = item.attributes or UNSET
        if isinstance(item, Mapping):
            return self._table(item, depth)
        if isinstance(item, (list, tuple)):
            found = [self.of(one, depth - 1) for one in item]
            return UNSET if any(one is UNSET for one in found) else found
        is_plain = item is None or isinstance(item, (bool, int, str)) or _is_finite(item)
        return item if is_plain else UNSET

    def _held(self, item: Any, depth: int) -> Any:
        """The value that an object stands for."""
        is_unset = isinstance(item, str) and any(fnmatchcase(item, text) for text in self.unset)
        return UNSET if is_unset else self.of(item, depth)

    def _table(self, table: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        found = {key: self.of(item, depth - 1) for key, item in table.items() if isinstance(key, str)}
        return {key: item for key, item in found.items() if item is not UNSET}


def _is_finite(item: Any) -> bool:
    return isinstance(item, float) and isfinite(item)
