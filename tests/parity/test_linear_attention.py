"""Layers of different kinds in one list, linear attention among them, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.parity.harness import check, reference, text_inputs, transformers

INPUTS = text_inputs(99, padding=1, left_positions=True)
SIZES = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 1,
    "head_dim": 16, "intermediate_size": 48, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 12, "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip
WITHOUT_DENSE = {name: size for name, size in SIZES.items() if name != "intermediate_size"}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
}


def qwen3_next(**more: Any) -> Any:
    return transformers.Qwen3NextConfig(**{**SIZES, **EXPERTS, "mlp_only_layers": [1], **more})


def qwen3_5(**more: Any) -> Any:
    rope = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
    return transformers.Qwen3_5TextConfig(**{**SIZES, "rope_parameters": rope, **more})


@pytest.mark.parametrize("name", ["Qwen3NextModel", "Qwen3NextForCausalLM"])
def test_qwen3_next(name: str, tmp_path: Path) -> None:
    check(reference(name, qwen3_next()), tmp_path, INPUTS)


def test_qwen3_next_with_the_rotary_fields_of_older_configs(tmp_path: Path) -> None:
    def older(fields: dict[str, Any]) -> None:
        rope = fields.pop("rope_parameters")
        fields |= {
            "rope_theta": rope["rope_theta"],
            "full_attention_interval": 2,
            "partial_rotary_factor": 0.25,
        }

    check(
        reference("Qwen3NextForCausalLM", qwen3_next(attention_bias=True, norm_topk_prob=False)),
        tmp_path,
        INPUTS,
        edit=older,
    )


@pytest.mark.parametrize("name", ["Qwen3_5TextModel", "Qwen3_5ForCausalLM"])
def test_qwen3_5(name: str, tmp_path: Path) -> None:
    check(reference(name, qwen3_5()), tmp_path, INPUTS)


@pytest.mark.parametrize("name", ["Qwen3_5MoeTextModel", "Qwen3_5MoeForCausalLM"])
def test_qwen3_5_with_experts(name: str, tmp_path: Path) -> None:
    check(
        reference(name, transformers.Qwen3_5MoeTextConfig(**{**WITHOUT_DENSE, **EXPERTS})), tmp_path, INPUTS
    )


LATENT = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "pad_token_id": 1,
    "intermediate_size": 48, "moe_intermediate_size": 24, "num_local_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
    "layer_types": ["linear_attention", "linear_attention", "full_attention"], "mlp_layer_types": ["dense", "sparse", "sparse"],
    "kv_lora_rank": 20, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 12,
}  # fmt: skip


@pytest.mark.parametrize("rank", [None, 16])
def test_kimi_linear(rank: int | None, tmp_path: Path) -> None:
    made = transformers.KimiLinearConfig(**LATENT, linear_head_dim=8, linear_num_heads=4, q_lora_rank=rank)
    check(reference("KimiLinearForCausalLM", made), tmp_path, text_inputs(99, padding=1, positions=False))


@pytest.mark.parametrize("bounded", [True, False])
def test_bailing_hybrid(bounded: bool, tmp_path: Path) -> None:
    made = transformers.BailingHybridConfig(**LATENT, head_dim=8, kda_safe_gate=bounded)
    check(reference("BailingHybridForCausalLM", made), tmp_path, INPUTS)


@pytest.mark.parametrize("group", [1, 2, 4])
def test_glm5_next_whose_residual_has_streams(group: int, tmp_path: Path) -> None:
    made = transformers.Glm5NextTextConfig(
        **{**LATENT, "n_group": 1, "qk_rope_head_dim": 0, "layer_types": ["linear_attention", *["indexed_attention"] * 2]},
        q_lora_rank=16, linear_head_dim=8, linear_num_heads=2, index_topk=4, index_head_dim=16, index_n_heads=2,
        index_kpool=group, hc_mult=3, swiglu_limit=0.5, linear_lower_bound=None if group == 4 else -4.0,
        indexer_types=["full"] * 3,
    )  # fmt: skip
    inputs = text_inputs(99, padding=1, positions=False)
    check(
        reference("Glm5NextTextModel", made), tmp_path, inputs, tolerance=5e-5
    )  # streams are mixed again and again
