"""An architecture as a JSON value: folded as it is in memory, with the flows and activations that it uses.

Emission reads nothing else: what other rules say later does not change what is made from the value. What only reports
read (why a leaf has its kind, what lost against a fact) is left out: `mapper inspect` reads it anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

from mapper.architecture import Architecture, Block, Fact, Leaf, Numbered, Place
from mapper.emission.caching import with_cache
from mapper.operations import VERSION
from mapper.rulebook.flows import FlowRule
from mapper.weights.built.decided import decided

# Of a flow, what emission reads; each is left out where it is empty.
FLOW_WORDS = {  # and what it was called up to operations of version 1
    "takes": "takes", "needs": "needs", "options": "options", "reads_elsewhere": "lends", "calls": "parts", "steps": "steps",
}  # fmt: skip
FLOW_TABLES = ("shapes", "leaves", "ties")


def as_data(architecture: Architecture, options: Mapping[str, bool]) -> dict[str, Any]:
    """The architecture with the options of `emit` as a JSON value; `mapper.weights.built.reader` reads it back."""
    if options.get("cache"):
        architecture = with_cache(architecture)
    writer = _Writer(dict(architecture.unused))
    flows: dict[str, list[Block]] = {}
    for block in (architecture.root, *architecture.root.blocks()):
        if block.flow:
            flows.setdefault(block.flow, []).append(block)
    book, checkpoint = architecture.rulebook, architecture.checkpoint
    data = {
        "operations": VERSION,
        "options": [name for name, chosen in options.items() if chosen],
        "source": checkpoint.source,
        "reading": architecture.reading,
        "family": architecture.family,
        "rules": architecture.rules,
        "notes": list(checkpoint.notes),
        "adapted": [asdict(adapter) for adapter in checkpoint.adapted],
        "findings": architecture.findings,
        "missing": architecture.missing,
        "origin": _origin(architecture),
        "dropout": asdict(architecture.dropout) if architecture.dropout else None,
        "inputs": {name: plain(spec) for name, spec in architecture.inputs.items()},
        "leaves": [writer.leaf(leaf) for leaf in architecture.leaves],
        "root": writer.block(architecture.root),
        "facts": [_fact(fact) for fact in writer.facts],
        "flows": {name: _flow(decided(book.flows[name], flows[name])) for name in sorted(flows)},
        "activations": {word: book.activations[word].expression for word in _activations(architecture)},
    }
    return {key: value for key, value in data.items() if value not in (None, "", [], {})}


def plain(value: Any) -> Any:
    """A value as JSON that tells lists from tuples, and holds what JSON has no number for."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [plain(item) for item in value]}
    if isinstance(value, Mapping):
        return {"table": [[key, plain(item)] for key, item in value.items()]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def _origin(architecture: Architecture) -> dict[str, Any]:
    origin = architecture.origin
    return {"config": plain(origin.config), "hints": plain(origin.hints), "families": origin.families}


@dataclass(eq=False)
class _Writer:
    """Leaves and facts are written once and named by their number: that they are the same ones says something."""

    unused: Mapping[str, str]  # key -> why no forward reads it
    facts: list[Fact] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)  # identity of a fact or a leaf -> its number
    leaves: int = 0

    def leaf(self, leaf: Leaf) -> dict[str, Any]:
        self.numbers[id(leaf)] = self.leaves
        self.leaves += 1
        data = {
            "place": place_data(leaf.place),
            "kind": leaf.kind,
            "tensors": {name: [info.dtype, *info.shape] for name, info in leaf.tensors.items()},
            "role": leaf.role,
            "form": None if leaf.form == "plain" else leaf.form,
            "facts": self.table(leaf.facts),
            "fixed": list(leaf.fixed),
            "unused": next((self.unused[key] for key in Leaf.keys(leaf) if key in self.unused), None),
        }
        return {key: value for key, value in data.items() if value not in (None, [], {}) or key == "place"}

    def block(self, block: Block) -> dict[str, Any]:
        data = {
            "kind": block.kind,
            "role": block.role,
            "home": place_data(block.home),
            "indices": _indices(block.indices),
            "flow": block.flow,
            "facts": self.table(block.facts),
            "drops": [[drop.way, drop.role, drop.rate] for drop in block.drops],
            "roles": {
                role: [self.item(item) for item in value] if isinstance(value, list) else self.item(value)
                for role, value in block.roles.items()
            },
        }
        return {key: value for key, value in data.items() if value not in (None, [], {})}

    def item(self, item: Leaf | Block) -> int | dict[str, Any]:
        return self.block(item) if isinstance(item, Block) else self.numbers[id(item)]

    def table(self, facts: Mapping[str, Fact]) -> dict[str, int]:
        return {name: self.number(fact) for name, fact in facts.items()}

    def number(self, fact: Fact) -> int:
        if id(fact) not in self.numbers:
            self.numbers[id(fact)] = len(self.facts)
            self.facts.append(fact)
        return self.numbers[id(fact)]


def _fact(fact: Fact) -> list[Any]:
    same = [list(fact.same_as)] if fact.same_as else []
    return [fact.name, plain(fact.value), fact.at, fact.evidence, fact.source, *same]


def place_data(place: Place) -> list[Any]:
    """A folded path: its words, and for the elements of a list their runs, as in ["layer", [[0, 11]], "output"]."""
    return [part if isinstance(part, str) else _runs(part) for part in place]


def _runs(indices: Iterable[int]) -> list[list[int]]:
    runs = groupby(enumerate(indices), key=lambda pair: pair[1] - pair[0])
    found = [[number for _, number in run] for _, run in runs]
    return [[run[0], run[-1]] if len(run) > 1 else [run[0]] for run in found]


def _indices(indices: tuple[int, ...] | None) -> Any:
    if isinstance(indices, Numbered):
        return {"number": indices[0], "word": indices.word}
    return None if indices is None else _runs(indices)


def _flow(rule: FlowRule) -> dict[str, Any]:
    data: dict[str, Any] = {"doc": rule.doc, "body": rule.body, "file": rule.file}
    data |= {key: list(getattr(rule, key)) for key in FLOW_WORDS}
    data |= {key: plain_table(getattr(rule, key)) for key in FLOW_TABLES}
    return {key: value for key, value in data.items() if value not in ([], {})}


def plain_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table of a flow: its keys are roles."""
    return {
        role: plain_table(value)
        if isinstance(value, Mapping)
        else list(value)
        if isinstance(value, tuple)
        else value
        for role, value in table.items()
    }


def _activations(architecture: Architecture) -> Iterator[str]:
    """The activations that some block names, as far as the rules have them."""
    blocks = (architecture.root, *architecture.root.blocks())
    named = {str(block.facts["activation"].value) for block in blocks if "activation" in block.facts}
    yield from sorted(named & set(architecture.rulebook.activations))
