"""The tree of names beside what they mean; equal layers are one entry.

embeddings.word_embeddings   embeddings.token       Embedding 30,522 × 384
encoder.layer.{0..5}         layer, post_norm       attention 12 heads, feed_forward 384-1536 gelu
  attention.self.query       attention.query        Linear 384 → 384
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from mapper.architecture import Architecture, Block, Leaf, Place
from mapper.report.style import Paint
from mapper.report.summary import held_summary, layer_summary, leaf_summary
from mapper.report.wording import counted, printable, rounded
from mapper.words import unnumbered

SHOWN_ROWS = 200
_NAME_WIDTH = 52  # longer names push their own row only
_ROLE_WIDTH = 32

Shape = tuple[str | None, ...]  # a place with its indices left out


class Row(NamedTuple):
    """One line: how deep, the name in the file, what it means, details."""

    depth: int
    name: str
    role: str
    details: str


def tree(
    architecture: Architecture, paint: Paint, depth: int | None = None, width: int | None = None
) -> list[str]:
    """The rows in columns, of so many levels of folders; a narrow terminal has narrow columns."""
    found = rows(architecture, depth)
    shown = found[:SHOWN_ROWS]
    names = [f"{'':{2 * row.depth}}{row.name}" for row in shown]
    most = _NAME_WIDTH if width is None else min(_NAME_WIDTH, width * 2 // 5)
    wide = min(max(map(len, names), default=0), most)
    most = _ROLE_WIDTH if width is None else min(_ROLE_WIDTH, width // 4)
    role_wide = min(max((len(row.role) for row in shown), default=0), most)
    lines = []
    for name, row in zip(names, shown, strict=True):
        role = paint("role" if row.role != "-" else "doubt", f"{row.role:{role_wide}}")
        lines.append(f"{name:{wide}}  {role}  {row.details}".rstrip())
    if len(found) > len(shown):
        lines.append(f"and {len(found) - len(shown):,} more rows, all of them with --json")
    return lines


def rows(architecture: Architecture, depth: int | None = None) -> list[Row]:
    """A row for each folded leaf, those of a layer below a row for the layer; what lies deeper is one row a folder."""
    layers = _layers(architecture.root)
    layers |= _loose_blocks(architecture, layers)
    roles = _role_paths(architecture.root)
    roles |= {_shape(place): kind for place, kind in architecture.shown.items() if _shape(place) not in roles}
    found: list[Row] = []
    above: Place | None = None
    for place, leaves in _groups(_grouped(architecture.leaves, layers), depth):
        inside = min(_layer_depth(leaf, layers) for leaf in leaves)
        layer = Place(leaves[0].place[:inside])
        is_layer = 0 < inside == len(place)
        if inside and inside <= len(place) and layer != above:
            found.append(_layer_row(layer, layers.get(_shape(layer), [])))
        above = layer if inside and inside <= len(place) else None
        if len(leaves) == 1:
            found.append(_leaf_row(leaves[0], inside))
        elif not is_layer:
            found.append(_folded_row(place, leaves, inside if above else 0, roles))
        elif not found[-1].details:
            found[-1] = found[-1]._replace(details=_amount(leaves))
    return found


def levels(architecture: Architecture) -> int:
    """How many levels of folders there are: with so many, nothing is folded."""
    trie = _Trie(architecture.leaves)
    return max((trie.level(leaf.place) for leaf in architecture.leaves), default=0)


class _Trie:
    """Where the folders of a checkpoint divide; a folder with one thing in it is no level, nor is a number."""

    def __init__(self, leaves: Iterable[Leaf]):
        self.children: dict[Shape, set[str | None]] = {}
        for leaf in leaves:
            shape = _shape(leaf.place)
            for at, part in enumerate(shape):
                self.children.setdefault(shape[:at], set()).add(part)

    def level(self, place: Place) -> int:
        shape = _shape(place)
        return sum(len(self.children[shape[:at]]) > 1 for at in range(len(shape)))

    def ancestor(self, place: Place, depth: int) -> Place:
        """The folder of this level around a leaf, as far down as nothing divides; the leaf, if it is not that deep."""
        shape, at = _shape(place), 0
        while at < len(shape) and (depth or len(self.children[shape[:at]]) == 1):
            depth -= len(self.children[shape[:at]]) > 1
            at += 1
        return Place(place[:at])


def _groups(leaves: Sequence[Leaf], depth: int | None) -> list[tuple[Place, list[Leaf]]]:
    """The leaves by their folder of a level, each leaf its own where none is folded."""
    if depth is None:
        return [(leaf.place, [leaf]) for leaf in leaves]
    trie = _Trie(leaves)
    groups: dict[Place, list[Leaf]] = {}
    for leaf in leaves:
        groups.setdefault(trie.ancestor(leaf.place, depth), []).append(leaf)
    return list(groups.items())


def _folded_row(place: Place, leaves: list[Leaf], inside: int, roles: Mapping[Shape, str]) -> Row:
    name = printable(str(Place(place[inside:])))
    steps = [_role(leaf).split(".")[:-1] for leaf in leaves if leaf.role is not None]
    shared = list(takewhile(lambda words: len(set(words)) == 1, zip(*steps, strict=False)))
    role = roles.get(_shape(place)) or ".".join(words[0] for words in shared) or ("" if steps else "-")
    return Row(1 if inside else 0, name, role, _amount(leaves))


def _amount(leaves: Iterable[Leaf]) -> str:
    """`12 modules, 85.1 million parameters`."""
    modules = parameters = 0
    for leaf in leaves:
        modules += leaf.place.instances
        parameters += leaf.place.instances * sum(info.size for info in leaf.tensors.values())
    return f"{counted(modules, 'module')}, {rounded(parameters)} parameters"


def _role_paths(root: Block) -> dict[Shape, str]:
    """What a folder is to the block around it, outermost first: `vision`, `projector`, `attention`."""
    found: dict[Shape, str] = {}
    pending: list[tuple[Block, tuple[str, ...]]] = [(root, ())]
    while pending:
        block, words = pending.pop(0)
        if words:
            found.setdefault(_shape(block.home), ".".join(words))
        for role, value in block.roles.items():
            inner = () if role in ("layers", "tower") or block.kind == "layer" else words
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, Block):
                    is_shown = all(
                        leaf.role is None for leaf in item.leaves()
                    )  # by what it holds: only counted
                    pending.append((item, (*inner, unnumbered(role) if is_shown else role)))
    return found


def _layers(root: Block) -> dict[Shape, list[Block]]:
    """Blocks of kind layer by the shape of their home; a layer in a layer does not count."""
    found: dict[Shape, list[Block]] = {}
    pending = [root]
    while pending:
        for value in pending.pop().roles.values():
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, Block) and item.kind == "layer":
                    found.setdefault(_shape(item.home), []).append(item)
                elif isinstance(item, Block):
                    pending.append(item)
    return found


def _loose_blocks(
    architecture: Architecture, layers: Mapping[Shape, list[Block]]
) -> dict[Shape, list[Block]]:
    """The outermost folders that are blocks by what they hold, and of whose leaves a forward calls one after the other."""
    found: dict[Shape, list[Block]] = {}
    for block in architecture.shown_blocks():
        shape = _shape(block.home)
        around = {shape[:at] for at in range(len(shape))}
        if around.isdisjoint(layers) and around.isdisjoint(found) and all(map(_is_loose, block.leaves())):
            found.setdefault(shape, []).append(block)
    return found


def _is_loose(leaf: Leaf) -> bool:
    return leaf.role is not None and not leaf.block


def _shape(place: Place) -> Shape:
    return tuple(part if isinstance(part, str) else None for part in place)


def _layer_depth(leaf: Leaf, layers: dict[Shape, list[Block]]) -> int:
    """How many parts of the leaf's place are its layer's; 0 in no layer.

    Where nothing is known the outermost numbered folder counts as one. A stem may stand beside layers, in the same list.
    """
    shape = _shape(leaf.place)
    is_loose = _is_loose(leaf)
    if leaf.role is not None and all(indices is None for _, indices in leaf.block) and not is_loose:
        return 0
    for depth in range(len(shape) - is_loose, 0, -1):
        if shape[:depth] in layers:
            return depth
    if is_loose:
        return 0
    outermost = next((at + 1 for at, part in enumerate(shape) if part is None), 0)
    return outermost if not layers and outermost < len(shape) else 0


def _grouped(leaves: list[Leaf], layers: dict[Shape, list[Block]]) -> list[Leaf]:
    """In the order of the file, but each layer's leaves together where it first appears."""
    groups: dict[tuple[object, ...], list[Leaf]] = {}
    for leaf in leaves:
        depth = _layer_depth(leaf, layers)
        key = ("layer", *leaf.place[:depth]) if depth else ("leaf", *leaf.place)
        groups.setdefault(key, []).append(leaf)
    return [leaf for group in groups.values() for leaf in group]


def _layer_row(layer: Place, blocks: list[Block]) -> Row:
    block = next((block for block in blocks if block.home == layer), blocks[0] if blocks else None)
    if block is None:
        return Row(0, printable(str(layer)), "-", "")
    flow = block.flow.rpartition("/")[2] if block.flow else ""
    if all(map(_is_loose, block.leaves())):
        return Row(0, printable(str(layer)), block.kind, f"{held_summary(block)}: a block by what it holds")
    return Row(0, printable(str(layer)), f"layer, {flow}" if flow else "layer", layer_summary(block))


def _leaf_row(leaf: Leaf, depth: int) -> Row:
    name = printable(str(Place(leaf.place[depth:])))
    return Row(1 if depth else 0, name, _role(leaf), leaf_summary(leaf))


def _role(leaf: Leaf) -> str:
    """The role path below the layer or tower, such as `attention.query`; `-` for none."""
    if leaf.role is None:
        return "-"
    steps = [name for name, _ in leaf.block]
    inside = steps[max((at + 1 for at, name in enumerate(steps) if name in ("layers", "tower")), default=0) :]
    return ".".join([*inside, leaf.role])
