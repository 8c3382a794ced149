"""Small networks of the shapes that packages carry: tables that convolutions read together, spectra, blocks in lists, slopes in settings."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

import mapper


class Net(nn.Module):
    """Layers by their names, and a forward."""

    def __init__(self, forward, **layers):
        super().__init__()
        torch.manual_seed(5)
        for name, make in layers.items():
            self.add_module(name, make())
        self.called = forward

    def forward(self, *inputs):
        return self.called(self, *inputs)


def conv(inputs, outputs, kernel, **more):
    return lambda: nn.Conv1d(inputs, outputs, kernel, **more)


def cut():
    """Letters and syllables side by side, convolutions of several lengths over them, and the largest of their numbers."""

    def forward(s, letters, syllables):
        x = torch.cat((s.ch_emb(letters), s.sy_emb(syllables)), -1).transpose(1, 2)
        found = [F.relu(layer(x)) for layer in (s.conv1, s.conv2, s.conv3)]
        return s.linear2(F.relu(s.linear1(torch.stack(found).amax(0).transpose(1, 2))))

    net = Net(
        forward, ch_emb=lambda: nn.Embedding(9, 3), sy_emb=lambda: nn.Embedding(7, 2), conv1=conv(5, 6, 3, padding=1),
        conv2=conv(5, 6, 5, padding=2), conv3=conv(5, 6, 7, padding=6, dilation=2), linear1=lambda: nn.Linear(6, 3),
        linear2=lambda: nn.Linear(3, 1),
    )  # fmt: skip
    answers = {f"conv{n}:chain.reads": "ch_emb & sy_emb" for n in (1, 2, 3)}
    answers |= {
        "linear1:chain.reads": "max(conv1, conv2, conv3)",
        "conv3:chain.dilation": 2,
        "chain.output": "none",
    }
    answers |= {
        "chain.activation": "relu",
        "chain.stride": 1,
        "chain.padding": "half",
        "chain.pooling": "none",
    }
    answers |= {"chain.reduction": "positions"}
    return net, answers, (torch.tensor([[1, 2, 8]]), torch.tensor([[6, 0, 3]]))


def voice():
    """A spectrum by a convolution, its magnitude, and an activation between a cell and a convolution."""

    def forward(s, x):
        x = s.stft(x)
        x = F.relu(s.conv1(torch.hypot(x[:, :4], x[:, 4:])))
        held, states = None, []
        for step in x.transpose(1, 2).unbind(1):
            held = s.lstm_cell(step, held)
            states.append(held[0])
        return torch.sigmoid(s.final(F.relu(torch.stack(states, 2))))

    net = Net(
        forward, conv1=conv(4, 6, 3, padding=1), final=conv(5, 1, 1), lstm_cell=lambda: nn.LSTMCell(6, 5), stft=conv(1, 8, 6, stride=2),
    )  # fmt: skip
    answers = {"chain.activation": "relu", "stft:chain.activation": "none", "chain.halved": "magnitude"}
    answers |= {
        "lstm_cell:chain.activation": "relu",
        "stft:chain.stride": 2,
        "chain.stride": 1,
        "chain.output": "sigmoid",
    }
    answers |= {"stft:chain.padding": 0, "chain.padding": "half", "chain.pooling": "none"}
    return net, answers, (torch.randn(2, 1, 20),)


def gated():
    def forward(s, x):
        return s.fc(s.conv2(F.glu(s.conv1(x), 1)).mean(2))

    answers = {"chain.activation": "none", "chain.halved": "glu", "chain.stride": 1, "chain.padding": 0}
    net = Net(forward, conv1=conv(1, 8, 3), conv2=conv(4, 6, 3), fc=lambda: nn.Linear(6, 2))
    return (
        net,
        answers | {"chain.pooling": "none", "chain.output": "none", "chain.reduction": "mean"},
        (torch.randn(2, 1, 9),),
    )


def grouped():
    net, answers, inputs = gated()
    net.conv2 = nn.Conv1d(8, 6, 3, groups=2)
    net.called = lambda s, x: s.fc(s.conv2(s.conv1(x)).mean(2))
    return net, answers | {"chain.halved": "groups"}, inputs


@pytest.mark.parametrize("made", [cut, voice, gated, grouped])
def test_the_network_gives_what_its_own_module_does(tmp_path, made):
    net, answers, inputs = made()
    path = str(tmp_path / "model.safetensors")
    save_file(net.state_dict(), path)
    with torch.no_grad():
        expected, given = net(*inputs), mapper.build(path, hints=answers)(*inputs).output
    torch.testing.assert_close(given, expected)  # the defaults for float32


def read(shapes, config=None):
    return mapper.inspect({"tensors": shapes, **({"config": config} if config else {})})


def test_what_is_asked_names_what_tables_and_branches_come_to():
    net, _, _ = cut()
    questions = mapper.inspect(net.state_dict()).architecture.questions
    asked = {question.name: question.candidates for question in questions}
    assert "ch_emb & sy_emb" in asked["conv1:chain.reads"]
    assert asked["linear1:chain.reads"][0] == "max(conv1, conv2, conv3)"


BLOCKS = {
    f"encode.{block}.{layer}.{kind}": shape
    for block, (inputs, outputs) in enumerate([(3, 5), (5, 6), (6, 6), (6, 4)])
    for layer, width in (("conv1", inputs), ("conv2", outputs))
    for kind, shape in (("weight", [outputs, width, 3]), ("bias", [outputs]))
}


def test_a_block_reads_the_block_before_it_in_one_list():
    more = {
        "decode.0.weight": [5, 4, 1],
        "decode.2.weight": [6, 5, 1],
        "mu.weight": [2, 4],
        "spread.weight": [3, 4],
    }
    found = read({**BLOCKS, **more}).architecture
    assert {f"encode.{block}.conv1:chain.reads" for block in (1, 2, 3)}.isdisjoint(
        one.name for one in found.questions
    )
    assert "encode.1.conv2" in {fact.value for fact in found.facts if fact.name == "chain.reads"}


def test_folders_that_begin_alike_may_read_inputs_of_their_own():
    shapes = {}
    for folder in ("image", "power"):
        kernel = [4, 4] if folder == "image" else [1, 3]
        shapes |= {f"{folder}.conv1.weight": [6, 1, *kernel], f"{folder}.conv2.weight": [1, 6, *kernel]}
    said = str(read({**shapes, "last.weight": [5, 9, 4, 4]}))
    assert "nothing else gives what it reads" not in said


SETTINGS = {"activation_fn": "leaky", "negative_slope": 0.3, "residual": True}
LINE = {"conv1.weight": [4, 2, 3], "conv2.weight": [4, 4, 3], "conv3.weight": [3, 4, 3]}


def test_a_slope_beside_the_name_of_an_activation_is_its_slope():
    assert "F.leaky_relu(x, 0.3)" in str(read(LINE, SETTINGS))
    assert "F.leaky_relu(x)" in str(read(LINE, {"activation_fn": "leaky"}))


def test_a_residual_that_settings_state_is_asked_about():
    def asked(config):
        return {question.fact for question in read(LINE, config).architecture.questions}

    assert "chain.residual" in asked(SETTINGS)
    assert "chain.residual" not in asked({**SETTINGS, "residual": False})


def test_a_weight_of_a_direction_and_a_length_is_shown_with_its_own_sizes():
    shapes = {
        "conv1.weight_g": [8, 1, 1, 1],
        "conv1.weight_v": [8, 2, 3, 3],
        "conv1.bias": [8],
        "conv2.weight": [4, 8, 3, 3],
    }
    assert "Conv2d 2 → 8, kernel 3 × 3" in str(read(shapes))
