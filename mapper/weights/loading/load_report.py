"""What a load did and what did not fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Mismatch:
    """One path where model and source disagree."""

    path: str
    kind: str  # "shape", "dtype", "overflow", "type", "absent", "tie", "meta"
    expected: str  # what it is in the model: class, dtype, shape
    found: str  # what it is in the source


@dataclass(frozen=True)
class Cast:
    """One tensor that changed its dtype on the way; names as torch prints them, without `torch.`."""

    path: str
    source: str
    target: str


@dataclass
class LoadReport:
    """Lists of paths in the model's order; `unexpected` and `ignored` in the source's."""

    loaded: list[str] = field(default_factory=list)  # now the source's value; every path of a tie
    missing: list[str] = field(default_factory=list)  # in the model alone; one path for a tie
    unexpected: list[str] = field(default_factory=list)  # arrays of the source without a place
    mismatched: list[Mismatch] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)  # set to the neutral value, or neutral and dropped
    skipped: list[str] = field(default_factory=list)  # left alone because the source says None
    ignored: list[str] = field(default_factory=list)  # source paths of values that are not arrays
    cast: list[Cast] = field(default_factory=list)
    tied: list[list[str]] = field(default_factory=list)  # paths that are one tensor

    def arrange(self, order: list[str]) -> None:
        """Put the paths of the model into `order`: the paths of a tie stand apart in it."""
        place = {path: position for position, path in enumerate(order)}
        for paths in (self.loaded, self.missing, self.absent, self.skipped):
            paths.sort(key=place.__getitem__)
        self.mismatched.sort(key=lambda bad: place[bad.path])
        self.cast.sort(key=lambda cast: place[cast.path])

    def nothing_done(self) -> None:
        """The report of a load that was refused: nothing was written after all."""
        self.loaded, self.absent, self.cast = [], [], []

    @property
    def ok(self) -> bool:
        """Whether nothing is missing, unexpected or mismatched."""
        return not (self.missing or self.unexpected or self.mismatched)

    def __bool__(self) -> bool:
        return self.ok

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {**asdict(self), "ok": self.ok}

    def __str__(self) -> str:
        counts = [f"{len(self.loaded)} loaded"]
        for word in ("missing", "unexpected", "mismatched", "absent", "skipped", "ignored", "cast"):
            entries = getattr(self, word)
            counts += [f"{len(entries)} {word}"] if entries else []
        problems = [*_told("missing", self.missing), *_told("unexpected", self.unexpected)]
        told = [
            f"{bad.path} ({bad.kind}: model {bad.expected}, source {bad.found})" for bad in self.mismatched
        ]
        return "\n".join([", ".join(counts), *problems, *_told("mismatched", told)])


SHOWN = 10  # lines of one kind in `str(report)`; the lists have all


def _told(word: str, entries: list[str]) -> list[str]:
    lines = [f"  {word}: {entry}" for entry in entries[:SHOWN]]
    more = len(entries) - SHOWN
    return [*lines, f"  {word}: and {more} more"] if more > 0 else lines
