"""Lines as wide as a terminal: broken between words, a name without a space at its dots."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_GAP = re.compile(r"(?<=\S) {2,}(?=\S)")  # between two columns
_INSIDE_A_NAME = re.compile(r"[./_,:|=-](?=\w)")
_COLUMN = 24  # characters that a last column needs to be gone on with below itself
_STEP = 4  # how much further in a line goes on otherwise


def fitted(text: str, width: int | None) -> str:
    """`text` with every line that is wider than `width` broken; as it is where that is None."""
    if width is None:
        return text
    return "\n".join(piece for line in text.split("\n") for piece in _pieces(line, max(width, 20)))


def _pieces(line: str, width: int) -> list[str]:
    plain = _ESCAPE.sub("", line)
    if len(plain) <= width:
        return [line]
    hang = _hang(plain, width)
    starts = list(_starts(plain, width, hang))
    ends = [*starts[1:], len(plain)]
    bare = [(start, start + len(plain[start:end].rstrip())) for start, end in zip(starts, ends, strict=True)]
    return [
        (" " * hang if at else "") + _painted(line, start, end, last=at == len(bare) - 1)
        for at, (start, end) in enumerate(bare)
    ]


def _hang(plain: str, width: int) -> int:
    """How far in a line goes on: below its last column, if there is room."""
    gaps = [gap.end() for gap in _GAP.finditer(plain)]
    indent = len(plain) - len(plain.lstrip())
    if gaps and gaps[-1] + _COLUMN <= width:
        return gaps[-1]
    return min(indent + _STEP, width // 2)


def _starts(plain: str, width: int, hang: int) -> list[int]:
    """Where each piece begins."""
    starts, room = [0], width
    while len(plain) - starts[-1] > room:
        start = starts[-1]
        end = start + _room_for_words(plain[start : start + room + 1], room)
        while end < len(plain) and plain[end] == " ":
            end += 1
        if end == len(plain):
            break
        starts.append(end)
        room = width - hang
    return starts


def _room_for_words(text: str, room: int) -> int:
    """How many characters of `text` whole words take; of one word alone, whole parts of it."""
    indent = len(text) - len(text.lstrip())
    space = text.rfind(" ", indent, room + 1)
    if space > indent:
        return space
    parts = [found.end() for found in _INSIDE_A_NAME.finditer(text, indent) if found.end() <= room]
    return parts[-1] if parts else room


def _painted(line: str, start: int, end: int, last: bool) -> str:
    """The characters from `start` to `end`, escape sequences not counted, with those between them."""
    kept, at = [], 0
    for piece in re.split(r"(\x1b\[[0-9;]*m)", line):
        if _ESCAPE.fullmatch(piece):
            if start <= at < end or (last and at >= end) or (at == end and piece == "\x1b[0m"):
                kept.append(piece)
        else:
            kept.append(piece[max(start - at, 0) : max(end - at, 0)])
            at += len(piece)
    return "".join(kept)
