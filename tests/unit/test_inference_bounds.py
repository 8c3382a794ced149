"""What a config says that no forward could do is refused as it is read, not found out as it runs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from mapper.architecture import Architecture
from mapper.errors import ArchitectureError
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK


def read(family: str, *changes: tuple[str, Any]) -> Architecture:
    """The family's first example, with other values in its config."""
    checkpoint = copy.deepcopy(
        header(next(item for item in RULEBOOK.families if item.name == family).examples[0])
    )
    assert checkpoint.config is not None
    for dotted, value in changes:
        *folders, field = dotted.split(".")
        part: Any = checkpoint.config
        for folder in folders:
            part = part[folder]
        part[field] = value
    return infer(checkpoint, RULEBOOK)


@pytest.mark.parametrize(
    ("family", "field", "value", "message"),
    [
        (
            "qwen3_vl",
            "text_config.rope_parameters.mrope_section",
            [2, 1],
            r"3 in all where there must be .* = 4",
        ),
        ("qwen3_vl", "vision_config.deepstack_visual_indexes", [2], r"with an entry beyond layers - 1 = 1"),
        ("qwen3_vl", "vision_config.deepstack_visual_indexes", [1, 0], r"'\[1, 0\]' is not a list .* larger"),
        (
            "sam_hq",
            "vision_config.global_attn_indexes",
            [5],
            r"states.full is '5' .*, more than layers - 1 = 1",
        ),
        ("segformer", "depths", [1, 1, 2, 2], r"config depths: 4 entries, but 2 stages"),
    ],
)
def test_a_field_that_fits_nothing_else_is_refused(family: str, field: str, value: Any, message: str) -> None:
    assert read(family).reading == "exact"
    with pytest.raises(ArchitectureError, match=message):
        read(family, (field, value))


def test_waves_of_prompts_that_are_not_those_of_the_image_are_not_vouched_for() -> None:
    assert read("sam_hq", ("tie_word_embeddings", False)).reading == "unverified"


def test_the_first_layer_that_sees_everything_is_the_first_in_any_order() -> None:
    first = read("sam_hq", ("vision_config.global_attn_indexes", [1, 0]))
    assert {fact.value for fact in first.facts if fact.name == "states.full"} == {0}


def test_a_list_of_one_value_says_it_of_any_number_of_stages() -> None:
    """As swinv2's default of four windows beside two stages."""
    from mapper.inference.entries import element

    class Count:
        value = 2

    class Stage:
        tower = None

        def __init__(self) -> None:
            self.solved = {"stages": Count()}

        def index_of(self, role: str, count: int | None = None) -> tuple[int, ...]:
            return (1,)

    assert element([0, 0, 0, 0], Stage(), "stages", "windows") == (0, "windows[1]")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="4 entries, but 2 stages"):
        element([0, 0, 0, 3], Stage(), "stages", "windows")  # type: ignore[arg-type]
