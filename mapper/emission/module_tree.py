"""The module tree of a checkpoint: folders that mirror its names, and which of them become classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mapper.architecture import Architecture, Block, Leaf, Place
from mapper.checkpoint import FLOATS, TensorInfo
from mapper.errors import ArchitectureError, shorten
from mapper.flows.program import Program

Key = str | tuple[int, ...]
UNUSED = 10**9  # rank of what no statement refers to: it stands last


@dataclass(eq=False)
class Folder:
    """One folder of the names; `block` owns it (its forward), `methods` are blocks that live here without a folder of their own."""

    place: Place
    children: dict[Key, Folder | Leaf] = field(default_factory=dict)
    block: Block | None = None
    methods: list[Block] = field(default_factory=list)
    tower: str = ""  # role of the tower it belongs to
    rank: int = UNUSED
    unread: dict[int, dict[str, TensorInfo]] = field(default_factory=dict)  # of the root: `unread_below`
    wholes: dict[int, Leaf] = field(default_factory=dict)  # of the root: tensor by itself -> its module

    @property
    def is_list(self) -> bool:
        """Whether all children are numbers."""
        return bool(self.children) and all(isinstance(key, tuple) for key in self.children)

    @property
    def is_sequence(self) -> bool:
        """Whether the numbers run from 0 without a gap."""
        indices = sorted(index for key in self.children if isinstance(key, tuple) for index in key)
        return self.is_list and indices == list(range(len(indices)))

    @property
    def stem(self) -> str:
        """What stands before the numbers of all children, where these run from 0: `expert_`; else nothing."""
        stem = str(next(iter(self.children), "")).rstrip("0123456789")
        words = {f"{stem}{number}" for number in range(len(self.children))}
        return stem if len(words) > 1 and words == self.children.keys() else ""

    def elements(self) -> Folder | None:
        """Its numbered folders alone, where they run from 0 without a gap and only tensors stand beside them."""
        beside = [child for key, child in self.children.items() if not isinstance(key, tuple)]
        numbered: dict[str | tuple[int, ...], Folder | Leaf] = {
            key: child for key, child in self.children.items() if isinstance(key, tuple)
        }
        bare = all(isinstance(child, Leaf) and child.kind in ("Parameter", "Buffer") for child in beside)
        modules = all(isinstance(child, Folder) for child in numbered.values())
        listed = Folder(self.place, numbered, self.block, self.methods, self.tower, self.rank)
        return listed if bare and modules and listed.is_sequence else None

    def folders(self) -> Iterator[Folder]:
        """Every folder below and this one, the deepest first."""
        for child in self.children.values():
            if isinstance(child, Folder):
                yield from child.folders()
        yield self

    def has_parameters(self) -> bool:
        """Whether bare parameters or buffers stand directly in it."""
        return any(
            isinstance(child, Leaf) and child.kind in ("Parameter", "Buffer")
            for child in self.children.values()
        )

    def has_attribute(self, name: str) -> bool:
        """Whether a child or a method of its class has the name."""
        return name in self.children or any(block.role == name for block in self.methods)

    def find(self, place: Place) -> Folder:
        """The folder at a place below this one."""
        folder = self
        for part in place[len(self.place) :]:
            child = folder.children[part]
            if not isinstance(child, Folder):
                raise KeyError(str(place))
            folder = child
        return folder

    def at(self, place: Place) -> bool:
        """Whether there is a folder at that place."""
        try:
            self.find(place)
        except KeyError:
            return False
        return True


def module_tree(architecture: Architecture) -> Folder:
    """Folders and leaves of every tensor. Raises ArchitectureError where one name is both a tensor and a folder."""
    root = Folder(Place())
    above = {Place(leaf.place[:depth]) for leaf in architecture.leaves for depth in range(1, len(leaf.place))}
    root.unread, left = unread_below(
        [leaf for leaf in architecture.leaves if leaf.place in above], architecture
    )
    for leaf in architecture.leaves:
        if id(leaf) in left:
            continue
        for part in _parts(leaf) if leaf.place in above and id(leaf) not in root.unread else [leaf]:
            parent = _descend(root, Place(part.place[:-1]))
            key = part.place[-1] if part.place else ""
            if key in parent.children:
                raise _clash(part.place)
            parent.children[key] = part
            if part is not leaf:
                root.wholes[id(part)] = leaf
    return root


def unread_below(
    modules: list[Leaf], architecture: Architecture
) -> tuple[dict[int, dict[str, TensorInfo]], set[int]]:
    """Modules with tensors below that no forward reads, and nothing else: these by their names, and whose they are.

    Such a module stays what torch has, and holds them beside its own.
    """
    why = dict(architecture.unused)
    held: dict[int, dict[str, TensorInfo]] = {}
    left: set[int] = set()
    for module in modules if why else ():
        below = [
            leaf for leaf in architecture.leaves if leaf is not module and leaf.place.within(module.place)
        ]
        names = [leaf.place[len(module.place) :] for leaf in below]
        plain = all(
            leaf.tensors.keys() == {""}
            and leaf.tensors[""].dtype in FLOATS
            and all(isinstance(w, str) for w in name)
            for leaf, name in zip(below, names, strict=True)
        )
        if (
            "" not in module.tensors
            and plain
            and all(key in why for leaf in below for key in Leaf.keys(leaf))
        ):
            held[id(module)] = {
                ".".join(map(str, name)): leaf.tensors[""] for leaf, name in zip(below, names, strict=True)
            }
            left |= {id(leaf) for leaf in below}
    return held, left


def _parts(leaf: Leaf) -> list[Leaf]:
    """The tensors of a module that has modules below it, each by itself: no module of torch's own has both."""
    if "" in leaf.tensors:
        return [leaf]
    return [
        Leaf(leaf.place.child(*name.split(".")), "Parameter", {"": info}, leaf.why)
        for name, info in leaf.tensors.items()
    ]


