"""Which roles are tables of vectors by number, by what the vocabulary calls them: a table looks like a map."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from weakref import WeakKeyDictionary

from mapper.naming.vocabulary import pattern_words
from mapper.rulebook.rulebook import Rulebook
from mapper.rulebook.vocabulary import Entry
from mapper.words import parts

TABLE = "Embedding"


_READ: WeakKeyDictionary[Rulebook, tuple[tuple[Entry, ...], dict[str, list[Entry]]]] = WeakKeyDictionary()


def is_table(rulebook: Rulebook, block: str, role: str) -> bool:
    """Whether a role in a kind of block has names of tables, and none that is a map's."""
    if rulebook not in _READ:
        _READ[rulebook] = _tables_and_roles(rulebook)
    tables, roles = _READ[rulebook]
    own = [entry for entry in roles.get(role, ()) if _is_in(entry, block)]
    if any(entry.kinds and TABLE not in entry.kinds for entry in own):
        return False
    return any(_is_called_so(pattern_words(name)[-1], tables) for entry in own for name in entry.names)


def _tables_and_roles(rulebook: Rulebook) -> tuple[tuple[Entry, ...], dict[str, list[Entry]]]:
    """The entries of a vocabulary that say what a table is called; those of roles by their last word."""
    tables: list[Entry] = []
    roles: dict[str, list[Entry]] = defaultdict(list)
    for entry in (entry for file in rulebook.vocabulary for entry in file.entries):
        if entry.section == "kinds" and entry.target == TABLE:
            tables.append(entry)
        elif entry.section == "roles":
            roles[entry.target.rpartition(".")[2]].append(entry)
    return tuple(tables), dict(roles)


def _is_in(entry: Entry, block: str) -> bool:
    outer = entry.target.split(".")[:-1]
    return not outer or outer[-1] == block


@lru_cache(maxsize=1024)
def _is_called_so(word: str, tables: Sequence[Entry]) -> bool:
    own = parts(word)
    return any(
        word in entry.names or (own & {*entry.parts} and not own & {*entry.not_parts}) for entry in tables
    )
