"""`mapper rules list --markdown`: every block with its slots and steps, every fact, role and operation, as a page."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mapper.operations.registry import operation_names, operation_signature, operation_source
from mapper.rulebook.facts import FactRule
from mapper.rulebook.flows import FlowRule
from mapper.rulebook.pages import SLOT

if TYPE_CHECKING:
    from mapper.rulebook.pages import Page
    from mapper.rulebook.rulebook import Rulebook

_LONG = 4  # names in a cell before it says how many more there are

_INTRODUCTION = """# What the rules hold

Written by `mapper rules list --markdown`: do not edit. How rules are read and written is said in [README.md](README.md).

- [Blocks](#blocks): what each kind of block computes, by steps and by flows that are written out
- [Facts](#facts): what is found out about a model, and where configs have it
- [Roles](#roles): what modules are to their block, and by which words
- [Operations](#operations): what flows call besides torch"""


def contents(rulebook: Rulebook) -> str:
    """The page. The same rules give the same text."""
    parts = [
        [_INTRODUCTION],
        ["## Blocks", *_blocks(rulebook)],
        ["## Facts", _facts(rulebook)],
        ["## Roles", _roles(rulebook)],
        ["## Operations", _operations()],
    ]
    return "\n\n".join(text for part in parts for text in part) + "\n"


# --------------------------------------------------------------------------------------------------------------- blocks
def _blocks(rulebook: Rulebook) -> Iterator[str]:
    topics: dict[str, list[FlowRule]] = {topic: [] for topic in rulebook.flows.spines}
    for rule in rulebook.flows.values():
        topics.setdefault(rule.topic, []).append(rule)
    for topic in sorted(topics):
        yield f"### {topic}"
        pages = rulebook.flows.pages(topic)
        yield from (_spine(page) for page in pages if page.topic == topic)
        yield from (f"Those of [{page.topic}](#{page.topic}), too." for page in pages if page.topic != topic)
        if topics[topic]:
            rows = [(f"`{_last(rule)}`", _needs(rule), _adds(rule)) for rule in topics[topic]]
            yield _table(("flow", "taken where", "what it is"), rows)


def _spine(page: Page) -> str:
    assert page.base is not None
    rows = []
    shown = next((slot.around for slot in page.slots if slot.around), "")
    for slot in page.slots:
        if slot.around != shown and slot.around:
            continue  # the same as around the first
        steps = sorted(slot.steps, key=lambda step: (-len(step.needs) - len(step.beside), -len(step.when)))
        for at, step in enumerate(steps):
            row = (f"`{slot.name}`" if at == 0 else "", f"`{_last(step)}`", _needs(step), _adds(step))
            rows.append(tuple(cell.replace(shown, SLOT) if slot.around else cell for cell in row))
    table = _table(("slot", "step", "taken where", "what it adds"), rows)
    return (
        f"{page.base.doc} ([{page.base.file}]({page.base.file})); of a slot's steps the upper wins\n\n{table}"
    )


def _last(rule: FlowRule) -> str:
    return rule.name.partition("/")[2]


def _adds(rule: FlowRule) -> str:
    """What it says of itself, and what its branches add."""
    return "; ".join(words for words in (rule.doc, *rule.words) if words)


def _needs(rule: FlowRule) -> str:
    """`query` and `key` are there; rotary is true."""
    beside = (" or ".join(f"`{path}`" for path in paths.split(" | ")) for paths in rule.beside)
    roles = ", ".join((*(f"`{role}`" for role in rule.needs), *beside))
    facts = ", ".join(f"{name}: {_either(values)}" for name, values in rule.when.items())
    by_name = "a family names it" if rule.by_name_only else ""
    return "; ".join(filter(None, (roles, facts, by_name)))


def _either(values: Iterable[Any]) -> str:
    return " or ".join(value if isinstance(value, str) else json.dumps(value) for value in values)


# ------------------------------------------------------------------------------------------------- facts, roles, operations
def _facts(rulebook: Rulebook) -> str:
    vocabulary = rulebook.config_vocabulary
    rows = []
    for name, rules in sorted(_everywhere(rulebook).items()):
        doc = next((rule.doc for rule in vocabulary.facts.get(name, ()) if rule.doc), "")
        doc = doc or next((rule.doc for rule in rules if rule.doc), "")
        fields = dict.fromkeys(field for rule in rules for field in rule.config)
        rows.append((f"`{name}`", doc, _some(f"`{field}`" for field in fields)))
    return _table(("fact", "what it is", "fields of configs"), rows)


def _everywhere(rulebook: Rulebook) -> Mapping[str, list[FactRule]]:
    """What is said of each fact, by the vocabulary first."""
    found: dict[str, list[FactRule]] = {}
    vocabulary = rulebook.config_vocabulary
    for table in (vocabulary.facts, vocabulary.unlisted, *(family.facts for family in rulebook.families)):
        for name, rules in table.items():
            found.setdefault(name, []).extend(rules)
    return found


def _roles(rulebook: Rulebook) -> str:
    words: dict[str, dict[str, None]] = {}
    for file in rulebook.vocabulary:
        for entry in file.entries:
            if entry.section in ("roles", "blocks", "lists"):
                words.setdefault(entry.target, {}).update(dict.fromkeys((*entry.names, *entry.parts)))
    rows = [(f"`{role}`", _some(f"`{name}`" for name in names)) for role, names in sorted(words.items())]
    return _table(("role", "names that mean it"), rows)


def _operations() -> str:
    rows = []
    for name in operation_names():
        signature = operation_signature(name)
        doc = ast.get_docstring(ast.parse(operation_source(name)).body[0]) or ""  # type: ignore[arg-type]
        rows.append((f"`{name}({', '.join(signature.parameters)})`", doc.partition("\n")[0], signature.topic))
    return _table(("operation", "what it computes", "file"), rows)


def _some(items: Iterable[str]) -> str:
    found = list(items)
    more = f" and {len(found) - _LONG} more" if len(found) > _LONG else ""
    return ", ".join(found[:_LONG]) + more


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
