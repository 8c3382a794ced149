"""`rename`: the same model under other names, in transformers and there and back; what a naming cannot say is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    CLIPConfig,
    CLIPModel,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    ViTConfig,
    ViTForImageClassification,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

import mapper
from mapper.cli.app import main
from mapper.errors import MapperError
from tests.gguf_files import gguf_bytes

IDS = torch.arange(13)[None] * 5 % 99


def llama(folder: Path, **said: Any) -> LlamaForCausalLM:
    """A tiny model in `folder`, whose sizes all differ."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    model = LlamaForCausalLM(LlamaConfig(**{**sizes, **heads, **said})).eval()
    model.save_pretrained(folder)
    return model


def answers(notes: list[str]) -> dict[str, str]:
    """What the notes say that is to be given when it is read."""
    return {name: value for note in notes for name, value in re.findall(r"--set (\S+?)=(\S+)", note)}


ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_theta": 500000.0}  # fmt: skip


@pytest.mark.parametrize(
    ("through", "said"),
    [
        (("meta", "litgpt", "torchtune"), {}),
        (("meta", "litgpt"), {"rope_parameters": ROPE}),
        (("litgpt", "meta"), {"tie_word_embeddings": True}),
    ],
    ids=["all", "stretched", "tied"],
)
def test_a_model_comes_back_to_the_bit_and_computes_the_same_on_its_way(
    through: tuple[str, ...], said: dict[str, Any], tmp_path: Path
) -> None:
    want = llama(tmp_path / "first", **said)(IDS).logits
    here, hints = tmp_path / "first", {}
    for library in (*through, "hf"):
        done = mapper.rename(here, library, tmp_path / library, hints=hints)
        here, hints = tmp_path / library, answers(done.notes)
        torch.testing.assert_close(mapper.build(here, hints=hints)(IDS).logits, want, atol=2e-6, rtol=0)
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("first", "hf"))
    assert before.keys() == after.keys() and all(after[name].equal(before[name]) for name in before)
    again, report = LlamaForCausalLM.from_pretrained(here, output_loading_info=True)
    assert not any(report.values()) and again(IDS).logits.equal(want)


def gpt2() -> tuple[Any, dict[str, torch.Tensor]]:
    config = GPT2Config(
        vocab_size=99, n_positions=24, n_embd=32, n_layer=2, n_head=4, activation_function="gelu",
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config), {"input_ids": IDS}


def whisper() -> tuple[Any, dict[str, torch.Tensor]]:
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1, "decoder_start_token_id": 2}
    config = WhisperConfig(
        vocab_size=99, num_mel_bins=12, d_model=32, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4,
        decoder_attention_heads=2, encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=20,
        max_target_positions=24, **ids,
    )  # fmt: skip
    return WhisperForConditionalGeneration(config), {
        "input_features": torch.randn(1, 12, 40), "decoder_input_ids": IDS
    }  # fmt: skip


def clip() -> tuple[Any, dict[str, torch.Tensor]]:
    text = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 1,
            "vocab_size": 99, "max_position_embeddings": 16, "bos_token_id": 97, "eos_token_id": 98}  # fmt: skip
    vision = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 2,
              "image_size": 16, "patch_size": 8}  # fmt: skip
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=24)
    ids = torch.cat((IDS, torch.tensor([[98]])), 1)
    return CLIPModel(config), {"input_ids": ids, "pixel_values": torch.randn(1, 3, 16, 16)}


def vit() -> tuple[Any, dict[str, torch.Tensor]]:
    config = ViTConfig(
        hidden_size=192, num_hidden_layers=1, num_attention_heads=3, intermediate_size=768, image_size=16,
        patch_size=8, layer_norm_eps=1e-6, num_labels=5,
    )  # fmt: skip
    return ViTForImageClassification(config), {"pixel_values": torch.randn(1, 3, 16, 16)}


