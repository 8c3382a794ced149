"""What rules call things is in the glossary: doc lines, names of facts, of operations and of topics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from mapper.operations import operation_names
from mapper.rulebook.rulebook import Rulebook

TOP = Path(__file__).resolve().parents[2]
GLOSSARY = (TOP / "docs" / "glossary.md").read_text(encoding="utf-8")
TERMS = re.findall(r"(?m)^- \*\*(.+?)\*\*: \S", GLOSSARY)
PLAIN = set(re.search(r"(?ms)^## Plain words.*?\n\n(.*?)\n\n", GLOSSARY)[1].replace("\n", " ").split(", "))  # type: ignore[index]

# Words of an older dialect, for which the field has others (the end of the glossary).
NOT_USED = re.compile(
    r"\b(turned|turns|sees|seen|visible|heard|hears|told|elected|weighed|weighs|probed|forgotten|bend|letters?|tubes?|"
    r"funnels|lent|lends|waves|placed|counted from where|summary|think|says? of|looks? for|behind)\b"
)


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


SINGLE = {word for term in TERMS for word in words(term)}


def is_said(name: str) -> bool:
    """Whether a word is one of the glossary's, in any ending, or a plain one."""
    known = name in SINGLE or name in PLAIN or name.isdigit()
    return known or any(len(word) > 3 and name.startswith(word.rstrip("es")) for word in SINGLE)


def has_term(doc: str) -> bool:
    said = f" {' '.join(words(doc))}"
    return any(f" {' '.join(words(term))}" in said for part in TERMS for term in part.split(", "))


def docs() -> Iterator[tuple[str, str]]:
    """Every doc line of flows, steps, pages and facts, by where it stands."""
    for path in sorted((TOP / "rules").rglob("*.yaml")):
        where = path.relative_to(TOP / "rules").as_posix()
        if where.startswith("flows/"):
            data = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
            yield from below(data, where)
    rulebook = Rulebook()
    vocabulary = rulebook.config_vocabulary
    for table in (vocabulary.facts, vocabulary.unlisted, *(family.own_facts for family in rulebook.families)):
        for name, rules in table.items():
            yield from ((name, rule.doc) for rule in rules if rule.doc)


def below(data: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(data, dict):
        if isinstance(data.get("doc"), str):
            yield where, data["doc"]
        if isinstance(data.get("forward"), str):
            yield from (
                (where, words) for words in re.findall(r'^ *"([^"]*)"$', data["forward"], re.MULTILINE)
            )
        for key, value in data.items():
            yield from below(value, f"{where} {key}")


def names() -> Iterator[str]:
    vocabulary = Rulebook().config_vocabulary
    yield from vocabulary.facts
    yield from operation_names()
    yield from {rule.topic for rule in Rulebook().flows.everything()}


def test_the_glossary_is_in_order_and_says_each_once():
    folded = [re.sub(r"[^a-z0-9]", "", term.lower()) for term in TERMS]
    assert folded == sorted(set(folded))


def test_doc_lines_are_in_the_words_of_the_glossary():
    lacking = [f"{where}: {doc}" for where, doc in docs() if not has_term(doc)]
    assert not lacking, f"{len(lacking)} without a term of docs/glossary.md: {lacking[:10]}"


def test_doc_lines_have_no_words_of_the_older_dialect():
    said = [f"{where}: {doc}" for where, doc in docs() if NOT_USED.search(doc)]
    assert not said, f"{len(said)}: {said[:10]}"


def test_names_of_flows_have_no_words_of_the_older_dialect():
    names = [rule.name for rule in Rulebook().flows.everything()]
    said = [name for name in names if NOT_USED.search(re.sub("[_/+]", " ", name))]
    assert names and not said


def test_names_are_made_of_words_of_the_glossary():
    every = sorted(set(names()))
    assert len(every) > 1_000
    split = {name: [word for word in re.split(r"[._]", name.lower()) if not is_said(word)] for name in every}
    unknown = {name: some for name, some in split.items() if some}
    assert not unknown, f"{unknown}: put them into docs/glossary.md, or take its words"
    assert not [name for name in every if NOT_USED.search(re.sub(r"[._]", " ", name))]


def test_a_fact_is_of_one_type_wherever_it_is_declared() -> None:
    """Two meanings of one name: what a hint may say of it would depend on the order of files."""
    config = Rulebook().config_vocabulary
    tables = [config.facts, config.unlisted, *(family.own_facts for family in Rulebook().families)]
    types: dict[str, set[str]] = {}
    for name, rules in ((name, table[name]) for table in tables for name in table):
        types.setdefault(name, set()).update(rule.type for rule in rules if rule.type)
    assert {name: said for name, said in types.items() if len(said) > 1} == {}


def test_what_a_flow_reads_is_declared_in_the_vocabulary() -> None:
    """A question is for types that no family lists, too: what only a family declares, no hint could answer there."""
    rulebook = Rulebook()
    own = {
        name
        for family in rulebook.families
        for name, rules in family.own_facts.items()
        if any(rule.type for rule in rules)
    }
    own -= rulebook.config_vocabulary.types.keys()
    read: set[str] = set()
    for rule in rulebook.flows.everything():
        shapes = (str(extent) for extents in rule.shapes.values() for extent in extents)
        names = {*re.findall(r"\bfact\.([a-z_0-9.]*[a-z_0-9])", rule.body), *rule.when}
        names |= {word for extent in shapes for word in re.findall(r"[a-z_][a-z_0-9.]*", extent)}
        read |= names  # short names aside: what they stand for is what is declared, and may be a family's own
    assert own & read == set()


def test_a_fact_of_all_families_is_defined_on_one_page() -> None:
    """Of two definitions one alone holds: a second page that has the name means something else by it."""
    pages: dict[str, list[str]] = {}
    for path in sorted((TOP / "rules" / "vocabulary").glob("config*.yaml")):
        for name in yaml.safe_load(path.read_text(encoding="utf-8")).get("facts") or ():
            pages.setdefault(name, []).append(path.name)
    assert {name: found for name, found in pages.items() if len(found) > 1} == {}


def test_what_a_branch_adds_begins_with_no_preposition() -> None:
    """The docstring puts `with` before all that the branches of a body add."""
    bodies = re.compile(r'^ *"((?:with|by) [^"]*)"$', re.MULTILINE)
    texts = {
        path.name: bodies.findall(path.read_text(encoding="utf-8"))
        for path in sorted((TOP / "rules" / "flows").rglob("*.yaml"))
    }
    assert {name: found for name, found in texts.items() if found} == {}
