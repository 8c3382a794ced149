"""Which parts elements of lists have, as complete examples show it: what no example has, and less than one has, lost a part.

Elements of one list may differ (the first layer has no norm, every third one has experts), so each folder inside of a list
has all the sets of words that examples show there. Of the words that a checkpoint has in none of its elements nothing is
said: a field of its config may leave them out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, pairwise
from math import prod
from typing import NamedTuple

Words = tuple["str | tuple[int, ...]", ...]  # of a path; a number, or those of equal layers, is a tuple
Inner = Mapping[Words, set[str]]  # folder -> the words in it; numbers are none
FIRST, NUMBER = "{0}", "{n}"
_TELLING = 3  # elements: how a shorter list is numbered says little


class Elements(NamedTuple):
    """What examples show of the lists on one side of a family's folder."""

    has: dict[str, list[str]]  # folder (`{0}`: where first elements are others) -> words of one such folder
    numbers: dict[
        str, list[int]
    ]  # folder -> the largest first number in it, and the largest step to the next; where that is over 1, the numbers
    as_long: list[list[str]]  # two lists in one folder, always as long as each other, of several lengths


def shown(examples: Iterable[Inner]) -> Elements:
    """What some checkpoints show."""
    has: dict[str, set[str]] = defaultdict(set)
    numbers: dict[str, list[list[int]]] = defaultdict(list)
    lengths: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
    for inner in examples:
        for folder, words in inner.items():
            for place in _places(folder):
                has[place].add(" ".join(sorted(words)))
        lists = _lists(inner)
        for folder, there in lists.items():
            numbers[spelled(folder)].append(sorted(there))
        for one, other in _beside(lists):
            lengths[spelled(one), spelled(other)].add((len(lists[one]), len(lists[other])))
    equal = (pair for pair, both in lengths.items() if len(both) > 1 and all(a == b for a, b in both))
    return Elements(
        {place: sorted(sets) for place, sets in sorted(has.items()) if _are_telling(place, has)},
        {folder: _numbering(lists) for folder, lists in sorted(numbers.items())},
        sorted(map(list, equal)),
    )


def _are_telling(place: str, has: Mapping[str, set[str]]) -> bool:
    """Whether what is in elements is worth noting: less than one word is nothing, and first ones may be as others are."""
    others = has.get(_anywhere(place), set())
    if FIRST in place and has[place] == others:
        return False
    return any(" " in words for words in has[place] | others)


def lesser(known: Elements, inner: Inner, may_lack: Callable[[Words], bool]) -> Iterator[Words]:
    """The paths of what elements of a checkpoint lack, but for what they may lack."""
    yield from _lesser_folders(known, inner, may_lack)
    lists = _lists(inner)
    for folder, numbers in lists.items():
        gaps = _gaps(sorted(numbers), *known.numbers.get(spelled(folder), ()))
        yield from (path for gap in gaps if not may_lack(path := (*folder, (gap,))))
    for one, other in _beside(lists):
        if [spelled(one), spelled(other)] in known.as_long:
            for short, long in ((one, other), (other, one)):
                if lost := lists[long] - lists[short]:
                    yield (*short, tuple(sorted(lost)))


def _lesser_folders(known: Elements, inner: Inner, may_lack: Callable[[Words], bool]) -> Iterator[Words]:
    there, is_usual = _there(inner), _usual(inner)
    for path, words in inner.items():
        for place in _places(path):
            sets = known.has.get(place) or known.has.get(_anywhere(place), [])
            likely = [there(place) & {*one.split(" ")} for one in sets]
            lost = [each for each in _lost(path, words, likely, may_lack) if is_usual(each)]
            if lost:
                yield from lost
                break


