"""Words of names as patterns compare them: for rules, which have patterns, and for naming, which has names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from mapper.limits import LAYERS

INDEX_DIGITS = 9  # a longer number is a word: no list has a billion elements


def is_index(word: str) -> bool:
    """Whether a word is a number as code writes it: "0", "12", not "01" or a digit of another script."""
    return word.isdigit() and word.isascii() and (word[0] != "0" or word == "0") and len(word) <= INDEX_DIGITS


@lru_cache(maxsize=65536)
def normal(word: str) -> str:
    """A word as patterns compare it: small letters, capitals and dashes as underscores (`SelfAttention`, `out-proj`)."""
    if word.isascii() and word.islower():  # as nearly all are
        return word.replace("-", "_")
    letters = []
    for at, letter in enumerate(word):
        if at and letter.isupper() and word[at - 1].islower():
            letters.append("_")
        letters.append("_" if letter == "-" else letter.lower())
    return "".join(letters)


@lru_cache(maxsize=65536)
def parts(word: str) -> frozenset[str]:
    """The parts of a word and pairs of them, with and without a number at their end: attn, norm1, norm, attn_norm ..."""
    pieces = [piece for piece in normal(word).split("_") if piece]
    pieces += [f"{one}_{two}" for one, two in pairwise(pieces)]
    return frozenset(pieces) | frozenset(piece.rstrip("0123456789") for piece in pieces) - {""}


def unnumbered(role: str) -> str:
    """`attention_2`, the second attention of a layer, without its number."""
    stem = role.rstrip("0123456789")
    return stem[:-1] if stem != role and stem.endswith("_") else role


def close_to(name: str, names: Iterable[str], count: int = 1, alike: float = 0.6) -> list[str]:
    """Those of `names` that somebody may have meant who wrote `name`: the nearest first, `alike` from 0 to 1."""
    from difflib import get_close_matches  # here: who makes no mistake needs none of it

    return get_close_matches(name, names, count, alike)


def spelled(numbers: Sequence[int]) -> str:
    """Numbers, each once and rising, as paths have them: `3`, `{0..5}`, `{0..10..2}` in even steps, `{0..2,4,6..8}`."""
    first, last, count = numbers[0], numbers[-1], len(numbers)
    if count == 1:
        return str(first)
    if last - first == count - 1:  # as nearly all are
        return f"{{{first}..{last}}}"
    step = numbers[1] - first
    if count > 2 and last - first == step * (count - 1) and all(b - a == step for a, b in pairwise(numbers)):
        return f"{{{first}..{last}..{step}}}"
    return f"{{{','.join(_runs(numbers))}}}"


def _runs(numbers: Sequence[int]) -> Iterator[str]:
    """Two beside each other are written as two, more as a run."""
    first = 0
    for at in range(1, len(numbers) + 1):
        if at < len(numbers) and numbers[at] == numbers[at - 1] + 1:
            continue
        if at - first > 2:
            yield f"{numbers[first]}..{numbers[at - 1]}"
        else:
            yield from map(str, numbers[first:at])
        first = at


def spelled_numbers(word: str) -> set[int]:
    """The numbers that `spelled` has written so; none for any other word."""
    found: set[int] = set()
    for item in word.removeprefix("{").removesuffix("}").split(","):
        run = item.split("..")
        if len(run) > 3 or not all(map(is_index, run)):
            return set()
        first, last, step = map(int, (*run, *(run[0], "1")[len(run) - 1 :]))  # `3` is `3..3..1`
        if last < LAYERS and step:
            found.update(range(first, last + 1, step))
    return found


def shared_start(one: Sequence[object], other: Sequence[object]) -> int:
    """With how many words two paths begin alike."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count
