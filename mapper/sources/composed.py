"""Tensors of the model that another container keeps in several: gates beside their maps, keys beside their values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mapper.errors import FormatError, shorten
from mapper.rulebook.namings import NUMBER, Composition

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Composed:
    """One tensor of the model, and the names that the container has for its parts."""

    name: str
    parts: tuple[str, ...]
    rule: Composition

    def shape(self, shapes: list[tuple[int, ...]], file: str) -> tuple[int, ...]:
        """What the parts together have. Raises FormatError for parts that do not fit together."""
        axis, first = self.rule.axis, list(shapes[0])
        rests = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes if len(shape) > axis}
        unlike = self.rule.alternating and len(set(shapes)) > 1
        too_flat = self.rule.swapped and len(first) < 2
        if len(rests) != 1 or any(len(shape) <= axis for shape in shapes) or unlike or too_flat:
            seen = " and ".join(str(list(shape)) for shape in shapes)
            raise FormatError(
                f"{file}: the parts of {shorten(self.name)} have the shapes {seen}, which do not fit together"
            )
        first[axis] = sum(shape[axis] for shape in shapes)
        if self.rule.swapped:
            first[-2:] = first[:-3:-1]
        return (first[0] * first[1], *first[2:]) if self.rule.flat else tuple(first)

    def of(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        """The tensor that the parts are."""
        import torch

        axis = self.rule.axis
        if self.rule.alternating:
            whole = torch.stack(tensors, dim=axis + 1).flatten(axis, axis + 1)
        else:
            whole = torch.cat(tensors, dim=axis)
        whole = whole.mT if self.rule.swapped else whole
        return (whole.flatten(0, 1) if self.rule.flat else whole).contiguous()

    def part_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Of each of its parts, which are equal: `shape` is the whole's."""
        found = list(shape)
        if self.rule.swapped:
            found[-2:] = found[:-3:-1]
        found[self.rule.axis] //= len(self.parts)
        return tuple(found)

    def part(self, at: int, tensor: torch.Tensor) -> torch.Tensor:
        """One of its parts, which are equal."""
        axis, count = self.rule.axis, len(self.parts)
        tensor = tensor.mT if self.rule.swapped else tensor
        if self.rule.alternating:
            return tensor.unflatten(axis, (-1, count)).select(axis + 1, at)
        return tensor.chunk(count, dim=axis)[at]


def decompositions(rules: dict[str, Composition], name: str) -> Composed | None:
    """What a tensor of the model is put together of; None for one that stands alone, or whose first axis are two."""
    for target, rule in rules.items():
        number = _number(target, name)
        if number is not None and not rule.flat:
            return Composed(name, tuple(pattern.replace(NUMBER, number, 1) for pattern in rule.of), rule)
    return None


def compositions(rules: dict[str, Composition], names: set[str]) -> Iterator[Composed]:
    """What is put together of tensors with these names."""
    for target, rule in rules.items():
        numbers = {number for name in names if (number := _number(rule.of[0], name)) is not None}
        for number in sorted(numbers, key=lambda number: int(number or 0)):
            parts = tuple(pattern.replace(NUMBER, number, 1) for pattern in rule.of)
            if all(part in names for part in parts):
                yield Composed(target.replace(NUMBER, number, 1), parts, rule)


def _number(pattern: str, name: str) -> str | None:
    """The number that stands in a name where its pattern has any; None for a name of another pattern."""
    before, mark, after = pattern.partition(NUMBER)
    if not mark:
        return "" if name == pattern else None
    if not (name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after)):
        return None
    number = name[len(before) : len(name) - len(after)]
    return number if number.isascii() and number.isdigit() and len(number) < 10 else None
