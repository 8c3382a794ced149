"""Names of fields of a config that stand for all of a form, as `*norm*eps`, and what such a field could mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ANY = "*"  # in the name of a field: any letters
ANYWHERE = "**."  # before such a name: at any depth of a part; what is found is the name


def is_form(key: str) -> bool:
    """Whether a name stands for all fields of its form in a part."""
    return ANY in key and not key.startswith(ANYWHERE)


def could_be_meant(value: Any, named: Mapping[str, Any], is_flag: bool) -> bool:
    """Whether a field could mean a fact by its value: a word of its map, or else a flag, or a number."""
    if named:
        text = str(value).lower() if isinstance(value, bool) else value
        return isinstance(text, str) and text in named
    if is_flag or isinstance(value, bool):
        return is_flag and isinstance(value, bool)
    return isinstance(value, (int, float))
