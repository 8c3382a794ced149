"""Parameters without memory: filled, on the right device, tied; sources without memory: refused."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import mapper
from tests.weights.snapshots import Holder, Tied, filled, refused, same_states, two_layers


def on_meta(make: Any) -> Any:
    with torch.device("meta"):
        return make()


def test_a_model_on_meta_becomes_real() -> None:
    model = on_meta(two_layers)
    assert mapper.load_weights(model, filled(two_layers())).ok
    assert same_states(model, filled(two_layers()))
    assert all(isinstance(parameter, nn.Parameter) for parameter in model.parameters())
    assert model(torch.ones(1, 2)).device.type == "cpu"


def test_buffers_on_meta_become_real_buffers() -> None:
    model = on_meta(lambda: nn.BatchNorm1d(2))
    mapper.load_weights(model, filled(nn.BatchNorm1d(2)))
    assert same_states(model, filled(nn.BatchNorm1d(2)))
    assert not isinstance(model.running_mean, nn.Parameter)


def test_a_parameter_from_meta_has_the_models_dtype() -> None:
    model = on_meta(lambda: nn.Linear(2, 1).half())
    mapper.load_weights(model, filled(nn.Linear(2, 1)))
    assert model.weight.dtype == torch.float16 and model.weight.tolist() == [[1, 2]]


def test_a_parameter_from_meta_keeps_its_requires_grad() -> None:
    model = on_meta(two_layers)
    model[0].weight.requires_grad_(False)
    mapper.load_weights(model, filled(two_layers()))
    assert [parameter.requires_grad for parameter in model.parameters()] == [False, True, True, True]


def test_a_parameter_from_meta_has_the_models_memory_format() -> None:
    model = on_meta(lambda: nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last))
    mapper.load_weights(model, nn.Conv2d(4, 4, 3))
    assert model.weight.is_contiguous(memory_format=torch.channels_last)


def test_the_device_may_be_named() -> None:
    model = on_meta(two_layers)
    mapper.load_weights(model, filled(two_layers()), device="cpu")
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}


def test_the_device_may_be_a_torch_device() -> None:
    model = on_meta(two_layers)
    mapper.load_weights(model, filled(two_layers()), device=torch.device("cpu"))
    assert same_states(model, filled(two_layers()))


def test_a_model_from_meta_has_memory_of_its_own() -> None:
    model, source = on_meta(two_layers), filled(two_layers())
    mapper.load_weights(model, source)
    source[0].weight.data.fill_(50)
    assert not (model[0].weight == 50).any()


def test_tied_parameters_on_meta_stay_tied() -> None:
    model = on_meta(Tied)
    assert model.head.weight is model.embed.weight
    mapper.load_weights(model, filled(Tied()))
    assert model.head.weight is model.embed.weight and not model.head.weight.is_meta
    assert same_states(model, filled(Tied()))


@pytest.mark.parametrize("path", ["embed.weight", "head.weight"])
def test_one_value_for_a_tie_on_meta_is_enough(path: str) -> None:
    model = on_meta(Tied)
    source = {path: torch.ones(5, 3), "inner.weight": torch.ones(3, 3), "inner.bias": torch.ones(3)}
    mapper.load_weights(model, source)
    assert model.head.weight is model.embed.weight and model.embed.weight.tolist()[0] == [1, 1, 1]


def test_a_module_that_is_shared_on_meta_stays_shared() -> None:
    def shared() -> nn.Module:
        layer = nn.Linear(2, 2)
        return nn.Sequential(layer, nn.ReLU(), layer)

    model = on_meta(shared)
    mapper.load_weights(model, filled(shared()))
    assert model[0] is model[2] and model[0].weight.tolist() == [[1, 2], [3, 4]]


def test_real_parameters_beside_those_on_meta_keep_their_identity() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), on_meta(lambda: nn.Linear(3, 2)))
    kept = model[0].weight
    mapper.load_weights(model, filled(two_layers()))
    assert model[0].weight is kept and same_states(model, filled(two_layers()))


def test_a_bias_on_meta_becomes_a_real_zero() -> None:
    model = on_meta(lambda: nn.Sequential(nn.Linear(2, 1), nn.LayerNorm(1)))
    mapper.load_weights(
        model, nn.Sequential(nn.Linear(2, 1, bias=False), nn.LayerNorm(1, elementwise_affine=False))
    )
    assert model[0].bias.tolist() == [0] and model[1].weight.tolist() == [1] and model[1].bias.tolist() == [0]


def test_a_missing_value_of_a_model_on_meta_is_missing() -> None:
    model = on_meta(two_layers)
    with refused(model) as caught:
        mapper.load_weights(model, {"0.weight": torch.ones(3, 2)})
    assert caught.report.missing == ["0.bias", "2.weight", "2.bias"]


def test_a_skipped_value_may_stay_on_meta() -> None:
    model = on_meta(two_layers)
    report = mapper.load_weights(model, [filled(two_layers())[0].state_dict(), None, None])
    assert report.skipped == ["2.weight", "2.bias"]
    assert model[2].weight.is_meta and not model[0].weight.is_meta


def test_a_lenient_load_leaves_what_is_missing_on_meta() -> None:
    model = on_meta(two_layers)
    report = mapper.load_weights(model, {"0.weight": torch.ones(3, 2)}, strict=False)
    assert report.loaded == ["0.weight"] and model[0].bias.is_meta


def test_a_buffer_that_does_not_persist_and_stays_on_meta_is_named_in_a_warning() -> None:
    def masked() -> nn.Module:
        model = nn.Sequential(nn.Linear(2, 1))
        model[0].register_buffer("mask", torch.ones(3), persistent=False)
        return model

    model = on_meta(masked)
    with pytest.warns(UserWarning, match=r"0\.mask"):
        mapper.load_weights(model, filled(masked()))
    assert model[0].weight.tolist() == [[1, 2]]


def test_a_buffer_that_does_not_persist_and_is_real_gives_no_warning() -> None:
    model = on_meta(lambda: nn.Linear(2, 1))
    model.register_buffer("mask", torch.ones(3), persistent=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mapper.load_weights(model, filled(nn.Linear(2, 1)))


def test_assigning_fills_a_model_on_meta_without_a_copy() -> None:
    model, source = on_meta(two_layers), dict(filled(two_layers()).state_dict())
    mapper.load_weights(model, source, assign=True)
    assert model[0].weight.data_ptr() == source["0.weight"].data_ptr()
    assert model[0].weight.requires_grad


def test_a_recurrent_layer_on_meta_computes_after_loading() -> None:
    model, source = on_meta(lambda: nn.LSTM(2, 3)), nn.LSTM(2, 3)
    mapper.load_weights(model, source)
    data = torch.ones(4, 1, 2)
    assert torch.equal(model(data)[0], source(data)[0])


def test_a_python_number_fills_a_scalar_on_meta() -> None:
    model = on_meta(lambda: Holder(scale=nn.Parameter(torch.zeros(()))))
    mapper.load_weights(model, {"scale": 2.5})
    assert float(model.scale.detach()) == 2.5


def test_a_model_filled_from_meta_can_be_trained() -> None:
    model = on_meta(two_layers)
    with torch.no_grad():
        mapper.load_weights(model, filled(two_layers()))
    model(torch.ones(1, 2)).sum().backward()
    assert model[0].weight.grad is not None and model[0].weight.is_leaf


# sources on meta


@pytest.mark.parametrize("strict", [True, {"mismatched"}])
@pytest.mark.parametrize("assign", [True, False])
def test_a_tensor_on_meta_is_no_value(strict: Any, assign: bool) -> None:
    model = nn.Linear(2, 1)
    source = {"weight": torch.ones(1, 2), "bias": torch.ones(1, device="meta")}
    with refused(model) as caught:
        mapper.load_weights(model, source, strict=strict, assign=assign)
    assert caught.kinds == {"bias": "meta"}


def test_a_module_on_meta_is_no_source() -> None:
    model = two_layers()
    with refused(model) as caught:
        mapper.load_weights(model, on_meta(two_layers))
    assert set(caught.kinds.values()) == {"meta"} and len(caught.kinds) == 4


def test_a_module_on_meta_is_no_source_for_a_model_on_meta() -> None:
    model = on_meta(two_layers)
    with refused(model) as caught:
        mapper.load_weights(model, on_meta(two_layers))
    assert set(caught.kinds.values()) == {"meta"}


def test_a_lenient_load_leaves_what_has_no_data() -> None:
    model = nn.Linear(2, 1)
    kept = model.bias.tolist()
    source = {"weight": torch.ones(1, 2), "bias": torch.ones(1, device="meta")}
    report = mapper.load_weights(model, source, strict=False)
    assert report.loaded == ["weight"] and model.bias.tolist() == kept
    assert [(entry.path, entry.kind) for entry in report.mismatched] == [("bias", "meta")]


def test_a_value_without_data_for_an_absent_bias_is_refused() -> None:
    model = nn.Linear(2, 1, bias=False)
    source = {"weight": torch.ones(1, 2), "bias": torch.zeros(1, device="meta")}
    with refused(model) as caught:
        mapper.load_weights(model, source)
    assert [entry.path for entry in caught.report.mismatched] == ["bias"]


# lazily initialised parameters


def test_a_lazy_layer_takes_the_shape_of_the_source() -> None:
    model, source = nn.LazyLinear(3), filled(nn.Linear(2, 3))
    assert mapper.load_weights(model, source).loaded == ["weight", "bias"]
    assert model.weight.shape == (3, 2) and torch.equal(model.weight, source.weight)


def test_a_lazy_layer_computes_with_what_was_loaded() -> None:
    model, source = nn.Sequential(nn.LazyLinear(3), nn.ReLU()), nn.Sequential(filled(nn.Linear(2, 3)))
    mapper.load_weights(model, source.state_dict())
    assert torch.equal(model(torch.ones(1, 2)), torch.relu(source(torch.ones(1, 2))))
    assert torch.equal(model[0].weight, source[0].weight)


def test_a_lazy_convolution_takes_the_shape_of_the_source() -> None:
    model, source = nn.LazyConv2d(3, 1), filled(nn.Conv2d(2, 3, 1))
    mapper.load_weights(model, source)
    assert torch.equal(model(torch.ones(1, 2, 4, 4)), source(torch.ones(1, 2, 4, 4)))


def test_lazy_buffers_take_the_shape_of_the_source() -> None:
    model, source = nn.LazyBatchNorm1d(), filled(nn.BatchNorm1d(3))
    mapper.load_weights(model, source)
    assert torch.equal(model.running_mean, source.running_mean)
    assert torch.equal(model(torch.ones(2, 3)), source(torch.ones(2, 3)))
