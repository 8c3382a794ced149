"""Reports on a screen: how much is folded, how wide lines are, what is to be answered."""

from __future__ import annotations

import re
import shlex

import pytest

import mapper
from mapper.architecture import Architecture, Question, Unfit
from mapper.catalogue import find
from mapper.errors import cut
from mapper.inference import infer
from mapper.report import Report
from mapper.report.name_tree import _groups, levels, rows
from mapper.report.questions import asked
from mapper.report.style import coloured
from mapper.report.text import SCREEN, as_text
from mapper.report.wording import printable
from mapper.report.wrapping import fitted
from mapper.rulebook.rulebook import rulebook_of

LARGE = ("google/gemma-3-12b-it", "openai/whisper-small", "laion/clap-htsat-fused", "apple/mobilevit-small")
NARROW = 80


@pytest.fixture(scope="module", params=LARGE)
def large(request: pytest.FixtureRequest) -> Architecture:
    checkpoint = find(request.param)
    assert checkpoint is not None
    return infer(checkpoint, rulebook_of(()))


def words(text: str) -> list[str]:
    return re.sub(r"\x1b\[\d+m", "", text).split()


def test_a_large_report_fits_a_screen_and_says_how_to_see_more(large: Architecture) -> None:
    text = as_text(large)
    assert len(text.splitlines()) <= SCREEN
    deepest = levels(large)
    assert f"--depth {deepest} shows all {len(rows(large)):,} rows" in text
    assert len(as_text(large, depth=deepest).splitlines()) > SCREEN
    assert "folded, " not in as_text(large, depth=deepest)


def test_every_level_counts_every_module(large: Architecture) -> None:
    modules = sum(leaf.place.instances for leaf in large.leaves)
    for depth in range(1, levels(large) + 1):
        groups = _groups(large.leaves, depth)
        assert sum(leaf.place.instances for _, leaves in groups for leaf in leaves) == modules
        assert all(leaf.place.within(place) for place, leaves in groups for leaf in leaves)


def test_deeper_levels_show_more_rows(large: Architecture) -> None:
    counts = [len(rows(large, depth)) for depth in range(1, levels(large) + 1)]
    assert counts == sorted(counts) and counts[-1] == len(rows(large))


def test_a_narrow_terminal_breaks_no_word(large: Architecture) -> None:
    for width in (NARROW, 120):
        lines = as_text(large, width=width).splitlines()
        assert max(map(len, lines)) <= width
    text = as_text(large, coloured, depth=2)
    assert "".join(words(fitted(text, NARROW))) == "".join(words(text))
    broken = set(words(fitted(text, NARROW))) - set(words(text))  # names longer than their column
    assert all(
        piece[-1] in "._/,:|=-" or any(word.endswith(piece) for word in words(text)) for piece in broken
    )


@pytest.mark.parametrize("width", [33, 40, 80])
def test_a_line_is_broken_between_words_below_its_last_column(width: int) -> None:
    line = "  attention.heads = 12  config: num_attention_heads of the text part, which all layers have"
    pieces = fitted(line, width).splitlines()
    assert all(len(piece) <= width for piece in pieces)
    assert " ".join(fitted(line, width).split()) == " ".join(line.split())
    if width == 80:
        assert pieces[1].startswith(" " * line.index("config:")) and pieces[1].strip()


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        (
            "encoder.layers.self_attention.query_projection",
            "encoder.layers.self_\n    attention.query_\n    projection",
        ),
        (
            "a/very/long/path/of/a/folder/model.safetensors",
            "a/very/long/path/of/\n    a/folder/model.\n    safetensors",
        ),
        ("x" * 30, "x" * 20 + "\n    " + "x" * 10),
    ],
)
def test_a_name_longer_than_a_line_is_broken_at_its_parts(name: str, broken: str) -> None:
    assert fitted(name, 20) == broken


