"""Kinds of small networks whose layers sizes allow to be called otherwise: what is asked of each, and that it is right when told."""

from __future__ import annotations

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mapper
from mapper.errors import HintError
from tests.unit.test_chains_in_wheels import Net

RELU = {"chain.activation": "relu", "chain.output": "none"}
MAPS = RELU | {"chain.stride": 1, "chain.padding": "half", "chain.pooling": "none"}


def conv(*sizes, **more):
    return lambda: nn.Conv2d(*sizes, **more)


def line(*sizes, **more):
    return lambda: nn.Conv1d(*sizes, **more)


def linear(*sizes, **more):
    return lambda: nn.Linear(*sizes, **more)


def table(*sizes):
    return lambda: nn.Embedding(*sizes)


def gru(*sizes, **more):
    return lambda: nn.GRU(*sizes, batch_first=True, **more)


def several(*makers):
    return lambda: nn.Sequential(*(make() for make in makers))


def waves():
    """A row becomes maps of one axis, before the layers that make these longer (WaveGAN, 1802.04208)."""

    def forward(s, x):
        return torch.tanh(s.up_1(F.relu(s.up_0(F.relu(s.fc(x)).unflatten(1, (8, 4))))))

    net = Net(
        forward, fc=linear(8, 32), up_0=lambda: nn.ConvTranspose1d(8, 6, 4, 2, 1),
        up_1=lambda: nn.ConvTranspose1d(6, 1, 4, 2, 1),
    )  # fmt: skip
    answers = {"chain.activation": "relu", "chain.output": "tanh", "chain.pooling": "none"}
    return net, answers | {"chain.up_stride": 2, "chain.up_padding": "exact"}, (torch.randn(2, 8),), ()


def columns_of_windows():
    """Branches that read the input itself, and a layer that reads all of them together."""

    def forward(s, x):
        return s.fuse(torch.cat([F.relu(s.get_submodule(name)(x)) for name in ("one", "other")], 1))

    net = Net(forward, one=conv(1, 4, 5, padding=2), other=conv(1, 6, 3, padding=1), fuse=conv(10, 1, 1))
    return net, MAPS | {"chain.skip": "none"}, (torch.rand(2, 1, 8, 9),), ("chain.skip",)


def two_of_one_size():
    """Of two convolutions of the same sizes one is a gate of the other (1612.08083)."""

    def forward(s, x):
        x = s.embed(x).transpose(1, 2)
        return s.fc((s.conv_1(x) * torch.sigmoid(s.conv_2(x))).amax(-1))

    net = Net(forward, embed=table(9, 4), conv_1=line(4, 8, 3), conv_2=line(4, 8, 3), fc=linear(8, 2))
    answers = MAPS | {"chain.padding": 0, "chain.reduction": "max", "conv_1:chain.activation": "none"}
    answers |= {"conv_2:chain.reads": "embed", "fc:chain.reads": "conv_1 * sigmoid(conv_2)"}
    del answers["chain.activation"]
    return net, answers, (torch.randint(9, (2, 7)),), ("conv_2:chain.reads", "fc:chain.reads")


def halves():
    """What a decoder reads is half of what the encoder gives: a mean, beside its spread (1312.6114)."""

    def forward(s, x):
        return s.decoder(s.encoder(x).chunk(2, -1)[0])

    net = Net(
        forward, encoder=several(linear(9, 7), nn.ReLU, linear(7, 6)), decoder=several(linear(3, 7), nn.ReLU, linear(7, 9)),
    )  # fmt: skip
    return net, RELU | {"chain.halved": "first_half"}, (torch.rand(2, 9),), ("chain.halved",)


def encoder_of_gates():
    """Layers of an encoder are read as gates let them through, and none of them reads the decoder."""

    def forward(s, x):
        return s.decoder(F.relu(s.decoder_in(F.glu(s.encoder(x), 1))))

    net = Net(
        forward, decoder_in=line(4, 6, 1), decoder=several(lambda: nn.ConvTranspose1d(6, 1, 4, 2, 1)),
        encoder=several(line(1, 8, 4, stride=2, padding=1)),
    )  # fmt: skip
    answers = RELU | {
        "chain.stride": 2,
        "chain.padding": 1,
        "chain.up_stride": 2,
        "chain.up_padding": "exact",
    }
    return (
        net,
        answers
        | {
            "chain.halved": "glu",
            "chain.pooling": "none",
            "chain.skip": "none",
            "encoder.0:chain.activation": "none",
        },
        (torch.rand(2, 1, 12),),
        None,
    )


