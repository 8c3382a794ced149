"""What is asked of an unlisted type is all that its listed twins differ in; each question can be answered, for those alone whom it is about."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mapper.architecture import Architecture, Leaf
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.emission import emit
from mapper.errors import HintError
from mapper.inference import infer
from mapper.inference.config import Config
from mapper.report.text import as_text
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK

ROOT = Path(__file__).resolve().parents[2]
UNHEARD = "unheard_of"


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("renamed", ROOT / "tools" / "renamed.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["renamed"] = module
    spec.loader.exec_module(module)
    return module


renamed = _tool()


def example(model_type: str) -> Checkpoint:
    """The first complete example of a listed type."""
    every = (item for family in RULEBOOK.families for item in family.examples)
    return header(next(item for item in every if (item.config or {}).get("model_type") == model_type))


def read(checkpoint: Checkpoint, hints: dict[str, Any] | None = None, **config: Any) -> Architecture:
    changed = {"pad_token_id": 0, **(checkpoint.config or {}), "model_type": UNHEARD, **config}
    return infer(Checkpoint("x", "manifest", checkpoint.tensors, changed), RULEBOOK, hints=hints)


def asked(architecture: Architecture) -> dict[str, tuple[Any, ...]]:
    return {question.name: question.candidates for question in architecture.questions}


def gist(architecture: Architecture) -> tuple[list[Any], list[Any], list[Any]]:
    """Flows, leaves and what flows read: what a model is made of."""
    blocks = [architecture.root, *architecture.root.blocks()]
    flows = sorted((str(block.home), block.role, str(block.flow)) for block in blocks)
    facts = sorted(
        (str(block.home), block.role, name, repr(fact.value))
        for block in blocks
        for name, fact in block.facts.items()
    )
    leaves = sorted((str(leaf.place), leaf.kind, leaf.form, _values(leaf)) for leaf in architecture.leaves)
    return flows, facts, leaves


def _values(leaf: Leaf) -> str:
    return repr(sorted((name, fact.value) for name, fact in leaf.facts.items()))


@pytest.mark.parametrize(
    ("model_type", "fact"),
    [
        ("speech_to_text", "encoder:input.kind"),  # chooses another tower
        ("dpr", "pooling"),  # chooses another root
        ("segformer", None),  # strides differ from stage to stage
        ("exaone4", "rotary"),  # and which layers turn: windows say nothing of it
        ("nemotron", "norm.offset"),
        ("imagegpt", "norm.kind"),  # a kind that a family gives to names
        ("gpt_neo", "attention.scaling"),  # which a field of the config says in words of its own
        ("aya_vision", None),  # the field of one norm is read by its name
        ("video_llava", "features.layout"),  # which only the whole has otherwise
    ],
)
def test_answers_in_truth_give_the_reading_of_the_listed_type(model_type: str, fact: str | None) -> None:
    made = renamed.renamed(example(model_type), RULEBOOK)
    assert made.listed.reading == "exact"
    assert made.first.questions and (fact is None or fact in asked(made.first))
    assert (made.error, made.told.missing) == ("", [])
    (flows, facts, leaves), (own_flows, own_facts, own_leaves) = gist(made.told), gist(made.listed)
    assert (flows, leaves) == (own_flows, own_leaves)
    assert set(own_facts) <= set(facts)


def test_a_field_that_some_listed_type_does_not_obey_is_asked_for() -> None:
    checkpoint = example("aya_vision")
    text = {**(checkpoint.config or {})["text_config"], "logit_scale": 0.25}
    (question,) = [one for one in read(checkpoint, text_config=text).questions if one.fact == "head.scale"]
    assert "with the factor that their config has, or without" in question.why
    for factor in (0.25, 1.0):
        told = read(checkpoint, {"head.scale": factor}, text_config=text)
        assert [fact.value for fact in told.facts if fact.name == "head.scale"] == [factor]


def test_a_number_that_a_user_repeats_is_known_unless_two_fields_have_it() -> None:
    answers = {name: values[0] for name, values in asked(read(example("llama"))).items()}
    answers |= {
        "embedding.scale": None,
        "rotary.base": 1e4,
        "alibi": False,
    }  # asked for with the activation, with the positions
    assert read(example("llama"), {**answers, "norm.eps": 3e-4}, odd_eps=3e-4).missing == []
    one, two = (
        read(example("llama"), {**answers, "norm.eps": 3e-4}, **fields).missing
        for fields in ({"odd_eps": 2e-4}, {"odd_eps": 3e-4, "even_eps": 3e-4})
    )
    assert len(one) == 1 and "odd_eps" in one[0]
    assert len(two) == 2


def test_heads_of_another_task_than_the_config_says_are_asked_for() -> None:
    whole = example("imagegpt")
    tensors = {name: info for name, info in whole.tensors.items() if name != "lm_head.weight"}
    tensors["score.weight"] = TensorInfo((2, tensors["transformer.ln_f.weight"].shape[0]), "F32")
    checkpoint = Checkpoint("x", "manifest", tensors, whole.config)
    said = {"architectures": ["ImageGPTForImageClassification"]}
    questions = asked(read(checkpoint, **said))
    assert "head.pooling" in questions
    told = read(
        checkpoint, {"head.pooling": "mean", "norm.kind": "RMSNorm", "task": "image_classification"}, **said
    )
    assert told.missing == [] and str(told.root.flow) != "root/token_classification"


def test_a_map_beside_other_tensors_in_its_folder_is_computed_with_its_own() -> None:
    checkpoint = example("axk1")
    first = read(checkpoint)
    answers = {name: values[0] for name, values in asked(first).items() if values}
    text = emit(read(checkpoint, answers))
    assert "F.linear(x, self.gate.weight)" in text and "self.gate(x)" not in text


def test_an_answer_that_another_one_settles_is_taken() -> None:
    made = renamed.renamed(example("xglm"), RULEBOOK)
    assert {"rotary", "attention.rotary"} <= asked(made.first).keys()
    assert (made.hints["rotary"], made.error, made.told.missing) == (False, "", [])


def with_norms(word: str) -> Checkpoint:
    """A llama whose queries and keys have norms."""
    whole = example("llama")
    tensors = dict(whole.tensors)
    layers = {name.partition(".self_attn.")[0] for name in tensors if ".self_attn." in name}
    width = tensors["model.layers.0.self_attn.q_proj.weight"].shape[0]
    heads = 4
    for layer in layers:
        for part in ("query", "key"):
            tensors[f"{layer}.self_attn.{part}_{word}.weight"] = TensorInfo((width // heads,), "F32")
    said = {"num_attention_heads": heads, "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu"}
    said |= {"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": False}
    return Checkpoint("x", "manifest", tensors, {**(whole.config or {}), **said})


def test_a_doubt_that_would_choose_another_flow_is_asked_and_its_answer_chooses_it() -> None:
    checkpoint = with_norms("layernorm")
    questions = asked(read(checkpoint))
    assert {"before_rotary", "after_rotary"} <= set(questions["attention.norms"])
    answers = {name: values[0] for name, values in questions.items() if values}
    for order in ("first", "last"):
        told = read(checkpoint, {**answers, "attention.norms": order})
        flows = [str(block.flow) for block in told.root.blocks() if block.role == "attention"]
        assert flows and all(("norms_last" in flow) is (order == "last") for flow in flows)


def test_fields_that_listed_types_obey_and_others_do_not_are_asked_for() -> None:
    checkpoint = example("parakeet_rnnt")
    config = {"hidden_act": "relu", "encoder_config": {"hidden_act": "silu"}}
    assert asked(read(checkpoint, **config))["feed_forward.activation"] == ("relu", "silu")
    agreeing = {"hidden_act": "silu", "encoder_config": {"hidden_act": "silu"}}
    assert "feed_forward.activation" not in asked(read(checkpoint, **agreeing))


def test_a_question_about_one_layer_is_named_by_it_and_leaves_the_others_as_they_are() -> None:
    checkpoint = example("exaone4")
    kinds = {"layer_types": ["sliding_attention", "full_attention"] * 2, "rope_theta": 10000.0}
    first = read(checkpoint, **kinds)
    (name,) = [name for name in asked(first) if name.endswith("attention.rotary")]
    assert name == "model.layers.{1,3}:attention.rotary"
    told = read(checkpoint, {name: False, "attention.norms": "before_rotary", "rotary.local": False}, **kinds)
    values = {fact.value for fact in told.facts if fact.name == "attention.rotary"}
    assert values == {True, False} and told.missing == []


def test_the_layers_that_a_hint_names_by_number_are_told_apart() -> None:
    whole = example("llama")
    hint = {"model.layers.{1}:feed_forward.activation": "relu", "model_type": "llama"}
    told = read(whole, hint)
    assert {(fact.at, fact.value) for fact in told.facts if fact.name == "feed_forward.activation"} == {
        ("model.layers.0", "silu"),
        ("model.layers.1", "relu"),
    }


def test_a_line_to_copy_keeps_braces_from_the_shell() -> None:
    from mapper.architecture import Question

    question = Question("attention.rotary", "model.layers.{1,3}", (), "model.layers.{1,3}")
    assert question.set == "--set 'model.layers.{1,3}:attention.rotary=VALUE'"
    assert Question("attention.heads", "*").set == "--set attention.heads=VALUE"


def test_no_question_has_one_answer_of_an_open_list() -> None:
    strides = asked(read(example("segformer"), strides=None))["patches.stride"]
    assert strides == ()  # of each stage another one


def test_the_flow_may_be_said_and_must_fit() -> None:
    checkpoint = example("llama")
    pre, post = "pre_norm_attention+attention+pre_norm_feed_forward+feed_forward", "two_streams"
    told = read(checkpoint, {"model_type": "llama", "layers:flow": f"layer/{pre}"})
    assert told.unheard == {} and f"layer/{pre}" in {block.flow for block in told.root.blocks()}
    with pytest.raises(HintError, match=f"layer/{post}"):
        read(checkpoint, {"model_type": "llama", "layers:flow": f"layer/{post}"})


def test_a_norm_without_a_bias_is_of_the_kind_that_is_said() -> None:
    told = read(example("llama"), {"norm.kind": "LayerNorm", "model_type": "llama"})
    kinds = {leaf.kind for leaf in told.leaves if leaf.kind.endswith("Norm")}
    assert kinds == {"LayerNorm"}


@pytest.mark.parametrize("config", [{"rms_norm": True}, {}])
def test_settings_of_the_first_code_of_state_spaces_leave_no_norm_to_be_asked(config: dict[str, Any]) -> None:
    """Paper 2312.00752: these settings, or the names alone."""
    first = {"d_model": 64, "n_layer": 2, "vocab_size": 99, **config}
    told = infer(Checkpoint("x", "manifest", example("mamba").tensors, first), RULEBOOK)
    assert "norm.kind" not in asked(told)
    assert {leaf.kind for leaf in told.leaves if leaf.kind.endswith("Norm")} == {"RMSNorm"}


def test_a_field_that_only_some_types_compute_with_is_not_passed_over() -> None:
    checkpoint = example("mixtral")
    assert read(checkpoint, router_jitter_noise=0.0).missing == []
    noisy = read(checkpoint, router_jitter_noise=0.01)
    assert noisy.reading == "skeleton" and [question.fact for question in noisy.questions] == ["moe.scoring"]
    assert read(checkpoint, {"moe.scoring": "softmax"}, router_jitter_noise=0.01).missing == []
    assert read(checkpoint, {"model_type": "mixtral"}, router_jitter_noise=0.01).missing == []


def test_a_disputed_field_counts_as_read_where_a_user_gave_its_value() -> None:
    """Of what a user says, the same number is what the field is for; another one leaves it unread."""
    data = {"model_type": UNHEARD, "router_jitter_noise": 0.01}
    config = Config(data, RULEBOOK.config_vocabulary)
    assert config.disputed({"moe.sharing_distance": 0.01}) == []
    assert config.disputed({"moe.sharing_distance": 0.02}) == config.disputed({})
    assert config.disputed({}) == ["router_jitter_noise = 0.01"]


def test_an_answer_about_a_tower_leaves_a_folder_of_its_name_in_another_alone() -> None:
    """The backbone of DETR stands in `backbone.conv_encoder.model.encoder`: it is no part of the encoder."""
    detr = example("table-transformer")
    names = [name for name in asked(read(detr)) if name.endswith(":norm.placement")]
    assert len(names) == 2
    told = read(detr, dict.fromkeys(names, "pre"))
    placed = {(fact.at.split(".")[1], fact.value) for fact in told.facts if fact.name == "norm.placement"}
    assert placed == {("backbone", "post"), ("encoder", "pre"), ("decoder", "pre")}


def test_a_question_says_why_nobody_knows() -> None:
    llama = example("llama")
    words = {"gate_proj": "gates_proj", "up_proj": "ups_proj"}  # no word for either
    tensors = {
        name: info
        for key, info in llama.tensors.items()
        for name in [next((key.replace(old, new) for old, new in words.items() if old in key), key)]
    }
    model = read(Checkpoint("x", "manifest", tensors, llama.config))
    (question,) = [one for one in model.questions if one.fact == "feed_forward.gate_last"]
    assert question.why == "nothing shows which of two maps side by side is the gate"
    assert question.why in str(question) and f"  {question.why}" in as_text(model)


def test_how_much_of_each_head_turns_is_asked_where_only_a_config_says_it() -> None:
    """GPT-J's own number of channels may be more than its head has; and what follows from the share is not asked."""
    bare = replace(example("gptj"), config=None)
    hints = {"attention.heads": 4, "rotary": True, "rotary.style": "interleaved"}
    asked = {question.name: question for question in infer(bare, RULEBOOK, hints=hints).questions}
    assert asked.keys() == {"rotary.fraction"}
    assert asked["rotary.fraction"].candidates == (0.25, 0.5, 0.8, 1.0)
    answered = infer(bare, RULEBOOK, hints={**hints, "rotary.fraction": 0.5})
    assert not answered.questions
    assert {fact.value for fact in answered.facts if fact.name == "rotary.dim"} == {8}
    llama = example("llama")
    biases = {
        name.replace("norm.weight", "norm.bias"): info
        for name, info in llama.tensors.items()
        if "norm" in name
    }
    for config, is_asked in ((None, True), ({"rope_theta": 10000.0}, False)):
        layered = replace(llama, config=config, tensors={**llama.tensors, **biases})
        asked = {question.name for question in infer(layered, RULEBOOK, hints=hints).questions}
        assert ("rotary.fraction" in asked) is is_asked


