"""Flows of one block by the facts of one listed type after another: equal answers choose the same flow.

What a choice asks of facts is noted with the answers, as a tree. Of the next type's facts the same is asked, and where a
branch ends the flow is known: no page is gone through again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from mapper._dataclass import dataclass
from mapper.inference.select import choose

if TYPE_CHECKING:
    from mapper.inference.evidence import Known
    from mapper.inference.facts import Facts
    from mapper.inference.families import Families
    from mapper.inference.scopes import Scope
    from mapper.rulebook.flows import FlowRule
    from mapper.rulebook.index import FlowTable

_GET, _NAME, _AHEAD = "get", "full_name", "formula_ahead"  # what a choice asks of facts
_Query = tuple[str, str]  # one of these, and the name of a fact


class _End(NamedTuple):
    """Where a branch ends."""

    flow: FlowRule | None


@dataclass
class _Fork:
    """What is asked next, and where each answer leads."""

    query: _Query
    then: dict[str, _Fork | _End] = field(default_factory=dict)


class Choosing:
    """The flows that blocks take."""

    def __init__(self, flows: FlowTable):
        self.flows = flows
        self._trees: dict[Any, _Fork | _End] = {}  # by block, and the flows that families name for it

    def flow(self, scope: Scope, families: Families, facts: Facts) -> FlowRule | None:
        """The flow that `choose` finds, or None. Raises as it does."""
        key = scope, tuple(families.flows(scope))
        at = self._trees.get(key)
        while isinstance(at, _Fork):
            at = at.then.get(_answer(scope, facts, at.query))
        if at is not None:
            return at.flow
        noted = _Noted(scope, facts)
        found = choose(scope, self.flows, families, cast("Facts", noted)).flow
        if noted.is_all:
            self._keep(key, noted.answers, _End(found))
        return found

    def _keep(self, key: Any, answers: Mapping[_Query, str], end: _End) -> None:
        """Note the way that led to a flow."""
        table: dict[Any, _Fork | _End] = self._trees
        for query, answer in answers.items():
            at = table.setdefault(key, _Fork(query))
            if not isinstance(at, _Fork) or at.query != query:
                return  # asked otherwise than before: nothing is known
            table, key = at.then, answer
        table.setdefault(key, end)


def _answer(scope: Scope, facts: Facts, query: _Query) -> str:
    kind, name = query
    if kind == _GET:
        return _said(facts.get(scope, name))
    return str(facts.full_name(scope, name)) if kind == _NAME else str(bool(facts.formula_ahead(scope, name)))


def _said(known: Known | None) -> str:
    """All of an answer that flows are chosen by; as text, as True is another value than 1."""
    if known is None:
        return ""
    return "a problem" if known.problem else repr(known.value)


class _Noted:
    """The facts of a block, and what was asked of them."""

    def __init__(self, scope: Scope, facts: Facts):
        self.scope, self.facts = scope, facts
        self.answers: dict[_Query, str] = {}
        self.is_all = True  # whether nothing else was asked

    def get(self, scope: Scope, name: str) -> Known | None:
        known = self.facts.get(scope, name)
        self._note(scope, (_GET, name), _said(known))
        return known

    def full_name(self, scope: Scope, name: str) -> str:
        found = self.facts.full_name(scope, name)
        self._note(scope, (_NAME, name), found)
        return found

    def formula_ahead(self, scope: Scope, name: str) -> str:
        found = self.facts.formula_ahead(scope, name)
        self._note(scope, (_AHEAD, name), str(bool(found)))
        return found

    def _note(self, scope: Scope, query: _Query, answer: str) -> None:
        self.is_all &= scope is self.scope
        self.answers.setdefault(query, answer)

    def __getattr__(self, name: str) -> Any:
        self.is_all &= name == "hints"  # what a user says is the same whatever the type
        return getattr(self.facts, name)
