"""Models whose blocks a library arranges otherwise: the roles of their tensors by the names that a naming has for them."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from itertools import product, takewhile
from typing import TYPE_CHECKING, NamedTuple
from weakref import ref

from mapper.flows.arithmetic import evaluate, names
from mapper.rulebook.libraries import Entry, LibraryNaming, library_namings
from mapper.rulebook.namings import NUMBER
from mapper.rulebook.numbered import Template, starred
from mapper.weights.comparing.pieces import Cut, Piece
from mapper.weights.renaming.parts import BIAS, Halves, Part, Where, filled, parts_by_roles

if TYPE_CHECKING:
    from mapper.architecture import Architecture

_LONGEST = 64  # list of a model, longer than any whose length its names do not say

Parts = dict[Where, Part]
_READ: deque[tuple[ref[Architecture], Parts | None]] = deque(maxlen=2)  # a source and what it becomes


def parts_of(architecture: Architecture) -> Parts:
    """Every tensor of the model by its role. Raises MapperError for one whose role is not known."""
    return arranged_parts(architecture) or parts_by_roles(architecture)


def arranged_parts(architecture: Architecture) -> Parts | None:
    """The tensors by their roles; None where no naming reads this family, or a name is none of its."""
    for known, parts in _READ:
        if known() is architecture:
            return parts
    naming = next(
        (naming for naming in library_namings() if naming.reads and naming.reads == architecture.family), None
    )
    if naming is None:
        return None
    _READ.append((ref(architecture), _Reader(naming, architecture).parts()))
    return _READ[-1][1]


class _Read(NamedTuple):
    """What a name says."""

    name: str
    entry: Entry
    tensor: str
    indices: list[str]

    @property
    def roles(self) -> list[str]:
        return [filled(role, self.indices) for role in self.entry.roles]


class _Reader:
    """The names of one checkpoint, backwards through a naming."""

    def __init__(self, naming: LibraryNaming, architecture: Architecture):
        unused = dict(architecture.unused)
        tensors = architecture.checkpoint.tensors
        self.naming = naming
        self.names = [name for name in tensors if name not in unused]
        self.prefix = _folder_of(self.names)
        self.infos = {name: info for name, info in tensors.items() if name not in unused}
        self.lines: dict[str, list[tuple[Entry, str, Template]]] = {}
        for entry in naming.entries:
            for tensor, name in entry.every_name:
                self.lines.setdefault(name.starred, []).append((entry, tensor, name))

    @cached_property
    def unknown(self) -> list[str]:
        """Lengths of lists that only the names show."""
        return list(dict.fromkeys(name for _, length in self.naming.lists for name in names(length)))

    def parts(self) -> Parts | None:
        """By the least lengths with which every name has a line."""
        for lengths in product(range(1, _LONGEST), repeat=len(self.unknown)):
            if (found := self._with(dict(zip(self.unknown, lengths, strict=True)))) is not None:
                return found
        return None

    def _with(self, counts: Mapping[str, int]) -> Parts | None:
        below = dict(_below(self.naming, counts))
        found: list[_Read] = []
        for at, name in enumerate(self.names):
            read = self._read(name, counts, below)
            if read is None:
                self.names.insert(0, self.names.pop(at))  # the first to be asked the next time
                return None
            found.append(read)
        roles = {role for read in found for role in read.roles}
        return {where: part for read in found for where, part in self._parts(read, counts, roles)}

    def _read(self, name: str, counts: Mapping[str, int], below: Mapping[str, int]) -> _Read | None:
        inner = name.removeprefix(self.prefix)
        for entry, tensor, form in self.lines.get(starred(inner), ()):
            said = form.read(inner, counts, below)
            if said is not None:
                return _Read(name, entry, tensor, [str(said[number]) for number in entry.numbers])
        return None

    def _parts(
        self, read: _Read, counts: Mapping[str, int], roles: Collection[str]
    ) -> Iterator[tuple[Where, Part]]:
        """The parts in one tensor."""
        name, entry, tensor, indices = read
        info, is_map = self.infos[name], tensor != BIAS
        flipped = is_map and entry.transposed and len(info.shape) == 2
        whole = Piece(name, info, flipped, point=entry.kernel if is_map else 0)
        at = tuple("*" if word.isdigit() else word for word in name.split(".")[:-1])
        turn = Halves() if entry.is_swapped(indices, counts, roles) else None
        pieces = [whole] if len(entry.roles) == 1 else _pieces(entry, whole, self._columns(name, tensor))
        for role, piece in zip(read.roles, pieces, strict=True):
            yield Where(role, tensor), Part(piece, at, turn)

    def _columns(self, name: str, tensor: str) -> int:
        """Of the map that a tensor is, or is the bias of."""
        weight = self.infos.get(f"{name.removesuffix(BIAS)}weight" if tensor == BIAS else name)
        return weight.shape[1] if weight and len(weight.shape) > 1 else 1


def _folder_of(names: Collection[str]) -> str:
    """The folder that all names stand in, with the point behind it."""
    levels = zip(*(name.split(".")[:-1] for name in names), strict=False)
    shared = takewhile(lambda words: len(set(words)) == 1, levels)
    return "".join(f"{words[0]}." for words in shared)


def _pieces(entry: Entry, whole: Piece, columns: int) -> Iterator[Piece]:
    """A joined tensor role by role: equal parts, or as many rows as is said and for the last what is left."""
    total, each = whole.shape[0], len(entry.roles)
    sizes = [int(evaluate(size, {"columns": columns})) for size in entry.rows] or [total // each] * (each - 1)
    first = 0
    for role, size in zip(entry.roles, [*sizes, total - sum(sizes)], strict=True):
        yield whole._replace(cut=Cut(role, 1, total, 1, first, first + size))
        first += size


def _below(naming: LibraryNaming, counts: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """What the number of an element is smaller than, by the name that lines have for it."""
    for path, length in naming.lists:
        yield path.variables[-1], int(evaluate(length, counts))


class NoLength(NamedTuple):
    """Why a library has no names for the lists of a model."""

    why: str
    beginning: str  # of the role paths that have no place, numbers as `{n}`


def lengths_of(naming: LibraryNaming, roles: Collection[str]) -> dict[str, int] | NoLength:
    """The lengths of lists that names of a library rest on, from the role paths of a model."""
    known: dict[str, int] = {}
    for path, length in naming.lists:
        seen, list_of = _seen(path, roles), path.plain(NUMBER)
        if isinstance(length, ast.Name) and seen:
            known.setdefault(length.id, max(map(len, seen)))
        if not set(names(length)) <= known.keys():
            return NoLength(f"it has no {list_of}", "")
        wanted = set(range(int(evaluate(length, known))))
        if any(numbers != wanted for numbers in seen):
            return NoLength(f"{list_of} has {len(wanted)} elements there, and not everywhere here", list_of)
    return known


def _seen(path: Template, roles: Collection[str]) -> list[set[int]]:
    """The numbers of the elements of each list at a role path."""
    form = path.plain(NUMBER)
    groups: dict[tuple[str, ...], set[int]] = {}
    depth = form.count(".") + 1
    for role in roles:
        words = role.split(".")[:depth]
        if ".".join(NUMBER if word.isdigit() else word for word in words) == form:
            groups.setdefault(tuple(words[:-1]), set()).add(int(words[-1]))
    return list(groups.values())
