"""Dropout as published: which tensors are dropped at which rates, and how the outputs are spread by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import mapper
from mapper.architecture import Block
from mapper.emission import train as planned
from tests.parity.dropping import check_distribution, check_sites, made_up, trained
from tests.parity.harness import transformers

TEXT = {"vocab_size": 99, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
BERT = TEXT | {"intermediate_size": 24, "max_position_embeddings": 20}
BART = {
    "vocab_size": 99, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "pad_token_id": 1,
    "decoder_start_token_id": 2,
}  # fmt: skip
VISION = {"image_size": 8, "patch_size": 4, "num_channels": 3}
SWIN = VISION | {
    "embed_dim": 16, "depths": [2, 1], "num_heads": [2, 2], "window_size": 2, "patch_size": 2, "drop_path_rate": 0.0,
}  # fmt: skip
GPT2 = {"vocab_size": 99, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 20}
# Class, configuration, sizes, and each field that is a rate: a value that tells it from the others.
MODELS: dict[str, tuple[str, str, dict[str, Any], dict[str, float]]] = {
    "bert": ("BertModel", "BertConfig", BERT, {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}),
    "gpt2": ("GPT2Model", "GPT2Config", GPT2, {"resid_pdrop": 0.2, "embd_pdrop": 0.15, "attn_pdrop": 0.3}),
    "llama": (
        "LlamaForCausalLM", "LlamaConfig", TEXT | {"intermediate_size": 24, "num_key_value_heads": 1},
        {"attention_dropout": 0.3},
    ),
    "t5": (
        "T5ForConditionalGeneration", "T5Config",
        {"vocab_size": 99, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2,
         "decoder_start_token_id": 0},
        {"dropout_rate": 0.2},
    ),
    "vit": (
        "ViTModel", "ViTConfig", VISION | {k: v for k, v in BERT.items() if k not in ("vocab_size", "max_position_embeddings")},
        {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3},
    ),
    "distilbert": (
        "DistilBertForSequenceClassification", "DistilBertConfig",
        {"vocab_size": 99, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 20},
        {"dropout": 0.2, "attention_dropout": 0.3, "seq_classif_dropout": 0.25},
    ),
    "roberta": (
        "RobertaForSequenceClassification", "RobertaConfig", BERT | {"type_vocab_size": 1},
        {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3, "classifier_dropout": 0.25},
    ),
    "bert classifier": (
        "BertForSequenceClassification", "BertConfig", BERT,
        {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3, "classifier_dropout": 0.25},
    ),
    "bart": (
        "BartModel", "BartConfig", BART,
        {"dropout": 0.2, "attention_dropout": 0.3, "activation_dropout": 0.25},
    ),
    "whisper": (
        "WhisperForConditionalGeneration", "WhisperConfig",
        BART | {"num_mel_bins": 8, "max_source_positions": 6, "max_target_positions": 12},
        {"dropout": 0.2, "attention_dropout": 0.3, "activation_dropout": 0.25},
    ),
    "swin": (
        "SwinModel", "SwinConfig", SWIN, {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3},
    ),
}  # fmt: skip
EACH = [(name, field) for name, (*_, rates) in MODELS.items() for field in rates]


def config_of(name: str, **changed: float) -> tuple[str, Any]:
    kind, config, sizes, rates = MODELS[name]
    return kind, getattr(transformers, config)(**sizes | dict.fromkeys(rates, 0.0) | changed)


@pytest.mark.parametrize("name", MODELS)
def test_the_tensors_that_are_dropped_are_the_published_ones(name, tmp_path, monkeypatch):
    kind, config = config_of(name, **MODELS[name][3])
    theirs, ours = trained(kind, config, tmp_path)
    count = check_sites(theirs, ours, made_up(config.to_dict(), rows=2), monkeypatch)
    assert count >= len(MODELS[name][3])


@pytest.mark.parametrize(("name", "field"), EACH)
def test_one_rate_alone_spreads_the_outputs_as_published(name, field, tmp_path):
    kind, config = config_of(name, **{field: 0.3})
    check_distribution(*trained(kind, config, tmp_path), config)


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "bart"])
def test_all_rates_together_do(name, tmp_path):
    kind, config = config_of(name, **MODELS[name][3])
    check_distribution(*trained(kind, config, tmp_path), config)


def test_rows_are_dropped_more_often_the_deeper_the_layer(tmp_path):
    kind, config = config_of("swin", drop_path_rate=0.5)
    check_distribution(*trained(kind, config, tmp_path), config)


DINO = VISION | {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_ratio": 2}
CONVNEXT = {
    "num_channels": 3,
    "patch_size": 2,
    "image_size": 8,
    "hidden_sizes": [8, 12],
    "depths": [1, 1],
    "num_stages": 2,
}


@pytest.mark.parametrize(
    ("kind", "name", "sizes"),
    [
        ("Dinov2Model", "Dinov2Config", DINO),  # at every depth alike
        ("ConvNextModel", "ConvNextConfig", CONVNEXT),  # the first layer never
        ("Swinv2Model", "Swinv2Config", SWIN),  # what the norm behind a sub-layer gives
    ],
)
def test_whole_rows_are_dropped_where_they_are_as_published(kind, name, sizes, tmp_path):
    config = getattr(transformers, name)(**sizes | {"drop_path_rate": 0.5})
    for field in vars(config):
        if "dropout" in field:
            setattr(config, field, 0.0)
    check_distribution(*trained(kind, config, tmp_path), config)


def test_what_a_config_leaves_out_is_dropped_as_the_published_class_does(tmp_path, monkeypatch):
    kind, config = config_of("bert", hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.1)
    theirs, _ = trained(kind, config, tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    assert said.pop("attention_probs_dropout_prob") == 0.1  # the class's own
    (tmp_path / "config.json").write_text(json.dumps(said))
    ours = mapper.build(tmp_path, train=True).train()
    assert check_sites(theirs, ours, made_up(config.to_dict(), rows=2), monkeypatch) == 7


@pytest.mark.parametrize("change", ["missing", "doubled"])
@pytest.mark.parametrize("role", ["attention", "feed_forward", "embeddings"])
def test_a_site_that_is_missing_or_doubled_shows_in_the_spread(role, change, tmp_path, monkeypatch):
    made = planned.with_dropout

    def changed(architecture: Any) -> Any:
        found = made(architecture)
        for block in (b for b in found.root.blocks() if isinstance(b, Block) and b.role == role):
            block.drops = [drop for drop in block.drops if drop.way == "probabilities"] + 2 * [
                drop for drop in block.drops if drop.way == "result" and change == "doubled"
            ]
        return found

    kind, config = config_of("bert", hidden_dropout_prob=0.3)
    monkeypatch.setattr(planned, "with_dropout", changed)
    with pytest.raises(AssertionError):
        check_distribution(*trained(kind, config, tmp_path), config)


@pytest.mark.parametrize("skipped", [True, False])
def test_layers_are_left_out_as_published(skipped, tmp_path, monkeypatch):
    """What a layer's chance is compared with is drawn alike: all of them are left out, or none."""
    kind, config = config_of("bart", encoder_layerdrop=0.4, decoder_layerdrop=0.6)
    theirs, ours = trained(kind, config, tmp_path)
    inputs = made_up(config.to_dict(), rows=2)
    draws: list[int] = []

    def rand(*_: Any, **__: Any) -> torch.Tensor:
        draws.append(1)
        return torch.tensor(0.3 if skipped else 0.7) + (0.2 if skipped and len(draws) % 4 > 2 else 0.0)

    results = []
    for model in (theirs, ours):
        draws.clear()
        with monkeypatch.context() as patch, torch.no_grad():
            patch.setattr(torch, "rand", rand)
            results.append(model(**inputs).last_hidden_state)
        assert len(draws) == 4
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


def test_what_is_built_without_it_has_none(tmp_path):
    kind, config = config_of("bert", **MODELS["bert"][3])
    _, ours = trained(kind, config, tmp_path)
    plain = mapper.build(tmp_path).train()
    inputs = made_up(config.to_dict(), rows=2)
    with torch.no_grad():
        assert torch.equal(plain(**inputs).last_hidden_state, plain.eval()(**inputs).last_hidden_state)
        assert not torch.equal(ours(**inputs).last_hidden_state, ours(**inputs).last_hidden_state)


def test_a_saved_model_keeps_its_dropout(tmp_path: Path):
    kind, config = config_of("bert", **MODELS["bert"][3])
    _, ours = trained(kind, config, tmp_path)
    mapper.save(tmp_path / "kept.safetensors", ours)
    again, _ = mapper.load(tmp_path / "kept.safetensors")
    inputs = made_up(config.to_dict(), rows=2)
    with torch.no_grad():
        torch.manual_seed(0)
        one = ours(**inputs).last_hidden_state
        torch.manual_seed(0)
        assert torch.equal(again.train()(**inputs).last_hidden_state, one)
