"""Fields of a config that no rule reads, of a type that no family lists: which are asked about, and what a user may say of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.errors import HintError
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK
from tests.unit.test_inference_unlisted import ANSWERS, LLAMA, facts, read


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("inner_norm_eps", 1e-6),
        ("branch_multiplier", 0.22),
        ("router_softcapping", 30.0),
        ("attention_kinds", ["global", "local"]),
        ("sees_all", [True, False]),
        ("decay_bound", -5.0),
        ("has_multiplier", True),
        ("softmax_one", True),  # of a class's own config: any flag that is set may change what it computes
        ("use_softmax_one", True),
        ("no_rope", True),
        ("use_residual_scaling", True),
        ("remove_final_norm", True),
        ("alibi_bias_max", 8),
        ("skip_layers", [1]),
        ("skip_layers", [2]),  # as many as there are layers
        ("norm", "post"),  # a word, though a part is called so
        ("num_loops", 2),
        ("rope_on_values", True),
        ("norm_position", "post"),
        ("nope_layers", [1, 3]),
        ("attention_kinds", ["global", "local", "local"]),
        ("use_residual", False),
        ("qk_norm", True),  # and no norm is stored
        ("per_layer_config.0.rms_norm_eps", 1e-3),  # of one of the layers that are alike
    ],
)
def test_a_field_that_some_computation_must_need_is_not_passed_over(field: str, value: Any) -> None:
    said = {"per_layer_config": {"0": {"rms_norm_eps": value}}} if "." in field else {field: value}
    (line,) = read(ANSWERS, model_type="unheard_of", **said).missing
    assert line.startswith(f"config '{field} = ") and line.endswith("asks for what no flow here does")
    assert read(**{field: value}).missing == []  # a listed type: its flows are known to do without


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("inner_norm_eps", 0),
        ("branch_multiplier", 1.0),
        ("branch_width", 7),
        ("suppressed", [60, 61]),
        ("softmax_one", False),
        ("use_scale", True),
        ("norm_position", "none"),
        ("use_flash_attention", True),  # how fast, not what
        ("scale_attention_in_fp32", True),
        ("use_down_proj", True),  # a module that is there
        ("pooler_act", "relu"),  # of a part that is not
    ],
)
def test_other_fields_that_no_rule_reads_are_findings(field: str, value: Any) -> None:
    architecture = read(ANSWERS, model_type="unheard_of", **{field: value})
    assert architecture.missing == []
    assert f"config field is read by no rule: '{field}'" in architecture.findings


def test_a_field_of_a_part_that_is_not_there_asks_for_nothing() -> None:
    """An adapter behind what hears: a model of texts has nothing of either, one of sounds is refused."""
    assert read(ANSWERS, model_type="unheard_of", add_adapter=True).missing == []
    for name in ("wav2vec2", "whisper"):
        hears = next(family for family in RULEBOOK.families if family.name == name).examples[0]
        of_sounds = replace(header(hears), config={**(hears.config or {}), "add_adapter": True})
        assert (
            "config 'add_adapter = true' asks for what no flow here does"
            in infer(of_sounds, RULEBOOK).missing
        )


def test_a_flag_of_a_part_of_one_block_is_what_its_names_show(monkeypatch: pytest.MonkeyPatch) -> None:
    hears = header(next(family for family in RULEBOOK.families if family.name == "wav2vec2").examples[0])
    said = {**(hears.config or {}), "model_type": "unheard_of", "norm_of_features": True}
    (line,) = (line for line in infer(replace(hears, config=said), RULEBOOK).missing if "of_features" in line)
    assert line.endswith("asks for what no flow here does")
    monkeypatch.setitem(RULEBOOK.config_vocabulary.shown, "feature_projection.norm", ("norm_of_features",))
    missing = infer(replace(hears, config=said), RULEBOOK).missing
    assert not any("norm_of_features" in line for line in missing)


def test_a_user_says_which_fields_change_nothing() -> None:
    fields = {"softmax_one": True, "num_loops": 2}
    assert len(read(ANSWERS, model_type="unheard_of", **fields).missing) == 2
    said = {**ANSWERS, "fields.idle": "softmax_one,num_loops"}
    assert read(said, model_type="unheard_of", **fields).missing == []


def test_a_flag_that_fields_of_the_config_contradict_is_asked_for() -> None:
    stated = {"position_embedding_type": "nope"}  # and a base of angles
    said = read(ANSWERS, model_type="unheard_of", **stated)
    assert "rotary" in [question.fact for question in said.questions]
    assert "attention.causal" not in [question.fact for question in said.questions]


def test_a_flag_of_stored_norms_is_what_their_names_show() -> None:
    (width,) = set(facts(read(), "attention.head_dim"))
    norms = {
        name.replace(f"{letter}_proj", f"{letter}_norm"): TensorInfo((width,), "F32")
        for letter in "qk"
        for name in LLAMA.tensors
        if f"{letter}_proj.weight" in name
    }
    config = {**(LLAMA.config or {}), "model_type": "unheard_of", "qk_norm": True}
    stored = Checkpoint("x", "manifest", {**LLAMA.tensors, **norms}, config)
    assert not any("qk_norm" in line for line in infer(stored, RULEBOOK, hints=ANSWERS).missing)


@pytest.mark.parametrize(
    ("fields", "fact"),
    [
        ({"alibi": True}, "rotary"),  # beside a base of angles
        ({"query_pre_attn_scalar": 16}, "norm.offset"),
        ({"norm_plus_one": True}, "embedding.scale"),
        ({"attention_chunk_size": 3}, "attention.pattern"),
        ({"softmax_one": True}, "fields.idle"),
    ],
)
def test_fields_that_published_models_obey_in_several_ways_are_asked_about(
    fields: dict[str, Any], fact: str
) -> None:
    said = read(ANSWERS, model_type="unheard_of", **fields)
    assert fact in [question.fact for question in said.questions]


@pytest.mark.parametrize(
    ("fields", "fact", "value"),
    [
        ({"is_causal": False}, "attention.causal", False),
        ({"is_bidirectional": True}, "attention.causal", False),
        ({"rope_fraction": 0.5}, "rotary.dim", 8),
        ({"qkv_clip": 0.5}, "attention.clip", 0.5),
        ({"parallel_block": True}, "layer.parallel", True),
        ({"output_softcap": 2.0}, "head.softcap", 2.0),
    ],
)
def test_a_field_is_read_whatever_a_class_calls_it(fields: dict[str, Any], fact: str, value: Any) -> None:
    assert set(facts(read(ANSWERS, model_type="unheard_of", **fields), fact)) == {value}


def test_what_changes_nothing_is_a_field_that_is_there() -> None:
    fields = {"softmax_one": True, "num_loops": 2}
    told = read(ANSWERS | {"fields.idle": "softmax_one, num_loops"}, model_type="unheard_of", **fields)
    assert told.missing == []
    with pytest.raises(HintError, match="'softmax_two', which the config has not"):
        read(ANSWERS | {"fields.idle": "softmax_two"}, model_type="unheard_of", **fields)


def test_one_answer_is_not_that_of_two_fields_with_the_same_word() -> None:
    fields = {"attention_activation": "silu", "router_activation": "silu"}
    said = read(ANSWERS | {"feed_forward.activation": "silu"}, model_type="unheard_of", **fields)
    assert {"fields.idle"} <= {question.fact for question in said.questions}


def of_places(**fields: Any) -> dict[str, tuple[Any, ...]]:
    """What is asked of a type that nobody lists, whose config has no base of angles."""
    plain = {"model_type": "unheard_of", "rope_theta": None, "rope_parameters": None}
    return {question.fact: question.candidates for question in read(**{**plain, **fields}).questions}


@pytest.mark.parametrize("word", ["nope", "none", "NoPE", "no"])
def test_where_the_config_says_that_nothing_tells_positions_apart_no_table_is_asked_for(word: str) -> None:
    assert {"position.sinusoidal", "alibi"}.isdisjoint(of_places(pos_emb=word))


def test_a_word_for_positions_that_no_rule_knows_is_asked_about() -> None:
    assert True in of_places(pos_emb="spirals")["rotary"]


def test_a_share_above_one_is_asked_about() -> None:
    assert 0.25 in of_places(rope_theta=10000.0, rotary_pct=25)["rotary.fraction"]
