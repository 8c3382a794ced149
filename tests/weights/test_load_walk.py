"""Every cell of the walk: what the model has at a path against what the source has there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mapper
from tests.weights.snapshots import Holder, filled, refused, snapshot, two_layers, zeroed


def full(source: dict[str, Any]) -> dict[str, Any]:
    """A source for `nn.Linear(2, 1)` with some of its entries replaced."""
    return {"weight": torch.ones(1, 2), "bias": torch.ones(1), **source}


# the model has an array


def test_an_array_is_copied() -> None:
    model = nn.Linear(2, 1)
    assert mapper.load_weights(model, full({})).loaded == ["weight", "bias"]
    assert model.weight.tolist() == [[1, 1]] and model.bias.tolist() == [1]


def test_false_sets_a_bias_to_zero() -> None:
    model = filled(nn.Linear(2, 1))
    report = mapper.load_weights(model, full({"bias": False}))
    assert model.bias.tolist() == [0]
    assert report.absent == ["bias"] and report.ok


def test_false_for_a_matrix_is_a_mismatch_of_type() -> None:
    model = nn.Linear(2, 1)
    with refused(model) as caught:
        mapper.load_weights(model, full({"weight": False}))
    assert caught.kinds == {"weight": "type"}


def test_none_leaves_a_parameter_as_it_is() -> None:
    model = zeroed(nn.Linear(2, 1))
    report = mapper.load_weights(model, full({"bias": None}))
    assert model.bias.tolist() == [0] and model.weight.tolist() == [[1, 1]]
    assert report.skipped == ["bias"] and report.missing == [] and report.ok


@pytest.mark.parametrize("value", [True, "ones", print, object(), 1 + 2j, b"x", torch.float32])
def test_a_value_that_is_no_array_is_a_mismatch_of_type(value: Any) -> None:
    model = nn.Linear(2, 1)
    with refused(model) as caught:
        mapper.load_weights(model, full({"bias": value}))
    assert caught.kinds == {"bias": "type"}
    assert caught.report.missing == []


@pytest.mark.parametrize("value", [1, 1.5, 0, 0.0])
def test_a_number_is_no_value_for_an_array_with_dimensions(value: Any) -> None:
    model = nn.Linear(2, 1)
    with refused(model) as caught:
        mapper.load_weights(model, full({"bias": value}))
    assert caught.kinds == {"bias": "type"}


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([None], object), np.array("2020", "M8[Y]")])
def test_a_numpy_array_of_what_torch_has_not_is_a_mismatch(array: Any) -> None:
    model = nn.Linear(2, 1)
    with refused(model) as caught:
        mapper.load_weights(model, full({"bias": array}))
    assert caught.report.mismatched[0].path == "bias"


@pytest.mark.parametrize("value", [3, 3.0])
def test_a_python_number_fills_a_scalar_parameter(value: Any) -> None:
    model = Holder(scale=nn.Parameter(torch.zeros(())))
    assert mapper.load_weights(model, {"scale": value}).loaded == ["scale"]
    assert float(model.scale.detach()) == 3 and model.scale.dtype == torch.float32


def test_a_python_int_fills_a_scalar_buffer_of_integers() -> None:
    model = nn.BatchNorm1d(2)
    source = {**model.state_dict(), "num_batches_tracked": 12}
    mapper.load_weights(model, source)
    assert int(model.num_batches_tracked) == 12


def test_a_python_bool_does_not_fill_a_scalar() -> None:
    model = Holder(scale=nn.Parameter(torch.zeros(())))
    with refused(model) as caught:
        mapper.load_weights(model, {"scale": True})
    assert caught.kinds == {"scale": "type"}


def test_a_python_float_is_not_truncated_into_a_scalar_of_integers() -> None:
    model = Holder(count=torch.tensor(7))
    with refused(model) as caught:
        mapper.load_weights(model, {"count": 2.9})
    assert caught.report.mismatched[0].path == "count"


def test_a_python_float_that_is_too_large_for_the_scalar_is_refused() -> None:
    model = Holder(scale=nn.Parameter(torch.zeros((), dtype=torch.float16)))
    with refused(model) as caught:
        mapper.load_weights(model, {"scale": 1e6})
    assert caught.report.mismatched[0].path == "scale"


def test_a_python_int_that_is_too_large_for_the_scalar_is_refused() -> None:
    model = Holder(count=torch.tensor(7, dtype=torch.int8))
    with refused(model) as caught:
        mapper.load_weights(model, {"count": 10**30})
    assert caught.report.mismatched[0].path == "count"


def test_an_infinite_python_float_fills_a_scalar() -> None:
    model = Holder(low=torch.tensor(0.0))
    mapper.load_weights(model, {"low": float("-inf")})
    assert float(model.low) == float("-inf")


def test_what_is_not_in_the_source_is_missing() -> None:
    model = nn.Linear(2, 1)
    with refused(model) as caught:
        mapper.load_weights(model, {"weight": torch.ones(1, 2)})
    assert caught.report.missing == ["bias"] and caught.report.absent == []


def test_a_missing_bias_is_never_filled_in() -> None:
    model = filled(nn.Linear(2, 1))
    kept = model.bias.tolist()
    report = mapper.load_weights(model, {"weight": torch.ones(1, 2)}, strict=False)
    assert model.bias.tolist() == kept and report.missing == ["bias"]


def test_a_missing_buffer_is_missing() -> None:
    model = Holder(table=torch.ones(2))
    with refused(model) as caught:
        mapper.load_weights(model, {})
    assert caught.report.missing == ["table"]


def test_a_missing_module_is_missing_leaf_by_leaf() -> None:
    model = two_layers()
    with refused(model) as caught:
        mapper.load_weights(model, {"0": {"weight": torch.ones(3, 2), "bias": torch.ones(3)}})
    assert caught.report.missing == ["2.weight", "2.bias"]


def test_a_branch_where_the_model_has_an_array_is_refused() -> None:
    model = nn.Linear(2, 1)
    with refused(model):
        mapper.load_weights(model, full({"bias": {"weight": torch.ones(1)}}))


def test_an_array_where_the_model_has_a_module_is_refused() -> None:
    model = Holder(a=nn.Linear(1, 1))
    with refused(model) as caught:
        mapper.load_weights(model, {"a": torch.ones(1)})
    assert not caught.report.ok


# the model has an absent parameter


def test_a_zero_bias_is_dropped_where_the_model_has_none() -> None:
    model = nn.Linear(2, 1, bias=False)
    report = mapper.load_weights(model, full({"bias": torch.zeros(1)}))
    assert report.ok and report.absent == ["bias"] and report.loaded == ["weight"]
    assert model.bias is None


def test_a_negative_zero_is_a_zero() -> None:
    report = mapper.load_weights(nn.Linear(2, 1, bias=False), full({"bias": torch.tensor([-0.0])}))
    assert report.absent == ["bias"]


@pytest.mark.parametrize("value", [1.0, 1e-30, float("nan"), float("inf")])
def test_a_bias_that_is_not_zero_is_a_mismatch_where_the_model_has_none(value: float) -> None:
    model = nn.Linear(2, 2, bias=False)
    with refused(model) as caught:
        mapper.load_weights(model, {"weight": torch.ones(2, 2), "bias": torch.tensor([0.0, value])})
    assert caught.kinds == {"bias": "absent"}
    assert caught.report.unexpected == []


@pytest.mark.parametrize("value", [False, None, "no", 3, True, print])
def test_what_is_no_array_is_fine_where_the_model_has_an_absent_bias(value: Any) -> None:
    model = nn.Linear(2, 1, bias=False)
    assert mapper.load_weights(model, full({"bias": value})).ok
    assert model.bias is None


def test_another_value_for_an_absent_bias_is_ignored() -> None:
    report = mapper.load_weights(nn.Linear(2, 1, bias=False), full({"bias": "none"}))
    assert report.ignored == ["bias"]


def test_nothing_is_fine_where_the_model_has_an_absent_bias() -> None:
    report = mapper.load_weights(nn.Linear(2, 1, bias=False), {"weight": torch.ones(1, 2)})
    assert report.ok and report.missing == []


def test_a_parameter_that_is_absent_without_a_neutral_value_takes_no_array() -> None:
    model = Holder(scale=None)
    with refused(model) as caught:
        mapper.load_weights(model, {"scale": torch.ones(2)})
    assert caught.report.unexpected == ["scale"]


# the model has nothing


def test_an_array_with_no_place_is_unexpected() -> None:
    model = nn.Linear(2, 1)
    with refused(model) as caught:
        mapper.load_weights(model, full({"extra": {"deep": torch.zeros(1)}}))
    assert caught.report.unexpected == ["extra.deep"]


@pytest.mark.parametrize("value", [False, None, "relu", 3, 2.5, True, print, object(), b"", {1}])
def test_a_value_that_is_no_array_is_ignored_where_the_model_has_nothing(value: Any) -> None:
    assert mapper.load_weights(nn.Linear(2, 1), full({"extra": value})).ok


def test_ignored_values_are_listed_in_the_order_of_the_source() -> None:
    source = {"stride": 2, "weight": torch.ones(1, 2), "act": torch.relu, "bias": torch.ones(1), "name": "x"}
    assert mapper.load_weights(nn.Linear(2, 1), source).ignored == ["stride", "act", "name"]


def test_a_whole_sub_tree_without_arrays_is_ignored() -> None:
    config = {"layers": [1, 2, {"act": "gelu"}], "rng": np.random.default_rng(0), "none": None, "empty": {}}
    assert mapper.load_weights(nn.Linear(2, 1), full({"config": config})).ok


def test_an_array_within_an_ignored_sub_tree_is_unexpected() -> None:
    model = nn.Linear(2, 1)
    with refused(model) as caught:
        mapper.load_weights(model, full({"config": {"name": "x", "table": [torch.ones(1)]}}))
    assert caught.report.unexpected == ["config.table.0"]


def test_settings_at_the_place_of_settings_are_ignored() -> None:
    model = Holder(drop=nn.Dropout(0.1), conv=nn.Conv1d(1, 1, 1, stride=2))
    source = {
        "drop": {"p": 0.7},
        "conv": {"weight": torch.ones(1, 1, 1), "bias": torch.ones(1), "stride": (1,), "in_channels": 4},
    }
    assert mapper.load_weights(model, source).ok
    assert model.drop.p == 0.1 and model.conv.stride == (2,)


def test_a_buffer_that_does_not_persist_is_not_missing() -> None:
    model = nn.Linear(2, 1)
    model.register_buffer("mask", torch.ones(3), persistent=False)
    assert mapper.load_weights(model, full({})).ok
    assert model.mask.tolist() == [1, 1, 1]


def test_a_value_for_a_buffer_that_does_not_persist_is_unexpected() -> None:
    model = nn.Linear(2, 1)
    model.register_buffer("mask", torch.ones(3), persistent=False)
    with refused(model) as caught:
        mapper.load_weights(model, full({"mask": torch.zeros(3)}))
    assert caught.report.unexpected == ["mask"]


def test_buffers_that_do_not_persist_in_the_source_module_are_not_read() -> None:
    source = nn.Linear(2, 1)
    source.register_buffer("mask", torch.ones(3), persistent=False)
    assert mapper.load_weights(nn.Linear(2, 1), source).ok


# pruning


def test_none_at_a_branch_skips_every_path_below() -> None:
    model = zeroed(two_layers())
    report = mapper.load_weights(model, {"0": None, "2": {"weight": torch.ones(2, 3), "bias": torch.ones(2)}})
    assert report.skipped == ["0.weight", "0.bias"] and report.loaded == ["2.weight", "2.bias"]
    assert report.missing == [] and not model[0].weight.any()


def test_none_in_a_list_skips_that_child() -> None:
    layer = {"weight": torch.ones(2, 3), "bias": torch.ones(2)}
    assert mapper.load_weights(two_layers(), [None, None, layer]).skipped == ["0.weight", "0.bias"]


def test_none_at_a_branch_of_a_deep_model_prunes_all_of_it() -> None:
    model = Holder(body=Holder(a=two_layers(), b=nn.Linear(1, 1)), head=nn.Linear(1, 1))
    before = snapshot(model.body)
    report = mapper.load_weights(
        model, {"body": None, "head.weight": torch.ones(1, 1), "head.bias": torch.ones(1)}
    )
    assert len(report.skipped) == 6 and report.ok
    assert snapshot(model.body) == before


def test_none_under_a_dotted_key_prunes_that_branch() -> None:
    model = Holder(body=Holder(a=nn.Linear(1, 1), b=nn.Linear(1, 1)))
    report = mapper.load_weights(
        model, {"body.a": None, "body.b.weight": torch.ones(1, 1), "body.b.bias": torch.ones(1)}
    )
    assert report.skipped == ["body.a.weight", "body.a.bias"]


# batch norm's counter


def test_the_counter_of_a_batch_norm_may_be_missing() -> None:
    model = nn.BatchNorm2d(2)
    source = {key: value for key, value in model.state_dict().items() if key != "num_batches_tracked"}
    report = mapper.load_weights(model, source)
    assert report.ok and report.missing == [] and report.skipped == ["num_batches_tracked"]


def test_the_counter_is_left_alone_where_it_is_missing() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2))
    model[0].num_batches_tracked.fill_(5)
    source = dict(model.state_dict())
    del source["0.num_batches_tracked"]
    mapper.load_weights(model, source)
    assert int(model[0].num_batches_tracked) == 5


def test_the_counter_is_loaded_where_the_source_has_it() -> None:
    model = nn.BatchNorm1d(2)
    mapper.load_weights(model, {**model.state_dict(), "num_batches_tracked": torch.tensor(9)})
    assert int(model.num_batches_tracked) == 9


def test_the_running_statistics_may_not_be_missing() -> None:
    model = nn.BatchNorm1d(2)
    with refused(model) as caught:
        mapper.load_weights(model, {"weight": torch.ones(2), "bias": torch.ones(2)})
    assert caught.report.missing == ["running_mean", "running_var"]


def test_a_buffer_of_that_name_outside_a_batch_norm_may_not_be_missing() -> None:
    model = Holder(num_batches_tracked=torch.tensor(0))
    with refused(model) as caught:
        mapper.load_weights(model, {})
    assert caught.report.missing == ["num_batches_tracked"]


# shapes


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ((1,), ()),
        ((), (1,)),
        ((4,), (1, 4)),
        ((1, 4), (4,)),
        ((2, 3), (3, 2)),
        ((2, 3), (1, 3)),
        ((2, 3), (6,)),
        ((3,), (4,)),
        ((0,), (0, 1)),
        ((2,), (0,)),
    ],
)
def test_shapes_agree_only_if_they_are_equal(ours: Any, theirs: Any) -> None:
    model = Holder(w=nn.Parameter(torch.full(ours, 5.0)))
    with refused(model) as caught:
        mapper.load_weights(model, {"w": torch.ones(theirs)})
    assert caught.kinds == {"w": "shape"}


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0), (1,), (2, 1, 3)])
def test_equal_shapes_of_every_kind_are_loaded(shape: Any) -> None:
    model = Holder(w=nn.Parameter(torch.zeros(shape)))
    assert mapper.load_weights(model, {"w": torch.ones(shape)}).loaded == ["w"]
    assert bool((model.w == 1).all())


def test_a_numpy_array_of_another_shape_is_not_broadcast() -> None:
    model = Holder(w=nn.Parameter(torch.zeros(3)))
    with refused(model) as caught:
        mapper.load_weights(model, {"w": np.float32(1)})
    assert caught.kinds == {"w": "shape"}
