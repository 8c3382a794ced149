"""Names and role paths with numbers in them, said by arithmetic: `input_blocks.{1 + i * (depth + 1) + j}.0.norm`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from mapper.flows.arithmetic import evaluate, names, parse

_BRACES = re.compile(r"\{([^{}]*)\}")
_DIGITS = re.compile(r"\d+")
ANY = "*"  # stands for every number in a starred name
_OWN = "n"  # `{n}`: a number that is the same in the role path and in the name, one after the other


@dataclass(frozen=True)
class Template:
    """A path whose numbers are arithmetic over those of another."""

    texts: tuple[str, ...]  # around the numbers, one more than these
    numbers: tuple[ast.expr, ...]

    def of(self, known: Mapping[str, int]) -> str:
        """The path; KeyError for a variable that is not known."""
        made = [self.texts[0]]
        for number, text in zip(self.numbers, self.texts[1:], strict=True):
            made += (str(evaluate(number, known)), text)
        return "".join(made)

    @property
    def variables(self) -> list[str]:
        return list(dict.fromkeys(name for number in self.numbers for name in names(number)))

    @property
    def starred(self) -> str:
        return starred(ANY.join(self.texts))

    def plain(self, number: str) -> str:
        """With `number` for each of its numbers, as the keys of entries have them."""
        return number.join(self.texts)

    @cached_property
    def _found(self) -> re.Pattern[str]:
        return re.compile(r"(\d+)".join(map(re.escape, self.texts)))

    def read(self, path: str, known: Mapping[str, int], below: Mapping[str, int]) -> dict[str, int] | None:
        """What its variables are in this path; None where it is not of this form.

        `known` are variables that are the same in every path, `below` what others are smaller than.
        """
        match = self._found.fullmatch(path)
        if match is None:
            return None
        said = [(number, int(text)) for number, text in zip(self.numbers, match.groups(), strict=True)]
        found = dict(known)
        for number, value in said:
            if isinstance(number, ast.Name) and found.setdefault(number.id, value) != value:
                return None
        rest = [name for name in self.variables if name not in found]
        largest = max((value for _, value in said), default=0)
        for values in product(*(range(below.get(name, largest + 1)) for name in rest)):
            all_of = {**found, **dict(zip(rest, values, strict=True))}
            fits = all(evaluate(number, all_of) == value for number, value in said)
            if fits and all(value < below.get(name, value + 1) for name, value in all_of.items()):
                return all_of
        return None


def template(text: str) -> Template:
    """A path as a file has it; ValueError for what is no arithmetic. The `{n}` of it are `n0`, `n1` and so on."""
    pieces = _BRACES.split(text)
    own = _counted()
    said = (next(own) if piece.strip() == _OWN else piece for piece in pieces[1::2])
    return Template(tuple(pieces[::2]), tuple(map(parse, said)))


def _counted() -> Iterator[str]:
    at = 0
    while True:
        yield f"{_OWN}{at}"
        at += 1


def starred(path: str) -> str:
    return _DIGITS.sub(ANY, path)
