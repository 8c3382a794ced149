"""What was found out about blocks from what is known of them: dropped together once more is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, TypeVar

from mapper._dataclass import dataclass

if TYPE_CHECKING:
    from mapper.inference.evidence import Known
    from mapper.inference.scopes import Scope
    from mapper.rulebook.facts import FactRule

Found = TypeVar("Found")


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


class Pending:
    """Facts that are being asked for: what a cycle among them cut short must not be remembered."""

    def __init__(self) -> None:
        self._open: dict[tuple[Scope, str], int] = {}  # each with how many are around it
        self._cut = 0  # the outermost of them that a cycle led back to

    def fact(
        self, scope: Scope, name: str, find: Callable[[], Known | None], into: dict[str, Known | None]
    ) -> Known | None:
        """What is found of a fact; None inside of itself: a rule whose expression leads back to it says nothing."""
        key = scope, name
        if key in self._open:
            self._cut = min(self._cut, self._open[key])
            return None

        def found() -> Known | None:
            self._open[key] = len(self._open)
            known = find()
            del self._open[key]
            return known

        return self.once(name, found, into)

    def once(self, name: str, find: Callable[[], Found], into: dict[str, Found]) -> Found:
        """What is found, remembered under a name if no cycle led further out than here."""
        depth, before = len(self._open), self._cut
        self._cut = depth
        found = find()
        if self._cut == depth:
            into[name] = found
        self._cut = min(before, self._cut)
        return found
