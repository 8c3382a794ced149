"""Of what the whole test command runs a part: it is there, and others like it stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SAMPLED, is_sampled_out

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("test", SAMPLED)
def test_what_is_sampled_is_a_test_and_about_one_in_so_many_stays(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text()
    kept = sum(not is_sampled_out(f"{test}[{number}]") for number in range(1_200))
    assert 0.7 < kept * SAMPLED[test] / 1_200 < 1.4


def test_what_is_not_sampled_stays() -> None:
    assert not any(is_sampled_out(f"tests/unit/test_sampled.py::test_{number}[x]") for number in range(50))
