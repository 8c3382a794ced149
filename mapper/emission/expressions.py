"""Expressions as formatted text on one line: the closed subset of flows alone, spaced as the formatter would.

The standard library's unparser differs between Python versions and quotes; generated source must not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

_PRECEDENCE: dict[type[ast.operator], tuple[int, str]] = {
    ast.BitOr: (2, "|"), ast.BitAnd: (3, "&"),
    ast.Add: (4, "+"), ast.Sub: (4, "-"), ast.Mult: (5, "*"), ast.Div: (5, "/"), ast.FloorDiv: (5, "//"), ast.Mod: (5, "%"),
    ast.MatMult: (5, "@"), ast.Pow: (7, "**"),
}  # fmt: skip
_COMPARISON, _UNARY = 1, 6  # ranks between those
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip
_STRING = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""")
_LONG_LIST = re.compile(r"\{([^{},]+,[^{},]+),[^{}]+\}")  # `{0..2,4..6,8..10}`
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quoted(text: str) -> str:
    """A string literal, ASCII only, whatever the text holds; in single quotes where these need fewer escapes."""
    mark = "'" if text.count('"') > text.count("'") else '"'
    escapes = {**_ESCAPES, mark: f"\\{mark}"}
    return mark + "".join(escapes.get(char) or _printable(char) for char in text) + mark


def _printable(char: str) -> str:
    return char if " " <= char <= "~" else _escape(char)


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def literal(value: Any) -> str:
    """JSON values, tuples and numbers as the literal a person would write."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, (list, tuple)):
        items = [literal(item) for item in value]
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, float):
        return _float(value)
    if value is ...:
        return "..."
    return repr(value)


def _float(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    mantissa, _, exponent = repr(value).partition("e")  # 1e-05 -> 1e-5
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def comment(text: str) -> str:
    """Text that may stand behind `#` or in a docstring: one line, printable ASCII, no quotes that could close it."""
    safe = "".join(char if " " <= char <= "~" else _escape(char) for char in text)
    return safe.replace("\\", "\\\\").replace('"""', "'''") if "\\" in safe or '"""' in safe else safe


def comment_row(row: str, width: int) -> str:
    """A comment on a row of its own, cut between words to its width; lists of layers lose what is behind their first two runs before that."""
    if len(row) > width:
        row = _LONG_LIST.sub(r"{\1,..}", row)
    if len(row) <= width:
        return row
    words = row[: width - 4].rpartition(" ")[0]
    return f"{words} ..." if len(words) > width // 2 else f"{row[: width - 3].rstrip()}..."


def expression(node: ast.expr, outer: int = 0) -> str:
    """The text of an expression; `outer` is the precedence of what stands around it."""
    if isinstance(node, ast.Constant):
        return literal(node.value)
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{expression(node.value, 9)}.{node.attr}"
    if isinstance(node, ast.Call):
        return f"{expression(node.func, 9)}({', '.join(_arguments(node))})"
    if isinstance(node, ast.Subscript):
        return f"{expression(node.value, 9)}[{_index(node.slice)}]"
    if isinstance(node, ast.BinOp):
        return _binary(node, outer)
    if isinstance(node, ast.UnaryOp):
        text = f"{'~' if isinstance(node.op, ast.Invert) else '-'}{expression(node.operand, _UNARY)}"
        return f"({text})" if outer > _UNARY else text
    if isinstance(node, ast.Compare):
        symbol = _COMPARISONS[type(node.ops[0])]
        sides = [expression(side, _COMPARISON + 1) for side in (node.left, node.comparators[0])]
        return f"({sides[0]} {symbol} {sides[1]})" if outer > 0 else f"{sides[0]} {symbol} {sides[1]}"
    if isinstance(node, ast.IfExp):
        text = f"{expression(node.body, 1)} if {expression(node.test)} else {expression(node.orelse)}"
        return f"({text})" if outer > 0 else text
    if isinstance(node, ast.Tuple):
        items = ", ".join(map(_item, node.elts))
        return (
            f"({items},)" if len(node.elts) == 1 else f"({items})" if outer or len(node.elts) == 0 else items
        )
    if isinstance(node, ast.List):
        return f"[{', '.join(map(_item, node.elts))}]"
    if isinstance(node, ast.ListComp):
        loops = (f"for {expression(one.target)} in {expression(one.iter)}" for one in node.generators)
        return f"[{expression(node.elt)} {' '.join(loops)}]"
    if isinstance(node, ast.Starred):
        return f"*{expression(node.value, 9)}"
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return (
            "{"
            + ", ".join(f"{expression(key)}: {_item(value)}" for key, value in pairs if key is not None)
            + "}"
        )
    raise TypeError(f"{type(node).__name__} is outside the language of flows")


def _item(node: ast.expr) -> str:
    """What stands between two commas: a tuple there has brackets of its own."""
    return expression(node, 1 if isinstance(node, ast.Tuple) else 0)


def _arguments(node: ast.Call) -> Iterable[str]:
    yield from map(_item, node.args)
    for keyword in node.keywords:
        yield f"{keyword.arg}={_item(keyword.value)}"


def _index(node: ast.expr) -> str:
    if isinstance(node, ast.Tuple):
        return ", ".join(_index(item) for item in node.elts)
    if not isinstance(node, ast.Slice):
        return expression(node)
    bounds = [node.lower, node.upper, *([node.step] if node.step else [])]
    texts = [expression(bound) if bound else "" for bound in bounds]
    if all(map(_is_simple, bounds)):
        return ":".join(texts)
    text = texts[0]
    for other in texts[1:]:  # as the formatter writes it: a colon stands apart from what is beside it
        text += f"{' ' if text and not text.endswith(':') else ''}:{f' {other}' if other else ''}"
    return text


def _is_simple(bound: ast.expr | None) -> bool:
    """Whether a slice's bound stands close to its colon; the spelling of a module or size is a name with dots."""
    if isinstance(bound, ast.UnaryOp):
        return _is_simple(bound.operand)
    return (
        bound is None
        or isinstance(bound, ast.Constant)
        or (isinstance(bound, ast.Name) and "." not in bound.id)
    )


def _binary(node: ast.BinOp, outer: int) -> str:
    rank, symbol = _PRECEDENCE[type(node.op)]
    if isinstance(node.op, ast.Pow):
        left, right = expression(node.left, rank + 1), expression(node.right, _UNARY)
        simple = isinstance(node.left, (ast.Name, ast.Constant, ast.Attribute)) and (
            isinstance(node.right, (ast.Name, ast.Constant, ast.Attribute)) or _is_negative(node.right)
        )
        text = f"{left}**{right}" if simple else f"{left} ** {right}"
    else:
        text = f"{expression(node.left, rank)} {symbol} {expression(node.right, rank + 1)}"
    return f"({text})" if rank < outer else text


def _is_negative(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.operand, (ast.Name, ast.Constant))


def split(text: str) -> list[str]:
    """The items between the commas that no bracket or string encloses."""
    commas = [at for at, depth in _depths(text) if depth == 0 and text[at] == ","]
    items = [
        text[start:end].strip()
        for start, end in zip([0, *(at + 1 for at in commas)], [*commas, None], strict=True)
    ]
    return items if items[-1] else items[:-1]


def _depths(text: str) -> Iterator[tuple[int, int]]:
    """Each position outside of strings, with the brackets that are open behind it."""
    depth = 0
    for at, char in enumerate(_STRING.sub(lambda match: "\0" * len(match[0]), text)):
        depth += (char in "([{") - (char in ")]}")
        if char != "\0":
            yield at, depth
