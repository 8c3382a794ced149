"""What a flow says of an input where a role or a fact is so: one flow reads images, patches and videos."""

from __future__ import annotations

from typing import Any

from mapper.inference import infer
from mapper.rulebook.examples import header, is_near_miss
from mapper.rulebook.rulebook import Rulebook


def inputs_of(family: str) -> dict[str, dict[str, Any]]:
    rulebook = Rulebook()
    found = next(item for item in rulebook.families if item.name == family)
    example = next(item for item in found.examples if not is_near_miss(item))
    return infer(header(example), rulebook).inputs


def test_an_input_has_the_shape_that_is_said_where_a_role_is_there() -> None:
    assert inputs_of("llava")["pixel_values"]["shape"] == ["batch", "channels", "height", "width"]
    assert inputs_of("fuyu")["pixel_values"]["shape"][:2] == ["batch", "patches"]


def test_an_input_is_taken_and_not_read_where_its_facts_hold_alone() -> None:
    assert inputs_of("llava")["image_sizes"]["optional"]
    assert not {"image_sizes"} & (inputs_of("fuyu").keys() | inputs_of("video_llava").keys())


def test_what_says_where_it_holds_is_no_part_of_an_input() -> None:
    said = {key for spec in inputs_of("video_llava").values() for key in spec}
    assert said <= {"shape", "dtype", "optional", "made_up"}
