"""What a checkpoint lost is missed, though the flows do without it: each of these was called exact."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from mapper.checkpoint import Checkpoint
from mapper.errors import MapperError
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK


def example(family: str, words: str = "") -> Checkpoint:
    """The first exact example of a family with these words in its name."""
    (own,) = (item.examples for item in RULEBOOK.families if item.name == family)
    return next(header(item) for item in own if item.expect.get("reading") == "exact" and words in item.name)


def without(known: Checkpoint, lost: str) -> Checkpoint:
    """The checkpoint without the tensors in whose names a text is; there are some."""
    rest = {name: info for name, info in known.tensors.items() if lost not in name}
    assert len(rest) < len(known.tensors)
    return replace(known, tensors=rest)


@pytest.mark.parametrize(
    ("family", "lost"),
    [("siglip", "vision_model.head.attention"), ("siglip2_vision_model", "head.attention")],
)
def test_biases_of_stacked_maps_are_biases_of_maps(family: str, lost: str) -> None:
    """A pooler's `in_proj_weight` is a bare tensor: where every map has a bias, it has one, too."""
    known = example(family)
    assert infer(known, RULEBOOK).reading == "exact"
    with pytest.raises(MapperError, match=f"{lost}.in_proj_bias is missing"):
        infer(without(known, f"{lost}.in_proj_bias"), RULEBOOK)


@pytest.mark.parametrize(
    ("words", "lost"),
    [
        ("each pixel four times, twice", "upsample.conv_up1"),
        ("each pixel four times, twice", "upsample.conv_up2"),
        ("four times as large", "upsample.upsample.convolution_1"),
    ],
)
def test_an_image_is_made_as_large_as_the_config_says(words: str, lost: str) -> None:
    known = example("swin2sr", words)
    assert infer(known, RULEBOOK).reading == "exact"
    with suppress(MapperError):
        assert infer(without(known, lost), RULEBOOK).reading == "skeleton"
