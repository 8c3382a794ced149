"""Names to a tree in which equal parts are one object, so that equal layers are handled once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mapper.architecture import Place
from mapper.checkpoint import TensorInfo

_INDEX_DIGITS = 9  # a longer number is a word: no list has a billion elements


class Node:
    """A folder, a tensor, or (for a name that is both) the two in one. Made by `grow` only: equal nodes are identical.

    `children` is sorted, numbers by value before words, so that the order of a file never matters.
    """

    __slots__ = ("children", "info", "size", "_numbers")

    def __init__(self, info: TensorInfo | None, children: dict[str, Node]):
        self.info = info
        self.children = children
        self.size: int = (info is not None) + sum(child.size for child in children.values())  # tensors at and below
        self._numbers: bool | None = None

    @property
    def is_list(self) -> bool:
        """Whether every child is a number."""
        if self._numbers is None:
            self._numbers = bool(self.children) and all(map(is_index, self.children))
        return self._numbers

    def distinct(self) -> list[tuple[str | tuple[int, ...], Node]]:
        """Each different child once: a word, or the indices of all numbered children that are the same."""
        found: dict[int, tuple[list[int], Node]] = {}
        parts: list[Any] = []
        for word, child in self.children.items():
            if not is_index(word):
                parts.append((word, child))
            elif id(child) in found:
                found[id(child)][0].append(int(word))
            else:
                found[id(child)] = ([int(word)], child)
                parts.append(found[id(child)])
        return [(part if isinstance(part, str) else tuple(part), child) for part, child in parts]

    def at(self, *words: str) -> Node | None:
        """The node below, or None."""
        node: Node | None = self
        for word in words:
            node = node.children.get(word) if node else None
        return node

    def tensors(self) -> dict[str, TensorInfo]:
        """The tensors that stand directly in this folder, by name."""
        return {word: child.info for word, child in self.children.items() if child.info is not None}


def is_index(word: str) -> bool:
    """Whether a word is a number as code writes it: "0", "12", not "01" or a digit of another script."""
    return word.isdigit() and word.isascii() and (word[0] != "0" or word == "0") and len(word) <= _INDEX_DIGITS


def grow(tensors: Mapping[str, TensorInfo]) -> Node:
    """The tree of a checkpoint's names, split at the dots; nothing is lost, whatever the names are."""
    root: dict[str, Any] = {}
    folders = [root]  # parents before their children
    infos: dict[int, TensorInfo] = {}
    for name, info in tensors.items():
        folder = root
        for word in name.split("."):
            child = folder.get(word)
            if child is None:
                child = folder[word] = {}
                folders.append(child)
            folder = child
        infos[id(folder)] = info
    return _intern(folders, infos)


def _intern(folders: list[dict[str, Any]], infos: dict[int, TensorInfo]) -> Node:
    """Bottom-up, without recursion: a name may be thousands of words deep."""
    known: dict[Any, Node] = {}
    made: dict[int, Node] = {}
    for folder in reversed(folders):
        info = infos.get(id(folder))
        children = {word: made[id(folder[word])] for word in _ordered(folder)}
        signature = (info, tuple((word, id(child)) for word, child in children.items()))
        node = known.get(signature)
        if node is None:
            node = known[signature] = Node(info, children)
        made[id(folder)] = node
    return made[id(folders[0])]


def _ordered(folder: dict[str, Any]) -> list[str]:
    if len(folder) < 2:
        return list(folder)
    return sorted(folder, key=_order)


def _order(word: str) -> tuple[int, str]:
    return (int(word), "") if is_index(word) else (10**_INDEX_DIGITS, word)


def walk(root: Node) -> Iterator[tuple[Place, Node]]:
    """Every different node with its folded place, parents first."""
    waiting: list[tuple[Place, Node]] = [(Place(), root)]
    while waiting:
        place, node = waiting.pop()
        yield place, node
        waiting.extend((place.child(part), child) for part, child in reversed(node.distinct()))


def listing(root: Node) -> list[str]:
    """The folded names with shapes, one line each: `layer.{0..5}.attention.query.weight [768, 768]`."""
    return [f"{place} {list(node.info.shape)}" for place, node in walk(root) if node.info is not None]
