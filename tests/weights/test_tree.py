"""Looking at a model: the tree of its states, and flat views."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import mapper
from tests.weights.snapshots import Holder, Tied, filled, refused, same_states, snapshot, two_layers, zeroed


def test_a_tree_is_a_nested_dict_of_tensors() -> None:
    tree = mapper.tree(Holder(body=two_layers(), head=nn.Linear(2, 1)))
    assert isinstance(tree, dict) and isinstance(tree, mapper.Tree)
    assert {"body": {"0": {"weight", "bias"}, "2": {"weight", "bias"}}, "head": {"weight", "bias"}} == {
        "body": {name: set(child) for name, child in tree["body"].items()},
        "head": set(tree["head"]),
    }


def test_a_leaf_is_a_detached_tensor() -> None:
    leaf = mapper.tree(nn.Linear(2, 1))["weight"]
    assert type(leaf) is torch.Tensor and not leaf.requires_grad and leaf.grad_fn is None


def test_writing_into_a_leaf_writes_into_the_model() -> None:
    model = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))
    tree = mapper.tree(model)
    tree["0"]["weight"].fill_(3)
    tree["1"]["running_mean"].fill_(4)
    assert model[0].weight.tolist() == [[3, 3]] and model[1].running_mean.tolist() == [4]


def test_no_tensor_is_copied() -> None:
    model = filled(nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1)))
    flat = mapper.flatten(mapper.tree(model))
    for key, value in model.state_dict(keep_vars=True).items():
        assert flat[key].data_ptr() == value.data_ptr()


def test_making_a_tree_changes_nothing() -> None:
    model = filled(Tied())
    before = snapshot(model)
    mapper.tree(model)
    assert snapshot(model) == before


def test_buffers_are_states() -> None:
    assert set(mapper.tree(nn.BatchNorm1d(2))) == {
        "weight",
        "bias",
        "running_mean",
        "running_var",
        "num_batches_tracked",
    }


def test_buffers_that_do_not_persist_are_not_there() -> None:
    model = nn.Linear(1, 1)
    model.register_buffer("mask", torch.ones(1), persistent=False)
    assert "mask" not in mapper.tree(model) and "mask" not in mapper.states(model)


def test_the_tree_of_params_has_no_buffers() -> None:
    tree = mapper.tree(Holder(a=nn.BatchNorm1d(2), table=torch.ones(1)), which="params")
    assert set(tree) == {"a"} and set(tree["a"]) == {"weight", "bias"}


def test_a_tied_tensor_is_there_once_at_its_first_path() -> None:
    tree = mapper.tree(Tied())
    assert "head" not in tree or "weight" not in tree["head"]
    assert dict(tree.tied) == {"head.weight": "embed.weight"}


def test_a_module_without_ties_has_an_empty_table_of_ties() -> None:
    assert dict(mapper.tree(two_layers()).tied) == {}


def test_a_shared_module_is_there_once() -> None:
    layer = nn.Linear(2, 2)
    tree = mapper.tree(nn.Sequential(layer, nn.ReLU(), layer))
    assert list(mapper.flatten(tree)) == ["0.weight", "0.bias"]
    assert dict(tree.tied) == {"2.weight": "0.weight", "2.bias": "0.bias"}


def test_an_absent_bias_is_false() -> None:
    tree = mapper.tree(nn.Linear(2, 1, bias=False))
    assert tree["bias"] is False and set(tree) == {"weight", "bias"}


def test_an_absent_bias_of_a_norm_is_false() -> None:
    assert mapper.tree(nn.LayerNorm(2, bias=False))["bias"] is False


def test_absent_scales_of_a_norm_are_false() -> None:
    tree = mapper.tree(nn.BatchNorm1d(2, affine=False))
    assert tree["weight"] is False and tree["bias"] is False and "running_mean" in tree


def test_absent_parameters_without_a_neutral_value_are_not_there() -> None:
    tree = mapper.tree(nn.MultiheadAttention(4, 2, bias=False))
    assert set(tree) == {"in_proj_weight", "in_proj_bias", "out_proj"}
    assert tree["in_proj_bias"] is False and tree["out_proj"]["bias"] is False


def test_modules_without_states_are_not_there() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Linear(1, 1), nn.Dropout(), nn.Sequential(nn.GELU(), nn.Identity()))
    assert set(mapper.tree(model)) == {"1"}


def test_a_model_without_states_is_an_empty_tree() -> None:
    assert mapper.tree(nn.Identity()) == {} and mapper.flatten(mapper.tree(nn.ReLU())) == {}


def test_only_tensors_and_false_are_leaves() -> None:
    model = Holder(a=nn.Conv2d(1, 2, 3, bias=False), b=nn.GroupNorm(1, 2), c=nn.LSTM(2, 2), d=Tied())
    for value in mapper.flatten(mapper.tree(model)).values():
        assert value is False or type(value) is torch.Tensor


MODELS: dict[str, Any] = {
    "linear": lambda: nn.Linear(2, 1),
    "no bias": lambda: nn.Linear(2, 1, bias=False),
    "norms": lambda: nn.Sequential(nn.LayerNorm(2, bias=False), nn.GroupNorm(1, 2), nn.BatchNorm1d(2)),
    "tied": Tied,
    "attention": lambda: nn.MultiheadAttention(4, 2, add_bias_kv=True),
    "recurrent": lambda: nn.LSTM(2, 3, bias=False),
    "transformer": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(4, 2, 8), 2, enable_nested_tensor=False
    ),
    "parameters": lambda: nn.ParameterDict({"a": torch.ones(1), "b": torch.ones(2)}),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_keys_are_those_of_the_state_dict_less_aliases_plus_absent_ones(name: str) -> None:
    model = MODELS[name]()
    tree = mapper.tree(model)
    flat = mapper.flatten(tree)
    present = [key for key, value in flat.items() if value is not False]
    assert present == [key for key in model.state_dict() if key not in tree.tied]
    assert not {key for key, value in flat.items() if value is False} & set(model.state_dict())


@pytest.mark.parametrize("name", MODELS)
def test_a_tree_loads_wherever_its_model_does(name: str) -> None:
    model, source = zeroed(MODELS[name]()), filled(MODELS[name]())
    assert mapper.load_weights(model, mapper.tree(source)).ok
    assert same_states(model, source)


def test_a_tree_loads_a_module_without_affine_parameters_as_the_module_does() -> None:
    model, source = (
        filled(nn.Sequential(nn.LayerNorm(2))),
        nn.Sequential(nn.LayerNorm(2, elementwise_affine=False)),
    )
    assert mapper.load_weights(model, source).ok
    model = filled(model)
    assert mapper.load_weights(model, mapper.tree(source)).ok
    assert model[0].weight.tolist() == [1, 1]


def test_a_tree_that_was_edited_is_loaded_as_edited() -> None:
    model = zeroed(two_layers())
    tree = mapper.tree(filled(two_layers()))
    tree["0"] = None
    tree["2"]["bias"] = torch.full((2,), 9.0)
    report = mapper.load_weights(model, tree)
    assert report.skipped == ["0.weight", "0.bias"] and model[2].bias.tolist() == [9, 9]


def test_the_tree_of_a_model_on_meta_costs_no_memory() -> None:
    with torch.device("meta"):
        tree = mapper.tree(nn.Linear(1_000_000, 1_000_000, bias=False))
    assert tree["weight"].is_meta and tree["weight"].shape == (1_000_000, 1_000_000)


def test_gradients_are_not_in_the_tree() -> None:
    model = nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    assert mapper.tree(model)["weight"].grad is None


# params, states, attributes


def test_params_are_the_parameters_by_path() -> None:
    model = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))
    found = mapper.params(model)
    assert list(found) == [name for name, _ in model.named_parameters()]
    assert all(found[name].data_ptr() == value.data_ptr() for name, value in model.named_parameters())


def test_states_are_the_entries_of_the_state_dict() -> None:
    model = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))
    found = mapper.states(model)
    assert list(found) == list(model.state_dict())
    assert all(found[name].data_ptr() == value.data_ptr() for name, value in model.state_dict().items())


def test_attributes_add_the_plain_members() -> None:
    model = Holder(drop=nn.Dropout(0.25), stem=nn.Conv2d(3, 4, 5, stride=2))
    found = mapper.attributes(model)
    assert found["drop.p"] == 0.25 and found["stem.in_channels"] == 3 and found["stem.stride"] == (2, 2)
    assert "stem.weight" in found


def test_attributes_hold_activations_and_strings() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8)
    conv = nn.Conv1d(1, 1, 1, padding_mode="reflect")
    assert mapper.attributes(conv)["padding_mode"] == "reflect"
    assert callable(mapper.attributes(layer)["activation"])


def test_params_are_states_and_states_are_attributes() -> None:
    model = Holder(a=nn.BatchNorm1d(2), b=two_layers(), c=nn.Dropout())
    params, states, attributes = mapper.params(model), mapper.states(model), mapper.attributes(model)
    assert set(params) < set(states) < set(attributes)


def test_private_members_are_no_attributes() -> None:
    names = [
        path.rsplit(".", 1)[-1] for path in mapper.attributes(Holder(a=nn.Linear(1, 1), b=nn.LSTM(1, 1)))
    ]
    assert not [name for name in names if name.startswith("_")]


def test_the_flat_views_are_plain_and_flat() -> None:
    for view in (mapper.params, mapper.states, mapper.attributes):
        found = view(Holder(a=Holder(b=nn.Linear(1, 1))))
        assert isinstance(found, dict) and "a.b.weight" in found
        assert not any(isinstance(value, nn.Module) for value in found.values())


def test_a_model_is_not_filled_by_params_alone_where_it_has_buffers() -> None:
    model = nn.BatchNorm1d(2)
    with refused(model) as caught:
        mapper.load_weights(model, mapper.params(nn.BatchNorm1d(2)))
    assert caught.report.missing == ["running_mean", "running_var"]
