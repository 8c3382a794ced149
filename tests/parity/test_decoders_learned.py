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
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_decoder(case: str, tmp_path: Path) -> None:
    name, fields = CASES[case]
    config = getattr(transformers, name).config_class(**fields)
    check(reference(name, config), tmp_path, INPUTS)
