"""The tables of `rules/running`: the shipped ones hold, and what means nothing is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mapper.authoring.check import check_rules
from mapper.rulebook.rulebook import shipped_folder
from tests.shipped import RULEBOOK

SHIPPED = sorted((shipped_folder() / "running").glob("*.yaml"))


def test_shipped_tables_hold() -> None:
    found = check_rules(RULEBOOK, SHIPPED)
    assert [file.name for file in found] == ["images", "prompts", "sounds", "tokenizers", "uses"]
    assert [problem for file in found for problem in file.problems] == []


@pytest.mark.parametrize(
    ("table", "old", "new", "message"),
    [
        (
            "uses",
            "use: fill, reads: text",
            "use: fill, reads: sound",
            "nothing is done as 'fill' with 'sound'",
        ),
        ("uses", "takes: [pixel_values]", "takes: [pixels]", "'pixels' is none of"),
        ("images", "classes: [Segformer]", "classes: [Segformer, ViT]", "ViT is in line"),
        ("images", "number: sides", "number: side", "'side' is none of sides, shortest_edge"),
        ("sounds", "step: standardise", "step: standard", "'standard' is none of"),
        ("sounds", "$n_fft", "$fft", "no setting 'fft' beside it"),
        ("tokenizers", "lowercase: $do_lower_case", "lowercase: $lower", "no setting 'lower' beside it"),
        ("tokenizers", "files: [vocab.txt]", "files: [words.txt]", "'words.txt' is none of"),
        ("tokenizers", "guessed: true", "guess: true", "unknown field 'guess'; did you mean 'guessed'?"),
    ],
)
def test_what_means_nothing_is_refused_with_its_line(
    table: str, old: str, new: str, message: str, tmp_path: Path
) -> None:
    text = (shipped_folder() / "running" / f"{table}.yaml").read_text()
    assert old in text
    file = tmp_path / f"{table}.yaml"
    file.write_text(text.replace(old, new, 1))
    (found,) = check_rules(RULEBOOK, [file])
    (problem,) = found.problems
    line = text[: text.index(old)].count("\n") + 1
    assert message in problem
    assert abs(int(problem.split(":")[1]) - line) <= 8  # of the row or of what is wrong in it


def test_a_table_stands_in_the_file_of_its_name(tmp_path: Path) -> None:
    file = tmp_path / "sound.yaml"
    file.write_text((shipped_folder() / "running" / "sounds.yaml").read_text())
    (found,) = check_rules(RULEBOOK, [file])
    assert "only sounds.yaml is read as this table" in found.problems[0]
