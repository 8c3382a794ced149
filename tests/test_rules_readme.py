"""The pages about rules: their commands print what they show, and the tables are the fields that the readers accept."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from mapper.authoring.expectations import EXPECTED
from mapper.cli import main
from mapper.errors import RuleError
from mapper.rulebook.facts import FactRule, read_fact
from mapper.rulebook.family_file import read_family
from mapper.rulebook.fields import Fields
from mapper.rulebook.flows import FlowRule, read_flow
from mapper.rulebook.pages import read_page
from mapper.rulebook.strict import Document, parse_yaml
from mapper.rulebook.values import TYPES
from mapper.rulebook.vocabulary import SCOPES, SECTIONS, Entry, read_entry, read_vocabulary
from tests.pages import assert_shown, blocks, page, steps

TEXT = page("rules/README.md")
FAMILY, FLOW = page("docs/write-a-family.md"), page("docs/write-a-flow.md")
UNKNOWN = "xyzzy"  # no field of anything


@pytest.mark.parametrize("text", [FAMILY, FLOW], ids=["family", "flow"])
def test_the_pages_are_tried_from_an_empty_folder(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    seen = list(steps(text))
    for command, shown in seen:
        if command.startswith("cat > "):
            file = Path(command.removeprefix("cat > "))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(shown) + "\n")
        elif command.startswith("mapper "):
            assert main(shlex.split(command)[1:]) == 0, command
            assert_shown(capsys.readouterr().out, shown, command)
        else:
            subprocess.run(command, shell=True, check=True)
    assert sum(command.startswith("mapper ") for command, _ in seen) >= 4
    assert Path("model.py").read_text().count("class ") > 3


def test_its_parity_test_passes(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (code,) = (body for language, _, body in blocks(FAMILY) if language == "python")
    names: dict[str, Any] = {}
    exec(compile(code, "docs/write-a-family.md", "exec"), names)
    (test,) = (value for name, value in names.items() if name.startswith("test_"))
    test(tmp_path)


def table(section: str) -> list[str]:
    """The first column of the table in a section of the page."""
    (body,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", TEXT, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^\| `(\w+)` \|", body, flags=re.MULTILINE)


def names_of(record: type, without: set[str], renamed: dict[str, str]) -> list[str]:
    """The fields of a dataclass as files spell them."""
    return [renamed.get(field.name, field.name) for field in fields(record) if field.name not in without]


FIELDS = {
    "Families": ["extends", "facts", "family", "flows", "ignored", "model_types", "names", "optional", "recognise", "requires", "source", "towers", "types", "examples"],
    "Pages": ["block", "doc", "also_for", "fills", "flows", "must_be_read", "reads_elsewhere", "outputs", "rows", "shapes", "spine", "takes", "ignored", "values", "when"],
    "Flows": names_of(FlowRule, {"file", "line", "steps", "is_unnamed", "also_for", "must_be_read"}, {"name": "flow", "body": "forward"}),
    "Vocabulary": names_of(
        Entry, {"section", "target", "region", "origin", "document", "keys", "line"}, {"kinds": "kind", "ranks": "rank"}
    ),
    "Facts": names_of(FactRule, {"name", "file", "line", "silent"}, {}),
}  # fmt: skip


@pytest.mark.parametrize("section", FIELDS)
def test_a_table_has_each_field_once_and_no_other(section: str) -> None:
    assert sorted(table(section)) == sorted(FIELDS[section])


def _document(text: str) -> Document:
    return parse_yaml(text, "a.yaml")


def _family() -> object:
    return read_family(_document(f"family: a\nrecognise: [b]\n{UNKNOWN}: 1\n"))


def _page() -> object:
    step = {"slot": {"step": {"forward": "return x"}}}
    data = {"block": "a", "doc": "", "spine": ["slot"], **step, UNKNOWN: 1}
    return read_page(data, "a.yaml", lambda keys: 1)


def _flow() -> object:
    data = {"flow": "a/b", "doc": "", "forward": "return x", UNKNOWN: 1}
    return read_flow(data, "a.yaml", lambda keys: 1)


def _entry() -> object:
    return read_entry(_document("{}"), "roles", "a", "any", {"names": ["b"], UNKNOWN: 1}, ())


def _fact() -> object:
    return read_fact(Fields({UNKNOWN: 1}, "a.yaml", lambda keys: 1), "a")


READERS = {"Families": _family, "Pages": _page, "Flows": _flow, "Vocabulary": _entry, "Facts": _fact}


def accepted(read: Callable[[], object]) -> list[str]:
    """The fields that a reader names where it meets one that it does not know."""
    with pytest.raises(RuleError, match="allowed: ") as caught:
        read()
    return str(caught.value).partition("allowed: ")[2].split(", ")


@pytest.mark.parametrize("section", READERS)
def test_a_table_has_every_field_that_its_reader_accepts(section: str) -> None:
    slots = {"slot"} if section == "Pages" else set()  # the page's own word
    assert set(table(section)) == set(accepted(READERS[section])) - slots


def test_the_page_names_sections_scopes_types_and_what_examples_expect() -> None:
    whole = accepted(lambda: read_vocabulary(_document(f"vocabulary: a\n{UNKNOWN}: 1\n")))
    for word in (*SECTIONS, *SCOPES, *TYPES, *EXPECTED, *whole):
        assert f"`{word}`" in TEXT or f"`{word}:" in TEXT, word
