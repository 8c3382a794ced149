"""Factors by which a forward is chosen: with another number it would be another one, so extents have the number itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mapper.architecture import Fact

_DECIDING = re.compile(r"\bif fact\.(\w+) == \d")


def with_decided(extents: Sequence[str], body: str, facts: Mapping[str, Fact]) -> tuple[str, ...]:
    """Extents of a shape, in which `2 *` stands for a factor that decides in a flow's body and is 2."""
    found = list(extents)
    for name in _DECIDING.findall(body):
        if name in facts and type(value := facts[name].value) is int:
            factor = "" if value == 1 else f"{value} * "
            found = [re.sub(rf"\b{name} \* ", factor, extent) for extent in found]
    return tuple(found)
