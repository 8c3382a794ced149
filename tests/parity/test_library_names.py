"""Checkpoints under the names, arrangements and settings of other libraries, against the reference's own outputs.

Each case takes a tiny model of the reference library, gives its tensors the names that another library has for them,
in that library's arrangement, and writes that library's settings beside them. No reading of these is exact: no
config names a type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import yaml
from torch import Tensor

import mapper
from tests.parity.harness import TOLERANCE, output, reference

IDS = torch.tensor([[5, 17, 3, 62, 40, 8], [9, 4, 33, 71, 20, 98]])
State = dict[str, Tensor]
DECODER = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 44,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}


def renamed(state: Mapping[str, Tensor], *rows: tuple[str, str]) -> State:
    """The tensors under other names: each of the patterns in turn."""
    found = {}
    for name, tensor in state.items():
        for pattern, replacement in rows:
            name = re.sub(pattern, replacement, name)
        found[name] = tensor.clone()
    return found


def joined(state: State, parts: list[str], whole: str) -> State:
    """With tensors of several names in one, in their order: `q_proj`, `k_proj` and `v_proj` as `qkv`."""
    found = dict(state)
    for name in state:
        if re.search(parts[0], name):
            names = [re.sub(parts[0], part, name) for part in parts]
            found[re.sub(parts[0], whole, name)] = torch.cat([found.pop(one) for one in names])
    return found


def as_neighbours(weight: Tensor, heads: int) -> Tensor:
    """Rows of halves that rotate together as neighbours, as complex numbers have them."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def save(folder: Path, name: str, saved: Any, settings: Mapping[str, str] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    torch.save(saved, folder / name)
    for file, text in (settings or {}).items():
        (folder / file).write_text(text)
    return folder


def llama(**more: Any) -> torch.nn.Module:
    config = transformers.LlamaConfig(**{**DECODER, "num_key_value_heads": 2, **more})
    return reference("LlamaForCausalLM", config)


def meta_llama(
    folder: Path, model: torch.nn.Module | None = None, **more: Any
) -> tuple[Path, torch.nn.Module]:
    usual = {"rope_type": "default", "rope_theta": 500000.0}
    model = model or llama(rms_norm_eps=1e-5, rope_parameters=usual)
    state = renamed(
        model.state_dict(),
        (r"^model\.", ""), (r"embed_tokens", "tok_embeddings"), (r"lm_head", "output"),
        (r"self_attn\.([qkvo])_proj", r"attention.w\1"), (r"input_layernorm", "attention_norm"),
        (r"post_attention_layernorm", "ffn_norm"),
        (r"mlp\.gate_proj", "feed_forward.w1"), (r"mlp\.down_proj", "feed_forward.w2"), (r"mlp\.up_proj", "feed_forward.w3"),
    )  # fmt: skip
    for name in state:
        if name.endswith(("wq.weight", "wk.weight")):
            state[name] = as_neighbours(state[name], 4 if "wq" in name else 2)
    settings = {"dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "norm_eps": 1e-5, "rope_theta": 500000.0,
                "vocab_size": 99, "multiple_of": 4, **more}  # fmt: skip
    return save(folder, "consolidated.00.pth", state, {"params.json": json.dumps(settings)}), model


LITGPT: dict[str, Any] = {
    "name": "tiny", "n_layer": 2, "n_embd": 32, "n_head": 4, "block_size": 64, "padded_vocab_size": 99, "vocab_size": 99,
    "norm_class_name": "RMSNorm", "mlp_class_name": "LLaMAMLP", "gelu_approximate": "none", "norm_eps": 1e-5, "bias": False,
    "parallel_residual": False, "rotary_percentage": 1.0, "rope_base": 10000, "scale_embeddings": False, "n_expert": 0,
    "n_query_groups": 2, "intermediate_size": 44, "norm_qk": False, "sliding_window_size": None,
}  # fmt: skip


