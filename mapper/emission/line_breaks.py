"""One logical line of source as lines of the allowed width, broken where the formatter would break it.

A value that is too long breaks at its brackets, or stands in brackets put around it: the latter where a sum has several
signs, or has no bracket at either end; then each operand stands on its own line if they do not fit on one.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import lru_cache

from mapper.emission.printing import STEP, WIDTH, Break, Broken, Doc, Group, Indent, Loose, Printer, Words

_PLAIN, _INSIDE = "plain", "inside"  # outside of all brackets; within some
_SIGNS: dict[type[ast.operator], int] = {
    ast.Pow: 1, ast.Mult: 2, ast.Div: 2, ast.FloorDiv: 2, ast.Mod: 2, ast.MatMult: 2, ast.Add: 3, ast.Sub: 3,
    ast.BitAnd: 4, ast.BitOr: 5,
}  # fmt: skip
_COMPARISON = 6
_CHOICE = 7
_Signed = ast.BinOp | ast.Compare  # of two sides: flows compare one thing with another
_KNOWN = 2**10  # lines
_CHAIN = 0  # the rank of a call of a call's attribute
_Level = str | int  # an int names the group of the brackets that may be put around a value


def lines(text: str, indent: int) -> list[str]:
    """One logical line, broken where it is too long; as it is where it is no whole statement."""
    return [" " * indent + text] if indent + len(text) <= WIDTH else [*_broken(text, indent)]


@lru_cache(maxsize=_KNOWN)
def _broken(text: str, indent: int) -> Sequence[str]:
    """A line that is too long: many models have it, and some more than once."""
    try:
        (node,) = ast.parse(f"{text} pass" if text.endswith(":") else text).body
    except (SyntaxError, ValueError):
        return [" " * indent + text]
    return Printer(indent).print(_Layout(text, indent).statement(node))


class _Layout:
    """The documents of a statement's parts; whatever has no brackets is copied from its text."""

    def __init__(self, source: str, indent: int) -> None:
        self.source, self.indent = source, indent

    def text(self, node: ast.expr) -> str:
        return self.source[node.col_offset : node.end_col_offset]

    def statement(self, node: ast.stmt) -> Doc:
        if isinstance(node, ast.FunctionDef):
            return self.signature(node)
        value = _value(node)
        if value is None:
            return self.source
        start, end = value.col_offset, value.end_col_offset
        return [self.source[:start], self.value(value, node), self.source[end:]]

    def signature(self, node: ast.FunctionDef) -> Doc:
        arguments = node.args.args
        start, end = arguments[0].col_offset, _end(node.args)
        defaults = [None] * (len(arguments) - len(node.args.defaults)) + [*node.args.defaults]
        ends = [
            (default or argument).end_col_offset
            for argument, default in zip(arguments, defaults, strict=True)
        ]
        items: list[Doc] = [self.source[a.col_offset : e] for a, e in zip(arguments, ends, strict=True)]
        return [self.source[: start - 1], _bracketed("(", Group(_listed(items)), ")"), self.source[end + 1 :]]

    def value(self, node: ast.expr, statement: ast.stmt) -> Doc:
        """What is assigned or returned, with the brackets that it may need."""
        if isinstance(node, ast.Tuple) and not self.has_brackets(node):
            return _in_new_brackets(_listed([self.doc(item, _INSIDE) for item in node.elts]))
        if isinstance(statement, ast.Expr):
            return self.doc(node, _PLAIN)
        need = self.need(node)
        if need == "never":
            return self.doc(node, _PLAIN)
        if need == "fit":
            if self.indent + STEP + len(self.text(node)) > WIDTH:
                return self.text(node)
            return Group([Broken("("), Indent([Break(), self.text(node)]), Break(), Broken(")")])
        if not self.can_go_without(node):
            return _in_new_brackets(self.doc(node, _INSIDE))
        return Group(
            [Broken("("), Indent([Break(), self.doc(node, 0)], within=0), Break(), Broken(")")], name=0
        )

    def need(self, node: ast.expr) -> str:
        """Whether brackets are put around a value: `never`, only where it then fits (`fit`), or as its parts ask."""
        if isinstance(node, (ast.BinOp, ast.Compare, ast.BoolOp, ast.IfExp)) or self.is_chain(node):
            return "ask"
        if isinstance(node, ast.Name):
            return "fit"
        if isinstance(node, ast.Attribute):
            return "never" if self.is_wrapped_in(node, node.value) else self.need(node.value)
        if isinstance(node, ast.UnaryOp):
            return "never" if self.is_wrapped_in(node, node.operand) else self.need(node.operand)
        if isinstance(node, (ast.Call, ast.Subscript)):
            inner = node.func if isinstance(node, ast.Call) else node.value
            need = "never" if self.is_wrapped_in(node, inner) else self.need(inner)
            return "never" if need == "fit" else need
        return "never"

    def can_go_without(self, node: ast.expr) -> bool:
        """Whether a sum or chain may break at its own brackets."""
        if not any(mark in self.text(node) for mark in "([{"):
            return False
        ranks = list(self.ranks(node))
        if ranks.count(max(ranks)) > 1:
            return False
        if max(ranks) == _CHAIN:
            return True
        last = self.last(node)
        is_closed = not isinstance(last, ast.Subscript) and self.text(node)[-1] in ")]}"
        return self.text(node)[0] in "([{" or (is_closed and not self.text(node).endswith("()"))

    def ranks(self, node: ast.expr) -> list[int]:
        """The signs outside of all brackets, by what binds less."""
        if isinstance(node, _Signed):
            sides = [side for side in _sides(node) if not self.is_wrapped(node, side)]
            return [_rank(node), *(rank for side in sides for rank in self.ranks(side))]
        if isinstance(node, ast.IfExp):
            return [_CHOICE] * 2  # its two words
        if isinstance(node, ast.UnaryOp):
            return [] if self.is_wrapped_in(node, node.operand) else self.ranks(node.operand)
        if isinstance(node, ast.Attribute):
            has_brackets = isinstance(node.value, (ast.Call, ast.Subscript)) or self.is_wrapped_in(
                node, node.value
            )
            inner = [] if self.is_wrapped_in(node, node.value) else self.ranks(node.value)
            return [_CHAIN, *inner] if has_brackets else inner
        if isinstance(node, (ast.Call, ast.Subscript)):
            return self.ranks(node.func if isinstance(node, ast.Call) else node.value)
        return []

    def last(self, node: ast.expr) -> ast.expr:
        while isinstance(node, _Signed) and not self.is_wrapped(node, _sides(node)[1]):
            node = _sides(node)[1]
        return node

    def has_brackets(self, node: ast.expr) -> bool:
        """Whether a tuple has brackets of its own."""
        return self.source[node.col_offset] == "(" and node.col_offset < node.elts[0].col_offset  # type: ignore[attr-defined]

    def is_wrapped(self, outer: _Signed, side: ast.expr) -> bool:
        if side is outer.left:
            return side.col_offset > outer.col_offset
        return side.end_col_offset < outer.end_col_offset  # type: ignore[operator]

    def is_wrapped_in(self, outer: ast.expr, inner: ast.expr) -> bool:
        """Whether brackets stand around an attribute's value, a call's function, a sign's operand."""
        return self.source[inner.col_offset - 1] == "(" and inner.col_offset > outer.col_offset

    def is_chain(self, node: ast.expr) -> bool:
        """Whether at least two attributes are asked of calls: such a chain breaks before its dots."""
        count = 0
        while isinstance(node, (ast.Call, ast.Subscript, ast.Attribute)):
            inner = node.func if isinstance(node, ast.Call) else node.value
            is_wrapped = self.is_wrapped_in(node, inner)
            if isinstance(node, ast.Attribute):
                count += is_wrapped or isinstance(inner, (ast.Call, ast.Subscript))
            if is_wrapped:
                break
            node = inner
        return count > 1

    def doc(self, node: ast.expr, level: _Level, in_chain: bool = False) -> Doc:
        if isinstance(node, _Signed):
            return _grouped(self.operands(node, level), level)
        if isinstance(node, ast.IfExp):
            return _grouped(self.choice(node, level), level)
        if isinstance(node, (ast.Call, ast.Subscript, ast.Attribute)):
            is_root = not in_chain and self.is_chain(node)
            made = self.step(node, level, in_chain or is_root)
            return Group(made) if is_root and level != _PLAIN else made
        if isinstance(node, ast.UnaryOp):
            start = self.source[node.col_offset : node.operand.col_offset].rstrip("(")
            return [start, self.operand(node.operand, level, self.is_wrapped_in(node, node.operand))]
        if isinstance(node, ast.Starred):
            return ["*", self.doc(node.value, level)]
        return self.display(node, level)

    def display(self, node: ast.expr, level: _Level) -> Doc:
        if isinstance(node, (ast.Tuple, ast.List)) and node.elts:
            items = [self.doc(item, _INSIDE) for item in node.elts]
            is_single_tuple = isinstance(node, ast.Tuple) and len(items) == 1
            content = [*items, ","] if is_single_tuple else _listed(items)
            return _bracketed(self.text(node)[0], content, self.text(node)[-1], level)
        if isinstance(node, ast.Dict) and node.keys:
            pairs = zip(node.keys, node.values, strict=True)
            content = _listed([[self.pair_head(key), self.doc(value, _INSIDE)] for key, value in pairs])
            return _bracketed("{", content, "}", level)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.DictComp)):
            return _bracketed(self.text(node)[0], self.loops(node), self.text(node)[-1], level)
        return self.text(node)

    def pair_head(self, key: ast.expr | None) -> str:
        """What stands before a value of a dict: its key, or that it is a dict whose pairs come in here."""
        return "**" if key is None else f"{self.text(key)}: "

    def loops(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp) -> Doc:
        element: Doc = (
            self.doc(node.value, _INSIDE) if isinstance(node, ast.DictComp) else self.doc(node.elt, _INSIDE)
        )
        if isinstance(node, ast.DictComp):
            element = [self.pair_head(node.key), element]
        parts: list[Doc] = [Group(element)]
        for loop in node.generators:
            head = f"for {self.text(loop.target)} in "
            tests = [f" if {self.text(test)}" for test in loop.ifs]
            parts += [Break(" "), Group([head, self.doc(loop.iter, _INSIDE), *tests])]
        return Group(parts)

    def operands(self, node: ast.expr, level: _Level) -> Doc:
        """The terms of the lowest rank, each but the first with its sign before it."""
        terms: list[tuple[str, ast.expr, bool]] = []
        rank = _rank(node)  # type: ignore[arg-type]
        while isinstance(node, _Signed) and _rank(node) == rank:
            left, right = _sides(node)
            is_left_wrapped = self.is_wrapped(node, left)
            sign = self.source[left.end_col_offset : right.col_offset].strip("() ")
            terms.insert(0, (sign, right, self.is_wrapped(node, right)))
            node, is_wrapped = left, is_left_wrapped
            if is_wrapped:
                break
        docs: list[Doc] = [self.operand(node, level, is_wrapped)]
        for sign, term, wrapped in terms:
            is_tight = sign == "**" and f"{sign} " not in self.source[: term.col_offset][-4:]
            docs += [_soft("" if is_tight else " ", level), sign if is_tight else f"{sign} "]
            docs.append(self.operand(term, level, wrapped))
        return docs

    def choice(self, node: ast.IfExp, level: _Level) -> Doc:
        """`a if test else b`, each of the three on its own line where they do not fit on one."""
        body = self.operand(node.body, level, node.body.col_offset > node.col_offset)
        is_wrapped = node.orelse.end_col_offset != node.end_col_offset
        if isinstance(node.orelse, ast.IfExp) and not is_wrapped:
            other = self.choice(node.orelse, level)  # of a chain either all is on one line, or none
        else:
            other = self.operand(node.orelse, level, is_wrapped)
        return [body, _soft(" ", level), "if ", self.doc(node.test, level), _soft(" ", level), "else ", other]

    def operand(self, node: ast.expr, level: _Level, is_wrapped: bool) -> Doc:
        if is_wrapped:
            return _bracketed("(", self.doc(node, _INSIDE), ")", level)
        return self.doc(node, level)

    def step(self, node: ast.Call | ast.Subscript | ast.Attribute, level: _Level, in_chain: bool) -> Doc:
        """A call, an index or an attribute behind what stands before it."""
        inner = node.func if isinstance(node, ast.Call) else node.value
        is_wrapped = self.is_wrapped_in(node, inner)
        before = self.operand(inner, level, True) if is_wrapped else self.doc(inner, level, in_chain=in_chain)
        if isinstance(node, ast.Call):
            return [before, self.arguments(node, level)]
        if isinstance(node, ast.Subscript):
            return [before, _bracketed("[", self.index(node.slice), "]", level)]
        breaks = in_chain and (is_wrapped or isinstance(inner, (ast.Call, ast.Subscript)))
        return [before, *([_soft("", level)] if breaks else []), f".{node.attr}"]

    def index(self, node: ast.expr) -> Doc:
        if isinstance(node, ast.Tuple):
            return Group(_listed([self.doc(item, _INSIDE) for item in node.elts]))
        return self.doc(node, _INSIDE)

    def arguments(self, node: ast.Call, level: _Level) -> Doc:
        if not node.args and not node.keywords:
            return "()"
        items: list[Doc] = [self.doc(argument, _INSIDE) for argument in node.args]
        items += [[f"{word.arg}=", self.doc(word.value, _INSIDE)] for word in node.keywords]
        if len(items) == 1 and node.args:
            (only,) = node.args
            if isinstance(only, ast.GeneratorExp):
                items = [self.loops(only)]
            elif isinstance(only, ast.Constant) and isinstance(only.value, str):
                items = [Words(self.text(only))]
        return _bracketed("(", Group(_listed(items)), ")", level)


