"""Sizes of what no forward reads: no flow declares them, and so they are those of the model that they agree with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from mapper.architecture import Block, Fact, Leaf, Place
from mapper.emission.settings import Setting

_LEAST = 5  # smaller numbers agree with many sizes by chance
_SIZES = ("size", "dim", "channels", "positions", "codes")  # how names end of what is no count of modules
_FREQUENCIES = "inv_freq"
_POSITIONS = "positions"
_OF_POSITIONS = (
    "position",
    "token_type_ids",
    "bias",
    "masked",
)  # in the names of what is as long as a text may be


def with_sizes(leaf: Leaf, said: Setting, blocks: Iterable[Block]) -> Setting:
    """What is known of a leaf, with a size of the blocks around it, the nearest first, for each extent that has its value.

    Nothing is computed with it, so a size that agrees by chance changes no output.
    """
    if said.shape or len(leaf.tensors) > 2:
        return said
    shape = next(iter(leaf.tensors.values())).torch_shape
    known = [fact for facts in _facts(leaf.place, blocks) for fact in facts.values()]
    known = [fact for fact in known if fact.name.endswith(_SIZES)]
    if _FREQUENCIES in str(leaf.place[-1:]):
        return _of_frequencies(said, known, shape)
    if any(word in str(leaf.place[-1:]) for word in _OF_POSITIONS):
        known.sort(key=lambda fact: not fact.name.endswith(_POSITIONS))
    found = {f"size{axis}": fact for axis, size in enumerate(shape) if (fact := _of_value(known, size))}
    if not found:
        return said
    names = tuple(f"size{axis}" if f"size{axis}" in found else "_" for axis in range(len(shape)))
    return replace(said, shape=names, facts={**(said.facts or {}), **found})


def as_its_like(leaf: Leaf, said: Setting, others: Iterable[tuple[Leaf, Setting]]) -> Setting:
    """What is known of a leaf by another one of its name and shape that is read: of a table for each kind of attention."""
    if said.shape:
        return said
    own = _called(leaf)
    plain = ((other, known) for other, known in others if known.shape and all(map(_is_size, known.shape)))
    like = next((known for other, known in plain if _called(other) == own), None)
    if like is None:
        return said
    return replace(said, shape=like.shape, facts={**(like.facts or {}), **(said.facts or {})})


def _is_size(text: str) -> bool:
    """Whether an extent is one size or a number: sums and products are of sizes of its own block."""
    return text.isidentifier() or text.isdigit()


def _called(leaf: Leaf) -> tuple[object, ...]:
    """Its kind, its last word and the shapes of its tensors."""
    word = next((part for part in reversed(leaf.place) if isinstance(part, str)), "")
    return leaf.kind, word, [(name, info.torch_shape) for name, info in leaf.tensors.items()]


def _of_frequencies(said: Setting, known: list[Fact], shape: tuple[int, ...]) -> Setting:
    """One frequency stands for two channels."""
    dim = next((fact for fact in known if fact.name.endswith("dim") and (fact.value // 2,) == shape), None)
    return (
        said if dim is None else replace(said, shape=("dim // 2",), facts={**(said.facts or {}), "dim": dim})
    )


def _of_value(known: list[Fact], size: int) -> Fact | None:
    return next((fact for fact in known if fact.value == size), None) if size >= _LEAST else None


def _facts(place: Place, blocks: Iterable[Block]) -> Iterator[Mapping[str, Fact]]:
    """The sizes of the blocks that a place is in, the nearest first, then those of the others there."""
    around = [block for block in blocks if block.home == Place(place[: len(block.home)])]
    around.sort(key=lambda block: -len(block.home))
    beside = [below for block in around[:1] for below in block.blocks()]
    yield from (_sizes(block) for block in (*around, *beside))


def _sizes(block: Block) -> dict[str, Fact]:
    return {name: fact for name, fact in block.facts.items() if type(fact.value) is int}
