"""Small networks that are no chain: layers that read several others, several inputs, or one network for two inputs."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

import mapper
from mapper.errors import HintError

RELU = {"chain.activation": "relu", "chain.output": "none"}
MAPS = {
    **RELU,
    "chain.stride": 1,
    "chain.padding": "half",
    "chain.pooling": "none",
    "chain.reduction": "mean",
}


class Net(nn.Module):
    """Layers by their names, and a forward."""

    def __init__(self, forward, **layers):
        super().__init__()
        torch.manual_seed(3)
        for name, make in layers.items():
            self.add_module(name, make())
        self.called = forward

    def forward(self, *inputs):
        return self.called(self, *inputs)


def two_tables():
    net = Net(
        lambda s, u, i: s.out(F.relu(s.fc1(torch.cat((s.user_emb(u), s.item_emb(i)), -1)))),
        fc1=lambda: nn.Linear(7, 5), item_emb=lambda: nn.Embedding(9, 3), user_emb=lambda: nn.Embedding(6, 4), out=lambda: nn.Linear(5, 1),
    )  # fmt: skip
    answers = {**RELU, "fc1:chain.reads": "user_emb & item_emb", "chain.inputs": "user_emb_ids, item_emb_ids"}
    return net, answers, (torch.tensor([1, 5]), torch.tensor([2, 8]))


def scored():
    """Positions are weighed by one number each (1409.0473)."""

    def forward(s, x):
        found = s.rnn(x)[0]
        return s.fc((torch.softmax(s.score(torch.tanh(s.attn(found))), 1) * found).sum(1))

    net = Net(
        forward, rnn=lambda: nn.GRU(3, 4, batch_first=True, bidirectional=True), attn=lambda: nn.Linear(8, 5), score=lambda: nn.Linear(5, 1), fc=lambda: nn.Linear(8, 2),
    )  # fmt: skip
    answers = {
        "chain.activation": "tanh",
        "chain.output": "none",
        "fc:chain.reads": "sum(softmax(score) * rnn)",
    }
    return net, answers, (torch.randn(2, 6, 3),)


def gated():
    """Maps are scaled by what a part called `se` makes of their means (1709.01507)."""

    def forward(s, x):
        x = F.relu(s.conv1(x))
        x = F.relu(s.conv2(x * torch.sigmoid(s.se(x.mean((2, 3))))[..., None, None]))
        return s.fc(x.mean((2, 3)))

    net = Net(
        forward, conv1=lambda: nn.Conv2d(1, 6, 3, padding=1), se=lambda: nn.Sequential(nn.Linear(6, 2), nn.ReLU(), nn.Linear(2, 6)), conv2=lambda: nn.Conv2d(6, 4, 3, padding=1), fc=lambda: nn.Linear(4, 3),
    )  # fmt: skip
    return net, MAPS, (torch.randn(2, 1, 8, 8),)


def again():
    """The input is read once more in the middle (1901.05103)."""
    net = Net(
        lambda s, x: s.lin2(F.relu(s.lin1(torch.cat((F.relu(s.lin0(x)), x), -1)))),
        lin0=lambda: nn.Linear(3, 8), lin1=lambda: nn.Linear(11, 6), lin2=lambda: nn.Linear(6, 1),
    )  # fmt: skip
    return net, {**RELU, "lin1:chain.reads": "lin0 & inputs"}, (torch.randn(4, 3),)


def with_action():
    net = Net(
        lambda s, x, a: s.fc3(F.relu(s.fc2(torch.cat((F.relu(s.fc1(x)), a), -1)))),
        fc1=lambda: nn.Linear(4, 8), fc2=lambda: nn.Linear(10, 6), fc3=lambda: nn.Linear(6, 1),
    )  # fmt: skip
    return net, {**RELU, "fc2:chain.reads": "fc1 & inputs_2"}, (torch.randn(3, 4), torch.randn(3, 2))


def towers():
    def tower(width):
        return lambda: nn.Sequential(nn.Linear(width, 6), nn.ReLU(), nn.Linear(6, 4))

    net = Net(lambda s, a, b: (s.one(a) * s.two(b)).sum(-1, keepdim=True), one=tower(3), two=tower(5))
    return net, {**RELU, "chain.gives": "dot(one.2, two.2)"}, (torch.randn(2, 3), torch.randn(2, 5))


def gru_on_both():
    def forward(s, x):
        first = torch.tanh(s.dense(x))
        return s.out(s.gru(torch.cat((first, x), -1))[0])

    net = Net(forward, dense=lambda: nn.Linear(5, 4), gru=lambda: nn.GRU(9, 6, batch_first=True), out=lambda: nn.Linear(6, 2))  # fmt: skip
    answers = {"gru:chain.reads": "dense & inputs", "chain.activation": "tanh", "chain.output": "none", "chain.positions": "all"}  # fmt: skip
    return net, answers, (torch.randn(2, 7, 5),)


def highway():
    """A chain by its sizes, had not the user said what its layers read (1505.00387)."""

    def forward(s, x):
        x = F.relu(s.first(x))
        gate = torch.sigmoid(s.transform(x))
        return s.last(gate * F.relu(s.plain(x)) + (1 - gate) * x)

    net = Net(forward, first=lambda: nn.Linear(3, 4), plain=lambda: nn.Linear(4, 4), transform=lambda: nn.Linear(4, 4), last=lambda: nn.Linear(4, 2))  # fmt: skip
    said = "sigmoid(transform) * relu(plain) + (1 - sigmoid(transform)) * first"
    answers = {
        **RELU,
        "transform:chain.reads": "first",
        "plain:chain.reads": "first",
        "last:chain.reads": said,
    }
    return net, answers, (torch.randn(2, 3),)


def film():
    """Inputs that single layers read, all joined by one that is told (1709.07871)."""
    net = Net(
        lambda s, x, c: s.fc2(s.scale(c) * s.fc1(x) + s.offset(c)),
        fc1=lambda: nn.Linear(6, 8), fc2=lambda: nn.Linear(8, 3), offset=lambda: nn.Linear(4, 8), scale=lambda: nn.Linear(4, 8),
    )  # fmt: skip
    answers = {"chain.activation": "none", "chain.output": "none", "fc2:chain.reads": "scale * fc1 + offset"}
    return net, answers, (torch.randn(2, 6), torch.randn(2, 4))


def image_and_numbers():
    def forward(s, x, m):
        return s.last(torch.cat((F.relu(s.conv(x)).mean((2, 3)), F.relu(s.meta(m))), 1))

    net = Net(forward, conv=lambda: nn.Conv2d(1, 4, 3, padding=1), meta=lambda: nn.Linear(5, 6), last=lambda: nn.Linear(10, 2))  # fmt: skip
    answers = {key: value for key, value in MAPS.items() if key != "chain.reduction"}
    answers["last:chain.reads"] = "mean(conv) & meta"
    return net, answers, (torch.randn(2, 1, 6, 6), torch.randn(2, 5))


def dense():
    """Each layer reads what all before it give (1608.06993)."""

    def forward(s, x):
        x = F.relu(s.conv0(x))
        x = torch.cat((x, F.relu(s.conv1(x))), 1)
        x = torch.cat((x, F.relu(s.conv2(x))), 1)
        return s.fc(x.mean((2, 3)))

    net = Net(forward, conv0=lambda: nn.Conv2d(1, 5, 3, padding=1), conv1=lambda: nn.Conv2d(5, 3, 3, padding=1), conv2=lambda: nn.Conv2d(8, 4, 3, padding=1), fc=lambda: nn.Linear(12, 2))  # fmt: skip
    answers = {**MAPS, "conv2:chain.reads": "conv0 & conv1", "fc:chain.reads": "conv0 & conv1 & conv2"}
    return net, answers, (torch.randn(2, 1, 6, 6),)


NETWORKS = [
    film,
    image_and_numbers,
    dense,
    two_tables,
    scored,
    gated,
    again,
    with_action,
    towers,
    gru_on_both,
    highway,
]


@pytest.mark.parametrize("make", NETWORKS)
def test_a_network_computes_what_torch_does(make, tmp_path):
    net, answers, inputs = make()
    save_file({key: value.clone() for key, value in net.state_dict().items()}, tmp_path / "m.safetensors")
    built = mapper.build(tmp_path / "m.safetensors", hints=answers, out=tmp_path / "out")
    loaded, _ = mapper.load(tmp_path / "out")
    assert built.state_dict().keys() == net.state_dict().keys()
    with torch.no_grad():
        wanted = net(*inputs)
        for model in (built, loaded):
            torch.testing.assert_close(model(*inputs).output, wanted)


@pytest.mark.parametrize("make", [make for make in NETWORKS if make not in (highway, film)])
def test_what_sizes_leave_open_is_asked(make):
    """Without answers there is no model, and no reading of such a network is called exact."""
    read = mapper.inspect(make()[0].state_dict()).architecture
    assert read.reading == "unverified" and read.questions


def test_a_gate_is_asked_about_beside_what_it_may_gate():
    """`conv` and `conv_gate` read the same: nothing stored shows that one is scaled by the other (1612.08083)."""
    names = {
        "embedding.weight": [9, 3],
        "conv.weight": [4, 3, 3],
        "conv_gate.weight": [4, 3, 3],
        "fc.weight": [2, 4],
    }
    asked = {question.name: question.candidates for question in mapper.inspect(names).architecture.questions}
    assert asked["fc:chain.reads"][0] == "conv * sigmoid(conv_gate)"


def test_each_layer_has_a_question_of_its_own():
    net, _, _ = two_tables()
    asked = {
        question.name: question.candidates
        for question in mapper.inspect(net.state_dict()).architecture.questions
    }
    assert set(asked["fc1:chain.reads"]) == {"user_emb & item_emb", "item_emb & user_emb"}


def test_what_sizes_show_is_said():
    facts = mapper.inspect(gated()[0].state_dict()).architecture.facts
    shown = {fact.at: (fact.value, fact.source) for fact in facts if fact.name == "chain.reads"}
    assert shown["conv2"] == ("conv1 * sigmoid(se.2)", "a gate, by its name")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"lin1:chain.reads": "lin0 & lin9.weight"}, "no layer is called"),
        ({"lin1:chain.reads": "lin0 &"}, "too soon"),
        ({"lin1:chain.reads": "(" * 300 + "lin0" + ")" * 300}, "parentheses within"),
        ({"lin1:chain.reads": "lin0"}, "lin1 reads 11 features, and this is 8 wide"),
        ({"lin1:chain.reads": "biggest(lin0)"}, "no function is called biggest"),
        ({"lin0:chain.reads": "lin2"}, "lin0 reads 3 features, and this is 1 wide"),
        ({"chain.gives": "lin0 lin1"}, "left over"),
    ],
)
def test_what_is_no_reading_is_refused(said, why):
    with pytest.raises(HintError, match=why):
        mapper.build(again()[0].state_dict(), hints={**again()[1], **said})


@pytest.mark.parametrize(
    "names",
    [
        {"conv.weight": [4, 1, 3, 3], "fc.weight": [2, 5]},
        {"a.weight": [4, 5], "b.weight": [6, 3]},
    ],
)
def test_sizes_that_nothing_gives_are_no_network(names):
    assert mapper.inspect(names).architecture.reading == "skeleton"


def test_one_chain_for_two_inputs():
    net = Net(
        lambda s, a, b: s.out((s.once(a) - s.once(b)).abs()), fc1=lambda: nn.Linear(3, 5), fc2=lambda: nn.Linear(5, 4), out=lambda: nn.Linear(4, 1)
    )  # fmt: skip
    net.once = lambda x: F.relu(net.fc2(F.relu(net.fc1(x))))
    inputs = torch.randn(2, 3), torch.randn(2, 3)
    built = mapper.build(
        net.state_dict(), hints={**RELU, "chain.paired": "apart", "out:chain.paired": "difference"}
    )
    torch.testing.assert_close(built(*inputs).output, net(*inputs))
    apart = mapper.build(net.state_dict(), hints={**RELU, "chain.paired": "apart"})(*inputs)
    torch.testing.assert_close(apart.output_2, net.out(net.once(inputs[1])))


def test_numbers_of_the_way_up_may_fall():
    """`up2` stands before `up1`: what it gives has more channels."""

    def twice(width, out):
        return lambda: nn.Sequential(nn.Conv2d(width, out, 3, padding=1), nn.ReLU(), nn.Conv2d(out, out, 3, padding=1), nn.ReLU())  # fmt: skip

    def forward(s, x):
        one = s.enc1(x)
        two = s.enc2(F.max_pool2d(one, 2))
        three = s.middle(F.max_pool2d(two, 2))
        two = s.dec2(torch.cat((s.up2(three), two), 1))
        return s.last(s.dec1(torch.cat((s.up1(two), one), 1)))

    net = Net(
        forward, enc1=twice(1, 2), enc2=twice(2, 4), middle=twice(4, 8), up2=lambda: nn.ConvTranspose2d(8, 4, 2, 2), dec2=twice(8, 4),
        up1=lambda: nn.ConvTranspose2d(4, 2, 2, 2), dec1=twice(4, 2), last=lambda: nn.Conv2d(2, 1, 1),
    )  # fmt: skip
    names = dict(sorted(net.state_dict().items()))
    answers = {**RELU, "chain.stride": 1, "chain.padding": "half", "chain.pooling": "none", "enc1.2:chain.pooling": "max_2", "enc2.2:chain.pooling": "max_2"}  # fmt: skip
    answers |= {
        "chain.up_stride": 2,
        "chain.up_padding": "exact",
        "chain.joined": "later_first",
        "chain.skip": "none",
    }
    x = torch.randn(1, 1, 8, 8)
    torch.testing.assert_close(mapper.build(names, hints=answers)(x).output, net(x))


def test_numbers_alone_show_a_block():
    """`conv1_2` and `conv1_3` behind a layer that changes the width may be residual (1704.08063)."""

    def forward(s, x):
        x = F.relu(s.conv1_1(x))
        x = x + F.relu(s.conv1_3(F.relu(s.conv1_2(x))))
        return s.fc(x.mean((2, 3)))

    net = Net(forward, conv1_1=lambda: nn.Conv2d(1, 4, 3, padding=1), conv1_2=lambda: nn.Conv2d(4, 4, 3, padding=1), conv1_3=lambda: nn.Conv2d(4, 4, 3, padding=1), fc=lambda: nn.Linear(4, 2))  # fmt: skip
    asked = {
        question.fact for question in mapper.inspect(net.state_dict(), hints=MAPS).architecture.questions
    }
    assert asked == {"chain.residual"}
    x = torch.randn(2, 1, 6, 6)
    built = mapper.build(net.state_dict(), hints={**MAPS, "chain.residual": "after_activation"})
    torch.testing.assert_close(built(x).output, net(x))


def test_settings_and_torch_answer_what_they_say(tmp_path):
    net = Net(lambda s, x: torch.tanh(s.b(F.relu(s.norm(s.a(x))))), a=lambda: nn.Linear(3, 4), norm=lambda: nn.BatchNorm1d(4), b=lambda: nn.Linear(4, 2))  # fmt: skip
    save_file(net.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"activation": "ReLU", "output_activation": "tanh"}))
    told = {"chain.activation_before_norm": False}
    read = mapper.inspect(tmp_path, hints=told).architecture
    assert read.reading == "unverified" and not read.questions
    assert {fact.evidence for fact in read.facts if fact.name == "norm.eps"} == {"default"}
    x = torch.randn(5, 3)
    torch.testing.assert_close(mapper.build(tmp_path, hints=told)(x).output, net.eval()(x))


def test_recurrent_parameters_stand_beside_modules(tmp_path):
    """`enc_w_ih` of the whole, and a linear layer with a folder."""
    gru, fc = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 2)
    named = {f"enc_{name[0]}_{name[-5:-3]}": tensor.detach() for name, tensor in gru.state_dict().items()}
    named |= {f"fc.{name}": tensor.detach() for name, tensor in fc.state_dict().items()}
    save_file({name: tensor.clone() for name, tensor in named.items()}, tmp_path / "m.safetensors")
    model = mapper.build(tmp_path / "m.safetensors", hints={"chain.positions": "all", "chain.output": "none"})
    x = torch.randn(2, 5, 3)
    torch.testing.assert_close(model(x).output, fc(gru(x)[0]))


def test_a_stem_with_shortcut_is_doubtful():
    """Hand-written ResNets for small images have the names of those for large ones, and neither a stride nor pooling at the start."""
    names = {"conv1.weight": [4, 3, 3, 3], **_norm("bn1", 4), "linear.weight": [5, 8], "linear.bias": [5]}
    for stage, width, out in ((1, 4, 4), (2, 4, 8)):
        home = f"layer{stage}.0"
        names |= {f"{home}.conv1.weight": [out, width, 3, 3], f"{home}.conv2.weight": [out, out, 3, 3]}
        names |= {**_norm(f"{home}.bn1", out), **_norm(f"{home}.bn2", out)}
    names |= {"layer2.0.shortcut.0.weight": [8, 4, 1, 1], **_norm("layer2.0.shortcut.1", 8)}
    asked = {question.fact for question in mapper.inspect(names).architecture.questions}
    assert {"chain.stride", "chain.pooling", "chain.residual"} <= asked
    said = {"activation": "relu", "norm.eps": 1e-5, "convolution.stride": 1, "embedding.activation": "relu"}
    plain = mapper.generate(names, hints={**said, "stem": "plain"})
    assert "max_pool2d" not in plain and "max_pool2d" in mapper.generate(
        names, hints={**said, "stem": "pooled"}
    )


def _norm(name, width):
    return {f"{name}.{part}": [width] for part in ("weight", "bias", "running_mean", "running_var")}


def aggregated():
    """Sizes of blocks whose last layer reads the block's input and what each of its layers gives (1904.09730)."""
    names, width = {"stem.weight": [16, 3, 3, 3]}, 16
    for block, (middle, outputs) in {
        "stages.0.0": (8, 24),
        "stages.1.0": (12, 40),
        "stages.1.1": (12, 40),
    }.items():
        for at in range(5):
            names[f"{block}.mid.{at}.weight"] = [middle, middle if at else width, 3, 3]
        names[f"{block}.concat.weight"] = [outputs, width + 5 * middle, 1, 1]
        width = outputs
    return names | {"fc.weight": [5, width]}


