"""Folders that are elements of a list by their names, or the number at the end of these: `layer1`, `layer2`."""

from __future__ import annotations

from mapper._dataclass import dataclass
from mapper.architecture import Numbered
from mapper.naming.tree import Node
from mapper.naming.vocabulary import Spot


@dataclass(frozen=True)
class NumberedFolder:
    """What stands before the number, and which of those side by side it is."""

    stem: str
    index: Numbered


def numbered(folder: Spot, lists: bool = True) -> NumberedFolder | None:
    """The folder as one of several, each a list, or none of them; None where it has no number or stands alone."""
    word = folder.place[-1]
    stem = word.rstrip("0123456789") if isinstance(word, str) else word
    if not isinstance(word, str) or not isinstance(stem, str) or stem == word or not stem:
        return None
    found = {
        int(other[len(stem) :]): other
        for other, node in folder.nodes[-1].children.items()
        if isinstance(other, str)
        and other.startswith(stem)
        and other[len(stem) :].isdigit()
        and node.children
        and _is_list(node) == lists
    }
    order = [found[number] for number in sorted(found)]
    if (
        len(order) < 2
        or word not in order
        or sorted(found) != list(range(min(found), min(found) + len(found)))
    ):
        return None
    return NumberedFolder(stem, Numbered(order.index(word), word))


def named(folder: Spot) -> Numbered:
    """The folder as one of those side by side, in the order of their names."""
    words = sorted(
        (word for word, node in folder.nodes[-1].children.items() if node.children), key=_by_number
    )
    word = str(folder.place[-1])
    return Numbered(words.index(word), word)


def _by_number(word: str) -> tuple[str, int]:
    """What stands before the number at the end of a word, and the number: `block1-10` comes after `block1-9`."""
    stem = word.rstrip("0123456789")
    return stem, int(word[len(stem) :] or -1)


def _is_list(node: Node) -> bool:
    return bool(node.children) and all(child.isdigit() for child in node.children)
