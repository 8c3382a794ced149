"""Decoders whose feed-forwards are mixtures of experts, against the reference library: every router, both layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.parity.harness import check, reference, text_inputs, transformers

INPUTS = text_inputs(99, left_positions=True)
SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "num_experts_per_tok": 2,
}
EXPERTS = {**SIZES, "num_experts": 4, "moe_intermediate_size": 24}
ROUTED = {**SIZES, "num_key_value_heads": 4, "n_routed_experts": 4, "moe_intermediate_size": 24}
LATENT = {
    **ROUTED,
    "q_lora_rank": 24,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
}
GROUPED = {"n_routed_experts": 8, "n_group": 4, "topk_group": 2}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 8,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
GRANITE = {
    **SIZES,
    "num_local_experts": 4,
    "attention_multiplier": 0.3,
    "embedding_multiplier": 2.0,
    "residual_multiplier": 0.5,
    "logits_scaling": 3.0,
}
WINDOWS = ["sliding_attention", "full_attention"]
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "qwen2_moe": ("Qwen2MoeForCausalLM", "Qwen2MoeConfig", {**EXPERTS, "shared_expert_intermediate_size": 40}),
    "qwen2_moe with windows": (
        "Qwen2MoeForCausalLM",
        "Qwen2MoeConfig",
        {**EXPERTS, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2, "norm_topk_prob": True},
    ),
    "qwen3_moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {**EXPERTS, "head_dim": 16, "norm_topk_prob": True}),
    "qwen3_moe with a window and a layer without experts": (
        "Qwen3MoeModel",
        "Qwen3MoeConfig",
        {**EXPERTS, "head_dim": 8, "use_sliding_window": True, "sliding_window": 4, "mlp_only_layers": [0]},
    ),
    "qwen3_vl_moe_text": (
        "Qwen3VLMoeTextModel",
        "Qwen3VLMoeTextConfig",
        {**EXPERTS, "head_dim": 8, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}},
    ),
    "gpt_oss": (
        "GptOssForCausalLM",
        "GptOssConfig",
        {**SIZES, "head_dim": 16, "num_local_experts": 4, "sliding_window": 4, "rope_parameters": {**YARN, "truncate": False}},
    ),
    "deepseek_v2": ("DeepseekV2ForCausalLM", "DeepseekV2Config", {**LATENT, "first_k_dense_replace": 1, "head_dim": 8}),
    "deepseek_v2 with groups": (
        "DeepseekV2ForCausalLM",
        "DeepseekV2Config",
        {
            **LATENT, **GROUPED, "q_lora_rank": None, "head_dim": 8,
            "topk_method": "group_limited_greedy",
            "routed_scaling_factor": 1.7,
            "rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.8},
        },
    ),
    "deepseek_v32": (
        "DeepseekV32ForCausalLM",
        "DeepseekV32Config",
        {**LATENT, **GROUPED, "first_k_dense_replace": 1, "index_n_heads": 4, "index_head_dim": 16, "index_topk": 4},
    ),
    "glm4_moe_lite": (
        "Glm4MoeLiteForCausalLM",
        "Glm4MoeLiteConfig",
        {**LATENT, **GROUPED, "mlp_layer_types": ["dense", "sparse"], "rope_interleave": False},
    ),
    "axk1": ("AXK1ForCausalLM", "AXK1Config", {**LATENT, **GROUPED, "mlp_layer_types": ["dense", "sparse"], "bos_token_id": 1, "eos_token_id": 1}),
    "axk2": (
        "AXK2ForCausalLM",
        "AXK2Config",
        {**LATENT, "mlp_layer_types": ["dense", "sparse"], "index_n_heads": 4, "index_head_dim": 16, "index_topk": 4, "bos_token_id": 1, "eos_token_id": 1, "gated_norm_rank": 6},
    ),
    "axk2 with groups": (
        "AXK2ForCausalLM",
        "AXK2Config",
        {**LATENT, **GROUPED, "mlp_layer_types": ["sparse", "sparse"], "index_n_heads": 2, "index_head_dim": 8, "index_topk": 6, "bos_token_id": 1, "eos_token_id": 1},
    ),
    "mistral4": (
        "Mistral4ForCausalLM",
        "Mistral4Config",
        {
            **LATENT, "head_dim": 16,
            "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 4, "partial_rotary_factor": 0.5},
        },
    ),
    "dbrx": (
        "DbrxForCausalLM",
        "DbrxConfig",
        {
            "vocab_size": 99, "d_model": 32, "n_layers": 2, "n_heads": 4, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
            "attn_config": {"kv_n_heads": 2, "clip_qkv": 0.5, "rope_theta": 500.0}, "ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 4, "moe_top_k": 2},
        },
    ),
    "hunyuan_v1_moe": (
        "HunYuanMoEV1ForCausalLM",
        "HunYuanMoEV1Config",
        {**SIZES, "num_experts": 4, "moe_topk": 2, "head_dim": 8, "eod_token_id": 3, "rope_parameters": {"rope_type": "dynamic", "alpha": 10.0, "factor": 1.0, "rope_theta": 1e4}},
    ),
    "llama4_text": (
        "Llama4ForCausalLM",
        "Llama4TextConfig",
        {**SIZES, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "num_hidden_layers": 3, "moe_layers": [0, 2], "no_rope_layers": [1, 0, 1], "attention_chunk_size": 5, "floor_scale": 4, "intermediate_size_mlp": 40},
    ),
    "llama4_text without its options": (
        "Llama4ForCausalLM",
        "Llama4TextConfig",
        {**SIZES, "num_local_experts": 4, "head_dim": 8, "no_rope_layers": [1, 1], "attention_chunk_size": 4, "intermediate_size_mlp": 40, "use_qk_norm": False, "attn_temperature_tuning": False},
    ),
    "minimax_m2": (
        "MiniMaxM2ForCausalLM",
        "MiniMaxM2Config",
        {**SIZES, "num_local_experts": 4, "head_dim": 16, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}},
    ),
    "olmoe": ("OlmoeForCausalLM", "OlmoeConfig", {**SIZES, "num_experts": 4, "clip_qkv": 0.4, "norm_topk_prob": True}),
    "olmoe with biases": ("OlmoeModel", "OlmoeConfig", {**SIZES, "num_experts": 4, "attention_bias": True}),
    "minimax_m2 with all of a head turned": ("MiniMaxM2Model", "MiniMaxM2Config", {**SIZES, "num_local_experts": 4, "head_dim": 8}),
    "ernie4_5_moe": ("Ernie4_5_MoeForCausalLM", "Ernie4_5_MoeConfig", {**SIZES, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 24}),
    "ernie4_5_moe with biases": (
        "Ernie4_5_MoeForCausalLM",
        "Ernie4_5_MoeConfig",
        {
            **SIZES, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 24, "use_bias": True, "tie_word_embeddings": False,
            "moe_norm_min": 0.9, "moe_layer_start_index": 0, "moe_layer_interval": 2,
        },
    ),
    "afmoe": (
        "AfmoeForCausalLM",
        "AfmoeConfig",
        {
            **EXPERTS, "head_dim": 8, "num_shared_experts": 1, "mup_enabled": True, "attention_bias": True, "route_scale": 1.5,
            "layer_types": WINDOWS, "sliding_window": 4,
        },
    ),
    "afmoe with experts in all layers": ("AfmoeModel", "AfmoeConfig", {**EXPERTS, "head_dim": 8, "num_dense_layers": 0, "num_hidden_layers": 4, "sliding_window": 4}),
    "phimoe": ("PhimoeForCausalLM", "PhimoeConfig", {**SIZES, "num_local_experts": 4, "router_jitter_noise": 0.2}),
    "phimoe with a window and stretched angles": (
        "PhimoeModel",
        "PhimoeConfig",
        {
            **SIZES, "num_local_experts": 4, "sliding_window": 3, "attention_bias": True,
            "rope_parameters": {
                "rope_type": "longrope", "rope_theta": 500.0, "short_factor": [1.0, 2.0, 3.0, 4.0], "long_factor": [2.0] * 4,
                "short_mscale": 1.25, "long_mscale": 1.25, "original_max_position_embeddings": 8,
            },
        },
    ),
    "mimo_v2_flash": (
        "MiMoV2FlashForCausalLM",
        "MiMoV2FlashConfig",
        {
            **ROUTED, "head_dim": 16, "v_head_dim": 12, "num_key_value_heads": 2, "num_hidden_layers": 3, "sliding_window": 4,
            "layer_types": [WINDOWS[1], WINDOWS[0], WINDOWS[1]], "mlp_layer_types": ["dense", "sparse", "sparse"], "n_group": 1, "topk_group": 1,
        },
    ),
    "mimo_v2_flash with values as they are": (
        "MiMoV2FlashModel",
        "MiMoV2FlashConfig",
        {
            **ROUTED, "head_dim": 16, "v_head_dim": 20, "num_key_value_heads": 2, "num_hidden_layers": 3, "attention_bias": True,
            "attention_value_scale": 1.0, "routed_scaling_factor": 1.5, "mlp_layer_types": ["sparse"] * 3,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 1.0},
            },
        },
    ),
    "minimax": (
        "MiniMaxForCausalLM",
        "MiniMaxConfig",
        {
            **SIZES, "num_local_experts": 4, "block_size": 4, "full_attn_alpha_factor": 1.5, "full_attn_beta_factor": 0.8,
            "linear_attn_alpha_factor": 1.2, "linear_attn_beta_factor": 0.7, "mlp_alpha_factor": 1.1, "mlp_beta_factor": 0.6,
        },
    ),
    "minimax with wide heads": (
        "MiniMaxModel",
        "MiniMaxConfig",
        {**SIZES, "num_local_experts": 4, "layer_types": ["linear_attention", WINDOWS[1]], "head_dim": 16, "block_size": 16},
    ),
    "glm4v_moe_text": (
        "Glm4vMoeTextModel",
        "Glm4vMoeTextConfig",
        {**ROUTED, **GROUPED, "first_k_dense_replace": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0]}},
    ),
    "exaone_moe": (
        "ExaoneMoeForCausalLM",
        "ExaoneMoeConfig",
        {
            **EXPERTS, "mlp_layer_types": ["dense", "sparse"], "sliding_window": 4, "layer_types": WINDOWS, "n_group": 1, "topk_group": 1,
            "num_shared_experts": 1, "bos_token_id": 1, "eos_token_id": 1,
        },
    ),
    "jetmoe": (
        "JetMoeForCausalLM",
        "JetMoeConfig",
        {**SIZES, "kv_channels": 12, "num_local_experts": 4, "rms_norm_eps": 1e-3, "tie_word_embeddings": False},
    ),
    "beam": (
        "BeamForCausalLM",
        "BeamConfig",
        {
            **EXPERTS, "num_experts": 8, "n_group": 4, "topk_group": 2, "head_dim": 16, "num_hidden_layers": 3, "mlp_layer_types": ["dense", "sparse", "sparse"],
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "sliding_window": 4,
        },
    ),
    "laguna": (
        "LagunaForCausalLM",
        "LagunaConfig",
        {
            **EXPERTS, "head_dim": 16, "shared_expert_intermediate_size": 24, "sliding_window": 4, "layer_types": WINDOWS, "moe_routed_scaling_factor": 1.5,
            "mlp_layer_types": ["sparse", "sparse"], "num_attention_heads_per_layer": [4, 2], "gating": "per-head",
        },
    ),
    "laguna with a gate for each channel": (
        "LagunaForCausalLM",
        "LagunaConfig",
        {**EXPERTS, "head_dim": 16, "shared_expert_intermediate_size": 24, "gating": "per-channel", "mlp_layer_types": ["dense", "sparse"]},
    ),
    "granitemoe": ("GraniteMoeForCausalLM", "GraniteMoeConfig", {**GRANITE}),
    "granitemoeshared": ("GraniteMoeSharedForCausalLM", "GraniteMoeSharedConfig", {**GRANITE, "shared_intermediate_size": 40}),
    "granitemoe_swa": (
        "GraniteMoeSWAForCausalLM",
        "GraniteMoeSWAConfig",
        {**GRANITE, "sliding_window": 4, "layer_types": WINDOWS, "layer_rope_theta": [500.0, 0], "shared_intermediate_size": 40},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_equal(case: str, tmp_path: Path) -> None:
    name, config, fields = CASES[case]
    check(reference(name, getattr(transformers, config)(**fields)), tmp_path, INPUTS)


def test_gpt_oss_with_experts_in_four_bits(tmp_path: Path) -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    small = {**SIZES, "head_dim": 8, "num_local_experts": 4, "intermediate_size": 32}
    model = reference("GptOssForCausalLM", transformers.GptOssConfig(**small))
    generator = torch.Generator().manual_seed(2)
    state = dict(model.state_dict())
    for key in [key for key in state if key.endswith(("gate_up_proj", "down_proj"))]:
        experts, ins, outs = state.pop(key).shape
        blocks = torch.randint(0, 256, (experts, outs, ins // 32, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(122, 126, blocks.shape[:-1], generator=generator, dtype=torch.uint8)
        model.get_parameter(key).data = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
        state |= {f"{key}_blocks": blocks, f"{key}_scales": scales}

    def save(folder: Path) -> None:
        save_file(state, folder / "model.safetensors")
        model.config.save_pretrained(folder)

    def quantised(config: dict[str, Any]) -> None:
        config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}

    model.save_pretrained = save
    check(model, tmp_path, INPUTS, edit=quantised)
