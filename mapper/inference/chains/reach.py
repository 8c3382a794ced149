"""Whether layers can be a chain at all, by what each may stand behind: asked where the search for an order takes long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mapper.inference.chains.elements import Element
    from mapper.inference.chains.links import Data, Link

_MOST = 400  # kinds of what passes between layers: of more it is not asked
_Next = list[tuple[int, "Data"]]  # layers that can read something, each with what it gives then


def may_be_chain(
    elements: Sequence[Element], start: Data, follow: Callable[[Data, Element], Link | None]
) -> bool:
    """Whether some layer leads to all others, if each could be called as often as it takes.

    What no row of calls reaches, no order has: of a mixer the maps over tokens and those over channels.
    """
    known: dict[Data, _Next] = {}

    def after(data: Data) -> _Next:
        if data not in known:
            links = ((at, follow(data, element)) for at, element in enumerate(elements))
            known[data] = [(at, link.after) for at, link in links if link is not None]
        return known[data]

    return any(len(known) > _MOST or _reached(first, after) == len(elements) for first in after(start))


def _reached(first: tuple[int, Data], after: Callable[[Data], Iterable[tuple[int, Data]]]) -> int:
    """How many layers can be called from one on."""
    at, data = first
    layers, seen, waiting = {at}, {data}, [data]
    while waiting:
        for at, given in after(waiting.pop()):
            layers.add(at)
            if given not in seen:
                seen.add(given)
                waiting.append(given)
    return len(layers)
