"""Facts of a block: what every source of evidence says, the strongest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any

from mapper.inference.computed import INDEX, calculate, follows, formula, sources
from mapper.inference.config import Config
from mapper.inference.entries import from_field, goes_by_form, is_silent
from mapper.inference.evidence import Chain, Known, named, origin, weakest
from mapper.inference.hints import DEFAULT, Given
from mapper.inference.leaf_conditions import counted, leaves_fit
from mapper.inference.marking import mark
from mapper.inference.memory import Memory
from mapper.inference.observed import in_all_layers
from mapper.inference.scopes import Scope, sizes_below
from mapper.rulebook.declared import FLOW
from mapper.rulebook.facts import TYPE, UNSET, FactRule, types_beside
from mapper.rulebook.values import checked, is_number

if TYPE_CHECKING:
    from mapper.checkpoint import Observed
    from mapper.inference.families import Families
    from mapper.inference.names import Names
    from mapper.rulebook.rulebook import Rulebook


class Facts:
    """Answers what is known about a block; remembers what it answered."""

    def __init__(
        self,
        rulebook: Rulebook,
        families: Families,
        config: Config,
        names: Names,
        extra: Iterable[str] = (),
    ):
        self.config, self.names = config, names
        self.given: Sequence[Given] = ()
        self.observed: dict[str, dict[str, list[Observed]]] = {}  # by fact, and path of the leaf
        self.heard: set[str] = set()  # the hints that something in the model rests on
        self.families = families
        self.common = rulebook.config_vocabulary.facts
        self.unlisted = rulebook.config_vocabulary.unlisted
        tables = (self.common, self.unlisted, *(family.facts for family in families.everything))
        by_library = families.are_known_by_names
        self.unassumed = frozenset() if by_library else rulebook.config_vocabulary.unassumed
        self.usual = rulebook.config_vocabulary.usual
        self.types = dict(rulebook.config_vocabulary.types)
        for family in families.everything:
            self.types |= types_beside(self.types, family.facts)
        self.types.setdefault(FLOW, "text")
        for name in extra:  # facts that only flows name
            self.types.setdefault(name, "any")
        self.apart: dict[str, str] = {}  # facts that tell equal elements apart, with the role of their lists
        for table in tables:
            self.apart |= table.apart
        self.used: dict[tuple[Scope, str], tuple[Scope, str, Known]] = {}
        self._memory = Memory()
        self._full: dict[tuple[str, str, str], str] = {}  # role and kind of a block, name -> full name
        self._shared: dict[Scope, Mapping[str, Known]] = {}
        self.settled = False
        # facts of scopes whose type's default the shapes contradict
        self.denied: set[tuple[Scope, str]] = set()
        self.defaults = True
        self.is_trial = False  # whether the families are tried on a config that may not have their fields
        # facts being asked for, each with how many are around it
        self._open: dict[tuple[Scope, str], int] = {}
        self._cut = 0  # the outermost of them that a cycle led back to

    def as_of(self, families: Families, defaults: bool = True) -> Facts:
        """The same facts as if other families read the checkpoint; sizes and what the user said stay.

        Without `defaults`, a config that is silent about what could be switched on has not switched it on.
        """
        other = copy(self)
        other.families, other.defaults, other.is_trial = families, defaults, True
        for family in families.everything:
            other.types = types_beside({}, family.facts) | other.types
        other.used, other._memory, other._shared, other._open = {}, Memory(), {}, {}
        other._full = {}
        return other

    def full_name(self, scope: Scope, name: str) -> str:
        """`heads` as an attention's flow writes it is the fact attention.heads, if that is declared."""
        key = scope.block.role, scope.block.kind, name
        if key not in self._full:
            words = (f"{prefix}.{name}" for prefix in key[:2])
            self._full[key] = next((word for word in words if word in self.types), name)
        return self._full[key]

    def get(self, scope: Scope, name: str) -> Known | None:
        """The strongest that is known of a fact (by its full name) for a block; None if nothing is."""
        memory = self._memory.of(scope).known
        if name not in memory:
            key, depth = (scope, name), len(self._open)
            if key in self._open:
                self._cut = min(self._cut, self._open[key])
                return None  # a rule whose expression leads back to itself says nothing
            self._open[key] = depth
            before, self._cut = self._cut, depth
            known = next(self._considered(scope, name), None)
            del self._open[key]
            if self._cut < depth:  # a cycle cut short on the way to another fact must not be remembered
                self._cut = min(before, self._cut)
                return known
            self._cut = before
            memory[name] = known
        return memory[name]

    def chain(self, scope: Scope, name: str, at: str) -> Chain:
        """Everything that speaks about a fact, for `--why`."""
        return Chain(name, at, list(self._considered(scope, name)))

    def same_as(self, scope: Scope, name: str) -> str:
        """The fact that a fact is the same as by a rule, where nothing but shapes says what it is; "" for none."""
        shown = list(self._from_shapes(scope, name))
        others = (known for known in self._considered(scope, name) if known not in shown)
        rule = next((known.by for known in others), None)
        text = str(rule.expr) if rule and rule.expr else ""
        return self.full_name(scope, text) if text in self.types else ""

    def solved(self, scope: Scope, name: str, known: Known) -> None:
        """Settle a size of a block: what its shapes and its other facts show."""
        scope.solved[name] = known
        self.forget(scope)

    @contextmanager
    def supposing(self, scope: Scope, said: Mapping[str, Known]) -> Iterator[None]:
        """What is asked inside is answered as if this were known; outside nothing of it is remembered."""
        kept = dict(scope.solved), self.used, self._memory, self._shared
        self.used, self._memory, self._shared = dict(self.used), Memory(), {}
        scope.solved.update(said)
        try:
            yield
        finally:
            scope.solved.clear()
            before, self.used, self._memory, self._shared = kept
            scope.solved.update(before)

    def forget(self, scope: Scope) -> None:
        """Drop what was asked about a scope that will not last, or of which something else is known now."""
        self._memory.forget(scope)

    def deny(self, scope: Scope, name: str) -> None:
        """The default that a type has for a fact is none for this block: nobody knows it, unless others say."""
        self.denied.add((scope, name))
        self.forget(scope)

    def settle(self) -> None:
        """All sizes are settled: drop the answers that were given before."""
        self.settled = True
        self._memory = Memory()

    def use(self, scope: Scope, name: str, known: Known) -> None:
        """Note that the model depends on a fact, and mark the fields of the config behind it as read."""
        self.used.setdefault((scope, name), (scope, name, known))
        self.ask(scope, name)

    def ask(self, scope: Scope, name: str) -> None:
        """Note that the model depends on a fact, known or not: the fields of the config behind it are read."""
        marked = self._memory.of(scope).marked
        if name not in marked:
            mark(self, scope, name, marked)

    def rules(self, scope: Scope, name: str) -> list[FactRule]:
        """The rules that speak about a fact here: those of the families, and of the vocabulary's what they leave open."""
        memory = self._memory.of(scope).rules
        if name in memory:
            return memory[name]
        before, self._cut = self._cut, len(self._open)
        found = self._speaking(scope, name)
        if self._cut == len(self._open):  # no condition was cut short by a cycle, as in `get`
            memory[name] = found
        self._cut = min(before, self._cut)
        return found

    def _speaking(self, scope: Scope, name: str) -> list[FactRule]:
        unlisted = self._unlisted(scope, name)  # of most facts none
        first = [rule for rule in unlisted if self._applies(rule, scope, None)] if unlisted else []
        if any(rule.is_constant for rule in first):
            return first
        silent = any(rule.silent for rule in first)
        said: list[FactRule] = []
        common = self.common.get(name, ())
        for model_type, level in (*self.families.facts(scope, name), (None, common)):
            rules = [rule for rule in level if rule.is_everywhere or self._applies(rule, scope, model_type)]
            if not rules:
                continue
            if silent or any(rule.is_about_fields and self._is_heard(rule, scope) for rule in said):
                rules = [rule if rule.at else rule.without_fields for rule in rules]
            if level is not common and self._is_in_common_field(scope, name):
                rules = [rule for rule in rules if not rule.is_constant or not is_number(rule.value)]
            said += rules
            if any(rule.is_constant for rule in rules):
                break  # a constant: no config is asked
        return first + said

    def _is_heard(self, rule: FactRule, scope: Scope) -> bool:
        """Whether it says which fields speak: a family that names alone show does not, where the config has none of its own."""
        is_known = not rule.config or not self.config.is_of_a_class or not self.families.are_of_names(scope)
        return is_known or bool(self.config.find(rule, scope))

    def _is_in_common_field(self, scope: Scope, name: str) -> bool:
        """Whether a config of another class than the family's says what every class has, in a field that is common to most."""
        if name not in self.usual or not self.config.is_of_a_class or not self.families.are_of_names(scope):
            return False
        return any(self.config.find(rule, scope) for rule in self.common.get(name, ()) if rule.config)

    def _unlisted(self, scope: Scope, name: str) -> tuple[FactRule, ...]:
        """What holds for a type that no family lists, before what a family says whose names alone fit.

        A tower of a listed type has only what the whole says of all of it, and how it reads the tower. One of a type that
        nobody lists has, beside what the family of its names says, what is known where such a tower stands.
        """
        rules = self.unlisted.get(name, ())
        if not rules or not self.families.speak_for(scope):
            return rules
        if self.families.goes_by_names(scope):
            return rules
        if self.families.is_in_stranger(scope) and scope.parent is None:
            return rules
        if self.families.is_in_part_of_stranger(scope) and self._is_of_whole(name, rules):
            return rules
        if self.families.stranger(scope):
            return tuple(rule for rule in rules if rule.at or name not in self.common)
        if not self.families.are_vouched_for:
            return tuple(rule for rule in rules if rule.by_whole)
        return ()

    def _is_of_whole(self, name: str, rules: Iterable[FactRule]) -> bool:
        """Whether the top of a config says a fact, wherever it holds."""
        every = (*rules, *self.common.get(name, ()))
        return any(field.startswith("/") for rule in every for field in rule.config)

    def is_convention(self, known: Known, name: str) -> bool:
        """Whether the vocabulary says a value of all types that no family lists."""
        return _is_one_of(known.by, self.unlisted.get(name, ()))

    def is_common(self, known: Known, name: str) -> bool:
        """Whether no family gave a value."""
        return _is_one_of(known.by, self.common.get(name, ()))

    def every_rule(self, scope: Scope, name: str) -> Iterator[FactRule]:
        """The same with those that do not hold here."""
        yield from self._unlisted(scope, name)
        for _, level in self.families.facts(scope, name):
            yield from level
        yield from self.common.get(name, ())

    def holds(self, rule: FactRule, scope: Scope) -> bool:
        """Whether what a rule of the vocabulary asks of other facts is so for a block."""
        return self._applies(rule, scope, self.config.model_type)

    def doubt(self, scope: Scope, name: str) -> FactRule | None:
        """The rule that says why a fact is unknown here, unless a rule before it knows; what its fields say may be the answer."""
        found = self._doubt(scope, self.rules(scope, name))
        return self.config.offered(found, scope) if found else None

    def _doubt(self, scope: Scope, rules: Iterable[FactRule]) -> FactRule | None:
        doubts = [rule for rule in rules if rule.doubt]
        if not doubts:
            return None
        return next((rule for rule in doubts if self._has_names(rule, scope)), None)

    def _has_names(self, rule: FactRule, scope: Scope) -> bool:
        """Whether the names that a rule asks for are there: what a tower holds says nothing about another."""
        tower = scope.tower
        around = (tower.block.home, tower.towers_inside) if tower else ()
        return self.names.fit(rule.has, rule.lacks, *around)

    def _applies(self, rule: FactRule, scope: Scope, model_type: str | None) -> bool:
        """Whether a rule holds for a block; `model_type` is what its family goes by, None for the vocabulary's."""
        if rule.is_everywhere:
            return True
        if not scope.is_below(rule.at):
            return False
        if not leaves_fit(rule, scope):
            return False
        for name, allowed in rule.when.items():
            if name == TYPE and model_type in allowed:
                continue
            known = self.get(scope, self.full_name(scope, name))
            if known is None or known.problem or known.value not in allowed:
                return False
        return True

    def from_config(self, scope: Scope, name: str, listed_only: bool = False) -> Iterator[Known]:
        """What the config says, field by field; `listed_only`: in fields with one value for each element of a list."""
        rules = self.rules(scope, name)
        yield from self._in_config([rule for rule in rules if rule.per or not listed_only], scope)

    def _in_config(self, rules: Iterable[FactRule], scope: Scope) -> Iterator[Known]:
        """What the file says by any of the rules, then what its type has by default."""
        asked = [rule for rule in rules if (rule.config or rule.towers) and not rule.doubt]
        if not asked:
            return
        found = [(rule, item) for rule in asked for item in self.config.find(rule, scope)]
        found = [
            (rule, item)
            for rule, item in found
            if not (rule.per and item.value == []) and not is_silent(rule, item.value)
        ]  # left to the default
        is_said = False
        for rule, item in sorted(found, key=lambda pair: bool(pair[1].default_of)):
            if is_said and goes_by_form(rule):
                continue  # a network's name says what its kind has, a field beside it what this one has
            if not item.default_of or (scope, rule.name) not in self.denied:
                is_said = True
                yield from_field(rule, item, scope, self.types.get(rule.name, "any"))

    def _look_up(self, rules: Iterable[FactRule], scope: Scope) -> None:
        """Note which fields of the config speak here, though a stronger one may settle it."""
        for rule in rules:
            if rule.config or rule.towers:
                self.config.find(rule, scope)

    def stated(self, scope: Scope, name: str) -> Known | None:
        """What the user said of a fact here."""
        told = self.told(scope, name) if self.given else None
        if told is None:
            return None
        return Known(told.value, told.evidence, told.source, shown=told.evidence == DEFAULT)

    def told(self, scope: Scope, name: str) -> Given | None:
        """The hint that says a fact here."""
        fitting = (item for item in self.given if item.name == name)
        return next((item for item in fitting if not item.at or scope.matches(item.at)), None)

    @property
    def unheard(self) -> dict[str, str]:
        """The hints that nothing in the model rests on, as they were written, each with its name."""
        return {item.source: item.key for item in self.given if item.source not in self.heard}

    def observe(self, observed: Iterable[Observed]) -> None:
        """Hear what a graph shows of its layers."""
        for one in observed:
            self.observed.setdefault(one.fact, {}).setdefault(one.leaf, []).append(one)

    def from_graph(self, scope: Scope, name: str) -> Iterator[Known]:
        """What the graph shows alike of all layers of a block of which it shows anything, in each that it stands for."""
        if name in self.observed:
            yield from in_all_layers(self.observed[name], scope)

    def _considered(self, scope: Scope, name: str) -> Iterator[Known]:
        stated = self.stated(scope, name)
        if stated:
            yield stated
        part = self.families.part(scope) if name == TYPE and scope.tower else None
        if part and part.is_listed:
            yield Known(part.model_type, "name", f"names of family {part.family.name}")
        yield from self._from_shapes(scope, name)
        rules = self.rules(scope, name)
        doubt = self._doubt(scope, rules)
        if doubt:
            rules = rules[: rules.index(doubt)]
        if name in self.observed:
            if not any(known.evidence == "config" for known in self._in_config(rules, scope)):
                yield from self.from_graph(scope, name)
        else:
            self._look_up(rules, scope)
        of_part = [rule for rule in rules if rule.at]  # before what is said of all
        yield from self._said(of_part, scope)
        yield from self._said([rule for rule in rules if not rule.at] if of_part else rules, scope)

    def _said(self, rules: Sequence[FactRule], scope: Scope) -> Iterator[Known]:
        """What rules say of a block: the config's fields, names that are there, constants, defaults."""
        if not rules:
            return
        yield from self._in_config(rules, scope)
        yield from self._shown(rules, scope)
        is_open = False  # what a family calculates it from is unknown: what holds in general may be wrong
        for rule in rules:
            if is_open and self._is_general(rule):
                return
            if rule.is_constant:
                yield Known(rule.value, "rule", origin(rule), rule=rule.place, by=rule)
            elif sources(rule):
                known = self.calculated(rule, scope)
                if known:
                    yield known
                is_open = is_open or not (
                    known or self.is_trial or self._is_general(rule) or self._has_bases(rule, scope)
                )
        silent = not self.defaults and any(rule.config or rule.towers for rule in rules)
        if not self.config.data and rules and rules[0].name in self.unassumed:
            return  # a default is of a config that leaves a field out, not of none
        for rule in rules:
            is_heard = not (is_open and self._is_general(rule)) and not self._is_of_another_class(rule, scope)
            if rule.default is not UNSET and is_heard and not (silent and rule.default not in (None, False)):
                yield Known(rule.default, "default", origin(rule), rule=rule.place, by=rule)

    def _shown(self, rules: Sequence[FactRule], scope: Scope) -> Iterator[Known]:
        """What names that are there say, and extents of tensors."""
        for rule in rules:
            if rule.by_names and self._has_names(rule, scope):
                evidence = "shape" if rule.as_long or rule.square else "name"
                yield Known(rule.value, evidence, named(rule), rule=rule.place, by=rule)
        for rule in rules:
            if rule.is_counted:
                yield from counted(rule, scope, self.names)

    def _is_of_another_class(self, rule: FactRule, scope: Scope) -> bool:
        """Whether a default switches on what the config of a type that no family lists has no field for.

        A class that has the option has its field; the family that names alone show speaks of another one.
        """
        if not self.config.is_of_a_class or self.is_trial or rule.name in self.usual:
            return False
        if not (rule.config or rule.towers) or rule.default in (None, False) or self._is_general(rule):
            return False
        return self.families.are_of_names(scope)

    def _has_bases(self, rule: FactRule, scope: Scope) -> bool:
        """Whether all that a rule calculates from is known, though no value comes of it."""
        return all(self.get(scope, self.full_name(scope, name)) for name in sources(rule))

    def formula_ahead(self, scope: Scope, name: str) -> str:
        """The formula of a fact that follows from sizes which are not solved yet, and so has some value; "" for any other."""
        for rule in self.rules(scope, name):
            if rule.doubt or rule.value is not UNSET:
                return ""
            if sources(rule):
                return "" if self._has_bases(rule, scope) else formula(rule)
        return ""

    def _is_general(self, rule: FactRule) -> bool:
        """Whether a rule is the vocabulary's, not a family's."""
        return any(rule.place == other.place for other in self.common.get(rule.name, ()))

    def _from_shapes(self, scope: Scope, name: str) -> Iterator[Known]:
        """What was settled for the block, for one around it, or alike for all blocks below one of these."""
        for outer in scope.up():
            known = outer.solved.get(name) or (self._below(outer).get(name) if self.settled else None)
            if known:
                yield known
            if known or outer is scope.tower:
                break
        else:
            return
        if not known and scope.tower and scope.tower.parent:
            yield from self._around(scope.tower.parent, name)

    def _around(self, scope: Scope, name: str) -> Iterator[Known]:
        """What was settled for the blocks around a tower, without those of other towers."""
        yield from [outer.solved[name] for outer in scope.up() if name in outer.solved][:1]

    def _below(self, scope: Scope) -> Mapping[str, Known]:
        """Sizes that have one value in all blocks below; known once all sizes are."""
        if scope not in self._shared:
            self._shared[scope] = sizes_below(scope)
        return self._shared[scope]

    def calculated(self, rule: FactRule, scope: Scope) -> Known | None:
        values: dict[str, Any] = {}
        evidences = ["rule"]
        for name in sources(rule):
            if name == INDEX:
                values[name] = scope.number_at(rule.at)
                continue
            full = self.full_name(scope, name)
            known = self.get(scope, name if full == rule.name else full)
            if known and known.problem and rule.shared and scope.tower:
                known = self.get(scope.tower, full)  # equal elements that differ have nothing in common
            if known is None or known.problem:
                return known  # nothing follows from a field that holds nonsense
            values[name] = known.value
            evidences.append(known.evidence)
        try:
            value = checked(
                calculate(rule, values, scope.index_of(rule.over)), self.types.get(rule.name, "any")
            )
        except ValueError:
            return None  # does not divide: the sizes report it with its keys
        return follows(rule, values, value, weakest(evidences))


def _is_one_of(by: FactRule | None, rules: Iterable[FactRule]) -> bool:
    """Whether these have an equal rule, of which few stand on the same line."""
    return by is not None and any(rule is by or (rule.line == by.line and rule == by) for rule in rules)
