"""Facts that follow from others: arithmetic, lists with an entry for every layer, what the entries of a list share."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from mapper.flows import arithmetic
from mapper.inference.evidence import Known
from mapper.limits import LAYERS
from mapper.rulebook.facts import FactRule

_OTHER = 1009  # times a size: another one, which whatever divides the size divides too
INDEX = "index"  # in `each`: the position in the list; in `expr`: the number at the `{n}` of `at`


def sources(rule: FactRule) -> list[str]:
    """The facts that a rule calculates from, as it names them."""
    if rule.shared is not None or rule.entry is not None:
        return [str(rule.shared or rule.entry)]
    if rule.marks is not None:
        return [rule.over, rule.marks]
    if rule.runs is not None:
        return [rule.over, rule.runs, str(rule.firsts), *([rule.factor] if rule.factor else [])]
    if rule.each is not None:
        names = [name for name in arithmetic.names(_parsed(rule, rule.each)) if name != INDEX]
        return [rule.over, *names]
    return list(arithmetic.names(_parsed(rule, rule.expr))) if rule.expr is not None else []


def formula(rule: FactRule) -> str:
    """What the rule calculates, as reports print it."""
    if rule.shared is not None:
        return f"what the entries of {rule.shared} share"
    if rule.marks is not None:
        return f"{rule.among[1]} where {rule.marks} says"
    if rule.runs is not None:
        return f"{rule.firsts} at the first of each of {rule.runs}"
    if rule.entry is not None:
        return f"the entry of {rule.entry}"
    return rule.expr or f"{rule.each} for each of {rule.over}"


def calculate(rule: FactRule, values: Mapping[str, Any], indices: tuple[int, ...] | None = None) -> Any:
    """The value, from those of `sources`, for the elements at `indices`. ValueError where there is none."""
    if rule.entry is not None:
        return _entry(rule, values[rule.entry], indices)
    if rule.shared is not None:
        return _shared(rule, values[rule.shared])
    if rule.marks is not None:
        return _marked(rule, values[rule.over], values[rule.marks])
    if rule.runs is not None:
        return _first_of_runs(rule, values)
    if rule.each is None:
        return arithmetic.evaluate(_parsed(rule, rule.expr), values)
    _check_count(rule, values[rule.over])
    node = _parsed(rule, rule.each)
    return [
        _choice(rule, arithmetic.evaluate(node, {**values, INDEX: at})) for at in range(values[rule.over])
    ]


def follows(rule: FactRule, values: Mapping[str, Any], value: Any, evidence: str) -> Known:
    """What a rule calculated, with what it rests on."""
    text = f"{rule.file}: {formula(rule)}"
    same = tuple(_equal_to(rule, values, value))
    return Known(value, evidence, text, rule=rule.place, by=rule, same_as=same)


def _equal_to(rule: FactRule, values: Mapping[str, Any], value: Any) -> Iterator[str]:
    """The facts that the result is equal to, whatever its value: `head_dim` of `floor(head_dim * fraction)` where the fraction is 1."""
    if rule.expr is None or type(value) is not int:
        return
    for name in (name for name, known in values.items() if type(known) is int and known == value):
        with suppress(ValueError):
            if calculate(rule, {**values, name: value * _OTHER}) == value * _OTHER:
                yield name


def _check_count(rule: FactRule, count: int) -> None:
    if count > LAYERS:
        raise ValueError(f"{count} {rule.over}")


def _marked(rule: FactRule, count: int, positions: Any) -> list[Any]:
    """An entry for each of `count`: the second of `among` at these positions, else the first."""
    _check_count(rule, count)
    return [rule.among[at in positions] for at in range(count)]


def _first_of_runs(rule: FactRule, values: Mapping[str, Any]) -> list[Any]:
    """An entry for each of `over`: that of its run at the first of it, `otherwise` at the rest."""
    runs, firsts, count = values[str(rule.runs)], values[str(rule.firsts)], values[rule.over]
    _check_count(rule, count)
    factor = values[rule.factor] if rule.factor else 1
    if not isinstance(runs, list) or not isinstance(firsts, list) or len(runs) != len(firsts):
        raise ValueError(f"{rule.firsts} has not one entry for each of {rule.runs}")
    lengths = [math.ceil(factor * run) for run in runs]
    if sum(lengths) != count or min(lengths) < 1:
        raise ValueError(f"{rule.runs} are {sum(lengths)} {rule.over}, not {count}")
    return [
        first if at == 0 else rule.otherwise
        for first, length in zip(firsts, lengths, strict=True)
        for at in range(length)
    ]


def _parsed(rule: FactRule, text: str | None) -> ast.expr:
    return arithmetic.parse_rule(text or "", rule.file, rule.line)


def _choice(rule: FactRule, at: Any) -> Any:
    """An entry of `among`; numbers beyond its end mean the last."""
    if not isinstance(at, int) or at < 0:
        raise ValueError(f"{at!r} is no position in a list")
    return rule.among[min(at, len(rule.among) - 1)]


def _entry(rule: FactRule, values: Any, indices: tuple[int, ...] | None) -> Any:
    if not isinstance(values, list):
        return _word(rule, values)  # the config was asked for this element alone
    if indices is None or indices[-1] >= len(values):
        raise ValueError(f"{rule.entry} has no entry for {indices}")
    items = [_item(rule, values[index]) for index in indices]
    if any(item != items[0] for item in items):
        raise ValueError(f"{rule.entry} differs between equal elements")
    return _word(rule, items[0])


def _item(rule: FactRule, entry: Any) -> Any:
    """What a rule means of an entry: one of its items where it is a list and the rule says which."""
    if rule.item is None:
        return entry
    if not isinstance(entry, list) or rule.item >= len(entry):
        raise ValueError(f"{rule.entry} has an entry without an item {rule.item}")
    return entry[rule.item]


def _word(rule: FactRule, value: Any) -> Any:
    """What a rule makes of an entry; what it does not name is its `*`, or stays."""
    return rule.map.get(str(value), rule.map.get("*", value))


def _shared(rule: FactRule, values: Any) -> Any:
    """What the entries have in common; in a block that is an element itself, its own entry."""
    entries = values if isinstance(values, list) else [values] if isinstance(values, str) else []
    counted = [value for value in entries if value not in rule.but]
    if not counted:
        raise ValueError(f"{rule.shared} is no list" + (" with an entry that counts" if entries else ""))
    return counted[0] if all(value == counted[0] for value in counted) else rule.otherwise
