"""The hints of a reading, and those of them that something in the model rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from mapper._dataclass import dataclass
from mapper.inference.evidence import Known
from mapper.inference.hints import DEFAULT, Given
from mapper.inference.scopes import Scope


@dataclass
class GivenHints:
    """What a user said, the narrower scope first."""

    given: Sequence[Given] = ()
    heard: set[str] = field(default_factory=set)  # as they were written, those that something rests on

    def of(self, name: str) -> Iterator[Given]:
        """Those about a fact, wherever it is."""
        return (item for item in self.given if item.name == name)

    def told(self, scope: Scope, name: str) -> Given | None:
        """The hint that says a fact of a block."""
        return next((item for item in self.of(name) if not item.at or scope.matches(item.at)), None)

    def stated(self, scope: Scope, name: str) -> Known | None:
        """What it says, as a known value."""
        told = self.told(scope, name) if self.given else None
        if told is None:
            return None
        return Known(told.value, told.evidence, told.source, shown=told.evidence == DEFAULT)

    @property
    def unheard(self) -> dict[str, str]:
        """The hints that nothing in the model rests on, as they were written, each with its name."""
        return {item.source: item.key for item in self.given if item.source not in self.heard}
