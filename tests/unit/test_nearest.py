"""What is said where no flow fits: the nearest flows in words, and what to ask."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

import mapper
from mapper.architecture import Architecture, Question
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.errors import HintError
from mapper.inference import infer
from mapper.inference.contradictions import _check
from mapper.inference.evidence import Known
from mapper.inference.misfits import LACKS, OTHER, UNKNOWN, Misfit
from mapper.inference.nearest import Near, Open, against_defaults
from mapper.report import Report
from mapper.rulebook.examples import header
from mapper.rulebook.rulebook import rulebook_of
from tests.schema import violations

LAYER = {
    "input_layernorm": (32,), "post_attention_layernorm": (32,), "self_attn.q_proj": (32, 32),
    "self_attn.k_proj": (32, 32), "self_attn.v_proj": (32, 32), "self_attn.o_proj": (32, 32),
    "mlp.gate_proj": (48, 32), "mlp.up_proj": (48, 32), "mlp.down_proj": (32, 48),
}  # fmt: skip


def read(
    layer: dict[str, tuple[int, ...]], hints: dict[str, Any] | None = None, **config: Any
) -> Architecture:
    """A decoder of a type that nobody lists, with such layers."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (99, 32), "model.norm": (32,)}
    for at in range(2):
        shapes |= {f"model.layers.{at}.{name}": shape for name, shape in layer.items()}
    tensors = {f"{name}.weight": TensorInfo(shape, "F32") for name, shape in shapes.items()}
    config = {"model_type": "nobodys", "hidden_act": "silu", "rms_norm_eps": 1e-6, **config}
    return infer(Checkpoint("nobody", "manifest", tensors, config), rulebook_of(()), hints=hints)


def renamed(**words: str) -> dict[str, tuple[int, ...]]:
    return {
        ".".join(words.get(word, word) for word in name.split(".")): shape for name, shape in LAYER.items()
    }


@pytest.mark.parametrize(
    ("layer", "role", "says"),
    [
        (
            renamed(self_attn="mix", v_proj="wv_xyzzy", o_proj="plugh"),
            "attention",
            "lacks value and output: only 'plugh' and 'wv_xyzzy' have no role",
        ),
    ],
)
def test_a_role_that_one_module_may_have_is_said_with_it(
    layer: dict[str, tuple[int, ...]], role: str, says: str
) -> None:
    architecture = read(layer, num_attention_heads=4)
    assert architecture.reading == "skeleton"
    (unfit,) = [unfit for unfit in architecture.unfit if unfit.role == role]
    assert 1 <= len(unfit.nearest) <= 3
    first = unfit.nearest[0]
    assert says in first and "(" in first.partition(" ")[2], first  # its words beside its name
    assert str(unfit) in architecture.missing


def test_the_nearest_is_short_of_the_fewest_roles() -> None:
    architecture = read(renamed(v_proj="xyzzy", o_proj="plugh"), num_attention_heads=4)
    (unfit,) = [unfit for unfit in architecture.unfit if unfit.role == "attention"]
    assert all("lacks value and output: " in text for text in unfit.nearest)


def test_equal_blocks_without_a_flow_are_one_line() -> None:
    shapes = {f"a{word}.{name}.weight": (8, 8) for word in "bc" for name in ("query", "key", "value", "zed")}
    tensors = {name: TensorInfo(shape, "F32") for name, shape in shapes.items()}
    architecture = infer(Checkpoint("nobody", "manifest", tensors), rulebook_of(()))
    told = [unfit for unfit in architecture.unfit if unfit.role != "root"]
    assert len({unfit.nearest for unfit in told}) == len(told)


def test_what_decides_between_flows_is_asked_with_its_values() -> None:
    architecture = read(renamed(mlp="xyzzy"), num_attention_heads=4, rope_theta=1e4)
    asked = {question.fact: set(question.candidates) for question in architecture.questions}
    assert asked["attention.causal"] == {True, False}
    assert all(len(question.candidates) != 1 for question in architecture.questions)
    (attention,) = [unfit for unfit in architecture.unfit if unfit.role == "attention"]
    assert {text.rpartition(" if ")[2] for text in attention.nearest} == {
        "attention.causal = true",
        "attention.causal = false",
    }


