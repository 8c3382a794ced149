"""The report of a load: what each field holds, in which order, as data and as text."""

from __future__ import annotations

import dataclasses
import json
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import mapper
from tests.weights.snapshots import Holder, Tied, filled, refused, two_layers

FIELDS = ["loaded", "missing", "unexpected", "mismatched", "absent", "skipped", "ignored", "cast", "tied"]


def everything() -> mapper.LoadReport:
    """A report with something in every field."""
    model = Holder(
        tied=Tied(), a=nn.Linear(2, 1), b=nn.Linear(2, 1), c=nn.Linear(2, 1), d=nn.Linear(2, 1, bias=False)
    )
    source = {
        "act": "relu",
        "z": torch.ones(1),
        "d": {"weight": torch.ones(1, 2).half(), "bias": torch.zeros(1)},
        "c": None,
        "b": {"weight": torch.ones(2, 1), "bias": False},
        "a": {"bias": torch.ones(1)},
        "tied": filled(Tied()).state_dict(),
        "y": torch.ones(1),
    }
    return mapper.load_weights(model, source, strict=False)


def test_a_report_is_a_dataclass_with_the_documented_fields() -> None:
    report = everything()
    assert isinstance(report, mapper.LoadReport) and dataclasses.is_dataclass(report)
    assert all(isinstance(getattr(report, name), list) for name in FIELDS)


def test_each_field_holds_its_paths() -> None:
    report = everything()
    inner = ["tied.inner.weight", "tied.inner.bias"]
    assert report.loaded == ["tied.embed.weight", *inner, "tied.head.weight", "a.bias", "d.weight"]
    assert report.missing == ["a.weight"]
    assert [(entry.path, entry.kind) for entry in report.mismatched] == [("b.weight", "shape")]
    assert report.absent == ["b.bias", "d.bias"]
    assert report.skipped == ["c.weight", "c.bias"]
    assert report.ignored == ["act"]
    assert [entry.path for entry in report.cast] == ["d.weight"]
    assert [list(paths) for paths in report.tied] == [["tied.embed.weight", "tied.head.weight"]]


def test_unexpected_paths_are_in_the_order_of_the_source() -> None:
    assert everything().unexpected == ["z", "y"]


def test_loaded_paths_are_in_the_order_of_the_model() -> None:
    source = dict(reversed(filled(two_layers()).state_dict().items()))
    report = mapper.load_weights(two_layers(), source)
    assert report.loaded == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_missing_and_mismatched_paths_are_in_the_order_of_the_model() -> None:
    source = {"2.bias": torch.ones(9), "0.bias": torch.ones(9)}
    with refused(model := two_layers()) as caught:
        mapper.load_weights(model, source)
    assert caught.report.missing == ["0.weight", "2.weight"]
    assert [entry.path for entry in caught.report.mismatched] == ["0.bias", "2.bias"]


def test_a_mismatch_tells_what_was_expected_and_what_was_found() -> None:
    report = mapper.load_weights(
        nn.Linear(2, 1), {"weight": torch.ones(2, 1).half(), "bias": torch.ones(1)}, strict=False
    )
    (entry,) = report.mismatched
    assert entry.path == "weight" and entry.kind == "shape"
    assert "1, 2" in str(entry.expected) and "2, 1" in str(entry.found)


def test_a_report_without_problems_is_ok_and_true() -> None:
    report = mapper.load_weights(two_layers(), two_layers())
    assert report.ok and bool(report)


@pytest.mark.parametrize(
    "source",
    [
        {"weight": torch.ones(1, 2)},
        {"weight": torch.ones(1, 2), "bias": torch.ones(1), "x": torch.ones(1)},
        {"weight": torch.ones(1, 2), "bias": torch.ones(2)},
    ],
)
def test_a_report_with_a_problem_is_not_ok_and_false(source: dict[str, Any]) -> None:
    report = mapper.load_weights(nn.Linear(2, 1), source, strict=False)
    assert not report.ok and not bool(report)


def test_what_is_absent_skipped_ignored_or_cast_is_no_problem() -> None:
    source = {"weight": torch.ones(1, 2).half(), "bias": False, "act": "relu"}
    assert mapper.load_weights(nn.Linear(2, 1), source).ok


def test_the_report_as_a_dict_goes_through_json() -> None:
    report = everything()
    data = report.as_dict()
    assert json.loads(json.dumps(data)) == data
    assert set(FIELDS) <= set(data)
    assert data["missing"] == ["a.weight"] and data["mismatched"][0]["path"] == "b.weight"


def test_the_report_as_a_dict_goes_through_json_whatever_the_source_held() -> None:
    source = {"weight": object(), "bias": torch.float16, "act": {1, 2}, "x": torch.ones(1)}
    with pytest.warns(UserWarning):
        report = mapper.load_weights(nn.Linear(2, 1), source, strict=False)
    json.dumps(report.as_dict())


def test_the_report_as_text_names_what_did_not_fit() -> None:
    text = str(everything())
    for path in ("a.weight", "b.weight", "z", "y"):
        assert path in text


def test_the_report_of_a_perfect_load_is_a_short_text() -> None:
    text = str(mapper.load_weights(two_layers(), two_layers()))
    assert text and len(text) < 400


def test_an_error_carries_its_report_and_the_first_path() -> None:
    with refused(model := two_layers()) as caught:
        mapper.load_weights(model, {"0.weight": torch.ones(3, 2), "0.bias": torch.ones(3)})
    assert isinstance(caught.report, mapper.LoadReport)
    assert caught.error.path == "2.weight"


def test_the_path_of_an_error_is_the_first_problem_of_its_text() -> None:
    with refused(model := two_layers()) as caught:
        mapper.load_weights(model, {"2.bias": torch.ones(9), "x": torch.ones(1)})
    assert str(caught.error).splitlines()[1].split()[0] == caught.error.path


def test_an_error_is_a_runtime_error_and_a_mapper_error() -> None:
    with refused(model := nn.Linear(1, 1)) as caught:
        mapper.load_weights(model, {})
    assert isinstance(caught.error, RuntimeError) and isinstance(caught.error, mapper.MapperError)


def test_an_error_can_be_pickled_with_its_report() -> None:
    with refused(model := nn.Linear(1, 1)) as caught:
        mapper.load_weights(model, {"weight": torch.ones(3, 1)})
    again = pickle.loads(pickle.dumps(caught.error))
    assert str(again) == str(caught.error) and again.report.missing == ["bias"]


def test_the_report_of_an_accepted_absence_does_not_list_it_as_loaded() -> None:
    report = mapper.load_weights(nn.Linear(2, 1), nn.Linear(2, 1, bias=False))
    assert report.loaded == ["weight"] and report.absent == ["bias"]


def test_a_report_of_a_large_model_lists_every_path() -> None:
    model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(60)))
    with refused(model) as caught:
        mapper.load_weights(model, {f"x{i}": torch.ones(1) for i in range(50)})
    assert len(caught.report.missing) == 120 and len(caught.report.unexpected) == 50
