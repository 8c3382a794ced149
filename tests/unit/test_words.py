"""How the numbers of equal elements are written in paths, and read again."""

import pytest

from mapper.words import spelled, spelled_numbers

WRITTEN = {
    (3,): "3",
    (0, 1): "{0..1}",
    (0, 2): "{0,2}",
    (0, 1, 2, 3): "{0..3}",
    (0, 2, 4, 6): "{0..6..2}",
    (1, 5, 9): "{1..9..4}",
    (0, 1, 2, 4, 5, 6, 8): "{0..2,4..6,8}",
    (0, 1, 3, 7): "{0,1,3,7}",
}


@pytest.mark.parametrize("numbers", WRITTEN, ids=str)
def test_numbers_are_written_as_runs_and_even_steps_and_read_as_they_were(numbers: tuple[int, ...]) -> None:
    assert spelled(numbers) == WRITTEN[numbers]
    assert spelled_numbers(WRITTEN[numbers]) == set(numbers)


@pytest.mark.parametrize(
    "word", ["{n}", "*", "attention", "{0..}", "{0..4..0}", "{1..2..3..4}", "{0..9999999}"]
)
def test_other_words_are_no_numbers(word: str) -> None:
    assert spelled_numbers(word) == set()