def test_colours_reach_over_a_break() -> None:
    line = "\x1b[31mred words that go on\x1b[0m and then plain ones"
    pieces = fitted(line, 20).split("\n")
    assert "".join(re.findall(r"\x1b\[\d+m", "".join(pieces))) == "\x1b[31m\x1b[0m"
    assert re.sub(r"\x1b\[\d+m", "", pieces[0]) == "red words that go on"


def test_without_a_width_lines_are_as_they_are() -> None:
    assert fitted("a " * 500, None) == "a " * 500


def test_what_is_cut_is_cut_between_words() -> None:
    text = "the flow of a layer has no use for what stands there " * 10
    shown = printable(text, limit=100)
    assert len(shown) <= 100
    assert set(shown.replace(" ... ", " ").split()) <= set(text.split())
    name = ".".join(["encoder", "attention", "output_projection"] * 9)
    assert set(re.split(r"[._]| \.\.\. ", cut(name, 60))) <= {*re.split(r"[._]", name), ""}


@pytest.mark.parametrize("limit", range(24, 70, 5))
def test_of_what_is_cut_something_is_left_on_both_sides(limit: int) -> None:
    for text in (
        "config: architectures: SomeModelForConditionalGeneration and more of it",
        "x" * 90,
        "a.b." + "y" * 90,
    ):
        left, right = cut(text, limit).split(" ... ")
        assert (
            text.startswith(left)
            and text.endswith(right)
            and len(left) > limit // 6
            and len(right) > limit // 6
        )


def test_all_questions_are_answered_in_one_go() -> None:
    questions = [
        Question("attention.causal", "encoder", (True, False), "encoder"),
        Question("moe.scoring", "*", ("sigmoid", "softmax")),
        Question("attention.heads", "layers.*", (1, 2, 4)),
        Question("norm.eps", "layers.*"),
        Question("embedding.scale", "*", (None, 5.65)),
    ] * 2
    lines = asked(questions)
    copied = "\n".join(line for line in lines if line.lstrip().startswith("--set"))
    options = shlex.split(copied.replace("\\\n", " "))
    assert options.count("--set") == len(questions)
    assert options[1::2][:5] == [
        "encoder:attention.causal=true|false", "moe.scoring=sigmoid|softmax", "attention.heads=1|2|4", "norm.eps=VALUE",
        "embedding.scale=null|5.65",
    ]  # fmt: skip
    assert "encoder:attention.causal  true or false (at encoder)" in lines


def test_a_line_copied_as_it_is_answers_nothing(tmp_path: object) -> None:
    """Whoever leaves both values in is told so: no question is answered by chance."""
    checkpoint = find("gpt2")
    assert checkpoint is not None
    with pytest.raises(mapper.HintError, match="is 2 values; keep one of them"):
        infer(checkpoint, rulebook_of(()), hints={"attention.causal": "true|false"})


def test_what_no_flow_fits_has_a_line_for_each_near_one(bert: Architecture) -> None:
    bert.unfit.append(Unfit("attention", ("a.b", "c.d"), ("one lacks key", "two lacks value")))
    bert.questions.append(Question("norm.eps", "a.b"))
    bert.missing += [*map(str, (*bert.unfit, *bert.questions)), "something else"]
    lines = as_text(bert).splitlines()
    at = lines.index("  no flow fits attention at 'a.b' and 1 more:")
    assert lines[at : at + 4] == [lines[at], "    one lacks key", "    two lacks value", "  something else"]
    assert "to be answered" in lines and sum("norm.eps is unknown" in line for line in lines) == 0


def test_tensors_of_one_module_without_a_role_are_one_line(bert: Architecture) -> None:
    bert.unmapped += [f"extra.{at}.{name}" for at in range(3) for name in ("weight", "bias")]
    assert "  extra.{0..2}.{weight,bias}" in as_text(bert).splitlines()


def test_the_report_has_every_depth_in_python(large: Architecture) -> None:
    report = Report(large)
    assert str(report) == report.to_text() == as_text(large)
    assert len(report.to_text(depth=99).splitlines()) > SCREEN
    assert max(map(len, report.to_text(width=NARROW).splitlines())) <= NARROW
