"""Networks that sizes allow to be read another way than they are called: in another order, or with less than is read."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

import mapper
from mapper.errors import MapperError
from tests.unit.test_chains_in_wheels import Net

PLAIN = {"chain.stride": 1, "chain.padding": "half", "chain.pooling": "none", "chain.output": "none"}


def conv(inputs, outputs, kernel=3):
    return lambda: nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)


def linear(inputs, outputs):
    return lambda: nn.Linear(inputs, outputs)


def larger():
    """Channels that become places twice between layers, and the input made as large by lines (SRResNet, 1609.04802)."""

    def forward(s, x):
        y = F.relu(s.conv_first(x))
        for layer in (s.upconv1, s.upconv2):
            y = F.relu(F.pixel_shuffle(layer(y), 2))
        return s.conv_last(F.relu(s.conv_hr(y))) + F.interpolate(x, scale_factor=4, mode="bilinear")

    net = Net(
        forward, conv_first=conv(3, 8), upconv1=conv(8, 32), upconv2=conv(8, 32), conv_hr=conv(8, 8),
        conv_last=conv(8, 3),
    )  # fmt: skip
    answers = PLAIN | {"chain.activation": "relu", "chain.shuffle": 2, "chain.skip": "added_bilinear"}
    return net, answers, (torch.rand(1, 3, 5, 6),)


def decoder_first():
    """A decoder that is defined before its encoder, and a spread before a mean."""

    def forward(s, x):
        read = F.relu(s.encoder["0"](x))
        mean = s.encoder["embedding"](read)
        return torch.sigmoid(s.decoder["1"](F.relu(s.decoder["0"](mean))))

    net = Net(
        forward,
        decoder=lambda: nn.ModuleDict({"0": nn.Linear(3, 8), "1": nn.Linear(8, 12)}),
        encoder=lambda: nn.ModuleDict(
            {"0": nn.Linear(12, 8), "log_var": nn.Linear(8, 3), "embedding": nn.Linear(8, 3)}
        ),
    )
    answers = {
        "chain.activation": "relu",
        "chain.output": "none",
        "decoder.1:chain.output": "sigmoid",
        "decoder.0:chain.activation": "relu",
    }
    return net, answers, (torch.rand(2, 12),)


def translated():
    """A decoder that begins in the last state of an encoder (1406.1078)."""

    def forward(s, source, target):
        _, state = s.encoder["rnn"](s.encoder["embedding"](source))
        return s.decoder["out"](s.decoder["rnn"](s.decoder["embedding"](target), state)[0])

    def part(words, **more):
        return lambda: nn.ModuleDict(
            {"embedding": nn.Embedding(words, 4), "rnn": nn.GRU(4, 6, batch_first=True), **more}
        )

    net = Net(forward, encoder=part(9), decoder=part(7, out=nn.Linear(6, 7)))
    answers = {
        "decoder.rnn:chain.state": "encoder.rnn",
        "chain.inputs": "encoder_embedding_ids, decoder_embedding_ids",
        "chain.positions": "all",
        "chain.output": "none",
    }
    return net, answers, (torch.tensor([[1, 8, 3]]), torch.tensor([[6, 0]]))


def conditional():
    """A variational autoencoder that reads a class beside the data, and beside the mean (a conditional one)."""

    def forward(s, x, label):
        mean = s.fc21(F.elu(s.fc1(torch.cat((x, label), 1))))
        return s.fc4(F.elu(s.fc3(torch.cat((mean, label), 1))))

    net = Net(
        forward, fc1=linear(12 + 2, 8), fc21=linear(8, 3), fc22=linear(8, 3), fc3=linear(3 + 2, 8), fc4=linear(8, 12),
    )  # fmt: skip
    answers = {
        "fc1:chain.reads": "inputs & inputs_2", "fc21:chain.reads": "fc1", "fc22:chain.reads": "fc1",
        "fc3:chain.reads": "fc21 & inputs_2", "chain.gives": "fc4", "chain.inputs": "inputs, inputs_2",
        "chain.activation": "elu", "fc21:chain.activation": "none", "chain.output": "none",
    }  # fmt: skip
    return net, answers, (torch.rand(2, 12), torch.rand(2, 2))


def shortcut():
    """A block whose shortcut has a norm that stands before its convolution in the order of names alone."""

    def forward(s, x):
        x = F.relu(s.norm(s.conv(x)))
        y = s.block["bn2"](s.block["conv2"](F.relu(s.block["bn1"](s.block["conv1"](x)))))
        return F.relu(y + s.block["shortcut"]["bn"](s.block["shortcut"]["conv"](x)))

    def block():
        inner = nn.ModuleDict({"conv": nn.Conv2d(4, 4, 1), "bn": nn.BatchNorm2d(4)})
        plain = {
            "conv1": conv(4, 4)(),
            "bn1": nn.BatchNorm2d(4),
            "conv2": conv(4, 4)(),
            "bn2": nn.BatchNorm2d(4),
        }
        return nn.ModuleDict({**plain, "shortcut": inner})

    net = Net(forward, conv=conv(3, 4), norm=lambda: nn.BatchNorm2d(4), block=block)
    answers = PLAIN | {"chain.activation": "relu", "chain.activation_before_norm": False}
    answers |= {"chain.residual": "before_activation", "chain.output": "relu"}
    return net, answers, (torch.rand(1, 3, 5, 5),)


def columns():
    """Tables of columns, with numbers beside them that are no table's."""

    def forward(s, one, other, numbers):
        x = torch.cat((s.emb_layer_a(one), s.emb_layer_b(other), numbers), -1)
        return s.dense_1(F.relu(s.dense_0(x)))

    net = Net(
        forward, emb_layer_a=lambda: nn.Embedding(9, 3), emb_layer_b=lambda: nn.Embedding(7, 2),
        dense_0=linear(3 + 2 + 4, 5), dense_1=linear(5, 1),
    )  # fmt: skip
    answers = {
        "dense_0:chain.reads": "emb_layer_a & emb_layer_b & inputs",
        "chain.activation": "relu",
        "chain.output": "none",
        "chain.inputs": "emb_layer_a_ids, emb_layer_b_ids, inputs",
    }
    return net, answers, (torch.tensor([1, 8]), torch.tensor([6, 0]), torch.rand(2, 4))


