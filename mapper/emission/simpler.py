"""Sizes, lists and conditions as a person would write them: none of one, none twice."""

from __future__ import annotations

import ast
from collections.abc import Collection

from mapper.flows.language import copied, is_optional


def without_ones(node: ast.expr, ones: set[str]) -> ast.expr:
    """`2 * n * size // n` with an n of 1 is `2 * size`; `ones` are the names that are 1."""
    shorter: ast.expr = _Ones(ones).visit(copied(node))
    return shorter


def without_sums_of_one(node: ast.expr) -> ast.expr:
    """`heads + 2 * heads`, where one field is what a flow knows as two, is `3 * heads`."""
    shorter: ast.expr = _Sums().visit(node)
    return shorter


def optional_rows(statements: list[ast.stmt], nullable: Collection[int]) -> list[list[ast.stmt]]:
    """The statements, those in one list that one condition holds for.

    `b = optional(a, f(a))` and `c = optional(b, g(b))` are such where nothing else reads `b`: the statements are all that
    can. `nullable` are the choices (by identity) of which the value may be None itself.
    """
    rows: list[list[ast.stmt]] = []
    for at, node in enumerate(statements):
        before = _optional_name(rows[-1][-1]) if rows else None
        goes_on = before is not None and _asked(node) == before != _optional_name(node)
        goes_on = goes_on and id(rows[-1][-1].value) not in nullable  # type: ignore[attr-defined]
        # the last name is None in front of the condition: none of the others may mean what it was before
        goes_on = goes_on and not any(_reads(row, _optional_name(node)) for row in rows[-1])
        if goes_on and not any(_reads(later, before) for later in statements[at + 1 :]):
            rows[-1].append(node)
        else:
            rows.append([node])
    return rows


def _optional_name(node: ast.stmt) -> str | None:
    """The name that an optional value is given."""
    is_one = (
        isinstance(node, ast.Assign) and is_optional(node.value) and isinstance(node.targets[0], ast.Name)
    )
    return node.targets[0].id if is_one else None  # type: ignore[attr-defined]


def _asked(node: ast.stmt) -> str | None:
    """The name without which an optional value is None."""
    return node.value.args[0].id if _optional_name(node) else None  # type: ignore[attr-defined]


def _reads(node: ast.stmt, name: str | None) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


_ONCE = " for _ in range(1))"


def without_single_loops(text: str) -> str:
    """`nn.ModuleList(Layer(config) for _ in range(1))` as `nn.ModuleList([Layer(config)])`, `*(... for _ in range(1))` as the element."""
    while (end := text.find(_ONCE)) >= 0:
        start = _opening(text, end)
        element, rest = text[start + 1 : end], text[end + len(_ONCE) :]
        is_unpacked = text[start - 1 : start] == "*"
        text = f"{text[: start - 1]}{element}{rest}" if is_unpacked else f"{text[:start]}([{element}]){rest}"
    return text


def _opening(text: str, end: int) -> int:
    """Where the innermost bracket opens that is not closed before `end`."""
    depth = 0
    for at in range(end - 1, -1, -1):
        depth += (text[at] in ")]}") - (text[at] in "([{")
        if depth < 0:
            return at
    raise ValueError(f"no bracket opens before {text[end:]!r}")


class _Ones(ast.NodeTransformer):
    def __init__(self, ones: set[str]):
        self.ones = ones

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, (ast.Mult, ast.FloorDiv)) and self.is_one(node.right):
            return node.left
        return node.right if isinstance(node.op, ast.Mult) and self.is_one(node.left) else node

    def is_one(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.ones


class _Sums(ast.NodeTransformer):
    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        count = _times(node.right, node.left) if isinstance(node.op, ast.Add) else None
        return node if count is None else ast.BinOp(ast.Constant(count + 1), ast.Mult(), node.left)


def _times(node: ast.expr, size: ast.expr) -> int | None:
    """The number by which a size is multiplied; None if it is something else."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    factor = node.left.value if isinstance(node.left, ast.Constant) else None
    return factor if isinstance(factor, int) and ast.dump(node.right) == ast.dump(size) else None
