"""What the fields of a config, and those that it lacks, say of a type that no family lists: fewer questions, each settled by evidence."""

from __future__ import annotations

from typing import Any

import pytest

from mapper.checkpoint import TensorInfo
from mapper.inference.config import Config
from mapper.inference.roots import task_of_config
from mapper.rulebook.facts import FactRule
from tests.shipped import RULEBOOK
from tests.unit.test_facts import VOCABULARY, scope_in
from tests.unit.test_inference_unlisted_layers import asked, example, facts, read, renamed

WRITTEN = "5.0.0"  # of a release whose classes write all their fields


@pytest.mark.parametrize(
    ("form", "config", "expected"),
    [
        ("**.*rope*", {"a": {"b": [{"rope_theta": None}]}}, ["rope_theta"]),
        ("**.*rope*", {"a": {"rate": 1}}, []),
        ("architectures.0", {"architectures": ["BertModel"]}, ["BertModel"]),
        ("architectures.0", {"architectures": []}, []),
        ("architectures.0", {"architectures": "BertModel"}, []),
    ],
)
def test_a_form_at_any_depth_finds_a_name_and_a_number_an_entry_of_a_list(
    form: str, config: dict[str, Any], expected: list[str]
) -> None:
    rule = FactRule("some", "f", 1, config=(form,))
    found = Config(config, VOCABULARY).find(rule, scope_in("text"))
    assert [item.value for item in found if item.wanted] == expected


def test_a_whole_config_without_a_field_of_rotary_embeddings_has_none() -> None:
    source = example("jamba")
    assert not any("rope" in name for name in source.config)
    assert "rotary" in asked(read(source, source.tensors, transformers_version="4.20.0"))
    assert "rotary" not in asked(read(source, source.tensors, transformers_version=WRITTEN))
    assert "rotary" in asked(read(source, source.tensors, transformers_version=WRITTEN, rope_scaling=None))


@pytest.mark.parametrize("order", [("rope_fancy_scale", "rope_theta"), ("rope_theta", "rope_fancy_scale")])
def test_that_a_field_is_there_does_not_say_that_it_is_read(order: tuple[str, str]) -> None:
    source = example("llama")
    values = {"rope_theta": 10000.0, "rope_fancy_scale": 0.5}
    found = read(source, source.tensors, **{name: values[name] for name in order})
    assert any("rope_fancy_scale" in str(finding) for finding in found.findings)


@pytest.mark.parametrize(
    "said", [{"auto_map": {"AutoModel": "model.Own"}}, {"position_embedding_type": "own"}]
)
def test_a_config_that_may_leave_fields_out_or_names_positions_otherwise_settles_nothing(
    said: dict[str, Any],
) -> None:
    source = example("jamba")
    assert "rotary" not in asked(read(source, source.tensors, transformers_version=WRITTEN))
    assert "rotary" in asked(read(source, source.tensors, transformers_version=WRITTEN, **said))


@pytest.mark.parametrize(("said", "turned"), [("rotary", True), ("none", False)])
def test_beside_state_spaces_a_config_that_names_the_positions_says_whether_they_are_angles(
    said: str, turned: bool
) -> None:
    source = example("jamba")
    made = read(source, source.tensors, position_embedding_type=said)
    assert "rotary" not in asked(made)
    assert {fact.value for fact in made.facts if fact.name == "rotary"} == {turned}


def test_a_field_that_names_the_norm_goes_before_one_for_its_bias() -> None:
    source = example("imagegpt")
    leaves = read(source, source.tensors, norm_bias=False, norm_type="rmsnorm").leaves
    assert {leaf.kind for leaf in leaves if leaf.place[-1] in ("ln_1", "ln_2")} == {"RMSNorm"}


def test_a_field_for_biases_of_norms_says_that_they_take_the_mean_away() -> None:
    source = example("imagegpt")
    assert asked(read(source, source.tensors))["norm.kind"] == ("LayerNorm", "RMSNorm")
    kinds = {leaf.kind for leaf in read(source, source.tensors, norm_bias=False).leaves}
    assert "LayerNorm" in kinds and "RMSNorm" not in kinds


def test_the_class_of_a_model_without_a_head_gives_its_states_alone() -> None:
    source = example("bert")
    tensors = {
        name.removeprefix("bert."): info
        for name, info in source.tensors.items()
        if "pooler" not in name and "cls." not in name and "classifier" not in name
    }
    assert "pooling" not in asked(read(source, tensors, architectures=["SomeModel"]))
    assert asked(read(source, tensors, architectures=["SomeEncoder"]))["pooling"] == (None, "first")


