"""What stands around a tower's flow: names of its class, and where dropout is."""

from __future__ import annotations

import pytest

from mapper.architecture import Block, Place
from mapper.emission.naming import _tower_name
from mapper.emission.train import _names
from mapper.inference.scopes import Scope


@pytest.mark.parametrize(
    "flow, name",
    [
        ("decoder_streams", "decoder"),
        ("embeddings+decoder_mask+rotary+layers+final_norm+positions", "decoder"),
        ("embeddings+encoder_unmasked+layers+pooled", "encoder"),
        ("packed_encoder+rotary+frames+layers+merged", "packed_encoder"),
        ("latents", "latents"),
    ],
)
def test_a_class_of_steps_is_called_by_the_one_that_says_what_it_is(flow: str, name: str) -> None:
    assert _tower_name(flow) == name


def test_dropout_may_stand_at_a_step() -> None:
    tower = Block("tower", "text", Place(), flow="tower/embeddings+decoder_mask+layers+positions")
    model = Scope(Block("model", "root", Place()), None, (), None)
    names = _names(Scope(tower, model, (), None))
    assert {"text", "tower", "tower/decoder_mask"} <= set(names)
    whole = Block("tower", "text", Place(), flow="tower/reader")
    assert _names(Scope(whole, model, (), None)) == ("text", "tower", "tower/reader")
