"""Facts into blocks and leaves, and the list of them for the report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mapper.architecture import EVIDENCE, Fact, Leaf
from mapper.errors import ArchitectureError, shorten
from mapper.flows.flow import Flow
from mapper.inference.asking import Asked
from mapper.inference.completeness import lacking_biases
from mapper.inference.evidence import Known
from mapper.inference.facts import Facts
from mapper.inference.leaf_shapes import weight_shape
from mapper.inference.possible import possible
from mapper.inference.requirements import Needs
from mapper.inference.roots import TASK
from mapper.inference.scopes import TOWER_LISTS, Scope, leaf_scope, list_totals, starred
from mapper.inference.select import rivals
from mapper.inference.sizes import Sizes
from mapper.inference.twins import KIND, OFFSET, SCALED, Twins
from mapper.naming.kinds import SCALE_ALONE
from mapper.rulebook.declared import FLOW, declared, is_nullable
from mapper.rulebook.values import shown

if TYPE_CHECKING:
    from mapper.rulebook.flows import FlowRule
    from mapper.rulebook.rulebook import Rulebook

_LEAF_FACTS = {
    "Norm": ("eps", "groups"),
    "Conv": ("stride", "padding", "dilation", "groups"),
    "Transpose": ("output_padding",),
}
_REQUIRED = ("norm.eps",)
_GROUPED = ("GroupNorm", "groups")  # which no shape shows; a convolution's are seen in its weight
_EPS = "norm.eps"  # the fact by whose field a listed type shows that it means these norms
_SAID = ("given", "weights", "behaviour")  # evidence that no family overrules
_FORMS = {False: "plain", True: "offset"}  # of a norm, by whether it scales by 1 + weight
_PREFIXES = {"Norm": "norm", "Conv": "convolution", "Transpose": "convolution"}


class Filler:
    """Puts facts where flows read them; gathers what is unknown."""

    def __init__(
        self, root: Scope, facts: Facts, rulebook: Rulebook, asked: Asked, twins: Twins | None = None
    ):
        self.facts, self.rulebook, self.asked, self.twins = facts, rulebook, asked, twins
        self.totals = list_totals(root)
        self.unusable: dict[str, None] = {}  # what no rule can do with a value
        self.lost: list[Fact] = []

    def block(self, scope: Scope, flow: Flow, needs: Needs, sizes: Sizes | None) -> None:
        """Give a block every fact and size symbol that its flow uses, its leaves their constructor arguments."""
        candidates = sizes.unknown() if sizes else {}
        symbols = list(sizes.names) if sizes else []
        counted = [name for name in TOWER_LISTS if name in scope.solved]  # how many there are is a size, too
        for name in dict.fromkeys((*symbols, *needs.facts, *counted)):
            full = self.facts.full_name(scope, name)
            known = self.facts.get(scope, full)
            if known is not None:
                self.take(scope, name, full, known)
                continue
            follows = name in symbols and full not in candidates  # from what is asked for
            is_of_whole = full == TASK and scope.parent  # what the whole is for is asked of it alone
            is_later = name in needs.later and name not in symbols  # there may be no place for it
            if not follows and not is_of_whole and not is_later:
                self.ask_among(scope, full, candidates.get(full) or (), flow.rule.values.get(name))
        self.forks(scope, flow.rule)
        for name, allowed in flow.rule.when.items():  # what chose the flow is part of the reading
            full = self.facts.full_name(scope, name)
            known = self.facts.get(scope, full)
            if known is not None and not self.is_open(scope, full, known):
                self.settle(scope, full, known)
                self.check_taken(full, known, allowed)
        self.limits(scope, flow.rule)
        self.leaves(scope)
        for inner in scope.children:
            if inner.block.flow is None and inner.block.role in flow.reached:
                self.leaves(inner)

    def check_taken(self, name: str, known: Known, allowed: Sequence[Any]) -> None:
        """Note a value with which a flow is not for a block: what is known of it rests on what the flow is for."""
        if known.value not in allowed:
            text = f"{name} is {shorten(shown(known.value))} ({known.source}), which no flow here goes with"
            self.unusable[text] = None

    def take(self, scope: Scope, name: str, full: str, known: Known) -> None:
        """Give a block a fact that is known, unless others differ in it."""
        if known.problem and scope.block.flow is None:
            return  # of a flow that it may come to have: whether that reads it is open
        if not self.is_open(scope, full, known):
            scope.block.facts[name] = self.settle(scope, full, known)
            self.share(scope, name, full, known)

    def ask_among(self, scope: Scope, full: str, sizes: Sequence[int], values: Sequence[Any] | None) -> None:
        """Ask for a fact, with what the shapes leave of it, what a doubt or what the flow takes; else with all that there is."""
        doubt = self.facts.doubt(scope, full)
        among = sizes or (doubt.among if doubt else ()) or values
        self.ask(scope, full, among or self.candidates(scope, full), is_complete=bool(among))

    def share(self, scope: Scope, name: str, full: str, known: Known) -> None:
        """A size that is another by a rule is no size of its own: without shared heads, `kv_heads` are the `heads`."""
        other = self.facts.same_as(scope, full)
        same = self.facts.get(scope, other) if other else None
        if same is not None and not same.problem and same.value == known.value:
            scope.block.facts[name] = self.settle(scope, other, same)

    def forks(self, scope: Scope, chosen: FlowRule | None) -> None:
        """Ask for what would have chosen another flow: facts in which listed types differ, and those in doubt."""
        for name, values in (self.twins.forks(scope, chosen) if self.twins else {}).items():
            known = self.facts.get(scope, name)
            if known is None:
                doubt = self.facts.doubt(scope, name)
                self.ask(scope, name, (doubt.among if doubt else ()) or values)
                self.candidates(scope, name)  # notes who differs
            else:
                self.is_open(scope, name, known)
        families = self.facts.families
        speaks = families.speak_for(scope) and not families.is_in_stranger(scope)
        if chosen is None or (speaks and not families.are_known_by_names):
            return
        for faults in rivals(scope, chosen, self.rulebook.flows, self.facts):
            doubts = [(fault.name, self.facts.doubt(scope, fault.name)) for fault in faults]
            if all(doubt for _, doubt in doubts):
                for name, doubt in doubts:
                    self.ask(scope, name, doubt.among if doubt else ())

    def limits(self, scope: Scope, rule: FlowRule) -> None:
        """Ask for what a flow takes some values of alone, where it is in doubt."""
        for name in rule.values:
            full = self.facts.full_name(scope, name)
            doubt = self.facts.doubt(scope, full)
            if doubt and self.facts.get(scope, full) is None:
                self.ask(scope, full, doubt.among)

    def leaves(self, scope: Scope) -> None:
        for value in scope.block.roles.values():
            for leaf in value if isinstance(value, list) else [value]:
                if isinstance(leaf, Leaf):
                    self.leaf(scope, leaf)

    def settle(self, scope: Scope, name: str, known: Known) -> Fact:
        if known.problem:
            at = starred(scope.block.home, self.totals)
            raise ArchitectureError(known.problem, fact=name, at=at)
        if (
            self.facts.declared.types.get(name) == "activation"
            and known.value not in self.rulebook.activations
        ):
            text = f"{name} is {shorten(str(known.value))} ({known.source}), which vocabulary/activations.yaml does not have"
            self.unusable[text] = None
        self.facts.use(scope, name, known)
        fact = known.fact(name, starred(scope.block.home, self.totals))
        rules = self.facts.declared.common.get(name, ())
        said = next((rule.same_as for rule in rules if rule.same_as), ())
        return replace(fact, same_as=(*fact.same_as, *said)) if said else fact

    def candidates(self, scope: Scope, name: str) -> list[Any]:
        """What listed types of the same names say of a fact that nothing here says."""
        return self.twins.differ(scope, name, None) if self.twins else []

    def is_open(self, scope: Scope, name: str, known: Known, leaf: Leaf | None = None) -> bool:
        """Whether listed types of the same names differ in a fact that nothing here shows, or fields that no listed type
        has together disagree in it; then it is asked for."""
        values = self.twins.differ(scope, name, known, leaf) if self.twins else []
        if not values and not self.facts.families.are_vouched_for:
            values = self.disputed(scope, name, known)
        if (
            values and known.evidence != "config"
        ):  # a field against a shape is a contradiction, and none of this
            values = self.left_of(scope, name, known, values)
        if values:
            self.facts.ask(scope, name)
            self.ask(scope, name, values)
        return bool(values)

    def left_of(self, scope: Scope, name: str, known: Known, values: Sequence[Any]) -> list[Any]:
        """What shapes leave of several values; nothing, where that is what is known."""
        left = possible(scope, name, values, self.rulebook.flows, self.facts)
        return [] if left == [known.value] else left if len(left) > 1 else list(values)

    def disputed(self, scope: Scope, name: str, known: Known) -> list[Any]:
        """The values of a flag that fields of the config say, where they say both.

        Of other facts, fields stand one for another, the first that is there.
        """
        others = self.rivals_of(scope, name, known) if self.facts.declared.types.get(name) == "flag" else []
        return list(dict.fromkeys((known.value, *(other.value for other in others)))) if others else []

    def rivals_of(self, scope: Scope, name: str, known: Known) -> list[Known]:
        """What other fields of the config say of a fact that one says, where that is another value."""
        said = self.facts.from_config(scope, name) if known.evidence == "config" else ()
        return [
            other
            for other in said
            if other.evidence == "config" and not other.problem and other.value != known.value
        ]

    def ask(self, scope: Scope, name: str, candidates: Iterable[Any], is_complete: bool = True) -> None:
        """Note an unknown fact, with what it could be."""
        is_word = self.facts.declared.types.get(name) == "text"
        may_be_none = is_word or is_nullable(self.rulebook, name)
        among = tuple(value for value in candidates if value is not None or may_be_none)
        if name == FLOW and len(among) < 2:
            return  # what comes near is said anyway
        if len(among) < 2:  # what one flow takes alone, or one listed type has, is no choice
            among = (*among, *(value for value in self.all_values(name) if value not in among))
        self.asked.add(scope, name, among, is_complete)

    def all_values(self, name: str) -> tuple[Any, ...]:
        """All that a fact may be, where that is a closed list."""
        kind = self.facts.declared.types.get(name)
        if kind == "activation":
            return tuple(self.rulebook.activations)
        return (
            (True, False)
            if kind == "flag"
            else tuple(declared(self.rulebook, name))
            if kind == "text"
            else ()
        )

    def leaf(self, scope: Scope, leaf: Leaf) -> None:
        inner = leaf_scope(scope, leaf)
        if leaf.kind in SCALED:
            self.kind(inner, leaf)
        for part, arguments in _LEAF_FACTS.items():
            if part not in leaf.kind:
                continue
            for argument in arguments:
                name = f"{_PREFIXES[part]}.{argument}"
                known = self.facts.get(inner, name) if name in self.facts.declared.types else None
                if known is not None and not self.is_open(inner, name, known):
                    leaf.facts[argument] = self.settle(inner, name, known)
                elif argument in leaf.facts:
                    continue  # a chain knows it
                elif known is None and name in _REQUIRED:
                    self.ask(inner, name, self.candidates(inner, name), is_complete=False)
                elif known is None and (leaf.kind, argument) == _GROUPED:
                    self.ask(inner, name, _divisors(weight_shape(leaf)[0]))
        if leaf.kind in SCALED and leaf.form in _FORMS.values():
            self.form(inner, leaf)

    def kind(self, scope: Scope, leaf: Leaf) -> None:
        """Which norm it is, where its tensors do not show it and no family says what its names mean."""
        if leaf.has_bias:
            return
        known, doubt = self.facts.get(scope, KIND), self.facts.doubt(scope, KIND)
        if known:
            leaf.kind = self.settle(scope, KIND, known).value
        elif doubt and not self._know(scope, _EPS, leaf):
            self.ask(scope, KIND, doubt.among)
        elif self.twins and (values := self.twins.kinds(scope, leaf)):
            self.ask(scope, KIND, values)
        elif leaf.why.startswith(SCALE_ALONE) and leaf.kind == SCALED[0] and self._is_anyones(scope):
            self.ask(scope, KIND, SCALED)

    def _is_anyones(self, scope: Scope) -> bool:
        """Whether neither a family has the names of a part nor a listed type is like it: somebody wrote it."""
        families = self.facts.families
        if families.whole is not None or families.vouch_for_tower(scope):
            return False
        return not (self.twins and self.twins.of(scope))

    def _know(self, scope: Scope, name: str, leaf: Leaf) -> bool:
        """Whether a listed type of these names has a fact from a field that this config has: it knows what they mean.

        One whose norms all have a bias knows nothing of those without.
        """
        # what any unlisted type may have is not what the listed one knows itself
        anyones = {rule.place for rule in self.facts.declared.unlisted.get(name, ())}
        twins = self.twins.of(scope) if self.twins else []
        twins = [twin for twin in twins if not lacking_biases(twin.family, [leaf])]
        said = [twin.facts.get(scope, name) for twin in twins]
        return any(known and known.evidence == "config" and known.rule not in anyones for known in said)

    def form(self, scope: Scope, leaf: Leaf) -> None:
        """Whether a norm scales by 1 + weight, where no family says what its names mean.

        What goes with names or fields of any type comes before what a family says whose names alone fit.
        """
        known, doubt = self.facts.get(scope, OFFSET), self.facts.doubt(scope, OFFSET)
        if leaf.form == _FORMS[True]:
            if known and (self.facts.declared.is_convention(known, OFFSET) or known.evidence in _SAID):
                leaf.form = _FORMS[bool(self.settle(scope, OFFSET, known).value)]
            elif self.twins and self.twins.is_unlike(scope):
                self.ask(scope, OFFSET, (True, False))
            return
        plain = known or Known(False, "default", "as stored")
        if known is None and doubt is not None:
            self.ask(scope, OFFSET, doubt.among)
        elif (
            not self.is_open(scope, OFFSET, plain, leaf) and known and self.settle(scope, OFFSET, known).value
        ):
            leaf.form = _FORMS[True]

    def findings(self) -> list[str]:
        """Fields of the config that speak of the same fact and disagree."""
        found: dict[str, None] = {}
        for scope, name, known in self.facts.used.values():
            for other in self.rivals_of(scope, name, known):
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
            won = known.fact(name, at)
            facts.append(won)
            others = (other.fact(name, at) for other in self.facts.chain(scope, name, at).considered)
            self.lost += [replace(other, against=won.value) for other in others if other != won]
        return facts


def _divisors(count: int) -> list[int]:
    return [number for number in range(1, count + 1) if count % number == 0]


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
