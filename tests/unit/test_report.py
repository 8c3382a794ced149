from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import mapper
from mapper.architecture import (
    BLOCK_KINDS,
    EVIDENCE,
    LEAF_KINDS,
    READINGS,
    Architecture,
    Block,
    Fact,
    Leaf,
    Place,
    Question,
    Unfit,
)
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.errors import HintError
from mapper.inference import infer
from mapper.report import Report
from mapper.report.questions import asked
from mapper.report.style import coloured
from mapper.report.text import _TELLING, as_text
from mapper.report.wording import folded, in_bytes, printable, rounded
from mapper.rulebook.examples import header
from mapper.rulebook.rulebook import Rulebook
from tests.schema import SCHEMA, violations
from tests.work import growth


def test_equal_layers_are_one_entry_with_a_summary(bert: Architecture) -> None:
    lines = str(Report(bert)).splitlines()
    row = next(line for line in lines if line.startswith("encoder.layer.{0..1}"))
    assert row.split("  ")[-1].strip() == "attention 2 heads, feed_forward 8-16 gelu"
    assert sum("attention.self.query" in line for line in lines) == 1


def test_layers_that_differ_are_entries_of_their_own(bert: Architecture) -> None:
    other = Place(("encoder", "layer", (2,), "intermediate", "dense"))
    scope = (("tower", None), ("layers", (2,)), ("feed_forward", None))
    bert.leaves.append(Leaf(other, "Linear", {"weight": TensorInfo((32, 8), "F32")}, "", scope, "up"))
    text = str(Report(bert))
    assert "encoder.layer.{0..1} " in text
    assert "encoder.layer.2 " in text


def test_the_reading_is_explained(bert: Architecture) -> None:
    for reading in READINGS:
        bert.reading = reading
        assert f"\n{reading}: " in str(Report(bert))


def test_rules_of_a_users_own_vouch_for_no_comparison(tmp_path: Path) -> None:
    shipped = Rulebook()
    family = next(family for family in shipped.families if family.name == "distilbert")
    (tmp_path / "families").mkdir()
    text = family.document.path.read_text(encoding="utf-8").replace("family: distilbert", "family: mine", 1)
    file = tmp_path / "families" / "distilbert.yaml"  # in the place of the shipped one
    file.write_text(text, encoding="utf-8")
    checkpoint = header(family.examples[0])
    told = [as_text(infer(checkpoint, rulebook)) for rulebook in (shipped, Rulebook([tmp_path]))]
    assert all("exact" in line.splitlines()[0] for line in told)
    assert "were compared with the reference" in told[0]
    assert f"{file} lists this model type; nobody has compared it here" in told[1]


def test_every_fact_shows_its_evidence(bert: Architecture) -> None:
    text = str(Report(bert))
    assert "attention.heads = 2" in text
    assert "config: num_attention_heads" in text
    assert "default: families/bert.yaml" in text


def test_findings_unused_unmapped_and_unknown_are_listed(bert: Architecture) -> None:
    bert.findings.append("config says 12 layers, the names show 6")
    bert.unused.append(("embeddings.position_ids", "a buffer of the positions"))
    bert.unmapped += [f"extra.{index}.weight" for index in range(40)]
    bert.missing.append("attention.heads is unknown; add --set attention.heads=N")
    text = str(Report(bert))
    assert "config says 12 layers" in text
    assert "embeddings.position_ids: a buffer of the positions" in text
    assert "extra.{0..39}.weight" in text
    assert "--set attention.heads=N" in text


def test_names_from_a_file_write_nothing_on_the_terminal(bert: Architecture) -> None:
    bert.checkpoint.source = "\x1b[2Jevil\nsecond"
    bert.leaves[0].place = Place(("\x1b]0;title\x07", "[red]word[/red]", "\u202eback"))
    bert.findings.append("line\nbreak\x1b[31m")
    bert.unmapped.append("\x9b31m")
    text = str(Report(bert))
    assert all(char.isprintable() for line in text.split("\n") for char in line)
    assert "[red]word[/red]" in text  # nothing here reads markup


def test_colours_change_no_word(bert: Architecture) -> None:
    import re

    painted = as_text(bert, coloured)
    assert "\x1b[" in painted
    assert re.sub(r"\x1b\[\d+m", "", painted) == as_text(bert)


