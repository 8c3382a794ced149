"""A decoder whose distances bias the scores by profiles, with short convolutions and experts that all share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.parity.harness import check, reference, text_inputs, transformers

SIZES: dict[str, Any] = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "swa_num_attention_heads": 2, "swa_num_key_value_heads": 1, "swa_head_dim": 16, "intermediate_size": 40, "rel_extent": 6, "d_rel": 4,
    "moe_intermediate_size": 20, "n_routed_experts": 4, "num_experts_per_tok": 2, "sliding_window_size": 5, "pad_token_id": 1,
    "mlp_layer_types": ["dense", "sparse", "sparse"], "logits_mup_width_multiplier": 3.0, "route_scale": 2.0,
}  # fmt: skip
NEAR, FULL = "hybrid_sliding", "hybrid"


@pytest.mark.parametrize("kinds", [[NEAR, FULL, NEAR], [FULL] * 3])
def test_inkling_text(kinds: list[str], tmp_path: Path) -> None:
    config = transformers.InklingTextConfig(**SIZES, layer_types=kinds)
    check(reference("InklingForCausalLM", config), tmp_path, text_inputs(99, padding=1, positions=False))


def test_experts_that_all_share_alone(tmp_path: Path) -> None:
    made = {**SIZES, "mlp_layer_types": ["sparse"] * 3, "n_shared_experts": 1, "num_experts_per_tok": 3}
    config = transformers.InklingTextConfig(**made, layer_types=[NEAR, NEAR, FULL])
    check(reference("InklingForCausalLM", config), tmp_path, text_inputs(99, padding=1, positions=False))