def test_twice_as_many_rows_as_the_output_reads_are_queries_and_gates() -> None:
    source = example("qwen3")
    rows, width = source.tensors["model.layers.0.self_attn.q_proj.weight"].shape
    tensors = dict(source.tensors)
    for name in source.tensors:
        if name.endswith("q_proj.weight"):
            tensors[name] = TensorInfo((2 * rows, width), "F32")
    assert facts(read(source, tensors), "attention.query_gated") == {True}
    assert facts(read(source, source.tensors), "attention.query_gated") <= {False}


def test_each_layer_with_a_table_of_distances_has_its_own() -> None:
    source = example("t5")
    table = "block.0.layer.0.SelfAttention.relative_attention_bias"
    tensors = renamed(source.tensors, "SelfAttention", "OtherSelfAttention")
    every = dict(tensors)
    for name, info in tensors.items():
        if "OtherSelfAttention.relative_attention_bias" in name:
            every[name.replace("block.0", "block.1")] = info
    assert table.replace("Self", "OtherSelf") in " ".join(tensors)
    assert facts(read(source, every), "attention.relative") == {"each"}
    assert facts(read(source, tensors), "attention.relative") != {"each"}


def test_layers_of_windows_that_are_switched_off_are_all_alike() -> None:
    source = example("qwen3")
    said = {"layer_types": ["full_attention"] * source.config["num_hidden_layers"], "sliding_window": 4}
    off = read(source, source.tensors, use_sliding_window=False, **said)
    assert "attention.rotary" not in asked(off)


def test_an_image_token_without_one_of_videos_is_of_images() -> None:
    source = example("llava_next")
    said = {"image_token_index": 7, "vision_feature_select_strategy": "default"}
    assert "features" not in asked(read(source, source.tensors, **said))
    assert "videos" in facts(read(source, source.tensors, video_token_index=8, **said), "features")


def test_layers_that_see_everything_beside_windows_may_turn_nothing() -> None:
    source = example("qwen3")
    kinds = ["full_attention", *["sliding_attention"] * (source.config["num_hidden_layers"] - 1)]
    said = {"layer_types": kinds, "sliding_window": 4, "use_sliding_window": True}
    mixed = read(source, source.tensors, transformers_version=WRITTEN, **said)
    assert asked(mixed)["attention.rotary"] == (True, False)


@pytest.mark.parametrize(
    "name", ["UnheardOfForImageToText", "UnheardOfForAudio2Text", "UnheardOfForSeq2SeqLM"]
)
def test_a_class_that_makes_a_text_of_something_generates_it(name: str) -> None:
    task = task_of_config(Config({"architectures": [name]}, RULEBOOK.config_vocabulary))
    assert task is not None and task.value == "conditional_generation"


@pytest.mark.parametrize(
    ("name", "words", "config", "expected"),
    [
        ("moe.normalise", {}, {"moe_norm_top_k": True, "top_k": 2}, [True]),
        ("moe.normalise", {}, {"norm_top_k": True, "norm_of_topk": False}, []),  # which of them nothing says
        ("moe.normalise", {}, {"norm_top_k_eps": 1e-20}, []),  # a number is no flag
        ("moe.scale", {}, {"norm_top_k": 2.5, "norm_topk": True}, [2.5]),
        ("moe.scoring", {"sigmoid": "sigmoid"}, {"norm_top_k": "sigmoid", "norm_topk": True}, ["sigmoid"]),
        ("moe.scoring", {"sigmoid": "sigmoid"}, {"norm_top_k": "sparsemax"}, []),
        ("moe.scoring", {"true": "sigmoid"}, {"norm_top_k": True}, [True]),
    ],
)
def test_a_field_that_is_known_by_its_form_has_to_hold_what_the_fact_could_be(
    name: str, words: dict[str, Any], config: dict[str, Any], expected: list[Any]
) -> None:
    rule = FactRule(name, "f", 1, config=("*norm*top*k*",), map=words)
    found = Config(config, RULEBOOK.config_vocabulary).find(rule, scope_in("text"))
    assert [item.value for item in found] == expected


def test_how_experts_are_weighed_is_read_from_fields_with_names_of_their_own() -> None:
    source = example("qwen3_moe")
    said = {"norm_topk_prob": None, "moe_route_score_fn": "sigmoid", "normalize_topk_weights": False}
    found = read(source, source.tensors, **said)
    assert not asked(found).keys() & {"moe.scoring", "moe.normalise", "fields.idle"}
    assert (facts(found, "moe.scoring"), facts(found, "moe.normalise")) == ({"sigmoid"}, {False})
    assert not any(word in str(found.findings) for word in ("moe_route_score_fn", "normalize_topk_weights"))
