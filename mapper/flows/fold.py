"""Steps that read what the step before them made are one line: `q = query(x)`, `q = split_heads(q, n)`.

What alone reads a name takes in what was made under it, as far as a reader would write it: a call goes into a call, a row
of modules into a sum (`x = x + attention(norm(x))`), a copy into what reads it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from mapper.flows.language import copied, every

_CALLS = 1  # deep at most is what goes into another call: more is not read at a glance
_MODULES = 2  # but so many modules in a row go into a third: `norm_after(attention(norm(x)))`


def fold(
    statements: list[ast.stmt], modules: Collection[str] = (), kept: Collection[str] = ()
) -> list[ast.stmt]:
    """The statements with each `n = f(x)` moved into what alone reads it; not those that are `kept` for blocks below."""
    statements = _into_return(_without_copies(statements, kept))
    at = 0
    while at < len(statements):
        joined = _joined(statements, at, modules, kept)
        statements, at = (joined, at) if joined else (statements, at + 1)
    return statements


def _joined(
    statements: list[ast.stmt], at: int, modules: Collection[str], kept: Collection[str]
) -> list[ast.stmt] | None:
    """The statements with one moved into the one that alone reads it; None where it cannot be."""
    first = statements[at]
    name = _plain_target(first)
    if name is None or not isinstance(first, ast.Assign) or isinstance(first.value, ast.Name):
        return None
    end = _reader(statements, at, name)
    if end is None or not isinstance(statements[end], (ast.Assign, ast.Return)):
        return None
    rebinds = isinstance(statements[end], ast.Return) or _plain_target(statements[end]) == name
    if not rebinds and (name in kept or not _is_dead(statements[end + 1 :], name)):
        return None
    value = _taken_in(statements[end].value, name, first.value, modules, rebinds)  # type: ignore[attr-defined]
    if value is None:
        return None
    last = copied(statements[end])
    last.value = value
    return [*statements[:at], *statements[at + 1 : end], last, *statements[end + 1 :]]


def _reader(statements: list[ast.stmt], at: int, name: str) -> int | None:
    """Where the next statement stands that has a name, if what the name stands for is the same there."""
    read = _names(statements[at].value)  # type: ignore[attr-defined]
    for end, node in enumerate(statements[at + 1 :], at + 1):
        if name in _names(node):
            return end
        if not isinstance(node, ast.Assign) or _bound(node) & read:
            return None
    return None


def _is_dead(statements: list[ast.stmt], name: str) -> bool:
    """Whether nothing reads a name before it is bound again."""
    for node in statements:
        if any(_reads(child, name) for child in every(node)):
            return False
        if isinstance(node, ast.Assign) and name in _bound(node):
            return True
    return True


def _taken_in(
    reader: ast.expr, name: str, value: ast.expr, modules: Collection[str], rebinds: bool
) -> ast.expr | None:
    """What reads a name, once, with a value in its place; None where that would be hard to read."""
    if sum(_reads(child, name) for child in every(reader)) != 1:
        return None
    if rebinds and isinstance(value, ast.Subscript) and not _depth(value):
        return _in_chain(reader, name, value)
    is_module = _inner_of(reader, modules) is not None and _is_row(value, modules)
    if (rebinds or is_module) and _starts_with(reader, name) and _may_go_into(reader, value, modules):
        joined = copied(reader)
        joined.args[0] = value
        return joined
    if not _is_row(value, modules) or not _calls(reader) <= set(modules):
        return None  # a sum of several long terms is not read at a glance
    return _in_sum(reader, name, value)


def _in_chain(reader: ast.expr, name: str, value: ast.expr) -> ast.expr | None:
    """`x[:, 1:].flatten(0, 1)` with a value in place of the name that it begins with; None where it does not."""
    start: ast.AST = reader
    while isinstance(start, (ast.Subscript, ast.Attribute, ast.Call)):
        start = start.func if isinstance(start, ast.Call) else start.value
    return (
        _Replace(name, value).visit(copied(reader)) if start is not reader and _reads(start, name) else None
    )


def _may_go_into(call: ast.expr, value: ast.expr, modules: Collection[str]) -> bool:
    depth = _depth(value)
    return depth == _CALLS or (
        depth <= _MODULES and _is_row(value, modules) and _inner_of(call, modules) is not None
    )


def _is_row(value: ast.expr, modules: Collection[str]) -> bool:
    """Whether a value is one call, or modules of which each reads what the one in it gives; or the product of these."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        left, right = value.left, value.right
        return all(_is_row(side, modules) or not _depth(side) for side in (left, right)) and bool(
            _depth(value)
        )
    if not isinstance(value, ast.Call):
        return False
    if _depth(value) == _CALLS:
        return True
    inner = _inner_of(value, modules)
    return inner is not None and _is_row(inner, modules)


