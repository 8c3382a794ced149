"""Parts of a block that are no more than one or two modules stand where they are called."""

from __future__ import annotations

import re

import pytest

from mapper.emission import emit
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK


def source(family: str) -> str:
    """The generated source of the first example of a family."""
    item = next(item for item in RULEBOOK.families if item.name == family)
    return emit(infer(header(item.examples[0]), RULEBOOK))


@pytest.mark.parametrize(
    ("family", "written"),
    [
        ("timm_resnet", "y = F.relu(self.bn1(self.conv1(x)))"),
        ("timm_efficientnet", "self.bn2(self.conv_dw("),
    ],
)
def test_a_convolution_and_its_norm_stand_where_they_are_called(family: str, written: str) -> None:
    text = source(family)
    assert written in text
    assert not re.search(r"def (convolution_\d|expansion|depthwise|contraction)\(", text)


def test_a_part_of_more_steps_keeps_its_name() -> None:
    text = source("bert")
    assert "def feed_forward(self, x: Tensor) -> Tensor:" in text
    assert "self.feed_forward(x)" in text


def test_a_docstring_says_of_a_residual_where_there_is_one() -> None:
    text = " ".join(source("timm_efficientnet").split())
    assert "where the shapes allow" not in text
    assert text.count("a projection.") + text.count("a projection and a residual.") > 0
    for found in re.finditer(r"a projection( and a residual)?[.].*?return ([^\n]*?) (?:def|class) ", text):
        assert bool(found[1]) == found[2].startswith("x + ")


def test_a_choice_on_what_is_never_given_is_made() -> None:
    text = source("informer")
    assert "None is None" not in text and "None is not None" not in text
