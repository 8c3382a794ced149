"""Definitions of facts by their names, and several tables of them as one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapper.rulebook.facts import FactRule


class FactRules(Mapping[str, "tuple[FactRule, ...]"]):
    """Definitions by fact."""

    def types(self, name: str) -> set[str]:
        """The types that the definitions of a fact say, without reading them; none for what has no definition."""
        raise NotImplementedError

    @cached_property
    def all_types(self) -> dict[str, set[str]]:
        """The same of each fact that has a definition."""
        return {name: self.types(name) for name in self}

    @cached_property
    def apart(self) -> dict[str, str]:
        """The facts by which equal elements are told apart, each with the role of their list; no other is read."""
        raise NotImplementedError


class FirstOf(FactRules):
    """Several tables as one: of what two define, the first wins."""

    def __init__(self, tables: Sequence[FactRules] = ()):
        self.first = tables[0] if tables else self
        self._of: dict[str, FactRules] = {}
        for table in tables:
            for name in table:
                self._of.setdefault(name, table)

    def __getitem__(self, name: str) -> tuple[FactRule, ...]:
        return self._of[name][name]

    def get(self, name: str, default: Any = None) -> Any:
        table = self._of.get(name)  # a lookup that fails is usual, and an exception takes ten times as long
        return default if table is None else table[name]

    def __contains__(self, name: object) -> bool:
        return name in self._of

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def types(self, name: str) -> set[str]:
        return self._of[name].types(name) if name in self._of else set()

    @cached_property
    def apart(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for table in {id(table): table for table in self._of.values()}.values():
            found |= {name: over for name, over in table.apart.items() if self._of[name] is table}
        return found


class AllOf(FirstOf):
    """Several tables as one: what several define of a fact is tried in the order of the tables."""

    def __init__(self, tables: Sequence[FactRules] = ()):
        super().__init__(tables)
        self.tables = tables
        self._joined: dict[str, tuple[FactRule, ...]] = {}

    def __getitem__(self, name: str) -> tuple[FactRule, ...]:
        if name not in self._joined:
            self._joined[name] = sum((table[name] for table in self.tables if name in table), ())
        return self._joined[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self._of else default
