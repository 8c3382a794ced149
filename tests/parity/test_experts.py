"""Mixtures of experts against the reference library: both layouts of the experts, each with its heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from tests.parity.harness import check, reference, text_inputs, transformers

INPUTS = text_inputs(99, padding=1, left_positions=True)
SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "pad_token_id": 1,
}


def config(**more: Any) -> Any:
    return transformers.MixtralConfig(**{**SIZES, **more})


@pytest.mark.parametrize("name", ["MixtralModel", "MixtralForCausalLM"])
def test_mixtral(name: str, tmp_path: Path) -> None:
    check(reference(name, config()), tmp_path, INPUTS)


@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification", "QuestionAnswering"])
def test_mixtral_with_another_head(head: str, tmp_path: Path) -> None:
    check(reference(f"MixtralFor{head}", config(num_labels=3)), tmp_path, INPUTS)


def test_mixtral_with_a_window_and_a_tied_head(tmp_path: Path) -> None:
    made = config(sliding_window=4, tie_word_embeddings=True, num_experts_per_tok=3, hidden_act="gelu")
    check(reference("MixtralForCausalLM", made), tmp_path, INPUTS)


def test_mixtral_with_the_rotary_fields_of_older_configs(tmp_path: Path) -> None:
    def older(fields: dict[str, Any]) -> None:
        fields["rope_theta"] = fields.pop("rope_parameters")["rope_theta"]

    made = config(rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    check(reference("MixtralForCausalLM", made), tmp_path, INPUTS, edit=older)


@pytest.mark.parametrize("name", ["MixtralModel", "MixtralForCausalLM"])
def test_mixtral_as_the_module_names_its_experts(name: str, tmp_path: Path) -> None:
    model = reference(name, config())

    def save(folder: Path) -> None:
        """The state dict as it is: save_pretrained gives each expert tensors of its own again."""
        save_file(dict(model.state_dict()), folder / "model.safetensors")
        model.config.save_pretrained(folder)

    model.save_pretrained = save
    check(model, tmp_path, INPUTS)
