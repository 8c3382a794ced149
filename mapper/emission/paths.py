"""How a folder or a leaf is spelled from inside a class: `self.encoder.layer[0].attention`."""

from __future__ import annotations

from collections.abc import Sequence

from mapper.architecture import Place
from mapper.emission.module_tree import Folder, Key
from mapper.errors import FlowError


class Paths:
    """Spells places of one module tree, with the names that cannot be attributes replaced."""

    def __init__(self, root: Folder, renames: dict[str, str]):
        self.root, self.renames = root, renames
        self.opened: set[Place] = (
            set()
        )  # leaves, and containers whose modules are read by name or beyond a call

    def attribute(self, word: str) -> str:
        return self.renames.get(word, word)

    def spell(self, base: str, owner: Place, target: Place, beyond: bool = False) -> str:
        """The path from the folder `owner`, spelled `base`, to `target` below it; `beyond`: what it has is read."""
        if not target.within(owner):
            raise FlowError(f"'{target}' is outside '{owner}', whose flow uses it")
        self.open(base, owner, target, beyond)
        if target == owner:
            return base  # the owner may be a leaf: the element of a loop over norms, say
        folder = self.root.find(owner)
        text = base
        for part in target[len(owner) :]:
            text += self.step(folder, part)
            child = folder.children.get(part)
            if not isinstance(child, Folder):
                self.opened.add(target)
                break
            folder = child
        return text

    def open(self, base: str, owner: Place, target: Place, beyond: bool) -> None:
        """Remember what of a path torch's own annotations do not follow: attributes of what stands in a container."""
        for depth in range(len(owner), len(target)):
            if beyond or not isinstance(target[depth], tuple) or depth + 1 < len(target):
                self.opened.add(Place(target[:depth]))
        element = base != "self" and bool(owner) and isinstance(owner[-1], tuple)
        if element and (beyond or target != owner):
            self.opened.add(Place(owner[:-1]))

    def step(self, folder: Folder, part: Key) -> str:
        """One step down: an attribute, a position, or a key."""
        if isinstance(part, tuple):
            if len(part) != 1:
                raise FlowError(
                    f"'{folder.place}.{Place((part,))}' stands for several modules where one is meant"
                )
            listed = folder.elements() or folder
            return f"[{part[0]}]" if listed.is_sequence and folder.place else self.key(folder, str(part[0]))
        return self.key(folder, part) if is_number(part) else f".{self.attribute(part)}"

    def key(self, folder: Folder, number: str) -> str:
        """A number as a key; the model itself is no container."""
        return f'["{number}"]' if folder.place else f'.get_submodule("{number}")'

    def elements(self, base: str, owner: Place, folder: Folder) -> str:
        """What a loop over a list folder iterates."""
        text = self.spell(base, owner, folder.place)
        return text if folder.is_sequence else f"{text}.values()"


def is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()


def list_folder(places: Sequence[Place], owner: Place) -> Place:
    """The folder whose elements folded places run over, below `owner`: all before the indices in which they differ.

    Of one element alone all before its first number.
    """
    place = places[0]
    numbers = [depth for depth in range(len(owner), len(place)) if isinstance(place[depth], tuple)]
    if not numbers:
        raise FlowError(f"'{place}' is no element of a list")
    several = (
        depth
        for depth in numbers
        if len(place[depth]) > 1 or any(other[depth : depth + 1] != (place[depth],) for other in places)
    )
    return Place(place[: next(several, numbers[0])])
