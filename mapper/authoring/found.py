"""What a check of one rule file found."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class FileCheck:
    """What was found in one rule file."""

    file: str
    kind: str  # "families", "examples", "flows", "vocabulary", "dropout", "running" or "namings"
    name: str
    problems: list[str] = field(default_factory=list)
    examples: int = 0
    combinations: int = 0  # of a flow's guards
    runs: int = 0  # examples whose model was built and run
    rests_on: tuple[str, ...] = field(default=(), repr=False)  # families that its examples were held against
    ran: tuple[str, ...] = field(default=(), repr=False)  # those models, as `passed.run_key` calls them