def test_a_factor_that_shapes_leave_one_value_for_is_no_question() -> None:
    layer = {**LAYER, "self_attn.k_proj": (1, 32), "self_attn.v_proj": (1, 32)}  # so a head has one number
    facts = {fact.name: fact for fact in read(layer).facts}
    assert (facts["attention.heads"].value, facts["attention.heads"].evidence) == (32, "shape")
    assert "the only one that fits" in facts["attention.heads"].source
    assert "attention.heads" not in [question.fact for question in read(layer).questions]


def test_a_factor_with_two_values_is_asked_and_never_guessed() -> None:
    layer = {**LAYER, "self_attn.k_proj": (2, 32), "self_attn.v_proj": (2, 32)}
    (question,) = [one for one in read(layer).questions if one.fact.startswith("attention.head")]
    assert question.candidates in ((1, 2), (16, 32))


def test_questions_are_structured(tmp_path: Any) -> None:
    architecture = read(LAYER)
    document = json.loads(Report(architecture).to_json())
    assert violations(document) == []
    (asked,) = [item for item in document["questions"] if item["fact"] == "attention.heads"]
    assert asked["candidates"] == [1, 2, 4, 8, 16, 32]
    assert asked["set"] == "--set attention.heads=VALUE"
    assert asked["at"].startswith("model.layers.")
    told = read(LAYER, hints={"attention.heads": asked["candidates"][2]})
    assert "attention.heads" not in [question.fact for question in told.questions]


def test_the_answer_of_a_tower_says_which() -> None:
    assert Question("attention.heads", "v.*", (1, 2), "vision").set == "--set vision:attention.heads=VALUE"


def test_rules_are_named_with_their_line() -> None:
    architecture = read(LAYER, num_attention_heads=4)
    document = json.loads(Report(architecture).to_json())
    facts = {fact["name"]: fact for fact in document["facts"]}
    heads = facts["attention.heads"]
    assert (heads["file"], heads["evidence"]) == ("vocabulary/config_attention.yaml", "config")
    folder = rulebook_of(()).documents("vocabulary")
    path = next(one.path for one in folder if one.label == heads["file"])
    assert "attention.heads:" in path.read_text("utf-8").splitlines()[heads["line"] - 1]
    assert (facts["hidden_size"]["file"], facts["hidden_size"]["line"]) == (None, None)
    assert f"num_attention_heads ({heads['file']}:{heads['line']})" in Report(architecture).why(
        "attention.heads"
    )


def test_dtypes_bytes_and_notes_are_of_their_own() -> None:
    tensors = {"a.weight": TensorInfo((4, 4), "BF16"), "a.bias": TensorInfo((4,), "F32")}
    checkpoint = Checkpoint("nobody", "manifest", tensors, notes=["reconstructed"])
    document = json.loads(Report(infer(checkpoint, rulebook_of(()))).to_json())
    assert violations(document) == []
    assert (document["bytes"], document["dtypes"]) == (48, {"BF16": 1, "F32": 1})
    (leaf,) = document["leaves"]
    assert (leaf["bytes"], leaf["dtypes"]) == (48, {"weight": "BF16", "bias": "F32"})
    assert document["notes"] == ["reconstructed"]
    assert "reconstructed" not in document["findings"]


def test_a_question_is_what_why_answers_with() -> None:
    with pytest.raises(
        HintError, match=r"possible here: 1, 2, 4, 8, 16, 32; say hints=\{\"attention\.heads\": VALUE"
    ):
        Report(read(LAYER)).why("attention.heads")


def test_the_public_report_has_the_questions(tmp_path: Any) -> None:
    (tmp_path / "a.json").write_text('{"tensors": {"a.weight": {"shape": [4, 4], "dtype": "F32"}}}')
    assert mapper.inspect(tmp_path / "a.json").architecture.questions == []


def test_which_of_two_maps_side_by_side_is_the_gate_is_asked() -> None:
    layer = {name: shape for name, shape in LAYER.items() if not name.startswith("mlp")}
    maps = {"mlp.xyzzy_a": (48, 32), "mlp.xyzzy_b": (48, 32), "mlp.xyzzy_c": (32, 48)}
    architecture = read({**layer, **maps}, num_attention_heads=4)
    (question,) = [one for one in architecture.questions if one.fact == "feed_forward.gate_last"]
    assert set(question.candidates) == {True, False}


