"""A list whose runs begin with one kind of layer and go on with another, as a loop over what a Config lists of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from mapper.architecture import Fact
from mapper.emission.drafts import CLOSE, OPEN, Argument
from mapper.emission.module_tree import Folder
from mapper.emission.stages import Listed, Stages
from mapper.words import unnumbered

_MARK = re.compile(f"{OPEN}(\\d+){CLOSE}")
_EMPTY = f"{OPEN}{CLOSE}"
_WIDTH = ("channel", "feature", "size")
_NUMBERED = re.compile(r"^.*?_\d+_")
FEWEST = 4  # elements that make a loop
Arguments = dict[str, Argument]
ELEMENT = "size"  # what a loop calls an element of a list that it goes through several times each


@dataclass(frozen=True)
class Column:
    """What one parameter is in each run: a part of a list."""

    listed: Listed
    places: tuple[int, ...]  # its elements, one for each run

    def expression(self, symbol: str) -> ast.expr:
        """The part of the list that is called so."""
        return _part(symbol, self.places[0], self.places[-1], len(self.listed.fact.value))


def _part(symbol: str, first: int, last: int, size: int) -> ast.expr:
    """From one element to another one, of so many that there are."""
    if last - first == size - 1:
        return ast.Name(symbol)
    lower = ast.Constant(first) if first else None
    upper = ast.UnaryOp(ast.USub(), ast.Constant(size - 1 - last)) if last < size - 1 else None
    return ast.Subscript(ast.Name(symbol), ast.Slice(lower, upper))


def repeated(symbol: str, places: list[int], size: int) -> ast.expr | None:
    """`[size for size in sizes[1:] for _ in range(3)]` for elements in a row, each so many times; None for others."""
    first, last = places[0], places[-1]
    times = places.count(first)
    if places != [at for at in range(first, last + 1) for _ in range(times)]:
        return None
    every = ast.Call(ast.Name("range"), [ast.Constant(times)], [])
    loops = [
        ast.comprehension(ast.Name(ELEMENT), _part(symbol, first, last, size), [], 0),
        ast.comprehension(ast.Name("_"), every, [], 0),
    ]
    return ast.ListComp(ast.Name(ELEMENT), loops)


def period(values: tuple[object, ...]) -> int:
    """How many times a row of values is one that is shorter."""
    lengths = (size for size in range(1, len(values)) if len(values) % size == 0)
    found = next((size for size in lengths if values[:size] * (len(values) // size) == values), len(values))
    return len(values) // found


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


def indexed(arguments: list[Argument]) -> Fact | None:
    """The list of which these are all elements in order, each written as one: `rates[0]`, `rates[1]`."""
    facts = [next(iter(item.symbols.values()), None) for item in arguments]
    first = facts[0]
    if first is None or not isinstance(first.value, (list, tuple)) or len(first.value) != len(arguments):
        return None
    nodes = [item.expression for item in arguments]
    is_whole = all(
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == at
        for at, node in enumerate(nodes)
    )
    return first if is_whole and all(fact is first for fact in facts) else None


def is_beside(made: Fact, word: str, values: tuple[object, ...]) -> bool:
    """Whether a list of widths has these but for one at either end: what elements read is what those before give."""
    if made.name.partition(".")[0] != word or not isinstance(made.value, list):
        return False
    known = tuple(made.value)
    is_width = unnumbered(made.name).removesuffix("s").endswith(_WIDTH) and len(known) == len(values)
    return is_width and len(values) > 2 and (values[1:] == known[:-1] or values[:-1] == known[1:])


def same_argument(one: Argument, other: Argument) -> bool:
    """Whether two elements have one and the same argument."""
    facts = [[*map(id, argument.symbols.values())] for argument in (one, other)]
    return (
        one.value == other.value and one.expression_text() == other.expression_text() and facts[0] == facts[1]
    )


def split_marks(text: str) -> tuple[str, list[int]]:
    """A call with its marks empty, and the numbers of the arguments that stood there."""
    return _MARK.sub(_EMPTY, text), [int(number) for number in _MARK.findall(text)]


def put_marks(text: str, given: list[str]) -> str:
    """The call with what is given in its empty marks."""
    first, *rest = text.split(_EMPTY)
    return first + "".join(put + part for put, part in zip(given, rest, strict=True))


def plain_hint(hint: str) -> str:
    """`upsampler_0_in_channels` as a loop calls it: `in_channels`."""
    return _NUMBERED.sub("", hint)


def padding_text(values: tuple[int, ...], passed: Mapping[str, tuple[int, ...]]) -> str:
    """A padding by the kernel sizes and strides that a loop goes through, too; empty where it is none of the usual ones."""
    kernels = passed.get("kernel_size")
    if kernels is None:
        return ""
    strides = passed.get("stride", (0,) * len(kernels))
    if values == tuple((kernel - stride) // 2 for kernel, stride in zip(kernels, strides, strict=True)):
        return "(kernel_size - stride) // 2" if "stride" in passed else "kernel_size // 2"
    return "kernel_size // 2" if values == tuple(kernel // 2 for kernel in kernels) else ""
