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
from mapper.rulebook.families import fields_of_type
from tests.shipped import RULEBOOK

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
    assert questions["rotary.style"] == (
        "half",
        "interleaved",
    )  # the second in one listed type of these names
    assert "rotary.base" not in questions  # a field of the config says it
    assert not {"norm.offset", "embedding.scale"} & questions.keys()  # the activation tells those types apart
    by_gelu = asked(read(example("llama"), model_type=UNHEARD, hidden_act="gelu"))
    assert set(by_gelu["norm.offset"]) == {False, True}


def test_between_values_that_compute_the_same_nobody_is_asked() -> None:
    plain = example("llama")
    norms = {name: plain.tensors[name] for name in plain.tensors if name.endswith("input_layernorm.weight")}
    more = {
        name.replace("input_layernorm", behind): info
        for name, info in norms.items()
        for behind in ("post_norm1", "post_norm2")
    }
    both = read(Checkpoint("x", "manifest", {**plain.tensors, **more}, plain.config), model_type=UNHEARD)
    assert {fact.value for fact in both.facts if fact.name == "norm.placement"} == {"sandwich"}
    assert "norm.placement" not in asked(
        both
    )  # listed types of these names have "pre", the same where both norms are


def test_types_of_one_family_that_names_tell_apart_are_no_candidates_for_each_other() -> None:
    whole = example("glm4v", at=1)
    assert not {"features.frames", "text:features.spans"} & asked(read(whole, model_type=UNHEARD)).keys()


def test_the_same_names_with_a_listed_type_ask_nothing() -> None:
    assert asked(read(example("llama"))) == {}


@pytest.mark.parametrize("family", ["distilbert", "vit", "albert"])
def test_where_all_listed_types_agree_nothing_is_asked(family: str) -> None:
    assert asked(read(example(family), model_type=UNHEARD)) == {}


def test_a_field_says_what_a_head_reads_of_patches() -> None:
    told = read(example("vit"), model_type=UNHEARD, use_mean_pooling=True)
    assert asked(told) == {}
    assert {fact.value for fact in told.facts if fact.name == "head.pooling"} == {"patches"}


def test_a_field_of_the_config_answers() -> None:
    told = read(example("llama"), model_type=UNHEARD, rope_interleave=True)
    assert "rotary.style" not in asked(told)


def test_an_answer_settles_each_question_and_all_are_asked_at_once() -> None:
    first = read(example("llama"), model_type=UNHEARD, hidden_act="gelu")
    answers = {name: candidates[0] for name, candidates in asked(first).items()}
    assert len(answers) > 1
    told = read(example("llama"), answers, model_type=UNHEARD, hidden_act="gelu")
    assert (told.missing, told.reading) == ([], "unverified")


def test_a_listed_type_answers_for_all_and_is_named_beside_the_questions() -> None:
    first = read(example("llama"), model_type=UNHEARD)
    assert any("--set model_type=TYPE" in note and "helium" in note for note in first.notes)
    told = read(example("llama"), {"model_type": "helium"}, model_type=UNHEARD)
    assert told.missing == []
    assert {fact.value for fact in told.facts if fact.name == "rotary.style"} == {"interleaved"}


def test_names_without_a_config_are_asked_and_then_read() -> None:
    bare = Checkpoint("x", "manifest", example("llama").tensors)
    answers = {name: candidates[0] for name, candidates in asked(infer(bare, RULEBOOK)).items() if candidates}
    answers |= {"rotary": True, "attention.rotary": True, "rotary.base": 10000.0}
    answers |= {"attention.heads": 4, "norm.eps": 1e-6}
    for _ in range(2):  # what attention is made of decides what else it needs
        told = infer(bare, RULEBOOK, hints=answers)
        answers |= {name: values[0] for name, values in asked(told).items() if values}
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
    assert any(name.endswith("rotary.style") for name in asked(read_as))
    assert not any(name.startswith("vision:") for name in asked(read_as))  # whose type is listed


