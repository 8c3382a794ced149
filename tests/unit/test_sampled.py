"""Of what the whole test command runs a part: it is there, and others like it stay; what is left out is run as the rest."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest
from tests.conftest import SAMPLED, is_sampled_out

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_sampled_is_there_and_about_one_in_so_many_stays() -> None:
    for name, one_in in SAMPLED.items():
        file, _, test = name.partition("::")
        assert f"def {test}(" in (ROOT / file).read_text() if test else (ROOT / file).exists(), name
        inside = (
            name
            if test
            else f"{name}::test_some"
            if file.endswith(".py")
            else f"{name}/test_some.py::test_some"
        )
        kept = sum(not is_sampled_out(f"{inside}[{number}]") for number in range(4_800))
        assert 0.7 < kept * one_in / 4_800 < 1.4 if one_in else not kept, name


def test_what_is_said_most_closely_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "SAMPLED", {"a": 10**9, "a/b.py": 1, "a/b.py::c": 10**9})
    assert [is_sampled_out(test) for test in ("a/x.py::y", "a/b.py::y", "a/b.py::c[1]", "d/x.py::y")] == [
        True,
        False,
        True,
        False,
    ]


def test_what_is_not_sampled_stays() -> None:
    assert not any(is_sampled_out(f"tests/unit/test_sampled.py::test_{number}[x]") for number in range(50))


@pytest.mark.parametrize("sampled", [True, False])
def test_the_rest_is_what_the_whole_command_leaves_out(
    monkeypatch: pytest.MonkeyPatch, sampled: bool
) -> None:
    monkeypatch.setattr(conftest, "SAMPLED", {"tests/unit": 2} if sampled else {})
    every = [f"tests/unit/test_x.py::test_{number}" for number in range(40)] + [*conftest.LEFT_OUT][:3]
    monkeypatch.setenv("EVERY", "")
    command = kept(every)
    monkeypatch.setenv("EVERY", "rest")
    rest = kept(every)
    assert sorted(command + rest) == sorted(every)
    assert (len(rest) > 3) is sampled
    monkeypatch.setenv("EVERY", "all")
    assert kept(every) == every


def item(name: str, *groups: str) -> Any:
    """A test as pytest has it."""
    marks = [SimpleNamespace(args=(group,)) for group in groups]
    return SimpleNamespace(nodeid=name, path=ROOT / name.partition("::")[0], iter_markers=lambda _: marks)


def test_a_group_of_a_worker_is_no_part_of_a_name() -> None:
    assert conftest._alone(item("a/x.py::y[1]@catalogue", "catalogue")) == "a/x.py::y[1]"
    assert conftest._alone(item("a/x.py::y[1@2]")) == "a/x.py::y[1@2]"


def kept(every: list[str]) -> list[str]:
    """The tests that are run of these."""
    items: list[Any] = [item(name) for name in every]
    config: Any = SimpleNamespace(args=["tests"], option=SimpleNamespace(keyword=""), stash={})
    conftest.pytest_collection_modifyitems(config, items)
    return [one.nodeid for one in items]
