"""Bilinear layers of networks that nobody names: no shape tells them from a convolution over one axis."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import mapper

SAID = {"chain.activation": "relu", "chain.output": "none"}


def test_a_bilinear_layer_reads_two_inputs():
    torch.manual_seed(0)
    net = nn.ModuleDict({"bilinear": nn.Bilinear(10, 6, 12), "fc": nn.Linear(12, 3)})
    assert mapper.inspect(net.state_dict()).architecture.leaves[0].kind == "Bilinear"
    one, other = torch.randn(4, 10), torch.randn(4, 6)
    built = mapper.build(net.state_dict(), hints=SAID)
    torch.testing.assert_close(built(one, other).output, net["fc"](F.relu(net["bilinear"](one, other))))


def test_it_is_asked_which_layers_a_bilinear_one_reads():
    torch.manual_seed(0)
    layers = {"user": nn.Linear(9, 8), "item": nn.Linear(7, 5), "other": nn.Linear(7, 5), "bilinear": nn.Bilinear(8, 5, 2)}  # fmt: skip
    net = nn.ModuleDict({**layers, "out": nn.Linear(7, 1)})
    asked = {each.at: each for each in mapper.inspect(net.state_dict()).architecture.questions}
    assert asked["bilinear"].fact == "chain.reads"
    assert {"user & item", "user & other"} <= {*asked["bilinear"].candidates}
    said = {
        **SAID,
        "user:chain.reads": "inputs",
        "item:chain.reads": "inputs_2",
        "other:chain.reads": "inputs_2",
        "bilinear:chain.reads": "user & item",
        "out:chain.reads": "bilinear & other",
        "bilinear:chain.activation": "none",
        "chain.inputs": "inputs, inputs_2",
    }
    one, other = torch.randn(3, 9), torch.randn(3, 7)
    found = mapper.build(net.state_dict(), hints=said)(one, other).output
    scores = net["bilinear"](F.relu(net["user"](one)), F.relu(net["item"](other)))
    wanted = net["out"](torch.cat((scores, F.relu(net["other"](other))), dim=-1))
    torch.testing.assert_close(found, wanted)
