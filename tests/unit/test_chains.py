"""Small networks that no family knows: read as a chain of layers, and equal to what torch computes once all is answered."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import mapper
from mapper._trial import made_up_inputs
from mapper.errors import HintError


def sequential(*layers):
    torch.manual_seed(0)
    model = nn.Sequential(*layers)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name.endswith(("running_mean", "running_var")):
                tensor.copy_(torch.rand(tensor.shape) + 0.5)
    return model.eval()


class Named(nn.Module):
    """Layers by names, called in the order of `forward`."""

    def __init__(self, forward, **layers):
        super().__init__()
        torch.manual_seed(0)
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.call = forward

    def forward(self, x):
        return self.call(self, x)


def lenet():
    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = torch.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))

    layers = {"conv1": nn.Conv2d(1, 4, 5), "conv2": nn.Conv2d(4, 6, 5)}
    return Named(forward, **layers, fc1=nn.Linear(96, 10), fc2=nn.Linear(10, 3)), torch.randn(2, 1, 28, 28)


def u_net():
    def twice(size, out):
        one, other = nn.Conv2d(size, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        return nn.Sequential(one, nn.BatchNorm2d(out), nn.ReLU(), other, nn.ReLU())

    def forward(self, x):
        first = self.inc(x)
        second = self.down1(torch.max_pool2d(first, 2))
        x = self.up1(self.down2(torch.max_pool2d(second, 2)))
        x = self.up2(self.conv1(torch.cat((second, x), 1)))
        return self.out(self.conv2(torch.cat((first, x), 1)))

    layers = {
        "inc": twice(1, 4),
        "down1": twice(4, 4),
        "down2": twice(4, 8),
    }  # widths alone do not tell which maps
    layers |= {"up1": nn.ConvTranspose2d(8, 4, 2, 2), "conv1": twice(8, 4)}
    layers |= {"up2": nn.ConvTranspose2d(4, 4, 2, 2), "conv2": twice(8, 4), "out": nn.Conv2d(4, 1, 1)}
    return Named(forward, **layers).eval(), torch.randn(1, 1, 8, 12)


def vae():
    """The mean and the spread of paper 1312.6114, numbered as in torch's own example: `fc21` and `fc22` are the second."""

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        mean, spread = self.fc21(x), self.fc22(x)
        return torch.sigmoid(self.fc4(torch.relu(self.fc3(mean)))), mean, spread

    sizes = {"fc1": (9, 6), "fc21": (6, 3), "fc22": (6, 3), "fc3": (3, 6), "fc4": (6, 9)}
    return Named(forward, **{name: nn.Linear(*size) for name, size in sizes.items()}), torch.randn(2, 9)


def dueling():
    def forward(self, x):
        x = torch.relu(self.features(x)).flatten(1)
        value, advantage = self.value(x), self.advantage(x)
        return value + advantage - advantage.mean(1, keepdim=True), advantage, value

    def head(outputs):
        return nn.Sequential(nn.Linear(4 * 9, 5), nn.ReLU(), nn.Linear(5, outputs))

    layers = {"features": nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 3))}
    return Named(forward, **layers, advantage=head(4), value=head(1)), torch.randn(2, 2, 7, 7)


def two_branches():
    """Detectors and descriptors by letters alone, which sizes would also allow as a chain of grouped convolutions."""

    def forward(self, x):
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        found = self.convDb(torch.relu(self.convDa(x)))
        return nn.functional.normalize(found, dim=1), self.convPb(torch.relu(self.convPa(x)))

    layers = {"conv1": nn.Conv2d(1, 4, 3, padding=1), "conv2": nn.Conv2d(4, 4, 3, padding=1)}
    layers |= {"convDa": nn.Conv2d(4, 8, 3, padding=1), "convDb": nn.Conv2d(8, 8, 1)}
    layers |= {"convPa": nn.Conv2d(4, 8, 3, padding=1), "convPb": nn.Conv2d(8, 5, 1)}
    return Named(forward, **layers), torch.randn(1, 1, 6, 6)