def _inner_of(call: ast.expr, modules: Collection[str]) -> ast.expr | None:
    """The one argument of a module; None of anything else."""
    if not isinstance(call, ast.Call) or len(call.args) != 1 or call.keywords:
        return None
    return call.args[0] if isinstance(call.func, ast.Name) and call.func.id in modules else None


def _in_sum(reader: ast.expr, name: str, value: ast.expr) -> ast.expr | None:
    """A sum or a product with a value in place of a name; None where the name stands deeper."""
    if _reads(reader, name):
        return value
    if not isinstance(reader, ast.BinOp) or not isinstance(reader.op, (ast.Add, ast.Mult)):
        return None
    left, right = _in_sum(reader.left, name, value), _in_sum(reader.right, name, value)
    other = reader.right if left else reader.left
    if (left is None) == (right is None) or (isinstance(reader.op, ast.Mult) and _depth(other)):
        return None
    return ast.BinOp(left or copied(reader.left), reader.op, right or copied(reader.right))


def _without_copies(statements: list[ast.stmt], kept: Collection[str]) -> list[ast.stmt]:
    """`y = x` and then `y = norm(y)` is `y = norm(x)`."""
    for at, node in enumerate(statements):
        name = _plain_target(node)
        if (
            name is None
            or name in kept
            or not isinstance(node, ast.Assign)
            or not isinstance(node.value, ast.Name)
        ):
            continue
        end = _copied_until(statements[at + 1 :], name, node.value.id)
        if end is not None:
            rest = statements[at + 1 :]
            renamed = [_Rename(name, node.value.id).visit(copied(item)) for item in rest[:end]]
            return _without_copies([*statements[:at], *renamed, *rest[end:]], kept)
    return statements


def _copied_until(statements: list[ast.stmt], name: str, other: str) -> int | None:
    """How many statements may read another name instead; None where the other changes before the last of them."""
    for end, node in enumerate(statements, 1):
        if not isinstance(node, (ast.Assign, ast.Return)):
            return None
        bound = _bound(node)
        if name in bound:
            return end
        if other in bound:
            return end if _is_dead(statements[end:], name) else None
    return len(statements)


class _Replace(ast.NodeTransformer):
    """Has a value for the one reading of a name."""

    def __init__(self, name: str, value: ast.expr):
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.value if _reads(node, self.name) else node


class _Rename(ast.NodeTransformer):
    """Reads another name."""

    def __init__(self, name: str, other: str):
        self.name, self.other = name, other

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.other, ast.Load()) if _reads(node, self.name) else node


def _into_return(statements: list[ast.stmt]) -> list[ast.stmt]:
    """`y = merge(y)` and then `return output(y)` is `return output(merge(y))`."""
    if len(statements) < 2:
        return statements
    first, last = statements[-2:]
    name = _plain_target(first)
    if name is None or not isinstance(first, ast.Assign) or not isinstance(last, ast.Return):
        return statements
    if _depth(first.value) != _CALLS or last.value is None or not _starts_with(last.value, name):
        return statements
    joined = copied(last)
    joined.value.args[0] = first.value
    return [*statements[:-2], joined]


def _plain_target(node: ast.stmt) -> str | None:
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    return target.id if isinstance(target, ast.Name) else None


def _starts_with(value: ast.expr, name: str) -> bool:
    """Whether an expression is a call with the name as its first argument and nowhere else."""
    if not isinstance(value, ast.Call) or not value.args or not _reads(value.args[0], name):
        return False
    return sum(_reads(child, name) for child in every(value)) == 1


def _reads(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)


def _depth(node: ast.AST) -> int:
    inner = max((_depth(child) for child in ast.iter_child_nodes(node)), default=0)
    return inner + isinstance(node, ast.Call)


def _calls(node: ast.AST) -> set[str]:
    """What is called in it."""
    return {ast.unparse(child.func) for child in every(node) if isinstance(child, ast.Call)}


def _names(node: ast.AST) -> set[str]:
    return {child.id for child in every(node) if isinstance(child, ast.Name)}


def _bound(node: ast.stmt) -> set[str]:
    return {
        child.id for child in every(node) if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)
    }
