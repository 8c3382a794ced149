"""The Python functions with arguments that make no sense: a MapperError of one line, or Python's own TypeError."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import mapper
from tests.hostile import Raw, bert, raw, write


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("calls") / "bert", *bert())


HINTS: list[Any] = [
    5, "x", [1], {"attention.heads": object()}, {5: 1}, {"": 4}, {":": 4}, {"nosuch": 1}, {"attention.heads": None},
    {"attention.heads": [4]}, {"attention.heads": {"a": 1}}, {"attention.heads": float("nan")}, {"attention.heads": True},
    {"a" * 5000: 1}, {"feed_forward.activation": "x\n"}, {"layers": 12}, {"task": 5}, {"task": "nosuch"},
    {"norm.eps": -1}, {"hidden_size": 32},
]  # fmt: skip


@pytest.mark.parametrize("hints", HINTS, ids=[repr(hints)[:40] for hints in HINTS])
def test_hints_of_any_kind_are_refused_in_one_line(hints: Any, good: Path) -> None:
    with pytest.raises(mapper.MapperError) as caught:
        mapper.build(good, hints=hints)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "source", ["", " ", "\0", {}, {"a": None}, {"tensors": 5}, {5: [1]}, {"tensors": {"a": [1]}, "config": 5}]
)
def test_sources_that_are_none_are_refused_in_one_line(source: Any) -> None:
    with pytest.raises(mapper.MapperError) as caught:
        mapper.inspect(source)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("source", [None, 5, b"x", []])
def test_a_source_of_another_type_is_a_mistake_in_the_program(source: Any) -> None:
    with pytest.raises(TypeError, match="a source is a path"):
        mapper.inspect(source)


def test_a_device_or_type_that_is_not_to_be_had_is_said_in_one_line(good: Path, tmp_path: Path) -> None:
    for options in ({"device": "nosuch"}, {"dtype": torch.int8}):
        with pytest.raises(mapper.MapperError, match="bert: cannot be had on"):
            mapper.build(good, **options)
    small: dict[str, Raw] = {"small": raw("F4", (4,))}
    folder = write(tmp_path / "four", small)
    assert list(mapper.build(folder).state_dict()) == ["small"]
    with pytest.raises(mapper.MapperError, match=r"cannot be had on cpu as torch\.float32"):
        mapper.build(folder, dtype=torch.float32)


def test_rules_may_be_one_folder(good: Path) -> None:
    with pytest.raises(mapper.RuleError, match="no such folder"):
        mapper.inspect(good, rules="/no/such/folder")
