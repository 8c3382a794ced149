"""Which fields of a rule a config may have, before any is looked up."""

import pytest

from mapper.inference.forms import field_names, may_be_there
from mapper.rulebook.facts import FactRule

CONFIG = {"hidden": 4, "vision": {"depths": [{"width": 1}]}}


def rule(config=(), **towers):
    return FactRule("fact", "file.yaml", 1, config=config, towers=towers)


def test_names_of_fields_are_those_at_any_depth():
    assert set(field_names(CONFIG)) == {"hidden", "vision", "depths", "width"}


@pytest.mark.parametrize(
    "field", ["hidden", "/hidden", "depths", "vision.depths", "width.any", "hidd*", "**.*d"]
)
def test_a_field_may_be_there_by_its_first_word_or_its_form(field):
    assert may_be_there(rule((field,)), {*field_names(CONFIG)})
    assert may_be_there(rule(vision=("other", field)), {*field_names(CONFIG)})


def test_no_field_is_there_whose_first_word_no_field_is_called():
    names = {*field_names(CONFIG)}
    assert not may_be_there(rule(("size", "text.hidden"), vision=("/height",)), names)
    assert not may_be_there(rule(), names)
