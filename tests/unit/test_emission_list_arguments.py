"""Arguments that differ from element to element of a list: dilations and strides of convolutions side by side."""

import re

from mapper.architecture import Leaf, Place
from mapper.authoring.expectations import read_example
from mapper.emission import emit
from mapper.emission.settings import list_depth
from mapper.rulebook.rulebook import Rulebook


def emitted(family_name: str, at: int) -> str:
    """The source of a family's example, in one line."""
    rulebook = Rulebook()
    family = next(family for family in rulebook.families if family.name == family_name)
    architecture, _ = read_example(family.examples[at], family, rulebook)
    assert architecture is not None
    return " ".join(emit(architecture).split())


def test_equal_convolutions_are_made_in_a_loop_over_a_list_of_the_config() -> None:
    text = emitted("vits", 0)
    assert re.search(r"dilation=config\.residual_dilations\[index\] ?\) for index in range\(2\)", text)
    assert "residual_dilations: tuple[int, int] = (1, 3)" in text


def test_convolutions_of_several_sizes_stand_one_by_one_with_their_own_entry() -> None:
    text = emitted("vits", 0)
    assert "stride=config.rates[0]" in text and "stride=config.rates[1]" in text


def test_the_number_of_an_element_is_that_of_the_list_and_of_no_list_within_or_around() -> None:
    def leaf(*place: str | tuple[int, ...]) -> Leaf:
        return Leaf(Place(place), "Conv1d", {}, "")

    block = ("blocks", (0, 1))
    assert list_depth([leaf(*block, "convs", (0, 1, 2), "conv")], 2) == 3
    assert list_depth([leaf(*block, "ups", (0,), (0,)), leaf(*block, "ups", (1,), (0,))], 2) == 3
    assert list_depth([leaf(*block, "ups", (0,), (0,))], 2) is None
