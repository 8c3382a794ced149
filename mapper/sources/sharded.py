"""Checkpoints of several files, held together by an index or by their numbers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from mapper import limits
from mapper.errors import FormatError, MissingSourceError, listed, shorten
from mapper.sources.documents import read_document
from mapper.sources.files import base_name
from mapper.sources.shards import Shard


def shard_names(index: dict[str, Any], name: str) -> dict[str, list[str]]:
    """The keys that the parsed index gives to each file, files in the order of their first key."""
    table = index.get("weight_map")
    if not isinstance(table, dict) or not table:
        raise FormatError(f"{name}: no 'weight_map', the table of tensor name to file")
    files: dict[str, list[str]] = {}
    for key, file in table.items():
        if not isinstance(file, str) or not is_inside(file):
            raise FormatError(
                f"{name}: tensor {shorten(key)} is said to be in {shorten(str(file))}, which is no "
                "file beside the index",
                tensors=[key],
            )
        files.setdefault(file, []).append(key)
    if len(files) > limits.SHARDS:
        raise FormatError(f"{name}: {len(files):,} shards, at most {limits.SHARDS:,} are read")
    return files


def is_inside(file: str) -> bool:
    """Whether `file` names something below the index's own directory, on any platform."""
    parts = file.split("/")
    return (
        file.isprintable()
        and not any(part in ("", ".", "..") for part in parts)
        and not any(mark in file for mark in "\\:")
    )


def read_index(path: str | Path) -> dict[str, list[str]]:
    """The keys that the index at `path` gives to each file beside it."""
    return shard_names(read_document(path, limits.HEADER_BYTES), base_name(path))


def open_index(
    path: str | Path, open_shard: Callable[[str], Shard], follow_links: bool = False
) -> list[Shard]:
    """The shards that the index at `path` lists, each checked against it."""
    name = base_name(path)
    directory = os.path.dirname(os.path.abspath(path))
    files = read_index(path)
    missing = [file for file in files if not os.path.lexists(os.path.join(directory, file))]
    if missing:
        raise MissingSourceError(
            f"{name}: {len(missing)} of {len(files)} shards are missing: {listed(missing)}; "
            "download them again"
        )
    shards = []
    for file, keys in files.items():
        refuse_escape(directory, file, name, follow_links)
        shard = open_shard(os.path.join(directory, file))
        check_against_index(shard, keys, name)
        shards.append(shard)
    return shards


def check_against_index(shard: Shard, keys: list[str], index: str) -> None:
    """Raise FormatError if the shard lacks a key of the index; note the keys that only the shard has."""
    absent = [key for key in keys if key not in shard.tensors]
    if absent:
        raise FormatError(
            f"{index}: {listed(absent)} should be in {shard.name}, which lacks "
            f"{'it' if len(absent) == 1 else 'them'}"
        )
    extra = len(shard.tensors) - len(keys)
    if extra:
        known = set(keys)
        extras = [key for key in shard.tensors if key not in known]
        shard.notes.append(f"{shard.name} has {extra} tensors that {index} does not list: {listed(extras)}")


def refuse_outside(directory: str, file: str, source: str, follow_links: bool = False) -> None:
    """Raise FormatError unless `file` names something below `directory`, and is no link out of it."""
    if not is_inside(file):
        raise FormatError(f"{source}: {shorten(file)} is no file beside it")
    refuse_escape(directory, file, source, follow_links)


def refuse_escape(directory: str, file: str, index: str, follow_links: bool = False) -> None:
    """Raise FormatError if `file` links out of `directory`; the links of a hub cache to its blobs do not.

    With `follow_links` the user has said that the links in this folder are theirs: nothing is refused.
    """
    if follow_links:
        return
    real = os.path.realpath(os.path.join(directory, file))
    allowed = [os.path.realpath(directory)]
    for parent in Path(allowed[0]).parents:
        if parent.name == "snapshots":  # the repository's blobs, and those that repositories share
            allowed += [str(parent.parent / "blobs"), str(parent.parent.parent / "blobs")]
            break
    if not any(os.path.commonpath([real, place]) == place for place in allowed):
        raise FormatError(
            f"{index}: {shorten(file)} is a link out of its directory; put the file itself there, or, if the links "
            "are yours, say --follow-links"
        )


def position(name: str) -> tuple[int, list[str]] | None:
    """Which of several shards a file of this name is, counted from 1, and the names of all of them in order."""
    found = _counted(name)
    if found is None or not 0 < int(found.number) <= int(found.last) <= limits.SHARDS:
        return None
    return int(found.number), [found.part(at) for at in range(1, int(found.last) + 1)]


class _Counted(NamedTuple):
    """The pieces of `x-00001-of-0000N.suffix`."""

    prefix: str
    number: str
    last: str
    suffix: str

    def part(self, number: int) -> str:
        return f"{self.prefix}-{number:0{len(self.number)}}-of-{self.last}{self.suffix}"


def _counted(name: str) -> _Counted | None:
    stem, suffix = os.path.splitext(name)
    head, dash, last = stem.rpartition("-of-")
    prefix, _, number = head.rpartition("-")
    if not dash or not (number.isdecimal() and last.isdecimal() and len(number) < 10 and len(last) < 10):
        return None
    return _Counted(prefix, number, last, suffix)


def numbered(names: list[str], source: str = "") -> list[str] | None:
    """`names` in order if they are exactly the parts `x-00001-of-0000N` of one checkpoint, else None.

    Raises MissingSourceError, with the `source` that they are of, if they are parts of one but some are missing.
    """
    parts: dict[int, str] = {}
    kinds: dict[tuple[str, str, int, str], _Counted] = {}
    for name in names:
        found = _counted(name)
        if found is None:
            return None
        kinds[found.prefix, found.suffix, len(found.number), found.last] = found
        parts[int(found.number)] = name
    if len(kinds) != 1 or len(parts) != len(names):
        return None
    (one,) = kinds.values()
    wanted = range(1, int(one.last) + 1)
    if not 0 < len(wanted) <= limits.SHARDS or not parts.keys() <= set(wanted):
        return None
    absent = [one.part(number) for number in wanted if number not in parts]
    if absent:
        raise MissingSourceError(
            f"{source}{': ' * bool(source)}{len(absent)} of {len(wanted)} shards are missing: {listed(absent)}; "
            "download them again"
        )
    return [parts[number] for number in wanted]