def queried():
    """A query finds how much each position counts (1808.08929)."""

    def forward(s, x):
        found = s.rnn(x)[0]
        weights = torch.softmax(found @ s.query(found[:, -1])[..., None], 1)
        return s.fc((weights * found).sum(1))

    net = Net(forward, rnn=gru(3, 5), query=linear(5, 5), fc=linear(5, 2))
    answers = {"query:chain.reads": "last(rnn)", "fc:chain.reads": "sum(softmax(dot(rnn, query)) * rnn)"}
    answers |= {"chain.activation": "none", "chain.output": "none"}
    return net, answers, (torch.rand(2, 6, 3),), ("fc:chain.reads", "query:chain.reads")


def spectrum():
    """Maps become a sequence along their first axis."""

    def forward(s, x):
        return s.fc(s.rnn(F.relu(s.conv(x)).transpose(1, 2).flatten(2))[0])

    net = Net(forward, conv=conv(1, 3, 3, padding=1), rnn=gru(12, 5), fc=linear(5, 2))
    answers = MAPS | {"chain.reduction": "rows", "chain.positions": "all"}
    return net, answers, (torch.rand(2, 1, 6, 4),), ("chain.reduction",)


def first_order():
    """A column beside a table, and products of each two of its rows (1703.04247)."""

    def forward(s, x):
        rows = s.embedding(x)
        pairs = 0.5 * (rows.sum(1) ** 2 - (rows**2).sum(1)).sum(1, keepdim=True)
        return s.linear(x).sum(1) + pairs + s.fc2(F.relu(s.fc1(rows.flatten(1))))

    net = Net(forward, linear=table(9, 1), embedding=table(9, 4), fc1=linear(12, 5), fc2=linear(5, 1))
    answers = RELU | {"linear:chain.reads": "input_ids", "embedding:chain.reads": "input_ids"}
    answers |= {"chain.gives": "sum(linear) + total(interactions(embedding)) + fc2", "chain.positions": "all"}
    return net, answers, (torch.randint(9, (2, 3)),), ("linear:chain.reads",)


def many_positions():
    """All positions in one row, more than a few of them."""
    net = Net(
        lambda s, x: s.fc(s.rnn(F.relu(s.conv(x)).transpose(1, 2))[0].flatten(1)),
        conv=line(4, 6, 3, padding=1), rnn=gru(6, 5), fc=linear(35, 2),
    )  # fmt: skip
    return net, MAPS, (torch.rand(2, 4, 7),), None


