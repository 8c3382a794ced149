"""What every checkpoint of a family has, as its complete examples show it: no file of rules repeats it.

A folder has in every checkpoint what it has wherever it stands in the examples of its family. Of the family's own folder
no example shows what is always at its top, and what stands outside of it (heads) may be another's: there a module has
the tensors that it has in the examples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from mapper.rulebook.elements import NUMBER, Elements, Inner, Words, shown, spelled
from mapper.rulebook.elements import lesser as lesser_elements
from mapper.words import is_index, normal, shared_start

Folders = dict[str, list[str]]  # folder -> what is in each such folder
ROOT, EITHER = "{root}", " | "
_SAME = {"gamma": "weight", "beta": "bias"}  # what norms of old call them
_OTHER_FORMS = ("weight_g", "weight_v", "parametrizations", "original_weight")  # of a weight
_WEIGHTS = ("weight", "qweight", "parametrizations", "packed")  # beginnings of what stands for a weight


_FEW = 2  # complete examples: one alone does not show what may be missing


class Made(NamedTuple):
    """What examples of some model types have in common, and what elements of their lists have, inside and outside."""

    inside: Folders
    outside: Folders
    types: list[str]
    elements: Sequence[Elements]
    of_types: dict[str, Folders]  # model type -> what some of its examples have inside beside that


def made_of(examples: Iterable[tuple[str, Iterable[str]]], recognise: Sequence[str]) -> Made:
    """What is in each folder, of the model type and the names of all tensors of some checkpoints."""
    sides = _Folders(), _Folders()
    lists: tuple[list[Inner], list[Inner]] = [], []
    every = list(examples)
    for _, names in every:
        for at, paths in enumerate(parted([words_of(name) for name in names], recognise)):
            sides[at].add(paths)
            lists[at].append(_inner(paths))
    elements = [*map(shown, lists)]
    types = sorted({model_type for model_type, _ in every})
    inside, outside = sides
    both = (inside.shared(), outside.shared(only_tensors=True)) if len(every) >= _FEW else ({}, {})
    of_types = _of_types(zip((model_type for model_type, _ in every), lists[0], strict=True), both[0])
    return Made(*both, types, elements, of_types)


def _of_types(examples: Iterable[tuple[str, Inner]], shared: Folders) -> dict[str, Folders]:
    """What examples of each type have in folders beside what is in every one."""
    found: dict[str, dict[str, set[str]]] = {}
    for model_type, inner in examples:
        own = found.setdefault(model_type, {})
        for folder, words in inner.items():
            name = spelled(folder)
            own.setdefault(name, set()).update(words.difference(shared.get(name, ())))
    return {
        model_type: {folder: sorted(words) for folder, words in sorted(own.items()) if words}
        for model_type, own in sorted(found.items())
    }


def unheard(made: Made, model_type: str, paths: Sequence[Words], recognise: Sequence[str]) -> list[Words]:
    """The folders that examples of a type have, and in which a module stands here that is in none of them.

    Of a type without examples, and of heads and what else stands at the top, nothing is known.
    """
    own = made.of_types.get(model_type)
    home = _home(paths, recognise)
    inside = _parted([path for path in paths if _SAME.get(str(path[-1]), path[-1]) == "weight"], home)[0]
    found: dict[Words, None] = {}
    for path in inside if own is not None else ():
        folder, word = path[:-2], path[-2] if path[1:] else ()
        known = {*made.inside.get(spelled(folder), ()), *(own or {}).get(spelled(folder), ())}
        if folder and known and isinstance(word, str) and word not in known:
            found[home + folder] = None
    return list(found)


def is_around(folder: Sequence[str | tuple[int, ...]], home: Sequence[str | tuple[int, ...]]) -> bool:
    """Whether a folder is the home of a block or around it; of several equal layers any of them."""
    return len(folder) <= len(home) and all(map(_is_one_of, folder, home))


def _is_one_of(one: str | tuple[int, ...], other: str | tuple[int, ...]) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return not set(one).isdisjoint(other)
    return one == other


def words_of(name: str) -> Words:
    """The words of a tensor's name."""
    return tuple((int(word),) if is_index(word) else normal(word) for word in name.split("."))


def parted(paths: Sequence[Words], recognise: Sequence[str]) -> tuple[list[Words], list[Words]]:
    """The paths in the folder where the names of a family stand, below it, and all others."""
    return _parted(paths, _home(paths, recognise))


def _parted(paths: Sequence[Words], home: Words) -> tuple[list[Words], list[Words]]:
    inside = [path[len(home) :] for path in paths if path[: len(home)] == home]
    return inside, [path for path in paths if path[: len(home)] != home]


