"""What stands among words of a type that no family lists: features of connectors, packed images, learned queries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint
from mapper.errors import HintError
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK
from tests.unit.test_inference_unlisted import facts, unlisted


def candidates(made: Architecture, fact: str) -> set[object]:
    return {value for question in made.questions if question.fact == fact for value in question.candidates}


def test_a_connector_gives_what_stands_among_the_words_whoever_lists_its_tower() -> None:
    made = unlisted("granite_docling")
    assert "tower/connected_image" in {block.flow for block in made.root.blocks()}


def test_packed_images_are_a_layout_of_image_features() -> None:
    (example, *_) = next(family for family in RULEBOOK.families if family.name == "lfm2_vl").examples
    made = infer(header(example), RULEBOOK)
    assert made.reading == "exact" and "+image_features+" in (made.root.flow or "")
    assert facts(made, "features.layout") == ["packed"]


def test_patches_that_a_map_reads_may_be_those_of_several_images() -> None:
    assert candidates(unlisted("cosmos3_edge_vision"), "input.kind") == {None, "patches", "packed_pixels"}


def test_learned_queries_read_positions_of_an_image_that_a_mask_places() -> None:
    """Without a norm inside of attention no family has the names."""
    (example, *_) = next(family for family in RULEBOOK.families if family.name == "kosmos_2").examples
    found = header(example)
    tensors = {name: info for name, info in found.tensors.items() if "inner_attn_ln" not in name}
    config = {**(found.config or {}), "model_type": "unheard_of"}
    made = infer(Checkpoint("x", "manifest", tensors, config), RULEBOOK)
    assert set(facts(made, "features")) == {"masked"}
    assert "projector/queries" in {block.flow for block in made.root.blocks()}


def test_a_class_token_is_normed_once_more_by_the_step_that_pools_it() -> None:
    (example, *_) = next(family for family in RULEBOOK.families if family.name == "blip_vision").examples
    made = infer(header(example), RULEBOOK)
    assert made.reading == "exact" and facts(made, "norm.final") == ["twice"]
    assert any((block.flow or "").endswith("+final_norm+pooled") for block in made.root.blocks())


def first_example(family: str) -> Checkpoint:
    (example, *_) = next(one for one in RULEBOOK.families if one.name == family).examples
    return header(example)


@pytest.mark.parametrize(
    ("family", "field", "fact"),
    [
        ("voxtral", "audio_token_id", "features.audio_id"),
        ("instructblip", "image_token_index", "features.image_id"),
        ("llava", "image_token_index", "features.image_id"),
    ],
)
def test_a_config_without_the_token_of_features_is_asked_for_it(family: str, field: str, fact: str) -> None:
    found = first_example(family)
    config = {name: value for name, value in (found.config or {}).items() if name != field}
    made = infer(replace(found, config={**config, "model_type": "unheard_of"}), RULEBOOK)
    assert made.root.flow is not None and "+text+" in made.root.flow
    assert fact in {question.fact for question in made.questions}


def test_what_is_projected_and_stands_nowhere_among_the_words_is_no_model() -> None:
    """Whoever says that the words are alone says of the whole that images stand among them."""
    found = first_example("llava")
    text = next(str(block.home) for block in infer(found, RULEBOOK).root.blocks() if block.role == "text")
    with pytest.raises(
        HintError, match="root at '' computes 'image_features', which nothing inside it reads"
    ):
        infer(found, RULEBOOK, hints={f"{text}:features": None})


def test_what_joins_towers_has_no_token_of_images_by_the_default_of_its_words() -> None:
    """A family of words that images stand among has a default id of its own whole."""
    found = first_example("cosmos3_omni")
    config = {name: value for name, value in (found.config or {}).items() if name != "image_token_id"}
    made = infer(replace(found, config={**config, "model_type": "unheard_of"}), RULEBOOK)
    assert "features.image_id" in {question.fact for question in made.questions}
