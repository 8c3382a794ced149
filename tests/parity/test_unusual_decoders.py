"""Decoders whose layers run in cycles, take shortcuts or share weights, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

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
TWICE = {
    "vocab_size": WORDS, "hidden_size": 32, "num_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "ffn_hidden_size": 48,
    "expert_ffn_hidden_size": 24, "q_lora_rank": 24, "kv_lora_rank": 20, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 12, "head_dim": 4,
    "n_routed_experts": 3, "zero_expert_num": 5, "moe_topk": 3,
}  # fmt: skip
YARN = {
    "rope_type": "yarn",
    "rope_theta": 500.0,
    "factor": 4.0,
    "original_max_position_embeddings": 8,
    "mscale": 0.7,
    "mscale_all_dim": 0.8,
}
# model, fields of its config, types of positions that it takes
CASES: list[tuple[str, dict[str, Any], int]] = [
    ("HrmTextForCausalLM", {**CYCLES}, 3),
    ("HrmTextModel", {**CYCLES, "prefix_lm": False, "embedding_scale": 3.0}, 0),
    ("LongcatFlashForCausalLM", {**TWICE}, 0),
    ("LongcatFlashModel", {**TWICE, "rope_parameters": YARN, "rms_norm_eps": 1e-3, "attention_bias": True}, 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "fields", "segments"), CASES, ids=[f"{name}-{at}" for at, (name, _, _) in enumerate(CASES)]
)
def test_equal(name: str, fields: dict[str, Any], segments: int, tmp_path: Path) -> None:
    kind = getattr(transformers, name)
    config = kind.config_class(**fields)
    check(reference(name, config), tmp_path, text_inputs(WORDS, segments=segments, left_positions=True))


SHARED = {
    **SIZES, "num_hidden_layers": 3, "num_key_value_heads": 4, "layers_block_type": ["mamba", "hybrid", "mamba"],
    "mamba_d_state": 8, "n_mamba_heads": 4, "adapter_rank": 6, "chunk_size": 8,
}  # fmt: skip


@pytest.mark.parametrize("more", [{}, {"mamba_ngroups": 2, "add_bias_linear": True, "time_step_min": 0.5}])
def test_state_spaces_beside_attention_that_reads_words(more: dict[str, Any], tmp_path: Path) -> None:
    config = transformers.Zamba2Config(**{**SHARED, **more})
    check(reference("Zamba2ForCausalLM", config), tmp_path, text_inputs(WORDS, positions=False))


NEAR, FULL = "sliding_attention", "full_attention"
STREAMS = {
    **SIZES, "num_hidden_layers": 4, "layer_types": [NEAR, FULL, NEAR, FULL], "sliding_window": 4, "num_kv_shared_layers": 2, "head_dim": 8, "pad_token_id": 0,
    "hidden_size_per_layer_input": 6, "vocab_size_per_layer_input": WORDS - 5, "laurel_rank": 5, "altup_num_inputs": 3, "intermediate_size": 24,
    "activation_sparsity_pattern": [0.9, 0.0, 0.0, 0.5], "bos_token_id": 1, "eos_token_id": 1,
}  # fmt: skip

STRETCHED = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 8}
SHARP = {**STRETCHED, "factor": 2.0, "attention_factor": 1.5, "beta_fast": 8.0}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"num_kv_shared_layers": 0, "intermediate_size": [24, 24, 32, 24]},
        {"rope_parameters": {NEAR: STRETCHED, FULL: SHARP}},
    ],
)
def test_streams_of_which_layers_compute_one(more: dict[str, Any], tmp_path: Path) -> None:
    config = transformers.Gemma3nTextConfig(**{**STREAMS, **more})
    inputs = text_inputs(WORDS, padding=0, left_positions=True)
    model = reference("Gemma3nForCausalLM", config)
    check(model, tmp_path, inputs, tolerance=3e-5)  # streams divided by their sizes: float32 noise grows


TOLD = {
    **SIZES, "num_hidden_layers": 4, "aligner_num_add_layers": 2, "aligner_ffn_mult": 2, "resampler_depth": 2, "resampler_dim_head": 6, "resampler_heads": 3,
    "resampler_num_latents": 5, "resampler_ff_mult": 2, "rms_norm_eps": 1e-4, "bos_token_id": 1, "eos_token_id": 2,
    "protein_encoder_config": {
        "vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 36, "mask_token_id": 4, "pad_token_id": 1,
    },
}  # fmt: skip


def test_words_told_of_a_protein(tmp_path: Path) -> None:
    config = transformers.EvollaConfig(**TOLD)
    inputs: dict[str, Any] = text_inputs(WORDS, positions=False)
    letters = torch.randint(5, 40, (3, 9), generator=torch.Generator().manual_seed(2))
    letters[0, 3] = 4  # masked: the others count for it
    real = torch.ones_like(letters)
    real[1, -4:] = 0
    for name in ("no mask", "right"):
        proteins = {"protein_input_ids": letters, "protein_attention_mask": real}
        inputs[f"{name}, proteins"] = {**inputs[name], **proteins}
    check(reference("EvollaForProteinText2Text", config), tmp_path, inputs)


PACKED = {
    "vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16, "q_lora_rank": 24,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "sliding_window": 4, "o_groups": 2, "o_lora_rank": 6,
    "index_n_heads": 2, "index_head_dim": 8, "index_topk": 2, "hc_mult": 3, "hc_sinkhorn_iters": 4, "swiglu_limit": 0.5,
    "compress_rates": {"heavily_compressed_attention": 3, "compressed_sparse_attention": 2},
}  # fmt: skip
PACKS, CHOOSES = "heavily_compressed_attention", "compressed_sparse_attention"


@pytest.mark.parametrize("kinds", [[PACKS, CHOOSES, NEAR], [CHOOSES, PACKS, PACKS]])
def test_keys_packed_and_experts_by_word(kinds: list[str], tmp_path: Path) -> None:
    experts = ["hash_moe", "moe", "moe"]
    config = transformers.DeepseekV4Config(**PACKED, layer_types=kinds, mlp_layer_types=experts)
    model = reference("DeepseekV4ForCausalLM", config)
    draw = torch.Generator().manual_seed(3)
    buffers = dict(model.named_buffers())
    table = next(buffer for name, buffer in buffers.items() if name.endswith("tid2eid"))
    table.copy_(torch.rand(WORDS, 4, generator=draw).argsort(dim=1)[:, :2])
    for name, buffer in buffers.items():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(torch.randn(4, generator=draw))
    check(model, tmp_path, text_inputs(WORDS, left_positions=True))
