"""What listed types of equal names differ in is a question where nobody lists the type, and an answer settles it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import mapper
from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.inference import infer
from mapper.rulebook.examples import header
from mapper.rulebook.rulebook import Rulebook

RULEBOOK = Rulebook()
UNHEARD = "unheard_of"


def example(family: str, at: int = 0) -> Checkpoint:
    return header(next(item for item in RULEBOOK.families if item.name == family).examples[at])


def read(checkpoint: Checkpoint, hints: dict[str, Any] | None = None, **config: Any) -> Architecture:
    changed = {"pad_token_id": 0, **(checkpoint.config or {}), **config}
    return infer(Checkpoint("x", "manifest", checkpoint.tensors, changed), RULEBOOK, hints=hints)


def asked(architecture: Architecture) -> dict[str, tuple[Any, ...]]:
    return {question.name: question.candidates for question in architecture.questions}


def test_what_listed_types_of_equal_names_differ_in_is_asked_with_its_candidates() -> None:
    questions = asked(read(example("llama"), model_type=UNHEARD))
    assert questions["rotary.pairs"] == (
        "halves",
        "neighbours",
    )  # the second in one listed type of these names
    assert questions["norm.offset"] == (False, True)
    assert "rotary.base" not in questions  # a field of the config says it


def test_the_same_names_with_a_listed_type_ask_nothing() -> None:
    assert asked(read(example("llama"))) == {}


@pytest.mark.parametrize("family", ["distilbert", "vit", "albert"])
def test_where_all_listed_types_agree_nothing_is_asked(family: str) -> None:
    assert asked(read(example(family), model_type=UNHEARD)) == {}


def test_a_field_of_the_config_answers() -> None:
    told = read(example("llama"), model_type=UNHEARD, rope_interleave=True)
    assert "rotary.pairs" not in asked(told)


def test_an_answer_settles_each_question_and_all_are_asked_at_once() -> None:
    first = read(example("llama"), model_type=UNHEARD)
    answers = {name: candidates[0] for name, candidates in asked(first).items()}
    assert len(answers) > 1
    told = read(example("llama"), answers, model_type=UNHEARD)
    assert (told.missing, told.reading) == ([], "unverified")


def test_a_listed_type_answers_for_all_and_is_named_beside_the_questions() -> None:
    first = read(example("llama"), model_type=UNHEARD)
    assert any("--set model_type=TYPE" in note and "helium" in note for note in first.notes)
    told = read(example("llama"), {"model_type": "helium"}, model_type=UNHEARD)
    assert told.missing == []
    assert {fact.value for fact in told.facts if fact.name == "rotary.pairs"} == {"neighbours"}


def test_names_without_a_config_are_asked_once_and_then_read() -> None:
    bare = Checkpoint("x", "manifest", example("llama").tensors)
    answers = {name: candidates[0] for name, candidates in asked(infer(bare, RULEBOOK)).items() if candidates}
    answers |= {"attention.heads": 4, "rotary.base": 10000.0, "norm.eps": 1e-6}
    told = infer(bare, RULEBOOK, hints=answers)
    assert (told.missing, told.reading) == ([], "unverified")


def test_a_listed_type_whose_options_the_config_lacks_is_no_candidate() -> None:
    questions = asked(read(example("llama"), model_type=UNHEARD))
    assert "attention.softcap" not in questions and "attention.scaling" not in questions


def test_a_tower_of_a_type_that_nobody_lists_is_found_and_asked_about() -> None:
    whole = example("llava")
    text = {**(whole.config or {})["text_config"], "model_type": UNHEARD}
    read_as = read(whole, text_config=text)
    assert read_as.reading == "unverified"
    assert any(
        f"text_config.model_type '{UNHEARD}' is listed by no family" in line for line in read_as.findings
    )
    assert any(name.endswith("rotary.pairs") for name in asked(read_as))
    assert not any(name.startswith("vision:") for name in asked(read_as))  # whose type is listed


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
def test_the_right_answers_give_equal_outputs(pairs: str, tmp_path) -> None:
    """A model of a listed type, and the same tensors under a type that nobody lists with its facts as answers."""
    listed_type = {"halves": "llama", "neighbours": "helium"}[pairs]
    folders = [tmp_path / name for name in ("listed", "unlisted")]
    torch.manual_seed(0)
    tensors = {name: torch.randn(info.shape) * 0.2 for name, info in example("llama").tensors.items()}
    config = {"pad_token_id": 0, **(example("llama").config or {}), "model_type": listed_type}
    for folder, model_type in zip(folders, (listed_type, UNHEARD), strict=True):
        folder.mkdir()
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps({**config, "model_type": model_type}))
    answers = {"rotary.pairs": pairs, "norm.offset": False, "embedding.scale": None}
    models = [mapper.build(folders[0]), mapper.build(folders[1], hints=answers)]
    ids = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        wanted, got = (model(input_ids=ids).logits for model in models)
    assert torch.equal(wanted, got)
    assert load_file(folders[1] / "model.safetensors").keys() == models[1].state_dict().keys()


def test_candidates_are_of_types_whose_names_are_here() -> None:
    """Norms of queries and keys are none of llama's: its types are no candidates for what has them."""
    tensors = dict(example("llama").tensors)
    for layer in (0, 1):
        for word in ("q", "k"):
            tensors[f"model.layers.{layer}.self_attn.{word}_norm.weight"] = TensorInfo((16,), "F32")
    config = {**(example("llama").config or {}), "model_type": UNHEARD}
    questions = asked(infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK))
    assert "rotary.pairs" not in questions
