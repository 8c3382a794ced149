"""Patterns against the names of a whole checkpoint: what families are recognised by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from mapper.architecture import Place
from mapper.naming.tree import NUMBER, Node, walk
from mapper.naming.vocabulary import TOWER, in_region, pattern_words
from mapper.naming.words import normal
from mapper.rulebook.vocabulary import Region

EVERYWHERE = Place()
EITHER = " | "  # between patterns of which one is enough


class Names:
    """The folded names of a checkpoint by their last word."""

    def __init__(self, tree: Node):
        self.tree = tree

    @cached_property
    def _by_last(self) -> dict[Any, list[tuple[list[Any], Node]]]:
        found: dict[Any, list[tuple[list[Any], Node]]] = {}
        for place, node in walk(self.tree):
            words = words_of(place)
            if words:
                last = words[-1] if isinstance(words[-1], str) else NUMBER
                found.setdefault(last, []).append((words, node))
        return found

    def within(self, region: Region) -> Names:
        """The names of one region alone."""
        part = Names(self.tree)
        part._by_last = {
            last: [item for item in items if in_region(region, item[0])]
            for last, items in self._by_last.items()
        }
        return part

    def has(self, pattern: str, shape: Sequence[Any] | None = None, within: Place = EVERYWHERE) -> bool:
        """Whether a name ends in the pattern (and, where a shape is given, a tensor there has it; null is any extent).

        `a | b` asks for either.
        """
        return any(self._has(either, shape, within) for either in pattern.split(EITHER))

    def _has(self, pattern: str, shape: Sequence[Any] | None, within: Place) -> bool:
        wanted, folder = pattern_words(pattern), words_of(within)
        last = NUMBER if wanted[-1].isdigit() else wanted[-1]
        outside = pattern.startswith(TOWER)
        return any(
            ends(words, wanted)
            and words[: len(folder)] == folder
            and (shape is None or _shaped(node, shape))
            and not (outside and any(isinstance(word, tuple) for word in words))
            for words, node in self._by_last.get(last, ())
        )

    def is_transposed(self, pattern: str) -> bool:
        """Whether the bias of a map with this name is as long as the second extent of its weight, and not as the first."""
        wanted = pattern_words(pattern)
        found = (node for words, node in self._by_last.get(wanted[-1], ()) if ends(words, wanted))
        return any(map(_is_transposed, found))

    def fit(self, has: Iterable[str], lacks: Iterable[str], within: Place = EVERYWHERE) -> bool:
        """Whether all of the first and none of the second occur, below a folder."""
        return all(self.has(pattern, None, within) for pattern in has) and not any(
            self.has(pattern, None, within) for pattern in lacks
        )


def words_of(place: Place) -> list[Any]:
    """A folded path as patterns compare it."""
    return [normal(part) if isinstance(part, str) else part for part in place]


def ends(words: Sequence[str | tuple[int, ...]], wanted: Sequence[str]) -> bool:
    """Whether a path ends in the words of a pattern."""
    return len(words) >= len(wanted) and all(map(_same, words[len(words) - len(wanted) :], wanted))


def _same(word: str | tuple[int, ...], wanted: str) -> bool:
    if isinstance(word, str):
        return word == wanted
    return wanted == NUMBER or (wanted.isdigit() and int(wanted) in word)


def _is_transposed(node: Node) -> bool:
    weight, bias = (node.children.get(name) for name in ("weight", "bias"))
    if weight is None or bias is None or weight.info is None or bias.info is None:
        return False
    return bias.info.shape == weight.info.shape[1:] != weight.info.shape[:1]


def _shaped(node: Node, shape: Sequence[Any]) -> bool:
    if node.info is None or len(node.info.shape) != len(shape):
        return False
    return all(
        wanted is None or wanted == extent for wanted, extent in zip(shape, node.info.shape, strict=False)
    )
