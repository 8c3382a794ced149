"""Hooks for loading state dicts, extra state, and parameters that torch keeps in other places."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import mapper
from tests.weights.snapshots import Holder, bits, filled, refused, same_states, zeroed


class Upgraded(nn.Linear):
    """A layer whose old files call the weight `kernel`, and transposed."""

    def __init__(self) -> None:
        super().__init__(2, 3)
        self._register_load_state_dict_pre_hook(self._upgrade)

    def _upgrade(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        if prefix + "kernel" in state:
            state[prefix + "weight"] = state.pop(prefix + "kernel").t()


def old_file() -> dict[str, Any]:
    return {"a.kernel": torch.arange(6.0).reshape(2, 3), "a.bias": torch.ones(3)}


def test_a_hook_upgrades_the_keys_of_an_old_file() -> None:
    model = Holder(a=Upgraded())
    report = mapper.load_weights(model, old_file())
    assert report.loaded == ["a.weight", "a.bias"] and report.unexpected == []
    assert model.a.weight.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_a_hook_upgrades_the_keys_of_a_nested_source() -> None:
    model = Holder(a=Upgraded())
    assert mapper.load_weights(model, mapper.unflatten(old_file())).ok
    assert model.a.weight.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_a_hook_works_on_a_private_copy() -> None:
    source = old_file()
    mapper.load_weights(Holder(a=Upgraded()), source)
    assert list(source) == ["a.kernel", "a.bias"]


def test_a_hook_leaves_the_nested_dict_of_the_caller_alone() -> None:
    source = {"a": {"kernel": torch.ones(2, 3), "bias": torch.ones(3)}}
    mapper.load_weights(Holder(a=Upgraded()), source)
    assert list(source["a"]) == ["kernel", "bias"]


def test_a_hook_that_is_registered_publicly_is_called_with_its_module() -> None:
    model, seen = Holder(a=nn.Linear(1, 1)), []

    def hook(module: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        seen.append((module, prefix))
        state[prefix + "weight"] = state[prefix + "weight"] + 1

    model.a.register_load_state_dict_pre_hook(hook)
    mapper.load_weights(model, {"a.weight": torch.ones(1, 1), "a.bias": torch.ones(1)})
    assert seen == [(model.a, "a.")] and float(model.a.weight.detach()) == 2


def test_a_hook_of_the_root_sees_all_flat_keys() -> None:
    model, seen = Holder(a=nn.Linear(1, 1)), []
    model._register_load_state_dict_pre_hook(
        lambda state, prefix, *rest: seen.append((prefix, sorted(state)))
    )
    mapper.load_weights(model, {"a": {"weight": torch.ones(1, 1), "bias": torch.ones(1)}})
    assert seen == [("", ["a.bias", "a.weight"])]


def test_a_hook_may_drop_a_key() -> None:
    model = Holder(a=nn.Linear(1, 1))
    model._register_load_state_dict_pre_hook(
        lambda state, prefix, *rest: state.pop(prefix + "position_ids", None)
    )
    source = {"a.weight": torch.ones(1, 1), "a.bias": torch.ones(1), "position_ids": torch.ones(4)}
    assert mapper.load_weights(model, source).ok


def test_a_refused_load_after_a_hook_changes_nothing() -> None:
    model = Holder(a=Upgraded())
    with refused(model) as caught:
        mapper.load_weights(model, {"a.kernel": torch.ones(2, 4), "a.bias": torch.ones(3)})
    assert caught.kinds == {"a.weight": "shape"}


def test_a_hook_after_loading_runs_after_a_successful_load() -> None:
    model, seen = Holder(a=nn.Linear(1, 1)), []
    model.a.register_load_state_dict_post_hook(
        lambda module, keys: seen.append(float(module.weight.detach()))
    )
    mapper.load_weights(model, {"a.weight": torch.full((1, 1), 8.0), "a.bias": torch.ones(1)})
    assert seen == [8.0]


def test_a_hook_after_loading_does_not_run_after_a_refused_load() -> None:
    model, seen = Holder(a=nn.Linear(1, 1)), []
    model.a.register_load_state_dict_post_hook(lambda module, keys: seen.append(1))
    with refused(model):
        mapper.load_weights(model, {"a.weight": torch.ones(1, 1)})
    assert seen == []


# extra state


class Counting(nn.Module):
    """A layer with extra state, which notes what its weight was when the extra state came."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.extra: Any = None
        self.weight_then: list[float] = []

    def get_extra_state(self) -> Any:
        return {"steps": 4}

    def set_extra_state(self, state: Any) -> None:
        self.extra = state
        self.weight_then = self.weight.tolist()


@pytest.mark.parametrize("state", [{"steps": 7}, 5, "text", (1, 2), [3]])
def test_extra_state_is_given_to_the_module(state: Any) -> None:
    model = Holder(a=Counting())
    report = mapper.load_weights(model, {"a.weight": torch.ones(2), "a._extra_state": state})
    assert model.a.extra == state and report.ok


def test_extra_state_that_is_a_tensor_is_not_unexpected() -> None:
    model = Holder(a=Counting())
    assert mapper.load_weights(model, {"a.weight": torch.ones(2), "a._extra_state": torch.tensor([9])}).ok
    assert model.a.extra.tolist() == [9]


def test_extra_state_comes_after_the_weights() -> None:
    model = Holder(a=Counting())
    mapper.load_weights(model, {"a._extra_state": {"steps": 1}, "a.weight": torch.ones(2)})
    assert model.a.weight_then == [1, 1]


