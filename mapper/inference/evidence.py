"""One value with its evidence, and the values that lost against it."""

from __future__ import annotations

from dataclasses import field
from itertools import chain
from typing import TYPE_CHECKING, Any

from mapper._dataclass import dataclass
from mapper.architecture import EVIDENCE, Fact

if TYPE_CHECKING:
    from mapper.rulebook.facts import FactRule


@dataclass(frozen=True)
class Known:
    """A value, how it is known, and whether it came from a bad field of the config."""

    value: Any
    evidence: str  # one of EVIDENCE
    source: str
    problem: str = ""  # why the value cannot be used: then it is None
    shown: bool = False  # a shape shows it, given what else is known
    implied: bool = False  # by a field that is there, whatever its value
    rule: str = field(default="", compare=False)  # FILE:LINE of what says so, or where a config has it
    by: FactRule | None = field(default=None, compare=False, repr=False)  # the rule itself
    same_as: tuple[str, ...] = field(
        default=(), compare=False
    )  # the fact whose value it is, whatever that is

    def fact(self, name: str, at: str) -> Fact:
        return Fact(name, self.value, at, self.evidence, self.source, self.rule, same_as=self.same_as)


@dataclass
class Chain:
    """Everything that was considered for one fact of one block, the strongest first; the first without a problem won."""

    name: str
    at: str
    considered: list[Known] = field(default_factory=list)

    @property
    def chosen(self) -> Known | None:
        """The winner; None for an unknown fact, or where a stronger source holds a value that cannot be used."""
        return next(iter(self.considered), None)


def weakest(evidences: list[str]) -> str:
    return max(evidences, key=EVIDENCE.index)


def named(rule: FactRule) -> str:
    """The names, kinds and shapes for which a rule gives its value."""
    kinds = (f"{role} is a {kind}" for role, kind in rule.holds.items())
    roles = (f"{'has' if there else 'no'} {path}" for path, there in (rule.block | rule.tower).items())
    lengths = (f"{role} is as long as {other}" for role, other in rule.as_long.items())
    squares = (f"{role} has a row for each place of a square" for role in rule.square)
    has, lacks = (f"has {name}" for name in rule.has), (f"no {name}" for name in rule.lacks)
    words = chain(has, lacks, kinds, roles, lengths, squares)
    return ", ".join(words)


def origin(rule: FactRule) -> str:
    """The file of a rule, and its reason."""
    return f"{rule.file} ({rule.why})" if rule.why else rule.file
