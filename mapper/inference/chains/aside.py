"""What stands beside a network for its training alone."""

from __future__ import annotations

from collections.abc import Container, Iterable

from mapper.architecture import Leaf
from mapper.inference.chains.residuals import is_of
from mapper.inference.leaf_shapes import weight_shape

Layers = dict[str, tuple[tuple[int, ...], ...]]  # names below a folder, with the shapes of their tensors


def copies_of(leaves: Iterable[Leaf], words: Container[str]) -> set[str]:
    """The folders that have the layers of another, and its name with one of `words`: a target network (1509.02971) is one."""
    folders: dict[str, Layers] = {}
    for leaf in leaves:
        if leaf.place and isinstance(leaf.place[0], str):
            shapes = tuple(info.shape for _, info in sorted(leaf.tensors.items()))
            folders.setdefault(leaf.place[0], {})[repr(leaf.place[1:])] = shapes
    return {folder for folder, layers in folders.items() if folders.get(_without(folder, words)) == layers}


def auxiliary_of(leaves: Iterable[Leaf], words: Container[str]) -> set[str | tuple[int, ...]]:
    """The parts of the whole that are called auxiliary: in the middle of a network these are for its training alone.

    One that begins with a linear layer which reads as many features as another beside it is an output as that is.
    """
    layers = [leaf for leaf in leaves if leaf.place]
    called = {leaf.place[0] for leaf in layers if is_of(leaf.place[0], words)}
    firsts = {part: next(leaf for leaf in layers if leaf.place[0] == part) for part in called}
    read = {_reads(leaf) for leaf in layers if leaf.place[0] not in called} - {0}
    return {part for part, first in firsts.items() if _reads(first) not in read}


def _reads(leaf: Leaf) -> int:
    """How many features a linear layer reads; 0 for any other."""
    shape = weight_shape(leaf) or ()
    return shape[not leaf.is_transposed] if leaf.kind == "Linear" and len(shape) == 2 else 0


def _without(folder: str, words: Container[str]) -> str:
    """The name without those words: `q_net` of `q_net_target`; "" where it has none of them."""
    rest = [word for word in folder.split("_") if word.lower() not in words]
    return "_".join(rest) if "_".join(rest) != folder else ""


def is_spread(leaf: Leaf, words: Iterable[str]) -> bool:
    """Whether a bare vector is the logarithm of the spread of what a network gives (1707.06347), of which no sample is drawn."""
    shapes = [info.shape for info in leaf.tensors.values()]
    is_vector = all(sum(extent > 1 for extent in shape) <= 1 for shape in shapes)
    name = next(iter(Leaf.keys(leaf)), "").rpartition(".")[2].replace("_", "").lower()
    return is_vector and name.endswith(tuple(words))
