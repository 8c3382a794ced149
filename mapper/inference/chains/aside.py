"""What stands beside a network for its training alone."""

from __future__ import annotations

from collections.abc import Container, Iterable

from mapper.architecture import Leaf
from mapper.inference.chains.residuals import is_of

Layers = dict[str, tuple[tuple[int, ...], ...]]  # names below a folder, with the shapes of their tensors


def copies_of(leaves: Iterable[Leaf], words: Container[str]) -> set[str]:
    """The folders, called by one of `words`, that have the layers of another: a target network (1509.02971) is one."""
    folders: dict[str, Layers] = {}
    for leaf in leaves:
        if leaf.place and isinstance(leaf.place[0], str):
            shapes = tuple(info.shape for _, info in sorted(leaf.tensors.items()))
            folders.setdefault(leaf.place[0], {})[repr(leaf.place[1:])] = shapes
    others = [layers for folder, layers in folders.items() if not is_of(folder, words)]
    return {folder for folder, layers in folders.items() if is_of(folder, words) and layers in others}


def is_spread(leaf: Leaf, words: Iterable[str]) -> bool:
    """Whether a bare vector is the logarithm of the spread of what a network gives (1707.06347), of which no sample is drawn."""
    shapes = [info.shape for info in leaf.tensors.values()]
    is_vector = all(sum(extent > 1 for extent in shape) <= 1 for shape in shapes)
    name = next(iter(Leaf.keys(leaf)), "").rpartition(".")[2].replace("_", "").lower()
    return is_vector and name.endswith(tuple(word for word in words if word.startswith("log")))