def _descend(root: Folder, place: Place) -> Folder:
    folder = root
    for depth, part in enumerate(place):
        child = folder.children.get(part)
        if child is None:
            child = folder.children[part] = Folder(Place(place[: depth + 1]))
        elif isinstance(child, Leaf):
            raise _clash(child.place)
        folder = child
    return folder


def _clash(place: Place) -> ArchitectureError:
    name = shorten(place.first())
    return ArchitectureError(
        f"{name} is both a tensor and a folder of tensors: no module can hold both under one name"
    )


def assign_owners(root: Folder, program: Program) -> dict[int, Folder]:
    """For every block the folder whose class holds its forward, by the block's identity."""
    owners: dict[int, Folder] = {id(program.root.block): root}
    root.block = program.root.block
    used = {
        item for piece in program.pieces.values() for item in piece.used
    }  # by the block around it or further out
    _assign(program.root.block, root, root, owners, "", used & set(program.pieces))
    return owners


def _assign(
    block: Block, owner: Folder, root: Folder, owners: dict[int, Folder], tower: str, called: set[int]
) -> None:
    blocks = [item for value in block.roles.values() for item in _items(value) if isinstance(item, Block)]
    children = [item for item in blocks if id(item) in called]
    for other in blocks:
        if id(other) not in called:  # it may hold some that a flow further out calls
            _assign(other, owner, root, owners, tower or other.role, called)
    homes = [child.home for child in children]
    for child in children:
        inner = tower or child.role
        alone = (
            bool(child.roles) and homes.count(child.home) == 1
        )  # a part without leaves is a method of its user
        own = alone and child.home != owner.place and child.home.within(owner.place) and root.at(child.home)
        if own and _holds_others(child, blocks):  # its tensors alone make a class of the folder
            own = root.find(child.home).has_parameters()
        folder = root.find(child.home) if own else owner
        if own and folder.block is None:
            folder.block, folder.tower = child, inner
        else:
            folder = owner
            owner.methods.append(child)
        owners[id(child)] = folder
        _assign(child, folder, root, owners, inner, called)


def _holds_others(block: Block, beside: list[Block]) -> bool:
    """Whether blocks beside one without parts stand in its folder: as layers do before a convolution of the encoder."""
    has_parts = any(isinstance(item, Block) for value in block.roles.values() for item in _items(value))
    return not has_parts and any(
        other.home != block.home and other.home.within(block.home) for other in beside
    )


def _items(value: Leaf | Block | list[Block] | list[Leaf]) -> list[Leaf | Block]:
    return list(value) if isinstance(value, list) else [value]


def order_children(root: Folder, program: Program) -> None:
    """Children stand in the order in which the data passes them; what its own block does not use stands last."""
    ranks: dict[int, int] = {}
    blocks = {
        id(leaf): piece.block
        for piece in program.pieces.values()
        for value in piece.block.roles.values()
        for leaf in _items(value)
    }
    _rank(program.root.block, program, ranks, blocks)
    _order(root, ranks)


def _rank(block: Block, program: Program, ranks: dict[int, int], blocks: dict[int, Block]) -> None:
    for item in program.piece(block).used.values():
        if isinstance(item, Leaf):
            if blocks.get(id(item), block) is block:
                ranks.setdefault(id(item), len(ranks))
        elif item.flow is not None:
            _rank(item, program, ranks, blocks)


def _order(folder: Folder, ranks: dict[int, int]) -> int:
    placed: list[tuple[int, Key, Folder | Leaf]] = []
    for key, child in folder.children.items():
        rank = _order(child, ranks) if isinstance(child, Folder) else ranks.get(id(child), UNUSED)
        placed.append((rank, key, child))
    folder.rank = min((rank for rank, _, _ in placed), default=UNUSED)
    if folder.is_list:
        placed.sort(key=lambda item: item[1])
    elif stem := folder.stem:
        placed.sort(key=lambda item: int(str(item[1])[len(stem) :]))
    else:
        placed.sort(key=lambda item: item[0])
    folder.children = {key: child for _, key, child in placed}
    return folder.rank
