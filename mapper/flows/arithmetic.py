"""Arithmetic over facts: sizes of weights, facts that follow from others, arguments of modules.

What stands in a rule file is checked by `parse`; an argument of a module, which `flows.language` has read, may also be a
tuple or pick from a list.
"""

from __future__ import annotations

import ast
import math
import operator
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from mapper.errors import RuleError
from mapper.flows.language import dotted

Value = Any  # int, float, or a list of them, element by element
_LARGEST = 2.0**64  # no size and no factor of a model is near it
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_OF_LISTS = ("largest", "smallest", "length", "product", "first", "where_largest")


def _bfloat16(number: float) -> float:
    """The nearest number of 8 significant bits, as a constant that published code stores so."""
    bits = int.from_bytes(struct.pack(">f", number), "big")
    bits += 0x7FFF + (bits >> 16 & 1)  # halves go to the even neighbour
    return float(struct.unpack(">f", (bits & 0xFFFF0000).to_bytes(4, "big"))[0])


_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "log": math.log,
    "log2": math.log2,
    "sqrt": math.sqrt,
    "floor": math.floor,
    "ceil": math.ceil,
    "bfloat16": _bfloat16,
    "largest": max,  # of a list
    "smallest": min,
    "length": len,
    "product": math.prod,
    "first": operator.itemgetter(0),
    "where_largest": lambda values: [at for at, value in enumerate(values) if value == max(values)],
}


@lru_cache(maxsize=4096)
def parse(text: str) -> ast.expr:
    """The expression; ValueError for anything but names, numbers and arithmetic."""
    if len(text) > 200:
        raise ValueError("longer than 200 characters")
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text!r} is not arithmetic over facts") from error
    _check(node, text)
    return node


def parse_rule(text: str, file: str, line: int) -> ast.expr:
    """The same for an expression in a rule file; RuleError."""
    try:
        return parse(text)
    except ValueError as error:
        raise RuleError(f"{file}:{line}: {error}") from None


def _check(node: ast.expr, text: str) -> None:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        _check(node.left, text)
        _check(node.right, text)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        _check(node.operand, text)
    elif (
        isinstance(node, ast.Call)
        and _name(node.func) in _FUNCTIONS
        and len(node.args) == 1
        and not node.keywords
    ):
        _check(node.args[0], text)
    elif not _name(node) and not (isinstance(node, ast.Constant) and type(node.value) in (int, float)):
        raise ValueError(f"{text!r} is not arithmetic over facts: names, numbers and + - * / // % **")


def _name(node: ast.expr) -> str | None:
    """`a.b` as text; a leading `fact.` is dropped."""
    name = dotted(node)
    return None if name is None else name.removeprefix("fact.")


@lru_cache(maxsize=4096)
def names(node: ast.expr) -> tuple[str, ...]:
    """Every name in it, in order."""
    return tuple(_names(node))


def _names(node: ast.expr) -> Iterator[str]:
    name = _name(node)
    if name:
        yield name
    elif isinstance(node, ast.BinOp):
        yield from _names(node.left)
        yield from _names(node.right)
    elif isinstance(node, ast.UnaryOp):
        yield from _names(node.operand)
    elif isinstance(node, ast.Call):
        yield from _names(node.args[0])
    elif isinstance(node, (ast.Tuple, ast.List)):
        for item in node.elts:
            yield from _names(item)
    elif isinstance(node, ast.Subscript):
        yield from _names(node.value)
        yield from _names(node.slice)


def evaluate(node: ast.expr, known: Mapping[str, Value]) -> Value:
    """Its value; KeyError for a name that is not known, ValueError for arithmetic that cannot be done."""
    name = _name(node)
    if name:
        return known[name]
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp):
        return _apply(operator.sub, 0, evaluate(node.operand, known))
    if isinstance(node, ast.Call):
        called, value = _name(node.func) or "", evaluate(node.args[0], known)
        if called in _OF_LISTS:
            return _FUNCTIONS[called](value) if isinstance(value, list) and value else value
        return _call(_FUNCTIONS[called], value)
    if isinstance(node, (ast.Tuple, ast.List)):
        return tuple(evaluate(item, known) for item in node.elts)
    if isinstance(node, ast.Subscript):
        return _entry(evaluate(node.value, known), evaluate(node.slice, known))
    if not isinstance(node, ast.BinOp):
        raise ValueError(f"{ast.unparse(node)!r} is not arithmetic over facts")
    return _apply(_OPERATORS[type(node.op)], evaluate(node.left, known), evaluate(node.right, known))


def _entry(values: Value, at: Value) -> Value:
    try:
        return values[at]
    except (TypeError, IndexError, KeyError):
        raise ValueError(f"no entry {at!r} of {values!r}") from None


def _call(function: Callable[[Any], Any], value: Value) -> Value:
    if isinstance(value, list):
        return [_call(function, item) for item in value]
    _apply(operator.add, value, 0)  # a number in range
    try:
        return function(value)
    except (ArithmeticError, ValueError) as error:
        raise ValueError(str(error)) from None


def _apply(function: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    if isinstance(left, list) or isinstance(right, list):
        lefts = left if isinstance(left, list) else [left] * len(right)
        rights = right if isinstance(right, list) else [right] * len(left)
        if len(lefts) != len(rights):
            raise ValueError("lists of different lengths")
        return [_apply(function, one, other) for one, other in zip(lefts, rights, strict=False)]
    for item in (left, right):
        if isinstance(item, bool) or not isinstance(item, (int, float)) or abs(item) > _LARGEST:
            raise ValueError(f"{item!r} is no number to calculate with")
    if function is operator.pow and abs(right) > 64:
        raise ValueError(f"the exponent {right!r} is out of range")
    try:
        value = function(left, right)
    except (ArithmeticError, ValueError) as error:
        raise ValueError(str(error)) from None
    if isinstance(value, complex) or abs(value) > _LARGEST:
        raise ValueError("out of range")
    return (
        int(value) if function is operator.truediv and value == int(value) and _whole(left, right) else value
    )


def _whole(*values: Any) -> bool:
    return all(isinstance(value, int) for value in values)


def solve(node: ast.expr, target: int, known: Mapping[str, Value]) -> tuple[str, int] | None:
    """The one unknown name and its value if sums, products and squares give it; None where they do not (yet).

    ValueError where no whole number fits: `3 * head_dim = 32`.
    """
    name = _name(node)
    if name:
        return None if name in known else (name, target)
    if not isinstance(node, ast.BinOp):
        return None
    for part, rest, first in ((node.left, node.right, True), (node.right, node.left, False)):
        if all(item in known for item in names(rest)) and any(item not in known for item in names(part)):
            inner = _inverse(node.op, target, evaluate(rest, known), first)
            return None if inner is None else solve(part, inner, known)
    return None


def _inverse(op: ast.operator, target: int, rest: Value, first: bool) -> int | None:
    """What the unknown side must be; `first` if it is the left one."""
    if isinstance(op, ast.Mult):
        if not isinstance(rest, int) or rest == 0 or target % rest:
            raise ValueError(f"{target} does not divide by {rest}")
        return target // rest
    if isinstance(op, ast.Add):
        return target - rest
    if isinstance(op, ast.Sub):
        return target + rest if first else rest - target
    if isinstance(op, ast.Pow) and first and rest == 2:
        if target < 0 or math.isqrt(target) ** 2 != target:
            raise ValueError(f"{target} is no square")
        return math.isqrt(target)
    return None