CASES = [larger, decoder_first, translated, conditional, shortcut, columns]


def varied(net: nn.Module) -> nn.Module:
    """The network with statistics and scales of its own."""
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if name.endswith(("running_mean", "running_var")) or (
                name.endswith("weight") and tensor.dim() == 1
            ):
                tensor.copy_(torch.rand_like(tensor) + 0.5)
    return net.eval()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["model.safetensors", "model.pth"])
def test_outputs_are_equal_when_it_is_told(tmp_path, case, kind) -> None:
    net, answers, inputs = case()
    state, path = varied(net).state_dict(), tmp_path / kind
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    model = mapper.build(path, hints=answers)
    with torch.no_grad():
        made, wanted = model(*inputs), net(*inputs)
    values = (
        made if isinstance(made, torch.Tensor) else vars(made).get("output", next(iter(vars(made).values())))
    )
    torch.testing.assert_close(values, wanted)


ASKED = [  # what sizes leave open, that was silent
    (translated, "chain.state", "decoder.rnn"),
    (conditional, "chain.reads", "fc3"),
    (columns, "chain.reads", "dense_0"),
]


@pytest.mark.parametrize(("case", "fact", "place"), ASKED)
def test_what_may_be_read_beside_is_asked(tmp_path, case, fact, place) -> None:
    save_file(case()[0].state_dict(), tmp_path / "model.safetensors")
    asked = mapper.inspect(tmp_path / "model.safetensors").architecture.questions
    assert f"{place}:{fact}" in [question.name for question in asked]


def test_a_list_of_layers_is_called_in_its_order(tmp_path) -> None:
    """A block of N-BEATS (1905.10437): sizes alone would have `theta` begin, and `fc` read what comes of it."""
    torch.manual_seed(2)
    layers = {
        "theta_f": nn.Linear(6, 2), "backcast": nn.Linear(2, 5), "fc.0": nn.Linear(5, 6), "fc.2.1": nn.Linear(6, 6),
        "theta_b": nn.Linear(6, 2), "forecast": nn.Linear(2, 3),
    }  # fmt: skip
    state = {
        f"{name}.{key}": value for name, layer in layers.items() for key, value in layer.state_dict().items()
    }
    torch.save(
        {key: state[key] for key in sorted(state, key=lambda key: not key.startswith("fc"))},
        tmp_path / "a.pth",
    )
    asked = mapper.inspect(tmp_path / "a.pth").architecture.questions
    assert "chain.reads" in {question.fact for question in asked}


def test_a_state_of_another_width_is_refused(tmp_path) -> None:
    net, answers, _ = translated()
    save_file(net.state_dict(), tmp_path / "model.safetensors")
    with pytest.raises(MapperError, match=r"possible here: encoder\.rnn, none"):
        mapper.build(
            tmp_path / "model.safetensors", hints=answers | {"decoder.rnn:chain.state": "decoder.out"}
        )


GRAPHS = {  # layers that read the neighbours in a graph, which no tensor shows
    "of its own": {"gc1.weight": (12, 8), "gc1.bias": (8,), "gc2.weight": (8, 3), "gc2.bias": (3,)},
    "a network inside": {
        "conv1.nn.0.weight": (8, 12), "conv1.nn.0.bias": (8,), "conv1.nn.2.weight": (8, 8), "conv1.nn.2.bias": (8,),
        "lin.weight": (3, 8), "lin.bias": (3,),
    },
}  # fmt: skip


@pytest.mark.parametrize("shapes", GRAPHS.values(), ids=GRAPHS)
def test_convolutions_of_a_graph_are_no_chain_of_linear_layers(shapes) -> None:
    found = mapper.inspect({name: torch.zeros(shape) for name, shape in shapes.items()}).architecture
    assert found.reading == "skeleton"
    plain = {
        name.replace("gc", "fc").replace("conv", "fc"): torch.zeros(shape) for name, shape in shapes.items()
    }
    assert mapper.inspect(plain).architecture.reading == "unverified"
