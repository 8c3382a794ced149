"""Several models in one checkpoint: which they are, and each by itself, its names as they are where it stands alone.

What a file with several models calls each of them is data: `rules/vocabulary/composites.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from mapper.checkpoint import Checkpoint
from mapper.errors import MissingSourceError, SourceError, listed, shorten
from mapper.rulebook.composites import NUMBER, WORD
from mapper.sources.files import MARK
from mapper.words import is_index

if TYPE_CHECKING:
    import torch

    from mapper.rulebook.composites import Composite, Composites
    from mapper.rulebook.rulebook import Rulebook


def parts_of(checkpoint: Checkpoint, rulebook: Rulebook) -> dict[str, Checkpoint]:
    """The models in a checkpoint by name, where these are several; of a pipeline whatever there is of it."""
    if checkpoint.part or checkpoint.document is not None:
        return {}
    parts = checkpoint.parts or _found(checkpoint, rulebook)
    return parts if checkpoint.parts or len(parts) > 1 else {}


def _found(checkpoint: Checkpoint, rulebook: Rulebook) -> dict[str, Checkpoint]:
    homes = _homes(checkpoint, rulebook.composites)
    return {part: _cut(checkpoint, part, prefix) for part, prefix in homes.items()}


def choose_part(checkpoint: Checkpoint, part: str, rulebook: Rulebook) -> Checkpoint:
    """The model `part` in a checkpoint, by its name or the beginning of its names. Raises SourceError for no such one."""
    if part in checkpoint.others:
        return replace(checkpoint.others[part], part=part)
    parts = checkpoint.parts or _found(checkpoint, rulebook) or checkpoint.others
    found = parts.get(part) or next((one for one in parts.values() if one.prefix == f"{part}."), None)
    if found is not None:
        return found
    there = f"it has {words_for(parts, rulebook)}" if parts else "it is one model, without parts"
    raise MissingSourceError(f"{checkpoint.source}: no part {shorten(part)} in it; {there}")


def refuse_whole(checkpoint: Checkpoint, parts: Mapping[str, Checkpoint], rulebook: Rulebook) -> NoReturn:
    """Raise SourceError for several models where one is needed."""
    first = next(iter(parts))
    raise SourceError(
        f"{checkpoint.source}: {count(parts)}, {words_for(parts, rulebook)}; name one, as in "
        f"{checkpoint.source}{MARK}{first}"
    )


def count(parts: Mapping[str, Checkpoint]) -> str:
    """`3 models`."""
    return f"{len(parts)} model{'s' if len(parts) > 1 else ''}"


def words_for(parts: Mapping[str, Checkpoint], rulebook: Rulebook) -> str:
    """`unet (a diffusion U-Net), vae (a VAE), text_encoder`."""
    from mapper.inference.called import called

    told = {name: called(part.tensors, rulebook) for name, part in parts.items()}
    return ", ".join(f"{name} ({what})" if what else name for name, what in told.items())


def _homes(checkpoint: Checkpoint, rules: Composites) -> dict[str, str]:
    """Part -> the beginning of its names, with the dot."""
    tables = checkpoint.tables
    if len(tables) > 1 and not all(_is_of_one(table, rules.together) for table in tables):
        return {table: f"{table}." for table in tables}
    names = "\n".join(("", *checkpoint.tensors))  # one text: most of many names have nothing of the kind
    for kind in rules.kinds:
        if all(any(f"\n{one}." in names for one in either) for either in kind.needs):
            found = _prefixes(checkpoint.tensors, kind)
            if all(
                any(_begins(prefix, one) for prefix in found.values() for one in either)
                for either in kind.needs
            ):
                return found
    return {}


def _is_of_one(table: str, together: frozenset[str]) -> bool:
    """Whether a table of a training file has a name as parts of one model have: `encoder`, `encoder_2`, `text_encoder`."""
    words = table.lower().replace("-", "_").split("_")
    return any(word.rstrip("0123456789") in together for word in words)


def _begins(prefix: str, beginning: str) -> bool:
    return prefix.startswith(f"{beginning}.")


def _prefixes(names: Iterable[str], kind: Composite) -> dict[str, str]:
    """Part -> the first of its beginnings that occurs, parts in the order of the rule."""
    rows = [
        (part, at, beginning.split("."))
        for part, beginnings in kind.parts.items()
        for at, beginning in enumerate(beginnings)
    ]
    by_first: dict[str, list[tuple[str, int, list[str]]]] = {}
    for row in rows:
        by_first.setdefault(row[2][0], []).append(row)
    found: dict[str, tuple[int, str]] = {}
    for words in _begun(names, [pattern for _, _, pattern in rows]):
        for part, at, pattern in by_first.get(words[0], ()):
            if len(words) > len(pattern) and (bound := _bound(pattern, words)) is not None:
                named, prefix = _filled(part, bound), ".".join(words[: len(pattern)]) + "."
                if named not in found or at < found[named][0]:
                    found[named] = at, prefix
                break
    return _apart(found, list(kind.parts))


def _begun(names: Iterable[str], patterns: Sequence[list[str]]) -> Iterable[tuple[str, ...]]:
    """The beginnings of names that may be those of a part, each once: one word beyond the longest pattern is enough."""
    longest = max(map(len, patterns))
    heads = tuple({f"{'.'.join(pattern)}.".partition("{")[0] for pattern in patterns})
    return dict.fromkeys(
        tuple(name.split(".", longest + 1)[: longest + 1]) for name in names if name.startswith(heads)
    )


def _apart(found: Mapping[str, tuple[int, str]], order: list[str]) -> dict[str, str]:
    """Part -> its beginning, without those inside of which another part begins already."""
    taken: dict[str, str] = {}
    for part, (_, prefix) in sorted(found.items(), key=lambda item: _rank(item[0], order)):
        if not any(other.startswith(prefix) for other in taken.values()):
            taken[part] = prefix
    return taken


def _rank(part: str, order: list[str]) -> tuple[int, str]:
    return (order.index(part) if part in order else len(order)), part


def _bound(pattern: list[str], words: Sequence[str]) -> dict[str, str] | None:
    """What the marks of a beginning stand for in these words; None where it does not fit."""
    bound: dict[str, str] = {}
    for wanted, word in zip(pattern, words, strict=False):
        if wanted == WORD or (wanted == NUMBER and is_index(word)):
            bound[wanted] = word
        elif wanted != word:
            return None
    return bound


def _filled(part: str, bound: Mapping[str, str]) -> str:
    for mark, word in bound.items():
        part = part.replace(mark, word)
    return part


def _cut(checkpoint: Checkpoint, part: str, prefix: str) -> Checkpoint:
    """The tensors whose names begin with `prefix`, without it."""
    names = {name[len(prefix) :]: name for name in checkpoint.tensors if name.startswith(prefix)}
    read, where = checkpoint.read, checkpoint.where

    def cut_read(wanted: Iterable[str]) -> dict[str, torch.Tensor]:
        assert read is not None
        keys = {name: names[name] for name in wanted}
        found = read(keys.values())
        return {name: found[key] for name, key in keys.items()}

    return replace(
        checkpoint,
        source=f"{checkpoint.source}{MARK}{part}",
        part=part,
        prefix=prefix,
        tensors={name: checkpoint.tensors[key] for name, key in names.items()},
        packed={name: checkpoint.packed[key] for name, key in names.items() if key in checkpoint.packed},
        config=None,
        read=None if read is None else cut_read,
        where=lambda name: where(names.get(name, prefix + name)),
        weights=[],
        tables=(),
        others={},
        companions=None,
    )


def outside(checkpoint: Checkpoint, parts: Mapping[str, Checkpoint]) -> str:
    """What is in none of the parts, as a note; "" for nothing."""
    beginnings = tuple(part.prefix for part in parts.values())
    if not all(beginnings):  # folders: each is a part or has no weights
        return ""
    others = [name for name in checkpoint.tensors if not name.startswith(beginnings)]
    noun = "tensor" if len(others) == 1 else "tensors"
    return f"{len(others)} {noun} in none of its parts: {listed(others, 3)}" if others else ""
