"""Small networks that nobody names, drawn at random: nothing is taken in silence that is otherwise (tools/combinations.py chains)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from mapper._api import describe
from tools.combinations import EQUAL, TOLD, answered, fares, scored, unusual
from tools.drawn import chains
from tools.drawn.chains import Draw, classes, draw, write

ASKED = {  # what neither names nor sizes show is a question
    "chain.activation_before_norm": Draw(norm="batch", acts_first=True),
    "chain.groups": Draw(recipe="residual", norm="group", depth=3, variant=1),  # beside a block, too
    "chain.reads": Draw(recipe="attentive"),
    "chain.activation": Draw(recipe="variational"),  # the names of an example, and other sizes
}
KNOWN = {
    "one slope of a list, behind a norm of each map": Draw(recipe="siamese", habit="whole", norm="instance", activation="prelu"),
    "slopes before norms that are defined last": Draw(norm="batch", activation="prelu", acts_first=True, norms_last=True),
    "an activation before a norm, and a pooling behind it": Draw(habit="sequential", norm="group", acts_first=True),
    "norms of one name in several folders": Draw(recipe="depthwise", norm="batch", norms_last=True, depth=3, variant=1),
    "a way up that is listed": Draw(recipe="u_net", norm="batch", depth=3),
    "cells of a GRU": Draw(recipe="cells", cell="GRU"),
    "channels weighed by a block called attention": Draw(recipe="excited", norm="batch"),
}  # fmt: skip


@pytest.mark.parametrize(("fact", "one"), ASKED.items(), ids=ASKED)
def test_what_nothing_shows_is_asked(fact: str, one: Draw, tmp_path: Path) -> None:
    write(one, tmp_path, 1)
    said, _ = answered(chains, one, tmp_path)
    assert fact in {name.rpartition(":")[2] for name in said}


@pytest.mark.parametrize("one", KNOWN.values(), ids=KNOWN)
def test_layers_are_called_as_they_were(one: Draw, tmp_path: Path) -> None:
    how, why = fares(chains, one, tmp_path, 1)
    assert how in (EQUAL, TOLD), why


@pytest.mark.parametrize("seed", range(4))
def test_what_is_drawn_is_never_wrong(seed: int, tmp_path: Path) -> None:
    one = draw(seed)
    how, why = fares(chains, one, tmp_path, seed)
    right: Counter[str] = Counter()
    wrong = list(scored(tmp_path, classes(one), right))
    assert how in (EQUAL, TOLD) or one.recipe == "attention", f"{how}: {why}: {unusual(one)}"
    assert not [text for text in wrong if text.lstrip().startswith("leaves")]


def test_a_gate_by_its_widths_is_no_head() -> None:
    names = {"conv1.weight": [4, 3, 3, 3], "conv2.weight": [8, 4, 3, 3], "fc.weight": [5, 8]}
    names |= {"block.squeeze.weight": [2, 4], "block.expand.weight": [4, 2]}
    asked = {question.name: question.candidates for question in describe(names).questions}
    assert "conv1 * sigmoid(block.expand)" in asked["conv2:chain.reads"]


def test_the_order_of_a_state_dict_counts_where_names_stand_in_order(tmp_path: Path) -> None:
    names = {"fc.weight": (256, 6), "main.0.weight": (16, 8, 4, 4)}
    names |= {f"main.1.{part}": (8,) for part in ("weight", "bias", "running_mean", "running_var")}
    names |= {"main.3.weight": (8, 3, 4, 4)}
    torch.save({name: torch.ones(shape) for name, shape in names.items()}, tmp_path / "m.pth")
    assert describe(tmp_path / "m.pth").forward[0].startswith("x = fc(")


def test_a_module_called_as_a_tensor_of_fewer_bits_is_none() -> None:
    names = {f"attn.{word}.weight": [8, 8] for word in ("W_q", "W_k", "W_v", "out_proj")}
    assert not describe(names).refusal
