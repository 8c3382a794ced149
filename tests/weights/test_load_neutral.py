"""What an absent parameter stands for: zero for what is added, one for the scale of a norm, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import mapper
from tests.weights.snapshots import Holder, filled, refused

NORMS: dict[str, Callable[[bool], nn.Module]] = {
    "LayerNorm": lambda affine: nn.LayerNorm(4, elementwise_affine=affine),
    "RMSNorm": lambda affine: nn.RMSNorm(4, elementwise_affine=affine),
    "GroupNorm": lambda affine: nn.GroupNorm(2, 4, affine=affine),
    "BatchNorm1d": lambda affine: nn.BatchNorm1d(4, affine=affine),
    "BatchNorm2d": lambda affine: nn.BatchNorm2d(4, affine=affine),
    "BatchNorm3d": lambda affine: nn.BatchNorm3d(4, affine=affine),
    "InstanceNorm1d": lambda affine: nn.InstanceNorm1d(4, affine=affine),
    "InstanceNorm2d": lambda affine: nn.InstanceNorm2d(4, affine=affine),
    "InstanceNorm3d": lambda affine: nn.InstanceNorm3d(4, affine=affine),
}


class Scale(nn.Module):
    """A norm of one's own: torch does not know it."""

    def __init__(self, scaled: bool = True) -> None:
        super().__init__()
        self.register_parameter("weight", nn.Parameter(torch.full((4,), 3.0)) if scaled else None)


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_takes_ones_and_zeros_from_a_module_without_affine_parameters(name: str) -> None:
    model = filled(NORMS[name](True))
    report = mapper.load_weights(model, NORMS[name](False))
    assert model.weight.tolist() == [1, 1, 1, 1]
    assert getattr(model, "bias", None) is None or model.bias.tolist() == [0, 0, 0, 0]
    assert report.ok and "weight" in report.absent


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_without_affine_parameters_takes_neutral_ones(name: str) -> None:
    model = NORMS[name](False)
    report = mapper.load_weights(model, NORMS[name](True))
    assert report.ok and "weight" in report.absent
    assert model.weight is None


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_without_affine_parameters_refuses_another_scale(name: str) -> None:
    source = NORMS[name](True)
    source.weight.data[1] = 1.5
    model = NORMS[name](False)
    with refused(model) as caught:
        mapper.load_weights(model, source)
    assert caught.kinds == {"weight": "absent"}


def test_a_scale_of_zeros_is_not_neutral() -> None:
    model = nn.LayerNorm(2, elementwise_affine=False)
    with refused(model) as caught:
        mapper.load_weights(model, {"weight": torch.zeros(2), "bias": torch.zeros(2)})
    assert caught.kinds == {"weight": "absent"}


def test_a_layer_norm_without_bias_takes_a_zero_bias() -> None:
    model = nn.LayerNorm(2, bias=False)
    assert mapper.load_weights(model, nn.LayerNorm(2)).absent == ["bias"]


def test_a_layer_norm_takes_zero_from_one_without_bias() -> None:
    model = filled(nn.LayerNorm(2))
    assert mapper.load_weights(model, nn.LayerNorm(2, bias=False)).absent == ["bias"]
    assert model.bias.tolist() == [0, 0]


def test_false_at_a_norms_scale_sets_ones() -> None:
    model = filled(nn.Sequential(nn.LayerNorm(2)))
    mapper.load_weights(model, [{"weight": False, "bias": False}])
    assert model[0].weight.tolist() == [1, 1] and model[0].bias.tolist() == [0, 0]


def test_the_scale_of_a_custom_norm_has_no_neutral_value() -> None:
    model = Scale()
    with refused(model) as caught:
        mapper.load_weights(model, {"weight": False})
    assert caught.kinds == {"weight": "type"}


def test_ones_for_the_absent_scale_of_a_custom_norm_are_unexpected() -> None:
    model = Scale(scaled=False)
    with refused(model) as caught:
        mapper.load_weights(model, {"weight": torch.ones(4)})
    assert caught.report.unexpected == ["weight"]


def test_a_custom_class_called_like_a_norm_of_torch_has_no_neutral_value() -> None:
    class LayerNorm(Scale):
        pass

    model = LayerNorm()
    with refused(model) as caught:
        mapper.load_weights(model, {"weight": False})
    assert caught.kinds == {"weight": "type"}


@pytest.mark.parametrize("name", ["bias", "proj_bias", "in_proj_bias", "_bias"])
def test_every_leaf_that_ends_in_bias_has_the_neutral_value_zero(name: str) -> None:
    model = Holder(**{name: nn.Parameter(torch.ones(3))})
    assert mapper.load_weights(model, {name: False}).absent == [name]
    assert not getattr(model, name).any()


@pytest.mark.parametrize("name", ["bias_k", "biases", "bias_ih_l0", "debias", "Bias", "weight", "gamma"])
def test_other_leaves_have_no_neutral_value(name: str) -> None:
    model = Holder(**{name: nn.Parameter(torch.ones(3))})
    with refused(model) as caught:
        mapper.load_weights(model, {name: False})
    assert caught.kinds == {name: "type"}


@pytest.mark.parametrize("name", ["running_mean", "running_var", "num_batches_tracked"])
def test_running_statistics_have_no_neutral_value(name: str) -> None:
    model = nn.BatchNorm1d(2)
    with refused(model) as caught:
        mapper.load_weights(model, {**model.state_dict(), name: False})
    assert caught.kinds == {name: "type"}


