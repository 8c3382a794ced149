"""The tensors of a checkpoint as another library has them: names, shapes, and how each is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mapper.checkpoint import Rows, Span, TensorInfo
from mapper.errors import MapperError, listed, shorten
from mapper.flows.arithmetic import evaluate
from mapper.report.wording import counted
from mapper.rulebook.libraries import LAYOUTS, Entry, LibraryNaming
from mapper.weights.comparing.pieces import turned
from mapper.weights.comparing.places import fact
from mapper.weights.renaming.arranged import NoLength, lengths_of
from mapper.weights.renaming.parts import BIAS, Halves, Part, Where, filled, turned_to, zeros

if TYPE_CHECKING:
    import torch

    from mapper.architecture import Architecture

    Read = Callable[[list[str]], Mapping[str, torch.Tensor]]


class NoPlace(MapperError):
    """A tensor of the model that a library has no name for."""


@dataclass(frozen=True)
class Made:
    """One tensor of the library, and the parts that it is made of."""

    parts: tuple[Part, ...]
    layout: str
    transposed: bool
    groups: tuple[int, int] = (0, 0)  # key/value heads and their size, by which some layouts join
    point: int = 0  # how many extents of one it has behind its own

    @property
    def info(self) -> TensorInfo:
        first = self.parts[0]
        shape = first.shape
        if len(self.parts) > 1:
            shape = (sum(part.shape[0] for part in self.parts), *shape[1:])
        return TensorInfo(self._shaped(turned(shape) if self.transposed else shape), first.dtype)

    def _shaped(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*shape, *(1 for _ in range(self.point)))

    @property
    def copied(self) -> str:
        """The tensor of the source whose bytes these are; "" where they must be made."""
        first = self.parts[0]
        flips = self.transposed and len(first.shape) == 2
        if len(self.parts) > 1 or first.piece.cut or first.turn or first.piece.flipped != flips:
            return ""
        return first.path

    def rows(self, where: Callable[[str], Span | None]) -> list[Rows]:
        """The rows of the source's files that it is; none where it is more than rows in another order."""
        if self.layout != LAYOUTS[0] or self.transposed or any(part.piece.flipped for part in self.parts):
            return []
        spans = [where(part.path) if part.path else None for part in self.parts]
        return (
            [
                Rows(span, part.piece.info.shape[0], part.order)
                for part, span in zip(self.parts, spans, strict=True)
                if span is not None and span.info == part.piece.info and part.shape
            ]
            if all(spans)
            else []
        )

    def of(self, read: Read) -> torch.Tensor:
        """The tensor itself, in memory of its own."""
        import torch

        tensors = [tensor_of(part, read) for part in self.parts]
        if len(tensors) > 1 and self.layout != LAYOUTS[0]:
            heads, size = self.groups
            grouped = torch.cat([tensor.unflatten(0, (heads, -1, size)) for tensor in tensors], 1)
            whole = grouped.flatten(0, 2)
        else:
            whole = torch.cat(tensors) if len(tensors) > 1 else tensors[0]
        whole = (whole.t() if self.transposed and whole.dim() == 2 else whole).contiguous()
        return whole.view(self._shaped(whole.shape))


def tensor_of(part: Part, read: Read) -> torch.Tensor:
    """A part as it is compared and joined."""
    import torch

    from mapper.sources.storage import torch_dtype

    if not part.path:
        return torch.zeros(part.shape, dtype=torch_dtype(part.dtype, ""))
    tensor: torch.Tensor = part.piece.of(read([part.path])[part.path])
    return part.turn.of(tensor) if part.turn else tensor


@dataclass
class Table:
    """All tensors of the library, by their names there."""

    made: dict[str, Made] = field(default_factory=dict)
    roles: dict[Where, str] = field(default_factory=dict)  # what is stored -> the name of its tensor
    notes: list[str] = field(default_factory=list)

    @property
    def stored(self) -> set[str]:
        """Role paths without indices, `.bias` behind those of biases."""
        found = set()
        for where in self.roles:
            path = ".".join(word for word in where.role.split(".") if not word.isdigit())
            found.add(f"{path}.{BIAS}" if where.tensor == BIAS else path)
        return found


def table_of(
    naming: LibraryNaming, parts: Mapping[Where, Part], architecture: Architecture, read: Read
) -> Table:
    """The tensors as `naming` has them. Raises NoPlace for what it has no name for."""
    return _Maker(naming, turned_to(naming.rotary, parts, architecture), architecture, read).table()


