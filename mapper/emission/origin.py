"""The last lines of a generated file: what it was read from besides the weights, and a digest that tells whether it was edited.

With them `mapper.save` can make the reading of such a model again and store it as data; to Python they are comments.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mapper.architecture import Architecture, Origin
from mapper.checkpoint import COUNTER, FLOATS
from mapper.emission.expressions import comment
from mapper.emission.printing import WIDTH
from mapper.emission.types import main_dtype

_LEAD = """\
# What this was read from besides the weights. While the file is as it was written, `mapper.save` stores the
# architecture of its models by it; once you have edited it, their weights alone.
"""
_DIGEST = re.compile(r"# sha256 of all above: ([0-9a-f]{16})\n\Z")
_HEADER = re.compile(r'"""(.*): written by mapper [^\s,]+(?:, rules ([0-9a-f]*))?\.\n')


@dataclass(frozen=True)
class Told:
    """What the last lines of a file say."""

    origin: Origin
    options: dict[str, bool] = field(default_factory=dict)  # those of `emit` that are on
    source: str = ""  # the checkpoint's name
    notes: tuple[str, ...] = ()
    prefix: str = ""  # of the names in a file of several models
    types: dict[str, list[str]] = field(
        default_factory=dict
    )  # dtype -> folded names that do not have the main one


def with_origin(text: str, architecture: Architecture, options: Mapping[str, bool]) -> str:
    """A file's text with its last lines."""
    whole = f"{text}\n\n{_LEAD}{_rows(_document(architecture, options))}"
    return f"{whole}# sha256 of all above: {_digest(whole)}\n"


def without_origin(text: str) -> str:
    """A file's text without its last lines: what it computes, whatever it was read from."""
    return text.rpartition(_LEAD)[0] or text


def is_unedited(text: str) -> bool:
    """Whether the text is what `with_origin` gave, to the character."""
    found = _DIGEST.search(text)
    return found is not None and _digest(text[: found.start()]) == found[1]


def is_of_graph(text: str) -> bool:
    """Whether mapper wrote the text from the operations of a graph, by no rules."""
    header = _HEADER.match(text)
    return header is not None and header[2] is None


def is_origin_there(text: str) -> bool:
    """Whether mapper wrote the text once."""
    return _LEAD.partition(".")[0] in text and _HEADER.match(text) is not None


def told_by(text: str) -> Told | None:
    """What the last lines of an unedited file say; None where there are none."""
    start, end = text.rfind(_LEAD), _DIGEST.search(text)
    header = _HEADER.match(text)
    if start < 0 or end is None or header is None:
        return None
    rows = text[start + len(_LEAD) : end.start()].splitlines()
    try:
        said = json.loads(" ".join(row.removeprefix("# ") for row in rows))
        origin = Origin(said.get("config"), said.get("hints", {}), said.get("families", True))
        options = {name: bool(said.get(name)) for name in ("cache", "hidden_states", "train")}
        source, notes = said.get("source", header[1]), tuple(said.get("notes", ()))
        return Told(origin, options, source, notes, said.get("prefix", ""), said.get("types", {}))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None


def apart_from_versions(text: str) -> str:
    """The text without what changes with any rule: the versions in its first line, and the digest."""
    return _DIGEST.sub("", _HEADER.sub(lambda found: f'"""{found[1]}\n', text, count=1))


def _document(architecture: Architecture, options: Mapping[str, bool]) -> dict[str, Any]:
    origin, checkpoint = architecture.origin, architecture.checkpoint
    said: dict[str, Any] = {"config": origin.config} if origin.config is not None else {}
    if origin.hints:
        said["hints"] = {name: _plain(value) for name, value in origin.hints.items()}
    if not origin.families:
        said["families"] = False
    said |= {name: True for name, chosen in options.items() if chosen}
    if comment(checkpoint.source) != checkpoint.source:
        said["source"] = checkpoint.source
    said |= {"types": types} if (types := _types(architecture)) else {}
    said |= {"prefix": checkpoint.prefix} if checkpoint.prefix else {}
    return said | ({"notes": list(checkpoint.notes)} if checkpoint.notes else {})


def _types(architecture: Architecture) -> dict[str, list[str]]:
    """The tensors of other floating-point types than the source gives them: of another one than most, counters."""
    found: dict[str, list[str]] = {}
    main = main_dtype(architecture)
    for leaf in architecture.leaves:
        for name, info in leaf.tensors.items():
            made = "I64" if name == COUNTER else main
            if info.dtype in FLOATS and info.dtype != made:
                found.setdefault(info.dtype, []).append(str(leaf.place.child(name) if name else leaf.place))
    return found


def _plain(value: Any) -> Any:
    """A hint as a file can hold it: what is said on a command line is text as well."""
    return value if isinstance(value, (str, int, float, list, dict)) else str(value)


def _rows(document: Mapping[str, Any]) -> str:
    """The document as comments, broken at single spaces."""
    text = json.dumps(document, default=str, sort_keys=True)
    rows = [""]
    for word in text.replace("  ", " \\u0020").replace("\x7f", "\\u007f").split(" "):
        if rows[-1] and len(rows[-1]) + 1 + len(word) > WIDTH - 2:
            rows.append("")
        rows[-1] += f" {word}" if rows[-1] else word
    return "".join(f"# {row}\n" for row in rows)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
