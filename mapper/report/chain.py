"""`--why`: the evidence for one fact."""

from __future__ import annotations

import json

from mapper.architecture import EVIDENCE, Architecture, Fact
from mapper.errors import HintError, shorten
from mapper.report.wording import printable
from mapper.words import close_to


def chain(architecture: Architecture, name: str) -> str:
    """One paragraph for each scope in which the fact holds: what won, then what else spoke, strongest first."""
    scope, colon, bare = name.rpartition(":")
    found = [fact for fact in architecture.facts if fact.name == bare and (not colon or scope in fact.at)]
    if not found:
        raise HintError(_unknown(architecture, name), fact=bare, at=scope)
    return "\n".join(line for fact in found for line in _lines(fact, architecture.lost))


def _lines(fact: Fact, lost: list[Fact]) -> list[str]:
    where = f" at {printable(fact.at)}" if fact.at else ""
    won = (fact.name, fact.at, fact.value)  # two blocks of one place may have two values
    others = [other for other in lost if (other.name, other.at, other.against) == won]
    others.sort(key=lambda other: EVIDENCE.index(other.evidence))
    said = (f"  lost: {value_text(other.value)}, {other.evidence}: {_origin(other)}" for other in others)
    return [
        f"{printable(fact.name)} = {value_text(fact.value)}{where}",
        f"  {fact.known_from}: {_origin(fact)}",
        *dict.fromkeys(said),
    ]


def _origin(fact: Fact) -> str:
    """The source with the line of the rule: `families/bert.yaml:12 (the paper's layers)`."""
    file = fact.rule.rpartition(":")[0]
    if not file:
        return printable(fact.source)
    if fact.source.startswith(file):
        return printable(fact.rule + fact.source[len(file) :])
    return f"{printable(fact.source)} ({printable(fact.rule)})"


def value_text(value: object) -> str:
    """A fact's value as JSON on one line, plain text without its quotes."""
    return printable(value if isinstance(value, str) else json.dumps(value))


def _unknown(architecture: Architecture, name: str) -> str:
    bare = name.rpartition(":")[2]
    missing = [str(question) for question in architecture.questions if question.fact == bare]
    missing += [text for text in architecture.missing if name in text]
    if missing:
        return printable(missing[0], limit=1_000)
    names = sorted({fact.name for fact in architecture.facts})
    close = close_to(name, names)
    advice = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(names) or 'no fact'}"
    return f"no fact {shorten(name)} was needed for {architecture.checkpoint.source}; {advice}"
