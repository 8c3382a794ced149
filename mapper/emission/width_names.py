"""Extents that no flow declares, by the sizes that they have to equal: those of the flows, or one for all that are one width."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from mapper.architecture import Block, Fact, Leaf
from mapper.emission.drafts import FOLLOWED
from mapper.emission.identifiers import identifier
from mapper.emission.settings import Setting
from mapper.emission.stages import Element, Listed, Stages
from mapper.emission.widths import RECURRENT, Width, Widths, shape_of
from mapper.flows import arithmetic
from mapper.flows.language import parse_expression
from mapper.flows.program import Program
from mapper.rulebook.flows import ANY, aligned
from mapper.words import unnumbered

_LEAST = 3  # a width that a Config has a field for
_MOST = 12  # widths in one list; of more, numbers are easier to read where they stand
_WORD = re.compile(r"[A-Za-z_][\w.]*")

Settings = dict[int, Setting]


@dataclass(frozen=True)
class Said:
    """A width as a flow declares it: arithmetic over sizes."""

    text: str
    facts: dict[str, Fact] = field(default_factory=dict)


def with_widths(settings: Settings, program: Program, stages: Stages, without: Collection[str]) -> Settings:
    """The settings, in which each extent that its flow leaves open is the size that it has to equal.

    Where there is no such size, `stages` gets one of the whole width, or a list with those of a part of the model, but for
    those called as `without` says.
    """
    followed = Widths(program)
    blocks = {id(leaf): piece.block for piece in program.pieces.values() for leaf in _leaves(piece.block)}
    names = _Names(settings, blocks, followed.all(), towers=_towers(program))
    names.join_alike(followed)
    stages.same = [*names.same()]
    found = names.filled(settings)
    made = made_sizes(names, program, stages, without)
    return names.filled(found, made)


@dataclass(eq=False)
class _Names:
    settings: Settings
    blocks: dict[int, Block]
    widths: list[Width]
    declarations: dict[tuple[int, int], list[tuple[Leaf, Said]]] = field(default_factory=dict)
    towers: dict[int, str] = field(default_factory=dict)  # block -> the role of the one right below the root

    def filled(self, settings: Settings, made: dict[int, Fact] | None = None) -> Settings:
        """The settings with the extents that are open declared, as far as something is said of their widths."""
        found = dict(settings)
        for width in self.widths:
            for leaf, axis in width.at:
                said = found.get(id(leaf))
                if said is None or not is_open(said, leaf, axis):
                    continue
                if name := self.said(width, self.blocks.get(id(leaf)), made):
                    found[id(leaf)] = _declaring(said, leaf, axis, name)
        return found

    def said(
        self, width: Width, block: Block | None, made: dict[int, Fact] | None = None, depth: int = 0
    ) -> Said | None:
        """What a width is: by a size of the block, of another one, or of what it was put together of."""
        known = self.declared(width)
        own = (name for leaf, name in known if self.blocks.get(id(leaf)) is block)
        plain = (name for _, name in known if len(name.facts) == 1)
        rest = (name for _, name in known)
        if found := next(own, None) or next(plain, None) or next(rest, None):
            return found
        if made and (fact := made.get(id(width))):
            return Said("width", {"width": fact})
        if depth > 2:
            return None
        return self.of_parts(width, block, made, depth + 1)

    def declared(self, width: Width) -> list[tuple[Leaf, Said]]:
        """What flows say a width is, each of a leaf that has it."""
        key = (id(width), len(width.at))  # what joins others has more
        if key not in self.declarations:
            said = (
                (leaf, declared(self.settings.get(id(leaf)), leaf, axis, width.value))
                for leaf, axis in width.at
            )
            self.declarations[key] = [(leaf, name) for leaf, name in said if name]
        return self.declarations[key]

    def same(self) -> Iterator[list[tuple[Fact, str]]]:
        """Of each width that flows call by several sizes these, each with the tower that it is in: they are one."""
        for width in self.widths:
            plain = [
                (fact, self.towers.get(id(self.blocks.get(id(leaf))), ""))
                for leaf, said in self.declared(width)
                for name, fact in said.facts.items()
                if name == said.text
            ]
            if len(plain) > 1:
                yield plain

    def of_parts(
        self, width: Width, block: Block | None, made: dict[int, Fact] | None, depth: int
    ) -> Said | None:
        if width.parts:
            parts = [self.said(part.root(), block, made, depth) for part in width.parts]
            return _sum([part for part in parts if part]) if all(parts) else None
        if width.whole:
            whole, count = width.whole
            said = self.said(whole.root(), block, made, depth)
            return None if said is None else Said(f"({said.text}) // {count}", said.facts)
        return None

    def join_alike(self, followed: Widths) -> None:
        """Takes widths of one block for one where they are as large and nothing is said of them, or of what it alone has.

        Nobody gives such a part of a block a size of its own.
        """
        by_block: dict[int, list[Width]] = {}
        for width in self.widths:
            for block in {id(self.blocks.get(id(leaf))) for leaf, _ in width.at}:
                by_block.setdefault(block, []).append(width)
        for block, widths in by_block.items():
            made = (width for width in widths if not width.parts and _is_passed_on(width))
            for width in (width for width in made if self.is_unsaid(width)):
                is_inner = {id(self.blocks.get(id(leaf))) for leaf, _ in width.at} == {block}
                beside = (other.root() for other in widths if other.value == width.value)
                beside = (
                    other for other in beside if (_is_passed_on(other) if self.is_unsaid(other) else is_inner)
                )
                for other in beside:
                    followed.join(other, width)
        self.widths = followed.all()

    def is_unsaid(self, width: Width) -> bool:
        return self.is_open(width.root()) and self.said(width.root(), None) is None

    def is_open(self, width: Width) -> bool:
        """Whether a leaf has it of which nothing says what it is."""
        settings = ((leaf, axis, self.settings.get(id(leaf))) for leaf, axis in width.at)
        return any(said is not None and is_open(said, leaf, axis) for leaf, axis, said in settings)


def _sum(parts: list[Said]) -> Said:
    """`3 * size` of what is said three times."""
    texts: list[str] = []
    facts: dict[str, Fact] = {}
    counts: list[int] = []
    for part in parts:
        text, own = _apart(part, facts)
        facts |= own
        if text in texts:
            counts[texts.index(text)] += 1
        else:
            texts.append(text)
            counts.append(1)
    rows = [text if count == 1 else f"{count} * ({text})" for text, count in zip(texts, counts, strict=True)]
    return Said(" + ".join(rows), facts)


def _apart(said: Said, taken: dict[str, Fact], before: str = "") -> tuple[str, dict[str, Fact]]:
    """What is said, with names that nothing else has; `before` those of sizes that are not among the taken."""
    renamed: dict[str, str] = {}
    for name, fact in said.facts.items():
        same = next((other for other, known in taken.items() if known is fact), None)
        new = same or f"{before}{name.rpartition('.')[2]}"
        while same is None and new in taken:
            new = f"{new}_"
        renamed[name] = new
    text = _WORD.sub(lambda match: renamed.get(match[0], match[0]), said.text)
    return text, {renamed[name]: fact for name, fact in said.facts.items()}


def is_open(said: Setting, leaf: Leaf, axis: int) -> bool:
    """Whether nothing says what an extent is."""
    shape = aligned(said.shape, len(shape_of(leaf)))
    return len(shape) != len(shape_of(leaf)) or shape[axis] == ANY


def declared(said: Setting | None, leaf: Leaf, axis: int, value: int) -> Said | None:
    """What a flow says an extent is, where that has its value."""
    if said is None or is_open(said, leaf, axis):
        return None
    text = aligned(said.shape, len(shape_of(leaf)))[axis]
    if text.isdigit():
        return None
    try:
        node = parse_expression(text, "shapes", 1)
        facts = {name: (said.facts or {})[name] for name in arithmetic.names(node)}
        known = {name: fact.value for name, fact in facts.items()}
        return Said(text, facts) if facts and arithmetic.evaluate(node, known) == value else None
    except (KeyError, ValueError):
        return None


def _declaring(said: Setting, leaf: Leaf, axis: int, name: Said) -> Setting:
    """What is said of a leaf, and that this extent is that size."""
    rank = len(shape_of(leaf))
    shape = aligned(said.shape, rank)
    shape = shape if len(shape) == rank else (ANY,) * rank
    facts = dict(said.facts or {})
    text, own = _apart(name, facts, FOLLOWED)
    return replace(said, shape=(*shape[:axis], text, *shape[axis + 1 :]), facts={**facts, **own})


def _towers(program: Program) -> dict[int, str]:
    """The tower of each block, by its identity: a saved model has no paths of roles."""
    root = list(program.pieces.values())[-1].block
    items = [(role, item) for role, value in root.roles.items() for item in _listed(value)]
    tops = [(role, item) for role, item in items if isinstance(item, Block)]
    return {id(block): role for role, top in tops for block in (top, *top.blocks())}


def _leaves(block: Block) -> Iterator[Leaf]:
    for value in block.roles.values():
        yield from (item for item in _listed(value) if isinstance(item, Leaf))


def _listed(value: Leaf | Block | list[Block] | list[Leaf]) -> Sequence[Leaf | Block]:
    return value if isinstance(value, list) else [value]


def made_sizes(names: _Names, program: Program, stages: Stages, without: Collection[str]) -> dict[int, Fact]:
    """By the identity of each width of which nothing is said a size: alone, or an element of a list of its part's."""
    around = {id(inner): piece.block for piece in program.pieces.values() for inner in _inner(piece.block)}
    groups: dict[tuple[int, str], list[Width]] = {}
    anchors: dict[int, Block] = {}
    for width in names.widths:
        block = names.blocks.get(id(_giver(width)[0]))
        if block is None or width.value < _LEAST or not names.is_unsaid(width) or not _is_passed_on(width):
            continue
        anchor = _anchor(block, around)
        anchors[id(anchor)] = anchor
        is_inner = anchor is not block and len({id(names.blocks.get(id(leaf))) for leaf, _ in width.at}) == 1
        groups.setdefault((id(anchor), "inner_channels" if is_inner else "channels"), []).append(width)
    return _facts(names, groups, anchors, stages, without)


