"""The one dataclass of sizes: which facts become its fields, under which names, with which evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mapper.architecture import Architecture, Block, Fact
from mapper.emission.derived import derived
from mapper.emission.leaf_arguments import facts_of_leaf
from mapper.emission.stages import Listed, Stages, staged

# Facts of these blocks go by their last word, as in any model's configuration; others keep their block: norm_eps, rotary_base.
_PLAIN_BLOCKS = (
    "attention", "feed_forward", "moe", "state_space", "convolution", "embedding", "tower", "layer", "root", "head",
)  # fmt: skip


_BARE = frozenset({"size", "sizes", "kernel"})  # what says nothing without the part that it is of
_MAIN = "tower"  # the role of the one that the parts around it are for
_STREAM = "hidden_size"
_CHANNELS = ("in_channels", "out_channels")


def symbol_name(fact: str) -> str:
    """The identifier for a fact: `attention.heads` is `heads`, `norm.eps` is `norm_eps`."""
    block, _, rest = fact.partition(".")
    return (rest if rest and block in _PLAIN_BLOCKS else fact).replace(".", "_")


@dataclass
class Sizes:
    """Fields of the Config class: those asked for, in order."""

    by_fact: dict[tuple[str, str], str] = field(default_factory=dict)  # (fact, tower) -> field
    facts: dict[str, Fact] = field(default_factory=dict)  # field -> the fact that it shows
    used: dict[str, Fact] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)  # field -> the one that it is: both are one width
    derived: dict[str, str] = field(default_factory=dict)  # of those used, what they are computed by
    towers: frozenset[str] = frozenset()  # roles of the blocks right below the root
    widths: frozenset[str] = frozenset()  # roles of those whose stream has a size
    stages: Stages = field(default_factory=Stages)

    def field(self, fact: Fact, tower: str) -> str | None:
        """The field that holds this fact, or None where it varies within its tower."""
        fact = self.stages.entries.get(id(fact), fact)
        if any(made is fact for made in self.stages.made):
            return self._of_made(fact, tower)
        if listed := self.stages.listed(fact):
            self.stages.reads(listed, *range(len(fact.value)))
            return self._of_list(listed)
        if element := self.stages.element(fact):
            self.stages.reads(element.listed, element.at)
            return f"{self._of_list(element.listed)}[{element.at}]"
        name = self.found(fact, tower)
        if name is not None and name not in self.used:
            self.use(name, tower)
        return name

    def found(self, fact: Fact, tower: str) -> str | None:
        """The field that holds a fact that is no list, nor an element of one."""
        name = next(filter(None, (self._named(word, fact.value, tower) for word in fact.same_as)), None)
        name = name or self._of_stream(fact, tower) or self._named(fact.name, fact.value, tower)
        name = name or next((known for known, shown in self.facts.items() if shown == fact), None)
        return self.same.get(name, name) if name is not None else None

    def unite(self) -> None:
        """Makes fields one that are one width: a model of which one alone is edited does not run."""
        for group in self.stages.same:
            facts = [(fact, tower) for fact, tower in group if self._is_alone(fact)]
            names = {name: None for fact, tower in facts if (name := self.found(fact, tower))}
            if len(names) > 1:
                best = min(names, key=lambda name: not name.endswith(_STREAM))
                kept = {old: best if new in names else new for old, new in self.same.items()}
                self.same = {**kept, **{name: best for name in names if name != best}}

    def _is_alone(self, fact: Fact) -> bool:
        """Whether a fact is no element of a list, nor a size that only a source has."""
        is_made = any(made is fact for made in self.stages.made) or id(fact) in self.stages.entries
        return not (is_made or self.stages.listed(fact) or self.stages.element(fact))

    def use(self, name: str, tower: str) -> None:
        """Takes a field, and where a rule computes it the fields that it is computed from."""
        read: list[str] = []

        def known(fact: str) -> tuple[str, object] | None:
            everywhere = {field for (known, _), field in self.by_fact.items() if known == fact}
            only = everywhere.pop() if len(everywhere) == 1 else None
            other = self.by_fact.get(placed(fact, tower, self.towers), only)
            other = self.same.get(other, other) if other is not None else None
            if other is None or other == name:
                return None
            read.append(other)
            return other, self.facts[other].value

        text = derived(self.facts[name], known)
        self.used[name] = self.facts[name]
        if text is not None:
            self.derived[name] = text
            for other in read:
                if other not in self.used:
                    self.use(other, tower)

    def _of_stream(self, fact: Fact, tower: str) -> str | None:
        """The field of a tower's width for channels that are as many; of what stands alone that of the whole model."""
        if not fact.name.endswith(_CHANNELS) or not self.has_one_width(tower):
            return None
        name = self.by_fact.get((_STREAM, tower)) or self.by_fact.get((_STREAM, ""))
        return name if name is not None and self.facts[name].value == fact.value else None

    def has_one_width(self, tower: str) -> bool:
        """Whether a tower has not several widths, none of which is the whole's."""
        return tower not in self.widths or (_STREAM, tower) in self.by_fact

    def _of_made(self, fact: Fact, tower: str) -> str:
        """The field of what no rule has: what one width of every stage is of another, which layers are others."""
        known = next((name for name, used in self.used.items() if used == fact), None)
        if known is not None:
            return known
        name = symbol_name(fact.name)
        first, _, rest = name.partition("_")
        name = f"{tower}_{rest}" if rest and tower.endswith(f"_{first}") else name
        is_other = tower not in ("", _MAIN) and not f"{name}_".startswith(f"{tower}_")
        name = f"{tower}_{name}" if is_other and len(self.towers) > 1 else name
        if name in self.facts:
            name = fact.name.replace(".", "_")
        while name in self.facts:
            name = f"{name}_"
        self.facts[name] = self.used[name] = fact
        return name

    def _of_list(self, listed: Listed) -> str:
        """The field of a list of sizes, an element for each stage."""
        fact, tower = listed.fact, listed.tower
        known = next((name for name, used in self.used.items() if used is fact), None)
        if known is not None:
            return known
        elsewhere = {other for name, other in self.by_fact if name == fact.name} - {tower}
        name = f"{symbol_name(fact.name).removesuffix('s')}s"
        name = f"{tower}_{name}" if tower not in ("", _MAIN) and elsewhere else name
        while name in self.facts:
            name = f"{name}_"
        self.facts[name] = self.used[name] = fact
        return name

    def _named(self, fact: str, value: Any, tower: str) -> str | None:
        """The field of a fact if it has this value; else the one with it that another tower has: a class above builds their layers."""
        name = self.by_fact.get(placed(fact, tower, self.towers))
        if name is not None:
            return name if self.facts[name].value == value else None
        names = {
            name
            for (known, _), name in self.by_fact.items()
            if known == fact and self.facts[name].value == value
        }
        return names.pop() if len(names) == 1 else None


