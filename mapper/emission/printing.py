"""Text with places where it may break: printed on as few lines as its groups need.

A group stands on one line if that fits, else its own breaks become line ends. The measure is the formatter's, whose groups
may also be said to fit where their brackets break (`Loose`): that decides whether a value is put in brackets of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 110
STEP = 4


@dataclass(frozen=True)
class Break:
    """A line end where its group breaks, else `flat`; with `within` only where that group breaks."""

    flat: str = ""
    within: int | None = None


@dataclass(frozen=True)
class Broken:
    """Text that is there only where its group breaks."""

    text: str


@dataclass(frozen=True)
class Indent:
    """Content further in; with `within` only where that group breaks."""

    content: Doc
    within: int | None = None


@dataclass(frozen=True)
class Group:
    """With `within` it is one only where that group breaks."""

    content: Doc
    name: int | None = None
    within: int | None = None


@dataclass(frozen=True)
class Loose:
    """Content that may break while the group around it, `within`, counts as fitting."""

    content: Doc
    within: int


@dataclass(frozen=True)
class Words:
    """A string literal alone in its brackets: several that Python joins where it is too long for one line."""

    text: str


Doc = str | Break | Broken | Indent | Group | Loose | Words | Sequence["Doc"]


@dataclass(frozen=True)
class _Item:
    doc: Doc
    indent: int
    is_broken: bool
    is_remeasured: bool = False  # inside of what broke although the group around it fits
    are_all_lines_measured: bool = False


class Printer:
    """The lines of one document, from a column on."""

    def __init__(self, indent: int) -> None:
        self.rows = [" " * indent]
        self.broken: dict[int, bool] = {}  # groups by name

    def print(self, doc: Doc) -> list[str]:
        stack = [_Item(doc, len(self.rows[0]), True)]
        while stack:
            self._print(stack.pop(), stack)
        return self.rows

    def _print(self, item: _Item, stack: list[_Item]) -> None:
        doc = item.doc
        if isinstance(doc, Group) and self._is_on(doc.within):
            flat = _Item(doc.content, item.indent, False)
            is_flat = not item.is_broken and not item.is_remeasured
            if doc.name is not None:
                self.broken[doc.name] = False
            fits = is_flat or self._fits(flat, stack)
            if doc.name is not None:
                self.broken[doc.name] = not fits
            stack.append(flat if fits else _Item(doc.content, item.indent, True))
        elif isinstance(doc, Loose):
            is_free = not self.broken.get(doc.within, True)
            stack.append(_Item(doc.content, item.indent, item.is_broken, is_free or item.is_remeasured))
        elif isinstance(doc, Break) and self._is_end(doc, item):
            self.rows.append(" " * item.indent)
        elif isinstance(doc, Words):
            first, *others = _words(doc.text, item.indent) if item.is_broken else [doc.text]
            self.rows[-1] += first
            self.rows += [" " * item.indent + other for other in others]
        else:
            self.rows[-1] += _own_text(doc, item.is_broken)
            stack.extend(self._inner(item))

    def _fits(self, item: _Item, rest: list[_Item]) -> bool:
        """Whether everything up to the next line end fits, and every line of what is loose."""
        width, before = len(self.rows[-1]), len(rest)
        stack = [item]
        while stack or before:
            if not stack:
                before -= 1
                stack.append(rest[before])
            item = stack.pop()
            doc = item.doc
            if isinstance(doc, Loose) and not item.is_broken and not self.broken.get(doc.within, True):
                stack.append(_Item(doc.content, item.indent, True, False, True))
            elif isinstance(doc, Break) and self._is_end(doc, item):
                if not item.are_all_lines_measured:
                    return True
                width = item.indent
            else:
                width += len(_own_text(doc, item.is_broken))
                stack.extend(self._inner(item))
            if width > WIDTH:
                return False
        return True

    def _inner(self, item: _Item) -> list[_Item]:
        """What a document consists of, the last part first."""
        doc, indent = item.doc, item.indent
        if isinstance(doc, (Indent, Group, Loose)):
            parts: Sequence[Doc] = [doc.content]
            indent += STEP if isinstance(doc, Indent) and self._is_on(doc.within) else 0
        else:
            parts = [] if isinstance(doc, (str, Break, Broken, Words)) else doc
        return [
            _Item(part, indent, item.is_broken, item.is_remeasured, item.are_all_lines_measured)
            for part in reversed(parts)
        ]

    def _is_on(self, within: int | None) -> bool:
        return within is None or self.broken.get(within, False)

    def _is_end(self, doc: Break, item: _Item) -> bool:
        return item.is_broken and self._is_on(doc.within)


def _own_text(doc: Doc, is_broken: bool) -> str:
    if isinstance(doc, Break):
        return doc.flat
    if isinstance(doc, (Broken, Words)):
        return doc.text if is_broken or isinstance(doc, Words) else ""
    return doc if isinstance(doc, str) else ""


def _words(literal: str, indent: int) -> list[str]:
    """A string literal in pieces that fit, broken between words."""
    rows, room = [""], WIDTH - indent - 2
    for word in re.findall(r"\S+ ?|\s", literal[1:-1]):
        if rows[-1] and len(rows[-1]) + len(word) > room:
            rows.append("")
        rows[-1] += word
    return [literal[0] + row + literal[0] for row in rows]