def named_block():
    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = x + self.res1(x)
        return self.fc(x.mean((2, 3)))

    def block():
        return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())

    layers = {"conv1": nn.Conv2d(1, 4, 3, padding=1), "res1": nn.Sequential(block(), block())}
    return Named(forward, **layers, fc=nn.Linear(4, 2)), torch.randn(1, 1, 6, 6)


def tagger():
    def forward(self, x):
        return self.fc(self.lstm(self.embedding(x))[0])

    lstm = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)
    return Named(forward, fc=nn.Linear(10, 7), lstm=lstm, embedding=nn.Embedding(9, 6)), torch.arange(6)[None]


def speaker():
    def forward(self, x):
        states = self.gru(x)[1]
        return nn.functional.normalize(self.linear(torch.cat((states[-2], states[-1]), dim=-1)), dim=-1)

    gru = nn.GRU(4, 5, 2, batch_first=True, bidirectional=True)
    return Named(forward, gru=gru, linear=nn.Linear(10, 3)), torch.randn(2, 7, 4)


def restored():
    layers = [nn.Conv2d(3, 6, 3, padding=1), nn.PReLU(6), nn.Conv2d(6, 12, 3, padding=1), nn.PixelShuffle(2)]
    body = sequential(*layers[:3])

    def forward(self, x):
        return nn.functional.pixel_shuffle(self.body(x), 2) + nn.functional.interpolate(x, scale_factor=2)

    return Named(forward, body=body), torch.randn(1, 3, 5, 6)


def generator():
    return sequential(
        nn.ConvTranspose2d(5, 4, 4, 2, 1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.ConvTranspose2d(4, 1, 2, 2),
        nn.Tanh(),
    ), torch.randn(2, 5, 3, 3)


def recognizer():
    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.bn(self.conv(x))), 2)
        x = x.permute(0, 3, 1, 2).flatten(2)
        return nn.functional.log_softmax(self.out(self.rnn(x)[0]), dim=-1)

    rnn = nn.LSTM(4 * 5, 6, batch_first=True, bidirectional=True)
    layers = {"conv": nn.Conv2d(1, 4, 3, padding=1), "bn": nn.BatchNorm2d(4), "rnn": rnn}
    return Named(forward, **layers, out=nn.Linear(12, 8)).eval(), torch.randn(1, 1, 10, 12)


