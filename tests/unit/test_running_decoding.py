"""Tokens from logits and text from tokens, on values made by hand."""

from __future__ import annotations

import pytest
import torch

from mapper.running.decoding import Sampler, Streamed, nucleus, repeated, without

CHANCES = torch.tensor([0.1, 0.5, 0.05, 0.35])


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(1.0, [0.1, 0.5, 0.05, 0.35]), (0.5, [0, 0.5, 0, 0]), (0.6, [0, 0.5, 0, 0.35]), (0.9, [0.1, 0.5, 0, 0.35]), (1e-9, [0, 0.5, 0, 0])],
)  # fmt: skip
def test_the_fewest_tokens_that_have_the_chance_together_are_kept(top_p: float, kept: list[float]) -> None:
    assert nucleus(CHANCES, top_p).tolist() == pytest.approx(kept)


def test_temperature_sharpens_or_flattens_the_chances() -> None:
    logits = CHANCES.log()

    def share(temperature: float) -> float:
        sampler = Sampler(temperature, seed=0)
        return sum(sampler.pick(logits) == 1 for _ in range(2000)) / 2000

    assert Sampler().pick(logits) == 1
    # Chances to the power of 1 / temperature, anew made to one: 0.5² / Σ p² and 0.5^½ / Σ p^½; three standard deviations.
    assert share(0.5) == pytest.approx(0.25 / 0.385, abs=0.034)
    assert share(2.0) == pytest.approx(0.7071 / 1.8387, abs=0.034)


def test_a_seed_draws_the_same_and_top_p_draws_nothing_else() -> None:
    logits = CHANCES.log()
    drawn = [[Sampler(1.0, 0.6, seed).pick(logits) for _ in range(1)] for seed in (1, 1)]
    assert drawn[0] == drawn[1]
    sampler = Sampler(1.0, 0.6, seed=3)
    assert {sampler.pick(logits) for _ in range(200)} == {1, 3}


def test_tokens_that_may_not_come_are_never_the_likeliest() -> None:
    assert int(without(CHANCES, {1, 3, 99, -1}).argmax()) == 0
    assert repeated([5, 6, 7, 5, 6], 3) == {7}
    assert repeated([5, 6], 0) == repeated([5], 3) == set()
    assert repeated([5, 6], 1) == {5, 6}


def test_a_character_of_several_tokens_is_told_once_it_is_whole() -> None:
    data = "né 🦉!".encode()
    told: list[str] = []
    streamed = Streamed(lambda ids: bytes(ids).decode("utf-8", "replace"), told.append)
    for byte in data:
        streamed.add(byte)
    assert told == ["n", "é", " ", "🦉", "!"]
    assert streamed.end() == "né 🦉!"
    assert len(told) == 5


def test_bytes_that_never_become_whole_are_told_at_the_end() -> None:
    streamed = Streamed(lambda ids: bytes(ids).decode("utf-8", "replace"))
    for byte in b"a\xf0\x9f":
        streamed.add(byte)
    assert streamed.text == "a"
    assert streamed.end() == "a\ufffd"


def test_a_space_that_a_decoder_writes_between_words_alone_is_told() -> None:
    words = ["the", "owl", "flew"]
    streamed = Streamed(lambda ids: " ".join(words[at] for at in ids))
    for at in range(3):
        streamed.add(at)
    assert streamed.end() == "the owl flew"
