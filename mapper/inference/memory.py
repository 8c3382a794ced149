"""What was found out about blocks from what is known of them: dropped together once more is known."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from mapper._dataclass import dataclass

if TYPE_CHECKING:
    from mapper.inference.evidence import Known
    from mapper.inference.scopes import Scope
    from mapper.rulebook.facts import FactRule


@dataclass
class Remembered:
    """What was found out about one block, by the full names of facts."""

    known: dict[str, Known | None] = field(default_factory=dict)
    rules: dict[str, list[FactRule]] = field(default_factory=dict)  # those that speak about a fact
    marked: set[str] = field(default_factory=set)  # facts whose fields of the config are noted as read


class Memory:
    """The same of all blocks."""

    def __init__(self) -> None:
        self._found: dict[Scope, Remembered] = {}

    def of(self, scope: Scope) -> Remembered:
        found = self._found.get(scope)
        if found is None:
            found = self._found[scope] = Remembered()
        return found

    def forget(self, scope: Scope) -> None:
        self._found.pop(scope, None)
