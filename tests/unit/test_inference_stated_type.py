"""What a config says of its own type, where it is odd, is a finding with what follows: never a crash, never silence."""

from __future__ import annotations

from typing import Any

import pytest

from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint
from mapper.errors import HintError
from mapper.inference import infer
from mapper.rulebook.examples import header
from mapper.rulebook.rulebook import rulebook_of

RULEBOOK = rulebook_of()


def example(family: str) -> Checkpoint:
    return header(next(item for item in RULEBOOK.families if item.name == family).examples[0])


def read(
    checkpoint: Checkpoint, hints: dict[str, Any] | None = None, families: bool = True, **config: Any
) -> Architecture:
    said = {key: value for key, value in {**(checkpoint.config or {}), **config}.items() if value is not ...}
    return infer(
        Checkpoint("x", "manifest", checkpoint.tensors, said), RULEBOOK, hints=hints, use_families=families
    )


@pytest.mark.parametrize("family", ["bert", "llama", "clip"])
@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (..., "config has no model_type: "),
        (None, "config model_type is null: "),
        ("", "config model_type is empty: "),
        (" ", "config model_type is empty: "),
        (3, "config model_type is '3', not text: "),
        (True, "config model_type is 'true', not text: "),
        (["bert", "llama"], "not text: "),
        ({"a": 1}, "not text: "),
    ],
)
def test_a_type_that_is_none_is_a_finding_that_says_what_follows(family: str, value: Any, seen: str) -> None:
    checkpoint = example(family)
    architecture = read(checkpoint, model_type=value)
    (finding,) = [text for text in architecture.findings if "model_type" in text]
    assert seen in finding and f"the names are those of {family!r}" in finding
    assert "no reading is exact without a type" in finding
    assert (architecture.family, architecture.reading) == (family, "unverified")
    assert architecture.root.flow == infer(checkpoint, RULEBOOK).root.flow


def test_where_no_family_has_the_names_that_is_said() -> None:
    checkpoint = Checkpoint(
        "x",
        "manifest",
        {f"odd.{at}.weight": info for at, info in enumerate(example("bert").tensors.values())},
    )
    (finding,) = [text for text in read(checkpoint, hidden_size=8).findings if "model_type" in text]
    assert "no family has these names" in finding and "--set model_type=TYPE" in finding
    assert not any(
        "model_type" in text for text in infer(checkpoint, RULEBOOK).findings
    )  # no config, no finding


@pytest.mark.parametrize(
    ("config", "meant"),
    [
        ({"model_type": ["llama"]}, "llama"),
        ({"model_type": ..., "architectures": ["MistralForCausalLM"]}, "mistral"),
        ({"model_type": 7, "architectures": "Qwen2ForCausalLM"}, "qwen2"),
    ],
)
def test_the_type_that_may_be_meant_is_named_and_can_be_said(config: dict[str, Any], meant: str) -> None:
    checkpoint = example("llama")
    (finding,) = [text for text in read(checkpoint, **config).findings if "model_type" in text]
    assert finding.endswith(f"say --set model_type={meant}")
    if meant == "llama":
        assert not read(checkpoint, {"model_type": meant}, **config).findings


@pytest.mark.parametrize("family", ["bert", "gpt2", "vit"])
def test_the_answer_that_is_suggested_is_one_even_where_it_changes_no_flow(family: str) -> None:
    checkpoint = example(family)
    (finding,) = [text for text in read(checkpoint, model_type=...).findings if "model_type" in text]
    said = finding.rpartition("model_type=")[2]
    answered = read(checkpoint, {"model_type": said}, model_type=...)
    assert not answered.findings and answered.reading == "unverified"


@pytest.mark.parametrize(
    ("family", "value", "meant"),
    [
        ("llama", "LLaMA", "llama"),
        ("bert", "Bert ", "bert"),
        ("gpt_neox", "gpt-neox", "gpt_neox"),
        ("vit", "ViT", "vit"),
    ],
)
def test_a_type_that_is_nearly_a_listed_one_is_suggested(family: str, value: str, meant: str) -> None:
    architecture = read(example(family), model_type=value)
    (finding,) = [text for text in architecture.findings if "model_type" in text]
    assert "is listed by no family; did you mean" in finding and repr(meant) in finding
    assert architecture.reading != "exact"


@pytest.mark.parametrize("value", ["bert_of_mine", "llamas", "qwen9"])
def test_no_other_type_is_suggested_for_a_new_one(value: str) -> None:
    assert not any("did you mean" in text for text in read(example("bert"), model_type=value).findings)


@pytest.mark.parametrize(
    ("family", "classes"),
    [("bert", ["LlamaForCausalLM"]), ("llama", ["GPT2LMHeadModel"]), ("llama", "MistralModel")],
)
def test_a_class_of_another_type_is_a_finding(family: str, classes: Any) -> None:
    assert read(example(family)).reading == "exact"
    architecture = read(example(family), architectures=classes)
    assert any("one of them is wrong, so the reading is not exact" in text for text in architecture.findings)
    assert architecture.reading == "unverified"


@pytest.mark.parametrize(
    "classes", [["LlamaModel"], ["MyOwnModel"], ["LlamaForCausalLM", "MistralForCausalLM"], [], [3], 5, None]
)
def test_a_class_that_says_nothing_against_the_type_is_none(classes: Any) -> None:
    assert not any("model_type" in text for text in read(example("llama"), architectures=classes).findings)


@pytest.mark.parametrize("value", [["clip_text_model"], 3, False])
def test_the_type_of_a_tower_is_checked_as_well(value: Any) -> None:
    checkpoint = example("clip")
    text = {**(checkpoint.config or {}).get("text_config", {}), "model_type": value}
    architecture = read(checkpoint, text_config=text)
    assert any(finding.startswith("config text_config.model_type is ") for finding in architecture.findings)
    assert architecture.reading == "unverified"


def test_types_of_one_family_may_share_a_class() -> None:
    family = next(item for item in RULEBOOK.families if item.name == "llama")
    other = next(word for word in family.model_types if not word.startswith("llama"))
    assert read(example("llama"), model_type=other, architectures=["LlamaForCausalLM"]).findings == read(
        example("llama"), model_type=other, architectures=[]
    ).findings  # fmt: skip


def test_without_families_only_a_type_that_is_no_word_is_a_finding() -> None:
    assert not any(
        "model_type" in text for text in read(example("bert"), families=False, model_type=...).findings
    )
    assert any("not text" in text for text in read(example("bert"), families=False, model_type=[1]).findings)


def test_a_type_of_another_family_is_refused_where_a_user_says_it() -> None:
    with pytest.raises(HintError, match=r"does not go with the names: .* the names lack"):
        read(example("llama"), {"model_type": "bert"}, model_type=...)
    with pytest.raises(HintError) as caught:
        read(example("bert"), {"rotary.style": "half"})
    assert str(caught.value).startswith(
        'hints={"rotary.style": "half"} says nothing here: nothing in this model'
    )
