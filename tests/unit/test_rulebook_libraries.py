"""Namings of libraries: names whose numbers are arithmetic, there and backwards, and what no file may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from mapper.errors import RuleError
from mapper.rulebook.libraries import LibraryNaming, read_library, roles_of
from mapper.rulebook.numbered import template
from mapper.rulebook.strict import parse_yaml

LAYER = template("blocks.{1 + i * (depth + 1) + j}.0.norm")


def test_the_numbers_of_a_name_are_arithmetic() -> None:
    assert LAYER.of({"i": 2, "j": 1, "depth": 2}) == "blocks.8.0.norm"
    assert LAYER.variables == ["i", "depth", "j"] and LAYER.starred == "blocks.*.*.norm"
    assert template("a.{n}.b{n}").of({"n0": 3, "n1": 4}) == "a.3.b4"


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_name_is_read_backwards(depth: int) -> None:
    known, below = {"depth": depth}, {"j": depth}
    for i in range(4):
        for j in range(depth):
            said = {"i": i, "j": j, **known}
            assert LAYER.read(LAYER.of(said), known, below) == said
    narrowing = f"blocks.{depth + 1}.0.norm"  # stands between two stages: no layer has that number
    assert LAYER.read(narrowing, known, below) is None


@pytest.mark.parametrize("name", ["blocks.3.0.bias", "blocks.3.1.norm", "blocks.0.0.norm", "blocks.x.0.norm"])
def test_another_name_is_none_of_these(name: str) -> None:
    assert LAYER.read(name, {"depth": 2}, {"j": 2}) is None


def test_joined_roles_may_stand_in_several_blocks() -> None:
    assert roles_of("a.query+key + b.map") == ("a.query", "a.key", "b.map")


def read(text: str) -> LibraryNaming:
    document = parse_yaml(f"library: a\nof: b\n{text}\n", "a_b.yaml", Path("a_b.yaml"))
    return read_library(document, {"a_b": document})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('names: {"x.{i}.a": "y.{i + k}.a"}', "does not have its numbers as i"),
        ('names: {"x.{i}.a": "y.a"}', "does not have its numbers as i"),
        ('names: {"x.{i}.a": "y.{import os}.a"}', "is not arithmetic"),
        ("names: {x: {name: z, kernel: 3x3}}", "expected 1, 1x1 or 1x1x1"),
        ('names: {"x.{i}.a + y.{j}.b": "z.{i}"}', "joined roles have the same numbers"),
        ("names: {x: {name: z, tale: 1}}", "expected a name, or a mapping"),
        ("settings: {file: f, fields: {x: {rows: a, count: b}}}", "a mapping with one of"),
        ("settings: {file: f, fields: {x: {over: a, tale: 1, value: 1}}}", "unknown tale"),
    ],
)
def test_what_no_naming_of_a_library_may_have_is_refused(line: str, expected: str) -> None:
    with pytest.raises(RuleError, match=r"a_b\.yaml:\d+: ") as caught:
        read(line)
    assert expected in str(caught.value)
