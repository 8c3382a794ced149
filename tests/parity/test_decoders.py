"""Decoders with their heads against the reference library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import mapper
from tests.parity.harness import (
    check,
    check_compile,
    check_export,
    check_gradient,
    imported,
    quiet,
    reference,
    text_inputs,
    transformers,
)

Edit = Callable[[dict[str, Any]], None]
WORDS = 99
SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
INPUTS = text_inputs(WORDS, padding=0, left_positions=True)
HEADS = (
    "Model",
    "ForCausalLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
)


def classes(family: str, *heads: str) -> Any:
    return pytest.mark.parametrize("name", [family + head for head in heads or HEADS])


def old_fields(config: dict[str, Any]) -> None:
    """The spelling of configs before transformers 5: rope_theta and rope_scaling instead of rope_parameters."""
    rotary = config.pop("rope_parameters")
    config["rope_theta"] = rotary.pop("rope_theta")
    if "partial_rotary_factor" in rotary:
        config["partial_rotary_factor"] = rotary.pop("partial_rotary_factor")
    rotary["type"] = rotary.pop("rope_type")
    config["rope_scaling"] = rotary if rotary["type"] != "default" else None
    config["torch_dtype"] = config.pop("dtype", "float32")
    config.pop("layer_types", None)


@classes("Llama")
def test_llama(name: str, tmp_path: Path) -> None:
    config = transformers.LlamaConfig(**SIZES, num_labels=3)
    check(reference(name, config), tmp_path, INPUTS)


def test_llama_with_biases_large_heads_and_old_config_fields(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(
        **SIZES, head_dim=16, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, rms_norm_eps=1e-5
    )
    check(reference("LlamaForCausalLM", config), tmp_path, INPUTS, edit=old_fields)


@pytest.mark.parametrize("shift", [0, 1], ids=["equal", "unequal"])
def test_a_tied_head_that_is_stored_is_one_parameter_where_the_bytes_agree(
    shift: int, tmp_path: Path
) -> None:
    model = reference("LlamaForCausalLM", transformers.LlamaConfig(**SIZES, tie_word_embeddings=True))
    file = tmp_path / "model.safetensors"
    with quiet():
        model.save_pretrained(tmp_path)
    tensors = load_file(file)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + shift
    save_file(tensors, file, metadata={"format": "pt"})
    source = tmp_path / "generated_model.py"
    source.write_text(mapper.generate(tmp_path))
    for built in (mapper.build(tmp_path), imported(source).load(tmp_path)):
        assert set(built.state_dict()) == set(tensors)
        assert (built.lm_head.weight is built.model.embed_tokens.weight) == (shift == 0)
        assert torch.equal(built.lm_head.weight, tensors["lm_head.weight"])


def test_a_head_that_is_neither_stored_nor_tied_is_said_to_be_missing(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(**SIZES, architectures=["LlamaForCausalLM"])
    with quiet():
        reference("LlamaModel", config).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace("LlamaModel", "LlamaForCausalLM"))
    report = mapper.inspect(tmp_path).architecture
    assert report.reading == "exact"  # of the base model, which is all that is there
    assert "causal_lm" in report.notes[0]


SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 10, "beta_fast": 4},
    "yarn with scales": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 10,
        "mscale": 0.7,
        "mscale_all_dim": 1.0,
        "truncate": False,
    },
    "longrope": {
        "rope_type": "longrope",
        "factor": 4.0,
        "original_max_position_embeddings": 10,
        "short_factor": [1.0, 1.5],
        "long_factor": [2.0, 4.0],
    },
}


@pytest.mark.parametrize("edit", [None, old_fields], ids=["new fields", "old fields"])
@pytest.mark.parametrize("kind", SCALINGS)
def test_rotary_scalings(kind: str, edit: Edit | None, tmp_path: Path) -> None:
    sizes = {**SIZES, "head_dim": 4 if kind == "longrope" else 16}
    config = transformers.LlamaConfig(**sizes, rope_parameters={"rope_theta": 10000.0, **SCALINGS[kind]})
    long = text_inputs(WORDS, length=60, left_positions=True)  # longer than the 40 positions it was made for
    inputs = {**INPUTS, **{f"long, {name}": values for name, values in long.items()}}
    check(reference("LlamaModel", config), tmp_path, inputs, edit=edit)


@classes("Mistral")
def test_mistral(name: str, tmp_path: Path) -> None:
    config = transformers.MistralConfig(**SIZES, sliding_window=5, num_labels=3)
    check(reference(name, config), tmp_path, INPUTS)


def test_mistral_without_a_window_and_large_heads(tmp_path: Path) -> None:
    config = transformers.MistralConfig(**SIZES, sliding_window=None, head_dim=16)
    check(reference("MistralForCausalLM", config), tmp_path, INPUTS, edit=old_fields)


@classes("Qwen2")
def test_qwen2(name: str, tmp_path: Path) -> None:
    check(reference(name, transformers.Qwen2Config(**SIZES, num_labels=3)), tmp_path, INPUTS)


@pytest.mark.parametrize("edit", [None, old_fields], ids=["new fields", "old fields"])
@pytest.mark.parametrize("start", [0, 1, 2])
def test_qwen2_with_windows_in_some_layers(start: int, edit: Edit | None, tmp_path: Path) -> None:
    config = transformers.Qwen2Config(
        **SIZES, use_sliding_window=True, sliding_window=5, max_window_layers=start, tie_word_embeddings=True
    )
    check(reference("Qwen2ForCausalLM", config), tmp_path, INPUTS, edit=edit)


@classes("Qwen3")
def test_qwen3(name: str, tmp_path: Path) -> None:
    config = transformers.Qwen3Config(**SIZES, head_dim=16, num_labels=3)
    check(reference(name, config), tmp_path, INPUTS)


def test_qwen3_with_windows_by_layer_and_biases(tmp_path: Path) -> None:
    config = transformers.Qwen3Config(
        **SIZES,
        head_dim=16,
        attention_bias=True,
        use_sliding_window=True,
        sliding_window=5,
        layer_types=["sliding_attention", "full_attention"],
    )
    check(reference("Qwen3ForCausalLM", config), tmp_path, INPUTS)


@classes("Phi3", "Model", "ForCausalLM", "ForSequenceClassification", "ForTokenClassification")
def test_phi3(name: str, tmp_path: Path) -> None:
    config = transformers.Phi3Config(
        **SIZES, original_max_position_embeddings=40, sliding_window=5, num_labels=3
    )
    check(reference(name, config), tmp_path, INPUTS)


@pytest.mark.parametrize("edit", [None, old_fields], ids=["new fields", "old fields"])
def test_phi3_with_long_sequences_and_part_of_each_head_turned(edit: Edit | None, tmp_path: Path) -> None:
    rotary = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0, 1.5],
        "long_factor": [2.0, 4.0],
        "partial_rotary_factor": 0.5,
    }
    config = transformers.Phi3Config(**SIZES, original_max_position_embeddings=10, rope_parameters=rotary)
    check(reference("Phi3ForCausalLM", config), tmp_path, INPUTS, edit=edit)


@pytest.mark.parametrize(
    "name",
    [
        "GPT2Model",
        "GPT2LMHeadModel",
        "GPT2ForSequenceClassification",
        "GPT2ForTokenClassification",
        "GPT2ForQuestionAnswering",
    ],
)
def test_gpt2(name: str, tmp_path: Path) -> None:
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=40, pad_token_id=0, num_labels=3
    )
    check(reference(name, config), tmp_path, INPUTS)


def test_gpt2_with_unscaled_scores_and_a_narrow_feed_forward(tmp_path: Path) -> None:
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=40, n_inner=20, scale_attn_weights=False,
        reorder_and_upcast_attn=True, activation_function="relu", tie_word_embeddings=False,
    )  # fmt: skip
    check(reference("GPT2LMHeadModel", config), tmp_path, INPUTS)


NEOX = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}


def neox_old_fields(config: dict[str, Any]) -> None:
    rotary = config.pop("rope_parameters")
    config |= {"rotary_pct": rotary["partial_rotary_factor"], "rotary_emb_base": rotary["rope_theta"]}


@classes("GPTNeoX")
def test_gpt_neox(name: str, tmp_path: Path) -> None:
    check(reference(name, transformers.GPTNeoXConfig(**NEOX, num_labels=3)), tmp_path, INPUTS)


@pytest.mark.parametrize("edit", [None, neox_old_fields], ids=["new fields", "old fields"])
def test_gpt_neox_one_residual_after_the_other(edit: Edit | None, tmp_path: Path) -> None:
    rotary = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
    config = transformers.GPTNeoXConfig(
        **NEOX,
        use_parallel_residual=False,
        attention_bias=False,
        rope_parameters=rotary,
        tie_word_embeddings=True,
    )
    check(reference("GPTNeoXForCausalLM", config), tmp_path, INPUTS, edit=edit)


@classes("Bloom")
def test_bloom(name: str, tmp_path: Path) -> None:
    config = transformers.BloomConfig(
        vocab_size=WORDS, hidden_size=32, n_layer=2, n_head=4, pad_token_id=0, num_labels=3
    )
    check(reference(name, config), tmp_path, text_inputs(WORDS, padding=0, positions=False))


def test_bloom_with_a_number_of_heads_between_powers_of_two(tmp_path: Path) -> None:
    config = transformers.BloomConfig(vocab_size=WORDS, hidden_size=24, n_layer=2, n_head=6)
    check(reference("BloomForCausalLM", config), tmp_path, text_inputs(WORDS, positions=False))


@classes("Gemma2", "Model", "ForCausalLM", "ForSequenceClassification", "ForTokenClassification")
def test_gemma2(name: str, tmp_path: Path) -> None:
    config = transformers.Gemma2Config(
        **SIZES, head_dim=16, sliding_window=5, query_pre_attn_scalar=24, num_labels=3
    )
    check(reference(name, config), tmp_path, INPUTS)


def test_gemma2_without_bounds_and_old_config_fields(tmp_path: Path) -> None:
    config = transformers.Gemma2Config(
        **SIZES, head_dim=16, sliding_window=5, attn_logit_softcapping=None, final_logit_softcapping=None
    )
    check(reference("Gemma2ForCausalLM", config), tmp_path, INPUTS, edit=old_fields)


@pytest.mark.parametrize(
    "name", ["Gemma3TextModel", "Gemma3ForCausalLM", "Gemma3TextForSequenceClassification"]
)
def test_gemma3_text(name: str, tmp_path: Path) -> None:
    config = transformers.Gemma3TextConfig(
        **{**SIZES, "num_hidden_layers": 3},
        head_dim=16,
        sliding_window=5,
        sliding_window_pattern=3,
        num_labels=3,
    )
    check(reference(name, config), tmp_path, INPUTS)


def gemma3_old_fields(config: dict[str, Any]) -> None:
    rotary = config.pop("rope_parameters")
    config["rope_theta"] = rotary["full_attention"].pop("rope_theta")
    config["rope_local_base_freq"] = rotary["sliding_attention"]["rope_theta"]
    config["rope_scaling"] = rotary["full_attention"]
    config["sliding_window_pattern"] = 2
    config.pop("layer_types")


@pytest.mark.parametrize("edit", [None, gemma3_old_fields], ids=["new fields", "old fields"])
def test_gemma3_text_with_scaled_angles(edit: Edit | None, tmp_path: Path) -> None:
    rotary = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    }
    config = transformers.Gemma3TextConfig(
        **SIZES, head_dim=16, sliding_window=5, rope_parameters=rotary, final_logit_softcapping=3.0,
        layer_types=["sliding_attention", "full_attention"],
    )  # fmt: skip
    check(reference("Gemma3ForCausalLM", config), tmp_path, INPUTS, edit=edit)


def test_gemma3_text_with_positions_of_both_sides(tmp_path: Path) -> None:
    config = transformers.Gemma3TextConfig(
        **SIZES, head_dim=16, sliding_window=6, use_bidirectional_attention=True,
        layer_types=["sliding_attention", "full_attention"],
    )  # fmt: skip
    check(reference("Gemma3TextModel", config), tmp_path, INPUTS)


REPRESENTATIVES = {
    "LlamaForCausalLM": lambda: transformers.LlamaConfig(**SIZES),
    "BloomForCausalLM": lambda: transformers.BloomConfig(
        vocab_size=WORDS, hidden_size=32, n_layer=2, n_head=4
    ),
    "Gemma3ForCausalLM": lambda: transformers.Gemma3TextConfig(
        **SIZES, head_dim=16, sliding_window=5, layer_types=["sliding_attention", "full_attention"]
    ),
    "Qwen2ForSequenceClassification": lambda: transformers.Qwen2Config(**SIZES),
}


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_decoders_train_export_and_compile(name: str, tmp_path: Path) -> None:
    made = check(reference(name, REPRESENTATIVES[name]()), tmp_path, {"right": INPUTS["right"]})
    check_gradient(made, INPUTS["right"])
    check_export(made, INPUTS["right"], INPUTS["odd"])
    check_compile(made, INPUTS["right"])
    check_compile(made, INPUTS["no mask"])