def decoder(config_class: Any, model_class: Any, **said: Any) -> Any:
    """What makes a tiny decoder with these settings."""
    sizes = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 2,
             "num_attention_heads": 4, "max_position_embeddings": 64}  # fmt: skip
    ids = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    return lambda: (model_class(config_class(**{**sizes, **ids, **said})), {"input_ids": IDS})


neox = decoder(GPTNeoXConfig, GPTNeoXForCausalLM, rotary_pct=0.5)
gemma = decoder(GemmaConfig, GemmaForCausalLM, num_key_value_heads=1, head_dim=16)
qwen2 = decoder(Qwen2Config, Qwen2ForCausalLM, num_key_value_heads=2)


@pytest.mark.parametrize(
    ("made", "to", "file"),
    [
        (gpt2, "nanogpt", "ckpt.pt"),
        (whisper, "openai", "model.pt"),
        (clip, "openai", "clip.pt"),
        (clip, "open_clip", ""),
        (vit, "timm", ""),
        (neox, "litgpt", "lit_model.pth"),
        (gemma, "litgpt", "lit_model.pth"),
        (gemma, "torchtune", ""),
        (qwen2, "torchtune", ""),
    ],
)
def test_other_architectures_come_back_the_same(made: Any, to: str, file: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, inputs = made()
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor) * 0.02)  # no norm and no bias is as it was made
        want = model.eval()(**inputs)[0]
    model.save_pretrained(tmp_path / "first")
    (tmp_path / "there").mkdir()
    done = mapper.rename(tmp_path / "first", to, tmp_path / "there" / file)
    back = f"hf/{model.config.model_type}"
    mapper.rename(tmp_path / "there" / file, back, tmp_path / "back", hints=answers(done.notes))
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("first", "back"))
    assert before.keys() == after.keys() and all(after[name].equal(before[name]) for name in before)
    config = model.config.__class__.from_pretrained(tmp_path / "back")
    config.pad_token_id = getattr(model.config, "pad_token_id", None)  # no file of the library says it
    again, report = type(model).from_pretrained(tmp_path / "back", config=config, output_loading_info=True)
    assert not any(report.values())
    torch.testing.assert_close(again(**inputs)[0], want, atol=0, rtol=0)


def test_biases_that_a_library_always_has_are_zeros_and_said(tmp_path: Path) -> None:
    model, _ = gpt2()
    model.save_pretrained(tmp_path / "first")
    mapper.rename(tmp_path / "first", "nanogpt", tmp_path / "a.pt")
    saved = torch.load(tmp_path / "a.pt", weights_only=True)
    assert saved["model"]["lm_head.weight"].equal(saved["model"]["transformer.wte.weight"])
    bare = {name: tensor for name, tensor in saved["model"].items() if not name.endswith("bias")}
    torch.save({"model": bare, "model_args": {**saved["model_args"], "bias": False}}, tmp_path / "b.pt")
    done = mapper.rename(tmp_path / "b.pt", "hf", tmp_path / "b")
    assert "13 vectors of zeros added as biases, which hf/gpt2 always has" in done.notes
    assert not load_file(tmp_path / "b" / "model.safetensors")["transformer.ln_f.bias"].any()


def test_a_torch_file_has_the_tensors_as_torch_would_have_written_them(tmp_path: Path) -> None:
    llama(tmp_path / "first", torch_dtype="bfloat16").to(torch.bfloat16).save_pretrained(tmp_path / "first")
    (tmp_path / "lit").mkdir()
    done = mapper.rename(tmp_path / "first", "litgpt", tmp_path / "lit" / "lit_model.pth")
    assert done.files == ["lit_model.pth", "model_config.yaml"]
    table = torch.load(tmp_path / "lit" / "lit_model.pth", weights_only=True, mmap=True)
    first = load_file(tmp_path / "first" / "model.safetensors")
    parts = [first[f"model.layers.1.self_attn.{name}_proj.weight"] for name in "qkv"]
    assert table["transformer.h.1.attn.qkv.weight"].equal(torch.cat(parts))
    assert table["transformer.wte.weight"].dtype == torch.bfloat16
    with pytest.raises(MapperError, match="already exists"):
        mapper.rename(tmp_path / "first", "litgpt", tmp_path / "lit" / "other.pth")


