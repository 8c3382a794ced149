"""Where a block stands: what `at` patterns of rules and hints are matched against, and what reports print."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property

from mapper._dataclass import dataclass
from mapper.architecture import Block, Leaf, Place
from mapper.inference.evidence import Known
from mapper.rulebook.flows import FlowRule
from mapper.words import spelled_numbers, unnumbered

TOWER_LISTS = ("layers", "stages")


@dataclass(eq=False)
class Scope:
    """One block of the tree, its way up, and the words of its role path."""

    block: Block
    parent: Scope | None
    words: tuple[str, ...]  # role path without indices: ("encoder", "layers", "attention")
    tower: Scope | None  # the innermost tower around it, itself included
    children: list[Scope] = field(default_factory=list)
    solved: dict[str, Known] = field(
        default_factory=dict
    )  # full name of a size -> what shapes show, filled by `sizes`

    @property
    def is_leaf(self) -> bool:
        """Whether it is a leaf as a scope of its own: `leaf_scope`."""
        return self.block.roles.keys() == {""}

    def up(self) -> Iterator[Scope]:
        """The block itself and those around it, innermost first."""
        scope: Scope | None = self
        while scope:
            yield scope
            scope = scope.parent

    def below(self) -> Iterator[Scope]:
        """Every block below, in order."""
        for child in self.children:
            yield child
            yield from child.below()

    @property
    def topic(self) -> str:
        """The folder of flows that could fit."""
        if self.parent is None:
            return "root"
        if is_tower(self.block):
            return "tower"
        if self.block.role.startswith("stages"):
            return "stage"
        return self.block.kind if self.block.kind != "other" else unnumbered(self.block.role)

    @cached_property
    def tower_name(self) -> str | None:
        """Role of the outermost tower; None outside of towers."""
        around = self.parent.tower_name if self.parent else None
        return self.block.role if around is None and is_tower(self.block) else around

    @cached_property
    def towers_inside(self) -> tuple[Place, ...]:
        """Of a tower: the folders in its own that other towers have, which are no blocks of it."""
        *_, root = self.up()
        home = self.block.home
        own = {id(scope) for scope in (self, *self.below())}
        towers = (scope.block.home for scope in root.below() if scope.tower is scope and id(scope) not in own)
        return tuple(other for other in towers if home and other != home and other[: len(home)] == home)

    @cached_property
    def only_tower(self) -> Scope | None:
        """The one tower below, of a root say that gives what its tower gives; None where there are several."""
        towers = [scope for scope in self.below() if scope.tower is scope and is_tower(scope.block)]
        return towers[0] if len(towers) == 1 else None

    def index_of(self, role: str, count: int | None = None) -> tuple[int, ...] | None:
        """The positions that the block stands for in the nearest list of this role.

        Where such lists stand within each other, the nearest of `count` elements goes before others.
        """
        lists = [scope for scope in self.up() if scope.block.role == role and scope.block.indices is not None]
        if not lists:
            return None
        alike = (scope for scope in lists if count is not None and len(scope._numbers()) == count)
        found = next(alike, lists[0])
        first = found.first_of_list()
        return tuple(index - first for index in found.block.indices or ())

    def count_of(self, role: str) -> int | None:
        """How many elements the nearest list of this role has that the block is in."""
        found = next(
            (one for one in self.up() if one.block.role == role and one.block.indices is not None), None
        )
        return len(found._numbers()) or None if found else None

    def _numbers(self) -> list[int]:
        """The numbers of all elements of the list that the block is in."""
        elements = self.parent.block.roles.get(self.block.role) if self.parent else None
        blocks = [item for item in elements if isinstance(item, Block)] if isinstance(elements, list) else []
        return sorted(index for item in blocks for index in item.indices or ())

    def first_of_list(self) -> int:
        """The number of the first element of the list that the block is in: behind a stem that has number 0 it is 1."""
        numbers = self._numbers()
        runs = bool(numbers) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        return numbers[0] if runs else 0

    def matches(self, at: str) -> bool:
        """Whether the words of `at` occur together in its role path or its place."""
        wanted = words_at(at)
        return _within(self.words, wanted) or _within(self.block.home, wanted)

    def is_below(self, places: Sequence[str]) -> bool:
        """Whether one of the places of a rule is here; a rule without any holds everywhere."""
        if not places:
            return True
        key = tuple(places)  # which are asked again and again
        if key not in self._below:
            self._below[key] = any(map(self.matches, key))
        return self._below[key]

    def number_at(self, places: Sequence[str]) -> int | None:
        """The number at the `{n}` of a place of a rule that is here; None where it stands for several, or nowhere."""
        for wanted in map(words_at, places):
            for start in _starts(self.block.home, wanted):
                number = self.block.home[start + wanted.index("{n}")] if "{n}" in wanted else ()
                return int(number[0]) if len(number) == 1 else None
        return None

    @cached_property
    def _below(self) -> dict[tuple[str, ...], bool]:
        return {}


def sizes_below(scope: Scope) -> dict[str, Known]:
    """Sizes that have one value in all blocks below one."""
    found: dict[str, Known | None] = {}
    for inner in scope.below():
        for name, known in inner.solved.items():
            first = found.setdefault(name, known)
            if first and first.value != known.value:
                found[name] = None
    return {name: known for name, known in found.items() if known}


def is_tower(block: Block) -> bool:
    """Whether the block holds a list of layers or stages, or of what layers would hold, and is no stage itself."""
    return block.role == "tower" or (
        block.role != "root"
        and not _is_list(block.role)
        and any(isinstance(value, list) and _is_list(role) for role, value in block.roles.items())
    )


def _is_list(role: str) -> bool:
    """A second list of a tower is its layers_2; stages that a map goes down and up have roles of their own."""
    return role.rstrip("_0123456789") in TOWER_LISTS or role.startswith("stages_")


def leaf_scope(scope: Scope, leaf: Leaf) -> Scope:
    """A leaf as a scope of its own, for facts that differ from leaf to leaf (eps, strides)."""
    kind = "norm" if leaf.kind.endswith("Norm") else "other"
    block = Block(kind, leaf.role or "", leaf.place, roles={"": leaf})
    return Scope(block, scope, (*scope.words, leaf.role or ""), scope.tower)


def every_place(root: Scope) -> Iterator[Scope]:
    """The blocks of a checkpoint, and its leaves as scopes of their own."""
    for scope in (root, *root.below()):
        yield scope
        for value in scope.block.roles.values():
            items = value if isinstance(value, list) else [value]
            yield from (leaf_scope(scope, item) for item in items if isinstance(item, Leaf))


def add_parts(scope: Scope, rule: FlowRule | None) -> None:
    """Blocks without leaves for the parts of a flow, chosen below it like any other."""
    for part in rule.calls if rule else ():
        block = scope.block.roles[part] = Block("other", part, scope.block.home)
        scope.children.append(Scope(block, scope, (*scope.words, part), scope.tower))


def is_part(value: object) -> bool:
    """Whether what has a role was made for a flow that calls it: it has no leaves, so that no other need read it."""
    return isinstance(value, Block) and next(value.leaves(), None) is None


def scopes(root: Block) -> Scope:
    """The tree of scopes of a block tree."""
    return _scope(root, None)


def _scope(block: Block, parent: Scope | None) -> Scope:
    words = () if parent is None else (*parent.words, block.role)
    made = Scope(block, parent, words, parent.tower if parent else None)
    if is_tower(block):
        made.tower = made
    for value in block.roles.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Block):
                made.children.append(_scope(item, made))
    return made


def words_at(at: str) -> list[str]:
    """The words of a place as it is written: `layer`, `{0..2}` and `attention` of `layer.{0..2}.attention`."""
    return re.split(r"\.(?![^{]*\})", at)


def _within(path: Sequence[str | tuple[int, ...]], wanted: list[str]) -> bool:
    return any(True for _ in _starts(path, wanted))


def _starts(path: Sequence[str | tuple[int, ...]], wanted: list[str]) -> Iterator[int]:
    """Where the words begin in a path."""
    starts = range(len(path) - len(wanted) + 1)
    return (start for start in starts if all(map(_same, path[start:], wanted)))


def _same(part: str | tuple[int, ...], word: str) -> bool:
    if isinstance(part, str):
        return part == word
    return word in ("{n}", "*") or set(part) <= spelled_numbers(word)


def leaves_at(block: Block, path: str) -> list[Leaf]:
    """The leaves at a role path below a block; list roles give those of every element."""
    items: list[Block | Leaf] = [block]
    for word in path.split("."):
        found: list[Block | Leaf] = []
        for item in items:
            value = item.roles.get(word) if isinstance(item, Block) else None
            found += value if isinstance(value, list) else [] if value is None else [value]
        items = found
    return [item for item in items if isinstance(item, Leaf)]


def list_totals(root: Scope) -> dict[Place, set[int]]:
    """Every list folder of the tree with all of its indices."""
    totals: dict[Place, set[int]] = {}
    for scope in (root, *root.below()):
        for at, part in enumerate(scope.block.home):
            if isinstance(part, tuple):
                totals.setdefault(Place(scope.block.home[:at]), set()).update(part)
    return totals


def starred(place: Place, totals: Mapping[Place, set[int]]) -> str:
    """A place as facts report it: up to its last list index, a whole list as "*"."""
    last = max((at for at, part in enumerate(place) if isinstance(part, tuple)), default=len(place) - 1)
    words = []
    for at, part in enumerate(place[: last + 1]):
        whole = isinstance(part, tuple) and set(part) >= totals.get(Place(place[:at]), {-1})
        words.append("*" if whole else str(Place((part,))))
    return ".".join(words) or "*"


class Settled:
    """Looks up what the equations of shapes gave."""

    def __init__(self, is_complete: bool = False) -> None:
        self.is_complete = is_complete  # whether all sizes are
        self._shared: dict[Scope, Mapping[str, Known]] = {}

    def of(self, scope: Scope, name: str) -> Iterator[Known]:
        """What was settled for the block, for one around it, or alike for all blocks below one of these."""
        for outer in scope.up():
            known = outer.solved.get(name) or (self._below(outer).get(name) if self.is_complete else None)
            if known:
                yield known
            if known or outer is scope.tower:
                break
        else:
            return
        if not known and scope.tower and scope.tower.parent:
            yield from _around(scope.tower.parent, name)

    def _below(self, scope: Scope) -> Mapping[str, Known]:
        """Sizes that have one value in all blocks below; known once all sizes are."""
        if scope not in self._shared:
            self._shared[scope] = sizes_below(scope)
        return self._shared[scope]


def _around(scope: Scope, name: str) -> Iterator[Known]:
    """What was settled for the blocks around a tower, without those of other towers."""
    yield from [outer.solved[name] for outer in scope.up() if name in outer.solved][:1]
