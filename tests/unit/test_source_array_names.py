"""Arrays of a network under the names that Keras, TensorFlow, Haiku or a program of one's own gave them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mapper

RELU = {"chain.activation": "relu", "chain.output": "none"}
MAPS = {**RELU, "chain.stride": 1, "chain.padding": 0, "chain.pooling": "max_2", "chain.reduction": "mean"}


def convolutional() -> nn.Sequential:
    pooled = [nn.ReLU(), nn.MaxPool2d(2)]
    ends = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)]
    return nn.Sequential(nn.Conv2d(2, 4, 3), *pooled, nn.Conv2d(4, 6, 3), *pooled, *ends)


def perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 3))


def layers(net: nn.Sequential) -> list[nn.Module]:
    return [layer for layer in net if list(layer.parameters())]


def channels_last(weight: torch.Tensor) -> torch.Tensor:
    return weight.t() if weight.dim() == 2 else weight.permute(*range(2, weight.dim()), 1, 0)


def keras(net):
    names = ("conv2d", "conv2d_1", "dense", "dense_1")
    for name, layer in zip(names, layers(net), strict=True):
        yield f"{name}/{name}/kernel:0", channels_last(layer.weight)
        yield f"{name}/{name}/bias:0", layer.bias


def slim(net):
    for name, layer in zip(("conv1", "conv2", "fc1", "fc2"), layers(net), strict=True):
        yield f"{name}/weights", channels_last(layer.weight)
        yield f"{name}/biases", layer.bias


def haiku(net):
    for number, layer in enumerate(layers(net)):
        yield f"mlp/~/linear_{number}/w", layer.weight.t()
        yield f"mlp/~/linear_{number}/b", layer.bias


def flat(net):
    for number, layer in enumerate(layers(net), 1):
        yield f"layer{number}_weight", layer.weight
        yield f"layer{number}_bias", layer.bias


def flat_channels_last(net):
    for number, layer in enumerate(layers(net), 1):
        yield f"layer{number}_w", channels_last(layer.weight)
        yield f"layer{number}_b", layer.bias


def listed(net):
    for number, layer in enumerate(layers(net)):
        yield f"weights.{number}", layer.weight
        yield f"biases.{number}", layer.bias[:, None]


def in_turn(net):
    for number, array in enumerate(each for layer in layers(net) for each in (layer.weight, layer.bias)):
        yield f"arr_{number}", array


NAMED = [
    (keras, convolutional, MAPS), (slim, convolutional, MAPS), (flat, convolutional, MAPS), (flat_channels_last, convolutional, MAPS),
    (in_turn, convolutional, MAPS), (haiku, perceptron, RELU), (flat, perceptron, RELU), (listed, perceptron, RELU),
    (in_turn, perceptron, RELU),
]  # fmt: skip


@pytest.mark.parametrize(("names", "network", "answers"), NAMED)
def test_outputs_are_those_of_the_network(tmp_path: Path, names, network, answers) -> None:
    torch.manual_seed(0)
    net = network()
    np.savez(tmp_path / "x.npz", **{name: array.detach().numpy() for name, array in names(net)})
    inputs = torch.rand(2, 2, 14, 14) if network is convolutional else torch.rand(2, 7)
    built = mapper.build(tmp_path / "x.npz", hints=answers)
    torch.testing.assert_close(built(inputs).output, net(inputs))


def test_a_list_of_weights_in_a_torch_file_is_asked_about(tmp_path: Path) -> None:
    torch.save(dict(listed(perceptron())), tmp_path / "x.pth")
    asked = {question.fact for question in mapper.inspect(tmp_path / "x.pth").architecture.questions}
    assert asked == {"chain.activation", "chain.output"}, "no number of a list says that nothing lies between"


@pytest.mark.parametrize("both", [False, True])
def test_a_recurrent_layer_of_keras_has_one_bias(tmp_path: Path, both: bool) -> None:
    torch.manual_seed(0)
    layer, last = nn.LSTM(4, 6, bidirectional=both, batch_first=True), nn.Linear(12 if both else 6, 2)
    arrays = {"dense/kernel": last.weight.t(), "dense/bias": last.bias}
    for end, path in (
        {"": "forward_lstm", "_reverse": "backward_lstm"}.items() if both else {"": "lstm"}.items()
    ):
        own = {
            name: getattr(layer, f"{name}_l0{end}")
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        }
        nn.init.zeros_(own["bias_hh"])
        folder = f"bidirectional/{path}/lstm_cell" if both else f"{path}/lstm_cell"
        arrays |= {
            f"{folder}/kernel": own["weight_ih"].t(),
            f"{folder}/recurrent_kernel": own["weight_hh"].t(),
        }
        arrays[f"{folder}/bias"] = own["bias_ih"]
    np.savez(tmp_path / "x.npz", **{name: array.detach().numpy() for name, array in arrays.items()})
    inputs = torch.rand(2, 5, 4)
    model = mapper.build(tmp_path / "x.npz", hints={"chain.positions": "all", "chain.output": "none"})
    torch.testing.assert_close(model(inputs).output, last(layer(inputs)[0]))


def test_three_gates_stand_in_another_order_and_are_not_read(tmp_path: Path) -> None:
    arrays = {
        "gru/kernel": np.ones((4, 18)),
        "gru/recurrent_kernel": np.ones((6, 18)),
        "gru/bias": np.ones((2, 18)),
    }
    np.savez(tmp_path / "x.npz", **arrays)
    assert mapper.inspect(tmp_path / "x.npz").architecture.reading == "skeleton"


def test_running_statistics_may_stand_in_a_list_of_their_own(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
    nn.init.uniform_(net[1].running_var)
    nn.init.uniform_(net[1].running_mean)
    arrays = {f"vars.{number}": array.detach() for number, array in enumerate(net.parameters())}
    arrays |= {"vars_bn.0": net[1].running_mean, "vars_bn.1": net[1].running_var}
    torch.save(arrays, tmp_path / "x.pth")
    answers = {**MAPS, "chain.pooling": "none", "chain.reduction": "flatten", "norm.eps": 1e-5}
    model = mapper.build(tmp_path / "x.pth", hints={**answers, "chain.activation_before_norm": False})
    inputs = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(model(inputs).output, net.eval()(inputs))


def test_two_vectors_behind_a_map_may_be_a_bias_and_slopes_and_are_not_read(tmp_path: Path) -> None:
    shapes = {"vars.0": (4, 3), "vars.1": (4,), "vars.2": (4,), "vars.3": (2, 4), "vars.4": (2,)}
    torch.save({name: torch.ones(shape) for name, shape in shapes.items()}, tmp_path / "x.pth")
    assert mapper.inspect(tmp_path / "x.pth").architecture.reading == "skeleton"


def test_parameters_beside_modules_keep_their_names(tmp_path: Path) -> None:
    tensors = {"word_weight": torch.ones(4, 4), "word_bias": torch.ones(4), "fc.weight": torch.ones(2, 4)}
    torch.save(tensors, tmp_path / "x.pth")
    assert set(mapper.inspect(tmp_path / "x.pth").architecture.checkpoint.tensors) == set(tensors)


def test_a_map_to_one_number_may_be_a_vector(tmp_path: Path) -> None:
    first, last = torch.randn(5, 9), torch.randn(5)
    np.savez(tmp_path / "x.npz", W1=first.numpy(), W2=last.numpy())
    model, inputs = (
        mapper.build(tmp_path / "x.npz", hints={**RELU, "chain.output": "sigmoid"}),
        torch.rand(2, 9),
    )
    wanted = torch.sigmoid(F.relu(inputs @ first.t()) @ last)
    torch.testing.assert_close(model(inputs).output[:, 0], wanted)