def _value(node: ast.stmt) -> ast.expr | None:
    """The part of a statement that may break."""
    if isinstance(node, ast.If):
        return node.test
    if isinstance(node, ast.For):
        return node.iter
    if isinstance(node, ast.Raise):
        return node.exc
    return node.value if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)) else None


def _sides(node: _Signed) -> tuple[ast.expr, ast.expr]:
    return (node.left, node.comparators[0] if isinstance(node, ast.Compare) else node.right)


def _rank(node: _Signed) -> int:
    return _COMPARISON if isinstance(node, ast.Compare) else _SIGNS[type(node.op)]


def _end(arguments: ast.arguments) -> int:
    last: list[ast.expr | ast.arg] = [*arguments.args, *arguments.defaults]
    return max(node.end_col_offset or 0 for node in last)


def _listed(items: list[Doc]) -> Doc:
    """Items with a comma behind each; behind the last one where there are several and they are broken."""
    parts: list[Doc] = []
    for item in items:
        parts += [",", Break(" ")] if parts else []
        parts.append(item)
    return [*parts, Broken(",")] if len(items) > 1 else parts


def _bracketed(start: str, content: Doc, end: str, level: _Level = _INSIDE) -> Doc:
    made = Group([start, Indent([Break(), content]), Break(), end])
    return Loose(made, level) if isinstance(level, int) else made


def _in_new_brackets(content: Doc) -> Doc:
    return Group([Broken("("), Indent([Break(), content]), Break(), Broken(")")])


def _grouped(content: Doc, level: _Level) -> Doc:
    if level == _PLAIN:
        return content
    return Group(content, within=level) if isinstance(level, int) else Group(content)


def _soft(flat: str, level: _Level) -> Doc:
    """A place to break within brackets alone."""
    if level == _PLAIN:
        return flat
    return Break(flat, within=level) if isinstance(level, int) else Break(flat)
