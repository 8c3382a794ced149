"""Facts of a block: what every source of evidence says, the strongest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from mapper.inference.by_rules import ByRules, Trial
from mapper.inference.computed import formula, sources
from mapper.inference.config import Config
from mapper.inference.declared_facts import DeclaredFacts
from mapper.inference.evidence import Chain, Known
from mapper.inference.hints import Given, GivenHints
from mapper.inference.marking import mark
from mapper.inference.memory import Memory, Pending
from mapper.inference.observed import in_all_layers
from mapper.inference.scopes import Scope, Settled
from mapper.inference.speaking import Speaking
from mapper.rulebook.facts import TYPE, UNSET, FactRule

if TYPE_CHECKING:
    from mapper.checkpoint import Observed
    from mapper.inference.families import Families
    from mapper.inference.names import Names


class OfLayer(NamedTuple):
    """What is known of a fact of one layer of a chain, beside what is known of it as of any block."""

    told: Given | None  # what a user said of that layer
    shown: Iterable[Known]  # what its own code, names and shapes show, and what is usual of such a layer
    default: Known | None
    is_apart: bool = False  # whether nothing that is said of all layers is of it


class Facts:
    """Answers what is known about a block; remembers what it answered."""

    def __init__(
        self,
        declared: DeclaredFacts,
        families: Families,
        config: Config,
        names: Names,
        hints: GivenHints | None = None,
        observed: Mapping[str, Mapping[str, list[Observed]]] | None = None,
    ):
        self.declared, self.families, self.config, self.names = declared, families, config, names
        self.hints = hints or GivenHints()
        self.observed = observed or {}  # what a graph shows, by fact and path of the leaf
        self.used: dict[tuple[Scope, str], tuple[Scope, str, Known]] = {}
        self.settled = Settled()
        # facts of scopes whose type's default the shapes contradict
        self.denied: set[tuple[Scope, str]] = set()
        self._memory, self._pending = Memory(), Pending()
        self._ask_rules(None)

    def _ask_rules(self, trial: Trial | None) -> None:
        self.speaking = Speaking(self.declared, self.families, self.config, self.names, self.get)
        self.by_rules = ByRules(self.speaking, self.denied, trial)

    def as_of(self, families: Families, has_defaults: bool = True) -> Facts:
        """The same facts as if other families read the checkpoint; sizes and what the user said stay.

        Without defaults, a config that is silent about what could be switched on has not switched it on.
        """
        other = copy(self)
        other.families, other.declared = families, self.declared.beside(families)
        other.used, other.settled = {}, Settled(self.settled.is_complete)
        other._memory, other._pending = Memory(), Pending()
        other._ask_rules(Trial(has_defaults))
        return other

    # ----------------------------------------------------------------------------------------------- what is known
    def full_name(self, scope: Scope, name: str) -> str:
        """`heads` as an attention's flow writes it is the fact attention.heads, if that is declared."""
        return self.declared.full_name(scope.block, name)

    def get(self, scope: Scope, name: str) -> Known | None:
        """The strongest that is known of a fact (by its full name) for a block; None if nothing is."""
        known = self._memory.of(scope).known
        if name in known:
            return known[name]
        return self._pending.fact(scope, name, self._first, known)

    def chain(self, scope: Scope, name: str, at: str) -> Chain:
        """Everything that speaks about a fact, for `--why`."""
        return Chain(name, at, list(self._considered(scope, name)))

    def same_as(self, scope: Scope, name: str) -> str:
        """The fact that a fact is the same as by a rule, where nothing but shapes says what it is; "" for none."""
        shown = list(self.settled.of(scope, name))
        others = (known for known in self._considered(scope, name) if known not in shown)
        rule = next((known.by for known in others), None)
        text = str(rule.expr) if rule and rule.expr else ""
        return self.full_name(scope, text) if text in self.declared.types else ""

    def rules(self, scope: Scope, name: str) -> list[FactRule]:
        """The rules that speak about a fact here: those of the families, and of the vocabulary's what they leave open."""
        rules = self._memory.of(scope).rules
        if name in rules:
            return rules[name]
        return self._pending.rules(scope, name, self.speaking.rules, rules)

    def doubt(self, scope: Scope, name: str) -> FactRule | None:
        """The rule that says why a fact is unknown here, unless a rule before it knows; what its fields say may be the answer."""
        found = self.speaking.doubt(scope, self.rules(scope, name))
        return self.config.offered(found, scope) if found else None

    def from_config(self, scope: Scope, name: str, listed_only: bool = False) -> Iterator[Known]:
        """What the config says, field by field; `listed_only`: in fields with one value for each element of a list."""
        rules = self.rules(scope, name)
        yield from self.by_rules.in_config([rule for rule in rules if rule.per or not listed_only], scope)

    def from_graph(self, scope: Scope, name: str) -> Iterator[Known]:
        """What the graph shows alike of all layers of a block of which it shows anything, in each that it stands for."""
        if name in self.observed:
            yield from in_all_layers(self.observed[name], scope)

    def formula_ahead(self, scope: Scope, name: str) -> str:
        """The formula of a fact that follows from sizes which are not solved yet, and so has some value; "" for any other."""
        for rule in self.rules(scope, name):
            if (rule.doubt or rule.value is not UNSET) and self.speaking.has_names(rule, scope):
                return ""
            if sources(rule):
                return "" if self.by_rules.has_bases(rule, scope) else formula(rule)
        return ""

    def _first(self, scope: Scope, name: str) -> Known | None:
        return next(self._considered(scope, name), None)

    def _considered(self, scope: Scope, name: str) -> Iterator[Known]:
        """All that is known of a fact, in the order of evidence."""
        if stated := self.hints.stated(scope, name):
            yield stated
        part = self.families.part(scope) if name == TYPE and scope.tower else None
        if part and part.is_listed:
            yield Known(part.model_type, "name", f"names of family {part.family.name}")
        yield from self.settled.of(scope, name)
        rules = self.rules(scope, name)
        if doubt := self.speaking.doubt(scope, rules):
            rules = rules[: rules.index(doubt)]
        if name in self.observed:
            if not any(known.evidence == "config" for known in self.by_rules.in_config(rules, scope)):
                yield from self.from_graph(scope, name)
        else:
            self.by_rules.look_up(rules, scope)
        of_part = [rule for rule in rules if rule.at]  # before what is said of all
        yield from self.by_rules.said(of_part, scope)
        yield from self.by_rules.said([rule for rule in rules if not rule.at] if of_part else rules, scope)

    def of_layer(self, scope: Scope, name: str, layer: OfLayer) -> tuple[Known | None, Given | None]:
        """The strongest that is known of a fact of one layer of a chain, and the hint that it is.

        What that layer shows goes before what is said of all layers alike, and that before what is known of any block.
        """
        hint = layer.told
        shown = chain(self.from_graph(scope, name), layer.shown) if hint is None else iter(())
        known = next(shown, None)
        if known is None and hint is None and not layer.is_apart:
            hint = next((item for item in self.hints.of(name) if not item.at), None)
        if hint is not None:
            return Known(hint.value, "given", hint.source), hint
        return known or (None if layer.is_apart else self.get(scope, name)) or layer.default, None

    # ------------------------------------------------------------------------------------------ what becomes known
    def solved(self, scope: Scope, name: str, known: Known) -> None:
        """Settle a size of a block: what its shapes and its other facts show."""
        scope.solved[name] = known
        self.forget(scope)

    def settle(self) -> None:
        """All sizes are settled: drop the answers that were given before."""
        self.settled = Settled(is_complete=True)
        self._memory = Memory()

    def forget(self, scope: Scope) -> None:
        """Drop what was asked about a scope that will not last, or of which something else is known now."""
        self._memory.forget(scope)

    def deny(self, scope: Scope, name: str) -> None:
        """The default that a type has for a fact is none for this block: nobody knows it, unless others say."""
        self.denied.add((scope, name))
        self.forget(scope)

    @contextmanager
    def supposing(self, scope: Scope, said: Mapping[str, Known]) -> Iterator[None]:
        """What is asked inside is answered as if this were known; outside nothing of it is remembered."""
        before = dict(scope.solved), self.used, self._memory, self.settled
        self.used, self._memory, self.settled = dict(self.used), Memory(), Settled(self.settled.is_complete)
        scope.solved.update(said)
        try:
            yield
        finally:
            scope.solved.clear()
            solved, self.used, self._memory, self.settled = before
            scope.solved.update(solved)

    # -------------------------------------------------------------------------------------------- what is relied on
    def use(self, scope: Scope, name: str, known: Known) -> None:
        """Note that the model depends on a fact, and mark the fields of the config behind it as read."""
        self.used.setdefault((scope, name), (scope, name, known))
        self.ask(scope, name)

    def ask(self, scope: Scope, name: str) -> None:
        """Note that the model depends on a fact, known or not: the fields of the config behind it are read."""
        marked = self._memory.of(scope).marked
        if name not in marked and (self.config.data or self.hints.unheard):  # else nothing is left to mark
            mark(self, scope, name, marked)
