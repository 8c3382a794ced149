"""Tied parameters, shared modules, and what contains itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

import mapper
from tests.weights.snapshots import Holder, Tied, filled, refused, same_states, snapshot, two_layers, zeroed

INNER = {"inner.weight": torch.ones(3, 3), "inner.bias": torch.ones(3)}


def test_a_tie_is_written_and_stays_tied() -> None:
    model, source = zeroed(Tied()), filled(Tied())
    parameter = model.embed.weight
    report = mapper.load_weights(model, source)
    assert model.embed.weight is model.head.weight is parameter
    assert same_states(model, source)
    assert report.loaded == ["embed.weight", "inner.weight", "inner.bias", "head.weight"]


def test_the_report_names_the_paths_of_a_tie() -> None:
    report = mapper.load_weights(Tied(), Tied())
    assert [list(paths) for paths in report.tied] == [["embed.weight", "head.weight"]]


@pytest.mark.parametrize("path", ["embed.weight", "head.weight"])
def test_a_value_for_any_one_path_of_a_tie_is_enough(path: str) -> None:
    model = Tied()
    report = mapper.load_weights(model, {path: torch.ones(5, 3), **INNER})
    assert report.ok and bool((model.head.weight == 1).all())
    assert {"embed.weight", "head.weight"} <= set(report.loaded)


def test_equal_values_for_both_paths_are_fine() -> None:
    source = {"embed.weight": torch.ones(5, 3), "head.weight": torch.ones(5, 3), **INNER}
    assert mapper.load_weights(Tied(), source).ok


def test_different_values_for_the_paths_of_a_tie_are_refused() -> None:
    model = Tied()
    source = {"embed.weight": torch.ones(5, 3), "head.weight": torch.full((5, 3), 2.0), **INNER}
    with refused(model) as caught:
        mapper.load_weights(model, source)
    assert [entry.kind for entry in caught.report.mismatched] == ["tie"]
    assert "embed.weight" in str(caught.error) and "head.weight" in str(caught.error)


def test_one_different_element_is_enough_for_a_conflict() -> None:
    model = Tied()
    other = torch.ones(5, 3)
    other[4, 2] = 1.0000001
    with refused(model) as caught:
        mapper.load_weights(model, {"embed.weight": torch.ones(5, 3), "head.weight": other, **INNER})
    assert [entry.kind for entry in caught.report.mismatched] == ["tie"]


def test_an_untied_module_with_different_values_does_not_fill_a_tied_one() -> None:
    model = Tied()
    with refused(model) as caught:
        mapper.load_weights(model, filled(Tied(tied=False)))
    assert [entry.kind for entry in caught.report.mismatched] == ["tie"]


def test_not_a_number_equals_itself_across_a_tie() -> None:
    model = Tied()
    value = torch.ones(5, 3)
    value[1, 1] = float("nan")
    report = mapper.load_weights(model, {"embed.weight": value, "head.weight": value.clone(), **INNER})
    assert report.ok and bool(model.head.weight[1, 1].isnan())


def test_not_a_number_against_a_number_is_a_conflict() -> None:
    model = Tied()
    value = torch.ones(5, 3)
    value[1, 1] = float("nan")
    with refused(model) as caught:
        mapper.load_weights(model, {"embed.weight": value, "head.weight": torch.ones(5, 3), **INNER})
    assert [entry.kind for entry in caught.report.mismatched] == ["tie"]


def test_the_last_value_never_wins_silently() -> None:
    model = zeroed(Tied())
    source = {"embed.weight": torch.ones(5, 3), "head.weight": torch.full((5, 3), 2.0), **INNER}
    report = mapper.load_weights(model, source, strict=False)
    assert [entry.kind for entry in report.mismatched] == ["tie"] and not report.ok
    assert not model.head.weight.any() and report.loaded == ["inner.weight", "inner.bias"]


def test_a_tie_without_any_value_is_missing_once() -> None:
    model = Tied()
    with refused(model) as caught:
        mapper.load_weights(model, dict(INNER))
    assert caught.report.missing == ["embed.weight"]


def test_a_value_of_another_shape_for_one_path_of_a_tie_is_refused() -> None:
    model = Tied()
    with refused(model):
        mapper.load_weights(
            model, {"embed.weight": torch.ones(5, 3), "head.weight": torch.ones(3, 5), **INNER}
        )


def tied_biases() -> nn.Module:
    model = Holder(a=nn.Linear(2, 2), b=nn.Linear(2, 2))
    model.b.bias = model.a.bias
    return model


def source_of_biases(one: Any, other: Any) -> dict[str, Any]:
    return {"a.weight": torch.ones(2, 2), "b.weight": torch.ones(2, 2), "a.bias": one, "b.bias": other}


def test_an_absent_value_of_a_tie_counts_as_its_neutral_value() -> None:
    model = tied_biases()
    assert mapper.load_weights(model, source_of_biases(torch.zeros(2), False)).ok
    assert model.a.bias is model.b.bias and not model.a.bias.any()


def test_an_absent_value_conflicts_with_another_than_the_neutral_one() -> None:
    model = tied_biases()
    with refused(model) as caught:
        mapper.load_weights(model, source_of_biases(False, torch.ones(2)))
    assert [entry.kind for entry in caught.report.mismatched] == ["tie"]


def test_a_tie_that_is_absent_at_every_path_becomes_neutral() -> None:
    model = filled(tied_biases())
    assert mapper.load_weights(model, source_of_biases(False, False)).ok
    assert not model.a.bias.any() and model.a.bias is model.b.bias


def test_three_paths_of_one_tensor_must_all_agree() -> None:
    model = nn.ParameterList([torch.zeros(2)])
    model.append(model[0])
    model.append(model[0])
    with refused(model) as caught:
        mapper.load_weights(model, [torch.ones(2), torch.ones(2), torch.zeros(2)])
    assert {entry.kind for entry in caught.report.mismatched} == {"tie"}


def test_a_tied_buffer_is_a_tie_too() -> None:
    table = torch.zeros(2)
    model = Holder(a=Holder(table=table), b=Holder(table=table))
    assert mapper.load_weights(model, {"a.table": torch.ones(2)}).ok
    assert model.b.table.tolist() == [1, 1]


# shared modules


def shared() -> nn.Module:
    layer = nn.Linear(2, 2)
    return nn.Sequential(layer, nn.ReLU(), layer)


def test_a_shared_module_is_loaded_once_and_stays_shared() -> None:
    model = zeroed(shared())
    report = mapper.load_weights(model, filled(shared()))
    assert model[0] is model[2] and report.loaded == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_values_for_one_place_of_a_shared_module_are_enough() -> None:
    model = shared()
    assert mapper.load_weights(model, {"2.weight": torch.ones(2, 2), "2.bias": torch.ones(2)}).ok
    assert model[0].bias.tolist() == [1, 1]


def test_a_missing_shared_module_is_missing_once() -> None:
    model = shared()
    with refused(model) as caught:
        mapper.load_weights(model, {})
    assert caught.report.missing == ["0.weight", "0.bias"]


# a tied source, an untied model


def test_a_tied_source_fills_an_untied_model_with_separate_copies() -> None:
    model, source = Tied(tied=False), filled(Tied())
    assert mapper.load_weights(model, source).ok
    assert torch.equal(model.head.weight, source.embed.weight)
    assert model.head.weight.data_ptr() != model.embed.weight.data_ptr()


def test_the_tree_of_a_tied_source_fills_an_untied_model() -> None:
    model, source = Tied(tied=False), filled(Tied())
    assert mapper.load_weights(model, mapper.tree(source)).ok
    assert torch.equal(model.head.weight, source.embed.weight)


def test_the_tree_of_a_shared_module_fills_separate_ones() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    assert mapper.load_weights(model, mapper.tree(filled(shared()))).ok
    assert model[2].weight.tolist() == [[1, 2], [3, 4]]
    assert model[0].weight.data_ptr() != model[2].weight.data_ptr()


def test_one_value_in_a_plain_mapping_does_not_fill_an_untied_model() -> None:
    model = Tied(tied=False)
    with refused(model) as caught:
        mapper.load_weights(model, {"embed.weight": torch.ones(5, 3), **INNER})
    assert caught.report.missing == ["head.weight"]


def test_a_file_that_holds_a_tie_once_fills_the_tied_model(tmp_path: Path) -> None:
    source, model = filled(Tied()), zeroed(Tied())
    safetensors.torch.save_model(source, str(tmp_path / "tied.safetensors"))
    assert mapper.load_weights(model, tmp_path / "tied.safetensors").ok
    assert same_states(model, source) and model.head.weight is model.embed.weight


def test_an_untied_model_on_meta_gets_separate_copies() -> None:
    with torch.device("meta"):
        model = Tied(tied=False)
    mapper.load_weights(model, filled(Tied()))
    assert torch.equal(model.head.weight, model.embed.weight)
    assert model.head.weight.data_ptr() != model.embed.weight.data_ptr()


def test_other_ties_in_the_source_than_in_the_model_are_checked_by_value() -> None:
    source = nn.ParameterList([torch.ones(2)])
    source.append(source[0])
    source.append(torch.zeros(2))
    model = nn.ParameterList([torch.ones(2), torch.ones(2)])
    model.append(model[1])
    with refused(model) as caught:
        mapper.load_weights(model, source)
    assert {entry.kind for entry in caught.report.mismatched} == {"tie"}


# cycles


def cyclic() -> nn.Module:
    model = Holder(up=nn.Linear(2, 2), inner=Holder(down=nn.Linear(2, 2)))
    model.inner.parent = model
    return model


def test_a_module_that_is_reachable_from_itself_is_loaded_once() -> None:
    model = cyclic()
    source = filled(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    report = mapper.load_weights(
        model, {"up": dict(source[0].state_dict()), "inner.down": dict(source[1].state_dict())}
    )
    assert report.ok and {"up.weight", "up.bias", "inner.down.weight"} <= set(report.loaded)
    assert model.up.weight.tolist() == [[1, 2], [3, 4]] and model.inner.parent is model


def test_a_source_module_that_is_reachable_from_itself_is_read() -> None:
    source = cyclic()
    with torch.no_grad():
        source.up.weight.fill_(5)
    model = Holder(up=nn.Linear(2, 2), inner=Holder(down=nn.Linear(2, 2)))
    assert mapper.load_weights(model, source).ok
    assert model.up.weight.tolist() == [[5, 5], [5, 5]]


def test_two_cyclic_modules_fit_each_other() -> None:
    model, source = cyclic(), cyclic()
    assert mapper.load_weights(model, source).ok
    assert torch.equal(model.inner.down.weight, source.inner.down.weight)


def test_the_tree_of_a_cyclic_module_is_finite() -> None:
    assert sorted(mapper.flatten(mapper.tree(cyclic()))) == [
        "inner.down.bias",
        "inner.down.weight",
        "up.bias",
        "up.weight",
    ]


def test_the_states_of_a_cyclic_module_are_finite() -> None:
    assert {"up.weight", "inner.down.bias"} <= set(mapper.states(cyclic()))


def test_a_mapping_that_contains_itself_is_an_error_of_structure() -> None:
    source: dict[str, Any] = {"0.weight": torch.ones(3, 2)}
    source["again"] = source
    model = two_layers()
    with refused(model, mapper.StructureError):
        mapper.load_weights(model, source)


def test_a_list_that_contains_itself_is_an_error_of_structure() -> None:
    source: list[Any] = [{"weight": torch.ones(3, 2)}]
    source.append({"deeper": source})
    model = two_layers()
    with refused(model, mapper.StructureError):
        mapper.load_weights(model, source)


def test_a_container_at_two_places_is_no_cycle() -> None:
    layer = {"weight": torch.ones(2, 2), "bias": torch.ones(2)}
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert mapper.load_weights(model, {"0": layer, "1": layer}).ok
    assert model[0].weight.data_ptr() != model[1].weight.data_ptr()


def test_none_as_the_source_of_a_tied_model_skips_every_path() -> None:
    model = filled(Tied())
    before = snapshot(model)
    report = mapper.load_weights(model, None)
    assert {"embed.weight", "inner.weight", "inner.bias"} <= set(report.skipped)
    assert snapshot(model) == before
