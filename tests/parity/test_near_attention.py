"""Encoders whose positions see those near them, and few that see all, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.parity.harness import check, reference, text_inputs, transformers
from tests.parity.test_encoder_decoders import answers

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
    "attention_window": [8, 4],
}
LED: dict[str, Any] = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 44,
    "decoder_ffn_dim": 40,
    "max_encoder_position_embeddings": 40,
    "max_decoder_position_embeddings": 30,
}


def with_wide(cases: dict[str, dict[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    """The cases, and some of them again with positions that see all, among them padding."""
    wide = {
        f"{name}, some wide": {**case, "global_attention_mask": (case["input_ids"] % 4 == 0).long()}
        for name, case in cases.items()
    }
    return {**cases, **wide}


@pytest.mark.parametrize(
    "head", ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"]
)
def test_longformer(head: str, tmp_path: Path) -> None:
    config = transformers.LongformerConfig(**SIZES, num_labels=3)
    cases = with_wide(text_inputs(99, segments=2, padding=1))
    check(reference(f"Longformer{head}", config), tmp_path, cases)


def test_longformer_with_the_question_seeing_all(tmp_path: Path) -> None:
    config = transformers.LongformerConfig(**{**SIZES, "attention_window": 4}, sep_token_id=2)
    cases = text_inputs(99, segments=2, padding=1)
    for case in cases.values():
        ids = case["input_ids"] = torch.where(case["input_ids"] == 2, 3, case["input_ids"])
        middle = ids.shape[1] // 2
        ids[:, middle - 1 : middle + 2] = 2
    check(reference("LongformerForQuestionAnswering", config), tmp_path, cases)


@pytest.mark.parametrize("head", ["Model", "ForConditionalGeneration", "ForQuestionAnswering"])
def test_led(head: str, tmp_path: Path) -> None:
    config = transformers.LEDConfig(**LED, attention_window=[4, 8, 4])
    check(reference(f"LED{head}", config), tmp_path, with_wide(answers(99)))


@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("head", ["Model", "ForConditionalGeneration"])
def test_pegasus_x(head: str, shifted: bool, tmp_path: Path) -> None:
    sizes = {name: size for name, size in LED.items() if not name.startswith("max")}
    config = transformers.PegasusXConfig(
        **sizes, block_size=4, num_global_tokens=5, stagger_local_blocks=shifted, scale_embedding=shifted
    )
    check(reference(f"PegasusX{head}", config), tmp_path, answers(99))


REFORMER: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "attention_head_size": 8,
    "num_attention_heads": 4,
    "feed_forward_size": 48,
    "axial_pos_shape": [5, 8],
    "axial_pos_embds_dim": [12, 20],
    "max_position_embeddings": 40,
    "hash_seed": 3,
}


@pytest.mark.parametrize(
    ("head", "options"),
    [
        ("Model", {"attn_layers": ["lsh", "lsh"], "lsh_num_chunks_after": 1, "num_buckets": 4}),
        ("ForMaskedLM", {"attn_layers": ["local", "lsh"], "num_buckets": [2, 4], "num_hashes": 2}),
        ("ForQuestionAnswering", {"attn_layers": ["local", "local"], "local_num_chunks_after": 1}),
        ("ForSequenceClassification", {"attn_layers": ["lsh", "local"], "num_buckets": 2, "num_hashes": 3}),
        ("ModelWithLMHead", {"attn_layers": ["lsh", "local"], "num_buckets": 4, "is_decoder": True}),
        ("Model", {"attn_layers": ["local", "lsh"], "num_buckets": 2, "axial_pos_embds": False}),
    ],
)
def test_reformer(head: str, options: dict[str, Any], tmp_path: Path) -> None:
    config = transformers.ReformerConfig(
        **REFORMER, **options, local_attn_chunk_length=4, lsh_attn_chunk_length=6
    )
    cases = text_inputs(99, padding=0, positions=False)  # the reference pads none that are given
    check(reference(f"Reformer{head}", config), tmp_path, cases)
