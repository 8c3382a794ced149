"""The settings of other libraries, where there is no config.json: in a file beside the weights, or in the same file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from mapper import limits
from mapper.errors import FormatError
from mapper.rulebook.settings import every_settings
from mapper.sources.documents import check_config, read_config
from mapper.sources.files import base_name, open_regular, reading
from mapper.sources.sharded import refuse_escape

YAML = (".yaml", ".yml")


class Said(NamedTuple):
    """Settings, and the file or the table in it that they stand in."""

    config: dict[str, Any]
    where: str


def beside(folder: str | Path, follow_links: bool = False) -> Said | None:
    """The settings in a file of `folder` that some library writes; None where there is none."""
    for settings in every_settings():
        for name in settings.files:
            path = os.path.join(folder, name)
            if not os.path.lexists(path):
                continue
            refuse_escape(os.fspath(folder), name, base_name(folder), follow_links)
            found = settings.of(_read(path))
            if found is not None:
                return Said(found, name)
    return None


def within(saved: Any) -> Said | None:
    """The settings in what training code saved beside a state dict; None where it has none."""
    if not isinstance(saved, Mapping):
        return None
    for settings in every_settings():
        for name in settings.tables:
            table = saved.get(name)
            found = settings.of(_plain(table)) if isinstance(table, Mapping) else None
            if found is not None:
                return Said(found, name)
    return None


def _read(path: str) -> dict[str, Any]:
    return _read_yaml(path) if path.endswith(YAML) else read_config(path)


def _read_yaml(path: str) -> dict[str, Any]:
    """A YAML file of plain values. No anchors: a few lines of these can stand for more than there is memory."""
    import yaml

    name = base_name(path)
    file, size = open_regular(path)
    with file, reading(name):
        if size > limits.RULE_FILE_BYTES:
            raise FormatError(f"{name}: {size:,} bytes of YAML, at most {limits.RULE_FILE_BYTES:,} are read")
        text = file.read(limits.RULE_FILE_BYTES + 1)
    try:
        if any(isinstance(token, (yaml.AliasToken, yaml.AnchorToken)) for token in yaml.scan(text)):
            raise FormatError(f"{name}: an anchor or an alias; plain values are read alone")
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FormatError(f"{name}: not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(found, dict):
        raise FormatError(f"{name}: holds no table of settings")
    config = _plain(found)
    check_config(config, name)
    return config


def _plain(table: Mapping[Any, Any], depth: int = limits.CONFIG_DEPTH) -> dict[str, Any]:
    """The entries that JSON has, too."""
    return {key: item for key, item in table.items() if isinstance(key, str) and _is_plain(item, depth)}


def _is_plain(item: Any, depth: int) -> bool:
    if isinstance(item, float):
        return isfinite(item)
    if isinstance(item, (list, dict)):
        inner = item.values() if isinstance(item, dict) else item
        keys = item if isinstance(item, dict) else ()
        return (
            depth > 0
            and all(isinstance(key, str) for key in keys)
            and all(_is_plain(one, depth - 1) for one in inner)
        )
    return item is None or isinstance(item, (bool, int, str))
