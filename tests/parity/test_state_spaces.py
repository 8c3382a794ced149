"""State spaces against the reference library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import mapper
from tests.parity.harness import check, reference, text_inputs, transformers

INPUTS = text_inputs(99, positions=False, padding=1)


def config(**more: Any) -> Any:
    sizes = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "use_cache": False}
    return transformers.MambaConfig(**{**sizes, **more})


@pytest.mark.parametrize("name", ["MambaModel", "MambaForCausalLM"])
def test_mamba(name: str, tmp_path: Path) -> None:
    check(reference(name, config()), tmp_path, INPUTS)


def test_mamba_with_biases_and_a_head_of_its_own(tmp_path: Path) -> None:
    made = config(
        use_bias=True, use_conv_bias=False, conv_kernel=3, time_step_rank=5, expand=3, residual_in_fp32=False,
        tie_word_embeddings=False, hidden_act="gelu", layer_norm_epsilon=1e-3,
    )  # fmt: skip
    check(reference("MambaForCausalLM", made), tmp_path, INPUTS)


def test_mamba_keeps_its_sums_in_float32(tmp_path: Path) -> None:
    model = reference("MambaForCausalLM", config()).bfloat16()
    model.save_pretrained(tmp_path)
    built = mapper.build(tmp_path)
    with torch.no_grad():
        wanted, got = model(**INPUTS["right"]).logits.float(), built(**INPUTS["right"]).logits.float()
    assert (wanted - got).abs().max() < 0.1 * wanted.abs().max()


def test_mamba_with_the_fields_of_its_first_configs(tmp_path: Path) -> None:
    def older(fields: dict[str, Any]) -> None:
        fields |= {"d_model": 32, "n_layer": 2, "rms_norm": True, "fused_add_norm": True, "ssm_cfg": {}}

    made = check(reference("MambaModel", config()), tmp_path, INPUTS, edit=older)
    assert json.loads((made.folder / "config.json").read_text())["n_layer"] == 2


HEADS = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "num_heads": 4, "head_dim": 16, "n_groups": 2,
    "chunk_size": 8, "use_cache": False,
}  # fmt: skip


@pytest.mark.parametrize("name", ["Mamba2Model", "Mamba2ForCausalLM"])
def test_mamba2(name: str, tmp_path: Path) -> None:
    check(reference(name, transformers.Mamba2Config(**HEADS)), tmp_path, INPUTS)


def test_mamba2_with_biases_and_heads_of_one_group(tmp_path: Path) -> None:
    more = {
        "use_bias": True,
        "use_conv_bias": False,
        "n_groups": 1,
        "residual_in_fp32": False,
        "tie_word_embeddings": True,
    }
    check(reference("Mamba2ForCausalLM", transformers.Mamba2Config(**HEADS | more)), tmp_path, INPUTS)


@pytest.mark.parametrize("name", ["FalconMambaModel", "FalconMambaForCausalLM"])
def test_falcon_mamba(name: str, tmp_path: Path) -> None:
    sizes = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "use_cache": False}
    made = transformers.FalconMambaConfig(**sizes, mixer_rms_eps=1e-3)
    check(reference(name, made), tmp_path, INPUTS)


@pytest.mark.parametrize("name", ["NemotronHModel", "NemotronHForCausalLM"])
def test_nemotron_h(name: str, tmp_path: Path) -> None:
    made = transformers.NemotronHConfig(
        vocab_size=99, hidden_size=32, layers_block_type=["linear_attention", "moe", "full_attention", "mlp"], num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, intermediate_size=48, ssm_state_size=8, mamba_num_heads=4, mamba_head_dim=16, n_groups=2,
        chunk_size=8, n_routed_experts=8, n_group=2, moe_intermediate_size=24, moe_shared_expert_intermediate_size=40, pad_token_id=1,
        time_step_min=0.5,
    )  # fmt: skip
    check(reference(name, made), tmp_path, INPUTS)


@pytest.mark.parametrize(("experts", "positions"), [(4, "rope"), (0, None)])
def test_granitemoehybrid(experts: int, positions: str | None, tmp_path: Path) -> None:
    made = transformers.GraniteMoeHybridConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, layer_types=["linear_attention", "full_attention"], num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=24, shared_intermediate_size=40, num_local_experts=experts, num_experts_per_tok=2,
        mamba_n_heads=4, mamba_d_state=8, mamba_n_groups=2, mamba_chunk_size=8, position_embedding_type=positions, pad_token_id=1,
        residual_multiplier=0.4, embedding_multiplier=3.0, logits_scaling=2.0, attention_multiplier=0.3,
    )  # fmt: skip
    inputs = text_inputs(99, padding=1, left_positions=True) if positions else INPUTS
    check(reference("GraniteMoeHybridForCausalLM", made), tmp_path, inputs)


@pytest.mark.parametrize("name", ["RwkvModel", "RwkvForCausalLM"])
def test_rwkv(name: str, tmp_path: Path) -> None:
    made = transformers.RwkvConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, intermediate_size=48, context_length=32,
        layer_norm_epsilon=1e-3,
    )  # fmt: skip
    check(reference(name, made), tmp_path, INPUTS)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("BambaForCausalLM", {"attn_layer_indices": [1]}),
        (
            "BambaModel",
            {"attn_layer_indices": [0], "attention_bias": True, "mlp_bias": True, "mamba_proj_bias": True},
        ),
        ("BambaModel", {"mamba_conv_bias": False, "mamba_d_head": 8, "mamba_expand": 1, "mamba_n_groups": 2}),
    ],
)
def test_bamba(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    sizes = {
        "vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_chunk_size": 8, "use_cache": False, "pad_token_id": 0,
    }  # fmt: skip
    check(reference(name, transformers.BambaConfig(**{**sizes, **more})), tmp_path, INPUTS)


PARALLEL = {"mamba_n_heads": 4, "mamba_d_state": 8, "mamba_chunk_size": 8, "use_cache": False}
DECODER = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.mark.parametrize(
    ("name", "more"),
    [
        (
            "FalconH1ForCausalLM",
            {
                "mamba_d_ssm": 64, "mamba_d_head": 16, "mamba_n_groups": 2, "embedding_multiplier": 2.0, "lm_head_multiplier": 0.5,
                "mlp_multipliers": [0.7, 0.4], "ssm_multipliers": [0.5, 0.6, 0.7, 0.8, 0.9], "key_multiplier": 0.3,
                "attention_in_multiplier": 1.5, "attention_out_multiplier": 0.8, "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.6,
            },
        ),
        (
            "FalconH1Model",
            {
                "mamba_d_ssm": 32, "mamba_d_head": 8, "mamba_rms_norm": True, "mamba_proj_bias": True, "projectors_bias": True,
                "attention_bias": True, "mlp_bias": True, "mamba_conv_bias": False,
            },
        ),
        (
            "FalconH1Model",
            {"mamba_d_ssm": None, "mamba_d_head": "auto", "mamba_rms_norm": True, "mamba_norm_before_gate": False, "mamba_n_groups": 2},
        ),
    ],
)  # fmt: skip
def test_attention_and_a_state_space_side_by_side(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    made = transformers.FalconH1Config(**DECODER, **PARALLEL, **more)
    check(reference(name, made), tmp_path, text_inputs(99, padding=0))


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("JambaForCausalLM", {"attn_layer_offset": 1}),
        (
            "JambaModel",
            {
                "attn_layer_offset": 0,
                "mamba_dt_rank": 3,
                "num_experts": 1,
                "mamba_proj_bias": True,
                "mamba_conv_bias": False,
            },
        ),
        (
            "JambaModel",
            {
                "attn_layer_period": 4,
                "attn_layer_offset": 0,
                "expert_layer_offset": 0,
                "num_hidden_layers": 3,
            },
        ),
    ],
)
def test_jamba(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    fields = {"attn_layer_period": 2, "mamba_d_state": 8, "num_experts": 4, "use_mamba_kernels": False}
    made = transformers.JambaConfig(**{**DECODER, **fields, **more})
    check(reference(name, made), tmp_path, INPUTS)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("RecurrentGemmaForCausalLM", {}),
        ("RecurrentGemmaModel", {"lru_width": 48, "num_key_value_heads": 2, "attention_bias": True}),
        ("RecurrentGemmaModel", {"num_hidden_layers": 2, "conv1d_width": 3, "hidden_size": 40}),
    ],
)
def test_gated_linear_recurrences(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    sizes = {
        "vocab_size": 99, "hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "attention_window_size": 4, "use_cache": False,
    }  # fmt: skip
    made = transformers.RecurrentGemmaConfig(**{**sizes, **more})
    check(reference(name, made), tmp_path, text_inputs(99, padding=0, left_positions=True))


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("xLSTMForCausalLM", {"gate_soft_cap": 4.0, "eps": 1e-2, "tie_word_embeddings": True}),
        ("xLSTMModel", {"qk_dim_factor": 1.0, "v_dim_factor": 0.5, "norm_eps": 1e-3}),
    ],
)
def test_exponential_gates(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    sizes = {
        "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_heads": 4, "chunk_size": 8, "use_cache": False,
        "ffn_round_up_to_multiple_of": 8,
    }  # fmt: skip
    made = transformers.xLSTMConfig(**{**sizes, **more})
    check(reference(name, made), tmp_path, INPUTS)