def padded():
    """A block that gives more channels than it reads adds zeros to its input (1512.03385, option A; 1907.05047)."""

    class Block(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.more = outputs - inputs
            self.conv1, self.conv2 = nn.Conv2d(inputs, inputs, 3, 1, 1), nn.Conv2d(inputs, outputs, 3, 1, 1)

        def forward(self, x):
            return F.relu(self.conv2(F.relu(self.conv1(x))) + F.pad(x, (0, 0, 0, 0, 0, self.more)))

    net = Net(
        lambda s, x: s.head(s.blocks(F.relu(s.stem(x)))), stem=conv(3, 4, 3, padding=1),
        blocks=lambda: nn.Sequential(Block(4, 4), Block(4, 6)), head=conv(6, 2, 1),
    )  # fmt: skip
    answers = MAPS | {"chain.residual": "before_activation", "chain.residual_padding": "padded"}
    return net, answers, (torch.rand(2, 3, 6, 7),), ("chain.residual",)


def dilated_branches():
    """Branches of the same sizes read places farther and farther apart; one has the mean of all places (1706.05587)."""

    def forward(s, x):
        x = F.relu(s.stem(x))
        mean = F.relu(s.pool_conv(x.mean((2, 3), keepdim=True))).expand(-1, -1, *x.shape[2:])
        return s.head(torch.cat((F.relu(s.b0(x)), F.relu(s.b1(x)), F.relu(s.b2(x)), mean), 1))

    net = Net(
        forward, stem=conv(3, 6, 3, padding=1), b0=conv(6, 4, 1), b1=conv(6, 4, 3, padding=1),
        b2=conv(6, 4, 3, padding=2, dilation=2), pool_conv=conv(6, 4, 1), head=conv(16, 2, 1),
    )  # fmt: skip
    answers = MAPS | {"b1:chain.dilation": 1, "b2:chain.dilation": 2, "chain.pooling_before": "global_mean"}
    return net, answers, (torch.rand(2, 3, 8, 7),), ("chain.dilation", "chain.pooling_before")


def points():
    """What is largest of all points stands beside each of them (1612.00593)."""

    def forward(s, x):
        near = F.relu(s.conv1(x))
        whole = s.conv2(near).amax(2, keepdim=True).expand(-1, -1, x.shape[2])
        return s.out(F.relu(s.seg(torch.cat((whole, near), 1))))

    net = Net(forward, conv1=line(3, 5, 1), conv2=line(5, 8, 1), seg=line(13, 6, 1), out=line(6, 2, 1))
    answers = MAPS | {
        "conv2:chain.activation": "none",
        "conv2:chain.pooling": "global_max",
        "chain.joined": "later_first",
    }
    del answers["chain.stride"], answers["chain.padding"]
    return net, answers, (torch.rand(2, 3, 9),), ("chain.joined", "chain.pooling")


def cut():
    """Convolutions without padding: of earlier maps the middle is read (1505.04597)."""

    def forward(s, x):
        early = F.relu(s.enc(x))
        late = s.up(F.relu(s.mid(F.max_pool2d(early, 2))))
        left = (early.shape[2] - late.shape[2]) // 2
        early = early[:, :, left : left + late.shape[2], left : left + late.shape[3]]
        return s.head(F.relu(s.dec(torch.cat((early, late), 1))))

    net = Net(
        forward, enc=conv(1, 4, 3), mid=conv(4, 8, 3), up=lambda: nn.ConvTranspose2d(8, 4, 2, 2), dec=conv(8, 4, 3),
        head=conv(4, 2, 1),
    )  # fmt: skip
    answers = MAPS | {
        "chain.padding": 0,
        "enc:chain.pooling": "max_2",
        "chain.joined": "earlier_first_cropped",
    }
    return (
        net,
        answers | {"chain.up_stride": 2, "chain.up_padding": 0},
        (torch.rand(1, 1, 18, 18),),
        ("chain.joined",),
    )


def characters():
    """Characters of each word in a row, which a layer of their own reads (1603.01360)."""

    def forward(s, words, letters):
        found = s.char_rnn(s.char_emb(letters.flatten(0, 1)))[0][:, -1].unflatten(0, letters.shape[:2])
        return s.fc(s.word_rnn(torch.cat((s.word_emb(words), found), -1))[0])

    net = Net(
        forward, char_rnn=gru(3, 4), char_emb=table(8, 3), word_rnn=gru(9, 6), word_emb=table(9, 5), fc=linear(6, 2),
    )  # fmt: skip
    answers = {"word_rnn:chain.reads": "word_emb & each(last(char_rnn))", "chain.positions": "all"}
    answers |= {"chain.output": "none", "chain.inputs": "word_emb_ids, char_emb_ids"}
    inputs = torch.randint(9, (2, 4)), torch.randint(8, (2, 4, 5))
    return net, answers, inputs, ("word_rnn:chain.reads",)


def alike():
    """Lists of as many square layers side by side: each layer of one is a gate of that of the other (1505.00387)."""

    def forward(s, x):
        for plain, gate in zip(s.plain, s.gating, strict=True):
            share = torch.sigmoid(gate(x))
            x = share * F.relu(plain(x)) + (1 - share) * x
        return s.out(x)

    net = Net(forward, plain=several(linear(5, 5)), gating=several(linear(5, 5)), out=linear(5, 2))
    answers = {"plain.0:chain.reads": "inputs", "gating.0:chain.reads": "inputs", "chain.activation": "none"}
    answers["out:chain.reads"] = "sigmoid(gating.0) * relu(plain.0) + (1 - sigmoid(gating.0)) * inputs"
    return net, answers | {"chain.output": "none"}, (torch.randn(2, 5),), None


def codes():
    """Of a table the rows that are closest to what an encoder gives (1711.00937)."""

    def forward(s, x):
        found = s.enc(x).permute(0, 2, 3, 1)
        numbers = torch.cdist(found.flatten(0, 2), s.codebook.weight).argmin(1)
        return s.dec(s.codebook(numbers).view(found.shape).permute(0, 3, 1, 2))

    net = Net(forward, enc=conv(3, 4, 3, padding=1), codebook=table(9, 4), dec=conv(4, 3, 3, padding=1))
    answers = MAPS | {"enc:chain.activation": "none", "dec:chain.reads": "nearest(enc, codebook)"}
    del answers["chain.activation"]
    return net, answers, (torch.rand(2, 3, 4, 5),), ("dec:chain.reads",)


def turned():
    """Images are turned before they are read (1506.02025)."""

    def forward(s, x):
        six = s.fc_loc(F.relu(s.localization(x)).flatten(1)).view(-1, 2, 3)
        x = F.grid_sample(x, F.affine_grid(six, x.shape, align_corners=False), align_corners=False)
        return s.fc(F.relu(s.conv(x)).mean((2, 3)))

    net = Net(forward, localization=conv(1, 4, 3), fc_loc=linear(64, 6), conv=conv(1, 5, 3), fc=linear(5, 2))
    answers = MAPS | {"chain.padding": 0, "fc_loc:chain.reads": "localization", "fc:chain.reads": "conv"}
    answers |= {
        "conv:chain.reads": "warped(inputs, fc_loc)",
        "fc_loc:chain.reduction": "flatten",
        "chain.reduction": "mean",
    }
    return net, answers | {"fc_loc:chain.activation": "none"}, (torch.rand(2, 1, 6, 6),), None


def experts():
    """Several networks of linear layers, and how much each counts (1701.06538)."""

    def forward(s, x):
        weights = torch.softmax(s.gate(x), 1)
        return sum(weights[:, at : at + 1] * one(x) for at, one in enumerate(s.experts))

    net = Net(forward, experts=several(several(linear(4, 6), nn.ReLU, linear(6, 3)), several(linear(4, 6), nn.ReLU, linear(6, 3))), gate=linear(4, 2))  # fmt: skip
    answers = {f"{name}:chain.reads": "inputs" for name in ("gate", "experts.0.0", "experts.1.0")}
    answers["chain.gives"] = "column(softmax(gate), 0) * experts.0.2 + column(softmax(gate), 1) * experts.1.2"
    return net, answers | {"chain.activation": "relu"}, (torch.rand(2, 4),), None


def units():
    """Inputs in units of their own, which numbers beside the layers undo."""

    def forward(s, x):
        return s.fc2(F.relu(s.fc1((x - s.mean) / torch.sqrt(s.var + 1e-8))))

    net = Net(forward, fc1=linear(3, 5), fc2=linear(5, 2))
    net.register_buffer("mean", torch.rand(3))
    net.register_buffer("var", torch.rand(3) + 0.5)
    answers = RELU | {"fc1:chain.reads": "(inputs - mean) / sqrt(var + 1e-8)", "fc2:chain.reads": "fc1"}
    return net, answers, (torch.rand(2, 3),), None


def conditioned():
    """One vector of each input at every position, positions two by two, and a norm's name for that of its layer."""

    def forward(s, x, c):
        x = s.rnn(x.unflatten(1, (-1, 2)).flatten(2))[0]
        return s.fc2(
            F.leaky_relu(s.ln(s.fc1(torch.cat((x, c[:, None].expand(-1, x.shape[1], -1)), -1))), 0.1)
        )

    net = Net(forward, rnn=gru(6, 4), fc1=linear(6, 5), ln=lambda: nn.LayerNorm(5), fc2=linear(5, 2))
    answers = {
        "rnn:chain.reads": "stacked_2(inputs)",
        "fc1:chain.reads": "rnn & repeated(inputs_2)",
        "chain.output": "none",
    }
    answers |= {"fc2:chain.reads": "leaky_relu_0.1(ln)", "chain.activation": "none", "norm.eps": 1e-5}
    return (
        net,
        answers | {"chain.activation_before_norm": False},
        (torch.rand(2, 8, 3), torch.rand(2, 2)),
        None,
    )


CASES = [
    waves, columns_of_windows, two_of_one_size, halves, encoder_of_gates, queried, spectrum, first_order, many_positions,
    padded, dilated_branches, points, cut, characters, alike, codes, turned, experts, units, conditioned,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_equal_when_it_is_told(case) -> None:
    net, answers, inputs, _ = case()
    with torch.no_grad():
        made, wanted = mapper.build(net.state_dict(), hints=answers)(*inputs), net(*inputs)
    made = made if isinstance(made, torch.Tensor) else next(iter(vars(made).values()))
    torch.testing.assert_close(made, wanted)


@pytest.mark.parametrize("case", [case for case in CASES if case()[3]])
def test_what_sizes_leave_open_is_asked(case) -> None:
    net, answers, _, facts = case()
    left = {key: value for key, value in answers.items() if key.rpartition(":")[2] == "chain.padding"}
    asked = {
        question.name for question in mapper.inspect(net.state_dict(), hints=left).architecture.questions
    }
    assert {*facts} <= asked


def test_square_matrices_of_a_table_are_asked_about(tmp_path) -> None:
    """Which way they are stored neither a bias nor another layer shows."""
    one, other = torch.randn(4, 4), torch.randn(4, 4)
    numpy.savez(
        tmp_path / "model.npz", W1=one.numpy(), b1=numpy.zeros(4), W2=other.numpy(), b2=numpy.zeros(4)
    )
    asked = mapper.inspect(tmp_path / "model.npz").architecture.questions
    assert "chain.layout" in {question.name for question in asked}
    x = torch.randn(2, 4)
    for stored, wanted in (
        ("in_out", torch.tanh(x @ one) @ other),
        ("out_in", torch.tanh(x @ one.T) @ other.T),
    ):
        answers = {"chain.activation": "tanh", "chain.output": "none", "chain.layout": stored}
        model = mapper.build(tmp_path / "model.npz", hints=answers).float()
        torch.testing.assert_close(model(x).output, wanted)


def test_lists_of_scikit_learn_are_layers(tmp_path) -> None:
    one, other = torch.randn(3, 5), torch.randn(5, 2)
    arrays = {
        "coefs_0": one,
        "coefs_1": other,
        "intercepts_0": torch.zeros(5),
        "intercepts_1": torch.zeros(2),
    }
    numpy.savez(tmp_path / "model.npz", **{name: array.numpy() for name, array in arrays.items()})
    x = torch.randn(4, 3)
    torch.testing.assert_close(
        mapper.build(tmp_path / "model.npz", hints=RELU)(x).output, F.relu(x @ one) @ other
    )


@pytest.mark.parametrize(
    ("word", "compare"),
    [
        ("cosine", F.cosine_similarity),
        ("distance", lambda one, other: (one - other).norm(dim=-1)),
        ("manhattan", lambda one, other: torch.exp(-(one - other).abs().sum(-1))),
    ],
)
def test_what_one_network_makes_of_two_inputs_is_compared(word, compare) -> None:
    net = Net(lambda s, x: s.rnn(s.embedding(x))[0][:, -1], embedding=table(9, 4), rnn=gru(4, 5))
    inputs = torch.randint(9, (2, 3)), torch.randint(9, (2, 3))
    answers = {"chain.positions": "last", "chain.output": "none", "chain.paired": word}
    read = mapper.inspect(net.state_dict(), hints=answers).architecture
    assert [read.inputs[name]["dtype"] for name in ("input_ids", "inputs_2")] == ["int64", "int64"]
    with torch.no_grad():
        made = mapper.build(net.state_dict(), hints=answers)(*inputs).output
        torch.testing.assert_close(made, compare(*map(net, inputs)))


def test_the_first_places_of_maps_are_read() -> None:
    net = Net(
        lambda s, x: s.two(F.relu(s.one(x))[..., :5, :5]),
        one=conv(3, 4, 3, padding=1),
        two=conv(4, 2, 3, padding=1),
    )
    model, x = (
        mapper.build(net.state_dict(), hints=MAPS | {"one:chain.pooling": "crop_5"}),
        torch.rand(2, 3, 8, 9),
    )
    with torch.no_grad():
        torch.testing.assert_close(model(x).output, net(x))


def test_maps_and_positions_do_not_go_together_as_they_are() -> None:
    net = Net(lambda s, x: x, conv=line(3, 4, 1), rnn=gru(4, 4), out=line(4, 2, 1))
    answers = MAPS | {"rnn:chain.reads": "positions(conv)", "out:chain.reads": "rnn + conv"}
    with pytest.raises(HintError, match="maps and positions do not go together"):
        mapper.build(net.state_dict(), hints=answers)
