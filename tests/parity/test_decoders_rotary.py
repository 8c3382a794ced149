"""Rotary decoders with LayerNorms, of one residual or of two, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.parity.harness import check, reference, transformers
from tests.parity.test_decoders import INPUTS, SIZES, Edit, old_fields

HALF: dict[str, Any] = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
LINEAR: dict[str, Any] = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
CASES: dict[str, tuple[str, dict[str, Any], Edit | None]] = {
    "starcoder2": ("Starcoder2ForCausalLM", {}, None),
    "starcoder2, a window, no biases": (
        "Starcoder2ForCausalLM",
        {"sliding_window": 5, "use_bias": False, "tie_word_embeddings": False, "norm_epsilon": 1e-3},
        old_fields,
    ),
    "starcoder2, tokens": ("Starcoder2ForTokenClassification", {}, None),
    "jais2": ("Jais2ForCausalLM", {}, None),
    "jais2, no biases": (
        "Jais2Model",
        {"attention_bias": False, "mlp_bias": False, "head_dim": 16},
        old_fields,
    ),
    "stablelm": ("StableLmForCausalLM", {}, None),
    "stablelm, one residual, norms of heads": (
        "StableLmForCausalLM",
        {"use_parallel_residual": True, "use_qkv_bias": True, "qk_layernorm": True, "rope_parameters": HALF},
        old_fields,
    ),
    "nemotron": ("NemotronForCausalLM", {}, None),
    "nemotron, biases": (
        "NemotronForSequenceClassification",
        {"attention_bias": True, "mlp_bias": True, "rope_parameters": {**HALF, **LINEAR}},
        old_fields,
    ),
    "phi": ("PhiForCausalLM", {}, None),
    "phi, norms of heads": (
        "PhiForCausalLM",
        {"qk_layernorm": True, "rope_parameters": {**HALF, **LINEAR}},
        old_fields,
    ),
    "persimmon": ("PersimmonForCausalLM", {}, None),
    "persimmon, no norms of heads": ("PersimmonModel", {"qk_layernorm": False}, old_fields),
}


@pytest.mark.parametrize("case", CASES)
def test_decoder(case: str, tmp_path: Path) -> None:
    name, fields, edit = CASES[case]
    config = getattr(transformers, name).config_class(**{**SIZES, **fields})
    check(reference(name, config), tmp_path, INPUTS, edit=edit)
