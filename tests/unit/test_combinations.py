"""Decoders of known pieces, together as in no listed type: nothing is taken in silence that is otherwise (tools/combinations.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mapper._api import describe
from tools.combinations import EQUAL, TOLD, answered, fares, unusual
from tools.drawn import conformers, decoders, hybrids, speech
from tools.drawn.decoders import WINDOW, Draw, draw, write

ASKED = {  # what speaks for a reading in listed types alone is a question in another one
    "norm.kind": Draw(norm="scale", placement="after", gated=False),
    "norm.offset": Draw(activation="gelu_pytorch_tanh"),
    "rotary.style": Draw(scheme="meta"),
    "attention.window": Draw(gate_fused=True, position="partial", window="all"),
    "embedding.scale": Draw(activation="gelu"),
}
MIXED = {
    "latents of queries, neighbours turned": hybrids.Draw(query_rank=True, interleaved=True, experts="sigmoid"),
    "a sandwich of norms around a selective scan": hybrids.Draw(mixer="mamba", placement="sandwich", inner_norms=True),
    "a grouped norm of scales beside layer norms": hybrids.Draw(mixer="mamba2", groups=2, norm="layer", eps=1e-3),
    "a delta rule, its projections in one": hybrids.Draw(mixer="delta", is_joined=True, norm="layer", activation="relu"),
    "state spaces alone, with experts": hybrids.Draw(mixer="mamba2", is_all=True, experts="shared", activation="relu"),
}  # fmt: skip
KNOWN = {
    "a layer in parallel, with experts and a factor": Draw(placement="parallel", experts="shared", residual_scale=0.5),
    "a root mean square, whatever its name says": Draw(scheme="opt", norm="rms", gated=False, fused=True),
    "a table of positions in place of the rotary ones": Draw(norm="layer", gated=False, position="learned"),
    "norms behind sums, and none at the end": Draw(norm="layer", placement="post", gated=False),
    "a sandwich without Gemma's settings": Draw(placement="sandwich", query_norm="head", residual_scale=0.5),
    "sinks behind an embedding's norm": Draw(sinks=True, embedding_norm=True, query_norm="wide"),
}  # fmt: skip


@pytest.mark.parametrize(("fact", "one"), ASKED.items(), ids=ASKED)
def test_what_names_alone_suggest_is_asked(fact: str, one: Draw, tmp_path: Path) -> None:
    write(one, tmp_path, 1)
    said, _ = answered(decoders, one, tmp_path)
    assert fact in {name.rpartition(":")[2] for name in said} | {
        question.fact for question in describe(str(tmp_path), hints=said).questions
    }


@pytest.mark.parametrize("one", KNOWN.values(), ids=KNOWN)
def test_pieces_compose(one: Draw, tmp_path: Path) -> None:
    how, why = fares(decoders, one, tmp_path, 1)
    assert how in (EQUAL, TOLD), why


HEARD = {
    "waves, each convolution with a norm over channels": speech.Draw(
        feature_norm="layer", feature_bias=True, gated=True
    ),
    "waves, turned, with norms behind sums": speech.Draw(
        position="rotary", placement="post", scheme="llama", key_bias=False
    ),
    "spectra, turned, with root mean squares": speech.Draw(
        hears="spectra", position="rotary", norm="rms", scaled=True, tied=False
    ),
}


@pytest.mark.parametrize("one", MIXED.values(), ids=MIXED)
def test_mixers_compose(one: hybrids.Draw, tmp_path: Path) -> None:
    how, why = fares(hybrids, one, tmp_path, 1)
    assert how in (EQUAL, TOLD), why


@pytest.mark.parametrize("one", HEARD.values(), ids=HEARD)
def test_what_hears_composes(one: speech.Draw, tmp_path: Path) -> None:
    how, why = fares(speech, one, tmp_path, 1)
    assert how in (EQUAL, TOLD), why


@pytest.mark.parametrize("scheme", ["nemo", "first"])
def test_a_conformer_may_norm_the_channels_of_its_maps(scheme: str, tmp_path: Path) -> None:
    one = conformers.Draw(scheme=scheme, map_norm="layer", position="rotary", activation="gelu")
    how, why = fares(conformers, one, tmp_path, 1)
    assert how in (EQUAL, TOLD), why


def test_the_window_that_a_config_has_is_among_the_answers(tmp_path: Path) -> None:
    write(Draw(query_norm="head", window="all"), tmp_path, 1)
    asked = {question.fact: question.candidates for question in describe(str(tmp_path)).questions}
    assert asked["attention.window"] == (WINDOW, None)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_drawn_is_equal_or_asked(seed: int, tmp_path: Path) -> None:
    how, why = fares(decoders, draw(seed), tmp_path, seed)
    assert how in (EQUAL, TOLD), f"{how}: {why}: {unusual(draw(seed))}"


def test_a_class_that_lacks_the_fields_of_a_family_is_none_of_it(tmp_path: Path) -> None:
    one = Draw(placement="sandwich", activation="gelu_pytorch_tanh", window="all", divisor=2.0)
    write(one, tmp_path, 1)
    read = describe(str(tmp_path))
    assert read.family is None
    assert any("the config has no field for" in str(finding) for finding in read.findings)