def test_a_very_long_report_is_cut_and_says_so(bert: Architecture) -> None:
    info = {"weight": TensorInfo((1, 1), "F32")}
    bert.leaves += [Leaf(Place((f"module{index}",)), "Linear", info, "") for index in range(500)]
    text = str(Report(bert))
    assert len(text.splitlines()) < 250
    assert "more rows, all of them with --depth 1" in text
    assert "more rows, all of them with --json" in Report(bert).to_text(depth=1)


def test_the_document_follows_its_schema(bert: Architecture) -> None:
    document = json.loads(Report(bert).to_json())
    assert violations(document) == []
    assert document["tensors"] == 25
    assert {leaf["path"] for leaf in document["leaves"]} >= {"encoder.layer.1.output.dense"}


def test_the_schema_has_the_closed_lists_of_the_code() -> None:
    properties = SCHEMA["properties"]
    assert properties["reading"]["enum"] == [*READINGS, None]  # of several models each has its own
    assert properties["leaves"]["items"]["properties"]["kind"]["enum"] == list(LEAF_KINDS)
    assert properties["blocks"]["items"]["properties"]["kind"]["enum"] == list(BLOCK_KINDS)
    assert properties["facts"]["items"]["properties"]["evidence"]["enum"] == list(EVIDENCE)


def test_the_schema_refuses_other_documents(bert: Architecture) -> None:
    document = json.loads(Report(bert).to_json())
    assert violations({**document, "surprise": 1})
    assert violations({**document, "tensors": "25"})
    document["leaves"][0]["kind"] = "Dense"
    assert violations(document)


def test_a_block_names_its_leaves_in_its_own_layer(bert: Architecture) -> None:
    blocks = json.loads(Report(bert).to_json())["blocks"]
    forward = [block for block in blocks if block["kind"] == "feed_forward"]
    assert forward[1] == {
        "path": "encoder.layer.1",
        "kind": "feed_forward",
        "layer": "encoder.layer.1",
        "roles": {"up": "encoder.layer.1.intermediate.dense", "down": "encoder.layer.1.output.dense"},
    }


def test_a_role_with_several_leaves_is_a_list_of_paths(bert: Architecture) -> None:
    place = Place(("pool", (0, 1)))
    leaf = Leaf(place, "Linear", {"weight": TensorInfo((1, 1), "F32")}, "", (), "parts")
    bert.root.roles["head"] = Block("head", "head", Place(("pool",)), None, {"parts": [leaf]})
    blocks = json.loads(Report(bert).to_json())["blocks"]
    assert blocks[-1]["roles"] == {"parts": ["pool.0", "pool.1"]}


def test_infinities_of_a_config_leave_a_valid_document(bert: Architecture) -> None:
    bert.facts.append(Fact("attention.softcap", [math.inf, -math.inf, math.nan], "*", "config", "cap"))
    document = json.loads(Report(bert).to_json(), parse_constant=pytest.fail)
    assert document["facts"][-1]["value"] == ["inf", "-inf", "nan"]


def test_why_shows_the_evidence(bert: Architecture) -> None:
    assert Report(bert).why("attention.heads") == (
        "attention.heads = 2 at encoder.layer.*\n  config: num_attention_heads"
    )


def test_why_shows_what_lost(bert: Architecture) -> None:
    bert.lost += [
        Fact("attention.heads", 8, "encoder.layer.*", "default", "families/bert.yaml", against=2),
        Fact("attention.heads", 4, "encoder.layer.*", "rule", "families/bert.yaml", against=2),
        Fact("attention.heads", 4, "encoder.layer.*", "rule", "families/bert.yaml", against=2),
        Fact("attention.heads", 3, "decoder.layer.*", "rule", "another scope", against=2),
        Fact("attention.heads", 2, "encoder.layer.*", "config", "of another block of this place", against=4),
    ]
    assert Report(bert).why("attention.heads").splitlines()[2:] == [
        "  lost: 4, rule: families/bert.yaml",
        "  lost: 8, default: families/bert.yaml",
    ]