def test_zeros_for_absent_running_statistics_are_unexpected() -> None:
    model = nn.BatchNorm1d(2, track_running_stats=False)
    with refused(model) as caught:
        mapper.load_weights(model, nn.BatchNorm1d(2))
    assert {"running_mean", "running_var"} <= set(caught.report.unexpected)


def test_running_statistics_that_the_source_lacks_are_missing() -> None:
    model = nn.BatchNorm1d(2)
    with refused(model) as caught:
        mapper.load_weights(model, nn.BatchNorm1d(2, track_running_stats=False))
    assert caught.report.missing == ["running_mean", "running_var"]


def test_a_neutral_bias_keeps_its_identity_dtype_and_gradient() -> None:
    model = nn.Linear(2, 1).half()
    model.bias.grad = torch.ones_like(model.bias)
    bias, grad = model.bias, model.bias.grad
    mapper.load_weights(model, {"weight": torch.ones(1, 2).half(), "bias": False})
    assert model.bias is bias and bias.grad is grad and bias.dtype == torch.float16
    assert bias.tolist() == [0]


def test_a_module_without_bias_means_zero() -> None:
    model = filled(nn.Sequential(nn.Linear(2, 1)))
    report = mapper.load_weights(model, nn.Sequential(nn.Linear(2, 1, bias=False)))
    assert report.absent == ["0.bias"] and model[0].bias.tolist() == [0]


def test_the_tree_of_a_module_without_bias_means_zero() -> None:
    model = filled(nn.Sequential(nn.Linear(2, 1)))
    mapper.load_weights(model, mapper.tree(nn.Sequential(nn.Linear(2, 1, bias=False))))
    assert model[0].bias.tolist() == [0]


def test_the_state_dict_of_a_module_without_bias_does_not_mean_zero() -> None:
    model = nn.Linear(2, 1)
    with refused(model) as caught:
        mapper.load_weights(model, nn.Linear(2, 1, bias=False).state_dict())
    assert caught.report.missing == ["bias"]


def test_a_convolution_without_bias_means_zero() -> None:
    model = filled(nn.Conv2d(1, 2, 1))
    mapper.load_weights(model, nn.Conv2d(1, 2, 1, bias=False))
    assert model.bias.tolist() == [0, 0]


def test_attention_without_biases_fills_attention_with_biases() -> None:
    model = filled(nn.MultiheadAttention(4, 2))
    report = mapper.load_weights(model, nn.MultiheadAttention(4, 2, bias=False))
    assert sorted(report.absent) == ["in_proj_bias", "out_proj.bias"]
    assert not model.in_proj_bias.any() and not model.out_proj.bias.any()


def test_attention_with_zero_biases_fills_attention_without() -> None:
    source = nn.MultiheadAttention(4, 2)
    source.in_proj_bias.data.zero_()
    source.out_proj.bias.data.zero_()
    report = mapper.load_weights(nn.MultiheadAttention(4, 2, bias=False), source)
    assert report.ok and sorted(report.absent) == ["in_proj_bias", "out_proj.bias"]


def test_an_added_key_of_attention_has_no_neutral_value() -> None:
    model = nn.MultiheadAttention(4, 2, add_bias_kv=True)
    source = dict(model.state_dict())
    with refused(model) as caught:
        mapper.load_weights(model, {**source, "bias_k": False, "bias_v": False})
    assert caught.kinds == {"bias_k": "type", "bias_v": "type"}


def test_an_added_key_of_zeros_does_not_fit_attention_without_one() -> None:
    source = nn.MultiheadAttention(4, 2, add_bias_kv=True)
    source.bias_k.data.zero_()
    source.bias_v.data.zero_()
    model = nn.MultiheadAttention(4, 2)
    with refused(model) as caught:
        mapper.load_weights(model, source)
    assert caught.report.unexpected == ["bias_k", "bias_v"]


def test_attention_without_an_added_key_does_not_fill_attention_with_one() -> None:
    model = nn.MultiheadAttention(4, 2, add_bias_kv=True)
    with refused(model) as caught:
        mapper.load_weights(model, nn.MultiheadAttention(4, 2))
    problems = caught.report.missing + [entry.path for entry in caught.report.mismatched]
    assert problems == ["bias_k", "bias_v"]


def test_one_matrix_of_attention_is_not_three() -> None:
    model = nn.MultiheadAttention(4, 2, kdim=3, vdim=3)
    with refused(model) as caught:
        mapper.load_weights(model, nn.MultiheadAttention(4, 2))
    assert "in_proj_weight" in caught.report.unexpected


def test_an_embedding_has_no_neutral_value() -> None:
    model = nn.Embedding(2, 2)
    with refused(model) as caught:
        mapper.load_weights(model, {"weight": False})
    assert caught.kinds == {"weight": "type"}


def test_false_where_neither_side_has_an_array_is_fine() -> None:
    source: dict[str, Any] = {"weight": torch.ones(1, 2), "bias": False}
    assert mapper.load_weights(nn.Linear(2, 1, bias=False), source).ok


def test_a_neutral_integer_bias_is_zero() -> None:
    model = Holder(bias=nn.Parameter(torch.tensor([4, 5]), requires_grad=False))
    mapper.load_weights(model, {"bias": False})
    assert model.bias.tolist() == [0, 0] and model.bias.dtype == torch.int64


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_a_neutral_value_is_one_in_any_dtype(dtype: torch.dtype) -> None:
    model = nn.Linear(2, 1, bias=False)
    source = {"weight": torch.ones(1, 2), "bias": torch.zeros(1, dtype=dtype)}
    assert mapper.load_weights(model, source).absent == ["bias"]
