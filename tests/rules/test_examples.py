"""Every example of every rule file is one test."""

from __future__ import annotations

from pathlib import Path

import pytest

from mapper._trial import run_header
from mapper.inference import infer
from mapper.rulebook.check import check_rules
from mapper.rulebook.examples import check_example, header, is_near_miss
from mapper.rulebook.families import Example, Family
from mapper.rulebook.rulebook import Rulebook

RULEBOOK = Rulebook()
EXAMPLES = [
    pytest.param(family, example, id=f"{family.name}: {example.name}")
    for family in RULEBOOK.families
    for example in family.examples
]
FLOWS = [Path(document.path) for document in RULEBOOK.documents("flows")]


@pytest.mark.parametrize(("family", "example"), EXAMPLES)
def test_example_is_read_as_it_says(family: Family, example: Example) -> None:
    assert check_example(example, family, RULEBOOK) == []


@pytest.mark.parametrize(("family", "example"), EXAMPLES)
def test_the_model_of_an_example_runs(family: Family, example: Example) -> None:
    """Flows run under the guards that the examples answer; `check_rules` compiles them under all."""
    if is_near_miss(example):
        return
    architecture = infer(header(example), RULEBOOK)
    if architecture.reading != "skeleton" and not architecture.missing:
        run_header(architecture)
    else:
        assert example.expect.get("reading") != "exact"


@pytest.mark.parametrize("family", RULEBOOK.families, ids=lambda family: family.name)
def test_family_has_an_example_that_matches_and_a_near_miss(family: Family) -> None:
    kinds = {is_near_miss(example) for example in family.examples}
    assert kinds == {True, False}


@pytest.mark.parametrize("path", FLOWS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_flow_holds_under_all_combinations_of_its_guards(path: Path) -> None:
    (found,) = check_rules(RULEBOOK, [path])
    assert found.problems == []
    assert found.combinations >= 1


def test_no_family_steals_an_example_of_another() -> None:
    files = [document.path for document in RULEBOOK.documents("families")]
    stolen = [text for found in check_rules(RULEBOOK, files) for text in found.problems if "steals" in text]
    assert stolen == []
