"""What a user says of a checkpoint is checked: the value, the part, whether anything reads it, what it would cost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.errors import HintError
from mapper.inference import infer
from mapper.rulebook.examples import header
from mapper.rulebook.rulebook import rulebook_of

RULEBOOK = rulebook_of()


def example(family: str, name: str = "") -> Checkpoint:
    found = next(item for item in RULEBOOK.families if item.name == family)
    return header(next(item for item in found.examples if item.name == name or not name))


def changed(
    checkpoint: Checkpoint, extra: dict[str, tuple[int, ...]] | None = None, **config: Any
) -> Checkpoint:
    tensors = {
        **checkpoint.tensors,
        **{key: TensorInfo(shape, "F32") for key, shape in (extra or {}).items()},
    }
    said = {key: value for key, value in {**(checkpoint.config or {}), **config}.items() if value is not ...}
    return Checkpoint("x", "manifest", tensors, said)


def told(checkpoint: Checkpoint, **hints: Any) -> Architecture:
    return infer(checkpoint, RULEBOOK, hints={key.replace("__", "."): value for key, value in hints.items()})


def refusal(checkpoint: Checkpoint, key: str, value: Any) -> str:
    with pytest.raises(HintError) as caught:
        infer(checkpoint, RULEBOOK, hints={key: value})
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "rotary.style",
            "bogus",
            "'bogus' is no value of rotary.style; allowed: half, half_reversed, interleaved",
        ),
        ("rotary.type", "lama3", "did you mean 'llama3'?"),
        ("feed_forward.activation", "gelo", "did you mean 'gelu'?"),
        ("norm.placement", "behind", "is no value of norm.placement; allowed: "),
        ("task", "translation", "is no value of task; allowed: "),
        ("model_type", "mistrall", "did you mean 'mistral'?"),
        ("attention.heads", "0", "is not a whole number from 1"),
        ("attention.heads", -3, "is not a whole number from 1"),
        ("attention.heads", "twelve", "is not a whole number from 1"),
        ("attention.heads", "null", "is not a whole number from 1"),
        ("attention.heads", 5, "possible here: 2, 4, 8, 16, 32, 64"),  # half as many of key and value
        ("norm.eps", "big", "is not a finite number from 0"),
        ("attention.causal", "perhaps", "is not true or false"),
        ("attention.heads", "four", ": 'four' is not"),
        ("attention.causal", "true|false", "'true|false' is 2 values; keep one"),
        ("rotary.style", "half|interleaved", "'half|interleaved' is 2 values; keep one of them"),
        ("chain.stride", "1|2", "'1|2' is 2 values; keep one of them"),
        ("attention.heads", "VALUE", "VALUE stands for one of the values that mapper inspect lists"),
        ("feed_forward.activation", "VALUE", "VALUE stands for one of the values that mapper inspect lists"),
    ],
)
def test_a_value_is_one_that_the_fact_may_have(key: str, value: Any, message: str) -> None:
    assert message in refusal(example("llama"), key, value)


def test_null_is_a_value_of_what_may_be_absent() -> None:
    checkpoint = example("llama")
    for value in ("null", None):
        assert told(checkpoint, attention__window=value).reading == "unverified"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rotary.style", "interleaved", "nothing in this model reads rotary.style; it reads "),
        ("moe.experts", 4, "nothing in this model reads moe.experts"),
        (
            "attention.one_sided_window",
            8,
            "nothing in this model reads attention.one_sided_window; it reads attention.",
        ),
        (
            "embeddings:attention.heads",
            4,
            "'embeddings' does not read attention.heads: that is read at 'encoder.layer.*'",
        ),
    ],
)
def test_a_fact_that_nothing_reads_is_refused_with_near_ones(key: str, value: Any, message: str) -> None:
    assert message in refusal(example("bert"), key, value)


def test_what_counts_only_by_way_of_another_fact_is_read() -> None:
    halved = told(example("llama"), rotary__fraction=0.5)
    (turned,) = (fact.value for fact in halved.facts if fact.name == "rotary.dim")
    assert turned * 2 == next(fact.value for fact in halved.facts if fact.name == "attention.head_dim")


def test_a_skeleton_says_that_nothing_reads_a_fact_yet() -> None:
    shapes = {f"blocks.{at}.odd.{word}.weight": TensorInfo((8, 5), "F32") for at in range(2) for word in "ab"}
    read = infer(Checkpoint("x", "manifest", shapes), RULEBOOK, hints={"attention.heads": 4})
    assert read.reading == "skeleton"
    assert "--set attention.heads=4 is read by nothing, as long as no flow fits" in read.findings


@pytest.mark.parametrize("task", ["image_classification", "audio_classification", "ctc", "masked_lm"])
@pytest.mark.parametrize("model_type", ["bert", "unlisted"])
def test_a_task_is_one_for_what_the_model_reads_and_its_heads(task: str, model_type: str) -> None:
    head = {"classifier.weight": (3, 64), "classifier.bias": (3,)}
    checkpoint = changed(
        example("bert"), head, model_type=model_type, architectures=["XForSequenceClassification"]
    )
    text = refusal(checkpoint, "task", task)
    assert "possible here: sequence_classification, token_classification" in text
    assert (
        told(checkpoint, task="token_classification").root.flow
        == "root/words+tower+pooler+token_classification"
    )


@pytest.mark.parametrize("task", ["token_classification", "sequence_classification", "causal_lm"])
def test_a_task_for_words_is_not_one_of_an_image_model(task: str) -> None:
    assert "possible here: image_classification" in refusal(
        example("vit", "two layers, image classification"), "task", task
    )


def test_where_nobody_says_the_task_no_image_task_is_offered_for_words() -> None:
    head = {"classifier.weight": (3, 64), "classifier.bias": (3,)}
    read = infer(changed(example("bert"), head, architectures=...), RULEBOOK)
    assert read.missing[0].endswith("the heads allow sequence_classification, token_classification")
    (asked,) = read.questions
    assert (asked.fact, asked.candidates) == ("task", ("sequence_classification", "token_classification"))


@pytest.mark.parametrize("model_type", ["llama", "unlisted", ...])
@pytest.mark.parametrize(
    ("key", "value"),
    [("rotary.style", "bogus"), ("attention.heads", 5), ("hidden_size", 8), ("norm.placement", "sandwich")],
)
def test_a_refused_hint_never_costs_the_family(model_type: Any, key: str, value: Any) -> None:
    checkpoint = changed(example("llama"), model_type=model_type)
    assert infer(checkpoint, RULEBOOK).family == "llama"
    assert key in refusal(checkpoint, key, value)


def test_a_hint_that_costs_the_flows_says_why_and_what_is_there_without_it() -> None:
    text = refusal(example("llama"), "norm.placement", "sandwich")
    assert 'hints={"norm.placement": "sandwich"} does not go with this checkpoint: no flow fits' in text
    assert text.endswith("without it: family 'llama'")


def test_the_one_of_several_hints_that_does_not_go_is_named() -> None:
    with pytest.raises(HintError, match=r"norm\.placement"):
        told(example("llama"), attention__heads=4, norm__placement="sandwich")


def test_a_model_type_that_is_said_stands_for_one_that_the_config_lacks() -> None:
    lacking = changed(example("llama"), model_type=...)
    read = told(lacking, model_type="llama")
    assert (read.family, read.reading) == ("llama", "unverified")
    assert read.checkpoint.config == lacking.config
    assert "the names lack" in refusal(lacking, "model_type", "bert")


def test_the_command_line_refuses_in_one_line(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from mapper.cli.app import main
    from tests.checkpoints import write_manifest

    manifest = str(write_manifest(tmp_path / "bert.json"))
    for value in ("rotary.style=bogus", "rotary.style=half", "task=image_classification"):
        assert main(["inspect", manifest, "--set", value, "--json"]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("error: --set ") and err.count("\n") == 1
    assert main(["inspect", manifest, "--set", "attention.heads=4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reading"] == "unverified"


def test_an_answer_that_other_stored_frequencies_contradict_is_refused() -> None:
    stored = example("x_transformers", "angles and gates, norms of root mean squares")
    hints = {
        "attention.heads": 4,
        "task": "causal_lm",
        "norm.offset": True,
        "feed_forward.activation": "silu",
        "attention.norms": "none",
        "attention.plain": True,
    }
    assert infer(stored, RULEBOOK, hints={**hints, "rotary.fraction": 0.5}).reading == "unverified"
    with pytest.raises(HintError, match="'16' channels, and the frequencies"):
        infer(stored, RULEBOOK, hints={**hints, "rotary.fraction": 1.0})


def test_what_is_said_of_a_part_holds_there_whatever_is_said_around_it_and_in_which_order() -> None:
    hints = {"tower:norm.eps": 1e-3, "tower.layers:norm.eps": 1e-4}
    for order in (hints, dict(reversed(hints.items()))):
        made = infer(example("llama"), RULEBOOK, hints=order)
        said = {fact.at: fact.value for fact in made.facts if fact.name == "norm.eps"}
        assert {value for at, value in said.items() if "layers" in at} == {1e-4}
        assert {value for at, value in said.items() if "layers" not in at} == {1e-3}
