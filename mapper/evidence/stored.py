"""Facts that a stored buffer shows for sure: the angles of rotary embeddings are powers of their base.

A rule says under `weights:` of a fact in the vocabulary: `stored`, the ends of the buffers' names; `buffer`, one of
BUFFERS; `whole`, a fact of which the answer holds only where it is 1: the share of a head that is turned; and `over`, a
fact that the answer is a share of: the size of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.architecture import Architecture
from mapper.evidence.found import Found

ANGLES = 4096  # of one buffer, at most: a head has some hundred channels
CLOSE = 1e-5  # relative, of angles in 32 bits
DIGITS = 6  # of a base that are certain then


def from_stored(architecture: Architecture) -> dict[str, Found]:
    """What stored buffers show of facts that no config and no user says, by the names of these."""
    if architecture.checkpoint.read is None:
        return {}
    found = {}
    for fact, rules in architecture.rulebook.config_vocabulary.facts.items():
        declared = next((rule.weights for rule in rules if "stored" in rule.weights), None)
        if declared is not None and _is_open(architecture, fact) and _is_whole(architecture, declared):
            answer = _shared(architecture, declared, _answer(architecture, declared))
            found.update({fact: answer} if answer else {})
    return found


def _is_open(architecture: Architecture, fact: str) -> bool:
    """Whether a fact of attention rests on nothing better than a default."""
    known = [one.evidence for one in architecture.facts if one.name == fact]
    return all(evidence == "default" for evidence in known)


def _is_whole(architecture: Architecture, declared: Mapping[str, Any]) -> bool:
    """Whether the fact of which an answer is a share is known to be 1: a default could be another."""
    share = declared.get("whole")
    known = [one for one in architecture.facts if one.name == share]
    is_asked = any(question.fact == share for question in architecture.questions)
    return share is None or (
        bool(known) and not is_asked and all(one.value == 1 and one.evidence != "default" for one in known)
    )


def _shared(architecture: Architecture, declared: Mapping[str, Any], answer: Found | None) -> Found | None:
    """An answer as the share of a fact that it is; None where that is not known to be one number, and no less."""
    whole = declared.get("over")
    if whole is None or answer is None:
        return answer
    known = {one.value for one in architecture.facts if one.name == whole and one.evidence != "default"}
    size = known.pop() if len(known) == 1 else 0
    is_share = isinstance(size, int) and size >= answer.value
    return Found(answer.value / size, "weights", answer.source) if is_share else None


def _answer(architecture: Architecture, declared: Mapping[str, Any]) -> Found | None:
    """What all buffers say alike; None where one says nothing, or another thing."""
    names = list(_names(architecture, declared["stored"]))
    read = architecture.checkpoint.read
    assert read is not None
    says = BUFFERS[declared["buffer"]]
    values = {says(tensor.float().numpy()) for tensor in read(names).values()} if names else {None}
    value = values.pop() if len(values) == 1 else None
    return None if value is None else Found(value, "weights", f"the angles in {names[0]}")


def _names(architecture: Architecture, ends: Sequence[str]) -> Iterator[str]:
    """The buffers of these names, each a row of angles."""
    for name, info in architecture.checkpoint.tensors.items():
        is_row = len(info.shape) == 1 and 1 < info.shape[0] <= ANGLES and info.dtype in ("F32", "F64")
        if is_row and any(f".{name}".endswith(f".{end}") for end in ends):
            yield name


def angles_base(angles: NDArray[np.float32]) -> float | None:
    """The base of angles base ** (-2 i / d), i = 0 ... d / 2 - 1; None for others, as stretched ones are."""
    if angles[0] != 1 or not 0 < angles[-1] < 1:
        return None
    count = len(angles)
    base = float(f"{float(angles[-1]) ** (-count / (count - 1)):.{DIGITS}g}")
    wanted = base ** (-np.arange(count) / count)
    return base if bool(np.allclose(angles, wanted, rtol=CLOSE, atol=0)) else None


def angles_width(angles: NDArray[np.float32]) -> int | None:
    """How many channels the angles turn, two each, stretched ones too; None for numbers that are no angles."""
    return 2 * len(angles) if angles[-1] > 0 and bool(np.all(angles[1:] < angles[:-1])) else None


BUFFERS: Mapping[str, Callable[[NDArray[np.float32]], Any]] = {
    "angles_base": angles_base,
    "angles_width": angles_width,
}
