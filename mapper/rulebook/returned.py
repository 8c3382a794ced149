"""What a flow of a spine returns: what its steps give, some of it only where a guard holds."""

from __future__ import annotations

import re
from collections.abc import Mapping

_CHOICE = re.compile(r"(.+?) if ((?:fact\.|has\().+?) else (.+)", flags=re.DOTALL)


def returns(given: Mapping[str, str]) -> list[str]:
    """The statements that return values by their names.

    Behind each guard that a value hangs on stands a return of its own: `y if fact.x else None` is given where the fact
    holds, and where it does not, nothing is.
    """
    guard = next((choice[2] for choice in map(_CHOICE.fullmatch, given.values()) if choice), None)
    if guard is None:
        return [f"return output({', '.join(f'{name}={value}' for name, value in given.items())})"]
    held, others = (returns(_chosen(given, guard, side)) for side in (1, 3))
    return [f"if {guard}:", *(f"  {line}" for line in held), *others]


def _chosen(given: Mapping[str, str], guard: str, side: int) -> dict[str, str]:
    """What is returned on one side of a guard."""
    choices = {name: _CHOICE.fullmatch(value) for name, value in given.items()}
    chosen = {
        name: choice[side] if choice and choice[2] == guard else given[name]
        for name, choice in choices.items()
    }
    return {name: value for name, value in chosen.items() if value != "None"}
