from __future__ import annotations

import re
from pathlib import Path

import pytest

from mapper.cli.rules import _leaf_lines
from mapper.errors import RuleError
from mapper.report.style import plain
from mapper.rulebook.check import FileCheck, _Checker, check_rules
from mapper.rulebook.examples import expand, header
from mapper.rulebook.explain import explain_checkpoint, explain_key, list_rules
from mapper.rulebook.families import read_families
from mapper.rulebook.rulebook import Rulebook
from mapper.rulebook.strict import parse_yaml

GOOD = """family: mine
model_types: [mine]
recognise: ["{root}.layer.{n}.attention.self.query", "{root}.layer.{n}.intermediate.dense", "{root}.only_mine"]
extends: bert
examples:
  - name: near
    tensors: {"a.weight": [2, 2]}
    expect: {match: false}
"""


def checked(tmp_path: Path, text: str, name: str = "mine.yaml") -> FileCheck:
    path = tmp_path / name
    path.write_text(text)
    (found,) = check_rules(Rulebook(), [path])
    return found


def test_brace_lists_are_expanded_in_order() -> None:
    assert list(expand("layer.{0..1}.{q,k}_proj")) == [
        "layer.0.q_proj",
        "layer.0.k_proj",
        "layer.1.q_proj",
        "layer.1.k_proj",
    ]


def test_an_example_without_a_shape_names_its_line() -> None:
    text = GOOD.replace("[2, 2]", "two")
    (family,) = read_families([parse_yaml(text.replace("extends: bert\n", ""), "mine.yaml")])
    with pytest.raises(RuleError, match=r"mine\.yaml:5: 'a\.weight' needs a shape"):
        header(family.examples[0])


def test_an_unknown_field_names_its_line_and_the_close_one(tmp_path: Path) -> None:
    found = checked(tmp_path, GOOD.replace("recognise:", "recognize:"))
    assert found.problems[0].partition("mine.yaml:")[2].startswith("3: ")
    assert "did you mean 'recognise'?" in found.problems[0]


def test_a_family_without_a_matching_example_is_told(tmp_path: Path) -> None:
    assert any("no example that matches" in problem for problem in checked(tmp_path, GOOD).problems)


def test_a_flow_that_there_is_not_is_told(tmp_path: Path) -> None:
    found = checked(tmp_path, GOOD + "flows: {layer: layer/no_such}\n")
    assert any("there is no flow 'layer/no_such'" in problem for problem in found.problems)


def test_a_rule_that_takes_examples_of_others_is_told(tmp_path: Path) -> None:
    text = GOOD.replace(
        ', "{root}.only_mine"',
        ', "{root}.layer.{n}.output.dense", "{root}.embeddings.word_embeddings", "{root}.embeddings.LayerNorm"',
    )
    found = checked(tmp_path, text)
    assert any("steals example" in problem and "bert" in problem for problem in found.problems)


def test_a_flow_that_does_not_parse_names_its_line(tmp_path: Path) -> None:
    text = "flow: layer/mine\ndoc: x\nneeds: [attention]\nforward: |\n  x = attention(x)\n  import os\n  return x\n"
    assert "mine.yaml:6" in checked(tmp_path, text).problems[0]


def test_a_file_that_is_no_rule_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="no rule file"):
        checked(tmp_path, "hello: 1\n")


def test_what_extends_itself_is_refused() -> None:
    one = parse_yaml("family: one\nextends: two\n", "one.yaml")
    two = parse_yaml("family: two\nextends: one\n", "two.yaml")
    with pytest.raises(RuleError, match="extends itself"):
        read_families([one, two])


def test_a_family_inherits_and_overrides() -> None:
    base = parse_yaml("family: one\nrecognise: [a]\nfacts: {x: {value: 1}, y: {value: 2}}\n", "one.yaml")
    more = parse_yaml("family: two\nextends: one\nfacts: {x: {value: 3}}\n", "two.yaml")
    two = read_families([base, more])[1]
    assert {name: rules[0].value for name, rules in two.facts.items()} == {"x": 3, "y": 2}
    assert two.recognise == ("a",)


VARIED = """family: one
model_types: [one]
recognise: [a]
facts: {x: {value: 1}, y: {value: 2}}
variants:
  two:
    model_types: [two]
    absent: [c]
    recognise: [a, b]
    facts: {x: {value: 3}}
examples:
  - {name: first, tensors: {}, expect: {}}
  - {name: second, of: two, tensors: {}, expect: {}}
"""


