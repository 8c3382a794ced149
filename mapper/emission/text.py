"""Expressions and statements as formatted text: the closed subset of flows alone, laid out as the formatter would.

The standard library's unparser differs between Python versions and quotes; generated source must not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Any

WIDTH = 110
_PRECEDENCE: dict[type[ast.operator], tuple[int, str]] = {
    ast.Add: (1, "+"), ast.Sub: (1, "-"), ast.Mult: (2, "*"), ast.Div: (2, "/"), ast.FloorDiv: (2, "//"), ast.Mod: (2, "%"),
    ast.MatMult: (2, "@"), ast.Pow: (4, "**"),
}  # fmt: skip
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quoted(text: str) -> str:
    """A string literal in double quotes, ASCII only, whatever the text holds."""
    return (
        '"'
        + "".join(_ESCAPES.get(char) or (char if " " <= char <= "~" else _escape(char)) for char in text)
        + '"'
    )


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
        text = f"-{expression(node.operand, 3)}"
        return f"({text})" if outer > 3 else text
    if isinstance(node, ast.Tuple):
        items = ", ".join(expression(item) for item in node.elts)
        return (
            f"({items},)" if len(node.elts) == 1 else f"({items})" if outer or len(node.elts) == 0 else items
        )
    if isinstance(node, ast.List):
        return f"[{', '.join(expression(item) for item in node.elts)}]"
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return (
            "{"
            + ", ".join(f"{expression(key)}: {expression(value)}" for key, value in pairs if key is not None)
            + "}"
        )
    raise TypeError(f"{type(node).__name__} is outside the language of flows")


def _arguments(node: ast.Call) -> Iterable[str]:
    for argument in node.args:
        yield expression(argument, 0) if not isinstance(argument, ast.Tuple) else expression(argument, 1)
    for keyword in node.keywords:
        yield f"{keyword.arg}={expression(keyword.value, 1 if isinstance(keyword.value, ast.Tuple) else 0)}"


def _index(node: ast.expr) -> str:
    if isinstance(node, ast.Tuple):
        return ", ".join(_index(item) for item in node.elts)
    if not isinstance(node, ast.Slice):
        return expression(node)
    simple = all(
        part is None or isinstance(part, (ast.Name, ast.Constant, ast.UnaryOp))
        for part in (node.lower, node.upper)
    )
    colon = ":" if simple else " : "  # as the formatter writes it
    text = f"{expression(node.lower) if node.lower else ''}{colon}{expression(node.upper) if node.upper else ''}".strip()
    return f"{text}:{expression(node.step)}" if node.step else text


def _binary(node: ast.BinOp, outer: int) -> str:
    rank, symbol = _PRECEDENCE[type(node.op)]
    if isinstance(node.op, ast.Pow):
        left, right = expression(node.left, rank + 1), expression(node.right, rank)
        simple = all(
            isinstance(side, (ast.Name, ast.Constant, ast.Attribute)) or _is_negative(side)
            for side in (node.left, node.right)
        )
        text = f"{left}**{right}" if simple else f"{left} ** {right}"
    else:
        text = f"{expression(node.left, rank)} {symbol} {expression(node.right, rank + 1)}"
    return f"({text})" if rank < outer else text


def _is_negative(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.operand, (ast.Name, ast.Constant))


def lines(text: str, indent: int) -> list[str]:
    """One logical line, broken at its brackets where it is too long."""
    pad = " " * indent
    if indent + len(text) <= WIDTH:
        return [pad + text]
    brackets = _brackets(text)
    for start, end in brackets[::-1] if text.startswith("def ") else brackets:
        head, body, tail = text[: start + 1], text[start + 1 : end], text[end:]
        if indent + len(head) > WIDTH or not body:
            continue
        is_call = head[:-1] and (head[-2].isalnum() or head[-2] in "_)]")
        return [pad + head, *_body(body, indent + 4, not is_call), pad + tail]
    return [pad + text]


def _body(body: str, indent: int, is_display: bool) -> list[str]:
    """What stands in a broken bracket: on one line if it fits, else, as in any display, one item a line."""
    items = split(body) if is_display and _outermost(body, " for ") is None else []
    if indent + len(body) <= WIDTH and not body.endswith(",") and len(items) < 2:
        return [" " * indent + body]
    if _STRING.fullmatch(body):
        return _string(body, indent)
    loop = _outermost(body, " for ")
    if loop is not None and not body.startswith("*"):
        return [*lines(body[:loop], indent), *lines(body[loop + 1 :], indent)]
    broken: list[str] = []
    for item in split(body):
        part = lines(item, indent)
        part[-1] += ","
        broken += part
    return broken


def _string(body: str, indent: int) -> list[str]:
    """A long string literal as several that Python joins, broken between words."""
    rows, room = [""], WIDTH - indent - 2
    for word in re.findall(r"\S+ ?|\s", body[1:-1]):
        if rows[-1] and len(rows[-1]) + len(word) > room:
            rows.append("")
        rows[-1] += word
    return [" " * indent + f'"{row}"' for row in rows]


def _outermost(text: str, word: str) -> int | None:
    """Where a word first stands outside of all brackets and strings."""
    depth, quote = 0, False
    for index, char in enumerate(text):
        if char == '"' and (index == 0 or text[index - 1] != "\\"):
            quote = not quote
        elif not quote and char in "([{":
            depth += 1
        elif not quote and char in ")]}":
            depth -= 1
        elif not quote and depth == 0 and text.startswith(word, index):
            return index
    return None


def split(text: str) -> list[str]:
    """The items between the commas that no bracket or string encloses."""
    items, depth, start, quote = [], 0, 0, False
    for index, char in enumerate(text):
        if char == '"' and (index == 0 or text[index - 1] != "\\"):
            quote = not quote
        elif quote:
            continue
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            items.append(text[start:index].strip())
            start = index + 1
    rest = text[start:].strip()
    return [*items, rest] if rest else items


def _brackets(text: str) -> list[tuple[int, int]]:
    """Bracket pairs at the outermost level, the last first, as the formatter prefers."""
    pairs, stack, quote = [], [], False
    for index, char in enumerate(text):
        if char == '"' and (index == 0 or text[index - 1] != "\\"):
            quote = not quote
        elif quote:
            continue
        elif char in "([{":
            stack.append(index)
        elif char in ")]}" and stack:
            start = stack.pop()
            if not stack:
                pairs.append((start, index))
    return pairs[::-1]
