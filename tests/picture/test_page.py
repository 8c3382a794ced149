"""The page and the SVG as text: nothing of a checkpoint becomes markup, nothing is fetched, nothing is ever a traceback."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import mapper
from mapper.cli import main
from mapper.picture import as_html, as_svg
from mapper.picture.page import as_json, asset
from tests.checkpoints import write_manifest

Captured = pytest.CaptureFixture[str]
HOSTILE = "</script><script>alert(1)</script>.\"'><img src=x onerror=alert(2)>&lt;\u2028.\x1b[31m"


@pytest.fixture
def hostile(tmp_path: Path) -> str:
    tensors = {f"{HOSTILE}.{at}.weight": {"shape": [4, 4], "dtype": "F32"} for at in range(2)}
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps({"tensors": tensors}))
    return str(path)


def data(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    loaded: dict[str, object] = json.loads(found[1])
    return loaded


def test_hostile_names_stay_data(hostile: str) -> None:
    page = as_html(mapper.inspect(hostile).architecture)
    assert page.count("<script") == page.count("</script>") == 3
    assert "<img" not in page
    assert "\x1b" not in page
    assert "alert(1)" in json.dumps(data(page))  # shown, as text


def test_a_hostile_name_in_an_svg_is_text(hostile: str) -> None:
    pytest.importorskip("quickjs")
    root = ElementTree.fromstring(as_svg(mapper.inspect(hostile).architecture))
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags <= {"svg", "title", "style", "defs", "marker", "path", "rect", "text", "tspan", "g", "circle"}


def test_json_in_a_script_ends_no_script_and_reads_back() -> None:
    value = {"</script>": "<!--\u2028&'\""}
    assert "<" not in as_json(value)
    assert json.loads(as_json(value)) == value


def test_the_page_may_fetch_nothing_and_is_small() -> None:
    page = as_html(mapper.inspect("Qwen/Qwen3-30B-A3B").architecture)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None and policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", page)
    assert len(page.encode()) < 500_000


def test_the_commands_write_and_do_not_replace(tmp_path: Path, capsys: Captured) -> None:
    source = str(write_manifest(tmp_path / "manifest.json"))
    place = tmp_path / "model.html"
    assert main(["inspect", source, "--html", str(place)]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {place} (")
    assert main(["inspect", source, "--html", str(place)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["diff", source, source, "--html", str(place), "--overwrite"]) == 0
    assert len(data(place.read_text())["documents"]) == 2  # type: ignore[arg-type]


def test_a_picture_imports_no_torch(tmp_path: Path) -> None:
    source = str(write_manifest(tmp_path / "manifest.json"))
    code = f"import sys, mapper; mapper.inspect({source!r}).to_html(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_notebook_shows_the_page_and_falls_back_to_the_text(tmp_path: Path) -> None:
    source = str(write_manifest(tmp_path / "manifest.json"))
    report = mapper.inspect(source)
    shown = report._repr_mimebundle_()
    assert shown["text/plain"] == str(report)
    assert shown["text/html"].startswith("<iframe sandbox=")
    assert "<script" not in shown["text/html"]  # the page is an attribute's value
    found = mapper.diff(source, source)
    assert found._repr_mimebundle_()["text/plain"] == str(found)


def test_questions_come_with_what_answers_them(tmp_path: Path) -> None:
    place = write_manifest(tmp_path / "manifest.json")
    document = json.loads(place.read_text())
    document.pop("config", None)
    place.write_text(json.dumps(document))
    page = data(mapper.inspect(str(place)).to_html())
    notices = page["documents"][0]["notices"]  # type: ignore[index]
    assert {"--set attention.heads=VALUE"} <= {notice["set"] for notice in notices}


def lightness(colour: str) -> float:
    """Relative luminance as the web's guidelines define it (WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(lightness, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark", "paper"])
def test_words_are_legible_on_every_kind_and_kinds_differ_in_grey(theme: str) -> None:
    sheets = [*re.findall(r":root, \.picture \{(.*?)\}", asset("draw.css") + asset("page.css"), re.DOTALL)]
    colours = dict(re.findall(r"--(\w+): (#\w{6})\b", sheets[["light", "dark", "paper"].index(theme)]))
    kinds = colours.keys() - {"ink", "dim", "detail", "rule", "line", "shade", "alert", "link", "mark"}
    assert len(kinds) == 14
    for kind in kinds:
        assert contrast(colours["ink"], colours[kind]) > 4.5, (
            kind
        )  # what the guidelines ask of text of this size
        assert contrast(colours["detail"], colours[kind]) > 4.5, kind
    for one, other in [
        ("linear", "attention"),
        ("linear", "feed_forward"),
        ("norm", "attention"),
        ("attention", "feed_forward"),
    ]:
        if (theme, one) != (
            "dark",
            "norm",
        ):  # both are as light there as their words allow; their names tell them apart
            assert contrast(colours[one], colours[other]) > 1.09, (one, other)
