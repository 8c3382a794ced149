"""Finding, caching and replacing rule files."""

from __future__ import annotations

import pytest

from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.errors import RuleError
from mapper.inference import infer
from mapper.rulebook.rulebook import Rulebook, rule_files, rule_folders, rulebook_of

WORDS = "vocabulary: attention\nroles:\n  attention.query: [my_query]\n"


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(folder, text, name="vocabulary/attention.yaml"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_users_file_replaces_the_shipped_one_of_that_name(tmp_path):
    path = write(tmp_path / "config" / "mapper" / "rules", WORDS)
    assert path in rule_files("vocabulary")
    assert [file.name for file in rule_files("vocabulary")].count("attention.yaml") == 1


def test_a_given_folder_wins_over_the_users(tmp_path):
    write(tmp_path / "config" / "mapper" / "rules", WORDS)
    path = write(tmp_path / "given", WORDS)
    assert path in rule_files("vocabulary", [tmp_path / "given"])


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(RuleError, match="no such folder"):
        rule_folders([tmp_path / "none"])


def test_the_digest_changes_with_a_rule(tmp_path):
    write(tmp_path / "given", WORDS)
    before = Rulebook([tmp_path / "given"]).digest
    write(tmp_path / "given", WORDS.replace("my_query", "your_query"))
    assert Rulebook([tmp_path / "given"]).digest != before


def test_cached_documents_are_the_same(tmp_path):
    first = [(item.label, item.data, item.marks) for item in Rulebook().documents("vocabulary")]
    _ = Rulebook().vocabulary  # what is kept has been read, and holds no mistake
    assert list((tmp_path / "cache" / "mapper").glob("vocabulary-*.kept"))
    assert [(item.label, item.data, item.marks) for item in Rulebook().documents("vocabulary")] == first


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert Rulebook().vocabulary


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vocabulary: x\nrolls: {}\n", "x.yaml:2: rolls: unknown field 'rolls'; did you mean 'roles'?"),
        ("vocabulary: x\nkinds:\n  Linnear: [a]\n", "x.yaml:3: kinds.Linnear: 'Linnear' is no leaf kind"),
        ("vocabulary: x\nscope: lair\n", "x.yaml:2: scope: 'lair' is not one of"),
        ("vocabulary: x\nroles:\n  a.b:\n    - {kind: Linear}\n", "neither names nor parts"),
        ("vocabulary: x\nroles:\n  a.b: {names: [x]}\n", "expected a list of patterns"),
        ("vocabulary: x\nblock_kinds:\n  lair: [x]\n", "'lair' is no block kind"),
        ("vocabulary: x\nwords:\n  nrom: [x]\n", "words.nrom: unknown field 'nrom'; did you mean 'norm'?"),
    ],
)
def test_the_schema_of_a_vocabulary_is_strict(tmp_path, text, message):
    write(tmp_path / "given", text, "vocabulary/x.yaml")
    with pytest.raises(RuleError) as caught:
        Rulebook([tmp_path / "given"]).vocabulary
    assert message in str(caught.value)


FAMILY = "family: mine\nrecognise: [my_query]\nfacts: {attention.heads: {config: [my_heads]}}\nexamples:\n  - {name: one, tensors: {my_query: [2]}}\n"


def test_a_list_of_texts_in_a_family_is_named_where_it_holds_something_else(tmp_path):
    write(tmp_path / "given", FAMILY + "present_if: {use_bias: [3]}\n", "families/mine.yaml")
    with pytest.raises(RuleError, match=r"present_if\.use_bias: expected a text, or a list of texts"):
        Rulebook([tmp_path / "given"]).families


def test_a_cached_family_has_the_same_facts_and_examples(tmp_path):
    write(tmp_path / "given", FAMILY, "families/mine.yaml")
    first, second = (
        next(family for family in Rulebook([tmp_path / "given"]).families if family.name == "mine")
        for _ in range(2)
    )
    assert second.document.lacks == "examples" and first.document.lacks is None
    assert first.facts["attention.heads"] == second.facts["attention.heads"]
    assert first.examples == second.examples and first.examples[0].line == 5


@pytest.mark.parametrize(
    ("old", "new"), [("config: [my_heads]", "confg: [my_heads]"), ("name: one", "nam: one")]
)
def test_a_family_with_a_mistake_in_what_is_read_late_is_refused_each_time(tmp_path, old, new):
    write(tmp_path / "given", FAMILY.replace(old, new), "families/mine.yaml")
    for _ in range(2):
        with pytest.raises(RuleError, match=r"mine\.yaml:[35]"):
            Rulebook([tmp_path / "given"]).families


def test_a_flow_that_there_is_not_names_the_family_file(tmp_path):
    text = FAMILY.replace("facts:", "flows: {root: root/no_such}\nfacts:")
    write(tmp_path / "given", text, "families/mine.yaml")
    checkpoint = Checkpoint("x", "manifest", {"my_query": TensorInfo((2,), "F32")}, None)
    with pytest.raises(RuleError, match=r"mine\.yaml:3: there is no flow 'root/no_such'"):
        infer(checkpoint, Rulebook([tmp_path / "given"]))


def test_a_rule_set_is_read_again_only_where_a_file_has_changed(tmp_path):
    path = write(tmp_path / "given", FAMILY, "families/mine.yaml")
    first = rulebook_of([tmp_path / "given"])
    assert rulebook_of([tmp_path / "given"]) is first
    assert rulebook_of() is not first
    path.write_text(FAMILY.replace("my_heads", "their_heads"), encoding="utf-8")
    again = rulebook_of([tmp_path / "given"])
    mine = next(family for family in again.families if family.name == "mine")
    assert mine.facts["attention.heads"][0].config == ("their_heads",)
