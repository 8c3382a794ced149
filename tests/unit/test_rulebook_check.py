from __future__ import annotations

import re
from pathlib import Path

import pytest

from mapper.authoring import together
from mapper.authoring.check import Checker, check_rules
from mapper.authoring.explain import explain_checkpoint, explain_key, list_rules
from mapper.authoring.found import FileCheck
from mapper.authoring.together import check_all
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.cli.rules import _leaf_lines
from mapper.errors import RuleError
from mapper.report.style import plain
from mapper.rulebook.examples import expand, header, lone_files
from mapper.rulebook.family_file import read_families
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


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        (
            "projection_activation",
            "did you mean 'layer.projection_activation'",
        ),  # of a block, without its name
        ("attention.casual", "did you mean 'attention.causal'"),
        ("qqq", "no vocabulary declares it"),
    ],
)
def test_a_fact_that_nothing_reads_is_an_error(name: str, advice: str, tmp_path: Path) -> None:
    """It was taken in silence, and what it should say was asked for, or had another value."""
    found = checked(tmp_path, GOOD.replace("examples:", f"facts: {{{name}: {{value: true}}}}\nexamples:"))
    (line,) = [text for text in found.problems if "there is no fact" in text]
    assert f"mine.yaml:5: there is no fact {name!r}; {advice}" in line


def test_a_fact_of_its_own_may_help_to_define_another(tmp_path: Path) -> None:
    facts = "facts: {mine.step: {value: 2}, attention.heads: {expr: mine.step * 2}}\nexamples:"
    assert not any("no fact" in text for text in checked(tmp_path, GOOD.replace("examples:", facts)).problems)


def test_an_unknown_field_names_its_line_and_the_close_one(tmp_path: Path) -> None:
    found = checked(tmp_path, GOOD.replace("recognise:", "recognize:"))
    assert found.problems[0].partition("mine.yaml:")[2].startswith("3: ")
    assert "did you mean 'recognise'?" in found.problems[0]


def beside(tmp_path: Path, examples: str) -> list[FileCheck]:
    """What is found in a folder with a family and its examples beside it, asked for by the file of these."""
    own, _, _ = GOOD.partition("examples:")
    for folder, text in (("families", own), ("examples", examples)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.yaml").write_text(text)
    return check_rules(Rulebook([tmp_path]), [tmp_path / "examples" / "mine.yaml"])


def test_examples_beside_a_family_are_its_own_and_named_by_their_own_lines(tmp_path: Path) -> None:
    text = 'examples_of: mine\nexamples:\n  - name: one\n    tensors: {"a.weight": two}\n'
    (found,) = beside(tmp_path, text)
    assert (found.file, found.examples) == (f"{tmp_path}/families/mine.yaml", 1)
    assert any("examples/mine.yaml:3: 'a.weight' needs a shape" in problem for problem in found.problems)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("examples_of: yours\nexamples: []\n", "examples/mine.yaml:1: examples_of: .*is the family 'mine'"),
        ("examples_of: mine\nexamples:\n  - {name: one, of: it}\n", "examples/mine.yaml:3: .*unknown field 'of'"),
        ("examples_of: mine\nfacts: {}\n", "examples/mine.yaml:2: facts: unknown field"),
    ],
)  # fmt: skip
def test_a_mistake_beside_a_family_is_told_where_it_stands(tmp_path: Path, text: str, problem: str) -> None:
    (found,) = beside(tmp_path, text)
    assert any(re.search(problem, told) for told in found.problems)


def test_a_row_of_a_type_that_nobody_has_is_told(tmp_path: Path) -> None:
    text = GOOD.replace(
        "examples:", "types:\n  lama: {norm.eps: 0.5}\n  mine, llama: {norm.eps: 0.25}\nexamples:"
    )
    problems = checked(tmp_path, text).problems
    assert [problem.partition("types: ")[2] for problem in problems if "types: " in problem] == [
        "no family lists the model type 'lama', and no example names it"
    ]


def test_examples_without_a_family_are_told(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    file = tmp_path / "examples" / "mine.yaml"
    file.write_text("examples_of: mine\nexamples: []\n")
    assert list(lone_files([tmp_path])) == [str(file)]
    with pytest.raises(RuleError, match=r"mine\.yaml:1: no family beside it"):
        check_rules(Rulebook([tmp_path]), [file])


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


def test_a_family_that_extends_and_says_no_names_is_chosen_by_its_type_alone() -> None:
    base = parse_yaml("family: one\nrecognise: [a]\n", "one.yaml")
    alike = parse_yaml("family: two\nextends: one\n", "two.yaml")
    other = parse_yaml("family: three\nextends: one\nrecognise: [a, b]\n", "three.yaml")
    assert [family.by_type_only for family in read_families([base, alike, other])] == [False, True, False]


def test_a_family_is_in_one_file_alone() -> None:
    twice = [parse_yaml("family: one\nrecognise: [a]\n", f"{name}.yaml") for name in ("one", "two")]
    with pytest.raises(RuleError, match=r"two.yaml:1: the family 'one' is already in one.yaml"):
        read_families(twice)


def test_variants_of_old_are_refused_with_what_to_do() -> None:
    text = "family: one\nrecognise: [a]\nvariants: {two: {}}\n"
    with pytest.raises(RuleError, match=r"one.yaml:3: variants: each is a file of its own now, .*`extends`"):
        read_families([parse_yaml(text, "one.yaml")])


def test_a_key_is_explained_with_the_line_that_decided() -> None:
    found = explain_key("encoder.layer.0.attention.self.query.weight", Rulebook())
    assert (found.kind, found.role) == ("Linear", "tower.layers.attention.query")
    assert "vocabulary/attention.yaml:" in found.why


def test_a_chain_is_explained_though_no_file_has_its_flow() -> None:
    layers = {"conv1.weight": [4, 1, 3, 3], "conv2.weight": [4, 4, 3, 3]}
    found = explain_checkpoint(
        Checkpoint("m", "manifest", {key: TensorInfo(tuple(shape), "F32") for key, shape in layers.items()}),
        Rulebook(),
    )
    assert [(item.flow, item.file) for item in found.flows if item.flow] == [("root/chain", "")]


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
    assert found.flows[0].flow == "root/tower+pooler+base"


def test_every_kind_of_rule_is_listed() -> None:
    rows = list_rules(Rulebook())
    assert {row.kind for row in rows} == {"family", "flow", "vocabulary", "dropout"}
    assert next(row.about for row in rows if row.name == "distilbert") == "distilbert"


def test_files_of_a_folder_are_checked_beside_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checker, "stolen", lambda self, family: iter(()))  # every example of every family
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


def test_several_processes_find_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "_FEW", -1)  # files that are checked without further processes
    (tmp_path / "dropout").mkdir()
    (tmp_path / "dropout" / "bad.yaml").write_text("dropout: bad\nnowhere: 1\n")
    one, several = (check_all([tmp_path], False, processes, ("dropout",)) for processes in (1, 2))
    assert several == one
    assert any(file.problems for file in several)