def test_a_flag_that_one_flow_would_do_with_is_asked_with_its_other_value() -> None:
    facts = SimpleNamespace(
        declared=SimpleNamespace(types={"joined": "flag", "words": "text"}), doubt=lambda scope, name: None
    )
    opened = Open(cast(Any, facts), (), cast(Any, None))
    rule, scope = cast(Any, SimpleNamespace()), cast(Any, None)
    flag, word = Misfit(UNKNOWN, "joined", (True,)), Misfit(UNKNOWN, "words", ("plain",))
    assert opened._confirming(scope, [Near(rule, (flag,), 1)]) == {"joined": [True, False]}
    assert opened._confirming(scope, [Near(rule, (flag, word), 1)]) == {}


def near_to(name: str, faults: list[Misfit], *assumed: str, steps: bool = True) -> Near:
    rule = cast(Any, SimpleNamespace(name=name, steps=("a",) if steps else ()))
    return Near(rule, tuple(faults), 2, frozenset(assumed))


def test_a_default_alone_that_speaks_against_a_flow_is_asked_for() -> None:
    kept = near_to("root/kept", [Misfit(OTHER, "pooling", ("mean", "first"))], "pooling")
    two = [Misfit(OTHER, "pooling", ("area",)), Misfit(UNKNOWN, "rotary", (True,))]
    assert against_defaults([kept, near_to("root/two", two, "pooling")]) == {"pooling": ["mean", "first"]}
    written = near_to("root/written", [Misfit(OTHER, "depth", (1,))], "depth", steps=False)
    assert against_defaults([written, kept]) == {"pooling": ["mean", "first"]}
    assert against_defaults([written]) == {"depth": [1]}
    said = near_to("root/said", [Misfit(OTHER, "pooling", ("mean",))])  # the config says otherwise
    lacks = near_to("root/lacks", [Misfit(OTHER, "pooling", ("mean",)), Misfit(LACKS, "head")], "pooling")
    assert against_defaults([said, lacks]) == {}


def test_a_field_means_another_size_where_another_one_says_what_the_weights_show() -> None:
    families = SimpleNamespace(speak_for=lambda scope: False, goes_by_names=lambda scope: False)
    scope = SimpleNamespace(index_of=lambda word: None, block=SimpleNamespace(home="visual"), tower=None)
    wide, right = Known(48, "config", "hidden_size"), Known(32, "config", "embed_dim")

    def against(*said: Known) -> set[str]:
        facts = SimpleNamespace(
            from_config=lambda *at, **options: said,
            full_name=lambda scope, name: name,
            hints=SimpleNamespace(stated=lambda *at: None),
            families=families,
        )
        shown = Known(32, "shape", "visual.norm.weight [32]")
        return {*_check(cast(Any, facts), cast(Any, scope), "hidden_size", shown)}

    assert against(wide) == {"hidden_size"}
    assert against(wide, right) == set()
    assert against(wide, Known(32, "default", "embed_dim")) == {"hidden_size"}  # its type's, not said here


def test_of_two_roles_either_of_which_would_do_both_are_said_to_be_lacking() -> None:
    rulebook = rulebook_of(())
    family = next(family for family in rulebook.families if family.name == "conditional_detr")
    source = header(family.examples[0])
    tensors = {name: info for name, info in source.tensors.items() if "bbox_predictor" not in name}
    missing = infer(replace(source, tensors=tensors), rulebook).missing
    assert "lacks feed_forward or box_heads" in " ".join(missing)


def test_a_flow_that_needs_either_of_two_roles_is_not_taken_without_both() -> None:
    rulebook = rulebook_of(())
    family = next(family for family in rulebook.families if family.name == "siglip_vision")
    source = header(family.examples[0])
    after = (
        "head.mlp",
        "head.layernorm",
    )  # with neither a norm nor a feed-forward, nothing says how it is pooled
    tensors = {name: info for name, info in source.tensors.items() if not any(part in name for part in after)}
    unlisted = replace(source, tensors=tensors, config=dict(source.config or {}, model_type="unheard"))
    assert infer(source, rulebook).reading == "exact"
    missing = infer(unlisted, rulebook).missing
    assert "lacks norm or probe_norm" in " ".join(missing)
