"""What an example says must be read from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mapper.authoring import expectations
from mapper.authoring.expectations import check_example, read_example
from mapper.rulebook.examples import is_near_miss
from tests.shipped import RULEBOOK

BERT = next(entry for entry in RULEBOOK.family_entries if entry.name == "bert").read()


def test_a_near_miss_that_is_read_as_the_family_is_told() -> None:
    example = next(one for one in BERT.examples if not is_near_miss(one))
    near = replace(example, expect={"match": False})
    assert check_example(near, BERT, RULEBOOK) == ["is read as bert"]


def test_a_near_miss_that_neither_type_nor_names_show_as_the_family_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("it is read")

    monkeypatch.setattr(expectations, "infer", fail)
    near = [one for one in BERT.examples if is_near_miss(one)]
    assert [read_example(one, BERT, RULEBOOK) for one in near] == [(None, [])] * len(near)
    assert near
