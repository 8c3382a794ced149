"""A list whose runs begin with one kind of layer and go on with another, as a loop over what a Config lists of them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from itertools import accumulate

from mapper.architecture import Fact
from mapper.emission.drafts import Argument
from mapper.emission.module_tree import Folder
from mapper.emission.stages import Listed, Stages

Arguments = dict[str, Argument]


@dataclass(frozen=True)
class Column:
    """What one parameter is in each run: a part of a list."""

    listed: Listed
    places: tuple[int, ...]  # its elements, one for each run

    def expression(self, symbol: str) -> ast.expr:
        """The part of the list that is called so."""
        first, last, size = self.places[0], self.places[-1], len(self.listed.fact.value)
        if len(self.places) == size:
            return ast.Name(symbol)
        lower = ast.Constant(first) if first else None
        upper = ast.UnaryOp(ast.USub(), ast.Constant(size - 1 - last)) if last < size - 1 else None
        return ast.Subscript(ast.Name(symbol), ast.Slice(lower, upper))


def column(stages: Stages, arguments: list[Argument]) -> Column | None:
    """The list of which these are elements in a row; None where some are not."""
    facts = [next(iter(item.symbols.values()), None) if item.is_plain() else None for item in arguments]
    return column_of(stages, facts)


def column_of(stages: Stages, facts: list[Fact | None]) -> Column | None:
    """The list of which these facts are elements in a row."""
    found = [stages.element(fact) if fact is not None else None for fact in facts]
    first = found[0]
    if first is None:
        return None
    places = tuple(item.at for item in found if item is not None and item.listed is first.listed)
    is_row = places == tuple(range(first.at, first.at + len(facts)))
    return Column(first.listed, places) if is_row else None


def firsts_and_others(folder: Folder, counts: list[Fact]) -> list[tuple[Folder, Folder | None]] | None:
    """Of each run the first layer, and the one that all others are, if there are any; None where they are not."""
    by_index = {
        index: child
        for key, child in folder.children.items()
        if isinstance(key, tuple) and isinstance(child, Folder)
        for index in key
    }
    ends = [*accumulate(fact.value for fact in counts)]
    if not ends or sorted(by_index) != list(range(ends[-1])):
        return None
    found: list[tuple[Folder, Folder | None]] = []
    for start, end in zip([0, *ends], ends, strict=False):
        others = {id(by_index[index]): by_index[index] for index in range(start + 1, end)}
        if len(others) > 1 or id(by_index[start]) in others:
            return None
        found.append((by_index[start], next(iter(others.values()), None)))
    return found
