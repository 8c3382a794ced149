"""Text encoders with their heads against the reference library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import mapper
from tests.parity.harness import (
    Pair,
    check,
    check_compile,
    check_export,
    check_gradient,
    check_outputs,
    imported,
    quiet,
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


def compare(name: str, config: Any, folder: Path, *, without: Sequence[str] = (), **options: Any) -> Pair:
    config.num_labels = 2 if "QuestionAnswering" in name else 3
    inputs = text_inputs(
        VOCABULARY,
        segments=getattr(config, "type_vocab_size", 0),
        positions=getattr(config, "position_biased_input", True),
        padding=config.pad_token_id,
    )
    for case in without:
        del inputs[case]
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


@pytest.mark.parametrize("name", heads("DebertaV2"))
def test_deberta_v2(name: str, tmp_path: Path) -> None:
    """A first position that is padding is nothing to classify by, and the reference masks its query, too."""
    without = ["left"] if "Sequence" in name else []
    compare(name, transformers.DebertaV2Config(**SIZES), tmp_path, without=without)


DISENTANGLED: dict[str, dict[str, Any]] = {
    "version 3": {
        "position_buckets": 6,
        "max_position_embeddings": 40,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": "p2c|c2p",
        "position_biased_input": False,
        "legacy": False,
    },
    "one comparison": {"share_att_key": True, "pos_att_type": ["p2c"], "max_relative_positions": 5},
    "own maps": {"pos_att_type": ["c2p", "p2c"], "position_buckets": 16, "max_relative_positions": 30},
    "one own map": {"pos_att_type": "c2p", "type_vocab_size": 2, "hidden_act": "relu"},
    "the other map": {"pos_att_type": "p2c", "tie_word_embeddings": False},
}


@pytest.mark.parametrize("options", DISENTANGLED.values(), ids=DISENTANGLED)
def test_deberta_v2_compares_contents_with_distances(options: dict[str, Any], tmp_path: Path) -> None:
    config = transformers.DebertaV2Config(**SIZES | options, relative_attention=True)
    made = compare("DebertaV2ForMaskedLM", config, tmp_path)
    for name, values in text_inputs(VOCABULARY, positions=False, length=40).items():
        check_outputs(made, values, name)


def test_deberta_v2_pooler(tmp_path: Path) -> None:
    config = transformers.DebertaV2Config(**SIZES, pooler_hidden_act="tanh", type_vocab_size=2)
    compare("DebertaV2ForSequenceClassification", config, tmp_path, without=["left"])


def test_a_masked_lm_trains_exports_and_compiles(tmp_path: Path) -> None:
    made = compare("BertForMaskedLM", transformers.BertConfig(**SIZES), tmp_path)
    cases = text_inputs(VOCABULARY, segments=2)
    one = {"input_ids": cases["right"]["input_ids"], "attention_mask": cases["right"]["attention_mask"]}
    other = {name: value[:2, :7] for name, value in one.items()}
    check_gradient(made, one)
    check_export(made, one, other)
    check_compile(made, one)


@pytest.mark.parametrize("shift", [0, 1])
def test_a_tied_head_that_is_stored_is_one_parameter_where_the_bytes_agree(
    shift: int, tmp_path: Path
) -> None:
    """As older files have it: the map and its bias under both of their names."""
    with quiet():
        reference("BertForMaskedLM", transformers.BertConfig(**SIZES)).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"] + shift
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
    save_file(tensors, file, metadata={"format": "pt"})
    assert mapper.inspect(tmp_path).architecture.reading == "exact"
    built = mapper.build(tmp_path)
    head, words = built.cls.predictions, built.bert.embeddings.word_embeddings
    assert (head.decoder.weight is words.weight) == (shift == 0)
    ids = torch.arange(8)[None] + 3
    with torch.no_grad():
        x = head.transform.dense(built(ids).last_hidden_state)
        x = head.transform.LayerNorm(nn.functional.gelu(x))
        wanted = nn.functional.linear(x, tensors["cls.predictions.decoder.weight"], head.bias)
        torch.testing.assert_close(built(ids).logits, wanted)


def test_hidden_states_of_layers_that_are_run_over_several_times(tmp_path: Path) -> None:
    options = {"num_hidden_layers": 6, "num_hidden_groups": 2}
    model = reference("AlbertModel", transformers.AlbertConfig(**SIZES | options))
    with quiet():
        model.save_pretrained(tmp_path)
    source = tmp_path / "generated_model.py"
    source.write_text(mapper.generate(tmp_path, hidden_states=True))
    ids = torch.arange(8)[None] + 3
    with torch.no_grad():
        wanted = model(ids, output_hidden_states=True).hidden_states
        states = imported(source).load(tmp_path)(ids).hidden_states
    assert len(states) == len(wanted) == 7
    torch.testing.assert_close(tuple(states), wanted)
