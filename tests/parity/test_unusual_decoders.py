"""Decoders whose layers run in cycles, take shortcuts or share weights, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.parity.harness import check, reference, text_inputs, transformers

WORDS = 99
SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}
CYCLES = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}
CYCLES |= {"head_dim": 12, "H_cycles": 3, "L_cycles": 2}
# model, fields of its config, types of positions that it takes
CASES: list[tuple[str, dict[str, Any], int]] = [
    ("HrmTextForCausalLM", {**CYCLES}, 3),
    ("HrmTextModel", {**CYCLES, "prefix_lm": False, "embedding_scale": 3.0}, 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields", "segments"), CASES, ids=[name for name, _, _ in CASES])
def test_equal(name: str, fields: dict[str, Any], segments: int, tmp_path: Path) -> None:
    kind = getattr(transformers, name)
    config = kind.config_class(**fields)
    check(reference(name, config), tmp_path, text_inputs(WORDS, segments=segments, left_positions=True))
