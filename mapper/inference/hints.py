"""What a user said: `--set [AT:]FACT=V` and `hints={"[AT:]FACT": V}`."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from mapper._dataclass import dataclass
from mapper.errors import HintError, shorten
from mapper.inference.evidence import Known
from mapper.inference.scopes import Scope, every_place, words_at
from mapper.rulebook.declared import FLOW, declared, is_nullable
from mapper.rulebook.facts import TYPE
from mapper.rulebook.renamed import fact_now, value_now
from mapper.rulebook.values import parsed, shown
from mapper.words import close_to

if TYPE_CHECKING:
    from mapper.rulebook.rulebook import Rulebook

_NAMES = (TYPE, FLOW, "task")  # of what there must be one
_NULL = ("null", "None")
FOUND = ("value", "evidence", "source")  # the fields of a hint that says its evidence
DEFAULT = "default"
TELLING = ("weights", "behaviour", DEFAULT)  # evidence that it may say
_NAMED = 24  # values of a fact, in a message
_PLACEHOLDER = "VALUE"  # in a command that is printed, of an answer with many values


@dataclass(frozen=True)
class Given:
    """One hint; `at` is empty where it holds everywhere."""

    name: str
    at: str
    value: Any
    source: str  # as it was written
    note: str = ""  # what is called otherwise now
    evidence: str = "given"  # or what told it to whoever says it

    @property
    def key(self) -> str:
        """Its name, with the scope."""
        return f"{self.at}:{self.name}" if self.at else self.name


@dataclass
class GivenHints:
    """What a user said, the narrower scope first."""

    given: Sequence[Given] = ()
    heard: set[str] = field(default_factory=set)  # as they were written, those that something rests on

    def of(self, name: str) -> Iterator[Given]:
        """Those about a fact, wherever it is."""
        return (item for item in self.given if item.name == name)

    def told(self, scope: Scope, name: str) -> Given | None:
        """The hint that says a fact of a block."""
        return next((item for item in self.of(name) if not item.at or scope.matches(item.at)), None)

    def stated(self, scope: Scope, name: str) -> Known | None:
        """What it says, as a known value."""
        told = self.told(scope, name) if self.given else None
        if told is None:
            return None
        return Known(told.value, told.evidence, told.source, shown=told.evidence == DEFAULT)

    @property
    def unheard(self) -> dict[str, str]:
        """The hints that nothing in the model rests on, as they were written, each with its name."""
        return {item.source: item.key for item in self.given if item.source not in self.heard}


def read_hints(
    hints: Mapping[str, Any] | None, types: Mapping[str, str], rulebook: Rulebook | None = None
) -> list[Given]:
    """The hints, checked against the known facts, their types and values; the narrower scope first. Raises HintError."""
    if hints is not None and not isinstance(hints, Mapping):
        raise HintError(
            f"hints are facts by name, as in {{'attention.heads': 12}}, not {type(hints).__name__}"
        )
    given = [_hint_with_evidence(key, value, types, rulebook) for key, value in (hints or {}).items()]
    return sorted(given, key=lambda item: -len(words_at(item.at)) if item.at else 0)


def _hint_with_evidence(key: Any, value: Any, types: Mapping[str, str], rulebook: Rulebook | None) -> Given:
    """One hint, or what a program found and says how: `{"value": 12, "evidence": "weights", "source": "..."}`."""
    if not isinstance(value, Mapping) or {*value} != {*FOUND} or value["evidence"] not in TELLING:
        return _hint(key, value, types, rulebook)
    given = _hint(key, value["value"], types, rulebook)
    return replace(given, source=str(value["source"]), evidence=value["evidence"])


def _hint(key: Any, value: Any, types: Mapping[str, str], rulebook: Rulebook | None) -> Given:
    if not isinstance(key, str):
        raise HintError(f"a hint is named by text, not {shorten(str(key))}")
    at, _, said = key.rpartition(":")
    name = fact_now(said, types)
    now = value_now(name, value)
    note = _note(said, name, value, now)
    shown_as, said_value = f"--set {key}", value
    key, value = f"{at}:{name}" if at else name, now
    if name not in types:
        close = close_to(name, types)
        advice = (
            f"did you mean {close[0]!r}?"
            if close
            else "mapper inspect SRC shows those that a model has, mapper rules list --markdown all"
        )
        raise HintError(f"there is no fact {shorten(name)}; {advice}", fact=name, at=at, candidates=close)
    text = str(said_value)
    written = text if text.isprintable() and len(text) <= 80 else shorten(text)
    is_word = (
        types[name] == "text" and name not in _NAMES
    )  # a fact may be none of the words that rules have for it
    if rulebook and (value is None or value in _NULL) and (is_word or is_nullable(rulebook, name)):
        return Given(name, at, None, f"{shown_as}={written}", note)
    try:
        found = parsed(value, types[name])
    except ValueError as error:
        raise HintError(_several(key, value) or f"--set {key}: {error}", fact=name, at=at) from None
    if types[name] == "any" and (copied := _several(key, value)):
        raise HintError(copied, fact=name, at=at)
    if rulebook:
        check_declared(key, found, types[name], rulebook)
    return Given(name, at, found, f"{shown_as}={written}", note)


def _several(key: str, value: Any) -> str:
    """What to say of a choice that was copied whole, `null|first`, or of its placeholder; "" of anything else."""
    if value == _PLACEHOLDER:
        return f"--set {key}: {_PLACEHOLDER} stands for one of the values that mapper inspect lists"
    words = value.split("|") if isinstance(value, str) else []
    if len(words) < 2 or not all(words):
        return ""
    return f"--set {key}: {shorten(value)} is {len(words)} values; keep one of them, as in --set {key}={words[0]}"


def _note(said: str, name: str, value: Any, now: Any) -> str:
    """What of a hint was called otherwise, and what it is called."""
    pairs = ((said, name), (str(value), str(now)))
    changed = [f"{old} is called {new} now" for old, new in pairs if old != new]
    return ", and ".join(changed)


def check_declared(key: str, value: Any, kind: str, rulebook: Rulebook) -> None:
    """HintError for a word that no rule knows: what is chosen from a list is one of it."""
    name = key.rpartition(":")[2]
    known = list(rulebook.activations) if kind == "activation" else []
    if kind == "text":
        known = declared(rulebook, name)
    if name == FLOW and rulebook.flows.get(str(value)) is not None:  # put together from steps
        return
    if known and value not in known:
        if several := _several(key, value):
            raise HintError(several, fact=name, at=key.rpartition(":")[0], candidates=value.split("|"))
        words = [word if isinstance(word, str) else shown(word) for word in known]
        close = close_to(str(value), words)
        advice = f"did you mean {close[0]!r}? " if close else ""
        more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
        raise HintError(
            f"--set {key}: {shorten(str(value))} is no value of {name}; {advice}allowed: {', '.join(words[:_NAMED])}{more}",
            fact=name,
            at=key.rpartition(":")[0],
            candidates=known,
        )


def check_scopes(
    given: Iterable[Given], root: Scope, parts: Container[str] = (), loose: Iterable[Scope] = ()
) -> None:
    """HintError for a hint whose scope names no part of the checkpoint, nor one of `parts`, which flows add.

    `loose` are leaves without a role, which no block has.
    """
    every = [root, *root.below()]
    places = [*every_place(root), *loose] if any(item.at for item in given) else []
    for item in given:
        is_part = item.at.rpartition(".")[2] in parts
        if item.at and not is_part and not any(scope.matches(item.at) for scope in places):
            words = sorted({word for scope in every for word in scope.words})
            words = words or list(
                dict.fromkeys(scope.block.home.first() for scope in places if scope.block.home)
            )
            raise HintError(
                f"--set {item.at}:{item.name}: no part is called {shorten(item.at)}; parts: {', '.join(words[:12])}",
                fact=item.name,
                at=item.at,
            )