def litgpt(folder: Path, model: torch.nn.Module, **settings: Any) -> tuple[Path, torch.nn.Module]:
    state = renamed(
        model.state_dict(),
        (r"^model\.", "transformer."), (r"layers", "h"), (r"embed_tokens", "wte"), (r"transformer\.norm", "transformer.ln_f"),
        (r"self_attn\.o_proj", "attn.proj"), (r"input_layernorm", "norm_1"), (r"post_attention_layernorm", "norm_2"),
        (r"mlp\.gate_proj", "mlp.fc_1"), (r"mlp\.up_proj", "mlp.fc_2"), (r"mlp\.down_proj", "mlp.proj"),
    )  # fmt: skip
    state.setdefault("lm_head.weight", state["transformer.wte.weight"])
    state = joined(state, [f"self_attn.{part}_proj" for part in "qkv"], "attn.qkv")
    return save(
        folder, "lit_model.pth", state, {"model_config.yaml": yaml.dump({**LITGPT, **settings})}
    ), model


def litgpt_llama(folder: Path) -> tuple[Path, torch.nn.Module]:
    return litgpt(folder, llama(rms_norm_eps=1e-5))


def litgpt_gemma(folder: Path) -> tuple[Path, torch.nn.Module]:
    config = transformers.GemmaConfig(
        **{**DECODER, "tie_word_embeddings": True}, head_dim=8, num_key_value_heads=2
    )
    model = reference("GemmaForCausalLM", config)
    return litgpt(
        folder,
        model,
        mlp_class_name="GemmaMLP",
        gelu_approximate="tanh",
        scale_embeddings=True,
        norm_eps=1e-6,
    )


def litgpt_olmo(folder: Path) -> tuple[Path, torch.nn.Module]:
    """Its norms store nothing."""
    model = reference("OlmoForCausalLM", transformers.OlmoConfig(**DECODER, num_key_value_heads=2))
    return litgpt(folder, model, norm_class_name="LayerNorm", norm_eps=1e-5)


def litgpt_pythia(folder: Path) -> tuple[Path, torch.nn.Module]:
    config = transformers.GPTNeoXConfig(
        **DECODER,
        rotary_pct=0.25,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
    )
    model = reference("GPTNeoXForCausalLM", config)
    state = renamed(
        model.state_dict(),
        (r"^gpt_neox\.", "transformer."), (r"layers", "h"), (r"embed_in", "wte"), (r"final_layer_norm", "ln_f"), (r"embed_out", "lm_head"),
        (r"attention\.query_key_value", "attn.qkv"), (r"attention\.dense", "attn.proj"),
        (r"input_layernorm", "norm_1"), (r"post_attention_layernorm", "norm_2"),
        (r"mlp\.dense_h_to_4h", "mlp.fc"), (r"mlp\.dense_4h_to_h", "mlp.proj"),
    )  # fmt: skip
    for name in state:
        if "attn.qkv" in name:  # of each head together, to all queries, all keys, all values
            state[name] = state[name].unflatten(0, (4, 3, -1)).transpose(0, 1).flatten(0, 2)
    settings = {**LITGPT, "norm_class_name": "LayerNorm", "mlp_class_name": "GptNeoxMLP", "parallel_residual": True,
                "rotary_percentage": 0.25, "n_query_groups": 4, "bias": True}  # fmt: skip
    return save(folder, "lit_model.pth", state, {"model_config.yaml": yaml.dump(settings)}), model


