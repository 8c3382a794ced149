"""Text encoders with their heads against the reference library."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parity.harness import check, reference, text_inputs, transformers

SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}


@pytest.mark.parametrize("name", ["BertModel"])
def test_bert(name: str, tmp_path: Path) -> None:
    config = transformers.BertConfig(**SIZES, hidden_act="gelu")
    check(reference(name, config), tmp_path, text_inputs(99, segments=2))
