"""Recurrent cells that are put together of linear layers, as tutorials and theses write them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import mapper

LAST = {"chain.positions": "last", "chain.output": "none"}
WIDTH, STATE = 5, 7


def plain(layers, x, hidden):
    return torch.tanh(layers["i2h"](x) + layers["h2h"](hidden)), None


def side_by_side(layers, x, hidden):
    return torch.tanh(layers["i2h"](torch.cat((hidden, x), 1))), None


def gates(layers, x, hidden, memory, both=None):
    def gate(name):
        if both is not None:
            return layers[both[name]](torch.cat((x, hidden), 1))
        return layers[f"W_{name}"](x) + layers[f"U_{name}"](hidden)

    i, f, o = (torch.sigmoid(gate(name)) for name in "ifo")
    memory = f * memory + i * torch.tanh(gate("g"))
    return o * torch.tanh(memory), memory


NAMES = {"i": "input_gate", "f": "forget_gate", "g": "candidate", "o": "output_gate"}


def linear(inputs):
    return nn.Linear(inputs, STATE)


CELLS = {
    "plain": ({"i2h": linear(WIDTH), "h2h": linear(STATE)}, plain, {"chain.recurrent_activation": "tanh"}),
    "side by side": (
        {"i2h": linear(WIDTH + STATE)}, side_by_side, {"chain.recurrent_activation": "tanh", "chain.joined": "state_first"},
    ),
    "gates": (
        {f"{word}_{name}": linear(WIDTH if word == "W" else STATE) for name in "ifgo" for word in "WU"}, gates, {},
    ),
    "gates side by side": (
        {name: linear(WIDTH + STATE) for name in NAMES.values()},
        lambda *given: gates(*given, both=NAMES), {"chain.joined": "input_first"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("kind", CELLS)
def test_outputs_are_those_of_the_loop(kind: str, words: bool) -> None:
    torch.manual_seed(0)
    layers, step, answers = CELLS[kind]
    parts = {**layers, "h2o": nn.Linear(STATE, 3)} | ({"embedding": nn.Embedding(9, WIDTH)} if words else {})
    net = nn.ModuleDict(parts)
    inputs = torch.tensor([[1, 8, 3, 3], [2, 0, 4, 7]]) if words else torch.rand(2, 4, WIDTH)
    hidden = memory = torch.zeros(2, STATE)
    for x in (net["embedding"](inputs) if words else inputs).unbind(1):
        hidden, memory = step(layers, x, hidden, *([memory] if "gates" in kind else []))
    found = mapper.build(net.state_dict(), hints={**LAST, **answers})(inputs).output
    torch.testing.assert_close(found, net["h2o"](hidden))


def test_what_no_size_shows_is_asked() -> None:
    net = nn.ModuleDict(CELLS["side by side"][0] | {"i2o": nn.Linear(WIDTH + STATE, 3)})
    asked = {question.fact for question in mapper.inspect(net.state_dict()).architecture.questions}
    assert asked == {"chain.joined", "chain.recurrent_activation", "chain.positions", "chain.output"}


def test_of_square_maps_of_gates_a_letter_shows_which_reads_the_state() -> None:
    for words, reading in (("WU", "unverified"), ("AB", "skeleton")):
        net = nn.ModuleDict({f"{word}_{name}": nn.Linear(4, 4) for name in "ifgo" for word in words})
        assert mapper.inspect(net.state_dict()).architecture.reading == reading
