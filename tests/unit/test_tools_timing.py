"""The benchmarks' rows: what is over its limit, and how a page's table takes new rows."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("timing", ROOT / "tools" / "timing.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


timing = _tool()
PAGE = f"# Title\n\n{timing.HEAD}\n| load; peer | 9.000 s | 9.000 s | 1.00 | 1.1 |\n| kept | 1 s | - | - | - |\n\nThe end.\n"


@pytest.mark.parametrize(
    ("line", "over"),
    [
        (timing.seconds("load; peer", [1.2], [1.0], 1.1), True),
        (timing.seconds("load; peer", [1.1], [1.0], 1.1), False),
        (timing.seconds("load; peer", [9.0], [1.0], None), False),
        (timing.alone("plan", [0.2, 3.5, 9.0], 3), True),
        (timing.alone("plan", [0.2, 2.5, 9.0], 3), False),
        (timing.alone("plan", [9.0]), False),
        (timing.memory("peak", [1001.0], [1000.0], 1.0), True),
    ],
)
def test_a_row_over_its_limit_says_so(line, over: bool) -> None:
    assert line.is_over is over


def test_a_page_takes_rows_in_their_places_and_new_ones_at_the_end_of_its_table() -> None:
    lines = [timing.alone("plan", [2.0], 3), timing.seconds("load; peer", [1.0], [2.0], 1.1)]
    assert timing.rewritten(PAGE, lines) == (
        f"# Title\n\n{timing.HEAD}\n| load; peer | 1.000 s | 2.000 s | 0.50 | 1.1 |\n| kept | 1 s | - | - | - |\n"
        "| plan | 2.000 s | - | - | 3 s |\n\nThe end.\n"
    )


def test_a_page_without_the_table_is_left_alone() -> None:
    with pytest.raises(ValueError, match="no table"):
        timing.rewritten("# Title\n", [])


def test_the_page_of_times_has_the_table() -> None:
    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    assert timing.rewritten(page, []) == page
