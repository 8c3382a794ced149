"""Decoders whose positions are learned, or waves, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.parity.harness import check, reference, text_inputs, transformers
from tests.parity.test_decoders import WORDS

INPUTS = text_inputs(WORDS, padding=1)
WORDS_AND_IDS = {
    "vocab_size": WORDS,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "num_labels": 3,
}
OPT = {
    **WORDS_AND_IDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "ffn_dim": 48,
    "max_position_embeddings": 40,
}
BIOGPT = {**{key: value for key, value in OPT.items() if key != "ffn_dim"}, "intermediate_size": 48}
XGLM = {
    **WORDS_AND_IDS,
    "d_model": 32,
    "num_layers": 2,
    "attention_heads": 4,
    "ffn_dim": 48,
    "max_position_embeddings": 40,
}
NEO = {
    **WORDS_AND_IDS,
    "hidden_size": 32,
    "num_layers": 2,
    "num_heads": 4,
    "window_size": 4,
    "max_position_embeddings": 40,
    "attention_types": [[["global", "local"], 1]],
}
GPT = {**WORDS_AND_IDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40}
TURNED = {**GPT, "rotary_dim": 4, "n_inner": 48}
MPT = {**WORDS_AND_IDS, "d_model": 48, "n_layers": 2, "n_heads": 6, "max_seq_len": 40}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "opt": ("OPTForCausalLM", OPT),
    "opt, post-norm, narrow words": (
        "OPTForCausalLM",
        {**OPT, "do_layer_norm_before": False, "word_embed_proj_dim": 16, "activation_function": "gelu"},
    ),
    "opt, no biases": ("OPTModel", {**OPT, "enable_bias": False}),
    "opt, labels": ("OPTForSequenceClassification", OPT),
    "opt, answers": ("OPTForQuestionAnswering", OPT),
    "biogpt": ("BioGptForCausalLM", BIOGPT),
    "biogpt, words as they are, own head": (
        "BioGptForCausalLM",
        {**BIOGPT, "scale_embedding": False, "tie_word_embeddings": False},
    ),
    "biogpt, tokens": ("BioGptForTokenClassification", BIOGPT),
    "biogpt, labels": ("BioGptForSequenceClassification", BIOGPT),
    "xglm": ("XGLMForCausalLM", XGLM),
    "xglm, words as they are": ("XGLMModel", {**XGLM, "scale_embedding": False, "activation_function": "relu"}),
    "gpt_neo": ("GPTNeoForCausalLM", NEO),
    "gpt_neo, one kind of layers, answers": (
        "GPTNeoForQuestionAnswering",
        {**NEO, "attention_types": [[["global"], 2]], "intermediate_size": 48},
    ),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", GPT),
    "gpt_bigcode, a key for each query": (
        "GPTBigCodeForTokenClassification",
        {**GPT, "multi_query": False, "scale_attn_weights": False, "n_inner": 48},
    ),
    "imagegpt": ("ImageGPTForImageClassification", GPT),
    "imagegpt, no head": ("ImageGPTModel", {**GPT, "scale_attn_weights": False}),
    "openai-gpt": ("OpenAIGPTLMHeadModel", GPT),
    "openai-gpt, labels": ("OpenAIGPTForSequenceClassification", {**GPT, "afn": "relu"}),
    "ctrl": ("CTRLLMHeadModel", {**GPT, "dff": 48}),
    "ctrl, labels": ("CTRLForSequenceClassification", {**GPT, "dff": 48}),
    "codegen": ("CodeGenForCausalLM", {**TURNED, "n_ctx": 40}),
    "codegen, a tied head": ("CodeGenForCausalLM", {**TURNED, "n_ctx": 40, "tie_word_embeddings": True}),
    "codegen, all of a head": ("CodeGenModel", {**TURNED, "n_ctx": 40, "rotary_dim": 8}),
    "gptj": ("GPTJForCausalLM", TURNED),
    "gptj, answers": ("GPTJForQuestionAnswering", {**TURNED, "num_labels": 2, "activation_function": "relu"}),
    "gptj, labels": ("GPTJForSequenceClassification", TURNED),
    "mpt": ("MptForCausalLM", MPT),
    "mpt, bounds": ("MptForTokenClassification", {**MPT, "attn_config": {"clip_qkv": 0.5}}),
}  # fmt: skip
LESS = {  # no positions where scores fall with the distance, no padding where all positions are averaged
    "mpt": [key for key in INPUTS if key != "positions"],
    "imagegpt": ["no mask", "one"],
}


@pytest.mark.parametrize("case", CASES)
def test_decoder(case: str, tmp_path: Path) -> None:
    name, fields = CASES[case]
    config = getattr(transformers, name).config_class(**fields)
    keys = LESS.get(case.partition(",")[0], INPUTS)
    check(reference(name, config), tmp_path, {key: INPUTS[key] for key in keys})


@pytest.mark.parametrize(
    "name", ["MusicgenForCausalLM", "MusicgenModel", "MusicgenMelodyForCausalLM", "MusicgenMelodyModel"]
)
def test_a_decoder_of_several_codes_at_a_time(name: str, tmp_path: Path) -> None:
    config = getattr(transformers, name).config_class(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=48,
        num_codebooks=2,
    )
    codes = INPUTS["no mask"]["input_ids"].repeat_interleave(2, dim=0).flip(1)
    sides = [
        "right",
        "all ones",
        *(["left"] if name.endswith("Model") else []),
    ]  # scores have no mask's shape
    masks = {key: INPUTS[key]["attention_mask"] for key in sides}
    inputs = {key: {"input_ids": codes, "attention_mask": mask} for key, mask in masks.items()}
    check(reference(name, config), tmp_path, {"no mask": {"input_ids": codes}, **inputs})
