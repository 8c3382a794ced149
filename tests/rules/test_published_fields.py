"""Published configs have more fields than their classes read: those of the first code, of training, of other tools.

Each set of fields stands in some config as it was published; with it an example is still read exactly. A value that
asks for what is not done is a finding.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mapper.inference import infer
from mapper.rulebook.examples import Example, header, is_near_miss
from mapper.rulebook.rulebook import Rulebook

RULEBOOK = Rulebook()
FIELDS: dict[str, dict[str, Any]] = {
    "longformer": {"attention_mode": "longformer", "ignore_attention_mask": False, "gradient_checkpointing": False},
    "xlm": {"id2lang": {"0": "en"}, "lang2id": {"en": 0}},
    "lfm2": {
        "block_dim": 32, "block_mlp_init_scale": 1.0, "block_norm_eps": 1e-5, "block_out_init_scale": 1.0,
        "block_use_swiglu": True, "block_use_xavier_init": True, "conv_dim": 32, "conv_dim_out": 32,
        "conv_use_xavier_init": True, "num_heads": 4, "use_pos_enc": True,
    },
    "lfm2_vl": {
        "do_image_splitting": True, "encoder_patch_size": 16, "image_token_index": 396, "max_image_tokens": 256,
        "max_num_patches": 1024, "max_pixels_tolerance": 2.0, "max_tiles": 10, "min_image_tokens": 64, "min_tiles": 2,
        "tile_size": 512, "use_image_special_tokens": True, "use_thumbnail": False, "vision_feature_layer": -1,
    },
    "xlstm": {
        "add_embedding_dropout": False, "add_forward_backend_padding": False, "add_post_blocks_norm": True,
        "add_post_norm": False, "add_qk_norm": False, "cell_norm_eps": 1e-6, "force_bos_token_insert": True,
        "forward_backend_name": "chunkwise--triton_limit_chunk", "head_dim": 8, "igate_bias_init_range": -10.0,
        "lm_head_bias": False, "mlstm_round_up_to_multiple_of": 64,
    },
    "rt_detr": {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "backbone_kwargs": None},
    "qwen3_5_text": {"mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False, "mamba_ssm_dtype": "float32"},
    "sew-d": {"position_biased_input": False},
    "blenderbot-small": {
        "do_blenderbot_90_layernorm": True, "extra_layer_norm": False, "extra_pos_embeddings": 0,
        "layernorm_variant": "xlm", "variant": "xlm",
    },
    "swin": {"path_norm": True, "in_channels": 3, "pretrain_img_size": 384},
    "oneformer": {"max_seq_len": 77, "enforce_input_proj": False},
    "mask2former": {"enforce_input_proj": False},
    "fsmt": {"do_blenderbot_90_layernorm": False},
    "recurrent_gemma": {"embeddings_scale_by_sqrt_dim": True},
    "reformer": {
        "intermediate_size": 3072, "num_chunks_after": 0, "num_chunks_before": 1, "share_query_key": False,
        "type_vocab_size": 2,
    },
    "switch_transformers": {"feed_forward_proj": "relu", "router_type": "tokens_masked"},
    "bamba": {"attn_rotary_emb": 64},
    "llama4_text": {"for_llm_compressor": False},
    "falcon_h1": {"mamba_use_mlp": True, "mlp_expansion_factor": 8},
    "nystromformer": {"inv_init_coeff_option": False},
    "roc_bert": {"enable_cls": False},
    "lxmert": {"layer_norm_eps": 1e-12},
    "aria_text": {"moe_z_loss_coeff": 1e-5, "moe_aux_loss_coeff": 0.001, "num_experts_per_tok": 6},
    "tapas": {"softmax_temperature": 1.0, "type_vocab_size": [3, 256, 256, 2, 256, 256, 10]},
    "layoutlmv3": {"second_input_size": 112},
    "wavlm": {
        "freeze_feat_extract_train": True, "mask_channel_length": 10, "mask_channel_min_space": 1,
        "mask_channel_other": 0.0, "mask_channel_prob": 0.0, "mask_channel_selection": "static",
        "mask_time_min_space": 1, "mask_time_other": 0.0, "mask_time_selection": "static",
        "no_mask_channel_overlap": False, "no_mask_time_overlap": False, "replace_prob": 0.5, "num_ctc_classes": 80,
    },
}  # fmt: skip
OTHERWISE = {  # values that nobody has compared
    "longformer": {"attention_mode": "tvm"},
    "lfm2": {"block_use_swiglu": False},
    "xlstm": {"add_qk_norm": True},
    "switch_transformers": {"router_type": "expert_choice"},
}


def example_of(model_type: str) -> Example:
    """The first exact example of a model type."""
    return next(
        example
        for family in RULEBOOK.families
        if model_type in family.model_types
        for example in family.examples
        if not is_near_miss(example) and (example.config or {}).get("model_type") == model_type
    )


def reading(model_type: str, fields: dict[str, Any]) -> tuple[str, list[str]]:
    example = example_of(model_type)
    changed = dataclasses.replace(example, config={**(example.config or {}), **fields}, expect={})
    architecture = infer(header(changed), RULEBOOK)
    return architecture.reading, [str(finding) for finding in (*architecture.findings, *architecture.missing)]


@pytest.mark.parametrize("model_type", FIELDS)
def test_fields_of_published_configs_change_nothing(model_type: str) -> None:
    assert reading(model_type, {})[0] == "exact"
    assert reading(model_type, FIELDS[model_type]) == ("exact", [])


@pytest.mark.parametrize("model_type", OTHERWISE)
def test_another_value_is_a_finding(model_type: str) -> None:
    found, findings = reading(model_type, OTHERWISE[model_type])
    (field,) = OTHERWISE[model_type]
    assert found != "exact" and any(field in finding for finding in findings)
