"""Folders that are blocks by what they hold, as nodes around the modules that one flow calls one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from mapper.architecture import Block, Place
from mapper.report.summary import held_summary

if TYPE_CHECKING:
    from mapper.picture.graph import Graph, Node

ORIGIN = "what the folder holds"


def gather(graph: Graph, node: Node, blocks: Iterable[Block], known: Mapping[int, int]) -> set[int]:
    """A node in `node` for each block whose modules stand side by side there; the outermost block is first."""
    made = {node.id}
    for block in blocks:
        ids = [known.get(id(leaf), -1) for leaf in block.leaves()]
        parents = {graph.nodes[at].parent if at >= 0 else None for at in ids}
        around = graph.nodes[parents.pop() or 0] if len(parents) == 1 and None not in parents else None
        if around is not None and around.id in made and len(ids) < len(around.children):
            made.add(_insert(graph, around, block, ids))
    return made - {node.id}


def _insert(graph: Graph, around: Node, block: Block, ids: list[int]) -> int:
    """A node for a block in another, with the nodes of its modules in it."""
    title = str(Place(block.home[len(around.place) :]))
    made = type(around)(len(graph.nodes), around.id, block.kind, title)
    made.role, made.place, made.origin = block.role, block.home, ORIGIN
    made.detail = held_summary(block)
    made.count = max(1, block.home.instances // max(1, around.place.instances))
    graph.nodes.append(made)
    around.children[around.children.index(ids[0])] = made.id
    around.children[:] = [child for child in around.children if child not in ids]
    made.children = ids
    for at in ids:
        graph.nodes[at].parent = made.id
    return made.id


def above(graph: Graph, at: int | None) -> Iterator[int]:
    """A node and those around it, the innermost first."""
    while at is not None:
        yield at
        at = graph.nodes[at].parent


def parted(graph: Graph, start: int, end: int) -> Iterator[tuple[int, int | None, int | None]]:
    """The pieces of an edge, each with the level that it is drawn in; None where it enters or leaves that."""
    ahead, behind = list(above(graph, end)), list(above(graph, start))
    common = next(at for at in ahead[1:] if at in behind[1:])
    for inner, level in pairwise(behind[: behind.index(common)]):
        yield level, inner, None
    yield common, behind[behind.index(common) - 1], ahead[ahead.index(common) - 1]
    for inner, level in pairwise(ahead[: ahead.index(common)]):
        yield level, None, inner
