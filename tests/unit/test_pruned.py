"""What torch's pruning keeps beside a weight is said, with what to do about it, and never left out."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import prune

import mapper


def test_a_pruned_network_is_told_how_to_become_one_that_is_read():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 3))
    prune.l1_unstructured(net[0], "weight", 0.5)
    said = {"chain.activation": "relu", "chain.output": "none"}
    read = mapper.inspect(net.state_dict()).architecture
    assert read.reading == "skeleton"
    assert any("'0.weight' is stored" in note and "prune.remove" in note for note in read.notes)
    prune.remove(net[0], "weight")
    x = torch.randn(2, 8)
    torch.testing.assert_close(mapper.build(net.state_dict(), hints=said)(x).output, net(x))
    assert not mapper.inspect(net.state_dict()).architecture.notes