def test_a_variant_is_a_family_of_its_own_that_extends_that_of_its_file() -> None:
    one, two = read_families([parse_yaml(VARIED, "one.yaml")])
    assert (two.name, two.model_types, two.extends, two.line) == ("two", ("two",), "one", 6)
    assert {name: rules[0].value for name, rules in two.facts.items()} == {"x": 3, "y": 2}
    assert (one.recognise, two.recognise, one.absent, two.absent) == (("a",), ("a", "b"), (), ("c",))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    absent:", "    abcent:", r"one.yaml:8: variants.two.abcent: unknown field"),
        (
            "    absent: [c]",
            "    extends: three",
            r"one.yaml:8: variants.two.extends: .* already extends 'one'",
        ),
        ("  two:", "  one:", r"one.yaml:6: the family 'one' is already in one.yaml"),
    ],
)
def test_a_wrong_variant_is_refused_at_its_line(old: str, new: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        read_families([parse_yaml(VARIED.replace(old, new), "one.yaml")])


def test_an_example_is_of_its_file_or_of_the_variant_that_it_names(tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(VARIED)
    families = read_families([parse_yaml(VARIED, "one.yaml", path)])
    assert [[example.name for example in family.examples] for family in families] == [["first"], ["second"]]
    (one, _) = read_families([parse_yaml(VARIED.replace("of: two", "of: three"), "one.yaml", path)])
    with pytest.raises(RuleError, match=r"examples.1.of: 'three' is no variant here; there are one, two"):
        _ = one.examples


def test_a_key_is_explained_with_the_line_that_decided() -> None:
    found = explain_key("encoder.layer.0.attention.self.query.weight", Rulebook())
    assert (found.kind, found.role) == ("Linear", "tower.layers.attention.query")
    assert "vocabulary/attention.yaml:" in found.why


def test_a_checkpoint_is_explained_with_families_and_flows() -> None:
    rulebook = Rulebook()
    family = next(item for item in rulebook.families if item.name == "bert")
    found = explain_checkpoint(header(family.examples[0]), rulebook)
    assert [item.name for item in found.families if item.chosen] == ["bert"]
    by_type = {
        item.name for item in rulebook.families if item.by_type_only
    }  # the same names, told apart by their type
    others = [item for item in found.families if item.name not in {"bert", *by_type}]
    assert all(item.lacking or item.foreign for item in others)
    assert found.flows[0].flow == "root/base"


def test_every_kind_of_rule_is_listed() -> None:
    rows = list_rules(Rulebook())
    assert {row.kind for row in rows} == {"family", "flow", "vocabulary"}
    assert next(row.about for row in rows if row.name == "distilbert") == "distilbert"


def test_files_of_a_folder_are_checked_beside_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Checker, "stolen", lambda self, family: iter(()))  # every example of every family
    (tmp_path / "rules" / "families").mkdir(parents=True)
    (tmp_path / "rules" / "flows").mkdir()
    shipped = next(family for family in Rulebook().families if family.name == "distilbert").document.path
    text = shipped.read_text(encoding="utf-8")
    file = tmp_path / "mine.yaml"
    file.write_text(
        text.replace("family: distilbert", "family: mine", 1).replace("[distilbert]", "[mine]", 1)
    )
    bad = tmp_path / "rules" / "families" / "bad.yaml"
    bad.write_text("family: bad\nmodel_types: [bad]\nsource: [nowhere]\nrecognise: [xyzzy]\nexamples: []\n")
    found = check_rules(Rulebook([tmp_path / "rules"]), [file], folders=[tmp_path / "rules"])
    assert [check.name for check in found] == ["mine", "bad"]
    assert any("no example that matches" in problem for problem in found[1].problems)
    (alone,) = check_rules(Rulebook([tmp_path / "rules"]), [file])
    assert alone.name == "mine"
    twice = check_rules(Rulebook([tmp_path / "rules"]), [bad], folders=[tmp_path / "rules"])
    assert [check.name for check in twice] == ["bad"]


@pytest.mark.parametrize(
    ("call", "near"),
    [
        ("torch.real(x)", "F.relu"),
        ("F.gelu_new(x)", "F.gelu"),
        ("torch.sqr(x)", "torch.sqrt"),
        ("x.meen()", "mean"),
    ],
)
def test_what_cannot_be_called_is_said_with_what_can(tmp_path: Path, call: str, near: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(
        f"flow: layer/wrong\ndoc: a call that there is not\nneeds: [norm]\nforward: |\n  return norm({call})\n"
    )
    (found,) = check_rules(Rulebook(), [file])
    (problem,) = found.problems
    assert re.match(r".*wrong.yaml:\d+: ", problem) and f"near it: {near}" in problem
    assert "a function in mapper/operations/" in problem


def test_a_loser_is_said_once() -> None:
    rulebook = Rulebook()
    bert = next(item for item in rulebook.families if item.name == "bert")
    found = explain_checkpoint(header(bert.examples[0]), rulebook)
    assert any(leaf.lost for leaf in found.leaves)
    assert all(len(set(leaf.lost)) == len(leaf.lost) for leaf in found.leaves)
    lines = list(_leaf_lines(found.leaves, plain))
    lost = [line for line in lines if "lost: vocabulary/" in line]
    assert len(set(lost)) == len(lost)
    assert set(lost) == {f"  lost: {text}" for leaf in found.leaves for text in leaf.lost}
    assert any(re.fullmatch(r"  lost: \d+ that are said above", line) for line in lines)