def words():
    return sequential(
        nn.Conv1d(4, 6, 3, stride=2, padding=1), nn.ReLU(), nn.Conv1d(6, 6, 3, stride=2, padding=1, groups=6),
        nn.ReLU(), nn.Conv1d(6, 5, 1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(5, 2),
    ), torch.randn(2, 4, 16)  # fmt: skip


def finder():
    """Slopes, a window that reaches beyond the maps, features in reverse order of their axes, two heads."""

    def forward(self, x):
        x = nn.functional.max_pool2d(self.prelu1(self.conv1(x)), 3, 2, ceil_mode=True)
        x = self.prelu2(self.dense(x.permute(0, 3, 2, 1).flatten(1)))
        return torch.softmax(self.head_1(x), 1), self.head_2(x)

    layers = {
        "conv1": nn.Conv2d(3, 4, 3),
        "prelu1": nn.PReLU(4),
        "dense": nn.Linear(64, 5),
        "prelu2": nn.PReLU(5),
    }
    return Named(forward, **layers, head_1=nn.Linear(5, 2), head_2=nn.Linear(5, 4)), torch.randn(2, 3, 10, 10)


def frames():
    """A convolution over each frame, an LSTM over the frames."""

    def forward(self, x):
        y = torch.max_pool1d(torch.relu(self.conv(x.flatten(0, 1).unsqueeze(1))), 2).flatten(1)
        return self.out(self.lstm(torch.tanh(self.fc(y)).unflatten(0, x.shape[:2]))[0])

    layers = {"conv": nn.Conv1d(1, 2, 5), "fc": nn.Linear(2 * 4, 6), "lstm": nn.LSTM(6, 5, batch_first=True)}
    return Named(forward, **layers, out=nn.Linear(5, 3)), torch.randn(2, 3, 12)


def cells():
    """Cells over each position, the last of an encoder repeated for a decoder."""

    def forward(self, x):
        state = None
        for step in x.unbind(1):
            state = self.enc_cell(step, state)
        found, other = [], None
        for _ in x.unbind(1):
            other = self.dec_cell(state, other)
            found.append(other[0])
        return self.out(torch.stack(found, 1))

    layers = {"enc_cell": nn.GRUCell(3, 5), "dec_cell": nn.LSTMCell(5, 4, bias=False)}
    return Named(forward, **layers, out=nn.Linear(4, 2)), torch.randn(2, 6, 3)


class Block(nn.Module):
    """Norms that are defined after the convolutions that they stand between."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.bn1, self.bn2 = nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, x):
        y = self.bn2(self.conv2(nn.functional.leaky_relu(self.bn1(self.conv1(x)), 0.3)))
        return nn.functional.leaky_relu(x + y, 0.3)


def residual():
    def forward(self, x):
        x = nn.functional.leaky_relu(self.first(x), 0.3)
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean((2, 3)))

    layers = {"first": nn.Conv2d(3, 4, 3, padding=1), "blocks": nn.ModuleList([Block(), Block()])}
    return Named(forward, **layers, fc=nn.Linear(4, 2)).eval(), torch.randn(2, 3, 6, 6)


class Causal(nn.Module):
    """Convolutions over what came before, added between two activations; the input widened by a layer of its own."""

    def __init__(self, inputs, outputs, step):
        super().__init__()
        self.step, self.downsample = (
            step,
            nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity(),
        )
        self.conv1, self.conv2 = (nn.Conv1d(n, outputs, 3, dilation=step) for n in (inputs, outputs))

    def forward(self, x):
        y = x
        for layer in (self.conv1, self.conv2):
            y = torch.relu(layer(nn.functional.pad(y, (2 * self.step, 0))))
        return torch.relu(y + self.downsample(x))


def causal():
    network = nn.Sequential(Causal(3, 5, 1), Causal(5, 5, 2))
    return Named(
        lambda self, x: self.fc(self.network(x)[..., -1]), network=network, fc=nn.Linear(5, 2)
    ), torch.randn(2, 3, 9)


class Halved(nn.Module):
    """A block of half the extent; its input goes through a convolution and a norm."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(4, 6, 3, 2, 1), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 6, 3, 1, 1), nn.BatchNorm2d(6)
        self.shortcut = nn.Sequential(nn.Conv2d(4, 6, 1, 2), nn.BatchNorm2d(6))

    def forward(self, x):
        return torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))) + self.shortcut(x))


def halved():
    def forward(self, x):
        return self.linear(self.layer1(torch.relu(self.bn1(self.conv1(x)))).mean((2, 3)))

    layers = {
        "conv1": nn.Conv2d(3, 4, 3, padding=1),
        "bn1": nn.BatchNorm2d(4),
        "layer1": nn.Sequential(Halved()),
    }
    return Named(forward, **layers, linear=nn.Linear(6, 2)).eval(), torch.randn(2, 3, 8, 8)


def pitch():
    """A norm of channels and positions, a layer that is added to what it reads, a convolution over all in one row."""

    def forward(self, x):
        x = nn.functional.leaky_relu(self.conv1(self.layernorm(x)), 0.3)
        x = x + nn.functional.leaky_relu(self.conv2(x), 0.3)
        return torch.softmax(self.fc(x.flatten(1).unsqueeze(1)).squeeze(1), -1)

    layers = {"layernorm": nn.LayerNorm([1, 9]), "conv1": nn.Conv1d(1, 3, 5, padding=2)}
    layers |= {"conv2": nn.Conv1d(3, 3, 5, padding=2), "fc": nn.Conv1d(1, 1, 31, padding=4, bias=False)}
    return Named(forward, **layers), torch.randn(2, 1, 9)


