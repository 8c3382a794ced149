"""The tree of names beside what they mean; equal layers are one entry.

embeddings.word_embeddings   embeddings.token       Embedding 30,522 × 384
encoder.layer.{0..5}         layer, post_norm       attention 12 heads, feed_forward 384-1536 gelu
  attention.self.query       attention.query        Linear 384 → 384
"""

from __future__ import annotations

from typing import NamedTuple

from mapper.architecture import Architecture, Block, Leaf, Place
from mapper.report.style import Paint
from mapper.report.summary import layer_summary, leaf_summary
from mapper.report.words import printable

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


def tree(architecture: Architecture, paint: Paint) -> str:
    """The rows in columns."""
    found = rows(architecture)
    shown = found[:SHOWN_ROWS]
    names = [f"{'':{2 * row.depth}}{row.name}" for row in shown]
    wide = min(max(map(len, names), default=0), _NAME_WIDTH)
    role_wide = min(max((len(row.role) for row in shown), default=0), _ROLE_WIDTH)
    lines = []
    for name, row in zip(names, shown, strict=True):
        role = paint("role" if row.role != "-" else "doubt", f"{row.role:{role_wide}}")
        lines.append(f"{name:{wide}}  {role}  {row.details}".rstrip())
    if len(found) > len(shown):
        lines.append(f"and {len(found) - len(shown):,} more rows, all of them with --json")
    return "\n".join(lines)


def rows(architecture: Architecture) -> list[Row]:
    """A row for each folded leaf, those of a layer below a row for the layer."""
    layers = _layers(architecture.root)
    found: list[Row] = []
    above: Place | None = None
    for leaf in _grouped(architecture.leaves, layers):
        depth = _layer_depth(leaf, layers)
        layer = Place(leaf.place[:depth])
        if depth and layer != above:
            found.append(_layer_row(layer, layers.get(_shape(layer), [])))
        above = layer if depth else None
        found.append(_leaf_row(leaf, depth))
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


def _shape(place: Place) -> Shape:
    return tuple(part if isinstance(part, str) else None for part in place)


def _layer_depth(leaf: Leaf, layers: dict[Shape, list[Block]]) -> int:
    """How many parts of the leaf's place are its layer's; 0 in no layer.

    Where nothing is known the outermost numbered folder counts as one.
    """
    shape = _shape(leaf.place)
    for depth in range(len(shape), 0, -1):
        if shape[:depth] in layers:
            return depth
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
