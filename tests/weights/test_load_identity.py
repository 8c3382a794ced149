"""What a load keeps: parameter objects, optimizers, gradients, hooks, layout; and what `assign` replaces."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mapper
from tests.weights.snapshots import (
    Holder,
    Tied,
    bits,
    filled,
    refused,
    same_states,
    snapshot,
    two_layers,
    zeroed,
)


def test_the_parameters_stay_the_same_objects() -> None:
    model = zeroed(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    tensors = list(model.state_dict(keep_vars=True).values())
    memory = [tensor.data_ptr() for tensor in tensors]
    mapper.load_weights(model, filled(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))))
    after = list(model.state_dict(keep_vars=True).values())
    assert all(one is other for one, other in zip(tensors, after, strict=True))
    assert [tensor.data_ptr() for tensor in after] == memory


def test_an_optimizer_goes_on_with_its_state() -> None:
    model = two_layers()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    moments = [bits(state["exp_avg"]) for state in optimizer.state.values()]
    mapper.load_weights(model, filled(two_layers()))
    assert [bits(state["exp_avg"]) for state in optimizer.state.values()] == moments
    optimizer.step()
    assert not same_states(model, filled(two_layers()))


def test_gradients_stay() -> None:
    model = two_layers()
    model(torch.ones(1, 2)).sum().backward()
    grads = [(parameter.grad, bits(parameter.grad)) for parameter in model.parameters()]
    mapper.load_weights(model, filled(two_layers()))
    for parameter, (grad, before) in zip(model.parameters(), grads, strict=True):
        assert parameter.grad is grad and bits(grad) == before


@pytest.mark.parametrize("assign", [False, True])
def test_requires_grad_is_the_models(assign: bool) -> None:
    model, source = two_layers(), filled(two_layers())
    model[0].weight.requires_grad_(False)
    source[2].weight.requires_grad_(False)
    mapper.load_weights(model, source, assign=assign)
    flags = [parameter.requires_grad for parameter in model.parameters()]
    assert flags == [False, True, True, True]


def test_hooks_on_a_parameter_stay() -> None:
    model, called = nn.Linear(2, 1), []
    model.weight.register_hook(lambda grad: called.append(1))
    mapper.load_weights(model, filled(nn.Linear(2, 1)))
    model(torch.ones(1, 2)).sum().backward()
    assert called == [1]


def test_the_memory_format_stays() -> None:
    model = nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last)
    mapper.load_weights(model, filled(nn.Conv2d(4, 4, 3)))
    assert model.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(model.weight, filled(nn.Conv2d(4, 4, 3)).weight)


def test_a_parameter_that_is_a_view_is_filled_in_its_own_memory() -> None:
    base = torch.zeros(4, 4)
    model = Holder(w=nn.Parameter(base[:, 1]))
    mapper.load_weights(model, {"w": torch.ones(4)})
    assert base.sum() == 4 and base[:, 1].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("assign", [False, True])
def test_a_source_with_a_history_leaves_the_model_without_one(assign: bool) -> None:
    model = nn.Linear(2, 1)
    weight = torch.ones(1, 2, requires_grad=True) * 2
    mapper.load_weights(model, {"weight": weight, "bias": torch.ones(1)}, assign=assign)
    assert model.weight.is_leaf and model.weight.grad_fn is None and model.weight.requires_grad
    assert model.weight.tolist() == [[2, 2]]
    assert weight.grad_fn is not None and not weight.is_leaf


def test_a_load_is_not_recorded_by_autograd() -> None:
    model, source = nn.Linear(2, 1), filled(nn.Linear(2, 1))
    mapper.load_weights(model, source)
    model(torch.ones(1, 2)).sum().backward()
    assert source.weight.grad is None and model.weight.grad is not None


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_load_works_under_every_mode_of_autograd(mode: Any) -> None:
    model, source = zeroed(two_layers()), filled(two_layers())
    with mode():
        mapper.load_weights(model, source)
    assert same_states(model, source)
    assert all(parameter.requires_grad for parameter in model.parameters())
    model(torch.ones(1, 2)).sum().backward()


def test_tensors_made_for_inference_are_a_source() -> None:
    model = nn.Linear(2, 1)
    with torch.inference_mode():
        source = {"weight": torch.ones(1, 2), "bias": torch.ones(1)}
    mapper.load_weights(model, source)
    model(torch.ones(1, 2)).sum().backward()
    assert model.weight.tolist() == [[1, 1]]


def test_the_default_device_of_the_caller_does_not_matter() -> None:
    model = zeroed(nn.Linear(2, 1))
    with torch.device("meta"):
        mapper.load_weights(model, {"weight": np.ones((1, 2), "f4"), "bias": False})
    assert model.weight.tolist() == [[1, 1]] and model.bias.tolist() == [0]


def test_a_source_that_is_not_contiguous_is_copied() -> None:
    model = nn.Linear(3, 2, bias=False)
    mapper.load_weights(model, {"weight": torch.arange(6.0).reshape(3, 2).t()})
    assert model.weight.tolist() == [[0, 2, 4], [1, 3, 5]]


# assign=True


def test_assigned_tensors_become_the_parameters_without_a_copy() -> None:
    model, source = two_layers(), dict(filled(two_layers()).state_dict())
    report = mapper.load_weights(model, source, assign=True)
    assert report.loaded == list(source)
    for key, parameter in model.named_parameters():
        assert isinstance(parameter, nn.Parameter) and parameter.data_ptr() == source[key].data_ptr()


def test_assigned_tensors_keep_their_dtype() -> None:
    model = nn.Linear(2, 1)
    source = {"weight": torch.ones(1, 2).half(), "bias": torch.ones(1).double()}
    mapper.load_weights(model, source, assign=True)
    assert model.weight.dtype == torch.float16 and model.bias.dtype == torch.float64


def test_assigned_buffers_stay_buffers() -> None:
    model = nn.BatchNorm1d(2)
    source = dict(filled(nn.BatchNorm1d(2)).state_dict())
    mapper.load_weights(model, source, assign=True)
    assert list(model._buffers) == ["running_mean", "running_var", "num_batches_tracked"]
    assert not isinstance(model.running_mean, nn.Parameter)
    assert model.running_mean.data_ptr() == source["running_mean"].data_ptr()
    assert list(model.state_dict()) == list(source)


def test_a_parameter_as_the_source_of_a_buffer_is_assigned_as_a_buffer() -> None:
    model = Holder(table=torch.zeros(2))
    mapper.load_weights(model, {"table": nn.Parameter(torch.ones(2))}, assign=True)
    assert "table" in model._buffers and not isinstance(model.table, nn.Parameter)
    assert not model.table.requires_grad and model.table.tolist() == [1, 1]


def test_an_assigned_parameter_still_needs_the_same_kind() -> None:
    model = nn.Linear(2, 1, bias=False)
    with refused(model) as caught:
        mapper.load_weights(model, {"weight": torch.ones(1, 2, dtype=torch.int32)}, assign=True)
    assert caught.kinds == {"weight": "dtype"}


def test_an_assigned_parameter_still_needs_the_same_shape() -> None:
    model = nn.Linear(2, 1, bias=False)
    with refused(model) as caught:
        mapper.load_weights(model, {"weight": torch.ones(2, 1)}, assign=True)
    assert caught.kinds == {"weight": "shape"}


def test_assigning_arrays_of_numpy_gives_parameters() -> None:
    model = nn.Linear(2, 1)
    mapper.load_weights(model, {"weight": np.ones((1, 2), ">f4"), "bias": np.ones(1, "f8")}, assign=True)
    assert isinstance(model.weight, nn.Parameter) and model.weight.tolist() == [[1, 1]]
    assert model.bias.dtype == torch.float64


def test_assigned_values_keep_ties() -> None:
    model = Tied()
    source = {key: value.clone() for key, value in filled(Tied()).state_dict().items()}
    mapper.load_weights(model, source, assign=True)
    assert model.head.weight is model.embed.weight
    assert torch.equal(model.embed.weight, source["embed.weight"])


def test_assigning_leaves_the_callers_tensors_as_they_are() -> None:
    model, source = two_layers(), OrderedDict(filled(two_layers()).state_dict())
    before = {key: (id(value), value.requires_grad, bits(value)) for key, value in source.items()}
    mapper.load_weights(model, source, assign=True)
    assert {key: (id(value), value.requires_grad, bits(value)) for key, value in source.items()} == before
    assert all(type(value) is torch.Tensor for value in source.values())


def test_an_assignment_does_not_influence_a_later_load_of_the_same_dict() -> None:
    source = filled(two_layers()).state_dict()
    mapper.load_weights(two_layers(), source, assign=True)
    model = zeroed(two_layers())
    identities = [id(parameter) for parameter in model.parameters()]
    mapper.load_weights(model, source)
    assert [id(parameter) for parameter in model.parameters()] == identities
    assert same_states(model, filled(two_layers()))
    model[0].weight.data.fill_(77)
    assert not (source["0.weight"] == 77).any()


def test_an_assignment_does_not_influence_torchs_own_load_of_the_same_dict() -> None:
    source = filled(two_layers()).state_dict()
    mapper.load_weights(two_layers(), source, assign=True)
    model = two_layers()
    identities = [id(parameter) for parameter in model.parameters()]
    model.load_state_dict(source)
    assert [id(parameter) for parameter in model.parameters()] == identities


def test_assigning_false_sets_the_neutral_value() -> None:
    model = filled(nn.Linear(2, 1))
    mapper.load_weights(model, {"weight": torch.ones(1, 2), "bias": False}, assign=True)
    assert model.bias.tolist() == [0] and isinstance(model.bias, nn.Parameter) and model.bias.requires_grad


def test_assigning_a_transpose_keeps_the_values() -> None:
    model = Holder(w=nn.Parameter(torch.arange(9.0).reshape(3, 3)))
    expected = model.w.detach().t().clone()
    mapper.load_weights(model, {"w": model.w.detach().t()}, assign=True)
    assert torch.equal(model.w, expected)


def test_assigning_swapped_entries_swaps_them() -> None:
    model = nn.ParameterList([torch.zeros(2), torch.ones(2)])
    mapper.load_weights(model, [model[1], model[0]], assign=True)
    assert model[0].tolist() == [1, 1] and model[1].tolist() == [0, 0]


def test_an_assigned_recurrent_layer_computes_with_the_new_weights() -> None:
    model, source = nn.LSTM(2, 3), filled(nn.LSTM(2, 3), 0.01)
    mapper.load_weights(model, source.state_dict(), assign=True)
    data = torch.ones(4, 1, 2)
    assert torch.equal(model(data)[0], source(data)[0])


def test_a_recurrent_layer_computes_with_the_loaded_weights() -> None:
    model, source = (
        nn.GRU(2, 3, num_layers=2, bidirectional=True),
        nn.GRU(2, 3, num_layers=2, bidirectional=True),
    )
    before = snapshot(source)
    mapper.load_weights(model, source)
    data = torch.ones(4, 1, 2)
    assert torch.equal(model(data)[0], source(data)[0])
    assert snapshot(source) == before


def test_a_transformer_layer_computes_with_the_loaded_weights() -> None:
    model, source = (nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0) for _ in range(2))
    mapper.load_weights(model, source)
    data = torch.ones(3, 1, 4)
    assert torch.equal(model(data), source(data))
