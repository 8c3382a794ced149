"""Decoders that differ from their relatives in a norm, a factor, a window or what is turned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mapper
from tests.parity.harness import check, declared, reference, text_inputs, transformers

WORDS = 99
INPUTS = text_inputs(WORDS, padding=0, left_positions=True)
SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SCALES = {
    "attention_multiplier": 0.3,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.4,
    "logits_scaling": 5.0,
}
NEAR, FULL = "sliding_attention", "full_attention"
MIXED = {"layer_types": [NEAR, FULL], "sliding_window": 4}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
    "head_dim": 8,
}
FEW_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LATENT = {
    "q_lora_rank": 24,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "num_key_value_heads": 4,
}
LAYERED = {**MIXED, "head_dim": 8, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": WORDS}
BASE = {"rope_type": "default", "rope_theta": 500.0}
YARN = {**BASE, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
GROWING = {
    "rope_type": "yarn", "rope_theta": 500.0, "factor": 8.0, "original_max_position_embeddings": 5,
    "mscale": 1.0, "mscale_all_dim": 0.8, "llama_4_scaling_beta": 0.1,
}  # fmt: skip

# class, fields of its config
CASES: list[tuple[str, dict[str, Any]]] = [
    ("SmolLM3ForCausalLM", {"no_rope_layers": [1, 0]}),
    ("SmolLM3ForSequenceClassification", {"no_rope_layer_interval": 2, "no_rope_layers": None}),
    ("SmolLM3Model", {"use_sliding_window": True, **MIXED}),
    ("HeliumForCausalLM", {"head_dim": 8}),
    ("HeliumForTokenClassification", {"head_dim": 8, "num_key_value_heads": 4}),
    ("Ernie4_5ForCausalLM", {"head_dim": 8}),
    ("Ernie4_5Model", {"head_dim": 16, "use_bias": True, "rope_parameters": BASE}),
    ("CwmForCausalLM", {**MIXED, "head_dim": 8}),
    ("CwmModel", {"head_dim": 16, "num_hidden_layers": 5, "sliding_window": 3, "mlp_bias": True}),
    (
        "HunYuanDenseV1ForCausalLM",
        {"head_dim": 16, "rope_parameters": {**BASE, "rope_type": "dynamic", "alpha": 10.0, "factor": 1.0}},
    ),
    ("HunYuanDenseV1ForSequenceClassification", {"head_dim": 8, "attention_bias": True}),
    ("MiniCPM3ForCausalLM", {**LATENT, "dim_model_base": 16}),
    (
        "MiniCPM3Model",
        {
            **LATENT,
            "q_lora_rank": None,
            "scale_depth": None,
            "dim_model_base": None,
            "attention_bias": True,
            "mlp_bias": True,
            "rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.8},
        },
    ),
    ("AriaTextForCausalLM", {"moe_num_experts": 4, "attention_bias": True, "mlp_bias": True}),
    ("AriaTextModel", {"moe_num_experts": 4, "head_dim": 16}),
    ("Lfm2ForCausalLM", {"full_attn_idxs": [1], "block_auto_adjust_ff_dim": False}),
    (
        "Lfm2Model",
        {"layer_types": [FULL, "conv"], "conv_bias": True, "conv_L_cache": 4, "block_multiple_of": 8},
    ),
    ("Lfm2MoeForCausalLM", {"layer_types": [FULL, "conv"], "num_dense_layers": 1, **FEW_EXPERTS}),
    (
        "Lfm2MoeModel",
        {
            **FEW_EXPERTS,
            "layer_types": ["conv", FULL],
            "num_dense_layers": 0,
            "use_expert_bias": False,
            "conv_bias": True,
            "norm_topk_prob": False,
            "routed_scaling_factor": 1.5,
        },
    ),
    ("GPTNeoXJapaneseForCausalLM", {}),
    (
        "GPTNeoXJapaneseModel",
        {"rope_parameters": {**BASE, "partial_rotary_factor": 0.5}, "intermediate_multiple_size": 2},
    ),
    ("EuroBertForMaskedLM", {}),
    ("EuroBertForMaskedLM", {"tie_word_embeddings": True}),
    ("EuroBertModel", {"head_dim": 16}),
    ("BitNetForCausalLM", {}),
    ("BitNetModel", {"tie_word_embeddings": True}),
    ("Ministral3ForCausalLM", {"rope_parameters": GROWING, "head_dim": 8}),
    ("Ministral3Model", {"rope_parameters": GROWING, "head_dim": 8, "sliding_window": 4}),
    ("GraniteForCausalLM", SCALES),
    ("GraniteModel", {"attention_bias": True, **SCALES}),
    ("GraniteSWAForCausalLM", {**SCALES, **MIXED, "layer_rope_theta": [500.0, 0]}),
    ("GraniteSWAModel", {"sliding_window": 4, "num_hidden_layers": 3}),
    ("GraniteDoclingTextModel", {**SCALES, "rope_parameters": BASE}),
    ("HyperCLOVAXForCausalLM", SCALES),
    ("HyperCLOVAXForCausalLM", {"use_post_norm": False, "attention_multiplier": None}),
    ("GemmaForCausalLM", {"head_dim": 16, "num_key_value_heads": 1}),
    ("GemmaForSequenceClassification", {"head_dim": 8, "hidden_act": "gelu"}),
    ("VaultGemmaForCausalLM", {"head_dim": 16, **MIXED}),
    ("VaultGemmaModel", {"head_dim": 8, "attn_logit_softcapping": None, "sliding_window": 4}),
    ("OlmoForCausalLM", {"rope_parameters": BASE, "clip_qkv": 0.4}),
    ("OlmoForSequenceClassification", {"attention_bias": True, "tie_word_embeddings": True}),
    ("Olmo2ForCausalLM", {"rope_parameters": BASE}),
    ("Olmo2ForSequenceClassification", {"attention_bias": True}),
    ("Olmo3ForCausalLM", MIXED),
    ("Olmo3Model", {"num_hidden_layers": 4, "sliding_window": 3, "attention_bias": True}),
    ("Exaone4ForCausalLM", MIXED),
    ("Exaone4Model", {"sliding_window": None, "layer_types": [FULL, FULL]}),
    ("Exaone4ForQuestionAnswering", {"sliding_window": 4, "sliding_window_pattern": 2}),
    ("GlmForCausalLM", {"head_dim": 8}),
    ("GlmForTokenClassification", {"head_dim": 16, "attention_bias": False}),
    ("Glm4ForCausalLM", {"head_dim": 8, "attention_bias": True}),
    ("Glm4vTextModel", {"rope_parameters": {**BASE, "mrope_section": [2, 1, 1]}}),
    ("ApertusForCausalLM", {}),
    ("ApertusModel", {"hidden_act": "relu2"}),
    ("Cosmos3EdgeTextModel", {"head_dim": 8, "rope_parameters": {**BASE, "mrope_section": [2, 1, 1]}}),
    ("Molmo2TextModel", {"head_dim": 8, "additional_vocab_size": 7}),
    (
        "Molmo2TextModel",
        {
            "head_dim": 8,
            "attention_bias": True,
            "rope_parameters": {**BASE, "rope_type": "linear", "factor": 2.0},
        },
    ),
    ("FlintForCausalLM", {**MIXED, **EXPERTS, "mlp_only_layers": [0]}),
    ("FlintModel", {**EXPERTS, "num_hidden_layers": 4, "sliding_window": 3}),
    ("YoutuForCausalLM", LATENT),
    ("YoutuModel", {**LATENT, "q_lora_rank": None}),
    ("NanoChatForCausalLM", {"rope_parameters": BASE}),
    ("NanoChatModel", {"attention_bias": True}),
    ("Gemma4ForCausalLM", LAYERED),
    (
        "Gemma4ForCausalLM",
        {
            **LAYERED,
            "final_logit_softcapping": 5.0,
            "num_hidden_layers": 3,
            "layer_types": [NEAR, NEAR, FULL],
        },
    ),
    ("Gemma4ForCausalLM", {**LAYERED, "rope_parameters": {NEAR: YARN, FULL: BASE}}),
    ("EmbeddingGemma2TextModel", {**LAYERED, "embedding_dim": 24}),
    ("ModernBertDecoderForCausalLM", {**MIXED, "norm_bias": True}),
    ("ModernBertDecoderModel", {"layer_types": [FULL, NEAR], "local_attention": 8}),
]


def config_of(name: str, fields: dict[str, Any]) -> Any:
    made = getattr(transformers, name).config_class
    return made(**{**declared(made, SIZES), **fields}, num_labels=3)


def names(case: tuple[str, dict[str, Any]]) -> str:
    return "-".join([case[0], *map(str, case[1])])


@pytest.mark.parametrize("case", CASES, ids=names)
def test_decoder(case: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    check(reference(case[0], config_of(*case)), tmp_path, INPUTS)


@pytest.mark.parametrize("name", ["InternLM3", "IQuestCoder"])
def test_decoders_that_are_llama_by_another_name(name: str, tmp_path: Path) -> None:
    config = getattr(transformers, f"{name}Config")(**SIZES, head_dim=16, attention_bias=True, mlp_bias=True)
    check(reference("LlamaForCausalLM", config), tmp_path, INPUTS)


def older(config: dict[str, Any]) -> None:
    """The spelling of configs before transformers 5."""
    rotary = config.pop("rope_parameters")
    config["rope_theta"] = rotary.pop("rope_theta")
    if "partial_rotary_factor" in rotary:
        config["partial_rotary_factor"] = rotary.pop("partial_rotary_factor")
    config["rope_scaling"] = None if rotary.pop("rope_type") == "default" else rotary
    config["torch_dtype"] = config.pop("dtype", "float32")


OLDER = [
    "SmolLM3ForCausalLM",
    "HeliumForCausalLM",
    "GraniteForCausalLM",
    "GemmaForCausalLM",
    "Olmo2ForCausalLM",
    "GlmForCausalLM",
    "Ernie4_5ForCausalLM",
]


@pytest.mark.parametrize("name", OLDER)
def test_the_rotary_fields_of_older_configs(name: str, tmp_path: Path) -> None:
    config = config_of(name, {"rope_parameters": dict(BASE), "head_dim": 8})  # some classes write into it
    check(reference(name, config), tmp_path, INPUTS, edit=older)


@pytest.mark.parametrize("name", ["Ministral3Model", "CwmModel"])
def test_a_config_that_leaves_its_angles_out(name: str, tmp_path: Path) -> None:
    config = config_of(name, {"head_dim": 8})
    check(reference(name, config), tmp_path, INPUTS, edit=lambda data: data.pop("rope_parameters"))


def test_layers_with_several_bases_are_not_called_exact(tmp_path: Path) -> None:
    config = config_of("GraniteSWAModel", {**MIXED, "layer_rope_theta": [500.0, 900.0]})
    reference("GraniteSWAModel", config).save_pretrained(tmp_path)
    with pytest.raises(mapper.MapperError, match=r"layer_(rope_theta|types): differs between equal elements"):
        mapper.build(tmp_path)  # which of the two lists is met first is no promise
