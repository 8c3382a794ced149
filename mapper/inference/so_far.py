"""What was read of a checkpoint that contradicts itself: its modules, and the facts that are known all the same."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from mapper.architecture import CONTRADICTION, Architecture
from mapper.errors import MapperError
from mapper.inference.fill import Filler

if TYPE_CHECKING:
    from mapper.inference.reading import Reading


def so_far(reading: Reading, why: str) -> Architecture:
    """The architecture as far as it goes: nothing more is refused, and no model is made of it."""
    reading.lenient = True
    with suppress(MapperError):
        if not reading.flows:
            reading.choose_flows(reading.leaves)
    sizes = {}
    with suppress(MapperError):
        sizes = reading.solve_sizes(complete=False)
    filler = Filler(reading.root, reading.facts, reading.rulebook)
    for scope, flow, needs in reading.needs():
        with suppress(MapperError):
            filler.block(scope, flow, needs, sizes.get(id(scope)))
    architecture = reading.described(reading.leaves, filler)
    architecture.reading = CONTRADICTION
    architecture.questions, architecture.unfit = [], []
    architecture.findings = [text for text in dict.fromkeys(reading.findings) if text not in why]
    return architecture
