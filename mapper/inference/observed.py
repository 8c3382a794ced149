"""What a graph shows of the layers that a block stands for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from mapper.inference.evidence import Known

if TYPE_CHECKING:
    from mapper.checkpoint import Observed
    from mapper.inference.scopes import Scope


def by_fact(observed: Iterable[Observed]) -> dict[str, dict[str, list[Observed]]]:
    """What a graph shows, by fact and path of the leaf."""
    found: dict[str, dict[str, list[Observed]]] = {}
    for one in observed:
        found.setdefault(one.fact, {}).setdefault(one.leaf, []).append(one)
    return found


def in_all_layers(shown: Mapping[str, list[Observed]], scope: Scope) -> Iterator[Known]:
    """A fact, of what the graph shows of it by the path of a leaf: where that is alike in each layer of a block."""
    found: list[Observed] = []
    around = (list(outer.block.leaves()) for outer in scope.up())
    for leaf in next((leaves for leaves in around if leaves), []):  # a part that a flow adds has none
        each = [shown.get(path, []) for path in leaf.place.expand()]
        if any(each) and not all(each):
            return
        found += [one for several in each for one in several]
    if found and all(one.value == found[0].value for one in found):
        yield Known(found[0].value, "graph", found[0].source)
