from __future__ import annotations

import pytest

from mapper.architecture import Block, Place
from mapper.errors import RuleError
from mapper.inference.computed import calculate, formula, sources
from mapper.inference.scopes import Scope
from mapper.rulebook.facts import FactRule

FULL, NEAR = "full_attention", "sliding_attention"


def rule(**fields: object) -> FactRule:
    return FactRule("attention.layer_types", "families/x.yaml", 3, **fields)  # type: ignore[arg-type]


def test_an_expression_names_its_sources():
    made = rule(expr="attention.head_dim * rotary.fraction")
    assert sources(made) == ["attention.head_dim", "rotary.fraction"]
    assert calculate(made, {"attention.head_dim": 16, "rotary.fraction": 0.25}) == 4


def test_every_layer_gets_an_entry_by_its_index():
    every_third = rule(each="(index + 1) % attention.window_period", among=(FULL, NEAR))
    assert sources(every_third) == ["layers", "attention.window_period"]
    assert calculate(every_third, {"layers": 4, "attention.window_period": 3}) == [NEAR, NEAR, FULL, NEAR]
    later = rule(each="(index + 1) // (attention.window_start + 1)", among=(FULL, NEAR))
    assert calculate(later, {"layers": 4, "attention.window_start": 1}) == [FULL, NEAR, NEAR, NEAR]


def test_an_expression_may_be_over_the_number_of_a_place():
    made = rule(expr="2 ** index", at=("network.{n}",))
    one, two = (
        Scope(Block("other", "", Place(("network", at, "conv1"))), None, (), None) for at in ((3,), (3, 4))
    )
    assert calculate(made, {"index": one.number_at(made.at)}) == 8
    assert two.number_at(made.at) is None and one.number_at(("layers.{n}", "network")) is None
    with pytest.raises(ValueError, match="no number"):
        calculate(made, {"index": None})


def test_what_no_entry_answers_is_no_value():
    made = rule(each="index - 1", among=(FULL, NEAR))
    with pytest.raises(ValueError, match="no position"):
        calculate(made, {"layers": 2})


def test_a_list_is_summed_up_by_what_its_entries_share():
    made = rule(shared="attention.layer_types", otherwise="mixed")
    assert sources(made) == ["attention.layer_types"]
    assert calculate(made, {"attention.layer_types": [NEAR, NEAR]}) == NEAR
    assert calculate(made, {"attention.layer_types": [FULL, NEAR]}) == "mixed"
    with pytest.raises(ValueError, match="no list"):
        calculate(made, {"attention.layer_types": None})


def test_a_formula_is_told_as_it_is_written():
    assert formula(rule(expr="a + b")) == "a + b"
    assert formula(rule(each="index % 2", among=(1, 2))) == "index % 2 for each of layers"


def test_what_is_no_arithmetic_is_refused_with_its_line():
    with pytest.raises(RuleError, match=r"families/x\.yaml:3"):
        sources(rule(expr="open('x')"))


def test_entries_of_layers_without_attention_do_not_count():
    made = rule(shared="attention.layer_types", otherwise="mixed", but=("mamba",))
    assert calculate(made, {"attention.layer_types": ["mamba", FULL, "mamba"]}) == FULL
    assert calculate(made, {"attention.layer_types": FULL}) == FULL  # in one layer, its own entry
    with pytest.raises(ValueError, match="no list"):
        calculate(made, {"attention.layer_types": ["mamba"]})


def test_layers_are_marked_by_a_list_of_positions():
    made = rule(marks="attention.full_layers", among=(NEAR, FULL))
    assert sources(made) == ["layers", "attention.full_layers"]
    assert calculate(made, {"layers": 3, "attention.full_layers": [1, 7]}) == [NEAR, FULL, NEAR]
    assert formula(made) == "full_attention where attention.full_layers says"


def test_the_first_of_each_run_of_layers_has_an_entry():
    made = rule(runs="layer.runs", firsts="layer.run_strides", factor="layer.depth_factor", otherwise=0)
    assert sources(made) == ["layers", "layer.runs", "layer.run_strides", "layer.depth_factor"]
    values = {"layers": 6, "layer.runs": [1, 3], "layer.run_strides": [1, 2], "layer.depth_factor": 1.2}
    assert calculate(made, values) == [1, 0, 2, 0, 0, 0]
    assert formula(made) == "layer.run_strides at the first of each of layer.runs"
    with pytest.raises(ValueError, match="6 layers, not 5"):
        calculate(made, {**values, "layers": 5})
    with pytest.raises(ValueError, match="not one entry"):
        calculate(made, {**values, "layer.run_strides": [1]})


def test_an_entry_that_a_map_does_not_name_is_its_star():
    made = rule(entry="attention.layer_types", map={"0.5": True, "*": False})
    sizes = {"attention.layer_types": [2.0, 0.5]}
    assert [calculate(made, sizes, (index,)) for index in (0, 1)] == [False, True]


def test_an_entry_may_be_a_list_of_which_one_item_counts():
    made = rule(entry="layer.sizes", item=1)
    assert calculate(made, {"layer.sizes": [[3, 1], [5, 2], [7, 2]]}, (1, 2)) == 2
    with pytest.raises(ValueError, match="without an item 1"):
        calculate(made, {"layer.sizes": [[3], [5, 2]]}, (0,))
