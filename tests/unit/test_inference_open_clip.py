"""OpenCLIP's pairs: what their settings say of each tower, and their text encoder alone, beside torch's own layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import mapper
from mapper._api import describe
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK

WIDTH, HEADS, POSITIONS, WORDS, PROJECTED = 128, 2, 16, 50, 24


class Text(nn.Module):
    """Stable Diffusion 2 has it so: layers of torch, names of OpenCLIP."""

    def __init__(self) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(WORDS, WIDTH)
        self.positional_embedding = nn.Parameter(torch.randn(POSITIONS, WIDTH) * 0.1)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)  # fmt: skip
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.ln_final = nn.LayerNorm(WIDTH)
        self.text_projection = nn.Parameter(torch.randn(WIDTH, PROJECTED) * 0.1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.token_embedding(ids) + self.positional_embedding[: ids.shape[1]]
        later = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
        x = self.ln_final(self.layers(x, mask=later))
        return x[torch.arange(len(ids)), ids.argmax(dim=1)] @ self.text_projection

    def published(self) -> dict[str, torch.Tensor]:
        words = {"layers.layers": "transformer.resblocks", "self_attn": "attn", "linear1": "mlp.c_fc", "linear2": "mlp.c_proj", "norm1": "ln_1", "norm2": "ln_2"}  # fmt: skip
        named = {}
        for name, tensor in self.state_dict().items():
            for word, theirs in words.items():
                name = name.replace(word, theirs)
            named[name] = tensor.contiguous()
        return named


def test_a_text_encoder_alone_is_asked_for_its_activation_and_then_right(tmp_path: Path) -> None:
    text = Text().eval()
    for parameter in text.parameters():
        nn.init.normal_(parameter, std=0.2)
    save_file(text.published(), tmp_path / "model.safetensors")
    asked = {question.name for question in describe(tmp_path).questions}
    assert asked == {"feed_forward.activation"}  # the first release has another than OpenCLIP
    ids = torch.randint(1, WORDS, (3, 9))
    model = mapper.build(tmp_path, hints={"feed_forward.activation": "gelu"})
    with torch.no_grad():
        torch.testing.assert_close(model(ids).text_embeds, text(ids), rtol=1e-4, atol=1e-5)


def facts_of_text(tmp_path: Path, **said: Any) -> dict[str, Any]:
    """The facts of the text of a pair whose settings stand in the library's own file."""
    known = next(entry.read() for entry in RULEBOOK.family_entries if entry.name == "openai_clip")
    made = next(header(one) for one in known.examples if one.name == "settings of OpenCLIP")
    config = made.config or {}
    settings = {**config, "text_cfg": {**config["text_cfg"], **said}}
    save_file({name: torch.zeros(info.shape) for name, info in made.tensors.items()}, tmp_path / "model.safetensors")  # fmt: skip
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": settings}))
    found = describe(tmp_path)
    return {fact.name: fact.value for fact in found.facts if "visual" not in fact.at}


@pytest.mark.parametrize(("said", "pooling"), [("argmax", "highest"), ("eos", "end"), ("first", "first"), ("last", "last")])  # fmt: skip
def test_the_settings_say_which_state_stands_for_a_text(tmp_path: Path, said: str, pooling: str) -> None:
    assert facts_of_text(tmp_path, pool_type=said)["pooling"] == pooling


def test_the_settings_say_whether_a_text_sees_what_comes_after(tmp_path: Path) -> None:
    assert facts_of_text(tmp_path, no_causal_mask=True)["attention.causal"] is False
    assert facts_of_text(tmp_path)["attention.causal"] is True


def test_what_no_rule_reads_of_the_settings_is_said(tmp_path: Path) -> None:
    facts_of_text(tmp_path, scale_heads=True)
    assert any("text_cfg.scale_heads" in finding for finding in describe(tmp_path).findings)


def test_texts_that_an_encoder_of_the_hub_reads_have_their_padding_hidden_and_the_mean_of_words(
    tmp_path: Path,
) -> None:
    transformers = pytest.importorskip("transformers")
    known = next(entry.read() for entry in RULEBOOK.family_entries if entry.name == "open_clip_texts")
    made = next(header(one) for one in known.examples if one.config)
    torch.manual_seed(3)
    state = {name: 0.2 * torch.randn(info.shape) for name, info in made.tensors.items()}
    save_file(state, tmp_path / "model.safetensors")
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": made.config}))
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.XLMRobertaConfig(vocab_size=120, max_position_embeddings=34, type_vocab_size=1, layer_norm_eps=1e-5, **sizes)  # fmt: skip
    text = transformers.XLMRobertaModel(config, add_pooling_layer=False).eval()
    prefix = "text.transformer."
    text.load_state_dict(
        {name.removeprefix(prefix): value for name, value in state.items() if prefix in name}
    )
    ids = torch.randint(3, 120, (2, 9))
    ids[0, 5:] = 1  # padding
    real = (ids != 1).long()
    model = mapper.build(tmp_path)
    with torch.no_grad():
        states = text(ids, attention_mask=real).last_hidden_state
        mean = (states * real[..., None]).sum(dim=1) / real.sum(dim=1, keepdim=True)
        hidden = nn.functional.gelu(mean @ state["text.proj.0.weight"].T)
        expected = nn.functional.normalize(hidden @ state["text.proj.2.weight"].T, dim=-1)
        found = model(ids, torch.randn(2, 3, 32, 32)).text_embeds
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_an_encoder_of_texts_that_nobody_names_is_asked_how_it_counts_positions(tmp_path: Path) -> None:
    known = next(entry.read() for entry in RULEBOOK.family_entries if entry.name == "open_clip_texts")
    made = next(header(one) for one in known.examples if one.config)
    save_file({name: torch.zeros(info.shape) for name, info in made.tensors.items()}, tmp_path / "model.safetensors")  # fmt: skip
    config = made.config or {}
    settings = {**config, "text_cfg": {**config["text_cfg"], "hf_model_name": "somebody/encoder"}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": settings}))
    asked = {question.fact for question in describe(tmp_path).questions}
    assert asked >= {"position.counting", "padding_index", "norm.eps"}
    assert not any("is missing" in finding for finding in describe(tmp_path).findings)
