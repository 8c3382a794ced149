"""Which roles are tables of vectors by number, by what the vocabulary calls them: a table looks like a map."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from mapper.naming.vocabulary import pattern_words
from mapper.rulebook.rulebook import Rulebook
from mapper.rulebook.vocabulary import Entry
from mapper.words import parts

TABLE = "Embedding"


def is_table(rulebook: Rulebook, block: str, role: str) -> bool:
    """Whether a role in a kind of block has names of tables, and none that is a map's."""
    entries = [entry for file in rulebook.vocabulary for entry in file.entries]
    tables = tuple(entry for entry in entries if entry.section == "kinds" and entry.target == TABLE)
    own = [entry for entry in entries if _is_of(entry, block, role)]
    if any(entry.kinds and TABLE not in entry.kinds for entry in own):
        return False
    return any(_is_called_so(pattern_words(name)[-1], tables) for entry in own for name in entry.names)


def _is_of(entry: Entry, block: str, role: str) -> bool:
    *outer, last = entry.target.split(".")
    return entry.section == "roles" and last == role and (not outer or outer[-1] == block)


@lru_cache(maxsize=1024)
def _is_called_so(word: str, tables: Sequence[Entry]) -> bool:
    own = parts(word)
    return any(
        word in entry.names or (own & {*entry.parts} and not own & {*entry.not_parts}) for entry in tables
    )
