"""Models with the default config of their class, under the names that they are saved with."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.shipped import RULEBOOK

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
try:
    import full_size
finally:
    sys.path.remove(str(TOOLS))


def test_a_default_config_is_read_with_all_its_layers() -> None:
    checkpoint = full_size.header("ViTForImageClassification")
    assert "vit.encoder.layer.11.attention.attention.query.weight" in checkpoint.tensors  # as files have it
    assert full_size.reading("ViTForImageClassification", RULEBOOK) == "exact"


def test_what_cannot_be_made_or_read_says_why() -> None:
    assert full_size.reading("EsmModel", RULEBOOK).startswith(
        "not made: TypeError"
    )  # no size of the vocabulary
    assert "rotary.sections" in full_size.reading("Glm4vForConditionalGeneration", RULEBOOK)
