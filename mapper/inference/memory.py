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
Find = Callable[["Scope", str], Found]


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
        self, scope: Scope, name: str, find: Find[Known | None], into: dict[str, Known | None]
    ) -> Known | None:
        """What is found of a fact; None inside of itself: a rule whose expression leads back to it says nothing."""
        key, depth, before = (scope, name), len(self._open), self._cut
        if key in self._open:
            self._cut = min(self._cut, self._open[key])
            return None
        self._open[key] = self._cut = depth
        known = find(scope, name)
        del self._open[key]
        if self._is_whole(depth, before):
            into[name] = known
        return known

    def rules(
        self, scope: Scope, name: str, find: Find[list[FactRule]], into: dict[str, list[FactRule]]
    ) -> list[FactRule]:
        """The rules that are found to speak about a fact."""
        depth, before = len(self._open), self._cut
        self._cut = depth
        found = find(scope, name)
        if self._is_whole(depth, before):
            into[name] = found
        return found

    def _is_whole(self, depth: int, before: int) -> bool:
        """Whether what was found `depth` facts inside may be remembered: no cycle led further out."""
        is_whole = self._cut == depth
        self._cut = min(before, self._cut)
        return is_whole
