"""Patterns against the names of a whole checkpoint: what families are recognised by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from mapper.architecture import Place
from mapper.naming.towers import Folder
from mapper.naming.tree import NUMBER, Node
from mapper.naming.vocabulary import TOWER, in_region, pattern_words
from mapper.rulebook.signs import Signs
from mapper.rulebook.vocabulary import Region
from mapper.words import normal

EVERYWHERE = Place()
IN_OUT, OUT_IN = "[in, out]", "[out, in]"  # how the weight of a map is stored
EITHER = " | "  # between patterns of which one is enough


class Names:
    """The folded names of a checkpoint by their last word."""

    def __init__(self, tree: Node):
        self.tree = tree
        self._shown: dict[Signs, bool] = {}
        self._had: dict[tuple[str, Place, tuple[Place, ...]], bool] = {}  # rules ask for each block

    @cached_property
    def _by_last(self) -> dict[Any, list[tuple[list[Any], Node]]]:
        found: dict[Any, list[tuple[list[Any], Node]]] = {}
        waiting: list[tuple[list[Any], Node]] = [([], self.tree)]  # a folder's words are made normal once
        while waiting:
            words, node = waiting.pop()
            if words:
                last = words[-1] if isinstance(words[-1], str) else NUMBER
                found.setdefault(last, []).append((words, node))
            waiting.extend(([*words, *words_of((part,))], child) for part, child in reversed(node.distinct()))
        return found

    def within(self, region: Region) -> Names:
        """The names of one region alone."""
        return self.of(lambda words: in_region(region, words))

    def has(
        self,
        pattern: str,
        shape: Sequence[Any] | None = None,
        within: Place = EVERYWHERE,
        outside: tuple[Place, ...] = (),
    ) -> bool:
        """Whether a name ends in the pattern (and, where a shape is given, a tensor there has it; null is any extent).

        `a | b` asks for either. Only names `within` a folder count, and none in folders that are `outside` of interest.
        """
        if shape is not None:
            return any(self._has(either, shape, within, outside) for either in pattern.split(EITHER))
        key = pattern, within, outside
        if key not in self._had:
            self._had[key] = any(self._has(either, None, within, outside) for either in pattern.split(EITHER))
        return self._had[key]

    def tensors(self) -> list[Folder]:
        """The folded names of all tensors."""
        return [
            tuple(words) for items in self._by_last.values() for words, node in items if node.info is not None
        ]

    def show(self, signs: Signs) -> bool:
        """Whether the names are those of a family with these signs."""
        if signs not in self._shown:
            has = (self.has(pattern, signs.shapes.get(pattern)) for pattern in signs.recognise)
            self._shown[signs] = all(has) and not any(map(self.has, signs.absent))
        return self._shown[signs]

    def _has(
        self, pattern: str, shape: Sequence[Any] | None, within: Place, outside: tuple[Place, ...]
    ) -> bool:
        return any(_is_within(words, within, outside) for words, _ in self._found(pattern, shape))

    def shapes(
        self, pattern: str, within: Place = EVERYWHERE, outside: tuple[Place, ...] = ()
    ) -> set[tuple[int, ...]]:
        """The shapes of the tensors whose names end in the pattern, of those that `has` counts."""
        found = (hit for either in pattern.split(EITHER) for hit in self._nodes(either))
        return {node.info.shape for words, node in found if node.info and _is_within(words, within, outside)}

    def _found(self, pattern: str, shape: Sequence[Any] | None = None) -> Iterator[tuple[list[Any], int]]:
        """The paths that end in a pattern, each with the number of words before it."""
        before = len(pattern_words(pattern))
        for words, node in self._nodes(pattern):
            if shape is None or _shaped(node, shape):
                yield words, len(words) - before

    def _nodes(self, pattern: str) -> Iterator[tuple[list[Any], Node]]:
        """The paths that end in a pattern, each with what is there."""
        wanted = pattern_words(pattern)
        last = NUMBER if wanted[-1].isdigit() else wanted[-1]
        outside = pattern.startswith(TOWER)
        for words, node in self._by_last.get(last, ()):
            if ends(words, wanted) and not (outside and any(isinstance(word, tuple) for word in words)):
                yield words, node

    def found(self, pattern: str) -> list[Folder]:
        """The paths that end in a pattern."""
        return [tuple(words) for either in pattern.split(EITHER) for words, _ in self._found(either)]

    def homes(self, patterns: Iterable[str]) -> list[Folder]:
        """The innermost folders below which every pattern occurs."""
        shared: set[Folder] | None = None
        for pattern in patterns:
            hits = (item for either in pattern.split(EITHER) for item in self._found(either))
            around = {tuple(words[:at]) for words, count in hits for at in range(count + 1)}
            shared = around if shared is None else shared & around
        every = shared or {()}
        return sorted(
            (one for one in every if not any(other[: len(one)] == one for other in every - {one})), key=str
        )

    @cached_property
    def lists(self) -> list[Folder]:
        """The folders whose numbered elements hold modules: layers, not the steps of a head."""
        found = set()
        for items in self._by_last.values():
            for words, _ in items:
                at = next((at for at, word in enumerate(words) if isinstance(word, tuple)), None)
                if at is not None and len(words) > at + 2:  # an element's module, and its tensor
                    found.add(tuple(words[:at]))
        return sorted(found)

    def of(self, holds: Callable[[Sequence[Any]], bool]) -> Names:
        """The names of some paths alone."""
        part = Names(self.tree)
        part._by_last = {
            last: [item for item in items if holds(item[0])] for last, items in self._by_last.items()
        }
        return part

    def stored(self, patterns: Iterable[str], telling: Iterable[str]) -> str:
        """How the weights of maps with these names are stored, "[in, out]" or "[out, in]"; "" where nothing shows it.

        A bias is as long as what a map gives; of the maps that are `telling`, what they give is the longer extent.
        """
        shown = {_by_bias(node) for pattern in patterns for node in self._modules(pattern)} - {""}
        if not shown:
            shown = {_by_length(node) for pattern in telling for node in self._modules(pattern)} - {""}
        return shown.pop() if len(shown) == 1 else ""

    def _modules(self, pattern: str) -> Iterator[Node]:
        wanted = pattern_words(pattern)
        return (node for words, node in self._by_last.get(wanted[-1], ()) if ends(words, wanted))

    def fit(
        self,
        has: Iterable[str],
        lacks: Iterable[str],
        within: Place = EVERYWHERE,
        outside: tuple[Place, ...] = (),
    ) -> bool:
        """Whether all of the first and none of the second occur, below a folder but for some in it; `/name`: anywhere."""
        return all(self._fits(pattern, within, outside) for pattern in has) and not any(
            self._fits(pattern, within, outside) for pattern in lacks
        )

    def _fits(self, pattern: str, within: Place, outside: tuple[Place, ...]) -> bool:
        if pattern.startswith("/"):
            return self.has(pattern.removeprefix("/"))
        return self.has(pattern, None, within, outside)


def words_in(names: Iterable[str]) -> set[str]:
    """The different words of names, as patterns compare them."""
    return {normal(word) for word in {word for name in names for word in name.split(".")}}


def may_show(signs: Signs, words: set[str]) -> bool:
    """Whether names of these words can be those of a family: a word of each pattern that is missing settles it."""
    return all(
        any(
            all(word in words or word == NUMBER or word.isdigit() for word in pattern_words(either))
            for either in pattern.split(EITHER)
        )
        for pattern in signs.recognise
    )


def words_of(place: Sequence[str | tuple[int, ...]]) -> list[Any]:
    """A folded path as patterns compare it."""
    return [normal(part) if isinstance(part, str) else part for part in place]


def ends(words: Sequence[str | tuple[int, ...]], wanted: Sequence[str]) -> bool:
    """Whether a path ends in the words of a pattern."""
    return len(words) >= len(wanted) and all(map(_same, words[len(words) - len(wanted) :], wanted))


def _same(word: str | tuple[int, ...], wanted: str) -> bool:
    if isinstance(word, str):
        return word == wanted
    return wanted == NUMBER or (wanted.isdigit() and int(wanted) in word)


def _by_bias(node: Node) -> str:
    weight, bias = (node.children.get(name) for name in ("weight", "bias"))
    if weight is None or bias is None or weight.info is None or bias.info is None:
        return ""
    rows, columns = weight.info.shape[:1], weight.info.shape[1:]
    if len(columns) != 1 or rows == columns or bias.info.shape not in (rows, columns):
        return ""
    return IN_OUT if bias.info.shape == columns else OUT_IN


def _by_length(node: Node) -> str:
    weight = node.children.get("weight")
    shape = weight.info.shape if weight and weight.info else ()
    if len(shape) != 2 or shape[0] == shape[1]:
        return ""
    return IN_OUT if shape[1] > shape[0] else OUT_IN


def _is_within(words: list[Any], within: Place, outside: tuple[Place, ...]) -> bool:
    """Whether a path is in a folder, and in none of those `outside` of interest."""
    folder, others = words_of(within), (words_of(one) for one in outside)
    return words[: len(folder)] == folder and not any(words[: len(one)] == one for one in others)


def _shaped(node: Node, shape: Sequence[Any]) -> bool:
    if node.info is None or len(node.info.shape) != len(shape):
        return False
    return all(
        wanted is None or wanted == extent for wanted, extent in zip(shape, node.info.shape, strict=False)
    )
