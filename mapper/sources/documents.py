"""JSON documents from outside: limited in size and depth, and never a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mapper import limits
from mapper.errors import FormatError, shorten
from mapper.sources.files import SNIFFED, base_name, open_regular, reading, refuse_impostor


def parse(data: bytes, name: str, **options: Any) -> dict[str, Any]:
    """The JSON object in `data`; `options` go to `json.loads`."""
    options.setdefault("object_pairs_hook", lambda pairs: _once(pairs, name))
    try:
        document = json.loads(data.decode("utf-8-sig"), **options)
    except FormatError:  # a ValueError too; raised by `options`
        raise
    except UnicodeDecodeError as error:
        raise FormatError(f"{name}: not UTF-8 text at byte {error.start:,}") from error
    except RecursionError as error:
        raise FormatError(
            f"{name}: nested too deeply; at most {limits.CONFIG_DEPTH} levels are read"
        ) from error
    except json.JSONDecodeError as error:
        raise FormatError(
            f"{name}: not JSON: {error.msg.lower()} at line {error.lineno}, column {error.colno}"
        ) from error
    except ValueError as error:  # an integer of thousands of digits
        raise FormatError(f"{name}: not readable as JSON: {str(error).split(';')[0].lower()}") from error
    if not isinstance(document, dict):
        raise FormatError(f"{name}: holds a JSON {_kind(document)} where an object is needed")
    return document


def _once(pairs: list[tuple[str, Any]], name: str) -> dict[str, Any]:
    """One object; a key that stands there twice must have one value."""
    table = dict(pairs)
    if len(table) != len(pairs):
        for key, value in pairs:
            if table[key] != value:
                raise FormatError(
                    f"{name}: {shorten(key)} more than once, as {shorten(str(value), 40)} and {shorten(str(table[key]), 40)}"
                )
    return table


def read_document(
    path: str | Path, limit: int = limits.CONFIG_BYTES, name: str | None = None
) -> dict[str, Any]:
    """The JSON object in the file at `path`, of at most `limit` bytes; errors call it `name`."""
    name = base_name(path) if name is None else name
    file, size = open_regular(path)
    with file, reading(name):
        if size > limit:
            raise FormatError(f"{name}: {size:,} bytes of JSON, at most {limit:,} are read")
        data = file.read(limit + 1)
    refuse_impostor(data[:SNIFFED], len(data), name)
    return parse(data, name)


def read_config(path: str | Path) -> dict[str, Any]:
    """The config at `path`. Checked are size, depth and text; what the fields mean is not."""
    config = read_document(path)
    check_config(config, base_name(path))
    return config


def check_config(config: Any, name: str) -> None:
    """Raise FormatError unless `config` is an object of limited depth whose texts can be printed."""
    if not isinstance(config, dict):
        raise FormatError(f"{name}: the config is a JSON {_kind(config)} where an object is needed")
    level: list[Any] = [config]
    for _ in range(limits.CONFIG_DEPTH):
        below: list[Any] = []
        for value in level:
            items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
            below += [item for item in items if isinstance(item, (dict, list))]
            for text in items:
                if isinstance(text, str) and not is_printable_text(text):
                    raise FormatError(
                        f"{name}: half of a surrogate pair in {shorten(text)}; the file is damaged"
                    )
        if not below:
            return
        level = below
    raise FormatError(f"{name}: nested more than {limits.CONFIG_DEPTH} levels deep")


def is_printable_text(text: str) -> bool:
    """Whether `text` can be encoded: JSON may hold halves of surrogate pairs, which no output takes."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: object) -> str:
    kinds = {
        list: "array",
        str: "string",
        int: "number",
        float: "number",
        bool: "boolean",
        type(None): "null",
    }
    return kinds.get(type(value), "value")