@pytest.mark.parametrize(
    ("said", "to", "why"),
    [
        ({"hidden_act": "gelu"}, "meta", "feed_forward.activation is gelu here, and meta/llama says silu"),
        ({"head_dim": 16}, "meta", "attention.head_dim is 16 here, and meta/llama has 8 always"),
        (
            {"mlp_bias": True},
            "meta",
            "meta/llama has no place for .*: the bias of tower.layers.{n}.feed_forward",
        ),
        ({"rope_parameters": {**ROPE, "high_freq_factor": 2.0}}, "meta", "rotary.high_factor is 2.0 here"),
        ({}, "lama", "no naming is called 'lama'; there are .*meta/llama"),
    ],
)
def test_what_a_naming_cannot_say_is_named(said: dict[str, Any], to: str, why: str, tmp_path: Path) -> None:
    model = llama(tmp_path / "first", **said)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.fill_(0.5) if name.endswith("bias") else None
    model.save_pretrained(tmp_path / "first")
    with pytest.raises(MapperError, match=why) as caught:
        mapper.rename(tmp_path / "first", to, tmp_path / "out")
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


def test_biases_that_add_nothing_are_left_out_and_said(tmp_path: Path) -> None:
    llama(tmp_path / "first", attention_bias=True)  # of zeros, as they are made
    done = mapper.rename(tmp_path / "first", "meta", tmp_path / "out")
    assert "8 bias vectors of zeros left out, which meta/llama has not" in done.notes


def test_the_command_says_what_was_written_and_refuses_in_one_line(tmp_path: Path, capsys: Any) -> None:
    llama(tmp_path / "first")
    capsys.readouterr()
    out = str(tmp_path / "lit_model.pth")
    assert main(["rename", str(tmp_path / "first"), "--to", "litgpt", "-o", out]) == 0
    assert capsys.readouterr().out.endswith("(lit_model.pth, model_config.yaml)\n")
    assert main(["rename", str(tmp_path / "first"), "--to", "gpt", "-o", out, "--overwrite"]) == 2
    assert capsys.readouterr().err.count("\n") <= 2


