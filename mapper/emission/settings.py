"""What a flow says about a leaf: its extents, the arguments of its constructor, and which element of a list it is."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mapper.architecture import Block, Fact, Leaf
from mapper.flows import arithmetic
from mapper.flows.deciding import with_decided
from mapper.flows.flow import Flow
from mapper.flows.language import copied, parse_expression

_WIDTH = "hidden_size"
INDEX = "index"  # what an argument calls the number of an element of a list


@dataclass(frozen=True)
class Setting:
    """What a leaf's block says about it: declared extents, arguments, and the facts both are written in."""

    shape: tuple[str, ...] = ()
    arguments: Mapping[str, Any] | None = None
    facts: Mapping[str, Fact] | None = None
    prefix: str = ""  # role of the block
    depth: int | None = None  # where the number of its list stands in its place
    indices: tuple[int, ...] = (
        0,
    )  # its number in that list, `index` in an argument; several in a loop over them

    def by_element(self) -> list[list[str]]:
        """The names in each of its arguments that is another for each element of the list."""
        names = (
            [*arithmetic.names(parse_expression(str(text), "leaves", 1))]
            for text in (self.arguments or {}).values()
        )
        return [own for own in names if INDEX in own]


def setting(leaf: Leaf, role: str, block: Block, flow: Flow) -> Setting:
    """The flow's `shapes` and `leaves` for one role."""
    rule = flow.rule
    shape = tuple(rule.shapes.get(role, ())) or _as_wide(leaf, block)
    shape = with_decided(shape, rule.body, block.facts)
    return Setting(shape, rule.leaves.get(role), block.facts, block.role)


def _as_wide(leaf: Leaf, block: Block) -> tuple[str, ...]:
    """The shape of a norm, or of a scale, that no flow declares and that is as long as its block is wide."""
    if (leaf.kind != "Parameter" and not leaf.kind.endswith("Norm")) or not leaf.tensors:
        return ()
    width, shape = block.facts.get(_WIDTH), next(iter(leaf.tensors.values())).torch_shape
    is_row = width is not None and [size for size in shape if size != 1] == [width.value]
    return tuple("_" if size == 1 else _WIDTH for size in shape) if is_row else ()


def of_tensor(whole: Setting, part: Leaf) -> Setting:
    """What is said of one tensor of a module that stands by itself: a bias is as long as the module gives."""
    shape = whole.shape[:1] if part.place[-1] == "bias" else whole.shape
    return Setting(shape, None, whole.facts, whole.prefix)


def shared_facts(inner: Setting, outer: Setting) -> dict[int, Fact]:
    """The inner block's facts for the extents of a leaf, each with what the block around calls the same extent."""
    found: dict[int, Fact] = {}
    for one, other in zip(inner.shape, outer.shape, strict=False):
        mine, theirs = (inner.facts or {}).get(one), (outer.facts or {}).get(other)
        if mine is not None and theirs is not None and mine is not theirs and mine.value == theirs.value:
            found[id(mine)] = theirs
    return found


def list_depth(items: list[Leaf], home: int) -> int | None:
    """Where the places of the leaves of a list have its numbers: the last place below the block in which they differ."""
    places = [item.place for item in items]
    for depth in reversed(range(home, min(map(len, places)))):
        parts = {place[depth] for place in places}
        if any(isinstance(part, tuple) for part in parts) and sum(map(len, parts)) > 1:
            return depth
    return None


def of_element(node: ast.expr, index: int) -> ast.expr:
    """An argument with the number of the element in place of `index`."""
    found: ast.expr = _OfElement(index).visit(copied(node))
    return found


class _OfElement(ast.NodeTransformer):
    def __init__(self, index: int):
        self.index = index

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(self.index) if node.id == INDEX else node


def is_stated(fact: Fact) -> bool:
    """Whether a config says it in so many words: then it is a field of the Config, whatever torch's default is."""
    return fact.evidence not in ("default", "rule") and fact.source != "architecture"
