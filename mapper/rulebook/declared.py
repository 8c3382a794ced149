"""The values that rule files know of a fact: what flows choose by and take, what rules state, map to, or ask for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mapper.rulebook.facts import TYPE, UNSET, FactRule

FLOW = "flow"  # the fact whose values are the names of all flows

if TYPE_CHECKING:
    from mapper.rulebook.rulebook import Rulebook


_DECLARED: WeakKeyDictionary[Rulebook, dict[str, list[Any]]] = (
    WeakKeyDictionary()
)  # every rule is read for one


def declared(rulebook: Rulebook, name: str) -> list[Any]:
    """Every value that a rule file writes for a fact, in their order; empty where its words are those of configs."""
    rulebook.note_all_families()
    known = _DECLARED.setdefault(rulebook, {})
    if name not in known:
        known[name] = _declared(rulebook, name)
    return list(known[name])


def _declared(rulebook: Rulebook, name: str) -> list[Any]:
    if name == TYPE:
        return sorted({word for family in rulebook.families for word in family.model_types})
    if name == FLOW:
        return list(rulebook.flows)
    rules = rules_for(rulebook, name)
    if any(rule.entry or rule.shared for rule in rules):
        return []  # entries of a list that configs write
    flows = rulebook.flows.everything()
    keys = {name, name.rpartition(".")[2]}  # a flow says `pooling` of its block's head.pooling
    found = [
        value
        for rule in flows
        for key in keys
        for value in (*rule.when.get(key, ()), *rule.values.get(key, ()))
    ]
    found += [value for rule in rules for value in _stated(rule)]
    found += [value for rule in _every_rule(rulebook) for value in rule.when.get(name, ())]
    return [value for at, value in enumerate(found) if value is not None and value not in found[:at]]


def is_nullable(rulebook: Rulebook, name: str) -> bool:
    """Whether a rule says that a fact may be null: no window, no scaling."""
    return any(
        rule.nullable or rule.value is None or rule.default is None for rule in rules_for(rulebook, name)
    )


def rules_for(rulebook: Rulebook, name: str) -> list[FactRule]:
    """What the vocabulary and every family say about one fact."""
    vocabulary = rulebook.config_vocabulary
    tables = (vocabulary.unlisted, vocabulary.facts, *(family.facts for family in rulebook.families))
    return list(chain.from_iterable(table.get(name, ()) for table in tables))


def _every_rule(rulebook: Rulebook) -> Iterable[FactRule]:
    vocabulary = rulebook.config_vocabulary
    for table in (vocabulary.unlisted, vocabulary.facts, *(family.facts for family in rulebook.families)):
        yield from chain.from_iterable(table.values())


def _stated(rule: FactRule) -> Iterator[Any]:
    yield from (value for value in (rule.value, rule.default) if value is not UNSET)
    for value in (rule.among, rule.otherwise, list(rule.map.values())):
        yield from value if isinstance(value, (list, tuple)) else [value]
