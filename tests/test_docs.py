"""The documentation: what its commands print, where its links lead, and that its reference pages hold all there is."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from mapper.cli import main
from mapper.cli.app import COMMANDS
from mapper.operations.registry import operation_names
from tests.pages import DOCS, ROOT, assert_shown, page, steps
from tools.docs_site import PAGES, relinked
from tools.reference_pages import reference_pages

OWN_PAGES = sorted(path.name for path in DOCS.glob("*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("name", ["tour.md", "values.md", "small-networks.md"])
def test_a_page_prints_what_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # two of its models are in the catalogue
    monkeypatch.chdir(tmp_path)
    for command, shown in steps(page(f"docs/{name}")):
        if command.startswith("cat > "):  # a program that makes the checkpoint
            exec(compile("\n".join(shown), command, "exec"), {})
        elif command.startswith("mapper "):
            assert main(shlex.split(command)[1:]) == 0, command
            assert_shown(capsys.readouterr().out, shown, command)
        else:
            subprocess.run(command, shell=True, check=True)


@pytest.mark.parametrize(("name", "examples"), [("exporting.md", 1), ("reference-defects.md", 4)])
def test_python_of_a_page_prints_what_it_shows(
    name: str, examples: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = re.findall(r"```python\n(import torch\n.*?)```\n```\n(.*?)```", page(f"docs/{name}"), re.S)
    assert len(found) == examples
    for code, shown in found:
        exec(compile(code, name, "exec"), {})
        assert capsys.readouterr().out == shown


@pytest.mark.parametrize("name", [*(f"docs/{name}" for name in OWN_PAGES), *PAGES])
def test_links_lead_to_files(name: str) -> None:
    for target in LINK.findall(page(name)):
        path = target.partition("#")[0]
        if path and "://" not in target and not path.startswith("mailto:"):
            assert (ROOT / name).parent.joinpath(path).exists(), target


def test_every_page_is_in_the_navigation_once() -> None:
    text = page("mkdocs.yml")
    listed = re.findall(r"[\w/]+(?:-\w+)*\.md", str(yaml.safe_load(text)["nav"]))
    made = {f"reference/{name}.md" for name in reference_pages()}
    assert sorted(listed) == sorted({*OWN_PAGES, *PAGES.values(), *made})


def test_links_follow_pages_that_stand_elsewhere_in_the_site() -> None:
    text = "[a](docs/tour.md#x) [b](mapper/limits.py) [c](https://x.y)\n```\n[d](docs/tour.md)\n```\n"
    text += '[<img src="docs/pictures/t5.svg" height="3">](docs/pictures/t5.svg)'
    kept = "[a](tour.md#x) b (`mapper/limits.py`) [c](https://x.y)\n```\n[d](docs/tour.md)\n```\n"
    kept += '[<img src="pictures/t5.svg" height="3">](pictures/t5.svg)'
    assert relinked(text, "README.md", "index.md") == kept
    assert (
        relinked("[up](../../rules/README.md)", "docs/reference/facts.md", "reference/facts.md")
        == "[up](../rules.md)"
    )


def test_reference_pages_have_what_there_is_and_where_it_is_used() -> None:
    pages = reference_pages()
    assert all(f"\n## {name}\n" in pages["operations"] for name in operation_names())
    assert all(f"## mapper {name}" in pages["cli"] for name in COMMANDS if name != "rules")
    assert re.search(
        r"\| `attention.heads`.* \| .*`num_attention_heads`.*`flows/attention.yaml` × \d\d", pages["facts"]
    )
    assert re.findall(r"(?m)^\| `(\S+)`[^|]* \| \*", pages["facts"]) == [], "facts without a doc line"
    assert re.search(r"\| `attention.query` \| .*`q_proj`.*`flows/attention.yaml` × \d", pages["roles"])
    assert re.search(r"called by flows of `flows/attention.yaml` × \d", pages["operations"])
    assert re.search(r"\| `by_name_only` \| .* \| \d+ \| `flows/", pages["rule_keys"])
    assert re.search(r"\| `--set` \| `inspect`, .*`generate`", pages["cli"])
