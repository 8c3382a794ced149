"""Trying a reading as the task that its first answers have it, and as another where that makes no sense of the model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from mapper.architecture import Architecture
from mapper.errors import SourceError
from mapper.evidence.answering import answered
from mapper.evidence.behaviour.passage import PASSAGE
from mapper.evidence.behaviour.trying import Tried, search
from mapper.evidence.found import Found
from mapper.rulebook.values import shown

SECONDS = 100.0  # for all candidates together
BYTES = 8e9  # of a model in 32-bit floats, at most
_TASK = "task"  # the fact by which models are judged: losses on next and on hidden words are no losses of one text


def attempt(
    architecture: Architecture,
    text: str = PASSAGE,
    seconds: float = SECONDS,
    tell: Callable[[str, float], None] = lambda what, part: None,
    device: str = "cpu",
) -> Tried:
    """Try all answers to the questions of a reading. `tell` is told the fact at hand, and the share of the time that is gone.

    Raises SourceError for what is too large to be tried.
    """
    if architecture.checkpoint.read is None or not architecture.questions:
        return Tried()
    size = 4 * architecture.checkpoint.parameters
    if size > BYTES:
        raise SourceError(
            f"{architecture.checkpoint.source}: {size / 1e9:.0f} GB in 32-bit floats, at most {BYTES / 1e9:.0f} are tried"
        )
    start = time.monotonic()
    first = search(architecture, text, seconds, tell, device)
    if first.found or first.is_sense or not first.what:
        return first
    for name, found, other in _by_other_tasks(architecture):
        left = seconds - (time.monotonic() - start)
        tried = search(other, text, left, tell, device) if left > 0 else Tried()
        if tried.found:
            return replace(tried, found={name: found, **tried.found})
    return first


def _by_other_tasks(architecture: Architecture) -> Iterator[tuple[str, Found, Architecture]]:
    """The question for the task with each answer but the first, by which was judged, and the reading with that."""
    for question in (question for question in architecture.questions if question.fact == _TASK):
        for value in question.candidates[1:]:
            why = f"a text makes no sense to it as {shown(question.candidates[0])}"
            found = Found(value, "default", why)
            if read := answered(architecture, {question.name: found.as_hint()}):
                yield question.name, found, read