def _classifier() -> dict[str, TensorInfo]:
    """An encoder of torch's layers over a text, and a classifier beside it."""
    layer: dict[str, tuple[int, ...]] = {"self_attn.in_proj_weight": (24, 8), "self_attn.in_proj_bias": (24,)}
    for name, shape in {"self_attn.out_proj": (8, 8), "linear1": (12, 8), "linear2": (8, 12)}.items():
        layer |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    layer |= {f"norm{number}.{part}": (8,) for number in (1, 2) for part in ("weight", "bias")}
    shapes: dict[str, tuple[int, ...]] = {"tok.weight": (30, 8), "fc.weight": (3, 8), "fc.bias": (3,)}
    shapes |= {f"layers.{at}.{name}": shape for at in range(2) for name, shape in layer.items()}
    return {name: TensorInfo(shape, "F32") for name, shape in shapes.items()}


def test_what_a_classifier_of_texts_labels_is_asked_and_from_which_state() -> None:
    checkpoint = Checkpoint("x", "torch", _classifier(), None)
    answers: dict[str, Any] = {
        "attention.causal": False,
        "norm.placement": "post",
        "position.sinusoidal": None,
    }
    answers |= {"feed_forward.activation": "relu", "attention.heads": 2}
    of_task = ("token_classification", "sequence_classification")
    assert asked(infer(checkpoint, RULEBOOK, hints=answers)) == {"task": of_task}
    of_text = answers | {"task": "sequence_classification"}
    assert asked(infer(checkpoint, RULEBOOK, hints=of_text)) == {"head.pooling": ("mean", "first")}
    for head in ({"task": "token_classification"}, {**of_text, "head.pooling": "mean"}):
        assert infer(checkpoint, RULEBOOK, hints=answers | head).reading == "unverified"
    with pytest.raises(HintError, match="does not go with the heads"):
        infer(checkpoint, RULEBOOK, hints=answers | {"task": "causal_lm"})


