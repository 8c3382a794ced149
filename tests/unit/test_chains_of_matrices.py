"""Networks of plain matrices and vectors, a letter with a number each, as lectures write them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

import mapper

PLAIN = {"chain.activation": "tanh", "chain.output": "none"}


def drawn(*sizes):
    torch.manual_seed(4)
    pairs = list(pairwise(sizes))
    found = {f"W{at}": torch.randn(pair) for at, pair in enumerate(pairs, 1)}
    return found | {f"b{at}": torch.randn(out) for at, (_, out) in enumerate(pairs, 1)}


def through(x, state):
    """Rows times matrices [in, out]."""
    count = sum(name.startswith("W") for name in state)
    for at in range(1, count + 1):
        x = x @ state[f"W{at}"] + state[f"b{at}"].flatten()
        x = torch.tanh(x) if at < count else x
    return x


def output(path, hints, x):
    return mapper.build(path, hints=hints)(x).output


@torch.no_grad()
@pytest.mark.parametrize("form", ["in_out", "out_in", "rows", "npz"])
def test_layers_of_a_letter_and_a_number(tmp_path, form):
    state, x = drawn(7, 5, 5, 3), torch.randn(4, 7)
    wanted, path = through(x, state), tmp_path / "net.pth"
    if form == "out_in":
        state = {name: value.T.contiguous() if name[0] == "W" else value for name, value in state.items()}
    if form == "rows":
        state = {name: value[None] if name[0] == "b" else value for name, value in state.items()}
    if form == "npz":
        np.savez(
            path := tmp_path / "net.npz", **{name.lower(): value.numpy() for name, value in state.items()}
        )
    else:
        torch.save(state, path)
    torch.testing.assert_close(output(path, PLAIN, x), wanted)


@torch.no_grad()
def test_a_table_whose_rows_stand_in_one_row_is_a_table(tmp_path):
    """A language model of three words (Bengio, 2003): nobody gives the 12 features that `W1` reads."""
    table, state, ids = torch.randn(9, 4), drawn(12, 6, 9), torch.tensor([[1, 8, 3], [0, 0, 2]])
    torch.save({"C": table, **state}, tmp_path / "net.pth")
    wanted = through(table[ids].flatten(1), state)
    torch.testing.assert_close(output(tmp_path / "net.pth", PLAIN, ids), wanted)


def test_a_letter_beside_other_names_is_no_layer(tmp_path):
    torch.save({**drawn(7, 5, 3), "gain": torch.ones(5)}, tmp_path / "net.pth")
    assert "W1" in mapper.inspect(tmp_path / "net.pth").architecture.checkpoint.tensors
