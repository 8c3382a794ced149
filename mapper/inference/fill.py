"""Facts into blocks and leaves, and the list of them for the report."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mapper.architecture import EVIDENCE, Fact, Leaf, Question
from mapper.errors import ArchitectureError, shorten
from mapper.flows.flow import Flow
from mapper.inference.facts import Facts, leaf_scope
from mapper.inference.known import Known
from mapper.inference.nearest import part_of
from mapper.inference.needs import Needs
from mapper.inference.scopes import TOWER_LISTS, Scope, list_totals, starred
from mapper.inference.sizes import Sizes
from mapper.inference.twins import OFFSET, Twins
from mapper.rulebook.declared import declared

if TYPE_CHECKING:
    from mapper.rulebook.rulebook import Rulebook

_LEAF_FACTS = {
    "Norm": ("eps", "groups"),
    "Conv": ("stride", "padding", "dilation", "groups"),
    "Transpose": ("output_padding",),
}
_REQUIRED = ("norm.eps",)
_SCALED = ("RMSNorm", "LayerNorm")
_PREFIXES = {"Norm": "norm", "Conv": "convolution", "Transpose": "convolution"}


class Filler:
    """Puts facts where flows read them; gathers what is unknown."""

    def __init__(self, root: Scope, facts: Facts, rulebook: Rulebook, twins: Twins | None = None):
        self.facts, self.rulebook, self.twins = facts, rulebook, twins
        self.totals = list_totals(root)
        self.unknown: dict[tuple[str, str], str | Question] = {}  # by fact and part
        self.lost: list[Fact] = []

    @property
    def missing(self) -> list[str]:
        return list(map(str, self.unknown.values()))

    @property
    def questions(self) -> list[Question]:
        return [item for item in self.unknown.values() if isinstance(item, Question)]

    def block(self, scope: Scope, flow: Flow, needs: Needs, sizes: Sizes | None) -> None:
        """Give a block every fact and size symbol that its flow uses, its leaves their constructor arguments."""
        candidates = sizes.unknown() if sizes else {}
        symbols = list(sizes.names) if sizes else []
        counted = [name for name in TOWER_LISTS if name in scope.solved]  # how many there are is a size, too
        for name in dict.fromkeys((*symbols, *needs.facts, *counted)):
            full = self.facts.full_name(scope, name)
            known = self.facts.get(scope, full)
            if known is None and name in symbols and full not in candidates:
                continue  # follows from what is asked for
            if known is None:
                doubt = self.facts.doubt(scope, full)
                among = candidates.get(full) or (doubt.among if doubt else ()) or flow.rule.values.get(name)
                self.ask(scope, full, among or self.candidates(scope, full))
            elif not self.is_open(scope, full, known):
                scope.block.facts[name] = self.settle(scope, full, known)
        for name in flow.rule.when:  # what chose the flow is part of the reading
            full = self.facts.full_name(scope, name)
            known = self.facts.get(scope, full)
            if known is not None and not self.is_open(scope, full, known):
                self.settle(scope, full, known)
        self.leaves(scope)
        for inner in scope.children:
            if inner.block.flow is None and inner.block.role in flow.reached:
                self.leaves(inner)

    def leaves(self, scope: Scope) -> None:
        for value in scope.block.roles.values():
            for leaf in value if isinstance(value, list) else [value]:
                if isinstance(leaf, Leaf):
                    self.leaf(scope, leaf)

    def settle(self, scope: Scope, name: str, known: Known) -> Fact:
        if known.problem:
            at = starred(scope.block.home, self.totals)
            raise ArchitectureError(known.problem, fact=name, at=at)
        if self.facts.types.get(name) == "activation" and known.value not in self.rulebook.activations:
            text = f"{name} is {shorten(str(known.value))} ({known.source}), which vocabulary/activations.yaml does not have"
            self.unknown.setdefault((name, ""), text)
        self.facts.use(scope, name, known)
        return known.fact(name, starred(scope.block.home, self.totals))

    def candidates(self, scope: Scope, name: str) -> list[Any]:
        """What listed types of the same names say of a fact that nothing here says."""
        return self.twins.differ(scope, name, None) if self.twins else []

    def is_open(self, scope: Scope, name: str, known: Known, leaf: Leaf | None = None) -> bool:
        """Whether listed types of the same names differ in a fact that nothing here shows; then it is asked for."""
        values = self.twins.differ(scope, name, known, leaf) if self.twins else []
        if values:
            self.facts.ask(scope, name)
            self.ask(scope, name, values)
        return bool(values)

    def ask(self, scope: Scope, name: str, candidates: Iterable[Any]) -> None:
        """Note an unknown fact, once for each tower, with what it could be."""
        part, among = part_of(scope), tuple(candidates)
        kind = self.facts.types.get(name)
        if len(among) < 2 and kind in ("flag", "text"):  # what one flow takes alone is no choice
            among = (True, False) if kind == "flag" else tuple(declared(self.rulebook, name))
        at = starred(scope.block.home, self.totals)
        self.unknown.setdefault((name, part), Question(name, at, among, part))

    def leaf(self, scope: Scope, leaf: Leaf) -> None:
        inner = leaf_scope(scope, leaf)
        for part, arguments in _LEAF_FACTS.items():
            if part not in leaf.kind:
                continue
            for argument in arguments:
                name = f"{_PREFIXES[part]}.{argument}"
                known = self.facts.get(inner, name) if name in self.facts.types else None
                if known is not None and not self.is_open(inner, name, known):
                    leaf.facts[argument] = self.settle(inner, name, known)
                elif known is None and name in _REQUIRED:
                    self.ask(inner, name, self.candidates(inner, name))
        if leaf.kind in _SCALED and leaf.form == "plain":
            self.form(inner, leaf)

    def form(self, scope: Scope, leaf: Leaf) -> None:
        """Whether a norm scales by 1 + weight, where no family says what its names mean."""
        known, doubt = self.facts.get(scope, OFFSET), self.facts.doubt(scope, OFFSET)
        plain = known or Known(False, "default", "as stored")
        if known is None and doubt is not None:
            self.ask(scope, OFFSET, doubt.among)
        elif (
            not self.is_open(scope, OFFSET, plain, leaf) and known and self.settle(scope, OFFSET, known).value
        ):
            leaf.form = "offset"

    def findings(self) -> list[str]:
        """Fields of the config that speak of the same fact and disagree."""
        found: dict[str, None] = {}
        for scope, name, known in self.facts.used.values():
            if known.evidence == "config":
                for other in self.facts.from_config(scope, name):
                    if other.evidence == "config" and not other.problem and other.value != known.value:
                        found[
                            f"config {known.source} says {name} is {known.value!r}, config {other.source} says {other.value!r}"
                        ] = None
        return list(found)

    def report(self) -> list[Fact]:
        """Every fact once for each tower and value, with the scope that it holds in."""
        groups: dict[tuple[str, int, str], list[tuple[Scope, Known]]] = {}
        for scope, name, known in self.facts.used.values():
            key = (name, id(scope.tower), json.dumps(known.value, default=str))
            groups.setdefault(key, []).append((scope, known))
        facts = []
        for (name, _, _), members in groups.items():
            scope, known = min(members, key=lambda member: EVIDENCE.index(member[1].evidence))
            at = _common([starred(inner.block.home, self.totals) for inner, _ in members])
            facts.append(known.fact(name, at))
            considered = self.facts.chain(scope, name, at).considered
            self.lost += [other.fact(name, at) for other in considered if other != known]
        return facts


def _common(places: list[str]) -> str:
    """The lowest scope around all of these."""
    shared = places[0].split(".")
    for place in places[1:]:
        words = place.split(".")
        length = 0
        while length < min(len(shared), len(words)) and shared[length] == words[length]:
            length += 1
        shared = shared[:length]
    return ".".join(shared) or "*"
