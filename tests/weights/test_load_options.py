"""`prefix`, `rename`, `filter` and `by`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

import mapper
from tests.weights.snapshots import Holder, bits, filled, refused, same_states, snapshot, two_layers, zeroed


def flat(before: str = "", source: nn.Module | None = None) -> dict[str, Any]:
    """The states of a filled `two_layers`, each path with something before it."""
    return {before + key: value for key, value in (source or filled(two_layers())).state_dict().items()}


# prefix


def test_a_prefix_is_cut_off() -> None:
    model = zeroed(two_layers())
    assert mapper.load_weights(model, flat("model."), prefix="model.").ok
    assert same_states(model, filled(two_layers()))


def test_paths_without_the_prefix_are_not_taken() -> None:
    model = zeroed(two_layers())
    source = {**flat("model."), "head.weight": torch.ones(1), "0.weight": torch.zeros(7)}
    report = mapper.load_weights(model, source, prefix="model.")
    assert report.ok and report.unexpected == []


def test_a_prefix_selects_a_branch_of_a_nested_source() -> None:
    model = zeroed(two_layers())
    nested = {"state": {"model": mapper.unflatten(flat())}, "epoch": 3, "other": torch.ones(1)}
    assert mapper.load_weights(model, nested, prefix="state.model.").ok
    assert same_states(model, filled(two_layers()))


def test_a_prefix_selects_a_branch_of_a_module() -> None:
    model = zeroed(two_layers())
    source = Holder(encoder=filled(two_layers()), head=nn.Linear(1, 1))
    assert mapper.load_weights(model, source, prefix="encoder.").ok
    assert same_states(model, filled(two_layers()))


def test_a_prefix_that_nothing_has_leaves_everything_missing() -> None:
    model = two_layers()
    with refused(model) as caught:
        mapper.load_weights(model, flat(), prefix="model.")
    assert len(caught.report.missing) == 4 and caught.report.unexpected == []


def test_a_prefix_is_a_start_and_not_a_part() -> None:
    model = zeroed(two_layers())
    source = {**flat("model."), "old_model.0.weight": torch.zeros(1), "models.0.weight": torch.zeros(1)}
    assert mapper.load_weights(model, source, prefix="model.").ok


def test_a_prefix_leaves_the_callers_dict_as_it_is() -> None:
    source = flat("model.")
    keys = list(source)
    mapper.load_weights(two_layers(), source, prefix="model.", rename=lambda path: path)
    assert list(source) == keys


# rename


def test_a_mapping_renames_paths() -> None:
    model = zeroed(two_layers())
    source = flat()
    source["first.w"] = source.pop("0.weight")
    source["first.b"] = source.pop("0.bias")
    mapper.load_weights(model, source, rename={"first.w": "0.weight", "first.b": "0.bias"})
    assert same_states(model, filled(two_layers()))


def test_a_function_renames_paths() -> None:
    model = zeroed(two_layers())
    source = {key.replace("0.", "fc1.").replace("2.", "fc2."): value for key, value in flat().items()}
    rename = lambda path: path.replace("fc1.", "0.").replace("fc2.", "2.")  # noqa: E731
    assert mapper.load_weights(model, source, rename=rename).loaded == list(flat())
    assert same_states(model, filled(two_layers()))


def test_a_function_renames_paths_of_a_module() -> None:
    model = zeroed(two_layers())
    source = Holder(up=filled(two_layers())[0], down=filled(two_layers())[2])
    names = {"up": "0", "down": "2"}

    def rename(path: str) -> str:
        first, rest = path.split(".", 1)
        return f"{names[first]}.{rest}"

    assert mapper.load_weights(model, source, rename=rename).ok
    assert same_states(model, filled(two_layers()))


def test_paths_may_be_renamed_in_a_circle() -> None:
    model = zeroed(nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)))
    source = {"0.weight": torch.full((2, 2), 1.0), "1.weight": torch.full((2, 2), 2.0)}
    mapper.load_weights(model, source, rename={"0.weight": "1.weight", "1.weight": "0.weight"})
    assert model[0].weight[0].tolist() == [2, 2] and model[1].weight[0].tolist() == [1, 1]


def test_a_prefix_and_a_function_go_together() -> None:
    model = zeroed(two_layers())
    source = {key.replace("0.", "fc."): value for key, value in flat("model.").items()}
    source["head.weight"] = torch.ones(1)
    mapper.load_weights(model, source, prefix="model.", rename=lambda path: path.replace("fc.", "0."))
    assert same_states(model, filled(two_layers()))


def test_two_paths_renamed_to_one_are_refused() -> None:
    model = two_layers()
    source = {**flat(), "copy": torch.full((3, 2), 9.0)}
    with refused(model, mapper.MapperError):
        mapper.load_weights(model, source, rename={"copy": "0.weight"})


def test_a_rename_to_no_path_of_the_model_is_unexpected() -> None:
    model = two_layers()
    with refused(model) as caught:
        mapper.load_weights(model, flat(), rename={"0.weight": "elsewhere.weight"})
    assert caught.report.missing == ["0.weight"] and len(caught.report.unexpected) == 1


# filter


def test_a_filtered_subtree_is_neither_missing_nor_touched() -> None:
    model = zeroed(two_layers())
    before = snapshot(model[2])
    report = mapper.load_weights(
        model, filled(two_layers())[:1], filter=lambda path, node: not path.startswith("2")
    )
    assert report.ok and report.missing == [] and report.loaded == ["0.weight", "0.bias"]
    assert snapshot(model[2]) == before


def test_a_filtered_subtree_is_not_unexpected() -> None:
    source = {**flat(), "head": {"weight": torch.ones(1), "bias": torch.ones(1)}}
    report = mapper.load_weights(two_layers(), source, filter=lambda path, node: not path.startswith("head"))
    assert report.ok and report.unexpected == []


def test_a_filtered_subtree_of_both_sides_is_not_compared() -> None:
    model = zeroed(two_layers())
    source = {**flat(), "2.weight": torch.ones(9, 9), "2.bias": torch.ones(9, dtype=torch.int64)}
    report = mapper.load_weights(model, source, filter=lambda path, node: not path.startswith("2"))
    assert report.ok and report.loaded == ["0.weight", "0.bias"] and not model[2].weight.any()


def test_a_filter_may_leave_out_leaves_by_name() -> None:
    model = zeroed(two_layers())
    report = mapper.load_weights(model, flat(), filter=lambda path, node: not path.endswith("bias"))
    assert report.loaded == ["0.weight", "2.weight"] and not model[0].bias.any()


def test_a_filter_sees_the_modules_of_the_model() -> None:
    model = zeroed(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))
    source = filled(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))
    kept = bits(model[1].weight)
    report = mapper.load_weights(model, source, filter=lambda path, node: not isinstance(node, nn.LayerNorm))
    assert report.ok and report.loaded == ["0.weight", "0.bias"] and bits(model[1].weight) == kept


def test_a_subtree_that_the_filter_drops_by_its_module_is_not_unexpected_in_a_flat_source() -> None:
    model = zeroed(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))
    source = filled(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))).state_dict()
    report = mapper.load_weights(model, source, filter=lambda path, node: not isinstance(node, nn.LayerNorm))
    assert report.ok and report.unexpected == [] and report.loaded == ["0.weight", "0.bias"]


def test_a_filter_sees_the_leaves_of_the_source() -> None:
    source = {**flat(), "table": torch.ones(4, dtype=torch.int32)}
    keep = lambda path, node: getattr(node, "dtype", None) != torch.int32  # noqa: E731
    assert mapper.load_weights(two_layers(), source, filter=keep).ok


def test_a_filter_that_keeps_everything_changes_nothing() -> None:
    model = zeroed(two_layers())
    assert mapper.load_weights(model, flat(), filter=lambda path, node: True).loaded == list(flat())


def test_a_filter_does_not_hide_what_it_keeps() -> None:
    model = two_layers()
    with refused(model) as caught:
        mapper.load_weights(
            model, {"0.weight": torch.ones(3, 2)}, filter=lambda path, node: not path.startswith("2")
        )
    assert caught.report.missing == ["0.bias"]


def test_a_filtered_parameter_keeps_its_identity_when_assigning() -> None:
    model = two_layers()
    kept = model[2].weight
    mapper.load_weights(model, flat(), assign=True, filter=lambda path, node: not path.startswith("2"))
    assert model[2].weight is kept


# by="order"


def names() -> nn.Module:
    return Holder(up=nn.Linear(2, 3), drop=nn.Dropout(), down=nn.Linear(3, 2))


def test_children_are_paired_by_position() -> None:
    model = zeroed(names())
    report = mapper.load_weights(model, filled(two_layers()), by="order")
    assert report.ok and report.loaded == ["up.weight", "up.bias", "down.weight", "down.bias"]
    assert [bits(value) for value in model.state_dict().values()] == [
        bits(value) for value in flat().values()
    ]


READINGS = [lambda module: module, mapper.tree, lambda module: module.state_dict()]


@pytest.mark.parametrize("read", READINGS)
def test_every_source_may_be_paired_by_position(read: Any) -> None:
    model = zeroed(names())
    assert mapper.load_weights(model, read(filled(two_layers())), by="order").ok
    assert [bits(value) for value in model.state_dict().values()] == [
        bits(value) for value in flat().values()
    ]


def test_a_dropout_more_does_not_shift_the_children() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(), nn.ReLU(), nn.Dropout(), nn.Linear(3, 2))
    assert mapper.load_weights(model, filled(two_layers()), by="order").ok
    assert model[4].weight.tolist() == filled(two_layers())[2].weight.tolist()


def test_settings_in_a_source_do_not_shift_the_children() -> None:
    layers = list(mapper.unflatten(flat()).values())
    model = zeroed(names())
    assert mapper.load_weights(model, {"a": layers[0], "drop": {"p": 0.5}, "b": layers[1]}, by="order").ok
    assert model.down.bias.tolist() == filled(two_layers())[2].bias.tolist()


def test_positions_count_on_every_level() -> None:
    model = zeroed(Holder(body=Holder(one=nn.Linear(1, 1), two=nn.Linear(1, 1)), head=nn.Linear(1, 1)))
    source = filled(nn.Sequential(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)), nn.Linear(1, 1)))
    report = mapper.load_weights(model, source, by="order")
    assert report.loaded[:2] == ["body.one.weight", "body.one.bias"]
    assert float(model.head.weight.detach()) == float(source[1].weight.detach())


def test_leaves_below_a_module_still_pair_by_name() -> None:
    model = zeroed(names())
    source = {
        "a": {"bias": torch.full((3,), 2.0), "weight": torch.full((3, 2), 1.0)},
        "b": {"bias": torch.full((2,), 4.0), "weight": torch.full((2, 3), 3.0)},
    }
    mapper.load_weights(model, source, by="order")
    assert [float(value.mean()) for value in model.state_dict().values()] == [1, 2, 3, 4]


def test_leaves_of_other_names_do_not_pair_by_position() -> None:
    model = nn.Sequential(nn.Linear(2, 1))
    with refused(model) as caught:
        mapper.load_weights(model, {"a": {"w": torch.ones(1, 2), "b": torch.ones(1)}}, by="order")
    assert len(caught.report.missing) == 2 and len(caught.report.unexpected) == 2


def test_shapes_are_checked_between_children_paired_by_position() -> None:
    model = names()
    with refused(model) as caught:
        mapper.load_weights(model, nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 3)), by="order")
    assert "shape" in {entry.kind for entry in caught.report.mismatched}


def test_dtypes_are_checked_between_children_paired_by_position() -> None:
    model = nn.Sequential(nn.Linear(2, 1, bias=False))
    with refused(model) as caught:
        mapper.load_weights(model, {"x": {"weight": torch.ones(1, 2, dtype=torch.int32)}}, by="order")
    assert [entry.kind for entry in caught.report.mismatched] == ["dtype"]


def test_a_child_too_few_in_the_source_is_missing() -> None:
    model = names()
    with refused(model) as caught:
        mapper.load_weights(model, nn.Sequential(nn.Linear(2, 3)), by="order")
    assert caught.report.missing == ["down.weight", "down.bias"]


def test_a_child_too_many_in_the_source_is_unexpected() -> None:
    model = names()
    source = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2), nn.Linear(1, 1))
    with refused(model) as caught:
        mapper.load_weights(model, source, by="order")
    assert len(caught.report.unexpected) == 2


def test_a_bias_that_the_source_lacks_is_neutral_by_position_too() -> None:
    model = filled(names())
    source = nn.Sequential(nn.Linear(2, 3, bias=False), nn.Linear(3, 2))
    report = mapper.load_weights(model, source, by="order")
    assert report.absent == ["up.bias"] and not model.up.bias.any()


def test_ten_children_and_more_keep_their_order() -> None:
    model = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(12)))
    source = Holder(**{f"layer{i}": nn.Linear(1, 1, bias=False) for i in range(12)})
    mapper.load_weights(model, filled(source).state_dict(), by="order")
    assert [float(layer.weight.detach()) for layer in model] == list(range(1, 13))


def test_numbered_children_of_a_file_stand_by_their_numbers(tmp_path: Path) -> None:
    source = filled(nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(12))))
    safetensors.torch.save_file(source.state_dict(), tmp_path / "m.safetensors")  # names sorted as text
    model = Holder(**{f"layer{i}": nn.Linear(1, 1, bias=False) for i in range(12)})
    mapper.load_weights(model, tmp_path / "m.safetensors", by="order")
    assert [value.item() for value in model.state_dict().values()] == list(range(1, 13))
