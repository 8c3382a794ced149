"""The tensors of a checkpoint by their roles, one for each: fused maps as cuts, all maps as [out, in]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from mapper.checkpoint import TensorInfo
from mapper.errors import MapperError, listed, shorten
from mapper.rulebook.libraries import STYLES, library_namings
from mapper.rulebook.namings import NUMBER
from mapper.weights.comparing.pieces import Piece, cuts, turned
from mapper.weights.comparing.places import FUSED, Spot, fact, spots

if TYPE_CHECKING:
    from mapper.architecture import Architecture

ROTATED = ("query", "key", "query_norm", "key_norm")  # roles whose rows lie as the rotary pairs do
BIAS = "bias"


class Turn(NamedTuple):
    """Rows of each head that rotate together, to be laid otherwise."""

    head_dim: int
    dim: int  # of the rows of a head, those that rotate: the first
    style: str  # as they are to lie, one of STYLES

    def of(self, rows: Any) -> Any:
        """[heads * head_dim, ...], an array, with the first `dim` rows of each head as `style` has them."""
        import numpy as np

        heads = np.arange(rows.shape[0]).reshape(-1, self.head_dim)
        pairs = (2, self.dim // 2) if self.style == STYLES[1] else (self.dim // 2, 2)
        turned = heads[:, : self.dim].reshape(-1, *pairs).swapaxes(1, 2).reshape(-1, self.dim)
        return rows[np.concatenate((turned, heads[:, self.dim :]), 1).reshape(-1)]


@dataclass(frozen=True)
class Halves:
    """Rows whose second half is to lie before the first."""

    def of(self, rows: Any) -> Any:
        import numpy as np

        half = rows.shape[0] // 2
        return rows[np.r_[half : 2 * half, :half]]


class Where(NamedTuple):
    """What one tensor is in the model."""

    role: str  # role path of the leaf, with the indices of its lists
    tensor: str  # "weight", "bias"

    @property
    def pattern(self) -> str:
        return ".".join(NUMBER if word.isdigit() else word for word in self.role.split("."))

    @property
    def indices(self) -> tuple[str, ...]:
        return tuple(word for word in self.role.split(".") if word.isdigit())


@dataclass(frozen=True)
class Part:
    """A role's tensor as the source has it. Zeros have no path."""

    piece: Piece
    at: tuple[str, ...]  # the folder of its leaf, numbers as "*"
    turn: Turn | Halves | None = None

    @property
    def path(self) -> str:
        return self.piece.path

    @property
    def shape(self) -> tuple[int, ...]:
        return self.piece.shape

    @property
    def dtype(self) -> str:
        return self.piece.info.dtype

    @property
    def order(self) -> Sequence[int] | None:
        """Which rows of the source's tensor these are, one after the other; None: all as they stand."""
        if self.piece.cut is None and self.turn is None:
            return None
        import numpy as np

        rows = np.arange(self.piece.info.shape[0])
        if self.piece.cut:
            _, outer, middle, inner, first, last = self.piece.cut
            rows = rows.reshape(outer, middle, inner)[:, first:last].reshape(-1)
        return cast("Sequence[int]", self.turn.of(rows) if self.turn else rows)


def filled(pattern: str, indices: Iterable[str]) -> str:
    """A path with these for its `{n}`, one after the other."""
    for index in indices:
        pattern = pattern.replace(NUMBER, index, 1)
    return pattern


def zeros(like: Part) -> Part:
    """A bias for the map of this weight that adds nothing."""
    return Part(Piece("", TensorInfo(like.shape[:1], like.dtype)), like.at)


def parts_by_roles(architecture: Architecture) -> dict[Where, Part]:
    """By the roles of the reading, each as the namings have it."""
    tensors = architecture.checkpoint.tensors
    found = spots(architecture, {})
    _refuse_unknown(architecture, {spot.path for spot in found.values()})
    same = {role: other for naming in library_namings() for role, other in naming.same.items()}
    unused = dict(architecture.unused)
    parts: dict[Where, Part] = {}
    for spot in found.values():
        if spot.path in unused:
            continue
        for role, piece in _pieces(spot, tensors[spot.path], architecture):
            where = Where(".".join(_words(spot, role)), spot.tensor)
            other = same.get(where.role)
            if other:
                where = where._replace(role=other.role)
                piece = piece._replace(flipped=piece.flipped != other.transposed)
            parts[where] = Part(piece, spot.at)
    return parts


def _refuse_unknown(architecture: Architecture, known: set[str]) -> None:
    unused = dict(architecture.unused)
    unknown = [name for name in architecture.checkpoint.tensors if name not in known and name not in unused]
    if unknown:
        raise MapperError(
            f"{architecture.checkpoint.source}: the roles of {listed(unknown)} are not known, and names are given by "
            "roles; see mapper inspect",
            tensors=unknown,
        )


def _words(spot: Spot, role: str) -> Iterator[str]:
    """The role path of a leaf, word by word."""
    path, instance = spot.block
    if instance:
        raise MapperError(f"{shorten(spot.path)} is one of several of its role, which no naming tells apart")
    for item in path:
        yield from (item,) if isinstance(item, str) else (item[0], str(item[1]))
    yield role


def _pieces(spot: Spot, info: TensorInfo, architecture: Architecture) -> Iterator[tuple[str, Piece]]:
    """The roles in one tensor: its own, or those of the maps that are fused in it."""
    roles = FUSED.get(spot.role)
    flipped = spot.is_flipped and len(info.shape) == 2
    if roles is None:
        yield spot.role, Piece(spot.path, info, flipped)
        return
    total = (turned(info.shape) if flipped else info.shape)[0]
    made = cuts(spot, _rows(spot, roles, total, architecture), total, architecture)
    if not made:
        raise MapperError(f"how {' and '.join(roles)} lie in {shorten(spot.path)} is not known")
    for cut in made:
        yield cut.part, Piece(spot.path, info, flipped, cut)


def _rows(spot: Spot, roles: tuple[str, ...], total: int, architecture: Architecture) -> Mapping[str, int]:
    """How many rows of a fused map are each role's."""
    if "query" not in roles:
        return dict.fromkeys(roles, total // len(roles))
    heads, kv_heads, size = (
        fact(architecture, f"attention.{name}", spot.at) for name in ("heads", "kv_heads", "head_dim")
    )
    if not all(isinstance(value, int) for value in (heads, kv_heads, size)):
        return {}
    return {role: (kv_heads if role in ("key", "value") else heads) * size for role in roles}


def turned_to(style: str, parts: Mapping[Where, Part], architecture: Architecture) -> dict[Where, Part]:
    """The parts with the rows of queries and keys as `style` has the pairs that rotate."""
    return {
        where: replace(part, turn=_turn(style, where, part, architecture))
        if where.role.rpartition(".")[2] in ROTATED
        else part
        for where, part in parts.items()
    }


def _turn(style: str, where: Where, part: Part, architecture: Architecture) -> Turn | None:
    def known(name: str) -> Any:
        return fact(architecture, name, part.at)

    if not known("attention.rotary") or known("rotary.style") in (None, style):
        return None
    head_dim, dim = known("attention.head_dim"), known("rotary.dim")
    sizes = isinstance(head_dim, int) and isinstance(dim, int) and not part.shape[0] % head_dim
    if known("rotary.style") not in STYLES or not sizes:
        raise MapperError(f"how the rotary pairs of {shorten(part.path)} lie is not known")
    return Turn(head_dim, dim, style)
