"""What rules are found by says of each just what its file says, and reading those alone gives what reading all gives."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from mapper.errors import MapperError
from mapper.inference import infer
from mapper.naming.vocabulary import Vocabulary
from mapper.report import Report
from mapper.rulebook.examples import Example, header
from mapper.rulebook.index import Flows
from mapper.rulebook.pages import page_of, read_page
from mapper.rulebook.rulebook import Rulebook
from mapper.rulebook.vocabulary import Entry, KeptEntries, ends_of, read_vocabulary, vocabulary_of
from tests.shipped import RULEBOOK

LAZY = Rulebook()
# Seen and not repaired yet: without its type a question about VITS is of the tower, or of its embeddings alone.
KNOWN = {"vits"}
EXAMPLES = [
    family.examples[0] for family in RULEBOOK.families if family.examples and family.name not in KNOWN
][::24]


FAMILIES = LAZY.families


class Whole(Rulebook):
    """Has read every family before it looks for one."""

    family_entries = FAMILIES  # type: ignore[assignment]

    def note_all_families(self) -> None:
        """All are read as it is."""


WHOLE = Whole()


def test_an_entry_says_what_its_family_says() -> None:
    for entry, family in zip(LAZY.family_entries, FAMILIES, strict=True):
        assert entry.name == family.name
        assert tuple(entry.model_types) == family.model_types
        assert (entry.signs.recognise, entry.signs.absent) == (family.recognise, family.absent)
        assert {key: tuple(value) for key, value in entry.signs.shapes.items()} == family.recognise_shapes
        assert (entry.by_type_only, tuple(entry.towers)) == (family.by_type_only, tuple(family.towers))


def test_an_entry_of_a_flow_says_what_it_has_a_use_for() -> None:
    for name, rule in LAZY.flows.items():
        entry = LAZY.flows.entries[name]
        assert {*entry.needs, *entry.uses} == {*rule.roles, *rule.ignored}
        assert (rule.name, tuple(entry.needs), tuple(entry.without)) == (name, rule.stored, rule.without)
        assert entry.by_name_only == rule.by_name_only
        assert {fact: tuple(allowed) for fact, allowed in entry.when.items()} == rule.when
        assert entry.values == list(rule.values)


def read(example: Example, rulebook: Rulebook, typed: bool) -> object:
    checkpoint = header(example)
    if not typed and checkpoint.config:
        checkpoint = replace(checkpoint, config={**checkpoint.config, "model_type": "listed_by_nobody"})
    try:
        return json.loads(Report(infer(checkpoint, rulebook)).to_json())
    except MapperError as error:
        return str(error)


@pytest.mark.parametrize("typed", [True, False], ids=["listed", "unlisted"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.file.rpartition("/")[2])
def test_what_is_found_is_what_a_look_at_every_rule_finds(
    example: Example, typed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read(example, Rulebook(), typed)
    for among in ("with_use_for", "where"):
        monkeypatch.setattr(Flows, among, lambda flows, by: flows)
    assert read(example, WHOLE, typed) == found


def test_a_reading_decodes_few_of_the_files() -> None:
    rulebook = Rulebook()
    (example,) = next(entry for entry in FAMILIES if entry.name == "llama").examples[:1]
    assert infer(header(example), rulebook).family == "llama"
    decoded = {
        kind: [at for at, document in shelf._read.items() if "data" in vars(document)]
        for kind, shelf in rulebook.shelves.items()
    }
    assert len(decoded["families"]) == 1
    assert len(decoded["flows"]) < len(rulebook.flows) / 10


def test_what_was_made_of_a_file_is_what_the_file_says() -> None:
    _ = [RULEBOOK.shelves[kind].index for kind in ("flows", "vocabulary")]  # made now where nothing was kept
    pages = RULEBOOK.documents("flows")
    assert all(document.made is not None for document in pages)
    for document in pages:
        assert page_of(document) == read_page(
            document.data, document.label, lambda keys, of=document: of.line(*keys)
        )
    for document in RULEBOOK.documents("vocabulary"):
        if read := read_vocabulary(document):
            assert document.made is not None
            kept = vocabulary_of(document)
            assert (kept.name, kept.tensors, kept.block_kinds, kept.roles_of, kept.words) == (
                read.name, read.tensors, read.block_kinds, read.roles_of, read.words,
            )  # fmt: skip
            assert list(map(said, kept.entries)) == list(map(said, read.entries))
            plain = {section: list(tables) for section, tables in ends_of(read.entries).items()}
            assert kept.ends == plain


def test_an_entry_is_made_when_a_name_ends_as_it_does() -> None:
    files = Rulebook().vocabulary
    vocabulary = Vocabulary(files)
    (match, *_) = vocabulary.tries["roles"].matches(("attention", "q_lin"))
    assert (match.entry.target, match.length) == ("attention.query", 1)
    kept = [file.entries for file in files if isinstance(file.entries, KeptEntries)]
    assert len(kept) == len(files)
    assert 0 < sum(len(entries._made) for entries in kept) < sum(map(len, kept)) / 50


def said(entry: Entry) -> list[Any]:
    """What an entry says, and where it stands: in one that was kept the line is known, in another where to look for it."""
    plain = (field.name for field in fields(entry) if field.name not in ("document", "keys", "line"))
    return [entry.where, *(getattr(entry, name) for name in plain)]


def test_a_flow_that_steps_make_may_be_named_like_one_that_is_written_out():
    named = Rulebook().flows.named(["root/encoder_decoder+base"])
    there = {"encoder": True, "decoder": True}
    assert [rule.name for rule in named.with_use_for(there).where(lambda *_: True)] == list(named.names)
    assert not named.with_use_for({"encoder": True}) and "task" in named.facts()
