"""Folders that are towers: by their own words, or by these after others."""

from __future__ import annotations

from mapper._api import describe
from mapper.naming.vocabulary import is_within

SHAPE = {"shape": [8, 8], "dtype": "F32"}


def test_a_pattern_of_two_words_names_a_tower_inside_of_a_folder() -> None:
    folders = (
        "pixel_level_module.encoder.layers.0",
        "pixel_level_module.decoder.layers.0",
        "decoder.layers.0",
    )
    names = [f"{folder}.self_attn.{word}_proj.weight" for folder in folders for word in "qkv"]
    root = describe({"tensors": dict.fromkeys(names, SHAPE)}).root
    assert set(root.roles) == {"backbone", "pixel_decoder", "decoder"}


def test_words_with_dots_stand_one_after_another() -> None:
    path = ("model", "pixel_level_module", "encoder", "layers", (0, 1))
    assert is_within(path, ["pixel_level_module.encoder"])
    assert not is_within(path, ["pixel_level_module.layers", "encoder.pixel_level_module"])