def test_where_norms_stand_is_asked_if_none_stands_at_the_end() -> None:
    layer: dict[str, tuple[int, ...]] = {f"attn.{name}": (8, 8) for name in ("query", "key", "value", "proj")}
    layer |= {"ln1": (8,), "ln2": (8,), "mlp.fc1": (12, 8), "mlp.fc2": (8, 12)}
    shapes = {f"blocks.{at}.{name}.weight": shape for at in range(2) for name, shape in layer.items()}
    shapes |= {f"blocks.{at}.ln{number}.bias": (8,) for at in range(2) for number in (1, 2)}
    shapes |= {"tok.weight": (30, 8), "pos.weight": (12, 8), "lm_head.weight": (30, 8)}
    tensors = {name: TensorInfo(shape, "F32") for name, shape in shapes.items()}
    answers: dict[str, Any] = {"task": "causal_lm", "attention.causal": True, "attention.heads": 2}
    answers |= {"norm.eps": 1e-5, "feed_forward.activation": "relu"}
    read = infer(Checkpoint("x", "torch", tensors, None), RULEBOOK, hints=answers)
    assert asked(read) == {"norm.placement": ("pre", "post")}
    for placement in ("pre", "post"):
        told = answers | {"norm.placement": placement}
        found = infer(Checkpoint("x", "torch", tensors, None), RULEBOOK, hints=told)
        assert found.reading == "unverified"
        assert {fact.value for fact in found.facts if fact.name == "norm.final"} == {"none"}


def test_one_question_with_any_number_for_an_answer_lists_no_values() -> None:
    layer = {
        "attn.qkv": (24, 8),
        "attn.proj": (8, 8),
        "norm1": (8,),
        "norm2": (8,),
        "mlp.fc1": (12, 8),
        "mlp.fc2": (8, 12),
    }
    shapes = {f"blocks.{at}.{name}.weight": shape for at in range(2) for name, shape in layer.items()}
    shapes |= {f"blocks.{at}.norm{number}.bias": (8,) for at in range(2) for number in (1, 2)}
    shapes |= {
        "norm.weight": (8,),
        "norm.bias": (8,),
        "tok.weight": (30, 8),
        "pos.weight": (12, 8),
        "lm_head.weight": (30, 8),
    }
    tensors = {name: TensorInfo(shape, "F32") for name, shape in shapes.items()}
    answers: dict[str, Any] = {"task": "causal_lm", "attention.causal": True, "attention.heads": 2}
    read = infer(
        Checkpoint("x", "torch", tensors, None),
        RULEBOOK,
        hints={**answers, "feed_forward.activation": "relu"},
    )
    assert asked(read) == {"norm.eps": ()}
    assert "  answer it:\n    --set norm.eps=VALUE" in as_text(read)
