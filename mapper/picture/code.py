"""Which lines of the generated source belong to a node: those of its class, and the one that makes it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mapper.architecture import Place

_CLASS = re.compile(r"^class (\w+)\(", re.MULTILINE)
_TOP = re.compile(r"^\S", re.MULTILINE)

Lines = tuple[int, int, int]  # the first and the last of the class, and the line to point at, from 1


class Code:
    """The generated source by places of the checkpoint."""

    def __init__(self, text: str, classes: Mapping[Place, str]):
        self.text, self.classes = text, classes
        self.rows = text.splitlines()
        self.spans = _spans(text)

    def of(self, place: Place) -> Lines | None:
        """The class of a folder or of the nearest around it, which makes what stands at the place or computes it."""
        for depth in range(len(place), -1, -1):
            span = self.spans.get(self.classes.get(Place(place[:depth]), ""))
            if span is not None:
                return (*span, self.made(span, place, depth) if depth < len(place) else span[0])
        return None

    def made(self, span: tuple[int, int], place: Place, depth: int) -> int:
        """The line of a class that makes what stands at a place in it; the class's first where none names it."""
        words = [part for part in place[depth:] if isinstance(part, str)]
        for word in reversed(words):
            found = re.compile(rf"self\.(register_buffer\(\")?{re.escape(word)}\b|\"{re.escape(word)}\":")
            for at in range(span[0], span[1]):
                if found.search(self.rows[at]):
                    return at + 1
        return span[0]


def _spans(text: str) -> dict[str, tuple[int, int]]:
    """The first and the last line of each class."""
    found = {}
    for match in _CLASS.finditer(text):
        after = _TOP.search(text, match.end())
        end = after.start() if after else len(text)
        body = text[match.start() : end].rstrip()
        first = text.count("\n", 0, match.start()) + 1
        found[match[1]] = (first, first + body.count("\n"))
    return found