class _Maker:
    def __init__(
        self, naming: LibraryNaming, parts: Mapping[Where, Part], architecture: Architecture, read: Read
    ):
        self.naming, self.parts, self.architecture, self.read = naming, parts, architecture, read
        self.by_role = {role: entry for entry in naming.entries for role in entry.roles}
        self.found = Table()
        self.present = {where.role for where in parts}
        self.counts = self._counts()
        self.added: list[str] = []
        self.dropped: list[str] = []

    def _counts(self) -> dict[str, int]:
        found = lengths_of(self.naming, self.present)
        if isinstance(found, NoLength):
            without = [part.path for at, part in self.parts.items() if at.pattern.startswith(found.beginning)]
            raise NoPlace(f"{self.naming.label} has no place for it: {found.why}", tensors=without)
        return found

    def named(self, entry: Entry, where: Where) -> str:
        return entry.named(where.tensor, where.indices, self.counts, self.present)

    def table(self) -> Table:
        self._refuse_without_place()
        for where in self.parts:
            entry = self.by_role[where.pattern]
            if where.tensor in entry.tensors:
                self.enter(entry, where)
        for entry in self.naming.entries:
            self.stored_twice(entry)
        found, label = self.found, self.naming.label
        if self.added:
            found.notes.append(
                f"{counted(len(self.added), 'vector')} of zeros added as biases, which {label} always has"
            )
        if self.dropped:
            found.notes.append(
                f"{counted(len(self.dropped), 'bias vector')} of zeros left out, which {label} has not"
            )
        return found

    def _refuse_without_place(self) -> None:
        """Every part has a name, or is a bias that adds nothing."""
        missing = []
        for where, part in self.parts.items():
            entry = self.by_role.get(where.pattern)
            if entry and (where.tensor in entry.tensors):
                continue
            if entry and where.tensor == BIAS and not tensor_of(part, self.read).any():
                self.dropped.append(part.path)
            else:
                missing.append((where, part))
        if missing:
            where, part = missing[0]
            raise NoPlace(
                f"{self.naming.label} has no place for {listed([one.path for _, one in missing])}: the {where.tensor} of "
                f"{where.pattern}",
                tensors=[one.path for _, one in missing],
            )

    def enter(self, entry: Entry, where: Where) -> None:
        """The tensor that this part is in, and a bias that belongs to it."""
        name = self.named(entry, where)
        self.found.roles[where] = name
        if name in self.found.made:
            return
        if self._is_dropped(entry, where):
            del self.found.roles[where]
            self.found.notes.append(
                f"{shorten(self.parts[where].path)} is equal to {entry.drops} and not stored twice"
            )
            return
        other = entry.stores or entry.drops
        if entry.tied and not self._is_equal(where, other):
            raise NoPlace(
                f"{self.naming.label} has one tensor for {where.role} and {other}, which differ here"
            )
        self._make(name, entry, where)
        lacks = BIAS in entry.tensors and self._bias_of(entry, where) is None
        if lacks and self._needs_bias(entry, where):
            bias = where._replace(tensor=BIAS)
            self.added.append(self.named(entry, bias))
            self._make(self.named(entry, bias), entry, bias)

    def _needs_bias(self, entry: Entry, where: Where) -> bool:
        """Whether the library has a bias beside a weight, also where the model has none."""
        beside = entry.zeros_beside and _sibling(entry.zeros_beside, where, BIAS)
        return where.tensor != BIAS and (entry.zeros or (bool(beside) and beside in self.parts))

    def _bias_of(self, entry: Entry, where: Where) -> Where | None:
        biases = (_sibling(role, where, BIAS) for role in entry.roles)
        return next((bias for bias in biases if bias in self.parts), None)

    def _make(self, name: str, entry: Entry, where: Where) -> None:
        parts = [self._part(_sibling(role, where, where.tensor), name) for role in entry.roles]
        if len({part.dtype for part in parts}) > 1:
            raise NoPlace(f"{self.naming.label} has one tensor for {name}, which here are of several types")
        at = parts[0].at
        heads, size = (
            fact(self.architecture, f"attention.{one}", at) or 0 for one in ("kv_heads", "head_dim")
        )
        is_map = where.tensor != BIAS
        point = entry.kernel if is_map else 0
        self._refuse_extents(entry, where, parts)
        if entry.is_swapped(where.indices, self.counts, self.present):
            parts = [_swapped(part) for part in parts]
        flips = entry.transposed and is_map
        self.found.made[name] = Made(tuple(parts), entry.layout, flips, (heads, size), point)

    def _refuse_extents(self, entry: Entry, where: Where, parts: Sequence[Part]) -> None:
        """A convolution is no map, and joined parts have the sizes by which they are told apart again."""
        if entry.kernel and where.tensor != BIAS and len(parts[0].shape) != 2:
            raise NoPlace(f"{self.naming.label} has a map for {where.pattern}, which here is none")
        weight = self.parts.get(where._replace(tensor="weight"))
        columns = weight.shape[1:2] if weight else ()
        sizes = [evaluate(size, {"columns": columns[0]}) for size in entry.rows] if columns else []
        if any(part.shape[0] != size for part, size in zip(parts, sizes, strict=False)):
            raise NoPlace(f"{self.naming.label} has other sizes of what is one with {where.pattern}")

    def _part(self, where: Where, name: str) -> Part:
        part = self.parts.get(where)
        weight = self.parts.get(where._replace(tensor="weight"))
        if part is None and where.tensor == BIAS and weight is not None:
            return zeros(weight)
        if part is None:
            raise NoPlace(f"{self.naming.label} has {name} of several, and {where.role} is not in this model")
        return part

    def _is_dropped(self, entry: Entry, where: Where) -> bool:
        return bool(entry.drops) and self._is_equal(where, entry.drops)

    def _is_equal(self, where: Where, role: str) -> bool:
        other = self.parts.get(where._replace(role=role))
        if other is None or other.shape != self.parts[where].shape or other.dtype != self.parts[where].dtype:
            return False
        return bool(tensor_of(self.parts[where], self.read).equal(tensor_of(other, self.read)))

    def stored_twice(self, entry: Entry) -> None:
        """What the library stores a second time where the model has one tensor for both."""
        own, other = Where(entry.roles[0], "weight"), Where(entry.stores, "weight")
        if not entry.stores or own in self.parts or other not in self.parts:
            return
        name = self.named(entry, own)
        self.found.roles[own] = name
        self.found.made[name] = Made((self.parts[other],), entry.layout, entry.transposed)
        self.found.notes.append(
            f"{name} is stored, equal to {self.found.roles[other]}, as {self.naming.label} has it"
        )


def _sibling(role: str, where: Where, tensor: str) -> Where:
    """Another role of the same entry, with the indices of this one."""
    return Where(filled(role, where.indices), tensor)


def _swapped(part: Part) -> Part:
    """With the halves of its rows the other way round than they are."""
    return replace(part, turn=None if isinstance(part.turn, Halves) else Halves())
