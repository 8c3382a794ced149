"""Leaves by the block that they stand in, and what their shapes are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from mapper._dataclass import dataclass
from mapper.architecture import Leaf, Place

BlockPath = tuple[tuple[str, "tuple[int, ...] | None"], ...]
Shown = Iterator[tuple[Leaf, Leaf]]  # a leaf, and what it is made


def with_role(leaf: Leaf, block: BlockPath, role: str, why: str) -> Leaf:
    """A number that a map or its folder has as its name is no element of a list, nor is one that its pattern has named.

    `ffn.0`, `layers.{n}.1.norm`: behind the lists of the block that it stands in.
    """
    last, lists = len(leaf.place) - 1, sum(index is not None for _, index in block)
    numbers = [at for at, part in enumerate(leaf.place) if isinstance(part, tuple)]
    named = [at for at in numbers if at == last or (at in numbers[lists:] and len(leaf.place[at]) == 1)]
    kept = leaf.fixed if block == leaf.block else ()
    return replace(leaf, block=block, role=role, why=why, fixed=tuple(sorted({*kept, *named})))


@dataclass(frozen=True)
class Taken:
    """What a module is taken for that no word names."""

    block: BlockPath
    role: str
    why: str
    kind: str = ""  # where it is another than its shape says
    form: str = ""


def with_taken_roles(leaves: Iterable[Leaf], taken: Mapping[Place, Taken]) -> list[Leaf]:
    """The leaves; those that are taken for something have its role, and say why."""
    return [
        _taken(leaf, there) if leaf.role is None and (there := taken.get(leaf.place)) else leaf
        for leaf in leaves
    ]


def _taken(leaf: Leaf, there: Taken) -> Leaf:
    made = with_role(leaf, there.block, there.role, f"{leaf.why}; {there.why}")
    return replace(made, kind=there.kind or leaf.kind, form=there.form or leaf.form)


def grouped(leaves: Iterable[Leaf], key: Callable[[Leaf], BlockPath]) -> Iterator[list[Leaf]]:
    """The leaves with the same key together; those without one are nowhere."""
    groups: dict[BlockPath, list[Leaf]] = defaultdict(list)
    for leaf in leaves:
        if of := key(leaf):
            groups[of].append(leaf)
    yield from groups.values()


def in_block(leaf: Leaf, role: str) -> BlockPath:
    return leaf.block if leaf.block and leaf.block[-1][0].startswith(role) else ()


def layer_of(leaf: Leaf) -> BlockPath:
    """The innermost layer that a leaf stands in."""
    at = [at for at, (role, indices) in enumerate(leaf.block) if role == "layers" and indices is not None]
    return leaf.block[: at[-1] + 1] if at else ()


def is_outside(leaf: Leaf) -> bool:
    return all(indices is None for _, indices in leaf.block)


def weight_of(leaf: Leaf) -> tuple[int, ...]:
    return leaf.tensors["weight"].shape if "weight" in leaf.tensors else ()


def sides_of(leaf: Leaf) -> tuple[int, ...]:
    """What a map gives and takes: the shape of its weight, turned where it is stored so."""
    shape = weight_of(leaf)
    return shape[::-1] if leaf.is_transposed else shape
