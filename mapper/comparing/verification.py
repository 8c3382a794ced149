"""Two implementations on the same inputs, one input after another: what is the largest difference, and where it begins."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mapper import limits
from mapper.comparing.traces import Difference, Trace, compare, other_steps, trace
from mapper.errors import MapperError

STATES = "last_hidden_state"  # what heads are computed from: a reference with a head may keep it to itself

Inputs = Mapping[str, Tensor]
Traces = tuple[Trace, Trace]
Compared = tuple[list[Difference], list[Difference]]  # of the outputs, and of the blocks
Run = Callable[
    [str, Inputs], Trace | None
]  # of a case by its name and its inputs; None where it is not taken
Refine = Callable[[str, Inputs, Traces, Compared], Compared]


class Failure(NamedTuple):
    """Where outputs differ first: in order of the inputs tried, of the outputs, and of the rows."""

    output: str
    inputs: str  # "plain", "right padding", "left padding", "one row"
    row: int | None  # index in the output's first dimension; None where the shapes differ
    value: float
    why: str  # "not finite in the model", or "" where it is the distance alone

    def __str__(self) -> str:
        row = "" if self.row is None else f", row {self.row}"
        return f"{self.output}, {self.inputs}{row}: {self.why or f'{self.value:.1e}'}"


@dataclass
class Verification:
    """What a comparison found; `equal` is None where nothing could be compared and only the model's own checks ran."""

    source: str
    against: str | None
    outputs: list[Difference] = field(default_factory=list)  # largest over all inputs tried
    blocks: list[Difference] = field(default_factory=list)
    other_steps: list[str] = field(default_factory=list)  # modules that do another step in the reference
    checks: list[tuple[str, bool, str]] = field(default_factory=list)  # name, passed, what was seen
    notes: list[str] = field(default_factory=list)
    tolerance: float = limits.TOLERANCE
    first_failure: Failure | None = None
    first_departure: Difference | None = None  # the first block, in order of computation, that departs there

    @property
    def equal(self) -> bool | None:
        if self.against is None:
            return None
        return bool(self.outputs) and all(item.value <= self.tolerance for item in self.outputs)

    @property
    def passed(self) -> bool:
        """Whether nothing that was asked for differs or fails."""
        return self.equal is not False and all(passed for _, passed, _ in self.checks)

    def __str__(self) -> str:
        rows = [f"{self.source} against {self.against or 'nothing: no reference implementation is at hand'}"]
        rows += [
            f"  {item.name:24} {item.value:.1e}{'  ' + item.note if item.note else ''}"
            for item in self.outputs
        ]
        if self.first_failure:
            rows.append(f"  first to differ: {self.first_failure}")
        if self.first_departure:
            rows.append(
                f"  first block that departs: {self.first_departure.name} ({self.first_departure.value:.1e})"
            )
        rows += [f"  {'ok  ' if passed else 'FAIL'} {name}: {seen}" for name, passed, seen in self.checks]
        rows += [f"  note: {note}" for note in self.notes]
        if self.equal is not None:
            rows.append(
                f"  {'equal' if self.equal else 'different'} within {self.tolerance:.0e} of max(1, largest value)"
            )
        return "\n".join(rows)

    def to_json(self) -> dict[str, Any]:
        """The document that `mapper verify --json` prints; null is a distance without end."""
        first, departure = self.first_failure, self.first_departure
        return {
            "source": self.source, "against": self.against, "equal": self.equal, "passed": self.passed, "tolerance": self.tolerance,
            "outputs": {item.name: _finite(item.value) for item in self.outputs},
            "first_failure": first._asdict() | {"value": _finite(first.value)} if first else None,
            "blocks": {item.name: _finite(item.value) for item in self.blocks},
            "other_steps": self.other_steps,
            "first_departure": departure.name if departure else None,
            "checks": [{"name": name, "passed": passed, "seen": seen} for name, passed, seen in self.checks],
            "notes": self.notes,
        }  # fmt: skip


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def as_compared(case: str, inputs: Inputs, traces: Traces, compared: Compared) -> Compared:
    """Differences as they are."""
    return compared


def compare_over(
    found: Verification,
    cases: Iterable[tuple[str, Inputs]],
    mine: Run,
    other: Run,
    refine: Refine = as_compared,
) -> None:
    """Enter into `found` the largest differences over all cases, and the first failure. `refine` may leave some out."""
    worst: dict[str, Difference] = {}
    blocks: dict[str, Difference] = {}
    steps: dict[str, None] = {}  # in order
    alone: dict[str, None] = {}  # outputs that the reference has not, in order
    is_constant = True
    for case, inputs in cases:
        theirs = other(case, inputs)
        ours = mine(case, inputs) if theirs is not None else None
        if ours is None or theirs is None:
            continue
        compared = compare(ours, theirs, inputs.get("attention_mask"))
        alone |= dict.fromkeys(name for name in ours.outputs if name not in theirs.outputs and name != STATES)
        compared = refine(case, inputs, (ours, theirs), compared)
        is_constant = is_constant and all(_is_constant(theirs.outputs[item.name]) for item in compared[0])
        others = other_steps(compared[1], found.tolerance)
        steps |= dict.fromkeys(item.name for item in compared[1] if item.name in others)
        if found.first_failure is None:
            _fail(found, case, compared[0], [item for item in compared[1] if item.name not in others])
        for kept, items in zip((worst, blocks), compared, strict=True):
            _keep_larger(kept, items)
    found.outputs = list(worst.values())
    if found.equal:  # what departs in an equal model can only be another step
        steps |= dict.fromkeys(name for name, item in blocks.items() if item.value > found.tolerance)
    found.blocks = [item for name, item in blocks.items() if name not in steps]
    found.other_steps = list(steps)
    _note(found, list(alone), is_constant)


def _keep_larger(kept: dict[str, Difference], items: Iterable[Difference]) -> None:
    for item in items:
        if item.name not in kept or kept[item.name].value < item.value:
            kept[item.name] = item


def _note(found: Verification, alone: list[str], is_constant: bool) -> None:
    """Say what was not compared, and what the comparison is worth."""
    if alone:
        found.notes.append(f"not compared, for the reference does not return it: {', '.join(alone)}")
    if found.outputs and is_constant:
        found.notes.append("every output is one number throughout, so equal values show little")
    if not found.outputs:
        found.notes.append("the reference returns no output that the model has")


def run_module(model: nn.Module, inputs: Inputs, name: str, *, with_codes: bool = False) -> Trace:
    """What a forward returns and its modules with it. Raises MapperError for whatever stops it."""
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # of models that draw what they hide: both draw the same
            return trace(model, inputs, with_codes=with_codes)
    except Exception as error:  # the model is the user's: say what failed
        raise MapperError(
            f"{name}: the forward fails: {' '.join(f'{type(error).__name__}: {error}'.split())[:300]}"
        ) from error


def _is_constant(value: Tensor) -> bool:
    return value.numel() > 1 and bool((value == value.flatten()[0]).all())


def _fail(found: Verification, case: str, outputs: list[Difference], blocks: list[Difference]) -> None:
    """Keeps the first output of these inputs that differs, its first such row, and the first block that departs."""
    for item in outputs:
        if item.value > found.tolerance:
            row = next((at for at, apart in enumerate(item.rows) if apart > found.tolerance), None)
            apart = item.value if row is None else item.rows[row]
            found.first_failure = Failure(item.name, case, row, apart, item.note)
            found.first_departure = next((block for block in blocks if block.value > found.tolerance), None)
            return