@pytest.mark.parametrize("pairs", ["half", "interleaved"])
def test_the_right_answers_give_equal_outputs(pairs: str, tmp_path) -> None:
    """A model of a listed type, and the same tensors under a type that nobody lists with its facts as answers."""
    listed_type = {"half": "llama", "interleaved": "helium"}[pairs]
    folders = [tmp_path / name for name in ("listed", "unlisted")]
    torch.manual_seed(0)
    tensors = {name: torch.randn(info.shape) * 0.2 for name, info in example("llama").tensors.items()}
    config = {"pad_token_id": 0, **(example("llama").config or {}), "model_type": listed_type}
    for folder, model_type in zip(folders, (listed_type, UNHEARD), strict=True):
        folder.mkdir()
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps({**config, "model_type": model_type}))
    answers = {"rotary.style": pairs, "norm.offset": False, "embedding.scale": None}
    models = [mapper.build(folders[0]), mapper.build(folders[1], hints=answers)]
    ids = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        wanted, got = (model(input_ids=ids).logits for model in models)
    assert torch.equal(wanted, got)
    assert load_file(folders[1] / "model.safetensors").keys() == models[1].state_dict().keys()


def test_a_map_that_has_tensors_of_others_below_is_called_by_its_weight(tmp_path) -> None:
    """A router is a map and the folder of a correction: no module of torch's own is both."""
    folders = [tmp_path / name for name in ("listed", "unlisted")]
    torch.manual_seed(0)
    tensors = {name: torch.randn(info.shape) * 0.2 for name, info in example("axk1").tensors.items()}
    for folder, model_type in zip(folders, ("axk1", UNHEARD), strict=True):
        folder.mkdir()
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(
            json.dumps({**(example("axk1").config or {}), "model_type": model_type})
        )
    told = {"norm.after_experts": True}  # of a type that nobody lists it is asked
    models = [mapper.build(folders[0]), mapper.build(folders[1], hints=told)]
    ids = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        wanted, got = (model(input_ids=ids).logits for model in models)
    assert torch.equal(wanted, got)


def test_candidates_are_of_types_whose_names_are_here() -> None:
    """Norms of queries and keys are none of llama's: its types are no candidates for what has them."""
    tensors = dict(example("llama").tensors)
    for layer in (0, 1):
        for word in ("q", "k"):
            tensors[f"model.layers.{layer}.self_attn.{word}_norm.weight"] = TensorInfo((16,), "F32")
    config = {**(example("llama").config or {}), "model_type": UNHEARD}
    questions = asked(infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK))
    assert "rotary.style" not in questions


def test_a_listed_type_that_would_leave_a_module_unread_is_no_candidate() -> None:
    """A text's vector is the first position's where no pooler makes it: the pooler's is another."""
    assert "pooling" not in asked(read(example("bert"), model_type=UNHEARD))
    assert asked(read(example("dpr"), model_type=UNHEARD))["pooling"] == (None, "first")


def test_a_field_that_says_which_tensors_a_type_has_sets_it_apart() -> None:
    dpr = next(item for item in RULEBOOK.families if item.name == "dpr")
    assert ("projection_dim",) in set(fields_of_type(dpr, "dpr"))


def test_a_type_whose_own_fields_the_config_lacks_is_no_candidate() -> None:
    assert "attention.similarity" not in asked(read(example("bert"), model_type=UNHEARD))
    hashed = asked(read(example("bert"), model_type=UNHEARD, hash_code_len=9))
    assert hashed["attention.similarity"] == ("dot_product", "lsh")


def test_a_type_that_has_tensors_only_where_a_field_asks_for_them_is_no_candidate() -> None:
    """Biases of queries that no field asks for are not those of a type whose config would have to."""
    assert asked(read(example("qwen2"), model_type=UNHEARD)) == {}
    no_windows = {
        "sliding_window": None,
        "use_sliding_window": None,
    }  # fields that say which channels are paired
    promised = asked(read(example("qwen2"), model_type=UNHEARD, attention_bias=True, **no_windows))
    assert promised["rotary.style"] == ("half", "interleaved")