def _ways(width: Width) -> list[bool]:
    """Of each map that has a width whether it gives so many channels, or reads them."""
    maps = [(leaf, axis) for leaf, axis in width.at if len(shape_of(leaf)) > 1]
    return [axis == _given(leaf) for leaf, axis in maps]


def _given(leaf: Leaf) -> int:
    """The axis of what a leaf gives."""
    return (
        2
        if leaf.kind in RECURRENT
        else int(leaf.kind.startswith("ConvTranspose") or leaf.kind == "Embedding")
    )


def _is_passed_on(width: Width) -> bool:
    """Whether one leaf gives what another reads: what only one knows of goes with something that is not followed."""
    ways = _ways(width.root())
    return any(ways) and (width.root().is_read or not all(ways))


def _inner(block: Block) -> Iterator[Block]:
    for value in block.roles.values():
        yield from (
            item for item in (value if isinstance(value, list) else [value]) if isinstance(item, Block)
        )


def _giver(width: Width) -> tuple[Leaf, int]:
    """The leaf that makes what is so wide, or else one that reads it: of several the one with the first name."""
    maps = [(leaf, axis) for leaf, axis in width.at if len(shape_of(leaf)) > 1]
    givers = [pair for pair in maps if pair[1] == _given(pair[0])]
    return min(givers or width.at, key=lambda pair: next(pair[0].keys()))


