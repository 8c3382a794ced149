"""Examples in rule files: a checkpoint's header written short, and what must be read from it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper.checkpoint import DTYPE_BYTES, Checkpoint, TensorInfo
from mapper.errors import RuleError, shorten
from mapper.rulebook.facts import fields_of
from mapper.rulebook.strict import Document, load_yaml

if TYPE_CHECKING:
    from mapper.rulebook.fields import Fields

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d{1,6})\.\.(\d{1,6})")
_NAMES = 100_000  # tensors in one example
FAMILIES, FOLDER = "families", "examples"  # folders beside each other
OF = "examples_of"  # the first field of a file in the second: its family


@dataclass(frozen=True)
class Example:
    """One checkpoint header in a rule file, and what must be read from it."""

    name: str
    tensors: dict[str, Any]  # name with brace lists -> shape
    config: dict[str, Any] | None
    expect: dict[str, Any]
    file: str
    line: int


def beside(document: Document) -> Document | None:
    """The examples of a family's file that stand beside it: `examples/llama.yaml` for `families/llama.yaml`."""
    path = path_beside(document.path)
    if path is None or not path.is_file():
        return None
    label, info = path_beside(Path(document.label)) or path, path.stat()
    return _parsed(path, label.as_posix(), info.st_size, info.st_mtime_ns)


@lru_cache(maxsize=2048)
def _parsed(path: Path, label: str, size: int, time: int) -> Document:
    """One file while its size and its time of writing are the same: each rule set of a process asks for hundreds."""
    return load_yaml(path, label)


def path_beside(path: Path) -> Path | None:
    """Where the examples of a family's file would stand; None for a file in no folder of families."""
    folders = path.parts[:-1]
    if FAMILIES not in folders:
        return None
    at = len(folders) - 1 - folders[::-1].index(FAMILIES)
    return Path(*folders[:at], FOLDER, *path.parts[at + 1 :])


def lone_files(folders: Iterable[Path]) -> Iterator[str]:
    """Files of examples in folders of rules beside which no family stands."""
    for folder in folders:
        for path in sorted((folder / FOLDER).rglob("*.yaml")):
            if not (folder / FAMILIES / path.relative_to(folder / FOLDER)).is_file():
                yield path.as_posix()


def read_examples(document: Document, family: Document) -> Iterator[Example]:
    """The examples in a family's file, or in the one beside it. Raises RuleError."""
    fields, first = fields_of(document), family.data["family"]
    if document.path != family.path:
        if fields.text(OF) != first:
            fields.fail(f"{family.label}, beside which it stands, is the family {first!r}", OF)
        fields.sequence(FOLDER)
        fields.done()
    for at, item in enumerate(fields.sequence(FOLDER)):
        yield _example(fields.inner(item, FOLDER, at))


def _example(fields: Fields) -> Example:
    config = fields.any("config")
    if config is not None and not isinstance(config, dict):
        fields.fail("expected a mapping", "config")
    example = Example(
        name=fields.text("name"),
        tensors=fields.mapping("tensors"),
        config=config,
        expect=fields.mapping("expect"),
        file=fields.file,
        line=fields.line(),
    )
    fields.done()
    return example


def expand(pattern: str) -> Iterator[str]:
    """The names that a pattern with brace lists stands for: `{q,k}_proj`, `layer.{0..2}`."""
    pieces = _BRACES.split(pattern)
    choices = [_choices(piece) if at % 2 else [piece] for at, piece in enumerate(pieces)]
    for words in product(*choices):
        yield "".join(words)


def _choices(inside: str) -> list[str]:
    found = _RANGE.fullmatch(inside)
    if found:
        return [str(number) for number in range(int(found[1]), int(found[2]) + 1)]
    return inside.split(",")


def header(example: Example) -> Checkpoint:
    """The checkpoint that an example describes. Raises RuleError."""
    tensors: dict[str, TensorInfo] = {}
    for pattern, entry in example.tensors.items():
        info = _info(entry)
        if info is None:
            raise RuleError(
                f"{example.file}:{example.line}: {shorten(pattern)} needs a shape such as [64, 64], or [64, 64, U8]"
            )
        for name in expand(pattern):
            tensors[name] = info
            if len(tensors) > _NAMES:
                raise RuleError(f"{example.file}:{example.line}: more than {_NAMES:,} tensors in one example")
    return Checkpoint(example.name, "manifest", tensors, example.config)


def _info(entry: Any) -> TensorInfo | None:
    """A shape, behind it a dtype where it is not F32."""
    extents: list[Any] = list(entry) if isinstance(entry, list) else [None]
    dtype = str(extents.pop()) if extents and extents[-1] in DTYPE_BYTES else "F32"
    if not all(type(extent) is int and extent >= 0 for extent in extents):
        return None
    return TensorInfo(tuple(extents), dtype)


def is_near_miss(example: Example) -> bool:
    return example.expect.get("match") is False
