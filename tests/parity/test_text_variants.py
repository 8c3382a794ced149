"""Text models that differ from a well-known one in little, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.parity.harness import check, image_inputs, reference, text_inputs, transformers

WORDS = 99
BERT = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert-generation, both sides": ("BertGenerationDecoder", BERT),
    "bert-generation, a decoder with a map of its own": (
        "BertGenerationDecoder",
        {**BERT, "is_decoder": True, "tie_word_embeddings": False},
    ),
    "bert-generation, no head": ("BertGenerationEncoder", {**BERT, "hidden_act": "relu"}),
}


@pytest.mark.parametrize("case", CASES)
def test_variant(case: str, tmp_path: Path) -> None:
    name, fields = CASES[case]
    config = getattr(transformers, name).config_class(**fields)
    check(reference(name, config), tmp_path, text_inputs(WORDS, padding=0))


@pytest.mark.parametrize(
    "name",
    [
        "BigBirdModel",
        "BigBirdForMaskedLM",
        "BigBirdForSequenceClassification",
        "BigBirdForPreTraining",
    ],
)
def test_big_bird(name: str, tmp_path: Path) -> None:
    kept = name.endswith("LM")
    config = transformers.BigBirdConfig(
        **BERT, block_size=4, num_random_blocks=1, use_bias=kept, num_labels=3
    )
    made = check(reference(name, config), tmp_path, text_inputs(WORDS, padding=0, segments=2))
    with pytest.raises(ValueError, match="beyond 28, attention is sparse"):
        made.built(input_ids=torch.zeros(1, 29, dtype=torch.long))


@pytest.mark.parametrize(
    "name", ["RemBertModel", "RemBertForMaskedLM", "RemBertForCausalLM", "RemBertForSequenceClassification"]
)
def test_rembert(name: str, tmp_path: Path) -> None:
    config = transformers.RemBertConfig(
        **BERT, input_embedding_size=24, output_embedding_size=40, is_decoder="Causal" in name, num_labels=3
    )
    check(reference(name, config), tmp_path, text_inputs(WORDS, padding=0, segments=2))


@pytest.mark.parametrize("name", ["VisualBertModel", "VisualBertForPreTraining"])
def test_visual_bert_reads_words_without_an_image(name: str, tmp_path: Path) -> None:
    config = transformers.VisualBertConfig(**BERT, visual_embedding_dim=24)
    check(reference(name, config), tmp_path, text_inputs(WORDS, padding=1, segments=2))


@pytest.mark.parametrize("name", ["XLNetLMHeadModel", "XLNetModel", "XLNetForTokenClassification"])
def test_xlnet(name: str, tmp_path: Path) -> None:
    config = transformers.XLNetConfig(
        vocab_size=WORDS, d_model=32, n_layer=2, n_head=4, d_inner=48, ff_activation="relu", num_labels=3
    )
    inputs = text_inputs(WORDS, padding=5, segments=2, positions=False)
    check(reference(name, config), tmp_path, inputs)


VISION = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 16,
    "patch_size": 8,
}


def test_git_reads_text_behind_an_image_and_without_one(tmp_path: Path) -> None:
    config = transformers.GitConfig(**BERT, vision_config=VISION)
    texts = text_inputs(WORDS, padding=0, positions=False)
    pixels = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    seen = {
        f"{key}, image": {**texts[key], "pixel_values": pixels} for key in ("no mask", "right", "all ones")
    }
    check(reference("GitForCausalLM", config), tmp_path, {**texts, **seen})


def test_the_images_that_git_reads(tmp_path: Path) -> None:
    model = reference("GitVisionModel", transformers.GitVisionConfig(**VISION))
    check(model, tmp_path, image_inputs(own=(16, 16)))
