"""What of a small network no size shows, and was once taken in silence: it is asked, and equal when answered."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mapper

PLAIN = {"chain.stride": 1, "chain.padding": "half", "chain.pooling": "none", "chain.output": "none"}
RELU = {"chain.activation": "relu"}
NORMED = {"chain.activation_before_norm": False}


class Net(nn.Module):
    """Layers by their names, and a forward."""

    def __init__(self, forward, **layers):
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.called = forward

    def forward(self, *inputs):
        return self.called(self, *inputs)


def conv(inputs: int, outputs: int, stride: int = 1, kernel: int = 3) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2)


def heads():
    """Heads whose channels are together as many as a layer reads: no branches that stand before it."""

    def forward(s, x):
        x = F.relu(s.layer2(F.relu(s.layer1(x))))
        return s.heat(x), s.size(x), s.offset(x)

    parts = {
        "layer1": conv(3, 8),
        "layer2": conv(8, 6),
        "heat": conv(6, 4),
        "size": conv(6, 2),
        "offset": conv(6, 2),
    }
    return Net(forward, **parts), {**PLAIN, **RELU}, (torch.rand(1, 3, 8, 8),), None


def auxiliary():
    """A class beside whether an image is real (1610.09585): called auxiliary, and an output."""

    def forward(s, x):
        x = F.relu(s.conv(x)).flatten(1)
        return s.adv_layer(x), s.aux_layer(x)

    net = Net(forward, conv=conv(2, 4), adv_layer=nn.Linear(64, 1), aux_layer=nn.Linear(64, 5))
    return net, {**PLAIN, **RELU, "chain.reduction": "flatten"}, (torch.rand(2, 2, 4, 4),), None


def again():
    """A network that reads its input again in the middle (1901.05103): no heads, by the numbers of its layers."""

    def forward(s, x):
        y = F.relu(s.lin1(F.relu(s.lin0(x))))
        return s.lin3(F.relu(s.lin2(torch.cat((y, x), 1))))

    sizes = {"lin0": (9, 16), "lin1": (16, 7), "lin2": (16, 16), "lin3": (16, 1)}
    net = Net(forward, **{name: nn.Linear(*size) for name, size in sizes.items()})
    answers = {**RELU, "lin2:chain.reads": "lin1 & inputs", "chain.output": "none"}
    return net, answers, (torch.rand(2, 9),), ("lin2:chain.reads", ("lin1 & inputs", "inputs & lin1", "lin0"))


class Activated(nn.Module):
    """A residual block whose norm and activation stand before its branch, too (1605.07146)."""

    def __init__(self):
        super().__init__()
        self.bn1, self.conv1, self.bn2, self.conv2 = (
            nn.BatchNorm2d(4),
            conv(4, 6),
            nn.BatchNorm2d(6),
            conv(6, 6),
        )
        self.shortcut = nn.Conv2d(4, 6, 1)

    def forward(self, x):
        x = F.relu(self.bn1(x))
        return self.shortcut(x) + self.conv2(F.relu(self.bn2(self.conv1(x))))


def activated():
    net = Net(
        lambda s, x: s.fc(s.block1(s.conv(x)).mean((2, 3))),
        conv=conv(3, 4),
        block1=Activated(),
        fc=nn.Linear(6, 5),
    )
    answers = {**PLAIN, **RELU, **NORMED, "chain.residual": "before_activation", "chain.reduction": "mean"}
    answers |= {"chain.residual_branch": "activated", "block1.conv2:chain.activation": "none"}
    return net, answers, (torch.rand(2, 3, 6, 6),), ("chain.residual_branch", ("input", "activated"))


def masked():
    """A mask of what the network reads, in a module that is called so."""

    def forward(s, x):
        y = s.bn(x.transpose(1, 2)).transpose(1, 2)
        return x * torch.sigmoid(s.mask(s.rnn(F.relu(s.fc(y)))[0]))

    net = Net(
        forward,
        bn=nn.BatchNorm1d(6),
        fc=nn.Linear(6, 5),
        rnn=nn.GRU(5, 7, batch_first=True),
        mask=nn.Linear(7, 6),
    )
    answers = {**RELU, "chain.positions": "all", "chain.output": "sigmoid", "chain.skip": "multiplied"}
    return net, answers, (torch.rand(2, 4, 6),), ("chain.skip", ("none", "multiplied"))


def paired():
    """Both inputs of one network, and how far they are apart, side by side (1908.10084)."""

    def forward(s, a, b):
        a, b = F.relu(s.fc1(a)), F.relu(s.fc1(b))
        return s.out(torch.cat((a, b, (a - b).abs()), 1))

    net = Net(forward, fc1=nn.Linear(7, 5), out=nn.Linear(15, 2))
    answers = {**RELU, "out:chain.paired": "with_difference", "chain.output": "none"}
    return net, answers, (torch.rand(2, 7), torch.rand(2, 7)), ("chain.paired", ("with_difference",))


def summaries():
    """The mean and the largest of all positions side by side."""

    def forward(s, ids):
        x = s.rnn(s.emb(ids))[0]
        return s.out(torch.cat((x.mean(1), x.amax(1)), -1))

    net = Net(forward, emb=nn.Embedding(9, 4), rnn=nn.LSTM(4, 5, batch_first=True), out=nn.Linear(10, 3))
    answers = {"chain.positions": "mean & max", "chain.output": "none"}
    return net, answers, (torch.tensor([[1, 5, 2]]),), ("chain.positions", ("mean & max", "max & mean"))


def enlarged():
    """Layers that make maps larger read those of the way down themselves (1611.07004)."""

    def forward(s, x):
        a = F.relu(s.down1(x))
        b = F.relu(s.down2(a))
        c = F.relu(s.up1(F.relu(s.down3(b))))
        d = F.relu(s.up2(torch.cat((c, b), 1)))
        return s.final(torch.cat((d, a), 1))

    def up(inputs, outputs):
        return nn.ConvTranspose2d(inputs, outputs, 4, 2, 1)

    parts = {"down1": conv(3, 4, 2), "down2": conv(4, 6, 2), "down3": conv(6, 8, 2)}
    net = Net(forward, **parts, up1=up(8, 6), up2=up(12, 4), final=up(8, 2))
    answers = {
        **PLAIN,
        **RELU,
        "chain.stride": 2,
        "chain.up_stride": 2,
        "chain.up_padding": 1,
        "chain.joined": "later_first",
    }
    return net, answers, (torch.rand(1, 3, 16, 16),), ("chain.joined", ("earlier_first", "later_first"))


def from_one_place():
    """A row as maps of one place, which transposed convolutions make larger (1803.10122)."""

    def forward(s, x):
        x = F.relu(s.fc(x))[..., None, None]
        return s.deconv2(F.relu(s.deconv1(x)))

    parts = {"deconv1": nn.ConvTranspose2d(8, 4, 3, 2), "deconv2": nn.ConvTranspose2d(4, 2, 4, 2)}
    answers = {
        **RELU,
        "chain.up_stride": 2,
        "chain.up_padding": 0,
        "chain.pooling": "none",
        "chain.output": "none",
    }
    return Net(forward, fc=nn.Linear(5, 8), **parts), answers, (torch.rand(2, 5),), None


def pooled():
    """A block of a stride whose input is pooled before it is added: no layer of its own makes that smaller."""

    def forward(s, x):
        x = s.stem(x)
        for block in s.blocks:
            beside = F.avg_pool2d(x, 3, 2, 1)
            y = block["conv2"](F.relu(block["conv1"](x)))
            x = F.relu(y + (block["shortcut"](beside) if "shortcut" in block else beside))
        return s.fc(x.mean((2, 3)))

    first = nn.ModuleDict({"conv1": conv(4, 4, 2), "conv2": conv(4, 4)})
    second = nn.ModuleDict({"conv1": conv(4, 6, 2), "conv2": conv(6, 6), "shortcut": nn.Conv2d(4, 6, 1)})
    net = Net(forward, stem=conv(3, 4), blocks=nn.ModuleList([first, second]), fc=nn.Linear(6, 5))
    answers = {
        **PLAIN,
        **RELU,
        "chain.stride": 2,
        "stem:chain.stride": 1,
        "conv2:chain.stride": 1,
        "chain.reduction": "mean",
    }
    answers |= {
        "chain.residual": "before_activation",
        "chain.pooling_before": "mean_3_2_1",
        "stem:chain.activation": "none",
    }
    answers["blocks.1.shortcut:chain.pooling_before"] = "mean_3_2_1"
    return net, answers, (torch.rand(1, 3, 12, 12),), None


def activation_first():
    """Residual blocks without norms that begin with an activation (1802.01561)."""

    def forward(s, x):
        x = s.conv(x)
        for name in ("res_block0", "res_block1"):
            block = s.get_submodule(name)
            x = x + block["conv1"](F.relu(block["conv0"](F.relu(x))))
        return s.fc(F.relu(x).flatten(1))

    blocks = {f"res_block{n}": nn.ModuleDict({"conv0": conv(4, 4), "conv1": conv(4, 4)}) for n in (0, 1)}
    net = Net(forward, conv=conv(3, 4), **blocks, fc=nn.Linear(144, 5))
    answers = {
        **PLAIN,
        "chain.activation": "none",
        "conv0:chain.activation": "relu",
        "chain.residual": "activation_first",
    }
    answers |= {"res_block1.conv1:chain.activation": "relu", "chain.reduction": "flatten"}
    return net, answers, (torch.rand(2, 3, 6, 6),), None


def normed_before_the_sum():
    """A norm that stores nothing belongs to the convolution before the sum, as one that stores something does."""

    def normed(x):
        return F.instance_norm(x)

    def forward(s, x):
        x = F.elu(normed(s.conv(x)))
        y = normed(s.res1["conv2"](F.elu(normed(s.res1["conv1"](x)))))
        return s.fc(F.elu(x + y).mean((2, 3)))

    net = Net(
        forward,
        conv=conv(3, 4),
        res1=nn.ModuleDict({"conv1": conv(4, 4), "conv2": conv(4, 4)}),
        fc=nn.Linear(4, 5),
    )
    answers = {**PLAIN, "chain.activation": "instance_norm+elu", "chain.residual": "before_activation"}
    return net, {**answers, "chain.reduction": "mean"}, (torch.rand(2, 3, 6, 6),), None


def several_scores():
    """Several scores of each position, each of which weighs all of them (1703.03130)."""

    def forward(s, ids):
        x = s.rnn(s.emb(ids))[0]
        scores = F.softmax(s.ws2(torch.tanh(s.ws1(x))), 1)
        return s.pred((scores.transpose(1, 2) @ x).flatten(1))

    layers = {
        "emb": nn.Embedding(9, 6),
        "rnn": nn.LSTM(6, 7, batch_first=True),
        "ws1": nn.Linear(7, 5, bias=False),
    }
    net = Net(forward, **layers, ws2=nn.Linear(5, 4, bias=False), pred=nn.Linear(28, 2))
    reads = "flatten(transposed(softmax(ws2)) @ rnn)"
    answers = {
        "pred:chain.reads": reads,
        "chain.positions": "all",
        "chain.activation": "tanh",
        "chain.output": "none",
    }
    return net, answers, (torch.tensor([[1, 5, 2, 2]]),), ("pred:chain.reads", (reads, "inputs"))


MORE = [pooled, activation_first, normed_before_the_sum, several_scores]
CASES = [*MORE, heads, auxiliary, again, activated, masked, paired, summaries, enlarged, from_one_place]


@pytest.mark.parametrize("case", CASES)
def test_it_is_asked_and_equal_when_answered(case) -> None:
    torch.manual_seed(0)
    net, answers, inputs, question = case()
    for module in net.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.uniform_(module.weight, 0.5, 1.5)
    asked = {each.name: each.candidates for each in mapper.inspect(net.state_dict()).architecture.questions}
    if question is not None:
        assert asked[question[0]] == question[1]
    assert all(name in answers or any(said.endswith(f":{name}") for said in answers) for name in asked)
    same(net, answers, *inputs)


def same(net: nn.Module, answers: dict[str, Any], *inputs: torch.Tensor) -> None:
    wanted = net.eval()(*inputs)
    given = tuple(vars(mapper.build(net.state_dict(), hints=answers)(*inputs)).values())
    for one, other in zip(given, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        torch.testing.assert_close(one, other)


def test_what_stands_behind_the_code_of_an_autoencoder_is_asked_by_itself():
    """An activation that is said of all layers says nothing of the last one of an encoder: most have none there."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
    decoder = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 12))
    net = Net(lambda s, x: s.decoder(s.encoder(x)), encoder=encoder, decoder=decoder)
    said = {**RELU, "chain.output": "none"}
    asked = mapper.inspect(net.state_dict(), hints=said).architecture.questions
    assert [(each.fact, each.at) for each in asked] == [("chain.activation", "encoder.2")]
    x = torch.randn(2, 12)
    built = mapper.build(net.state_dict(), hints={**said, "encoder.2:chain.activation": "none"})
    torch.testing.assert_close(built(x).output, net(x))
