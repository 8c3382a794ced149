"""Names to a tree in which equal parts are one object, so that equal layers are handled once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mapper.architecture import Place
from mapper.checkpoint import TensorInfo
from mapper.words import INDEX_DIGITS, is_index, normal

NUMBER = "{n}"  # any number, in a pattern


class Node:
    """A folder, a tensor, or (for a name that is both) the two in one. Made by `grow` only: equal nodes are identical.

    `children` is sorted, numbers by value before words, so that the order of a file never matters.
    """

    __slots__ = ("_held", "_words", "children", "info")

    def __init__(self, info: TensorInfo | None, children: dict[str, Node]):
        self.info = info
        self.children = children
        self._words: dict[str, list[Node]] | None = None
        self._held: dict[tuple[str, ...], bool] = {}

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

    def holds(self, words: tuple[str, ...]) -> bool:
        """Whether there is a path of these pattern words below."""
        known = self._held.get(words)
        if known is None:
            nodes = [self]
            for word in words:
                nodes = [child for node in nodes for child in node.called(word)]
            known = self._held[words] = bool(nodes)
        return known

    def called(self, word: str) -> list[Node]:
        """The children that a pattern's word stands for."""
        if self._words is None:
            self._words = {}
            for name, child in self.children.items():
                self._words.setdefault(normal(name), []).append(child)
                if is_index(name):
                    self._words.setdefault(NUMBER, []).append(child)
        return self._words.get(word, [])

    def tensors(self) -> dict[str, TensorInfo]:
        """The tensors that stand directly in this folder, by name."""
        return {word: child.info for word, child in self.children.items() if child.info is not None}


def grow(tensors: Mapping[str, TensorInfo]) -> Node:
    """The tree of a checkpoint's names, split at the dots; nothing is lost, whatever the names are."""
    return _Grower().grow(tensors)


class _Grower:
    """Bottom-up, the deepest folders first: a folder is made once, however many are equal; no recursion, a name may be deep."""

    def __init__(self) -> None:
        self.seen: dict[
            Any, Node
        ] = {}  # by contents in the order they came: most equal folders also agree in that
        self.made: dict[Any, Node] = {}  # by contents in order

    def grow(self, tensors: Mapping[str, TensorInfo]) -> Node:
        levels = _by_depth(tensors)
        for depth in range(len(levels) - 1, 0, -1):
            above = levels[depth - 1]
            before, node, alone = None, None, None
            for path, contents in levels.pop().items():
                folder, dot, word = path.rpartition(".")
                if contents is not before or node is None:
                    before, node = contents, self.folder(contents)
                key = folder if dot else None
                around = above.get(key)
                if around is None:
                    if alone is None or alone[0][1] is not node or alone[0][0] != word:
                        alone = ((word, node),)
                    above[key] = alone
                    continue
                if type(around) is tuple:
                    around = above[key] = dict(around)
                held = around.get(word)
                around[word] = node if held is None else self.named(held, node)
        return self.node(dict(levels[0][None]))

    def folder(self, contents: Any) -> Node:
        """The folder with these contents, which may be known as they came."""
        return (self.seen.get(contents) if type(contents) is tuple else None) or self.node(dict(contents))

    def node(self, contents: dict[str, Any]) -> Node:
        """The folder with these contents: tensors as TensorInfo, folders as Node."""
        signature = tuple(contents.items())
        node = self.seen.get(signature)
        if node is None:
            words = sorted(contents, key=_order) if len(contents) > 1 else list(contents)
            children = {word: self.child(contents[word]) for word in words}
            node = self.seen[signature] = self.made.setdefault(tuple(children.items()), Node(None, children))
        return node

    def child(self, held: TensorInfo | Node) -> Node:
        if isinstance(held, Node):
            return held
        node = self.made.get(held)
        if node is None:
            node = self.made[held] = Node(held, {})
        return node

    def named(self, info: TensorInfo, folder: Node) -> Node:
        """One node for a name that is both a tensor and a folder."""
        key = (info, folder)
        return self.made.setdefault(key, Node(info, folder.children))


def _by_depth(tensors: Mapping[str, TensorInfo]) -> list[dict[Any, Any]]:
    """Depth -> folder -> its tensors: a pair as long as it is the only one, as in most of 100,000 folders.

    Equal pairs are one object. "" is the folder of ".a", None that of "a".
    """
    levels: list[dict[Any, Any]] = [{None: {}}]
    pairs: dict[Any, Any] = {}
    for name, info in tensors.items():
        folder, dot, word = name.rpartition(".")
        depth = name.count(".")
        while depth >= len(levels):
            levels.append({})
        folders, key = levels[depth], folder if dot else None
        found = folders.get(key)
        if found is None:
            alone = (word, id(info))
            folders[key] = pairs.get(alone) or pairs.setdefault(alone, ((word, info),))
        elif type(found) is dict:
            found[word] = info
        else:
            folders[key] = {**dict(found), word: info}
    return levels


def _order(word: str) -> tuple[int, str]:
    return (int(word), "") if is_index(word) else (10**INDEX_DIGITS, word)


def walk(root: Node) -> Iterator[tuple[Place, Node]]:
    """Every different node with its folded place, parents first."""
    waiting: list[tuple[Place, Node]] = [(Place(), root)]
    while waiting:
        place, node = waiting.pop()
        yield place, node
        waiting.extend((place.child(part), child) for part, child in reversed(node.distinct()))