RELU = {"chain.activation": "relu"}
PLAIN = {"chain.stride": 1, "chain.padding": 0, "chain.output": "none"}
CASES = {
    "lenet": (lenet, {**RELU, **PLAIN, "chain.pooling": "max_2", "chain.reduction": "flatten"}),
    "u_net": (
        u_net,
        {
            **RELU, **PLAIN, "chain.padding": "half", "chain.up_stride": 2, "chain.up_padding": "exact", "norm.eps": 1e-5, "chain.skip": "none",
            "chain.pooling": "none", "inc.3:chain.pooling": "max_2", "down1.3:chain.pooling": "max_2", "chain.joined": "earlier_first",
        },
    ),
    "vae": (vae, {**RELU, "chain.output": "sigmoid"}),
    "dueling": (dueling, {**RELU, **PLAIN, "chain.pooling": "none", "chain.reduction": "flatten"}),
    "two_branches": (two_branches, {**RELU, **PLAIN, "chain.padding": "half", "chain.pooling": "none", "convDb:chain.output": "normalised"}),
    "named_block": (named_block, {**RELU, **PLAIN, "chain.padding": "half", "chain.pooling": "none", "chain.reduction": "mean", "chain.residual": "after_activation"}),
    "tagger": (tagger, {"chain.positions": "all", "chain.output": "none"}),
    "speaker": (speaker, {"chain.positions": "final_states", "chain.output": "normalised"}),
    "restored": (restored, {**PLAIN, "chain.padding": "half", "chain.shuffle": 2, "chain.skip": "added"}),
    "generator": (
        generator,
        {
            **RELU, "chain.up_stride": 2, "chain.up_padding": "exact", "norm.eps": 1e-5,
            "chain.pooling": "none", "chain.output": "tanh",
        },
    ),
    "recognizer": (
        recognizer,
        {
            **RELU, **PLAIN, "chain.padding": "same", "chain.pooling": "max_2", "chain.activation_before_norm": False,
            "norm.eps": 1e-5, "chain.positions": "all", "chain.output": "log_softmax",
        },
    ),
    "finder": (
        finder,
        {
            **PLAIN, "prelu1:chain.pooling": "max_3_2_ceil", "chain.reduction": "flatten_reversed",
            "head_1:chain.output": "softmax",
        },
    ),
    "frames": (
        frames,
        {
            **RELU, **PLAIN, "chain.pooling": "max_2", "chain.reduction": "flatten", "fc:chain.activation": "tanh",
            "chain.positions": "all",
        },
    ),
    "cells": (cells, {"enc_cell:chain.positions": "last_repeated", "chain.positions": "all", "chain.output": "none"}),
    "residual": (
        residual,
        {
            **PLAIN, "chain.padding": "half", "chain.pooling": "none", "chain.reduction": "mean", "norm.eps": 1e-5,
            "chain.activation": "leaky_relu_0.3", "chain.activation_before_norm": False, "chain.residual": "before_activation",
        },
    ),
    "pitch": (
        pitch,
        {
            **PLAIN, "chain.padding": "half", "fc:chain.padding": 4, "chain.pooling": "none", "norm.eps": 1e-5,
            "chain.activation": "leaky_relu_0.3", "conv2:chain.residual": "after_activation", "chain.output": "softmax",
        },
    ),
    "causal": (
        causal,
        {
            **RELU, **PLAIN, "chain.padding": "causal", "network.1:chain.dilation": 2, "chain.pooling": "none",
            "chain.reduction": "last", "chain.residual": "between_activations",
        },
    ),
    "halved": (
        halved,
        {
            **RELU, **PLAIN, "chain.padding": "half", "layer1.0.conv1:chain.stride": 2, "chain.pooling": "none",
            "chain.activation_before_norm": False, "norm.eps": 1e-5, "chain.reduction": "mean",
            "chain.residual": "before_activation",
        },
    ),
    "words": (
        words,
        {**RELU, **PLAIN, "chain.stride": 2, "chain.padding": "half", "chain.pooling": "none", "chain.reduction": "mean"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_chain_computes_what_torch_does(tmp_path, name):
    make, answers = CASES[name]
    model, inputs = make()
    for key, tensor in model.state_dict().items():
        tensor.copy_(torch.rand(tensor.shape) + 0.5) if "running" in key else None
    path = tmp_path / "m.safetensors"
    save_file({key: tensor.clone() for key, tensor in model.state_dict().items()}, path)
    built = mapper.build(path, hints=answers)
    assert built.state_dict().keys() == model.state_dict().keys()
    with torch.no_grad():
        expected, found = model(inputs), list(vars(built(inputs)).values())
    torch.testing.assert_close(found, list(expected) if isinstance(expected, tuple) else [expected])
    assert mapper.inspect(path, hints=answers).architecture.reading == "unverified"


def test_a_chain_is_saved_and_loaded(tmp_path):
    model, inputs = lenet()
    mapper.build(model.state_dict(), hints=CASES["lenet"][1], out=tmp_path / "out")
    loaded, _ = mapper.load(tmp_path / "out")
    torch.testing.assert_close(loaded(inputs).output, model(inputs))


def test_numbers_without_gap_show_that_nothing_lies_between():
    names = {"0.weight": (8, 4), "1.weight": (8, 8), "3.weight": (2, 8)}
    read = mapper.inspect(names, hints={**RELU, "chain.output": "none"}).architecture
    assert {fact.at: fact.value for fact in read.facts if fact.name == "chain.activation"} == {
        "0": "none",
        "1": "relu",
    }


def test_an_exception_wins_over_what_is_said_of_all():
    names = {f"fc{at}.weight": [4, 4] for at in range(3)}
    said = {**RELU, "fc1:chain.activation": "tanh", "chain.output": "none"}
    assert "x = torch.tanh(x)\n        x = self.fc2(x)" in mapper.generate(names, hints=said)


def test_one_question_for_all_places():
    read = mapper.inspect({f"conv{at}.weight": [4, 4, 3, 3] for at in range(9)}).architecture
    asked = [question.name for question in read.questions]
    assert len(asked) == len(set(asked)) and "chain.activation" in asked


def test_a_report_shows_the_forward_and_what_is_unknown_in_it():
    names = {"conv1.weight": [6, 1, 5, 5], "conv2.weight": [16, 6, 5, 5], "fc.weight": [4, 256]}
    read = mapper.inspect(names, hints={**RELU, "chain.padding": 0}).architecture
    assert read.forward[:3] == [
        "x = conv1(inputs)  # chain.stride?",
        "x = F.relu(x)",
        "x = ?  # chain.pooling",
    ]


def test_an_input_of_a_known_size_leaves_fewer_answers():
    names = {"conv1.weight": [6, 1, 5, 5], "conv2.weight": [16, 6, 5, 5], "fc.weight": [4, 256]}
    said = {**RELU, "chain.input_size": 28, "chain.stride": 1}
    read = mapper.inspect(names, hints=said).architecture
    asked = {question.fact: question.candidates for question in read.questions}
    assert asked["chain.padding"] == ("0",) and not {"none", "max_3_2"} & {*asked["chain.pooling"]}
    said |= {"chain.padding": "half", "chain.pooling": "max_2", "chain.reduction": "flatten"}
    assert any(
        "an input of 28 leaves 7 x 7" in line
        for line in mapper.inspect(names, hints=said).architecture.missing
    )


def test_sizes_that_do_not_add_up_are_said():
    names = {"conv.weight": [4, 1, 3, 3], "fc.weight": [2, 4 * 7]}
    said = {**RELU, **PLAIN, "chain.pooling": "none", "chain.reduction": "flatten"}
    assert any(
        "reads 28 = 4 channels of 7 places" in line
        for line in mapper.inspect(names, hints=said).architecture.missing
    )


def test_what_is_no_value_is_refused():
    names = {"conv.weight": [4, 1, 3, 3], "fc.weight": [2, 4]}
    with pytest.raises(HintError, match="max_3_2"):
        mapper.inspect(names, hints={"chain.pooling": "biggest"})


@pytest.mark.parametrize(
    "names",
    [
        {"conv.weight": [4, 1, 3, 3], "fc.weight": [2, 5]},  # sizes that do not go together
        {"fc2.weight": [4, 4], "fc1.weight": [4, 9], "fc3.weight": [9, 7]},  # against their numbers
        {"a.weight": [4, 4], "b.weight": [4, 4], "table": [9, 4]},  # a tensor of nobody
        {"conv.weight": [4, 4, 3, 3], "se.fc1.weight": [2, 4], "se.fc2.weight": [4, 2], "out.weight": [3, 4]},
    ],
)
def test_what_is_no_chain_stays_a_skeleton(names):
    assert mapper.inspect(names).architecture.reading == "skeleton"


@pytest.mark.parametrize(
    ("names", "is_told"),
    [
        ({"encode.weight": [4, 4], "project.weight": [4, 4]}, True),
        ({"first.weight": [9, 4], "then.weight": [2, 9]}, False),  # what the one gives the other reads
        ({"0.weight": [4, 4], "2.weight": [4, 4]}, False),  # numbers
    ],
)
def test_an_order_that_names_alone_show_is_told(names, is_told):
    notes = mapper.inspect(names).architecture.notes
    assert any("order of their names" in note for note in notes) is is_told


def test_recurrent_layers_by_attributes_of_the_whole_are_layers(tmp_path):
    gru, table, fc = nn.GRU(3, 4, batch_first=True), torch.randn(9, 3), nn.Linear(4, 2)
    named = {f"enc_{name[0]}_{name[-5:-3]}": tensor for name, tensor in gru.state_dict().items()}
    named |= {"enc_emb": table, "fc_w": fc.weight.detach(), "fc_b": fc.bias.detach()}
    save_file({name: tensor.clone() for name, tensor in named.items()}, tmp_path / "m.safetensors")
    model = mapper.build(tmp_path / "m.safetensors", hints={"chain.positions": "all", "chain.output": "none"})
    assert "enc.weight_ih" in model.state_dict()
    ids = torch.tensor([[1, 5, 2]])
    torch.testing.assert_close(model(ids).output, fc(gru(table[ids])[0]))


def test_single_numbers_of_a_loss_stand_beside_a_chain():
    names = {
        "lstm.weight_ih_l0": [8, 3],
        "lstm.weight_hh_l0": [8, 2],
        "fc.weight": [2, 2],
        "similarity_bias": [1],
    }
    read = mapper.inspect(names, hints={"chain.positions": "last", "chain.output": "none"}).architecture
    assert (read.reading, read.unmapped) == ("unverified", ["similarity_bias"])


def test_layers_of_names_that_are_no_attributes_run():
    weights = {name: torch.randn(4, 4) for name in ("class.weight", "forward.weight", "x.items.weight")}
    model = mapper.build(dict(weights), hints={"chain.activation": "relu", "chain.output": "none"})
    x = torch.randn(2, 4)
    wanted = x @ weights["class.weight"].T
    for name in ("forward.weight", "x.items.weight"):
        wanted = wanted.relu() @ weights[name].T
    assert torch.allclose(model(inputs=x).output, wanted, atol=1e-6)


def test_maps_of_another_size_are_not_joined():
    _, answers = CASES["u_net"]
    model, _ = u_net()
    with pytest.raises(HintError, match="channels of an earlier layer"):
        mapper.build(model.state_dict(), hints={**answers, "down2.3:chain.pooling": "max_2"})


def test_layers_under_two_names_are_no_chain():
    """As in the temporal convolutional network of paper 1803.01271, whose blocks put their layers into a list too."""
    block = nn.Module()
    block.conv1, block.conv2, block.downsample = nn.Conv1d(1, 4, 3), nn.Conv1d(4, 4, 3), nn.Conv1d(1, 4, 1)
    block.net = nn.Sequential(block.conv1, nn.ReLU(), block.conv2)
    state = nn.ModuleDict({"network": nn.ModuleList([block]), "linear": nn.Linear(4, 2)}).state_dict()
    read = mapper.inspect(state).architecture
    assert read.reading == "skeleton"
    assert any("network.0.net" in finding for finding in read.findings)


def test_made_up_inputs_have_the_size_that_a_chain_reads():
    model, _ = lenet()
    answers = {"chain.stride": 1, "chain.padding": 0, "chain.activation": "relu", "chain.pooling": "max_2", "chain.reduction": "flatten", "chain.output": "none"}  # fmt: skip
    built = mapper.build(model.state_dict(), hints=answers)
    made = made_up_inputs(mapper.inspect(model.state_dict(), hints=answers).architecture, built)
    assert built(**made).output.shape == (1, 3)
