"""The proof of a naming: a checkpoint renamed there and back has the same names and the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mapper.errors import MapperError, joined, listed
from mapper.inference import infer
from mapper.rulebook.examples import Example, header, is_near_miss
from mapper.rulebook.libraries import STYLES
from mapper.sources.in_memory import open_tensors
from mapper.weights.renaming.arranged import parts_of
from mapper.weights.renaming.fitting import as_checkpoint, candidates_of, first_that_fits
from mapper.weights.renaming.parts import Where, turned_to
from mapper.weights.renaming.table import tensor_of

if TYPE_CHECKING:
    import torch

    from mapper.architecture import Architecture
    from mapper.checkpoint import Checkpoint
    from mapper.rulebook.libraries import LibraryNaming
    from mapper.rulebook.rulebook import Rulebook

FIELDS = ("family", "example", "name", "tensors", "config", "equal", "back", "hints")


def wrong_round_trips(naming: LibraryNaming, rulebook: Rulebook) -> Iterator[str]:
    """What is not as it was after each example's way there and back."""
    for said in naming.examples:
        if not isinstance(said, dict) or "back" not in said or not said.keys() <= set(FIELDS):
            yield f"{naming.file}: an example has back, and may have {joined(list(FIELDS))}"
            continue
        name = said.get("name", said.get("family", ""))
        try:
            yield from (
                f"{naming.file}: {name} there and back: {text}" for text in _wrong(naming, said, rulebook)
            )
        except MapperError as error:
            yield f"{naming.file}: {name} there and back: {error.in_command()}"


def _wrong(naming: LibraryNaming, said: dict[str, Any], rulebook: Rulebook) -> Iterator[str]:
    checkpoint = _with_numbers(header(_example(naming, said, rulebook)), said.get("equal", {}))
    first = infer(checkpoint, rulebook, hints=said.get("hints"))
    there, hints = _renamed(first, naming.label)
    second = infer(there, rulebook, hints=hints)
    yield from _other_numbers(first, second)
    back, _ = _renamed(second, said["back"])
    unused = {name for name, _ in first.unused}
    names = [name for name in checkpoint.tensors if name not in unused]
    if odd := sorted(set(names) ^ back.tensors.keys()):
        yield f"it has other names: {listed(odd)}"
        return
    before, after = _tensors(checkpoint, names), _tensors(back, names)
    for name in names:
        if before[name].dtype != after[name].dtype or not before[name].equal(after[name]):
            yield f"{name} is not what it was"


def _other_numbers(first: Architecture, second: Architecture) -> Iterator[str]:
    """Roles that have other numbers on the way, where the other reading has them too: turned back, it would not show."""
    ours, theirs = _by_role(first), _by_role(second)
    for where in ours.keys() & theirs.keys():
        if ours[where].shape != theirs[where].shape or not ours[where].equal(theirs[where]):
            yield f"the {where.tensor} of {where.role} has other numbers there"


def _by_role(architecture: Architecture) -> dict[Where, torch.Tensor]:
    """Each tensor by its role, all rotary pairs as halves."""
    read = architecture.checkpoint.read
    assert read is not None
    parts = turned_to(STYLES[0], parts_of(architecture), architecture)
    return {where: tensor_of(part, read) for where, part in parts.items()}


def _example(naming: LibraryNaming, said: dict[str, Any], rulebook: Rulebook) -> Example:
    """The header that stands here, or the example of a family that is named, or its first."""
    if "tensors" in said:
        return Example(said.get("name", ""), said["tensors"], said.get("config"), {}, naming.file, 0)
    for family in rulebook.families:
        if family.name == said.get("family"):
            for example in family.examples:
                if example.name == said.get("example", example.name) and not is_near_miss(example):
                    return example
    raise MapperError(f"there is no example {said.get('example', '')!r} of that family")


def _with_numbers(checkpoint: Checkpoint, equal: dict[str, str]) -> Checkpoint:
    """The same header over numbers, no two of them equal but where a tensor is `equal` to another."""
    import torch

    start, tensors = 0, {}
    for name, info in checkpoint.tensors.items():
        tensors[name] = torch.arange(start, start + info.size, dtype=torch.float32).view(info.shape)
        start += info.size
    tensors |= {name: tensors[other].clone() for name, other in equal.items()}
    made = open_tensors(tensors, checkpoint.source)
    made.config = checkpoint.config
    return made


def _renamed(architecture: Architecture, to: str) -> tuple[Checkpoint, dict[str, Any]]:
    found = first_that_fits(candidates_of(to), architecture)
    return as_checkpoint(found, architecture.checkpoint), found.hints


def _tensors(checkpoint: Checkpoint, names: list[str]) -> dict[str, torch.Tensor]:
    assert checkpoint.read is not None
    return checkpoint.read(names)
