"""Text encoders with rotary positions, windows or other layers than BERT's, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.parity.harness import Pair, check, reference, text_inputs, transformers

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
COMMON = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


def compare(name: str, config: Any, folder: Path, **options: Any) -> Pair:
    config.num_labels = 2 if "QuestionAnswering" in name else 3
    segments = getattr(config, "type_vocab_size", 0)
    positions = options.pop("positions", True)
    inputs = text_inputs(99, segments=segments, padding=config.pad_token_id, positions=positions)
    for case in options.pop("without", ()):
        del inputs[case]
    return check(reference(name, config), folder, inputs, **options)


@pytest.mark.parametrize("head", ["Model", *COMMON[:3]])
def test_nomic_bert(head: str, tmp_path: Path) -> None:
    compare(f"NomicBert{head}", transformers.NomicBertConfig(**SIZES), tmp_path)


def test_nomic_bert_with_the_fields_of_its_authors(tmp_path: Path) -> None:
    def older(fields: dict[str, Any]) -> None:
        fields["rotary_emb_base"] = fields.pop("rope_parameters")["rope_theta"]
        for new, old in {"hidden_size": "n_embd", "num_attention_heads": "n_head"}.items():
            fields[old] = fields.pop(new)
        del fields["hidden_act"], fields["head_dim"]
        fields |= {"activation_function": "swiglu", "prenorm": False, "layer_norm_epsilon": 1e-12}
        fields |= {"rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_scaling_factor": None}

    rope = {"rope_type": "default", "rope_theta": 500.0}
    compare(
        "NomicBertModel", transformers.NomicBertConfig(**SIZES, rope_parameters=rope), tmp_path, edit=older
    )


@pytest.mark.parametrize("head", ["Model", *COMMON])
def test_modernbert(head: str, tmp_path: Path) -> None:
    """A first position that is padding is nothing to classify by."""
    config = transformers.ModernBertConfig(**SIZES, local_attention=4)
    compare(f"ModernBert{head}", config, tmp_path, without=["left"] if "Sequence" in head else [])


@pytest.mark.parametrize(
    "options",
    [
        {"layer_types": ["sliding_attention"] * 2, "local_attention": 6, "classifier_pooling": "mean"},
        {"layer_types": ["full_attention"] * 2, "norm_bias": True, "classifier_bias": True},
        {
            "attention_bias": True,
            "mlp_bias": True,
            "hidden_activation": "relu",
            "classifier_activation": "silu",
        },
    ],
)
def test_modernbert_with_other_options(options: dict[str, Any], tmp_path: Path) -> None:
    config = transformers.ModernBertConfig(**SIZES, **options)
    without = ["left"] if config.classifier_pooling == "cls" else []
    compare("ModernBertForSequenceClassification", config, tmp_path, without=without)


def test_modernbert_with_older_fields(tmp_path: Path) -> None:
    def older(fields: dict[str, Any]) -> None:
        rope = fields.pop("rope_parameters")
        fields["global_rope_theta"] = rope["full_attention"]["rope_theta"]
        fields["local_rope_theta"] = rope["sliding_attention"]["rope_theta"]
        fields["global_attn_every_n_layers"] = 2
        del fields["layer_types"]

    rope = {"full_attention": {"rope_theta": 900.0}, "sliding_attention": {"rope_theta": 50.0}}
    options = {"rope_parameters": rope, "num_hidden_layers": 4, "tie_word_embeddings": False}
    config = transformers.ModernBertConfig(**{**SIZES, **options}, local_attention=4)
    config.layer_types = ["full_attention", "sliding_attention"] * 2
    compare("ModernBertForMaskedLM", config, tmp_path, edit=older)