def test_types_that_have_more_are_asked_about_where_none_has_just_these_names() -> None:
    biases = {
        f"model.layers.{layer}.mlp.{name}_proj.bias": TensorInfo((96 if name != "down" else 64,), "F32")
        for layer in (0, 1)
        for name in ("gate", "up", "down")
    }
    config = {**(example("llama").config or {}), "model_type": UNHEARD}
    with_biases = Checkpoint("x", "manifest", {**example("llama").tensors, **biases}, config)
    assert "rotary.style" in asked(infer(with_biases, RULEBOOK))


def test_a_type_whose_examples_all_have_what_is_not_here_is_no_candidate() -> None:
    """Of the listed types with such experts, those with sigmoid scores have a correction for each expert."""
    names = asked(read(example("mixtral"), model_type=UNHEARD))
    assert "moe.scoring" not in names and "rotary.fraction" not in names


def test_a_field_by_which_types_of_equal_names_differ_answers() -> None:
    """Positions begin behind the padding where that is not the first word."""
    own = read(example("roberta"), model_type=UNHEARD, pad_token_id=1)
    assert "position.counting" not in asked(own)
    assert {fact.value for fact in own.facts if fact.name == "position.counting"} == {"tokens"}
    first = read(example("bert"), model_type=UNHEARD, pad_token_id=0)
    assert {fact.value for fact in first.facts if fact.name == "position.counting"} == {"all"}


def test_positions_of_several_axes_are_none_where_no_field_shares_the_angles() -> None:
    assert asked(read(example("qwen3"), model_type=UNHEARD)) == {}
    shared = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [8, 4, 4]}
    assert "rotary.layout" in asked(read(example("qwen3"), model_type=UNHEARD, rope_parameters=shared))


def test_a_number_for_a_tower_that_is_not_there_asks_for_nothing() -> None:
    beside = read(example("distilbert"), model_type=UNHEARD, vision_config={"layer_norm_eps": 1e-5})
    assert beside.missing == []
    own = read(example("distilbert"), model_type=UNHEARD, other_layer_norm_eps=1e-5)
    assert own.missing == ["config 'other_layer_norm_eps = 1e-05' asks for what no flow here does"]


@pytest.mark.parametrize(
    ("family", "at", "field", "name", "candidates"),
    [
        ("idefics3", 1, "scale_factor", "features.layout", ("row", "each", "several")),
        ("modernvbert", 0, "pixel_shuffle_factor", "features.layout", ("row", "each", "several")),
        ("modernvbert", 0, "pixel_shuffle_factor", "projector.shuffle", (False, True)),
        ("llava_next", 0, "image_grid_pinpoints", "features.layout", ("tiles", "row", "each")),
    ],
)
def test_what_joins_towers_is_asked_though_each_tower_is_listed(
    family: str, at: int, field: str, name: str, candidates: tuple[Any, ...]
) -> None:
    """Without the field of the config that says it."""
    assert asked(read(example(family, at), model_type=UNHEARD)).get(name) != candidates
    assert asked(read(example(family, at), model_type=UNHEARD, **{field: None}))[name] == candidates


def test_a_family_known_by_names_says_what_its_towers_alone_would_not() -> None:
    """Positions of three axes share angles otherwise than in the tower's own type, which is listed."""
    first = read(example("qwen3_vl"), model_type=UNHEARD)
    assert (first.family, first.towers["text"], asked(first)) == ("qwen3_vl", "qwen3", {})
    (layout,) = [fact for fact in first.facts if fact.name == "rotary.layout"]
    assert (layout.value, layout.rule.partition(":")[0]) == ("interleaved", "families/qwen3_vl.yaml")


def test_a_type_of_one_tower_is_no_candidate_for_another() -> None:
    """A decoder's attention has the names of the vision tower's: no reason to ask how that pairs channels.

    Nor is the text asked, whose own config says a listed type.
    """
    questions = asked(read(example("idefics3", 1), model_type=UNHEARD, scale_factor=None))
    assert "features.layout" in questions
    assert (
        not {f"{tower}:rotary.{word}" for tower in ("text", "vision") for word in ("style", "base", "type")}
        & questions.keys()
    )


def test_a_projectors_own_field_says_its_eps() -> None:
    read_as = read(example("llava", 1), model_type=UNHEARD)
    assert "norm.eps" not in asked(read_as)