def test_what_a_guess_does_not_fit_is_to_be_said_and_no_error_of_an_answer():
    read = mapper.inspect(aggregated()).architecture
    assert any(
        line.startswith("what stages.1.1.concat reads is not known: say --set") for line in read.missing
    )
    with pytest.raises(HintError, match=r"stages\.1\.1\.concat"):
        mapper.inspect(aggregated(), hints={"stages.1.1.concat:chain.reads": "stages.1.0.concat & stem"})


def test_what_was_to_be_said_is_read_once_it_is():
    said = {**MAPS, "fc:chain.reads": "stages.1.1.concat"}
    before = "stem"
    for block in ("stages.0.0", "stages.1.0", "stages.1.1"):
        parts = [f"{block}.mid.{at}" for at in range(5)]
        said[f"{block}.concat:chain.reads"] = " & ".join((before, *parts))
        said |= {f"{name}:chain.reads": of for of, name in zip((before, *parts), parts, strict=False)}
        before = f"{block}.concat"
    assert not mapper.inspect(aggregated(), hints=said).architecture.missing


class AdditiveGate(nn.Module):
    """Weighs the places of maps by what coarser ones say of them (1804.03999)."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.down, self.below, self.up = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)
        self.att = nn.ModuleDict(
            {"W_g": nn.Conv2d(8, 4, 1), "W_x": nn.Conv2d(8, 4, 1), "psi": nn.Conv2d(4, 1, 1)}
        )
        self.out = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        kept = torch.relu(self.down(x))
        up = torch.relu(self.up(torch.relu(self.below(kept))))
        both = torch.relu(self.att["W_g"](up) + self.att["W_x"](kept))
        return self.out(torch.cat((kept * torch.sigmoid(self.att["psi"](both)), up), 1))


def test_a_block_called_attention_that_holds_convolutions_runs_by_what_its_layers_are_said_to_read():
    model, inputs = AdditiveGate().eval(), torch.randn(1, 3, 6, 6)
    reads = {
        "below": "down", "up": "below", "att.W_g": "up", "att.W_x": "down",
        "att.psi": "relu(att.W_g + att.W_x)", "out": "down * sigmoid(att.psi) & up",
    }  # fmt: skip
    said = {f"{layer}:chain.reads": text for layer, text in reads.items()}
    said |= {f"{layer}:chain.activation": "relu" for layer in ("down", "below", "up")}
    said |= {"chain.activation": "none", "chain.stride": 1, "chain.padding": 0, "chain.pooling": "none"}
    said |= {"chain.output": "none", "chain.residual": "none"}
    torch.testing.assert_close(mapper.build(model.state_dict(), hints=said)(inputs).output, model(inputs))
