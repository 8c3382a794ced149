"""The shipped rules and the operations as a wheel brings them along: read already, and found by an index."""

from __future__ import annotations

from mapper._parsed import SUFFIX
from mapper.operations.registry import kept_operations
from mapper.rulebook.rulebook import KINDS, shipped_folder
from mapper.rulebook.settings import FOLDER
from mapper.rulebook.shelf import Shelf


def compiled() -> dict[str, bytes]:
    """The content of each file of `mapper/_compiled` by name: the same for the same rules, whenever it is made."""
    shelves = [Shelf(kind, [shipped_folder()]) for kind in (*KINDS, FOLDER)]
    made = {shelf.name: shelf.compiled() for shelf in shelves}
    made["operations"] = kept_operations()
    return {f"{name}{SUFFIX}": kept.packed() for name, kept in made.items()}
