"""Where the tensors of a side stand in its model: the role and the block of each, however the file calls it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mapper.architecture import Architecture, Leaf, Place

# Maps that hold several, and the parts in the order in which they are stored one behind the other.
FUSED: Mapping[str, tuple[str, ...]] = {
    "qkv": ("query", "key", "value"),
    "gate_qkv": ("gate", "query", "key", "value"),
    "kv": ("key", "value"),
    "gate_up": ("gate", "up"),
}
_TENSORS = {
    "gamma": "weight",
    "scale": "weight",
    "beta": "bias",
    "": "weight",
}  # older names, and weights without a module

Key = tuple[Any, ...]  # blocks from the root with their indices, role, tensor


@dataclass(frozen=True)
class Spot:
    """One tensor in its model."""

    path: str
    block: Key  # with the instance of the role, where a role has several
    role: str
    tensor: str  # "weight", "bias"
    is_flipped: bool  # a map stored [in, out]
    at: tuple[str, ...]  # the folder of its leaf, numbers as "*"

    def beside(self, role: str) -> Key:
        """The key of another role's tensor of the same name in the same block."""
        return (self.block, role, self.tensor)

    @property
    def key(self) -> Key:
        return self.beside(self.role)


def spots(architecture: Architecture, paths: Mapping[str, str]) -> dict[Key, Spot]:
    """The tensors that have a role by their keys, without those whose key is another's too.

    `paths` has the paths of those that the architecture knows by other names.
    """
    found: dict[Key, Spot] = {}
    doubled: set[Key] = set()
    for leaf in architecture.leaves:
        for spot in _of_leaf(leaf, paths):
            if spot.key in found:
                doubled.add(spot.key)
            found[spot.key] = spot
    return {key: spot for key, spot in found.items() if key not in doubled}


def _of_leaf(leaf: Leaf, paths: Mapping[str, str]) -> Iterator[Spot]:
    """A spot for each tensor of each instance, the indices of its blocks counted as the numbers in its place are."""
    lists = [indices for _, indices in leaf.block if indices is not None]
    each, rest = divmod(leaf.place.instances, prod(map(len, lists)))
    if leaf.role is None or rest:
        return
    at = _starred(leaf.place)
    for count, path in enumerate(leaf.place.expand()):
        which, extra = divmod(count, each)
        block: Key = (_block(leaf, which), extra)
        for name in leaf.tensors:
            key = f"{path}.{name}" if name and path else name or path
            role, tensor = _named(leaf.role, name)
            yield Spot(
                paths.get(key, key), block, role, tensor, leaf.form == "transposed" and tensor != "bias", at
            )


def _named(role: str, tensor: str) -> tuple[str, str]:
    """A role and a tensor of it; a bias that is a role of its own is the bias of what it is added to."""
    if role.endswith("_bias") and tensor in ("", "bias"):
        return role.removesuffix("_bias"), "bias"
    return role, _TENSORS.get(tensor, tensor)


def _block(leaf: Leaf, which: int) -> Key:
    """The role path of one of the blocks that the leaf stands for."""
    found: list[Any] = []
    for role, indices in reversed(leaf.block):
        if indices is None:
            found.append(role)
        else:
            which, at = divmod(which, len(indices))
            found.append((role, indices[at]))
    return tuple(reversed(found))


def _starred(place: Place) -> tuple[str, ...]:
    return tuple(word if isinstance(word, str) else "*" for word in place)


def fact(architecture: Architecture, name: str, at: tuple[str, ...]) -> Any:
    """What is known of the block around a leaf; None where nothing is."""
    best: tuple[int, Any] = (-1, None)
    for item in architecture.facts:
        if item.name == name:
            scope = tuple(word for word in item.at.split(".") if word)
            wide = scope == ("*",) or not scope
            if (wide or at[: len(scope)] == scope) and best[0] < (0 if wide else len(scope)):
                best = (0 if wide else len(scope), item.value)
    return best[1]
