"""Words of names as patterns compare them: for rules, which have patterns, and for naming, which has names."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

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