def collect_sizes(architecture: Architecture, without: frozenset[str] = frozenset()) -> Sizes:
    """A field for every number that is one and the same in its whole tower; a list of what differs from stage to stage.

    Of the facts in `without` there is no list.
    """
    seen: dict[str, dict[str, list[Fact]]] = {}
    roles = architecture.root.roles
    sizes = Sizes(towers=frozenset(role for role, item in roles.items() if isinstance(item, Block)))
    sizes.stages = staged(architecture.root, without)
    _collect(architecture.root, "", seen, sizes.towers)
    sizes.widths = frozenset(seen.get(_STREAM, ()))
    for name, towers in seen.items():
        constant = {
            tower: _shown(facts)
            for tower, facts in towers.items()
            if all(fact.value == facts[0].value for fact in facts)
        }
        shared = _sharing(constant, len(towers))
        for tower, fact in constant.items():
            symbol = symbol_name(name)
            is_plain = not tower or (
                (symbol not in _BARE or tower == _MAIN) and (tower in shared or len(towers) == 1)
            )
            _add(sizes, symbol if is_plain else f"{tower}_{symbol}", fact, tower)
    return sizes


def _shown(facts: list[Fact]) -> Fact:
    """Of one size that several blocks know the fact that a field shows: what a config says, before a rule."""
    said = (fact for fact in facts if fact.evidence == "config")
    return next(said, facts[0]) if facts[0].evidence == "rule" else facts[0]


def _sharing(constant: Mapping[str, Fact], towers: int) -> set[str]:
    """The towers that have a size in common: all, those that have the whole model's, or an encoder and its decoder."""
    if _is_count(constant.values()):
        return set()
    if all(fact.evidence == "config" for fact in constant.values()):
        said = Counter(fact.source for fact in constant.values())
        if len(said) > 1:  # each part of a config says it for its own tower
            return {tower for tower, fact in constant.items() if said[fact.source] > 1}
    values = {tower: _frozen(fact.value) for tower, fact in constant.items()}
    if len(constant) == towers and len(set(values.values())) == 1:
        return set(values)
    for some in ({""}, {"encoder", "decoder"}):
        common = {values.get(tower) for tower in some}
        if some <= values.keys() and len(common) == 1:
            return {tower for tower, value in values.items() if value in common}
    return set()


def _is_count(facts: Iterable[Fact]) -> bool:
    """Whether a number is known by the names of each tower alone, as that of its layers is: one may have more without the other."""
    return all(fact.evidence == "name" for fact in facts)


def _add(sizes: Sizes, name: str, fact: Fact, tower: str) -> None:
    while name in sizes.facts and not _is_same(sizes.facts[name], fact, sizes.towers):
        name = (
            f"{fact.name.partition('.')[0]}_{name}"
            if not name.startswith(fact.name.partition(".")[0])
            else f"{tower}_{name}"
            if tower and not name.startswith(f"{tower}_")
            else f"{name}_"
        )
    sizes.facts.setdefault(name, fact)
    sizes.by_fact[placed(fact.name, tower, sizes.towers)] = name


def _is_same(one: Fact, other: Fact, towers: frozenset[str]) -> bool:
    """Whether one field can hold both: equal values of one fact, maybe of two towers."""
    names = {placed(fact.name, "", towers)[0] for fact in (one, other)}
    return len(names) == 1 and _frozen(one.value) == _frozen(other.value)


def placed(name: str, tower: str, towers: frozenset[str]) -> tuple[str, str]:
    """A fact's own name and its tower: the root's flow may write `vision.hidden_size` for a size of one of its towers."""
    first, _, rest = name.partition(".")
    return (rest, first) if rest and first in towers else (name, tower)


def _collect(
    block: Block, tower: str, seen: dict[str, dict[str, list[Fact]]], towers: frozenset[str]
) -> None:
    def note(facts: Mapping[str, Fact]) -> None:
        for fact in facts.values():
            if is_size(fact.value):
                name, where = placed(fact.name, tower, towers)
                seen.setdefault(name, {}).setdefault(where, []).append(fact)

    note(block.facts)
    for value in block.roles.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Block):
                _collect(item, tower or item.role, seen, towers)
            else:
                note(facts_of_leaf(item))


def is_size(value: Any) -> bool:
    """Whether a fact's value is a number or a list of plain values; words and truth values are resolved in the text."""
    if isinstance(value, (list, tuple)):
        return all(isinstance(item, (int, float, str, bool, type(None))) for item in value)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
