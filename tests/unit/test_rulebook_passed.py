"""What `rules check` need not check again: as soon as anything changes that a check rests on, it is made anew."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from mapper._parsed import SUFFIX, cache_folder
from mapper.authoring import passed
from mapper.authoring.check import Checker
from mapper.authoring.found import FileCheck
from mapper.authoring.passed import Passed
from mapper.inference import infer
from mapper.rulebook import rulebook as rulebooks
from mapper.rulebook.examples import header
from mapper.rulebook.rulebook import Rulebook

SHIPPED = Path(__file__).resolve().parents[2] / "rules"
NAMES = ("bert", "distilbert", "roberta")


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three families, one of which extends another, with all that is no family's."""
    parsed = [*cache_folder().glob(f"flows-*{SUFFIX}"), *cache_folder().glob(f"vocabulary-*{SUFFIX}")]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache_folder().mkdir(parents=True)
    for path in parsed:  # of the files that are the same as those shipped
        shutil.copy2(path, cache_folder())
    folder = tmp_path / "rules"
    for kind in ("vocabulary", "flows"):
        shutil.copytree(SHIPPED / kind, folder / kind)
    for kind in ("families", "examples"):
        (folder / kind).mkdir()
        for name in NAMES:
            shutil.copy2(SHIPPED / kind / f"{name}.yaml", folder / kind)
    for name in NAMES:
        few(folder / "examples" / f"{name}.yaml")
    monkeypatch.setattr(rulebooks, "shipped_folder", lambda: folder)
    return folder


def few(examples: Path) -> None:
    """The first examples of a file, and a near miss: more are read in the same way."""
    said = yaml.safe_load(examples.read_text())
    said["examples"] = [one for one in said["examples"] if not one["name"].startswith("no config")]
    is_miss = [one["expect"].get("match") is False for one in said["examples"]]
    kept = {*[at for at, miss in enumerate(is_miss) if not miss][:2], is_miss.index(True)}
    said["examples"] = [said["examples"][at] for at in sorted(kept)]
    examples.write_text(yaml.safe_dump(said))


def check(run: bool = False) -> tuple[list[str], dict[str, FileCheck]]:
    """The names of the families that are checked again, and what is known of all."""
    book = Rulebook()
    kept, checks, anew = Passed(book, run), {}, []
    checker = Checker(book, alone=False, run=run, examples=True, passed=kept)
    documents = {document.data["family"]: document for document in book.documents("families")}
    for name, document in documents.items():
        found = kept.of(document)
        anew += [] if found else [name]
        checks[name] = found or checker.file("families", document)
    kept.keep(checks.values(), Passed(Rulebook(), run))
    return anew, checks


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_what_was_in_order_is_not_checked_again(rules: Path) -> None:
    first, found = check()
    assert first == [*NAMES]
    assert [one.problems for one in found.values()] == [[], [], []]
    again, kept = check()
    assert again == []
    assert [one.examples for one in kept.values()] == [one.examples for one in found.values()]


@pytest.mark.parametrize(
    ("file", "anew"),
    [
        ("families/bert.yaml", ["bert"]),  # more space: the others are read by the same
        ("examples/roberta.yaml", ["roberta"]),
        ("vocabulary/attention.yaml", [*NAMES]),
        ("flows/feed_forward.yaml", [*NAMES]),
    ],
)
def test_a_file_that_changes_is_checked_with_what_rests_on_it(
    rules: Path, file: str, anew: list[str]
) -> None:
    check()
    with (rules / file).open("a") as text:
        text.write("\n# no more\n")
    assert check()[0] == anew


def test_a_fact_that_changes_is_seen_in_each_family_that_has_it(rules: Path) -> None:
    check()
    change(rules / "families/bert.yaml", "default: false", "default: true")
    anew, _ = check()
    assert {"bert", "roberta"} <= {*anew}  # which extends it


def test_what_breaks_the_example_of_another_family_is_found(rules: Path) -> None:
    check()
    change(rules / "families/bert.yaml", "- embeddings.LayerNorm", "- embeddings.other_norm")
    found = check()[1]
    assert found["roberta"].problems
    assert check()[1]["roberta"].problems == found["roberta"].problems  # and is not kept


def test_how_families_are_found_is_of_all(rules: Path) -> None:
    check()
    change(
        rules / "families/distilbert.yaml", "model_types: [distilbert]", "model_types: [distilbert, other]"
    )
    assert check()[0] == [*NAMES]


def test_other_code_checks_all(rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check()
    monkeypatch.setattr(passed, "_code", lambda: "other")
    assert check()[0] == [*NAMES]


def test_what_changes_while_it_is_checked_is_not_kept(rules: Path) -> None:
    book = Rulebook()
    before = Passed(book, False)
    checker = Checker(book, alone=False, run=False, examples=True)
    checks = [checker.file("families", document) for document in book.documents("families")]
    with (rules / "families/bert.yaml").open("a") as text:
        text.write("\n# more\n")
    before.keep(checks, Passed(Rulebook(), False))
    now = Rulebook()
    kept = [
        document.data["family"] for document in now.documents("families") if Passed(now, False).of(document)
    ]
    assert kept == ["distilbert", "roberta"]


def test_what_is_damaged_is_not_believed(rules: Path) -> None:
    check()
    path = Passed(Rulebook(), False).path
    path.write_text(path.read_text().replace('"examples": ', '"examples": 1', 1))
    assert check()[0] == [*NAMES]


def test_a_check_that_runs_no_model_says_nothing_of_one_that_does(rules: Path) -> None:
    check()
    book = Rulebook()
    assert all(Passed(book, True).of(document) is None for document in book.documents("families"))


def test_a_run_is_told_by_its_source_its_header_and_its_config(rules: Path) -> None:
    family = next(family for family in Rulebook().families if family.name == "bert")
    example = next(example for example in family.examples if example.expect.get("reading") == "exact")
    architecture = infer(header(example), Rulebook())
    run_key = Passed(Rulebook(), True).run_key
    keys = [run_key(architecture, text) for text in ("one", "one", "two")]
    architecture.checkpoint.tensors.popitem()  # type: ignore[attr-defined]
    keys.append(run_key(architecture, "one"))
    assert architecture.checkpoint.config is not None
    architecture.checkpoint.config["more"] = 1  # type: ignore[index]
    keys.append(run_key(architecture, "one"))
    assert keys[0] == keys[1] and len({*keys}) == 4


def test_the_code_is_told_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed, "_PACKAGE", tmp_path)
    said = []
    for text in ("one", "two"):
        (tmp_path / "file.py").write_text(text)
        said.append(passed._code())
    assert said[0] != said[1]
