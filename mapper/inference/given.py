"""What a user said: `--set [AT:]FACT=V` and `hints={"[AT:]FACT": V}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from mapper.errors import HintError, shorten
from mapper.inference.scopes import Scope
from mapper.rulebook.declared import declared, is_nullable
from mapper.rulebook.values import parsed, shown

if TYPE_CHECKING:
    from mapper.rulebook.rulebook import Rulebook

_NULL = ("null", "None")
_NAMED = 24  # values of a fact, in a message


@dataclass(frozen=True)
class Given:
    """One hint; `at` is empty where it holds everywhere."""

    name: str
    at: str
    value: Any
    source: str  # as it was written

    @property
    def key(self) -> str:
        """Its name, with the scope."""
        return f"{self.at}:{self.name}" if self.at else self.name


def read_hints(
    hints: Mapping[str, Any] | None, types: Mapping[str, str], rulebook: Rulebook | None = None
) -> list[Given]:
    """The hints, checked against the known facts, their types and values; those with a scope first. Raises HintError."""
    if hints is not None and not isinstance(hints, Mapping):
        raise HintError(
            f"hints are facts by name, as in {{'attention.heads': 12}}, not {type(hints).__name__}"
        )
    given = [_hint(key, value, types, rulebook) for key, value in (hints or {}).items()]
    return sorted(given, key=lambda item: not item.at)


def _hint(key: Any, value: Any, types: Mapping[str, str], rulebook: Rulebook | None) -> Given:
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
        raise HintError(f"there is no fact {shorten(name)}; {advice}", fact=name, at=at, candidates=close)
    text = str(value)
    written = text if text.isprintable() and len(text) <= 80 else shorten(text)
    if rulebook and (value is None or value in _NULL) and is_nullable(rulebook, name):
        return Given(name, at, None, f"--set {key}={written}")
    try:
        found = parsed(value, types[name])
    except ValueError as error:
        raise HintError(f"--set {key}: {error}", fact=name, at=at) from None
    if rulebook:
        check_declared(key, found, types[name], rulebook)
    return Given(name, at, found, f"--set {key}={written}")


def check_declared(key: str, value: Any, kind: str, rulebook: Rulebook) -> None:
    """HintError for a word that no rule knows: what is chosen from a list is one of it."""
    name = key.rpartition(":")[2]
    known = list(rulebook.activations) if kind == "activation" else []
    if kind == "text":
        known = declared(rulebook, name)
    if known and value not in known:
        words = [word if isinstance(word, str) else shown(word) for word in known]
        close = get_close_matches(str(value), words, n=1)
        advice = f"did you mean {close[0]!r}? " if close else ""
        more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
        raise HintError(
            f"--set {key}: {shorten(str(value))} is no value of {name}; {advice}allowed: {', '.join(words[:_NAMED])}{more}",
            fact=name,
            at=key.rpartition(":")[0],
            candidates=known,
        )


def check_scopes(given: Iterable[Given], root: Scope) -> None:
    """HintError for a hint whose scope names no part of the checkpoint."""
    every = [root, *root.below()]
    for item in given:
        if item.at and not any(scope.matches(item.at) for scope in every):
            words = sorted({word for scope in every for word in scope.words})
            raise HintError(
                f"--set {item.at}:{item.name}: no part is called {shorten(item.at)}; parts: {', '.join(words[:12])}",
                fact=item.name,
                at=item.at,
            )
