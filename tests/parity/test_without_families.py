"""Vocabulary and generic flows alone: readings that are equal, and questions where names do not tell what differs.

Each case is read once without any family, and once under a type that nobody lists, where a family whose names fit
may help: neither may be called exact.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import transformers

import mapper
from tests.parity.harness import Pair, check_outputs, image_inputs, quiet, reference, text_inputs

SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 44,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 8}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
ENCODER = {**SIZES, "max_position_embeddings": 40}
BOTH_SIDES = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 44,
    "decoder_ffn_dim": 44,
}
IMAGE = {**SIZES, "image_size": 32, "patch_size": 8}
EQUAL = {
    "Qwen3MoeForCausalLM": ("Qwen3MoeConfig", {**GROUPED, **EXPERTS, "norm_topk_prob": True}),
    "LlamaForCausalLM": ("LlamaConfig", GROUPED),  # fields of its own tell it from others with its names
    "Gemma2ForCausalLM": ("Gemma2Config", {**GROUPED, "query_pre_attn_scalar": 24, "sliding_window": 5}),
    "RobertaForMaskedLM": ("RobertaConfig", {**ENCODER, "pad_token_id": 1}),
    "DistilBertForMaskedLM": ("DistilBertConfig", {"vocab_size": 99, "dim": 32, "n_heads": 4, "n_layers": 2, "hidden_dim": 44}),
    "BartForConditionalGeneration": ("BartConfig", {**BOTH_SIDES, "scale_embedding": True}),
    "ViTForImageClassification": ("ViTConfig", IMAGE),
}  # fmt: skip
ASKED = {
    "GemmaForCausalLM": ("GemmaConfig", GROUPED, "norm.offset"),
    "HeliumForCausalLM": ("HeliumConfig", {**GROUPED, "head_dim": 8, "pad_token_id": 0}, "rotary.style"),  # Llama's names, with neighbours turned
    "GlmForCausalLM": ("GlmConfig", {**GROUPED, "pad_token_id": 0}, "rotary.style"),  # neighbours are turned, too
    "Exaone4ForCausalLM": ("Exaone4Config", {**SIZES, "num_key_value_heads": 2, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5}, "attention.rotary"),
}  # fmt: skip


def saved(kind: str, config_kind: str, sizes: dict[str, Any], folder: Any) -> Any:
    model = reference(kind, getattr(transformers, config_kind)(**sizes))
    with quiet():
        model.save_pretrained(folder)
    return model


def given(kind: str) -> dict[str, Any]:
    """Padded text or an image; a decoder that reads an encoder gets words of its own."""
    if kind.startswith("ViT"):
        return image_inputs()["own size"]
    values = text_inputs(99, padding=1)["right"]
    return {**values, "decoder_input_ids": values["input_ids"].flip(1)} if kind.startswith("Bart") else values


def without_type(folder: Any) -> None:
    """The config of an architecture that nobody lists; the last words of its class stay."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    task = config["architectures"][0].partition("For")[2]
    path.write_text(
        json.dumps({**config, "model_type": "unheard_of", "architectures": [f"UnheardOfFor{task}"]})
    )


@pytest.mark.parametrize("kind", EQUAL)
def test_a_reading_that_nobody_vouches_for_is_equal(kind, tmp_path):
    model = saved(kind, *EQUAL[kind], tmp_path)
    values = given(kind)
    for families in (False, True):
        report = mapper.inspect(tmp_path, families=families).architecture
        assert report.reading == "unverified", report.missing
        named = (
            {"model_type": getattr(transformers, EQUAL[kind][0]).model_type} if report.questions else None
        )  # what its names share
        built = mapper.build(tmp_path, hints=named, families=families)
        check_outputs(Pair(model, tmp_path, report, built, "", built, built), values)
        without_type(tmp_path)


@pytest.mark.parametrize("kind", ASKED)
def test_what_names_do_not_tell_is_asked_for(kind, tmp_path):
    config_kind, sizes, fact = ASKED[kind]
    saved(kind, config_kind, sizes, tmp_path)
    for families in (False, True):
        missing = mapper.inspect(tmp_path, families=families).architecture.missing
        assert any(line.startswith(f"{fact} is unknown") and "possible here" in line for line in missing), (
            missing
        )
        without_type(tmp_path)
