"""Rotary decoders with LayerNorms, of one residual or of two, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.parity.harness import check, reference, transformers
from tests.parity.test_decoders import INPUTS, SIZES, Edit, old_fields

HALF: dict[str, Any] = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
LINEAR: dict[str, Any] = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
UNPLACED = {key: values for key, values in INPUTS.items() if "position_ids" not in values}
FALCON: dict[str, Any] = {"num_key_value_heads": None, "intermediate_size": None, "ffn_hidden_size": 48}
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
    "phi, a tied head": ("PhiForCausalLM", {"tie_word_embeddings": True}, None),
    "phi, norms of heads": (
        "PhiForCausalLM",
        {"qk_layernorm": True, "rope_parameters": {**HALF, **LINEAR}},
        old_fields,
    ),
    "persimmon": ("PersimmonForCausalLM", {"num_key_value_heads": None}, None),
    "persimmon, no norms of heads": (
        "PersimmonModel",
        {"num_key_value_heads": None, "qk_layernorm": False},
        old_fields,
    ),
    "moshi": ("MoshiForCausalLM", {"intermediate_size": None, "ffn_dim": 96}, None),
    "moshi, no head": (
        "MoshiModel",
        {"intermediate_size": None, "ffn_dim": 64, "hidden_act": "gelu"},
        old_fields,
    ),
    "falcon": ("FalconForCausalLM", FALCON, old_fields),
    "falcon, groups and two norms": (
        "FalconForCausalLM",
        {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "bias": True},
        None,
    ),
    "falcon, groups and one norm": (
        "FalconForSequenceClassification",
        {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
        None,
    ),
    "falcon, one residual after the other": (
        "FalconForTokenClassification",
        {**FALCON, "multi_query": False, "parallel_attn": False, "rope_parameters": LINEAR},
        old_fields,
    ),
    "cohere2": (
        "Cohere2ForCausalLM",
        {"sliding_window": 5, "layer_types": ["full_attention", "sliding_attention"]},
        None,
    ),
    "cohere2, every fourth layer sees all": (
        "Cohere2ForCausalLM",
        {
            "sliding_window": 5,
            "num_hidden_layers": 5,
            "attention_bias": True,
            "logit_scale": 0.5,
            "tie_word_embeddings": False,
            "rope_parameters": LINEAR,
        },
        old_fields,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_decoder(case: str, tmp_path: Path) -> None:
    name, fields, edit = CASES[case]
    config = getattr(transformers, name).config_class(**{**SIZES, **fields})
    placed = name.endswith("CausalLM") or "Falcon" not in name  # whose other heads do not take positions
    check(reference(name, config), tmp_path, INPUTS if placed else UNPLACED, edit=edit)


@pytest.mark.parametrize("heads", [4, 8])
def test_falcon_whose_scores_fall_with_the_distance(heads: int, tmp_path: Path) -> None:
    config = transformers.FalconConfig(
        **{**SIZES, **FALCON, "num_attention_heads": heads},
        alibi=True,
        multi_query=False,
        parallel_attn=False,
        bias=True,
    )
    model = reference("FalconForCausalLM", config)
    model.config._attn_implementation = "sdpa"  # the other one adds what falls with the distance twice
    check(model, tmp_path, UNPLACED)