def nanogpt(folder: Path) -> tuple[Path, torch.nn.Module]:
    sizes = {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    model = reference("GPT2LMHeadModel", transformers.GPT2Config(**sizes, activation_function="gelu"))
    state = {f"_orig_mod.{name}": tensor for name, tensor in model.state_dict().items()}
    for name in state:
        if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            state[name] = state[name].t().contiguous()
    arguments = {
        "n_layer": 2,
        "n_head": 4,
        "n_embd": 32,
        "block_size": 64,
        "bias": True,
        "vocab_size": 99,
        "dropout": 0.0,
    }
    return save(folder, "ckpt.pt", {"model": state, "model_args": arguments, "iter_num": 3}), model


DECODERS = [meta_llama, litgpt_llama, litgpt_gemma, litgpt_olmo, litgpt_pythia, nanogpt]


@pytest.mark.parametrize("make", DECODERS, ids=lambda make: make.__name__)
def test_a_decoder_with_its_librarys_settings(
    make: Callable[[Path], tuple[Path, torch.nn.Module]], tmp_path: Path
) -> None:
    folder, model = make(tmp_path / "model")
    assert mapper.inspect(folder).architecture.reading == "unverified"
    close(output(mapper.build(folder)(IDS), "logits"), model(IDS).logits)


def test_litgpt_without_its_settings_asks_what_its_classes_would_say(tmp_path: Path) -> None:
    folder, _ = litgpt_llama(tmp_path / "model")
    (folder / "model_config.yaml").unlink()
    asked = {question.fact for question in mapper.inspect(folder).architecture.questions}
    assert "norm.kind" not in asked  # its LayerNorms have biases, which are not here
    assert {
        "rotary.fraction",
        "norm.offset",
        "norm.eps",
        "layer.parallel",
        "embedding.scale",
        "attention.heads",
    } <= asked


def test_experts_under_metas_names_with_their_settings(tmp_path: Path) -> None:
    config = transformers.MixtralConfig(
        **DECODER, num_key_value_heads=2, head_dim=16, num_local_experts=3, num_experts_per_tok=2,
        sliding_window=None, rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )  # fmt: skip
    model = reference("MixtralForCausalLM", config)
    more = {
        "head_dim": 16,
        "hidden_dim": 44,
        "rope_theta": 1e6,
        "moe": {"num_experts": 3, "num_experts_per_tok": 2},
    }
    folder, _ = meta_llama(tmp_path / "model", model, **more)
    file = folder / "consolidated.00.pth"
    state = renamed(torch.load(file), (r"mlp\.gate\.", "feed_forward.gate."))
    for name in [name for name in state if "experts." in name]:
        layer = name.partition(".mlp")[0]
        parts = (
            {"w2": state.pop(name)}
            if "down" in name
            else dict(zip(("w1", "w3"), state.pop(name).chunk(2, dim=1), strict=True))
        )
        for part, weights in parts.items():
            for expert, weight in enumerate(weights):
                state[f"{layer}.feed_forward.experts.{expert}.{part}.weight"] = weight.clone()
    torch.save(state, file)
    close(output(mapper.build(folder)(IDS), "logits"), model(IDS).logits)


def close(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= TOLERANCE * max(1.0, float(expected.detach().abs().max()))


def test_whisper_with_its_dimensions(tmp_path: Path) -> None:
    config = transformers.WhisperConfig(
        vocab_size=99, num_mel_bins=12, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=20, max_target_positions=24,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    model = reference("WhisperForConditionalGeneration", config)
    state = renamed(
        {name: tensor for name, tensor in model.state_dict().items() if name != "proj_out.weight"},
        (r"^model\.", ""), (r"layers", "blocks"), (r"embed_positions\.weight", "positional_embedding"), (r"embed_tokens", "token_embedding"),
        (r"self_attn_layer_norm", "attn_ln"), (r"encoder_attn_layer_norm", "cross_attn_ln"), (r"final_layer_norm", "mlp_ln"),
        (r"self_attn", "attn"), (r"encoder_attn\.", "cross_attn."), (r"\.q_proj", ".query"), (r"\.k_proj", ".key"), (r"\.v_proj", ".value"),
        (r"\.out_proj", ".out"), (r"\.fc1", ".mlp.0"), (r"\.fc2", ".mlp.2"),
        (r"encoder\.layer_norm", "encoder.ln_post"), (r"decoder\.layer_norm", "decoder.ln"),
    )  # fmt: skip
    dims = {"n_mels": 12, "n_audio_ctx": 20, "n_audio_state": 32, "n_audio_head": 4, "n_audio_layer": 2,
            "n_vocab": 99, "n_text_ctx": 24, "n_text_state": 32, "n_text_head": 4, "n_text_layer": 2}  # fmt: skip
    folder = save(tmp_path / "model", "tiny.pt", {"dims": dims, "model_state_dict": state})
    built = mapper.build(folder)
    mel = torch.randn(2, 12, 40, generator=torch.Generator().manual_seed(1))
    found = built(input_features=mel, decoder_input_ids=IDS)
    close(output(found, "logits"), model(input_features=mel, decoder_input_ids=IDS).logits)


@pytest.mark.parametrize(("act", "hint"), [("quick_gelu", True), ("gelu", False)])
def test_clip_as_first_released_and_of_openclip(act: str, hint: bool, tmp_path: Path) -> None:
    sides = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 1,
        "hidden_act": act,
    }
    config = transformers.CLIPConfig(
        text_config={**sides, "vocab_size": 99, "max_position_embeddings": 16, "eos_token_id": 98, "bos_token_id": 1, "pad_token_id": 0},
        vision_config={**sides, "image_size": 32, "patch_size": 8},
        projection_dim=24,
    )  # fmt: skip
    model = reference("CLIPModel", config)
    state = renamed(
        {name: tensor for name, tensor in model.state_dict().items() if "position_ids" not in name},
        (r"^text_model\.embeddings\.position_embedding\.weight", "positional_embedding"),
        (r"^text_model\.embeddings\.token_embedding", "token_embedding"), (r"^text_model\.final_layer_norm", "ln_final"),
        (r"^text_model\.encoder\.layers", "transformer.resblocks"), (r"^vision_model\.encoder\.layers", "visual.transformer.resblocks"),
        (r"^vision_model\.embeddings\.position_embedding\.weight", "visual.positional_embedding"),
        (r"^vision_model\.embeddings\.class_embedding", "visual.class_embedding"), (r"^vision_model\.embeddings\.patch_embedding", "visual.conv1"),
        (r"^vision_model\.pre_layrnorm", "visual.ln_pre"), (r"^vision_model\.post_layernorm", "visual.ln_post"),
        (r"^visual_projection\.weight", "visual.proj"), (r"^text_projection\.weight", "text_projection"),
        (r"layer_norm1", "ln_1"), (r"layer_norm2", "ln_2"), (r"mlp\.fc1", "mlp.c_fc"), (r"mlp\.fc2", "mlp.c_proj"),
        (r"self_attn\.([qkv])_proj\.(weight|bias)", r"attn.\1_\2"), (r"self_attn\.out_proj", "attn.out_proj"),
    )  # fmt: skip
    for kind in ("weight", "bias"):
        state = joined(state, [rf"attn.{part}_{kind}" for part in "qkv"], f"attn.in_proj_{kind}")
    for name in ("visual.proj", "text_projection"):
        state[name] = state[name].t().contiguous()
    side = {"layers": 2, "width": 64}
    said = {"embed_dim": 24, "vision_cfg": {**side, "head_width": 64, "image_size": 32, "patch_size": 8},
            "text_cfg": {**side, "heads": 1, "context_length": 16, "vocab_size": 99}}  # fmt: skip
    settings = {} if hint else {"open_clip_config.json": json.dumps({"model_cfg": said})}
    folder = save(tmp_path / "model", "model.pt", state, settings)
    hints = {"feed_forward.activation": act} if hint else {}
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    ids = torch.cat((IDS[:, :5], torch.full((2, 1), 98)), dim=1)
    found, expected = (
        mapper.build(folder, hints=hints)(input_ids=ids, pixel_values=pixels),
        model(input_ids=ids, pixel_values=pixels),
    )
    for name in ("logits_per_image", "image_embeds", "text_embeds"):
        close(output(found, name), output(expected, name))


def torchtune(state: Mapping[str, Tensor], *norms: tuple[str, str]) -> State:
    """A decoder under the names of torchtune, its norms as told."""
    made = renamed(
        state, *norms, (r"^model\.", ""), (r"embed_tokens", "tok_embeddings"), (r"lm_head", "output"), (r"self_attn\.o_proj", "attn.output_proj"),
        (r"self_attn", "attn"), (r"input_layernorm\.weight", "sa_norm.scale"), (r"post_attention_layernorm\.weight", "mlp_norm.scale"),
        (r"^norm\.weight", "norm.scale"), (r"mlp\.gate_proj", "mlp.w1"), (r"mlp\.down_proj", "mlp.w2"), (r"mlp\.up_proj", "mlp.w3"),
    )  # fmt: skip
    for name in made:
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            made[name] = as_neighbours(made[name], 4 if "q_proj" in name else 2)
    return made


def test_torchtune_caps_what_a_final_norm_gives(tmp_path: Path) -> None:
    """Neither the bounds nor the scale of scores are stored, and its models and its builder have others."""
    config = transformers.Gemma2Config(
        **{**DECODER, "tie_word_embeddings": True}, num_key_value_heads=2, head_dim=8, sliding_window=3, query_pre_attn_scalar=20, attn_logit_softcapping=5.0,
        final_logit_softcapping=None, layer_types=["sliding_attention", "full_attention"], pad_token_id=0,
    )  # fmt: skip
    model = reference("Gemma2ForCausalLM", config)
    state = torchtune(
        {name: tensor for name, tensor in model.state_dict().items() if "lm_head" not in name},
        (r"post_attention_layernorm\.weight", "sa_scale.scale"), (r"pre_feedforward_layernorm\.weight", "mlp_norm.scale"),
        (r"post_feedforward_layernorm\.weight", "mlp_scale.scale"), (r"^model\.norm\.weight", "norm.rms_norm.scale"),
    )  # fmt: skip
    folder = save(tmp_path / "model", "model.pt", state)
    answers = {"attention.heads": 4, "attention.scale": 20**-0.5, "attention.softcap": 5.0, "norm.softcap": 2.0, "rotary.base": 10000.0}  # fmt: skip
    asked = {question.fact for question in mapper.inspect(folder).architecture.questions}
    assert asked >= set(answers) - {"attention.scale"}  # which the bound of scores alone reads
    states = model.model(IDS).last_hidden_state
    expected = 2.0 * torch.tanh(states / 2.0) @ model.lm_head.weight.T
    close(output(mapper.build(folder, hints={**answers, "attention.window": 3})(IDS), "logits"), expected)


def test_torchtune_has_no_settings_and_asks(tmp_path: Path) -> None:
    model = llama(rms_norm_eps=1e-5)
    folder = save(tmp_path / "model", "model.pt", torchtune(model.state_dict()))
    answers = {"attention.heads": 4, "norm.eps": 1e-5, "rotary.base": 10000.0}
    asked = {question.fact for question in mapper.inspect(folder).architecture.questions}
    assert asked >= set(answers)
    assert "feed_forward.activation" not in asked  # its head is not its words, so it is no Gemma
    for left_out in answers:
        with pytest.raises(mapper.MapperError, match=left_out.replace(".", r"\.")):
            mapper.build(folder, hints={name: value for name, value in answers.items() if name != left_out})
    close(output(mapper.build(folder, hints=answers)(IDS), "logits"), model(IDS).logits)


def test_torchtune_has_one_decoder_whose_words_are_its_head_and_whose_angles_are_stretched(
    tmp_path: Path,
) -> None:
    """Without biases of queries it is a Gemma, whose norms scale by 1 + weight, or Llama 3.2."""
    rotary = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}  # fmt: skip
    model = llama(rms_norm_eps=1e-5, tie_word_embeddings=True, rope_parameters=rotary)
    state = {name: tensor for name, tensor in model.state_dict().items() if "lm_head" not in name}
    folder = save(tmp_path / "model", "model.pt", torchtune(state))
    answers = {
        "attention.heads": 4, "norm.eps": 1e-5, "norm.offset": False, "embedding.scale": None, "rotary.base": 500000.0,
        "feed_forward.activation": "silu",
    }  # fmt: skip
    built = mapper.build(folder, hints=answers)
    long = torch.arange(2048)[None] % 90
    close(output(built(long), "logits"), model(long).logits)


def first_esm(positions: str, has_factor: bool, **more: Any) -> tuple[Any, State]:
    """The reference, and its tensors under the names of the first release."""
    config = transformers.EsmConfig(
        vocab_size=33, hidden_size=32, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, pad_token_id=1,
        mask_token_id=32, position_embedding_type=positions, token_dropout=has_factor, layer_norm_eps=1e-5, **more,
    )  # fmt: skip
    model = reference("EsmForMaskedLM", config)
    state = renamed(
        {name: tensor for name, tensor in model.state_dict().items() if "lm_head.decoder" not in name and "position_ids" not in name},
        (r"^esm\.", ""), (r"embeddings\.word_embeddings", "embed_tokens"), (r"encoder\.layer\.", "layers."),
        (r"attention\.self\.(query|key|value)", lambda found: f"self_attn.{found[1][0]}_proj"), (r"attention\.output\.dense", "self_attn.out_proj"),
        (r"attention\.LayerNorm", "self_attn_layer_norm"), (r"(layers\.\d+)\.LayerNorm", r"\1.final_layer_norm"),
        (r"intermediate\.dense", "fc1"), (r"output\.dense", "fc2"), (r"encoder\.emb_layer_norm_after", "emb_layer_norm_after"),
        (r"attention\.self\.rotary_embeddings", "self_attn.rot_emb"), (r"^rotary_embeddings", "layers.0.self_attn.rot_emb"),
        (r"embeddings\.position_embeddings", "embed_positions"), (r"embeddings\.layer_norm", "emb_layer_norm_before"),
    )  # fmt: skip
    state["lm_head.weight"] = state["embed_tokens.weight"].clone()
    return model, state


@pytest.mark.parametrize("has_factor", [True, False])
def test_esm2_has_its_heads_from_the_angles_that_are_stored(has_factor: bool, tmp_path: Path) -> None:
    """A header alone does not show them, nor the factor on embeddings of a model of another size than those published."""
    model, state = first_esm("rotary", has_factor, emb_layer_norm_before=False)
    for layer in range(2):
        state[f"layers.{layer}.self_attn.rot_emb.inv_freq"] = 10000.0 ** (-torch.arange(0, 8, 2) / 8)
    folder = save(tmp_path / "model", "esm2.pt", state)
    ids = torch.tensor([[0, 5, 32, 7, 9, 2]])
    asked = {question.fact for question in mapper.inspect(folder).architecture.questions}
    assert asked == {"attention.heads", "embedding.token_dropout"}
    found = mapper.build(folder, hints={"embedding.token_dropout": has_factor})(ids)
    close(output(found, "logits"), model(ids).logits)


def test_esm_1b_reads_positions_from_a_table_and_norms_its_embeddings(tmp_path: Path) -> None:
    model, state = first_esm("absolute", True, emb_layer_norm_before=True, max_position_embeddings=20)
    folder, ids = (
        save(tmp_path / "model", "esm1b.pt", state),
        torch.tensor([[0, 5, 32, 7, 1, 1], [0, 9, 6, 8, 4, 2]]),
    )
    hints = {"attention.heads": 4, "embedding.token_dropout": True}
    found = mapper.build(folder, hints=hints)(ids, attention_mask=ids != 1)
    close(output(found, "logits"), model(ids, attention_mask=ids != 1).logits)


def test_longer_texts_of_llama_are_asked_how_much_longer(tmp_path: Path) -> None:
    """The settings say that the angles are stretched; by how much differs between releases and stands nowhere."""
    stretched = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                 "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}  # fmt: skip
    model = llama(rms_norm_eps=1e-5, rope_parameters=stretched, max_position_embeddings=65536)
    folder, _ = meta_llama(tmp_path / "model", model, use_scaled_rope=True)
    with pytest.raises(mapper.MapperError, match=r"rotary\.factor"):
        mapper.build(folder)
    close(output(mapper.build(folder, hints={"rotary.factor": 8.0})(IDS), "logits"), model(IDS).logits)


def test_without_settings_nothing_is_taken_from_those_of_others(tmp_path: Path) -> None:
    """The base of the angles differs between releases of equal names, and the heads are nowhere."""
    folder, _ = meta_llama(tmp_path / "model")
    (folder / "params.json").unlink()
    said = str(mapper.inspect(folder))
    assert all(f"\n  {name} " in said for name in ("attention.heads", "rotary.base", "norm.eps"))