def test_extra_state_of_a_state_dict_is_given_to_the_module() -> None:
    model = Holder(a=Counting())
    mapper.load_weights(model, Holder(a=Counting()).state_dict())
    assert model.a.extra == {"steps": 4}


def test_extra_state_may_be_missing() -> None:
    model = Holder(a=Counting())
    assert mapper.load_weights(model, {"a.weight": torch.ones(2)}).ok
    assert model.a.extra is None


def test_a_refused_load_sets_no_extra_state() -> None:
    model = Holder(a=Counting())
    with refused(model):
        mapper.load_weights(model, {"a.weight": torch.ones(3), "a._extra_state": 1})
    assert model.a.extra is None


# parametrized modules


def parametrized() -> nn.Module:
    return parametrizations.weight_norm(nn.Linear(2, 3))


def test_a_parametrized_layer_is_loaded_by_its_originals() -> None:
    model, source = parametrized(), parametrized()
    report = mapper.load_weights(model, source)
    assert "parametrizations.weight.original0" in report.loaded
    assert torch.equal(model(torch.ones(1, 2)), source(torch.ones(1, 2)))


def test_a_parametrized_layer_is_loaded_from_its_state_dict() -> None:
    model, source = parametrized(), parametrized()
    assert mapper.load_weights(model, source.state_dict()).ok
    assert same_states(model, source)


def test_a_parametrized_layer_is_loaded_by_assignment() -> None:
    model, source = parametrized(), parametrized()
    mapper.load_weights(model, source.state_dict(), assign=True)
    assert torch.equal(model(torch.ones(1, 2)), source(torch.ones(1, 2)))


def test_the_old_names_of_weight_norm_are_upgraded_by_torchs_hook() -> None:
    model, source = parametrized(), parametrized()
    state = dict(source.state_dict())
    state["weight_g"] = state.pop("parametrizations.weight.original0")
    state["weight_v"] = state.pop("parametrizations.weight.original1")
    assert mapper.load_weights(model, state).ok
    assert same_states(model, source)


def test_the_tree_of_a_parametrized_layer_has_its_originals() -> None:
    model = parametrized()
    assert set(mapper.flatten(mapper.tree(model))) == set(model.state_dict())


def test_a_plain_weight_does_not_fit_a_parametrized_layer() -> None:
    model = parametrized()
    with refused(model) as caught:
        mapper.load_weights(model, nn.Linear(2, 3))
    assert caught.report.unexpected == ["weight"]


class Symmetric(nn.Module):
    def forward(self, matrix: torch.Tensor) -> torch.Tensor:
        return matrix.triu() + matrix.triu(1).T


def test_a_parametrization_of_ones_own_is_loaded() -> None:
    model, source = nn.Linear(3, 3), filled(nn.Linear(3, 3))
    for module in (model, source):
        parametrize.register_parametrization(module, "weight", Symmetric())
    mapper.load_weights(model, source)
    assert torch.equal(model.weight, source.weight)


def test_spectral_norm_is_loaded_with_its_buffers() -> None:
    model, source = (parametrizations.spectral_norm(nn.Linear(2, 3)) for _ in range(2))
    assert mapper.load_weights(model, source).ok
    assert same_states(model, source)


# containers of parameters


def test_a_list_of_parameters_has_paths_by_position() -> None:
    model = Holder(p=nn.ParameterList([torch.zeros(1), torch.zeros(2)]))
    report = mapper.load_weights(model, {"p": [torch.ones(1), torch.ones(2)]})
    assert report.loaded == ["p.0", "p.1"]


def test_a_dict_of_parameters_has_paths_by_name() -> None:
    model = Holder(p=nn.ParameterDict({"left": torch.zeros(1), "right": torch.zeros(2)}))
    assert mapper.load_weights(model, {"p": {"right": torch.ones(2), "left": torch.ones(1)}}).ok
    assert model.p["right"].tolist() == [1, 1]


def test_a_dict_of_modules_has_paths_by_name() -> None:
    model = Holder(m=nn.ModuleDict({"0": nn.Linear(1, 1, bias=False), "ReLU": nn.ReLU()}))
    assert mapper.load_weights(model, {"m.0.weight": torch.ones(1, 1)}).loaded == ["m.0.weight"]


def test_assignment_reaches_lists_and_dicts_of_parameters() -> None:
    model = Holder(a=nn.ParameterList([torch.zeros(1)]), b=nn.ParameterDict({"x": torch.zeros(2)}))
    mapper.load_weights(model, {"a": [torch.ones(1)], "b": {"x": torch.ones(2)}}, assign=True)
    assert model.a[0].tolist() == [1] and model.b["x"].tolist() == [1, 1]
    assert all(isinstance(parameter, nn.Parameter) for parameter in model.parameters())


def test_parameters_and_children_at_one_level_are_all_loaded() -> None:
    model = Holder(scale=nn.Parameter(torch.zeros(2)), layer=nn.Linear(1, 1), table=torch.zeros(3))
    source = filled(Holder(scale=nn.Parameter(torch.zeros(2)), layer=nn.Linear(1, 1), table=torch.zeros(3)))
    mapper.load_weights(model, source)
    assert {key: bits(value) for key, value in model.state_dict().items()} == {
        key: bits(value) for key, value in source.state_dict().items()
    }


def test_a_transformer_of_torch_is_loaded_whole() -> None:
    model, source = (nn.Transformer(4, 2, 1, 1, 8, batch_first=True) for _ in range(2))
    assert mapper.load_weights(zeroed(model), source).loaded == list(source.state_dict())
    assert same_states(model, source)
