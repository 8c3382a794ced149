"""The strict YAML reader: what it refuses, and the lines it remembers."""

from __future__ import annotations

import pytest

from mapper.errors import RuleError
from mapper.limits import RULE_FILE_BYTES
from mapper.rulebook.strict import load_yaml, parse_yaml

REFUSED = {
    "a: 1\nb: 2\na: 3": "f.yaml:3: the key 'a' stands twice, first in line 1",
    "a: &x 1": "f.yaml:1: anchors (&) and aliases (*) are not allowed",
    "a: 1\nb: *a": "f.yaml:2: anchors (&) and aliases (*) are not allowed",
    "a: !!python/object/apply:os.system [ls]": "f.yaml:1: the tag",
    "a: on": "on is a truth value to some readers",
    "a: No": "No is a truth value to some readers",
    "a: True": "True is a truth value to some readers",
    "a: 1e-12": "write 1.0e-12",
    "a: 012": "octal",
    "a: 0x10": "quote it",
    "a: 2020-01-01": "quote it",
    "a: 12:30": "quote it",
    "a: 1_000": "text to some readers",
    "a: .nan": "no value that a rule may have",
    "---\na: 1\n---\nb: 1": "f.yaml:3: a second document",
    "? [a]\n: 1": "a key must be plain text",
    "a: [1\n": "not YAML",
    "a: \x01": "not YAML",
    "": "the file is empty",
    "a: " + "[" * 60 + "]" * 60: "nested more than 32 levels",
}


@pytest.mark.parametrize("text", REFUSED)
def test_surprises_are_refused_with_file_and_line(text):
    with pytest.raises(RuleError) as caught:
        parse_yaml(text, "f.yaml")
    assert REFUSED[text] in str(caught.value)
    assert str(caught.value).startswith("f.yaml:")
    assert "\n" not in str(caught.value)


def test_plain_values_keep_their_types():
    data = parse_yaml('a: [1, -2, 1.0e-12, 0.5, true, null, word, "on", {n}, -, 1.2.3]', "f.yaml").data
    assert data == {"a": [1, -2, 1e-12, 0.5, True, None, "word", "on", {"n": None}, "-", "1.2.3"]}


def test_keys_are_text_as_written():
    assert parse_yaml("on: 1\n2: 2\ntrue: 3", "f.yaml").data == {"on": 1, "2": 2, "true": 3}


def test_every_node_remembers_its_line():
    document = parse_yaml("# comment\na: [x,\n  z]\nb:\n  c: |\n    text\n", "f.yaml")
    assert [document.line("a"), document.line("a", 1), document.line("b", "c")] == [2, 3, 5]
    assert document.line("b", "missing") == 4
    assert str(document.error("wrong", "a", 1)) == "f.yaml:3: wrong"


def test_a_file_past_the_limit_is_refused(tmp_path):
    path = tmp_path / "big.yaml"
    path.write_bytes(b"#" * (RULE_FILE_BYTES + 1))
    with pytest.raises(RuleError, match="a rule file has at most"):
        load_yaml(path)


def test_bytes_that_are_no_text_are_refused_with_their_line(tmp_path):
    path = tmp_path / "bytes.yaml"
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(RuleError, match=r"bytes\.yaml:2: not UTF-8"):
        load_yaml(path)


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(RuleError, match="cannot be read"):
        load_yaml(tmp_path / "none.yaml")
