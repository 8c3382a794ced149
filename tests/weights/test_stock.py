from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from mapper.errors import FormatError
from mapper.weights.stock.described import module_from_stock
from mapper.weights.stock.layers import stock_data
from tests.weights.layers import LAYERS, LAZY, NONE, layer


def again(model: nn.Module) -> nn.Module:
    """The model from its description, after a way through JSON, with the states of `model`."""
    data = stock_data(model)
    assert data is not None
    made = module_from_stock(json.loads(json.dumps(data)))
    assert all(tensor.is_meta for tensor in [*made.parameters(), *made.buffers()])
    made.load_state_dict(model.state_dict(), assign=True)
    return made


def facts(model: nn.Module) -> Any:
    """Everything that a module says of itself, and what it holds."""
    return [
        (
            path,
            type(module),
            module.extra_repr(),
            {
                name: value
                for name, value in vars(module).items()
                if not name.startswith("_")
                and name != "training"
                and not isinstance(value, (nn.Module, torch.Tensor))
            },
            {name: None if value is None else value.shape for name, value in module._parameters.items()},
            {name: None if value is None else value.shape for name, value in module._buffers.items()},
        )
        for path, module in model.named_modules(remove_duplicate=False)
    ]


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_comes_back_with_all_its_settings(name: str) -> None:
    model = layer(name)
    made = again(nn.Sequential(model))[0]
    assert facts(made) == facts(model)
    for key, tensor in model.state_dict().items():
        assert torch.equal(made.state_dict()[key], tensor)


def test_no_layer_is_forgotten() -> None:
    exported = {name for name in nn.modules.__all__ if isinstance(getattr(nn, name), type)}
    exported = {name for name in exported if issubclass(getattr(nn, name), nn.Module)}
    lazy = {name for name in exported if name.startswith("Lazy")}
    had = {name.partition(" ")[0].rstrip(",") for name in LAYERS}
    assert exported - lazy - NONE.keys() == had & exported
    assert LAZY
    assert all(stock_data(nn.Sequential(layer)) is None for layer in (nn.LazyLinear(3), nn.ParameterList()))


def test_a_lazy_layer_that_has_run_is_a_layer() -> None:
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    model(torch.ones(2, 5))
    assert again(model)[0].in_features == 5


def test_the_bias_of_a_bare_layer_and_names_and_nesting_stay() -> None:
    model = nn.Sequential()
    model.add_module("first", nn.Linear(2, 3, bias=False))
    model.add_module("deeper", nn.Sequential(nn.ModuleList([nn.Linear(3, 3)]), nn.Sequential()))
    made = again(model)
    assert repr(made) == repr(model)
    assert repr(again(nn.Linear(2, 3, bias=False))) == repr(nn.Linear(2, 3, bias=False))


def test_values_and_states_that_were_changed_after_the_constructor_stay() -> None:
    model = nn.Sequential(nn.Dropout(0.1), nn.BatchNorm1d(3), nn.Conv1d(3, 3, 3, padding=1), nn.Linear(4, 5))
    model[0].p = 0.75
    model[1].momentum = None
    model[1].bias = None
    model[2].padding_mode = "circular"
    model[3].weight = nn.Parameter(torch.ones(2, 4))
    model[3].bias = None
    model.note = "mine"
    made = again(model)
    assert facts(made) == facts(model)
    x = torch.randn(2, 3, 4)
    assert torch.equal(made.eval()(x), model.eval()(x))


def test_a_part_of_a_layer_that_was_exchanged_stays() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
    model.layers[1].dropout1 = nn.Identity()
    model.layers[0].norm1 = nn.RMSNorm(8)
    made = again(model).eval()
    assert repr(made) == repr(model)
    x = torch.randn(2, 3, 8)
    assert torch.equal(made(x), model.eval()(x))


def test_one_module_at_two_paths_is_one_again() -> None:
    shared = nn.Linear(3, 3)
    model = nn.Sequential(shared, nn.ReLU(), nn.Sequential(shared, shared))
    made = again(model)
    assert made[0] is made[2][0] is made[2][1]
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
    encoder.layers[1] = encoder.layers[0]
    made = again(nn.Sequential(encoder))
    assert made[0].layers[0] is made[0].layers[1]


def test_recurrent_layers_run_on_the_states_they_were_given() -> None:
    model = nn.LSTM(3, 4, 2, batch_first=True)
    x = torch.randn(2, 5, 3)
    assert torch.equal(again(model)(x)[0], model(x)[0])


class Mine(nn.Linear):
    pass


def with_hook(model: nn.Module) -> nn.Module:
    model.register_forward_hook(lambda *_: None)
    return model


def with_value(model: nn.Module, name: str, value: object) -> nn.Module:
    setattr(model, name, value)
    return model


def with_itself() -> nn.Module:
    model = nn.Sequential(nn.ReLU())
    model.append(model)
    return model


