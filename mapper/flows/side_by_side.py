"""Lists that a loop goes through side by side: `zip` ends with the shortest, and what is left of a longer one would be lost in silence."""

from __future__ import annotations

import ast
import math

from mapper.architecture import Block, Leaf
from mapper.errors import FlowError
from mapper.flows.language import dotted, every
from mapper.flows.references import chain, refer


def check_lengths(block: Block, node: ast.For) -> None:
    """FlowError where lists of modules that a loop goes through together are not as long as each other."""
    for call in every(node.iter):
        if isinstance(call, ast.Call) and dotted(call.func) == "zip":
            counted = {ast.unparse(part): _length(block, part) for part in call.args}
            known = {name: length for name, length in counted.items() if length is not None}
            if len(set(known.values())) > 1:
                said = " and ".join(f"{length} of {name}" for name, length in known.items())
                raise FlowError(
                    f"{block.role} at '{block.home}' goes through {said} side by side: some are missing"
                )


def _length(block: Block, source: ast.expr) -> int | None:
    """How many modules a list of a block has, or a part of it; None for anything else."""
    if isinstance(source, ast.Subscript) and isinstance(source.slice, ast.Slice):
        length = _length(block, source.value)
        try:
            ends = (source.slice.lower, source.slice.upper, source.slice.step)
            return None if length is None else len(range(length)[slice(*map(_number, ends))])
        except ValueError:
            return None
    parts = chain(source)
    found = refer(block, parts, {}) if parts else None
    if found is None or not found.is_list or found.rest:
        return None
    return sum(_count(item, len(block.home)) for item in found.items)


def _count(item: Block | Leaf, start: int) -> int:
    """How many elements of a list it stands for; a leaf may stand alone in a numbered folder of each."""
    if isinstance(item, Block):
        return len(item.indices or ())
    return math.prod(len(part) for part in item.place[start:] if isinstance(part, tuple))


def _number(node: ast.expr | None) -> int | None:
    """The end of a slice. ValueError where that is no number."""
    value = None if node is None else ast.literal_eval(node)
    if value is not None and not isinstance(value, int):
        raise ValueError(value)
    return value
