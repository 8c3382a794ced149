"""A model that makes no sense as what its first task says is tried as another: hidden words are no next ones."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import mapper
from mapper.architecture import Architecture
from mapper.evidence.behaviour import attempting
from mapper.evidence.behaviour.trying import Tried
from mapper.evidence.found import Found

WIDTH = 16
PRE = Found("pre", "behaviour", "loss")


def with_a_head() -> Architecture:
    """The reading of torch's own layers between a table of words and a map to as many."""
    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 4, 24), 2, enable_nested_tensor=False)
    state = {f"encoder.{name}": value for name, value in layers.state_dict().items()}
    state |= {"embedding.weight": torch.randn(256, WIDTH), "pos_embedding.weight": torch.randn(32, WIDTH)}
    return mapper.inspect({**state, "head.weight": torch.randn(256, WIDTH)}).architecture


def searched(monkeypatch: pytest.MonkeyPatch, sensible: str) -> list[str]:
    """The tasks that a search was made for, of a model that makes sense as `sensible` alone."""
    seen: list[str] = []

    def search(architecture: Architecture, *rest: object) -> Tried:
        known = {fact.name: fact.value for fact in architecture.facts}
        seen.append(known.get("task", "causal_lm"))  # the first answer, where it is asked
        return Tried("loss", {}, {"norm.placement": PRE} if seen[-1] == sensible else {})

    monkeypatch.setattr(attempting, "search", search)
    return seen


def test_what_fills_in_hidden_words_is_tried_as_that_where_next_words_make_no_sense(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = searched(monkeypatch, "masked_lm")
    found = attempting.attempt(with_a_head()).found
    assert seen == ["causal_lm", "masked_lm"]
    assert found["norm.placement"] is PRE
    assert (found["task"].value, found["task"].evidence) == ("masked_lm", "default")
    assert found["task"].source == 'a text makes no sense to it as "causal_lm"'


def test_no_other_task_is_tried_where_the_first_makes_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = searched(monkeypatch, "causal_lm")
    assert attempting.attempt(with_a_head()).found == {"norm.placement": PRE}
    assert seen == ["causal_lm"]


def test_nothing_is_said_where_no_task_makes_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = searched(monkeypatch, "none")
    assert attempting.attempt(with_a_head()).found == {}
    assert seen == ["causal_lm", "masked_lm"]