def test_tensors_without_a_role_are_refused(tmp_path: Path) -> None:
    llama(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({**tensors, "model.layers.0.odd.weight": torch.ones(3)}, tmp_path / "model.safetensors")
    with pytest.raises(MapperError, match=r"odd"):
        mapper.rename(tmp_path, "meta", tmp_path / "out")


def test_the_settings_are_those_of_the_library(tmp_path: Path) -> None:
    llama(tmp_path / "first", rope_parameters=ROPE)
    mapper.rename(tmp_path / "first", "meta", tmp_path / "out")
    said = json.loads((tmp_path / "out" / "params.json").read_text())
    assert said["use_scaled_rope"] is True and said["rope_scaling_factor"] == 8.0 and said["n_kv_heads"] == 2
    hidden = int(said["ffn_dim_multiplier"] * int(8 * said["dim"] / 3))  # as the library computes it
    assert -(-hidden // said["multiple_of"]) * said["multiple_of"] == 44


@pytest.mark.parametrize("said", [{"rope_parameters": ROPE}, {"tie_word_embeddings": True}])
def test_a_gguf_file_reads_back_as_the_same_model(said: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    want = llama(tmp_path / "first", **said)(IDS).logits
    done = mapper.rename(tmp_path / "first", "gguf", tmp_path / "a.gguf")
    assert done.notes == ["no tokenizer is in the file, which programs that run it need"]
    model, first = mapper.build(tmp_path / "a.gguf"), load_file(tmp_path / "first" / "model.safetensors")
    states = model.state_dict()
    assert all(states[name].equal(tensor) for name, tensor in first.items()) and model(IDS).logits.equal(want)


def test_the_maps_of_a_gguf_file_are_packed_and_its_vectors_are_not(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    llama(tmp_path / "first", intermediate_size=64)
    mapper.rename(tmp_path / "first", "gguf", tmp_path / "a.gguf", quantised="Q8_0")
    found = {one.name: one for one in gguf.GGUFReader(tmp_path / "a.gguf").tensors}
    assert found["blk.0.ffn_down.weight"].tensor_type.name == "Q8_0"
    assert found["blk.0.attn_norm.weight"].tensor_type.name == "F32"
    ours = mapper.build(tmp_path / "a.gguf").state_dict()["model.layers.0.mlp.down_proj.weight"]
    packed = found["blk.0.ffn_down.weight"]
    assert ours.equal(torch.from_numpy(gguf.quants.dequantize(packed.data, packed.tensor_type)))
    first = load_file(tmp_path / "first" / "model.safetensors")["model.layers.0.mlp.down_proj.weight"]
    assert (ours - first).abs().max() <= first.abs().max() / 127  # half a step of a block, twice


def with_words(source: Path, out: Path) -> dict[str, Any]:
    """A GGUF file again, with a tokenizer of 99 words; what its metadata says of it."""
    gguf = pytest.importorskip("gguf")
    read = gguf.GGUFReader(source)
    said = {name: one.contents() for name, one in read.fields.items() if not name.startswith("GGUF.")}
    words = {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [chr(33 + at) for at in range(94)] + ["ab", "cd", "ef", "gh", "<end>"],
        "tokenizer.ggml.token_type": [1] * 98 + [3], "tokenizer.ggml.merges": ["a b", "c d", "e f", "g h"],
        "tokenizer.ggml.eos_token_id": 98,
    }  # fmt: skip
    tensors = {one.name: one.data.reshape(one.shape[::-1]) for one in read.tensors}
    out.write_bytes(gguf_bytes(said | words, tensors))
    return words


def test_the_tokenizer_of_a_gguf_file_comes_along_and_its_programs_load_it(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    llama(tmp_path / "first", intermediate_size=64)
    mapper.rename(tmp_path / "first", "gguf", tmp_path / "a.gguf")
    words = with_words(tmp_path / "a.gguf", tmp_path / "b.gguf")
    done = mapper.rename(tmp_path / "b.gguf", "gguf", tmp_path / "c.gguf", quantised="Q8_0")
    assert done.notes == []
    fields = gguf.GGUFReader(tmp_path / "c.gguf").fields
    assert {name: fields[name].contents() for name in words} == words
    llama_cpp = pytest.importorskip("xllamacpp")
    params = llama_cpp.CommonParams()
    params.model.path, params.n_ctx, params.warmup = str(tmp_path / "c.gguf"), 64, False
    said = llama_cpp.Server(params).handle_completions({"prompt": "abcd", "max_tokens": 2, "temperature": 0})
    assert said["choices"][0]["finish_reason"] in ("length", "stop")


@pytest.mark.parametrize(
    ("out", "said", "why"),
    [
        ("a", {}, "is written as one file, whose name ends in .gguf"),
        ("a.gguf", {"quantised": "Q4_K"}, "is no type that is written; Q8_0 is"),
        ("a.gguf", {"shard_size": "5GB"}, "is written as one file"),
    ],
)
def test_what_no_gguf_file_can_be_is_refused(
    out: str, said: dict[str, Any], why: str, tmp_path: Path
) -> None:
    pytest.importorskip("gguf")
    with pytest.raises(MapperError, match=why):
        mapper.rename(tmp_path / "nothing", "gguf", tmp_path / out, **said)


def test_a_bias_that_a_library_has_beside_others_is_zeros(tmp_path: Path) -> None:
    model = qwen2()[0].eval()
    model.save_pretrained(tmp_path / "first")
    done = mapper.rename(tmp_path / "first", "hf/llama", tmp_path / "out")
    assert "2 vectors of zeros added as biases, which hf/llama always has" in done.notes
    again, report = LlamaForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(report.values())
    torch.testing.assert_close(again.eval()(IDS).logits, model(IDS).logits, atol=0, rtol=0)
