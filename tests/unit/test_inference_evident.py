"""What shapes, modules and the config show of a type that nobody lists is not asked, whatever listed types of its names have."""

from __future__ import annotations

from typing import Any

import pytest

from mapper.architecture import Architecture, Leaf
from mapper.checkpoint import Checkpoint
from mapper.inference import infer
from mapper.inference.evidence import Known
from mapper.inference.scopes import Scope
from mapper.inference.twins import Twins
from mapper.rulebook.complete import is_around, made_of, unheard, words_of
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK

UNHEARD = {"model_type": "unheard_of", "transformers_version": "5.23.0", "pad_token_id": 0}


def example(family: str, model_type: str) -> Checkpoint:
    examples = next(item for item in RULEBOOK.families if item.name == family).examples
    headers = (header(item) for item in examples if item.expect.get("reading") == "exact")
    return next(item for item in headers if (item.config or {}).get("model_type") == model_type)


def read(checkpoint: Checkpoint, **config: Any) -> Architecture:
    changed = {**(checkpoint.config or {}), **UNHEARD, **config}
    return infer(Checkpoint("x", "manifest", checkpoint.tensors, changed), RULEBOOK)


def asked(architecture: Architecture) -> set[str]:
    return {question.name.rpartition(":")[2] for question in architecture.questions}


def value(architecture: Architecture, name: str) -> Any:
    (found,) = {fact.value for fact in architecture.facts if fact.name == name}
    return found


@pytest.mark.parametrize(("other", "is_asked"), [("all_heads", False), ("after_rotary", True)])
def test_a_norm_as_long_as_a_head_is_none_over_all_heads_though_listed_types_have_those(
    other: str, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differ(
        twins: Twins, scope: Scope, name: str, known: Known | None, leaf: Leaf | None = None
    ) -> list[str]:
        return ["before_rotary", other] if name == "attention.norms" else []

    monkeypatch.setattr(Twins, "differ", differ)
    assert ("attention.norms" in asked(read(example("qwen3", "qwen3")))) is is_asked


def test_of_layers_behind_which_a_norm_stands_a_type_without_one_says_nothing() -> None:
    architecture = read(example("pegasus", "pegasus"))  # marian has the same names but for that norm
    assert "norm.placement" not in asked(architecture)
    assert value(architecture, "norm.placement") == "pre"


def test_what_another_block_has_says_nothing_of_this_one() -> None:
    shared = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [8, 4, 4]}
    architecture = read(example("qwen3", "qwen3"), rope_parameters=shared)
    assert "rotary.layout" in asked(architecture)  # with experts elsewhere listed types have either


def test_a_folder_has_a_module_that_no_example_of_the_type_has() -> None:
    plain = ["model.layers.0.attn.q.weight", "model.layers.0.ffn.up.weight", "model.embed.weight"]
    normed = [*plain, "model.norm.weight"]
    examples = [("one", plain), ("one", plain), ("other", normed), ("other", normed)]
    made = made_of(examples, ["{root}.layers.{n}.attn.q"])
    here = [words_of(name) for name in (*normed, "model.layers.0.attn.k.weight")]
    recognise = ["{root}.layers.{n}.attn.q"]
    layer = ("model", "layers", (0,), "attn")
    assert unheard(made, "other", here, recognise) == [layer]
    assert unheard(made, "nobody", here, recognise) == []  # of which there is no example
    assert is_around(layer, ("model", "layers", (0, 1), "attn"))
    assert not is_around(layer, ("model", "layers", (0,)))
    assert not is_around(layer, ("model", "layers", (1,), "attn"))


@pytest.mark.parametrize(
    ("version", "more", "is_asked"),
    [
        ("5.23.0", {}, False),
        ("4.57.1", {}, True),  # others keep fields that no class of theirs has
        ("5.23.0", {"position_embedding_type": None}, True),  # which may leave them out
        ("5.23.0", {"use_mem_rope": False}, True),
    ],
)
def test_a_class_with_angles_beside_state_spaces_rotates(
    version: str, more: dict[str, Any], is_asked: bool
) -> None:
    angles = {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 0.5}
    config = {"rope_parameters": angles, "transformers_version": version, **more}
    architecture = read(example("bamba", "bamba"), **config)
    assert ("rotary" in asked(architecture)) is is_asked


@pytest.mark.parametrize(("more", "is_asked"), [({}, False), ({"local_rope_base": 500.0}, True)])
def test_one_base_of_angles_that_nothing_stretches_is_that_of_all_layers(
    more: dict[str, Any], is_asked: bool
) -> None:
    angles = {"rope_theta": 10000.0, "rope_type": "default"}
    architecture = read(example("olmo2", "exaone4"), rope_parameters=angles, **more)
    assert ("rotary.local" in asked(architecture)) is is_asked


@pytest.mark.parametrize("word", ["attn", "self_attention"])
def test_a_layer_of_bert_whose_attention_is_called_otherwise_is_one(word: str) -> None:
    plain = example("bert", "bert")
    tensors = {name.replace(".attention.", f".{word}."): info for name, info in plain.tensors.items()}
    other = Checkpoint("x", "manifest", tensors, plain.config)
    before = {block.role: block.flow for block in read(plain).root.blocks()}
    architecture = read(other)
    assert architecture.reading == "unverified"
    assert {block.role: block.flow for block in architecture.root.blocks()} == before


def test_windows_of_cosine_similarity_are_known_by_their_maps_whatever_attention_is_called() -> None:
    plain = example("swinv2", "swinv2")
    tensors = {name.replace(".attention.", ".attn."): info for name, info in plain.tensors.items()}
    architecture = read(Checkpoint("x", "manifest", tensors, plain.config))
    assert value(architecture, "attention.pattern") == "cosine_windows"


def test_a_norm_that_is_called_by_two_words_for_a_feed_forward_network_is_its_own() -> None:
    plain = example("gemma2", "gemma2")
    renamed = {
        name.replace("_feedforward_layernorm", "_feed_forward_norm"): info
        for name, info in plain.tensors.items()
    }
    roles = {leaf.role for leaf in read(Checkpoint("x", "manifest", renamed, plain.config)).leaves}
    assert roles == {leaf.role for leaf in read(plain).leaves}


def test_a_merger_of_patches_has_the_words_of_a_gated_network() -> None:
    plain = example("glm4v_vision", "glm4v_vision")
    words = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    tensors = {
        ".".join(words.get(part, part) for part in name.split(".")) if "merger" in name else name: info
        for name, info in plain.tensors.items()
    }
    known = {leaf.role for leaf in read(plain).leaves}
    assert {leaf.role for leaf in read(Checkpoint("x", "manifest", tensors, plain.config)).leaves} == known


def test_where_norms_without_weights_stand_is_asked_of_layers_with_other_names() -> None:
    plain = example("nanochat", "nanochat")
    tensors = {name.replace(".self_attn.", ".attn."): info for name, info in plain.tensors.items()}
    architecture = read(Checkpoint("x", "manifest", tensors, plain.config))
    (question,) = (one for one in architecture.questions if one.fact == "norm.placement")
    assert question.candidates == ("pre", "post")
    hints = {"norm.placement": "pre", "rotary.style": "half", "embedding.normed": True, "norm.mean": False}
    changed = {**(plain.config or {}), **UNHEARD}
    assert infer(Checkpoint("x", "manifest", tensors, changed), RULEBOOK, hints=hints).reading == "unverified"
