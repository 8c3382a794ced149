"""What a user or a file can cause; anything else that escapes is a bug."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapper.architecture import Architecture
    from mapper.weights.loading.load_report import LoadReport


class MapperError(Exception):
    """Base of every error that a user or a file can cause; the text is one line: what, where, what to do.

    What the text names is there for programs too: a `fact`, `at` which part ("" for the whole model), the
    `candidates` for its value, and the names of `tensors`; each is empty where there is none.
    """

    def __init__(
        self,
        *args: object,
        fact: str = "",
        at: str = "",
        candidates: Iterable[Any] = (),
        tensors: Iterable[str] = (),
    ) -> None:
        super().__init__(*args)
        self.fact = fact
        self.at = at
        self.candidates = tuple(candidates)
        self.tensors = tuple(tensors)

    def __str__(self) -> str:
        return in_python(self.in_command())

    def in_command(self) -> str:
        """The text as the command line says it, with `--set` where `str` says `hints=`."""
        return str(self.args[0]) if self.args else ""  # OSError's own prints an errno


class SourceError(MapperError):
    """The source cannot be found or reached, or lacks what was asked of it (weights, a config)."""


class MissingSourceError(SourceError, FileNotFoundError):
    """Nothing is at the path, or under the name, that was given."""


class OverwriteError(SourceError, FileExistsError):
    """Something stands where an output is to go, and may not be replaced."""


class FormatError(MapperError, ValueError):
    """A file is not what it claims to be, is cut short, or passes a limit of `mapper.limits`."""


class RuleError(MapperError):
    """A rule file breaks its schema; the text starts with `file:line`."""


class FlowError(RuleError):
    """The body of a flow does not parse, or breaks one of the three checks."""


class HintError(MapperError):
    """A value given by `--set` or `hints=` names no fact, or contradicts the checkpoint."""


class ArchitectureError(MapperError):
    """The checkpoint contradicts itself, or a fact that the model needs is unknown.

    `so_far` gives what was read until then, for a report; it stays with the process that read it.
    """

    so_far: Callable[[], Architecture] | None = None

    def __reduce__(self) -> Any:
        kept = {name: value for name, value in vars(self).items() if name != "so_far"}
        return type(self), self.args, kept


class DifferenceError(MapperError):
    """What was made was run beside what it was made from and computes something else, so it was not kept."""


class StructureError(MapperError, RuntimeError):
    """Two structures do not agree: `path` is the first offender, `report` all of them, one line each in the text."""

    def __init__(self, message: str, path: str = "", report: LoadReport | None = None, **named: Any) -> None:
        super().__init__(message, **named)
        self.path = path
        self.report = report

    def __reduce__(self) -> Any:
        return type(self), (*self.args, self.path, self.report), vars(self)


class UnsupportedLeaf(MapperError, TypeError):
    """A value that cannot be stored; `path` says which, as in `aux['opt']['hooks'][1]`."""

    def __init__(self, message: str, path: str = "", **named: Any) -> None:
        super().__init__(message, **named)
        self.path = path

    def __reduce__(self) -> Any:
        return type(self), (*self.args, self.path), vars(self)


class StructureUnavailable(MapperError):
    """A saved file holds states and no architecture: the model must be given."""


# An option of the command line where a text speaks of it. What `--set` gives ends at a space, or where its brackets do.
_BREAKS = " ._/,"
_NEAR = 24  # characters that a cut may take more, so as to break no word
_OPTION = re.compile(
    r"""(?<![^\s(])--(?:set\s(?P<facts>(?P<fact>[^\s=]+=(?:\[[^\]]*\]|[^\s;,)]+))(?:\s--set\s(?:[^\s=]+=(?:\[[^\]]*\]|[^\s;,)]+)))*)"""
    r"""|set\s(?P<name>[^\s=]+):(?=\s)|(?P<option>[a-z][a-z-]*))"""
)
_QUOTED = re.compile(
    r"(?<![^\s(])--set '(?P<fact>[^'=|\s]+)=(?P<value>[^'|]*)'"
)  # in quotes for a shell: one value, of several words
_FLAGS = ("overwrite", "follow-links", "values", "merge")


def in_python(text: str) -> str:
    """A text that speaks of the command line's options, as a caller in Python would write them.

    >>> in_python("attention.heads is unknown; say --set attention.heads=VALUE")
    'attention.heads is unknown; say hints={"attention.heads": VALUE}'
    """
    text = _QUOTED.sub(_as_hint, text) if "--set '" in text else text
    return _OPTION.sub(_as_keyword, text) if "--" in text else text


def _as_hint(found: re.Match[str]) -> str:
    return f"hints={{{json.dumps(found['fact'])}: {_literal(found['value'])}}}"


def _as_keyword(found: re.Match[str]) -> str:
    if found["facts"]:
        pairs = (given.split("=", 1) for given in found["facts"].split(" --set "))
        return "hints={" + ", ".join(f"{json.dumps(name)}: {_literal(value)}" for name, value in pairs) + "}"
    if found["name"]:
        return f"hints[{json.dumps(found['name'])}]:"
    word = found["option"].replace("-", "_")
    return f"{word}=True" if found["option"] in _FLAGS else f"{word}="


def _literal(value: str) -> str:
    """A value as Python writes it; `VALUE`, which stands for one, as it is."""
    if value == "VALUE":
        return value
    try:
        return repr(json.loads(value))
    except ValueError:
        return value if value[:1] in "'\"" else json.dumps(value)


def shorten(text: str, limit: int = 80) -> str:
    """`text` quoted as Python would, cut in the middle when longer than `limit` characters."""
    quoted = repr(text)
    if len(quoted) <= limit:
        return quoted
    half = (limit - 5) // 2
    return f"{quoted[:half]} ... {quoted[-half:]}"


def listed(items: list[str], limit: int = 5) -> str:
    """At most `limit` of the items, quoted, then how many more there are."""
    shown = ", ".join(shorten(item) for item in items[:limit])
    more = len(items) - limit
    return f"{shown} and {more} more" if more > 0 else shown


def joined(items: Sequence[str], limit: int | None = None) -> str:
    """`a`, `a and b`, `a, b and c`; of more than `limit`, `a, b, c and 4 more`; "" for none."""
    shown = list(items[:limit])
    more = len(items) - len(shown)
    last = f"{more} more" if more else shown.pop() if shown else ""
    return f"{', '.join(shown)} and {last}" if shown else last


def cut(text: str, limit: int) -> str:
    """`text`; if longer than `limit`, without its middle, cut between words or parts of a name where there are some near."""
    if len(text) <= limit:
        return text
    half = (limit - 5) // 2
    near = min(_NEAR, half // 2)
    left, right = text[:half], text[-half:]
    before = max(left.rfind(mark) for mark in _BREAKS)
    after = min((at for at in map(right.find, _BREAKS) if at >= 0), default=half)
    left = left[: before + 1].rstrip() if half - before <= near else left
    right = right[after:].lstrip() if after <= near else right
    return f"{left} ... {right}"
