"""Models of time series against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import mapper
from tests.parity.harness import check, reference, transformers

CONTEXT, HORIZON = 14, 6


def series_inputs(longest: int) -> dict[str, dict[str, Any]]:
    """A past, what comes after it and what is known of the times, with and without missing values; one series alone."""
    generator = torch.Generator().manual_seed(1)
    history = CONTEXT + longest
    plain = {
        "past_values": torch.randn(3, history, generator=generator) * 4 + 1,
        "past_time_features": torch.randn(3, history, 2, generator=generator),
        "past_observed_mask": torch.ones(3, history),
        "future_values": torch.randn(3, HORIZON, generator=generator),
        "future_time_features": torch.randn(3, HORIZON, 2, generator=generator),
    }
    missing = plain | {"past_observed_mask": (torch.rand(3, history, generator=generator) > 0.3).float()}
    missing["past_observed_mask"][2] = 0
    return {"plain": plain, "missing": missing, "one": {key: value[:1] for key, value in plain.items()}}


def sizes(**more: Any) -> dict[str, Any]:
    return {
        "context_length": CONTEXT, "prediction_length": HORIZON, "lags_sequence": [1, 2, 5], "num_time_features": 2, "d_model": 32,
        "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 4, "encoder_ffn_dim": 44,
        "decoder_ffn_dim": 40, **more,
    }  # fmt: skip


@pytest.mark.parametrize("scaling", ["mean", "std", None])
def test_time_series_transformer(scaling: str | None, tmp_path: Path) -> None:
    made = transformers.TimeSeriesTransformerConfig(**sizes(scaling=scaling))
    check(reference("TimeSeriesTransformerModel", made), tmp_path, series_inputs(5))


@pytest.mark.parametrize(("attention", "distilled"), [("prob", True), ("full", False)])
def test_informer(attention: str, distilled: bool, tmp_path: Path) -> None:
    made = transformers.InformerConfig(**sizes(attention_type=attention, distil=distilled))
    check(reference("InformerModel", made), tmp_path, series_inputs(5))


@pytest.mark.parametrize(("scaling", "label", "average"), [("mean", 10, 5), ("std", 3, 25)])
def test_autoformer(scaling: str, label: int, average: int, tmp_path: Path) -> None:
    made = transformers.AutoformerConfig(
        **sizes(scaling=scaling, label_length=label, moving_average=average, autocorrelation_factor=2)
    )
    check(reference("AutoformerModel", made), tmp_path, series_inputs(5))


def test_informer_that_samples_is_refused(tmp_path: Path) -> None:
    """Which times it asks for is drawn at random: two forwards of the reference differ."""
    model = reference("InformerModel", transformers.InformerConfig(**sizes(sampling_factor=1)))
    model.save_pretrained(tmp_path)
    assert mapper.inspect(tmp_path).architecture.reading == "skeleton"


def test_timesfm(tmp_path: Path) -> None:
    made = transformers.TimesFmConfig(
        hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4, head_dim=8, context_length=64, horizon_length=12,
        patch_length=16, quantiles=[0.1, 0.5, 0.9],
    )  # fmt: skip
    values = torch.randn(3, 100, generator=torch.Generator().manual_seed(1)) * 4 + 1
    cases = {
        "own length": values[:, :64],
        "longer": values,
        "shorter": values[:, :40],
        "one": values[:1, :31],
    }
    model = reference("TimesFmModelForPrediction", made)
    check(model, tmp_path, {name: {"past_values": case} for name, case in cases.items()})


@pytest.mark.parametrize(
    "more", [{}, {"force_flip_invariance": False, "infer_is_positive": False, "num_key_value_heads": 2}]
)
def test_timesfm2_5(more: dict[str, Any], tmp_path: Path) -> None:
    fields = {
        "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
        "head_dim": 8, "context_length": 64, "horizon_length": 12, "output_quantile_len": 20, "patch_length": 16,
        "quantiles": [0.1, 0.5, 0.9], "decode_index": 2,
    }  # fmt: skip
    values = torch.randn(3, 100, generator=torch.Generator().manual_seed(1)) * 4 + 1
    cases = {
        "own length": values[:, :64],
        "longer": values.abs(),
        "shorter": values[:, :40],
        "one": values[:1, :31],
    }
    model = reference("TimesFm2_5ModelForPrediction", transformers.TimesFm2_5Config(**fields | more))
    check(model, tmp_path, {name: {"past_values": case} for name, case in cases.items()})


def patch_inputs(mask: str) -> dict[str, dict[str, Any]]:
    """Series of two channels, with and without missing values; one alone."""
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(3, CONTEXT, 2, generator=generator) * 4 + 1
    seen = (torch.rand(3, CONTEXT, 2, generator=generator) > 0.3).float()
    return {
        "plain": {"past_values": values},
        "missing": {"past_values": values, mask: seen},
        "one": {"past_values": values[:1]},
    }


@pytest.mark.parametrize(("scaling", "first"), [("mean", False), ("std", True), (None, True)])
def test_patchtst(scaling: str | None, first: bool, tmp_path: Path) -> None:
    made = transformers.PatchTSTConfig(
        context_length=CONTEXT, num_input_channels=2, patch_length=4, patch_stride=3, d_model=32, ffn_dim=44, num_hidden_layers=2, num_attention_heads=4,
        scaling=scaling, pre_norm=first, use_cls_token=not first, norm_type="batchnorm" if scaling == "std" else "layernorm", norm_eps=1e-3,
        positional_encoding_type="sincos" if first else "random", bias=first,
    )  # fmt: skip
    check(reference("PatchTSTModel", made), tmp_path, patch_inputs("past_observed_mask"))


@pytest.mark.parametrize(("scaling", "gated"), [(True, True), ("mean", False)])
def test_patchtsmixer(scaling: str | bool, gated: bool, tmp_path: Path) -> None:
    made = transformers.PatchTSMixerConfig(
        context_length=CONTEXT, num_input_channels=2, patch_length=4, patch_stride=3, d_model=16, num_layers=2, scaling=scaling,
        gated_attn=gated, use_positional_encoding=not gated, norm_eps=1e-3,
    )  # fmt: skip
    check(reference("PatchTSMixerModel", made), tmp_path, patch_inputs("observed_mask"))


@pytest.mark.parametrize("bounded", [True, False])
def test_decision_transformer(bounded: bool, tmp_path: Path) -> None:
    config = transformers.DecisionTransformerConfig(
        hidden_size=32, n_layer=2, n_head=4, state_dim=7, act_dim=3, n_positions=40, max_ep_len=20,
        action_tanh=bounded, activation_function="gelu" if bounded else "relu", layer_norm_epsilon=1e-4,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    states, actions = (torch.randn(3, 6, size, generator=generator) for size in (7, 3))
    values = {"states": states, "actions": actions, "returns_to_go": states[..., :1].cumsum(1)}
    values = {**values, "timesteps": torch.arange(6).expand(3, -1), "rewards": states[..., :1]}
    right = torch.ones(3, 6, dtype=torch.long)
    right[1, -2:] = 0
    one = {name: value[:1] for name, value in values.items()}
    cases = {"right": {**values, "attention_mask": right}, "one": one}
    check(reference("DecisionTransformerModel", config), tmp_path, cases)
