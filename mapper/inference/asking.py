"""What is asked of whoever knows a model: each fact once for each part, under a name that reaches all who lack it, and no others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from mapper._dataclass import dataclass
from mapper.architecture import Place, Question
from mapper.inference.computed import sources
from mapper.inference.scopes import Scope, list_totals, starred
from mapper.rulebook.declared import FLOW
from mapper.rulebook.values import in_words

if TYPE_CHECKING:
    from mapper.inference.facts import Facts


@dataclass
class _Open:
    """A fact that some blocks lack, with one answer for all of them."""

    fact: str
    part: str
    scopes: list[Scope] = field(default_factory=list)
    among: dict[str, Any] = field(default_factory=dict)  # what it could be, by how it is written
    is_complete: bool = True  # whether nothing else would do

    def shares(self, candidates: Iterable[str]) -> bool:
        """Whether one answer may do for a block that could have these, too; each flow has to do for all."""
        among = self.among.keys()
        if self.fact == FLOW:
            return among == set(candidates)
        return not among or not candidates or not among.isdisjoint(candidates)


class Asked:
    """The facts that nobody knows: the blocks that lack each, and what it could be."""

    def __init__(self, root: Scope, facts: Facts):
        self.root, self.facts, self.totals = root, facts, list_totals(root)
        self._open: list[_Open] = []

    def add(self, scope: Scope, fact: str, candidates: Iterable[Any], is_complete: bool = True) -> None:
        """Note a fact that a block lacks; blocks of a part are asked together where one value would do for all.

        So are those of all parts where only the top of a config says it: each narrows what it could be.
        """
        is_shared = self._is_shared(scope, fact)
        part, among = "" if is_shared else part_of(scope), {_written(value): value for value in candidates}
        alike = (one for one in self._open if (one.fact, one.part) == (fact, part) and one.shares(among))
        one = next(alike, None)
        if one is None:
            one = _Open(fact, part)
            self._open.append(one)
        one.scopes.append(scope)
        if is_shared and among.keys() & one.among.keys():
            one.among = {key: value for key, value in one.among.items() if key in among}
        else:
            one.among |= among
        one.is_complete &= is_complete

    def _is_shared(self, scope: Scope, fact: str) -> bool:
        """Whether a fact is one of a whole, and not of each of its blocks of a kind."""
        of = fact.partition(".")[0]
        return of not in (scope.block.role, scope.block.kind) and _is_of_whole(self.facts, fact)

    def questions(self) -> list[Question]:
        """One for each fact and part, in the order in which they were asked; several where no name reaches all."""
        first = [one for one in self._open if not self._follows(one)] or self._open
        return [question for one in first for question in self._asked(one)]

    def _follows(self, one: _Open) -> bool:
        """Whether a fact that could be anything is calculated from another unknown one: that is asked first."""
        scope = one.scopes[0]
        bases = (name for rule in self.facts.rules(scope, one.fact) for name in sources(rule))
        unknown = (self.facts.get(scope, self.facts.full_name(scope, name)) is None for name in bases)
        return not _candidates(one) and any(unknown)

    def _asked(self, one: _Open) -> Iterator[Question]:
        for part, scopes in _named(one, self._others(one)):
            place = starred(scopes[0].block.home, self.totals)
            lacking = tuple(scope.block for scope in scopes)
            candidates = _candidates(one)
            why = self._why(scopes[0], one.fact, bool(candidates))
            kind = in_words(self.facts.declared.types.get(one.fact, ""))
            doc = doc_of(self.facts, one.fact)
            yield Question(one.fact, place, candidates, part, lacking, why, doc, kind)

    def _why(self, scope: Scope, fact: str, has_candidates: bool) -> str:
        """Why nobody knows a fact, where a rule says it; of one that may be any number, those that are usual."""
        doubt = self.facts.doubt(scope, fact)
        tried = next((rule.tried for rule in self.facts.rules(scope, fact) if rule.tried), ())
        usual = ", ".join("null" if one is None else str(one) for one in tried if not has_candidates)
        return "; ".join([*([doubt.doubt] if doubt else ()), *([f"usual: {usual}"] if usual else ())])

    def _others(self, one: _Open) -> list[Scope]:
        """The blocks of a part that know a fact which others lack, or are asked for it apart; "" reaches every part.

        So are elements of the same lists that do without it: an answer would give them what they have not. And a folder
        of another part that is called as this one hears what is said of it.
        """
        lacking = set(map(id, one.scopes))
        knowing = [scope for scope, name, _ in self.facts.used.values() if name == one.fact]
        apart = [other for other in self._open if other.fact == one.fact and other is not one]
        paths = {scope.words for scope in one.scopes}
        beside = [scope for scope in self.root.below() if scope.words in paths]
        others = (*knowing, *(scope for other in apart for scope in other.scopes), *beside)
        return [
            scope
            for scope in others
            if id(scope) not in lacking and (part_of(scope) == one.part or _hears(scope, one.part))
        ]


def _named(one: _Open, others: Sequence[Scope]) -> Iterator[tuple[str, list[Scope]]]:
    """What reaches all who lack a fact, and no others: a name for all, else one for each role, else one for each place."""
    groups = [one.scopes]
    for next_key in (_role, _home, None):
        left = []
        for scopes in groups:
            at = _reach(one.part, scopes, others)
            if at is None and next_key is not None:
                left += _grouped(scopes, next_key)
            else:
                yield one.part if at is None else at, scopes
        groups = left


def _role(scope: Scope) -> str:
    return scope.words[-1] if scope.words else ""


def _home(scope: Scope) -> str:
    return str(scope.block.home)


def _grouped(scopes: Iterable[Scope], key: Callable[[Scope], str]) -> list[list[Scope]]:
    groups: dict[str, list[Scope]] = {}
    for scope in scopes:
        groups.setdefault(key(scope), []).append(scope)
    return list(groups.values())


def _reach(part: str, scopes: Sequence[Scope], others: Sequence[Scope]) -> str | None:
    """What to narrow an answer to: the part, or less of it where other blocks of it know the fact; None: nothing does."""
    return next((at for at in _places(part, scopes) if _tells(at, scopes, others)), None)


def doc_of(facts: Facts, name: str) -> str:
    """What a fact is, in a line, as the vocabulary says it, or a family whose own it is."""
    if name == FLOW:
        return "which of these a block computes; mapper rules list --markdown says what each is"
    tables = (
        facts.declared.common,
        facts.declared.unlisted,
        *(family.facts for family in facts.families.everything),
    )
    return next((rule.doc for table in tables for rule in table.get(name, ()) if rule.doc), "")


def _is_of_whole(facts: Facts, name: str) -> bool:
    """Whether nothing but the top of a config says a fact."""
    rules = (
        rule for table in (facts.declared.common, facts.declared.unlisted) for rule in table.get(name, ())
    )
    fields = [field for rule in rules for field in rule.config]
    return bool(fields) and all(field.startswith("/") for field in fields)


def _candidates(one: _Open) -> tuple[Any, ...]:
    """What a fact could be; nothing, where only one of many values is known to occur."""
    values = tuple(one.among.values())
    return values if one.is_complete or len(values) > 1 else ()


def _written(value: Any) -> str:
    return json.dumps(value, default=str)  # true is not 1


def part_of(scope: Scope) -> str:
    """What `--set` narrows a fact of a block to: its tower, if that has a name."""
    tower = scope.tower.block.role if scope.tower else "tower"
    return "" if tower == "tower" else tower


def _tells(at: str, scopes: Iterable[Scope], others: Iterable[Scope]) -> bool:
    """Whether an answer for a place is heard by the first, and by none of the second."""
    return all(_hears(scope, at) for scope in scopes) and not any(_hears(scope, at) for scope in others)


def _hears(scope: Scope, at: str) -> bool:
    return not at or scope.matches(at)


def _places(part: str, scopes: Sequence[Scope]) -> Iterator[str]:
    """Names for where some blocks stand, the widest first: the part, their roles, their folders."""
    yield part
    words = scopes[0].words
    for count in range(1, len(words) + 1):
        if all(scope.words[-count:] == words[-count:] for scope in scopes):
            yield ".".join(words[-count:])
    homes = [scope.block.home for scope in scopes]
    for shared in (_joined([_element(home) for home in homes]), _joined(homes)):
        if shared:
            yield str(shared)


def _element(home: Place) -> Place:
    """The element of the innermost list that a folder is in."""
    last = max((at for at, word in enumerate(home) if isinstance(word, tuple)), default=len(home) - 1)
    return Place(home[: last + 1])


def _joined(homes: Sequence[Place]) -> Place | None:
    """The one folder that stands for all of these, which differ in the numbers of their last list alone."""
    last = max((at for at, word in enumerate(homes[0]) if isinstance(word, tuple)), default=None)
    if last is None:
        return homes[0] if len(set(homes)) == 1 else None
    around = {(home[:last], home[last + 1 :]) for home in homes}
    if len(around) > 1:
        return None
    parts = [home[last] for home in homes]
    numbers = sorted({index for part in parts if isinstance(part, tuple) for index in part})
    return Place((*homes[0][:last], tuple(numbers), *homes[0][last + 1 :]))