def _there(inner: Inner) -> Callable[[str], set[str]]:
    """What elements of a checkpoint have at a place of lists; where only one stands there, at any place.

    What all elements at a place lack is no part that one has lost.
    """
    found: dict[str, set[str]] = defaultdict(set)
    count: Counter[str] = Counter()
    for path, words in inner.items():
        found[spelled(path)] |= words
        for place, elements in _places(path).items():
            alone = f"{place} alone"
            found[alone] |= words
            count[alone] += elements
    return lambda place: found[f"{place} alone" if count[f"{place} alone"] > 1 else _anywhere(place)]


def _usual(inner: Inner) -> Callable[[Words], bool]:
    """Whether as many elements have what is at a path as have not: what most lack, the few have more (one layer in four an adapter)."""
    having: Counter[tuple[str, str]] = Counter()
    count: Counter[str] = Counter()
    for path, words in inner.items():
        elements = prod(len(word) for word in path if isinstance(word, tuple))
        count[spelled(path)] += elements
        for word in words:
            having[spelled(path), word] += elements
    return lambda path: 2 * having[spelled(path[:-1]), str(path[-1])] >= count[spelled(path[:-1])]


def _lost(
    path: Words, words: set[str], likely: Sequence[set[str]], may_lack: Callable[[Words], bool]
) -> list[Words]:
    """What an element has not of the least that has all of it and more; nothing where there is such a one without more."""
    lacking = [
        [(*path, word) for word in sorted(one - words) if not may_lack((*path, word))]
        for one in likely
        if words <= one
    ]
    return min(lacking, key=len, default=[])


def spelled(path: Words) -> str:
    """A path as a pattern: every number is `{n}`."""
    return ".".join(word if isinstance(word, str) else NUMBER for word in path)


def _places(path: Words) -> dict[str, int]:
    """The patterns of a path in which the innermost number is that of a first element, or of others, with how many these are."""
    at = max((at for at, word in enumerate(path) if isinstance(word, tuple)), default=None)
    if at is None:
        return {}
    numbers, around = path[at], prod(len(word) for word in path[:at] if isinstance(word, tuple))
    first = int(0 in numbers)
    counts = {FIRST: around * first, NUMBER: around * (len(numbers) - first)}
    before, after = ([spelled(part)] if part else [] for part in (path[:at], path[at + 1 :]))
    return {".".join((*before, word, *after)): count for word, count in counts.items() if count}


def _anywhere(place: str) -> str:
    return place.replace(FIRST, NUMBER)


def _lists(inner: Inner) -> dict[Words, set[int]]:
    """The numbers in each folder that is a list."""
    found: dict[Words, set[int]] = defaultdict(set)
    for path in inner:
        if path and isinstance(path[-1], tuple):
            found[path[:-1]].update(path[-1])
    return found


def _numbering(lists: Sequence[list[int]]) -> list[int]:
    """The largest first number of lists, and, where one is long, the largest step to the next: what has no weights may stand between.

    Where something does, all their numbers.
    """
    first = max(numbers[0] for numbers in lists)
    if max(map(len, lists)) < _TELLING:
        return [first]
    step = max(other - one for numbers in lists for one, other in pairwise(numbers))
    return [first, step, *(sorted({*chain(*lists)}) if step > 1 else ())]


def _gaps(
    numbers: Sequence[int], first: int | None = None, step: int | None = None, *shown: int
) -> Iterator[int]:
    """Numbers that a list leaves out, where it leaves out more than others do: one that these have, if any."""
    if first is not None and numbers[0] > first:
        yield first
    for one, other in pairwise(numbers):
        if step is not None and other - one > step:
            yield next((number for number in shown if one < number < other), one + step)


def _beside(lists: Iterable[Words]) -> Iterator[tuple[Words, Words]]:
    """Two lists in one folder, by their paths."""
    beside: dict[Words, list[Words]] = defaultdict(list)
    for path in lists:
        if path and isinstance(path[-1], str):
            beside[path[:-1]].append(path)
    for paths in beside.values():
        yield from combinations(sorted(paths, key=str), 2)
