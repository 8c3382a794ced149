"""What holds where no family lists the model type: doubts, fields that families ignore, ties of names."""

from __future__ import annotations

from typing import Any

import pytest

from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint
from mapper.errors import ArchitectureError
from mapper.inference import infer
from mapper.inference.matching import match_family
from mapper.inference.names import Names
from mapper.naming.tree import grow
from mapper.rulebook.examples import header
from mapper.rulebook.rulebook import Rulebook

RULEBOOK = Rulebook()
LLAMA = header(next(family for family in RULEBOOK.families if family.name == "llama").examples[0])

ANSWERS = {"rotary.pairs": "halves"}  # in which listed types with these names differ


def read(hints: dict[str, Any] | None = None, **config: Any) -> Architecture:
    tensors, changed = LLAMA.tensors, {**(LLAMA.config or {}), **config}
    return infer(Checkpoint("x", "manifest", tensors, changed), RULEBOOK, hints=hints)


def facts(architecture: Architecture, name: str) -> list[Any]:
    return [fact.value for fact in architecture.facts if fact.name == name]


def test_a_doubt_is_a_question_and_an_answer_settles_it() -> None:
    doubtful = {"model_type": "unheard_of", "hidden_act": "gelu_pytorch_tanh"}
    (question,) = [line for line in read(**doubtful).missing if line.startswith("norm.offset is unknown")]
    assert "possible here: true, false" in question
    answered = read({"norm.offset": True, **ANSWERS}, **doubtful)
    assert answered.missing == []
    assert {leaf.form for leaf in answered.leaves if leaf.kind == "RMSNorm"} == {"offset"}


def test_nobody_doubts_a_listed_type() -> None:
    architecture = read(hidden_act="gelu_pytorch_tanh")
    assert architecture.reading == "exact"
    assert {leaf.form for leaf in architecture.leaves} == {"plain"}


def test_a_field_that_a_family_ignores_speaks_for_an_unlisted_type() -> None:
    assert set(facts(read(partial_rotary_factor=0.5), "rotary.dim")) == {16}
    assert set(facts(read(model_type="unheard_of", partial_rotary_factor=0.5), "rotary.dim")) == {8}


def test_a_field_that_asks_for_arithmetic_is_not_passed_over() -> None:
    assert "scale_emb" in read(ANSWERS, model_type="unheard_of", scale_emb=12).missing[0]
    assert read(ANSWERS, model_type="unheard_of", scale_emb=1.0).missing == []


def test_where_two_families_match_equally_neither_speaks_of_an_unlisted_type() -> None:
    names = Names(grow(LLAMA.tensors))
    (family,) = [family for family in RULEBOOK.families if family.name == "llama"]
    assert match_family([family, family], names, "unheard_of") is None
    with pytest.raises(ArchitectureError, match="match equally"):
        match_family([family, family], names, None)
