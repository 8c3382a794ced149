"""What `mapper rules check` finds in dropout files: types, fields and blocks that there are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from mapper.catalogue import published
from mapper.rulebook.dropout import KIND, DropoutRule, read_dropout
from mapper.rulebook.rulebook import Rulebook
from mapper.rulebook.strict import Document
from mapper.words import close_to

_TYPO = 0.85  # how alike a type is to a listed one that was meant: others are types that no family lists yet


def check_dropout(document: Document, rulebook: Rulebook) -> Iterator[str]:
    """What in a file means nothing: types that nobody knows, fields that a type has not, blocks that no flow has."""
    others = [
        other
        for other in rulebook.documents(KIND)
        if other.path != document.path and _folder(other) == _folder(document)
    ]
    taken = {name: other.label for other in others for name in read_dropout(other)}
    roles = _roles(rulebook)
    listed = {name for family in rulebook.families for name in family.model_types}
    for rule in {id(rule): rule for rule in read_dropout(document).values()}.values():
        problem = partial("{}:{}: {}".format, document.label)
        for name in rule.model_types:
            if name in taken:
                yield problem(rule.line, f"{name} is in {taken[name]} too")
            row = published.find(name)
            if row is None and name not in listed and (hint := _close(name, listed, _TYPO)):
                yield problem(rule.line, f"no family lists the type {name!r}{hint}")
            for line, field in _fields(rule) if row else ():
                if not field.startswith("/") and not _has(row, field.split(".")):
                    yield problem(line, f"a config of {name} has no field {field!r}")
        for place in rule.places:
            for word in (word for site in place.sites for word in site.words):
                if word not in roles:
                    yield problem(
                        place.line, f"{word!r} is no role and no topic of flows{_close(word, roles)}"
                    )


def _folder(document: Document) -> Path:
    return document.path.resolve().parent


def _fields(rule: DropoutRule) -> Iterator[tuple[int, str]]:
    yield from ((place.line, name) for place in rule.places for name in place.fields)
    yield from ((rule.line, name) for name in rule.unwritten)


def _has(row: published.Row | None, words: list[str]) -> bool:
    """Whether a published config class has a field, by the parts before it."""
    first, *rest = words
    if row is None or (not rest and first in row.known):
        return True
    part = row.parts.get(first)
    inside = row.fields.get(first)
    return bool(rest) and (
        _has(published.find(part.reader), rest) if part else isinstance(inside, dict) or first in row.known
    )


def _roles(rulebook: Rulebook) -> set[str]:
    """All words for blocks and leaves."""
    flows, entries = (
        rulebook.flows.everything(),
        (entry for file in rulebook.vocabulary for entry in file.entries),
    )
    return {
        *(word for flow in flows for word in (flow.name, flow.topic, *flow.roles)),
        *(word for entry in entries for word in entry.target.split(".")),
        *(
            word
            for family in rulebook.families
            for role in family.names.values()
            for word in str(role).split(".")
        ),
    }


def _close(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    found = close_to(word, known, alike=cutoff)
    return f"; did you mean {found[0]!r}?" if found else ""
