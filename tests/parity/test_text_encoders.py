"""Text encoders with their heads against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.parity.harness import (
    Pair,
    check,
    check_compile,
    check_export,
    check_gradient,
    check_outputs,
    reference,
    text_inputs,
    transformers,
)

VOCABULARY = 99
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}
DISTILBERT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "dim": 32,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 48,
    "max_position_embeddings": 40,
}
COMMON = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


def heads(prefix: str, *more: str) -> list[str]:
    return [prefix + head for head in ("Model", *COMMON, *more)]


def compare(name: str, config: Any, folder: Path, **options: Any) -> Pair:
    config.num_labels = 2 if "QuestionAnswering" in name else 3
    inputs = text_inputs(
        VOCABULARY, segments=getattr(config, "type_vocab_size", 0), padding=config.pad_token_id
    )
    return check(reference(name, config), folder, inputs, **options)


@pytest.mark.parametrize("name", heads("Bert", "ForPreTraining", "ForNextSentencePrediction"))
def test_bert(name: str, tmp_path: Path) -> None:
    compare(name, transformers.BertConfig(**SIZES), tmp_path)


def test_bert_as_a_decoder(tmp_path: Path) -> None:
    compare("BertLMHeadModel", transformers.BertConfig(**SIZES, is_decoder=True), tmp_path)


@pytest.mark.parametrize("tied", [True, False])
def test_bert_with_other_options(tied: bool, tmp_path: Path) -> None:
    options = {
        "hidden_act": "relu",
        "layer_norm_eps": 1e-3,
        "type_vocab_size": 5,
        "tie_word_embeddings": tied,
    }
    compare("BertForMaskedLM", transformers.BertConfig(**SIZES | options), tmp_path)


@pytest.mark.parametrize("name", heads("DistilBert"))
def test_distilbert(name: str, tmp_path: Path) -> None:
    compare(name, transformers.DistilBertConfig(**DISTILBERT), tmp_path)


@pytest.mark.parametrize("tied", [True, False])
def test_distilbert_with_other_options(tied: bool, tmp_path: Path) -> None:
    options = {"activation": "relu", "tie_word_embeddings": tied}
    compare("DistilBertForMaskedLM", transformers.DistilBertConfig(**DISTILBERT | options), tmp_path)


@pytest.mark.parametrize("name", heads("Roberta"))
def test_roberta(name: str, tmp_path: Path) -> None:
    compare(name, transformers.RobertaConfig(**SIZES), tmp_path)


@pytest.mark.parametrize("tied", [True, False])
def test_roberta_with_other_options(tied: bool, tmp_path: Path) -> None:
    options = {"hidden_act": "relu", "pad_token_id": 4, "type_vocab_size": 1, "tie_word_embeddings": tied}
    compare("RobertaForMaskedLM", transformers.RobertaConfig(**SIZES | options), tmp_path)


def test_roberta_as_a_decoder(tmp_path: Path) -> None:
    compare("RobertaForCausalLM", transformers.RobertaConfig(**SIZES, is_decoder=True), tmp_path)


@pytest.mark.parametrize("name", heads("XLMRoberta"))
def test_xlm_roberta(name: str, tmp_path: Path) -> None:
    compare(name, transformers.XLMRobertaConfig(**SIZES), tmp_path)


@pytest.mark.parametrize("name", heads("Camembert"))
def test_camembert(name: str, tmp_path: Path) -> None:
    compare(name, transformers.CamembertConfig(**SIZES), tmp_path)


@pytest.mark.parametrize("name", heads("Electra", "ForPreTraining"))
def test_electra(name: str, tmp_path: Path) -> None:
    compare(name, transformers.ElectraConfig(**SIZES, embedding_size=24), tmp_path)


@pytest.mark.parametrize(
    "name", ["ElectraForMaskedLM", "ElectraForPreTraining", "ElectraForSequenceClassification"]
)
def test_electra_with_other_options(name: str, tmp_path: Path) -> None:
    options = {"embedding_size": 32, "hidden_act": "relu"}
    compare(name, transformers.ElectraConfig(**SIZES | options), tmp_path)


def test_electra_as_a_decoder(tmp_path: Path) -> None:
    compare("ElectraForCausalLM", transformers.ElectraConfig(**SIZES, is_decoder=True), tmp_path)


@pytest.mark.parametrize("name", heads("Albert", "ForPreTraining"))
def test_albert(name: str, tmp_path: Path) -> None:
    compare(name, transformers.AlbertConfig(**SIZES, embedding_size=24), tmp_path)


@pytest.mark.parametrize(
    ("layers", "groups", "inner", "tied"), [(4, 2, 1, True), (3, 1, 2, True), (6, 3, 2, False)]
)
def test_albert_with_groups(layers: int, groups: int, inner: int, tied: bool, tmp_path: Path) -> None:
    options = {
        "num_hidden_layers": layers,
        "num_hidden_groups": groups,
        "inner_group_num": inner,
        "embedding_size": 32,
        "hidden_act": "gelu",
        "tie_word_embeddings": tied,
    }
    compare("AlbertForMaskedLM", transformers.AlbertConfig(**SIZES | options), tmp_path)


@pytest.mark.parametrize("name", heads("MPNet"))
def test_mpnet(name: str, tmp_path: Path) -> None:
    compare(name, transformers.MPNetConfig(**SIZES), tmp_path)


@pytest.mark.parametrize("tied", [True, False])
def test_mpnet_with_other_options(tied: bool, tmp_path: Path) -> None:
    """Its code counts 32 buckets and takes 1 for padding, whatever the config says."""
    options = {
        "hidden_act": "relu",
        "pad_token_id": 4,
        "relative_attention_num_buckets": 40,
        "max_position_embeddings": 200,
        "tie_word_embeddings": tied,
    }
    config = transformers.MPNetConfig(**SIZES | options)
    made = compare("MPNetForMaskedLM", config, tmp_path)
    for name, values in text_inputs(VOCABULARY, padding=1, length=170).items():
        check_outputs(made, values, name)


def test_a_masked_lm_trains_exports_and_compiles(tmp_path: Path) -> None:
    made = compare("BertForMaskedLM", transformers.BertConfig(**SIZES), tmp_path)
    cases = text_inputs(VOCABULARY, segments=2)
    one = {"input_ids": cases["right"]["input_ids"], "attention_mask": cases["right"]["attention_mask"]}
    other = {name: value[:2, :7] for name, value in one.items()}
    check_gradient(made, one)
    check_export(made, one, other)
    check_compile(made, one)
