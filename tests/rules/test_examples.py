"""Every example of every rule file is one test."""

from __future__ import annotations

import pytest

from mapper._trial import run_header
from mapper.authoring.check import check_rules
from mapper.authoring.expectations import read_example
from mapper.rulebook.examples import Example, is_near_miss, lone_files
from mapper.rulebook.families import Family
from tests.shipped import RULEBOOK

EXAMPLES = [
    pytest.param(family, example, id=f"{family.name}: {example.name}")
    for family in RULEBOOK.families
    for example in family.examples
]


@pytest.mark.parametrize(("family", "example"), EXAMPLES)
def test_example_is_read_as_it_says_and_runs(family: Family, example: Example) -> None:
    """Flows run under the guards that the examples answer; below they are compiled under all."""
    architecture, differences = read_example(example, family, RULEBOOK)
    assert differences == []
    if is_near_miss(example):
        return
    assert architecture is not None
    if architecture.reading != "skeleton" and not architecture.missing:
        run_header(architecture)
    else:
        assert example.expect.get("reading") != "exact"


def test_shipped_examples_stand_beside_their_families() -> None:
    assert list(lone_files(RULEBOOK.folders)) == []
    assert [family.file for family in RULEBOOK.families if family.own_examples] == []


def test_families_have_an_example_that_matches_and_a_near_miss() -> None:
    kinds = {
        family.name: {is_near_miss(example) for example in family.examples} for family in RULEBOOK.families
    }
    assert [name for name, found in kinds.items() if found != {True, False}] == []


def test_flows_and_vocabulary_are_good_and_no_family_steals_an_example_of_another() -> None:
    """One file of flows in sixteen, for the time that their combinations take: `.ci/run` checks every file of rules."""
    every = {kind: RULEBOOK.documents(kind) for kind in ("vocabulary", "flows", "families")}
    files = [
        document.path
        for kind, documents in every.items()
        for document in (documents[::16] if kind == "flows" else documents)
    ]
    found = check_rules(RULEBOOK, files, examples=False)  # which are read above, each once
    assert [problem for file in found for problem in file.problems] == []
    assert all(file.combinations for file in found if file.kind == "flows")
