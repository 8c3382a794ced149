"""What is to be answered: every question with its values, and a line to copy that answers all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from mapper.architecture import Question
from mapper.report.wording import printable

_PLAIN = re.compile(
    r"[\w.,+-]+"
)  # a value that no shell reads as anything else, in quotes with a bar between two
_SHOWN = 40
_VALUES = 8  # of one question
_COLUMN = 40
_WIDTH = 100
_DOC = 260  # letters of what a fact is
_VALUE = 160  # of one value, which is typed as it stands


def asked(questions: Sequence[Question], most: int = _SHOWN) -> list[str]:
    """A line for so many of them, then the options that answer all: of the values in quotes one is to be kept."""
    shown = questions[:most]
    names = [printable(question.name) for question in shown]
    wide = min(max(map(len, names), default=0), _COLUMN)
    told: set[str] = set()
    lines = [
        line
        for name, question in zip(names, shown, strict=True)
        for line in _lines(name, wide, question, told)
    ]
    if len(questions) > len(shown):
        lines.append(f"and {len(questions) - len(shown):,} more, all of them with --json")
    return [*lines, *_all_at_once(questions, most)] if questions else []


def explained(questions: Sequence[Question], most: int = _SHOWN) -> int:
    """How many lines of `asked` say what the facts are."""
    return len({question.doc for question in questions[:most] if question.doc})


def _lines(name: str, wide: int, question: Question, told: set[str]) -> Iterator[str]:
    """The values of one, below it what it is, if not told before, and why nobody knows, where a rule says that."""
    yield f"{name:{wide}}  {_described(question)}"
    for text in (question.doc, question.why):
        if text and text not in told:
            told.add(text)
            yield f"{'':{wide}}  {printable(text, limit=_DOC)}"


def _described(question: Question) -> str:
    """`true or false (at encoder)`."""
    where = f" (at {printable(question.at, limit=60)})" if question.at not in ("", "*") else ""
    if not question.candidates:
        return f"{question.kind or 'a value'} that nothing shows{where}"
    values = [_text(value) for value in question.candidates[:_VALUES]]
    more = len(question.candidates) - len(values)
    last = f"{more} more" if more else values.pop()
    return (f"{', '.join(values)} or {last}" if values else last) + where


def _all_at_once(questions: Sequence[Question], most: int) -> list[str]:
    options = [_option(question) for question in questions[:most]]
    rows = [options[0]]
    for option in options[1:]:
        if len(rows[-1]) + len(option) < _WIDTH:
            rows[-1] += f" {option}"
        else:
            rows.append(option)
    every = "all" if len(options) == len(questions) else "these"
    what = f"answer {every}, with one value of each:"
    if len(questions) == 1:
        what = "answer it, with one of the values:" if questions[0].candidates else "answer it:"
    return [what, *(f"  {row} \\" for row in rows[:-1]), f"  {rows[-1]}"]


def _option(question: Question) -> str:
    """`--set 'attention.causal=true|false'`: quoted, as a shell would read the bar; nothing that is copied whole is an answer."""
    values = [_text(value) for value in question.candidates]
    if not 0 < len(values) <= _VALUES or not all(map(_PLAIN.fullmatch, values)):
        return question.set
    return (
        f"--set '{question.name}={'|'.join(values)}'"
        if len(values) > 1
        else question.set.replace("VALUE", values[0])
    )


def plain_values(question: Question, most: int) -> list[str]:
    """So many of the values that a command line takes as they stand, behind `--set NAME=`; none where one would need quotes."""
    values = [_text(value) for value in question.candidates]
    return values[:most] if all(map(_PLAIN.fullmatch, values)) else []


def _text(value: Any) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value), limit=_VALUE)
