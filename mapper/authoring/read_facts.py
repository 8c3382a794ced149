"""Which facts of families something reads: a misspelt name of one is a definition that nobody asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from mapper.rulebook.examples import FAMILIES
from mapper.rulebook.families import Family
from mapper.words import close_to

if TYPE_CHECKING:
    from mapper.rulebook.rulebook import Rulebook

_NAME = re.compile(r"[a-z_]\w*(?:\.[a-z_]\w*)*")
_FACT = re.compile(r"\bfact\.([a-z_]\w*(?:\.[a-z_]\w*)*)")
_PROSE = ("why", "doc", "config", "source", "examples")  # texts for people, and names of other things
_CHECKPOINTS = ("recognise", "requires", "optional", "names", "flows", "towers", "ignored")  # of families
_WORDS = ("roles", "blocks", "lists", "kinds", "children")  # of vocabularies: how checkpoints call things
_CODE = ("forward", "outputs")  # where facts are written fact.NAME, and other words are variables
_ROLES = ("needs", "options", "beside", "calls")
FLOWS, VOCABULARY = "flows", "vocabulary"


class _Readers(NamedTuple):
    """What rules read."""

    by: dict[str, set[str]]  # name -> the facts in whose definitions it stands; "" where it stands elsewhere
    blocks: set[str]  # roles that flows name
    full: set[str]  # every fact that a vocabulary or a family defines


_READ: WeakKeyDictionary[Rulebook, _Readers] = WeakKeyDictionary()


def unread_facts(family: Family, rulebook: Rulebook) -> Iterator[str]:
    """A line for each fact of a family that no vocabulary declares and nothing else reads."""
    declared = rulebook.config_vocabulary.types
    for name in family.own_facts:
        if name not in declared and not is_read(name, rulebook):
            line = family.document.line("facts", name)
            yield f"{family.document.label}:{line}: there is no fact {name!r}; {_advice(name, declared)}"


def _advice(name: str, declared: Mapping[str, str]) -> str:
    in_blocks = [other for other in declared if other.endswith(f".{name}")]
    close = in_blocks[:1] or close_to(name, declared)
    return f"did you mean {close[0]!r}?" if close else "no vocabulary declares it, and nothing reads it"


def is_read(name: str, rulebook: Rulebook) -> bool:
    """Whether another rule reads a fact: by its name, or by the end of it in a block that the rest names."""
    readers = _READ.get(rulebook)
    if readers is None:
        readers = _READ[rulebook] = _readers(rulebook)
    block, _, last = name.rpartition(".")
    if not block:  # a flow that says a word alone means the fact of its block, where there is one
        is_of_block = any(other.endswith(f".{name}") for other in readers.full)
        return not is_of_block and (name in readers.blocks or bool(readers.by.get(name, set()) - {name}))
    return bool(readers.by.get(name, set()) - {name}) or (
        block in readers.blocks and "" in readers.by.get(last, ())
    )


def _readers(rulebook: Rulebook) -> _Readers:
    found = _Readers({}, set(), set(rulebook.config_vocabulary.types))
    for kind in rulebook.kinds:
        for document in rulebook.documents(kind):
            data = document.data
            left = _CHECKPOINTS if kind == FAMILIES else _WORDS if kind == VOCABULARY else ()
            for owner, text in _texts(data if isinstance(data, Mapping) else {}, left):
                for word in _FACT.findall(text) if "fact." in text else _NAME.findall(text):
                    found.by.setdefault(word, set()).add(owner)
            if kind == FLOWS:
                found.blocks.update(_roles_in(data))
    found.full.update(name for family in rulebook.families for name in family.own_facts)
    return found


def _texts(data: Mapping[str, Any], left: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The texts of a rule file, but for `left`, that may read facts, each with the fact that it defines."""
    for key, value in data.items():
        if key == "facts" and isinstance(value, Mapping):
            yield from _texts_of_facts(value)
        elif key == "types" and isinstance(value, Mapping):
            for row in value.values():
                yield from _texts_of_facts(row if isinstance(row, Mapping) else {})
        elif key not in (*_PROSE, *left):
            yield from (("", text) for text in _words_in(value))


def _texts_of_facts(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, definition in facts.items():
        yield from ((str(name), text) for text in _words_in(definition))


def _words_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if key not in _PROSE:
                if "." in str(key) or not isinstance(
                    inner, Mapping
                ):  # a slot of a spine has a table of steps
                    yield str(key)
                yield from (text for text in _words_in(inner) if key not in _CODE or "fact." in text)
    elif isinstance(value, list):
        for inner in value:
            yield from _words_in(inner)


def _roles_in(value: Any) -> Iterator[str]:
    """The blocks that flows are of, and the words of roles that they name, also without numbers behind."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == "block" and isinstance(inner, str):
                yield inner
            elif key in _ROLES:
                words = (
                    word for path in _NAME.findall(" ".join(_words_in(inner))) for word in path.split(".")
                )
                yield from (each for word in words for each in (word, word.rstrip("0123456789_")))
            else:
                yield from _roles_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _roles_in(inner)