def _home(paths: Sequence[Words], recognise: Sequence[str]) -> Words:
    """The folder below which all stand that have the names by which a family is recognised."""
    wanted = [
        tuple(map(_plain, either.split(".")[1:]))
        for pattern in recognise
        for either in pattern.split(EITHER)
        if either.startswith(f"{ROOT}.")
    ]
    home: Words | None = None
    for folder in {folder for path in paths for pattern in wanted for folder in _before(path, pattern)}:
        home = folder if home is None else home[: shared_start(home, folder)]
    return home or ()


def _plain(word: str) -> str:
    return word if word == NUMBER else normal(word)


def _before(path: Words, pattern: tuple[str, ...]) -> Iterator[Words]:
    """The folders in which the names of a pattern stand on a path, without lists."""
    for end in range(len(pattern), len(path) + 1):
        start = end - len(pattern)
        if _fits(path[start], pattern[0]) and all(map(_fits, path[start:end], pattern)):
            at = next((at for at, word in enumerate(path[:start]) if isinstance(word, tuple)), None)
            yield path[:start] if at is None else path[: max(at - 1, 0)]


def _fits(word: str | tuple[int, ...], wanted: str) -> bool:
    if isinstance(word, tuple):
        return wanted == NUMBER or (wanted.isdigit() and int(wanted) in word)
    return wanted == word


class _Folders:
    """What folders have, over all places where each stands."""

    def __init__(self) -> None:
        self.places: Counter[str] = Counter()  # folder -> in how many places it stands
        self.having: dict[str, Counter[str]] = {}  # folder -> word -> in how many of these it is
        self.tensors: set[tuple[str, str]] = set()  # folder and word of each tensor

    def add(self, paths: Sequence[Words]) -> None:
        for folder, inner in _inner(paths).items():
            name = spelled(folder)
            self.places[name] += 1
            self.having.setdefault(name, Counter()).update(inner)
        last = ((path[:-1], path[-1]) for path in paths)
        self.tensors |= {
            (spelled(folder), _SAME.get(word, word)) for folder, word in last if isinstance(word, str)
        }

    def shared(self, only_tensors: bool = False) -> Folders:
        """What is in every place of a folder, but for the top: whether there is a pooling shows no example."""
        found: Folders = {}
        for folder, places in self.places.items():
            always = [word for word, times in self.having[folder].items() if folder and times == places]
            kept = [
                word
                for word in sorted(always)  # the same rules give the same bytes in every process
                if word not in _OTHER_FORMS and not (only_tensors and (folder, word) not in self.tensors)
            ]
            if kept:
                found[folder] = kept
        return found


def _inner(paths: Iterable[Words]) -> dict[Words, set[str]]:
    """Folder -> the words in it; numbers are none."""
    found: dict[Words, set[str]] = {}
    for path in paths:
        for at, word in enumerate(path):
            own = found.setdefault(path[:at], set())
            if isinstance(word, str):
                own.add(_SAME.get(word, word))
    return found


def lacking(made: Made, paths: Sequence[Words], recognise: Sequence[str]) -> Iterator[Words]:
    """The paths of what is not there though it is in the examples."""
    home = _home(paths, recognise)
    for side, (wanted, own) in enumerate(zip(made[:2], _parted(paths, home), strict=True)):
        for folder, inner in _inner(own).items():
            has_weight = any(word.startswith(_WEIGHTS) for word in inner)
            own_words = wanted.get(spelled(folder), ())
            if side and inner.isdisjoint(own_words):
                continue  # a head of another kind under the same name
            for word in own_words:
                if word not in inner and not (word == "weight" and has_weight):
                    yield (*(() if side else home), *folder, word)


def holds(made: Made, folder: Words) -> set[str]:
    """What a folder has in any of the examples, wherever that of the family stands; nothing of one that is in none."""
    tables = [made.inside, made.outside, *made.of_types.values()]
    names = (spelled(folder[at:]) for at in range(len(folder)))
    found = ({word for table in tables for word in table.get(name, ())} for name in names)
    return next(filter(None, found), set())


def lesser(
    made: Made, paths: Sequence[Words], recognise: Sequence[str], may_lack: Callable[[Words], bool]
) -> Iterator[Words]:
    """The paths of what elements of lists lack, though no example has elements with the rest alone."""
    home = _home(paths, recognise)
    for start, known, own in zip((home, ()), made.elements, _parted(paths, home), strict=True):
        may_be_lost = partial(_may_lack, may_lack, start)
        for path in lesser_elements(Elements(*known), _inner(own), may_be_lost):
            yield (*start, *path)


def _may_lack(may_lack: Callable[[Words], bool], start: Words, path: Words) -> bool:
    return may_lack((*start, *path))
