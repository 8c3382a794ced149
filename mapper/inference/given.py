"""What a user said: `--set [AT:]FACT=V` and `hints={"[AT:]FACT": V}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from mapper.errors import HintError, shorten
from mapper.inference.scopes import Scope
from mapper.rulebook.values import parsed


@dataclass(frozen=True)
class Given:
    """One hint; `at` is empty where it holds everywhere."""

    name: str
    at: str
    value: Any
    source: str  # as it was written


def read_hints(hints: Mapping[str, Any] | None, types: Mapping[str, str]) -> list[Given]:
    """The hints, checked against the known facts and their types; those with a scope first. Raises HintError."""
    if hints is not None and not isinstance(hints, Mapping):
        raise HintError(
            f"hints are facts by name, as in {{'attention.heads': 12}}, not {type(hints).__name__}"
        )
    given = [_hint(key, value, types) for key, value in (hints or {}).items()]
    return sorted(given, key=lambda item: not item.at)


def _hint(key: Any, value: Any, types: Mapping[str, str]) -> Given:
    if not isinstance(key, str):
        raise HintError(f"a hint is named by text, not {shorten(str(key))}")
    at, _, name = key.rpartition(":")
    if name not in types:
        close = get_close_matches(name, types, n=1)
        advice = (
            f"did you mean {close[0]!r}?"
            if close
            else f"known facts: {', '.join(sorted(types)[:12])} and more"
        )
        raise HintError(f"there is no fact {shorten(name)}; {advice}")
    try:
        text = str(value)
        written = text if text.isprintable() and len(text) <= 80 else shorten(text)
        return Given(name, at, parsed(value, types[name]), f"--set {key}={written}")
    except ValueError as error:
        raise HintError(f"--set {key}: {error}") from None


def check_scopes(given: Iterable[Given], root: Scope) -> None:
    """HintError for a hint whose scope names no part of the checkpoint."""
    every = [root, *root.below()]
    for item in given:
        if item.at and not any(scope.matches(item.at) for scope in every):
            words = sorted({word for scope in every for word in scope.words})
            raise HintError(
                f"--set {item.at}:{item.name}: no part is called {shorten(item.at)}; parts: {', '.join(words[:12])}"
            )