def _anchor(block: Block, around: dict[int, Block]) -> Block:
    """The nearest block that is no element of a list."""
    while block.indices is not None and id(block) in around:
        block = around[id(block)]
    return block


def _facts(
    names: _Names,
    groups: dict[tuple[int, str], list[Width]],
    anchors: dict[int, Block],
    stages: Stages,
    without: Collection[str],
) -> dict[int, Fact]:
    found: dict[int, Fact] = {}
    by_name: dict[str, list[list[Width]]] = {}
    for (anchor, word), widths in groups.items():
        block = anchors[anchor]
        if block.role == "root":
            for width in widths:
                by_name.setdefault(f"{_attribute(_giver(width)[0])}.channels", []).append([width])
        else:
            by_name.setdefault(f"{unnumbered(block.role)}.{word}", []).append(widths)
    for name, some in by_name.items():
        values = [[width.value for width in widths] for widths in some]
        if name in without or any(own != values[0] for own in values) or len(values[0]) > _MOST:
            continue
        for widths, facts in zip(some, [_made(names, name, some[0], stages)] * len(some), strict=True):
            found |= {id(width): fact for width, fact in zip(widths, facts, strict=True)}
    return found


def _attribute(leaf: Leaf) -> str:
    words = (part for part in reversed(leaf.place) if isinstance(part, str) and not part.isdigit())
    return identifier(next(words, "map"))


def _made(names: _Names, name: str, widths: list[Width], stages: Stages) -> list[Fact]:
    """The facts of widths: one size, or the elements of a list."""
    leaf, _ = _giver(widths[0])
    place = str(leaf.place)
    keys = [*leaf.keys()]
    key = next((key for key in keys if not key.endswith("bias")), keys[0])
    source = f"{key} {[*shape_of(leaf)]}"
    more = f" and {len(widths) - 1} more" if len(widths) > 1 else ""
    values = [width.value for width in widths]
    if len({*values}) == 1:
        fact = Fact(name, values[0], place, "shape", source + more)
        stages.made.append(fact)
        return [fact] * len(widths)
    listed = Listed(Fact(name, values, place, "shape", source + more), "")
    facts = []
    for at, value in enumerate(values):
        fact = Fact(name, value, place, "shape", source)
        stages.elements[id(fact)] = Element(listed, at)
        stages.lists[id(listed.fact)] = listed
        facts.append(fact)
    return facts
