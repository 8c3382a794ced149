"""Encoders, and encoders with decoders, together as in no listed type: none is taken in silence that is otherwise."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tools.combinations import EQUAL, TOLD, fares, unusual
from tools.drawn import encoder_decoders, encoders

DRAWN = [(encoders, seed) for seed in (0, 1, 2, 4, 113017, 113023, 113027, 113028, 224003, 224007)] + [
    (encoder_decoders, seed) for seed in (0, 1, 4, 10)
]


@pytest.mark.parametrize(("kind", "seed"), DRAWN)
def test_what_is_drawn_is_equal_when_told(kind: ModuleType, seed: int, tmp_path: Path) -> None:
    how, why = fares(kind, kind.draw(seed), tmp_path, seed)
    assert how in (EQUAL, TOLD), f"{how}: {why}: {unusual(kind.draw(seed))}"
