"""What a role path in a flow's body refers to: leaves, blocks, or the elements of a list role."""

from __future__ import annotations

import ast

from mapper._dataclass import dataclass
from mapper.architecture import Block, Leaf
from mapper.rulebook.flows import EITHER

Item = Block | Leaf


@dataclass(frozen=True)
class Reference:
    """The meaning of `layers[0].attention.query.weight` in one block.

    `items` are the leaves or blocks meant (several: the elements of a list, or one role of a loop variable);
    `rest` are the attributes and positions behind them (`weight`, `weight[0]`); `base` is the loop variable the path starts with.
    """

    items: tuple[Item, ...]
    rest: tuple[str | int, ...]
    is_list: bool = False
    base: str | None = None
    base_items: tuple[Item, ...] = ()


def chain(node: ast.expr) -> list[str | int] | None:
    """`a.b[0].c` as ["a", "b", 0, "c"], or None for any other expression."""
    parts: list[str | int] = []
    while True:
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif (
            isinstance(node, ast.Subscript)
            and isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, int)
        ):
            parts.append(node.slice.value)
            node = node.value
        elif isinstance(node, ast.Name):
            return [node.id, *reversed(parts)]
        else:
            return None


def refer(block: Block, parts: list[str | int], loops: dict[str, tuple[Item, ...]]) -> Reference | None:
    """The reference that a chain of names makes in this block; None if it does not start with a role or a loop variable."""
    first = str(parts[0])
    base: str | None
    if first in loops:
        items, is_list, base = loops[first], False, first
    elif first in block.roles:
        value = block.roles[first]
        items, is_list, base = (
            (tuple(value), True, None) if isinstance(value, list) else ((value,), False, None)
        )
    else:
        return None
    base_items = items
    for index, part in enumerate(parts[1:], 1):
        step = _step(items, is_list, part)
        if step is None:
            return Reference(items, tuple(parts[index:]), is_list, base, base_items)
        items, is_list = step
    return Reference(items, (), is_list, base, base_items)


def has_role(block: Block, path: str) -> bool:
    """Whether the block has a role; a dotted path descends, and `layers.attention.x` asks the first element that has it."""
    if "." not in path:  # as most are, and rules ask this of each block many times
        value = block.roles.get(path)
        return bool(value) if isinstance(value, list) else value is not None
    items: tuple[Item, ...] = (block,)
    for word in path.split("."):
        found: list[Item] = []
        for item in items:
            value = item.roles.get(word) if isinstance(item, Block) else None
            found += value if isinstance(value, list) else [] if value is None else [value]
        if not found:
            return False
        items = tuple(found)
    return True


def has_one(block: Block, paths: str) -> bool:
    """Whether the block has a role, or one of several: `lm_head | ctc_head`."""
    if EITHER not in paths:
        return has_role(block, paths)
    return any(has_role(block, path) for path in paths.split(EITHER))


def _step(items: tuple[Item, ...], is_list: bool, part: str | int) -> tuple[tuple[Item, ...], bool] | None:
    if isinstance(part, int):
        return _element(items, part) if is_list else None
    values = [item.roles[part] for item in items if isinstance(item, Block) and part in item.roles]
    if not values or is_list:
        return None
    if isinstance(values[0], list):
        return tuple(item for value in values if isinstance(value, list) for item in value), True
    return tuple(value for value in values if not isinstance(value, list)), False


def _element(items: tuple[Item, ...], index: int) -> tuple[tuple[Item, ...], bool] | None:
    positions = sorted(position for item in items for position in element_indices(item))
    if not -len(positions) <= index < len(positions):
        return None
    wanted = positions[index]
    return tuple(item for item in items if wanted in element_indices(item)), False


def element_indices(item: Item) -> tuple[int, ...]:
    """The positions that a folded list element stands for."""
    if isinstance(item, Block):
        return item.indices or ()
    return next((part for part in reversed(item.place) if isinstance(part, tuple)), ())
