"""Layers whose weight is made of other tensors, stored in either of torch's two ways: built, and written as source, they give what torch does."""

from __future__ import annotations

import sys
import warnings

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils import parametrizations

import mapper

LINEAR = {"chain.activation": "relu", "chain.output": "none"}
MAPS = {**LINEAR, "chain.stride": 1, "chain.padding": "half", "chain.pooling": "none"}
UP = {**LINEAR, "chain.up_stride": 2, "chain.up_padding": "exact"}
NETWORKS = {
    "linear": (lambda made: (made(nn.Linear(5, 8)), nn.ReLU(), made(nn.Linear(8, 3))), (2, 5), LINEAR),
    "one axis": (lambda made: (made(nn.Conv1d(3, 8, 3, padding=1)), nn.ReLU(), made(nn.Conv1d(8, 4, 5, padding=2))), (2, 3, 9), MAPS),
    "maps": (lambda made: (made(nn.Conv2d(3, 8, 3, padding=1)), nn.ReLU(), made(nn.Conv2d(8, 4, 3, padding=1))), (2, 3, 9, 8), MAPS),
    "maps made larger": (lambda made: (made(nn.ConvTranspose2d(3, 8, 4, 2, 1)), nn.ReLU(), made(nn.ConvTranspose2d(8, 4, 4, 2, 1))), (2, 3, 4, 5), UP),
}  # fmt: skip
WAYS = {
    "lengths": nn.utils.weight_norm,
    "parametrized lengths": parametrizations.weight_norm,
    "largest singular value": nn.utils.spectral_norm,
    "parametrized singular value": parametrizations.spectral_norm,
}


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of the older ways: most files are stored in these
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_weight_is_made_of_what_is_stored(name, way, tmp_path, monkeypatch):
    torch.manual_seed(0)
    layers, size, hints = NETWORKS[name]
    network = nn.Sequential(*layers(WAYS[way]))
    for _ in range(20):  # steps towards the largest singular value: of a random one all numbers are thousands
        network(torch.randn(size))
    network.eval()
    path = tmp_path / "model.safetensors"
    save_file({key: tensor.contiguous() for key, tensor in network.state_dict().items()}, path)
    inputs = torch.randn(size)
    expected = network(inputs)
    built = mapper.build(path, hints=hints)
    assert built.state_dict().keys() == network.state_dict().keys()
    torch.testing.assert_close(built(inputs).output, expected)
    (tmp_path / "written.py").write_text(mapper.generate(path, hints=hints))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "written", raising=False)
    import written

    torch.testing.assert_close(written.load(path)(inputs).output, expected)


def test_vectors_beside_a_weight_that_is_divided_do_not_contradict_its_bias():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network = nn.Sequential(
            nn.utils.spectral_norm(nn.Conv2d(3, 8, 3)), nn.utils.spectral_norm(nn.Conv2d(8, 1, 3))
        )
    architecture = mapper.inspect(network.state_dict()).architecture
    assert not architecture.findings  # nothing lacks beside vectors that are called as a direction is
    leaf, _ = architecture.leaves
    assert (leaf.kind, set(leaf.tensors)) == ("Conv2d", {"bias", "weight_orig", "weight_u", "weight_v"})
