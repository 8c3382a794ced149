"""What a config that says nothing, or says it in words of its own, leaves open where no family lists the model type."""

from __future__ import annotations

from typing import Any

import pytest

from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK


def stranger(family: str, without: tuple[str, ...] = (), **config: Any) -> Architecture:
    """The first example of a family under a type that nobody lists, without some fields of its config."""
    example = header(next(one for one in RULEBOOK.families if one.name == family).examples[0])
    kept = {name: value for name, value in (example.config or {}).items() if name not in without}
    changed = {**kept, **config, "model_type": "unheard_of"}
    return infer(Checkpoint("x", "manifest", example.tensors, changed), RULEBOOK)


def asked(architecture: Architecture) -> set[str]:
    return {question.fact for question in architecture.questions}


def said(architecture: Architecture, name: str) -> set[Any]:
    return {fact.value for fact in architecture.facts if fact.name == name}


@pytest.mark.parametrize(
    ("family", "field", "value", "fact"),
    [
        ("mimi", "use_causal_conv", True, "convolution.causal"),
        ("plbart", "scale_embedding", True, "embedding.scale"),
        ("roberta", "pad_token_id", 1, "position.counting"),
    ],
)
def test_what_published_classes_have_either_way_is_asked_where_the_config_is_silent(
    family: str, field: str, value: Any, fact: str
) -> None:
    assert fact in asked(stranger(family, without=(field,)))
    assert fact not in asked(stranger(family, **{field: value}))


@pytest.mark.parametrize("field", ["rotary_embedding_base", "theta", "rotary_base"])
def test_the_base_of_angles_is_read_by_any_name_among_those_of_rotary_embeddings(field: str) -> None:
    made = stranger("llama", without=("rope_theta", "rope_parameters"), rope_parameters={field: 500.0})
    assert said(made, "rotary.base") == {500.0}
    assert said(made, "rotary") == {True}


def test_the_kind_of_norms_in_a_tower_of_a_listed_type_is_not_asked() -> None:
    """Whoever joined the towers: a Llama's norms are those of Llama."""
    made = stranger("llava")
    assert "norm.kind" not in asked(made)
    assert not any(leaf.kind == "LayerNorm" for leaf in made.leaves if str(leaf.place).startswith("language"))


def test_an_output_gate_with_a_map_of_its_own_leaves_the_queries_as_they_are() -> None:
    """A field says that there is a gate, not where: here each map has as many rows as the output reads."""
    example = header(next(one for one in RULEBOOK.families if one.name == "llama").examples[0])
    query = next(name for name in example.tensors if name.endswith("0.self_attn.q_proj.weight"))
    tensors = dict(example.tensors)
    for name, info in example.tensors.items():
        if name.endswith("self_attn.q_proj.weight"):
            tensors[name.replace("q_proj", "gate_proj")] = TensorInfo(info.shape, info.dtype)
    config = {**(example.config or {}), "model_type": "unheard_of", "attn_output_gate": True}
    made = infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK)
    assert query in example.tensors
    assert said(made, "attention.query_gated") == {False}
    assert "attention.gate_activation" in asked(made)


def test_numbered_maps_of_a_gated_network_have_the_order_that_their_shapes_show() -> None:
    """`w3` leads back here, as in DINOv2, and not `w2`, as in Llama: which of the others is the gate is asked."""
    example = header(next(one for one in RULEBOOK.families if one.name == "llama").examples[0])
    words = {"gate_proj": "w1", "up_proj": "w2", "down_proj": "w3"}
    tensors = {}
    for name, info in example.tensors.items():
        for word, number in words.items():
            name = name.replace(word, number)
        tensors[name] = info
    config = {**(example.config or {}), "model_type": "unheard_of"}
    made = infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK)
    roles = {str(leaf.place[-1]): leaf.role for leaf in made.leaves if str(leaf.place[-1]) in words.values()}
    assert roles == {"w1": "first", "w2": "second", "w3": "down"}
    assert "feed_forward.gate_last" in asked(made)


def test_how_rows_and_columns_share_angles_is_asked_of_names_that_one_family_alone_has() -> None:
    """Pixtral's words say how its authors call things, not how another's patches are turned."""
    assert "rotary.axes" in asked(stranger("pixtral"))
