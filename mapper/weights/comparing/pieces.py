"""Tensors and parts of them as two sides can be compared: maps as [out, in], and one map's part of a fused one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mapper.checkpoint import TensorInfo
from mapper.weights.comparing.places import FUSED, Spot, fact

if TYPE_CHECKING:
    from mapper.architecture import Architecture


class Cut(NamedTuple):
    """Some of the outputs of a fused map, which are (outer, middle, inner): `first` to `last` of the middle."""

    part: str  # "query"
    outer: int
    middle: int
    inner: int
    first: int
    last: int

    @property
    def rows(self) -> int:
        return self.outer * (self.last - self.first) * self.inner


class Piece(NamedTuple):
    """A tensor of one side, or a part of it."""

    path: str
    info: TensorInfo
    flipped: bool = False  # its first two dimensions are to be exchanged
    cut: Cut | None = None
    point: int = 0  # how many of its last extents are those of a kernel of one place: left out

    @property
    def shape(self) -> tuple[int, ...]:
        """As it is compared."""
        shape = turned(self.info.shape) if self.flipped else self.info.shape
        shape = shape[: len(shape) - self.point]
        return (self.cut.rows, *shape[1:]) if self.cut else shape

    def of(self, tensor: Any) -> Any:
        """This piece of the tensor at its path, as it is compared: a view where that can be."""
        if self.flipped:
            tensor = tensor.transpose(0, 1)
        if self.point:
            tensor = tensor.flatten(tensor.dim() - self.point - 1)
        if self.cut:
            _, outer, middle, inner, first, last = self.cut
            tensor = tensor.unflatten(0, (outer, middle, inner))[:, first:last].flatten(0, 2)
        return tensor


class Pair(NamedTuple):
    """Two pieces that are each other's."""

    a: Piece
    b: Piece

    @property
    def is_transposed(self) -> bool:
        return self.a.flipped != self.b.flipped

    @property
    def other_way(self) -> Pair:
        """The same with one side, no part of a map, the other way round."""
        if self.b.cut:
            return Pair(self.a._replace(flipped=not self.a.flipped), self.b)
        return Pair(self.a, self.b._replace(flipped=not self.b.flipped))

    def swapped(self) -> Pair:
        return Pair(self.b, self.a)


def is_cut(pair: Pair) -> bool:
    """Whether one of the two is a part of a tensor."""
    return bool(pair.a.cut or pair.b.cut)


def turned(shape: Sequence[int]) -> tuple[int, ...]:
    """[out, in] of [in, out]."""
    return (shape[1], shape[0], *shape[2:]) if len(shape) == 2 else tuple(shape)


def pair(a: Piece, b: Piece) -> Pair:
    """The two as they fit: as their readings say they are stored, else the other way round where that fits."""
    if a.flipped == b.flipped:
        a, b = a._replace(flipped=False), b._replace(flipped=False)
    made = Pair(a, b)
    if a.shape != b.shape and len(a.shape) == len(b.shape) == 2 and not a.cut and not b.cut:
        other = made.other_way
        return (
            other
            if other.a.shape == other.b.shape
            else Pair(*(side._replace(flipped=False) for side in made))
        )
    return made


def split(
    whole: Spot,
    parts: Mapping[str, Spot],
    tables: tuple[Mapping[str, TensorInfo], Mapping[str, TensorInfo]],
    architecture: Architecture,
) -> list[Pair]:
    """A fused map of the first table with the maps of the second, part by part; nothing where their sizes do not fit."""
    info = tables[0][whole.path]
    infos = {role: tables[1][spot.path] for role, spot in parts.items()}
    for flipped in _ways(info, whole.is_flipped):
        for parts_flipped in _ways(next(iter(infos.values())), next(iter(parts.values())).is_flipped):
            shapes = {
                role: turned(part.shape) if parts_flipped else part.shape for role, part in infos.items()
            }
            shape = turned(info.shape) if flipped else info.shape
            if not shape or any(not part or part[1:] != shape[1:] for part in shapes.values()):
                continue
            found = cuts(whole, {role: part[0] for role, part in shapes.items()}, shape[0], architecture)
            if found:
                return [
                    Pair(
                        Piece(whole.path, info, flipped, cut),
                        Piece(parts[cut.part].path, infos[cut.part], parts_flipped),
                    )
                    for cut in found
                ]
    return []


def _ways(info: TensorInfo, is_flipped: bool) -> tuple[bool, ...]:
    return (is_flipped, not is_flipped) if len(info.shape) == 2 else (False,)


def cuts(whole: Spot, rows: Mapping[str, int], total: int, architecture: Architecture) -> list[Cut]:
    """Where the parts stand in the fused map; an empty list where that is not known or does not fit."""
    if sum(rows.values()) != total or not all(rows.values()):
        return []
    layout = fact(architecture, "attention.fused", whole.at) if "qkv" in whole.role else None
    made = _blocked(whole, rows, layout, architecture)
    return made if {cut.part: cut.rows for cut in made} == dict(rows) else []


def _blocked(whole: Spot, rows: Mapping[str, int], layout: Any, architecture: Architecture) -> list[Cut]:
    total = sum(rows.values())
    if layout in (None, "concatenated"):
        order = FUSED[whole.role]
        if whole.role == "gate_up" and fact(architecture, "feed_forward.gate_last", whole.at):
            order = order[::-1]
        starts = [sum(rows[role] for role in order[:at]) for at in range(len(order))]
        return [Cut(role, 1, total, 1, at, at + rows[role]) for role, at in zip(order, starts, strict=True)]
    if whole.role != "qkv":
        return []
    if layout == "partitions":  # four of them, the value before the key
        return [
            Cut(role, 4, 3, total // 12, at, at + 1)
            for at, role in enumerate(("query", "value", "key"))
            if total % 12 == 0
        ]
    size = fact(architecture, "attention.head_dim", whole.at)
    if not isinstance(size, int) or size < 1 or rows["key"] % size or layout not in ("per_head", "grouped"):
        return []
    groups = rows["key"] // size
    middle = total // (groups * size)
    ends = (0, middle - 2, middle - 1, middle)
    return [Cut(role, groups, middle, size, ends[at], ends[at + 1]) for at, role in enumerate(FUSED["qkv"])]
