"""What one attempt to read a checkpoint starts from, and the doubts that gather on its way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from mapper._dataclass import dataclass
from mapper.architecture import Place
from mapper.errors import ArchitectureError
from mapper.inference.completeness import LOST, tensors_of
from mapper.inference.families import Families
from mapper.inference.names import Names
from mapper.inference.part import Home
from mapper.naming.tree import Node
from mapper.naming.vocabulary import in_region
from mapper.rulebook.rulebook import Rulebook

if TYPE_CHECKING:
    from mapper.checkpoint import Checkpoint
    from mapper.inference.chains.cells import Cell
    from mapper.inference.chains.network import Woven
    from mapper.inference.chains.reading import Chain
    from mapper.naming.leaf_groups import Taken


@dataclass(frozen=True)
class Case:
    """A checkpoint, with a family or without."""

    checkpoint: Checkpoint
    rulebook: Rulebook
    tree: Node
    names: Names
    families: Families
    hints: Mapping[str, Any] | None
    refused: str = ""  # why no flow may be chosen: every attempt to read it contradicted itself
    refusal: str = ""  # why there must be no model of it at all
    use_families: bool = True
    is_strict: bool = False  # whether it is clear what it should be: what is missing then is an error
    home: Home = field(default_factory=Home)  # where that stands
    what: str = ""
    chain: Chain | Woven | Cell | None = None  # it is read as one, whatever its names mean
    taken: Mapping[Place, Taken] = field(default_factory=dict)  # modules that are what their block lacked
    looked_up: set[str] = field(default_factory=set)  # fields of the config that were there, in any attempt
    is_brief: bool = False  # of what is no model nothing more is asked: neither its facts nor what it lacks

    def judges(self, place: Place) -> bool:
        """Whether what stands at a path is of the whole, or of a tower that a family reads."""
        return self.home.holds(place) or any(in_region(part.region, place) for part in self.families.parts)


@dataclass
class Doubts:
    """What speaks against a reading: fatal where it is clear what the checkpoint should be, else a finding."""

    case: Case
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what is no doubt, but should be known
    missing: list[str] = field(default_factory=list)  # what must be known before there is a model
    lenient: bool = False  # whether nothing is fatal: for what is shown of a refused checkpoint

    def gap(self, lines: list[str], remedy: str = LOST) -> None:
        """What a checkpoint lacks of what it shows itself."""
        self._add(lines, self.case.is_strict, remedy)

    def other(self, lines: list[str]) -> None:
        """What makes a family is lacking: names alone that lack it are another's."""
        families = self.case.families
        self._add(lines, families.are_vouched_for or (self.case.is_strict and families.match is not None))

    def unlike(self, lines: list[str]) -> None:
        """What every checkpoint of a family has is missing: fatal where the config names it, else the names mislead."""
        self._add(lines, self.case.families.are_vouched_for)

    def _add(self, lines: list[str], is_fatal: bool, remedy: str = LOST) -> None:
        if is_fatal and not self.lenient:
            _refuse(lines, remedy)
        self.findings += lines


def _refuse(lines: list[str], remedy: str) -> None:
    """ArchitectureError with the first of these lines, if there is one, and what to do about it."""
    if lines:
        more = f", and {len(lines) - 1} more like it" if len(lines) > 1 else ""
        raise ArchitectureError(
            lines[0] + more + remedy, tensors=[key for line in lines for key in tensors_of(line)]
        )