def test_why_of_an_unknown_name_suggests_the_closest(bert: Architecture) -> None:
    with pytest.raises(HintError, match=r"no fact 'attention\.head' .* did you mean 'attention\.heads'"):
        Report(bert).why("attention.head")


def experts(count: int) -> Architecture:
    place = Place(("layers", tuple(range(50)), "experts", tuple(range(count))))
    path = (("layers", tuple(range(50))), ("experts", tuple(range(count))))
    leaf = Leaf(place.child("w"), "Linear", {"weight": TensorInfo((8, 8), "F32")}, "", path, "up")
    each = Block("feed_forward", "experts", place, tuple(range(count)), {"up": leaf})
    layer = Block("layer", "layers", Place(place[:2]), tuple(range(50)), {"experts": [each]})
    tensors = dict.fromkeys(leaf.keys(), TensorInfo((8, 8), "F32"))
    return Architecture(
        Checkpoint("experts", "manifest", tensors),
        [leaf],
        Block("other", "root", Place(()), None, {"layers": [layer]}),
    )


def test_a_hundred_thousand_tensors_are_written() -> None:
    report = Report(experts(2000))
    assert report.to_json().count('"kind": "feed_forward"') == 100_000
    assert "layers.{0..49} " in str(report)


def test_twice_the_tensors_take_twice_the_work_to_write() -> None:
    assert growth(lambda count: Report(experts(count)).to_json, 100) < 2.1


def test_numbers_are_rounded_for_people() -> None:
    assert [rounded(n) for n in (999, 22_713_216, 1_500_000_000, 123_400_000, 9_990_000)] == [
        "999",
        "22.7 million",
        "1.50 billion",
        "123 million",
        "9.99 million",
    ]
    assert [in_bytes(n) for n in (12, 90_868_376)] == ["12 bytes", "90.9 MB"]


def test_long_names_are_cut_in_the_middle() -> None:
    assert len(printable("a" * 5000 + "end")) <= 160
    assert printable("a" * 5000 + "end").endswith("end")


def test_keys_that_differ_in_numbers_are_folded() -> None:
    keys = ["a.0.w", "a.1.w", "a.2.w", "b.0.w", "b.2.w", "c.00.w", "d." + "9" * 5000]
    assert folded(keys) == ["a.{0..2}.w", "b.{0,2}.w", "c.00.w", "d." + "9" * 5000]


def test_what_has_much_of_everything_fits_a_screen(bert: Architecture) -> None:
    info = {"weight": TensorInfo((1, 1), "F32")}
    bert.leaves += [Leaf(Place((f"module{index}",)), "Linear", info, "") for index in range(60)]
    bert.findings = [f"finding {index} {'of many words ' * 20}" for index in range(9)]
    bert.missing = [f"missing {index} {'of many words ' * 20}" for index in range(9)]
    bert.questions = [Question(f"topic{index}.fact", f"place{index}", (1, 2, 3)) for index in range(20)]
    bert.unfit = [Unfit("layer", (f"l.{at}",), tuple("abc")) for at in range(9)]
    bert.unused = [(f"key{index}.weight", f"why {index}") for index in range(20)]
    for width in (80, 100, None):
        text = as_text(bert, width=width)
        assert len(text.splitlines()) <= 50
        assert "--depth 1" in text and "answer these, with one value of each" in text


def test_a_report_has_a_place_for_every_evidence() -> None:
    assert set(_TELLING) == set(EVIDENCE)


def test_a_value_that_is_to_be_typed_is_shown_whole() -> None:
    value = "stages.0.blocks.0.conv_mid.4.conv & stages.0.blocks.0.conv_mid.3.conv"
    question = Question("chain.reads", "out", (value, "stages.0"), "out")
    assert any(f"{value} or stages.0" in line for line in asked([question]))


def test_what_no_family_reads_is_called_as_its_own_config_calls_it():
    tensors = {"gc1.weight": [7, 16], "gc2.weight": [16, 3]}
    assert str(mapper.inspect(tensors)).startswith("manifest: a network over a graph; no known family, ")
    for field in ("_class_name", "architecture"):
        checkpoint = {"tensors": {"odd.weight": [3]}, "config": {field: "OddNet"}}
        assert "no known family for OddNet, skeleton" in str(mapper.inspect(checkpoint)).splitlines()[0]