@pytest.mark.parametrize(
    "model",
    [
        Mine(2, 2),
        nn.Sequential(nn.Sequential(Mine(2, 2))),
        with_hook(nn.ReLU()),
        nn.Sequential(with_hook(nn.ReLU())),
        with_hook(nn.Sequential(nn.Linear(2, 2))),
        with_value(nn.Linear(2, 2), "forward", torch.relu),
        with_value(nn.Linear(2, 2), "extra", object()),
        with_value(nn.Linear(2, 2), "extra", nn.Parameter(torch.ones(1))),
        with_value(nn.Linear(2, 2), "child", nn.ReLU()),
        with_value(nn.TransformerEncoderLayer(8, 2, 16), "activation", lambda x: x),
        nn.Sequential(parametrizations.weight_norm(nn.Linear(2, 2))),
        nn.ParameterList([torch.ones(1)]),
        nn.Module(),
        with_itself(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_anything_else_has_no_description(model: nn.Module) -> None:
    assert stock_data(model) is None


def test_a_hook_on_a_part_of_a_layer_is_seen() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16)
    with_hook(model.self_attn.out_proj)
    assert stock_data(model) is None


def test_a_model_that_was_compiled_in_place_is_what_it_was() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    model.compile(backend="eager")
    assert repr(again(model)) == repr(model)


def test_describing_changes_nothing() -> None:
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16), nn.LSTM(3, 4)).eval()
    before = copy.deepcopy(model)
    random = torch.get_rng_state()
    stock_data(model)
    assert torch.equal(torch.get_rng_state(), random)
    assert repr(model) == repr(before)
    assert not any(module.training for module in model.modules())


LINEAR = {"class": "Linear", "settings": {"in_features": 2, "out_features": 3}}


@pytest.mark.parametrize(
    "data",
    [
        [],
        {},
        {"class": 3},
        {"class": "os.system"},
        {"class": "Module"},
        {"class": "DataParallel", "settings": {"module": LINEAR}},
        {"class": "Linear"},
        {"class": "Linear", "settings": []},
        {"class": "Linear", "settings": {"in_features": "2", "out_features": 3}},
        {"class": "Linear", "settings": {"in_features": 2**62, "out_features": 2**62}},
        {"class": "Linear", "settings": {"in_features": 2, "out_features": 3, "device": "cuda"}},
        {"class": "Linear", "settings": {"in_features": 2, "out_features": {"function": "os.system"}}},
        {"class": "Linear", "settings": {"in_features": 2, "out_features": {"float": "1e5"}}},
        {"class": "Linear", "settings": {"in_features": {"dict": [[{"list": []}, 1]]}, "out_features": 1}},
        {"class": "Linear", "settings": {"in_features": {"dict": 3}, "out_features": 1}},
        {"class": "LSTM", "settings": {"input_size": 2, "hidden_size": 2, "num_layers": 10**9}},
        {
            "class": "TransformerEncoder",
            "settings": {
                "encoder_layer": {
                    "module": {"class": "TransformerEncoderLayer", "settings": {"d_model": 4, "nhead": 2}}
                },
                "num_layers": 10**9,
            },
        },
        {"class": "Sequential", "children": {"0": {"same": "1"}}},
        {"class": "Sequential", "children": {"0": {"same": ""}}},
        {"class": "Linear", "settings": {"in_features": 2, "out_features": 2**63}},
        {"class": "Sequential", "children": {"forward": LINEAR}},
        {"class": "Sequential", "children": {"_modules": LINEAR}},
        {"class": "Sequential", "children": {"": LINEAR}},
        {"class": "Sequential", "children": {"a.b": LINEAR}},
        {"class": "Sequential", "children": [LINEAR]},
        {**LINEAR, "children": {"a": LINEAR}},
        {**LINEAR, "attributes": {"forward": "x"}},
        {**LINEAR, "attributes": {"__class__": "x"}},
        {**LINEAR, "attributes": {"_modules": {"dict": []}}},
        {**LINEAR, "attributes": {"a b": 1}},
        {**LINEAR, "none": ["other"]},
        {**LINEAR, "none": [["weight"]]},
        {**LINEAR, "shapes": {"weight": [-1]}},
        {**LINEAR, "shapes": {"weight": [2**47, 2**47]}},
        {**LINEAR, "shapes": {"other": [1]}},
    ],
    ids=lambda data: json.dumps(data)[:60],
)
def test_a_description_that_mapper_did_not_write_is_refused(data: Any) -> None:
    with pytest.raises(FormatError) as caught:
        module_from_stock(data, 100)
    assert "\n" not in str(caught.value)


def test_a_deep_description_is_refused() -> None:
    data: dict[str, Any] = LINEAR
    for _ in range(5000):
        data = {"class": "Sequential", "children": {"0": data}}
    with pytest.raises(FormatError, match="deep"):
        module_from_stock(data)


def repeated(data: dict[str, Any], count: int) -> dict[str, Any]:
    settings = {"encoder_layer": {"module": data}, "num_layers": count, "enable_nested_tensor": False}
    return {"class": "TransformerEncoder", "settings": settings}


def test_layers_that_repeat_layers_are_bounded_together() -> None:
    data: dict[str, Any] = {"class": "Identity"}
    for _ in range(4):
        data = repeated(data, 90)
    with pytest.raises(FormatError, match="repeats layers"):
        module_from_stock(data, 100)


def test_a_module_shared_by_shared_modules_is_bounded() -> None:
    doubled = {str(at): {"class": "Sequential", "children": {
        "0": {"same": str(at - 1)}, "1": {"same": str(at - 1)}}} for at in range(1, 40)}  # fmt: skip
    with pytest.raises(FormatError, match="repeats layers"):
        module_from_stock({"class": "Sequential", "children": {"0": {"class": "Identity"}, **doubled}})


def test_powers_of_settings_are_bounded() -> None:
    settings = {"in_features": 8, "n_classes": 10**7, "cutoffs": [*range(1, 4000)], "div_value": 2**62}
    with pytest.raises(FormatError, match="repeats layers"):
        module_from_stock({"class": "AdaptiveLogSoftmaxWithLoss", "settings": settings}, 10_000)


def test_a_claimed_size_takes_no_memory() -> None:
    model = module_from_stock({"class": "Linear", "settings": {"in_features": 2**20, "out_features": 2**20}})
    assert model.weight.is_meta
