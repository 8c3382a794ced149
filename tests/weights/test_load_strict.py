"""Check everything, then write: what a refused load leaves, what a lenient one writes."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import mapper
from tests.weights.snapshots import (
    Holder,
    Tied,
    bits,
    filled,
    refused,
    same_states,
    snapshot,
    two_layers,
    zeroed,
)


def broken_source() -> dict[str, Any]:
    """For `two_layers`: one entry that fits, then one of each kind of problem."""
    return {
        "0.weight": torch.ones(3, 2),
        "2.weight": torch.ones(3, 2),
        "2.bias": torch.ones(2),
        "x": torch.ones(1),
    }


def trained() -> nn.Sequential:
    """A model with gradients, a frozen parameter, a half parameter and mixed training flags."""
    model = filled(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)))
    model(torch.ones(2, 2)).sum().backward()
    model[2].bias.requires_grad_(False)
    model[1].eval()
    return model


def test_all_kinds_of_problem_are_found_in_one_load() -> None:
    model = two_layers()
    with refused(model) as caught:
        mapper.load_weights(model, broken_source())
    assert caught.report.missing == ["0.bias"]
    assert caught.report.unexpected == ["x"]
    assert caught.kinds == {"2.weight": "shape"}
    assert caught.report.loaded == []


@pytest.mark.parametrize(
    "change",
    [
        {"2.bias": torch.ones(3)},
        {"2.bias": torch.ones(2, dtype=torch.int64)},
        {"2.bias": torch.tensor([1e300, 0.0], dtype=torch.float64)},
        {"2.bias": "zero"},
        {"2.bias": torch.ones(2, device="meta")},
        {"2.weight": False},
        {"3.weight": torch.ones(1)},
    ],
)
def test_a_refused_load_changes_nothing(change: dict[str, Any]) -> None:
    model = trained()
    with refused(model):
        mapper.load_weights(model, {**dict(zeroed(trained()).state_dict()), **change})


def test_a_refused_load_with_a_missing_key_changes_nothing() -> None:
    model = trained()
    source = dict(zeroed(trained()).state_dict())
    del source["2.bias"]
    with refused(model):
        mapper.load_weights(model, source)


def test_a_refused_assignment_changes_nothing() -> None:
    model = trained()
    source = {**dict(zeroed(trained()).state_dict()), "2.bias": torch.ones(3)}
    with refused(model):
        mapper.load_weights(model, source, assign=True)


def test_a_refused_load_keeps_neutral_values_unset() -> None:
    model = filled(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)))
    with refused(model):
        mapper.load_weights(model, [nn.Linear(2, 3, bias=False).state_dict() | {"bias": False}, {}])


def test_a_refused_load_leaves_a_meta_model_on_meta() -> None:
    with torch.device("meta"):
        model = two_layers()
    with refused(model):
        mapper.load_weights(model, broken_source())


def test_a_refused_load_leaves_a_lazy_parameter_lazy() -> None:
    model = nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 2))
    source = {"0.weight": torch.ones(3, 2), "0.bias": torch.ones(3), "1.weight": torch.ones(2, 3)}
    with refused(model):
        mapper.load_weights(model, source)
    assert nn.parameter.is_lazy(model[0].weight)


def test_a_refused_load_leaves_the_flags_of_training() -> None:
    model = trained()
    with refused(model):
        mapper.load_weights(model, {})
    assert [module.training for module in model] == [True, False, True]


def test_a_load_leaves_the_flags_of_training() -> None:
    model = trained()
    mapper.load_weights(model, zeroed(trained()))
    assert [module.training for module in model] == [True, False, True]


def test_a_copy_that_fails_halfway_is_taken_back() -> None:
    frozen = nn.Parameter(torch.zeros(1).expand(3), requires_grad=False)  # torch refuses to write into it
    model = Holder(a=filled(nn.Linear(2, 2)), b=frozen, c=torch.ones(2))
    source = {
        "a.weight": torch.zeros(2, 2),
        "a.bias": torch.zeros(2),
        "b": torch.tensor([1.0, 2.0, 3.0]),
        "c": torch.zeros(2),
    }
    with refused(model, RuntimeError):
        mapper.load_weights(model, source)


def test_running_out_of_memory_halfway_takes_back_what_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    model, source = filled(two_layers()), zeroed(two_layers())
    genuine, calls = torch.Tensor.copy_, []

    def copy_(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if any(self is own for own in model.parameters()):
            calls.append(self)
            if len(calls) == 3:
                raise torch.OutOfMemoryError("no memory left")
        return genuine(self, *args, **kwargs)

    before = {key: bits(value) for key, value in model.state_dict().items()}
    monkeypatch.setattr(torch.Tensor, "copy_", copy_)
    try:
        mapper.load_weights(model, source)
    except RuntimeError:
        assert {key: bits(value) for key, value in model.state_dict().items()} == before
    else:  # written by other means than Tensor.copy_
        assert not calls or len(calls) < 3


# not strict


def test_a_lenient_load_writes_what_fits_and_returns_the_difference() -> None:
    model = zeroed(two_layers())
    report = mapper.load_weights(model, broken_source(), strict=False)
    assert report.loaded == ["0.weight", "2.bias"]
    assert report.missing == ["0.bias"] and report.unexpected == ["x"]
    assert [(entry.path, entry.kind) for entry in report.mismatched] == [("2.weight", "shape")]
    assert not report.ok and not report
    assert model[0].weight.tolist() == [[1, 1]] * 3 and not model[2].weight.any()


def test_a_lenient_load_does_not_raise_for_shapes_dtypes_or_ties() -> None:
    model = zeroed(Tied())
    source = {
        "embed.weight": torch.ones(5, 3),
        "head.weight": torch.full((5, 3), 2.0),
        "inner.weight": torch.ones(3, 3, dtype=torch.int64),
        "inner.bias": torch.ones(4),
    }
    with pytest.warns(UserWarning):
        report = mapper.load_weights(model, source, strict=False)
    kinds = {entry.kind for entry in report.mismatched}
    assert kinds == {"tie", "dtype", "shape"} and report.loaded == []


def test_a_lenient_load_of_everything_is_as_a_strict_one() -> None:
    model = zeroed(two_layers())
    report = mapper.load_weights(model, filled(two_layers()), strict=False)
    assert report.ok and same_states(model, filled(two_layers()))


def test_a_lenient_load_that_fits_nothing_warns() -> None:
    model = two_layers()
    before = snapshot(model)
    with pytest.warns(UserWarning):
        report = mapper.load_weights(model, {"other.weight": torch.ones(1)}, strict=False)
    assert report.loaded == [] and snapshot(model) == before


def test_only_mismatches_also_warn() -> None:
    with pytest.warns(UserWarning):
        mapper.load_weights(nn.Linear(2, 1, bias=False), {"weight": torch.ones(2, 1)}, strict=False)


def test_a_lenient_load_from_a_source_without_arrays_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mapper.load_weights(two_layers(), {"act": "relu"}, strict=False)


def test_a_lenient_load_into_a_model_without_states_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mapper.load_weights(nn.Identity(), {"weight": torch.ones(1)}, strict=False)


def test_a_load_that_writes_something_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mapper.load_weights(two_layers(), {"0.bias": torch.ones(3), "x": torch.ones(1)}, strict=False)


# sets of kinds


def test_extra_keys_are_accepted_where_only_holes_and_mismatches_are_fatal() -> None:
    model = zeroed(two_layers())
    source = {**filled(two_layers()).state_dict(), "x": torch.ones(1)}
    report = mapper.load_weights(model, source, strict={"missing", "mismatched"})
    assert report.unexpected == ["x"] and not report.ok
    assert same_states(model, filled(two_layers()))


def test_a_hole_is_fatal_where_holes_are_named() -> None:
    model = two_layers()
    with refused(model) as caught:
        mapper.load_weights(model, {"0.bias": torch.ones(3)}, strict={"missing", "mismatched"})
    assert caught.report.missing == ["0.weight", "2.weight", "2.bias"]


def test_holes_are_accepted_where_they_are_not_named() -> None:
    model = zeroed(two_layers())
    report = mapper.load_weights(model, {"0.bias": torch.ones(3)}, strict={"unexpected", "mismatched"})
    assert report.loaded == ["0.bias"] and len(report.missing) == 3


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("missing", {"weight": torch.ones(1, 2)}),
        ("unexpected", {"weight": torch.ones(1, 2), "bias": torch.ones(1), "x": torch.ones(1)}),
        ("mismatched", {"weight": torch.ones(1, 2), "bias": torch.ones(2)}),
    ],
)
@pytest.mark.parametrize("container", [set, frozenset, list, tuple])
def test_each_kind_is_fatal_alone_and_only_where_named(kind: str, source: Any, container: Any) -> None:
    model = nn.Linear(2, 1)
    with refused(model):
        mapper.load_weights(model, source, strict=container([kind]))
    others = container({"missing", "unexpected", "mismatched"} - {kind})
    assert mapper.load_weights(model, source, strict=others).loaded[0] == "weight"


def test_an_empty_set_of_kinds_is_as_not_strict() -> None:
    report = mapper.load_weights(zeroed(two_layers()), broken_source(), strict=set())
    assert report.loaded == ["0.weight", "2.bias"]


# sources in the model's own memory


def test_two_entries_of_the_model_may_be_swapped() -> None:
    model = filled(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    old = copy.deepcopy(model)
    source = {
        "0.weight": model[1].weight,
        "1.weight": model[0].weight,
        "0.bias": model[1].bias,
        "1.bias": model[0].bias,
    }
    mapper.load_weights(model, source)
    assert torch.equal(model[0].weight, old[1].weight) and torch.equal(model[1].weight, old[0].weight)
    assert torch.equal(model[0].bias, old[1].bias) and torch.equal(model[1].bias, old[0].bias)


def test_three_entries_of_the_model_may_be_rotated() -> None:
    model = nn.ParameterList([torch.full((2,), float(i)) for i in range(3)])
    mapper.load_weights(model, [model[1], model[2], model[0]])
    assert [entry[0].item() for entry in model] == [1, 2, 0]


def test_a_parameter_may_be_loaded_with_its_own_transpose() -> None:
    model = Holder(w=nn.Parameter(torch.arange(9.0).reshape(3, 3)))
    expected = model.w.detach().t().clone()
    mapper.load_weights(model, {"w": model.w.detach().t()})
    assert torch.equal(model.w, expected)


def test_an_array_of_numpy_may_be_a_view_of_the_model() -> None:
    model = Holder(w=nn.Parameter(torch.arange(4.0)))
    mapper.load_weights(model, {"w": model.w.detach().numpy()[::-1]})
    assert model.w.tolist() == [3, 2, 1, 0]


def test_parameters_that_are_overlapping_slices_of_the_source_are_loaded() -> None:
    base = torch.arange(6.0)
    model = Holder(a=nn.Parameter(base[:4]), b=nn.Parameter(torch.zeros(4)))
    mapper.load_weights(model, {"a": base[2:], "b": base[:4]})
    assert model.a.tolist() == [2, 3, 4, 5] and model.b.tolist() == [0, 1, 2, 3]


def test_swapped_entries_of_other_dtypes_are_cast_as_if_copied_first() -> None:
    model = nn.ParameterList([torch.ones(2), torch.full((2,), 2.0).half()])
    mapper.load_weights(model, [model[1], model[0]])
    assert model[0].tolist() == [2, 2] and model[1].tolist() == [1, 1]
    assert model[1].dtype == torch.float16


def test_a_model_may_be_loaded_from_itself() -> None:
    model = filled(Tied())
    before = snapshot(model)
    assert mapper.load_weights(model, model).ok
    assert snapshot(model) == before


def test_a_model_may_be_loaded_from_its_own_tree() -> None:
    model = filled(Tied())
    before = snapshot(model)
    assert mapper.load_weights(model, mapper.tree(model)).ok
    assert snapshot(model) == before


def test_a_refused_swap_changes_nothing() -> None:
    model = filled(nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2)))
    with refused(model):
        mapper.load_weights(model, {"0.weight": model[1].weight, "1.weight": model[0].weight})
