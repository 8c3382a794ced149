"""Leaves with roles to the tree of blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mapper.architecture import Block, Leaf, Numbered, Place
from mapper.naming.vocabulary import Vocabulary

Step = tuple[str, "tuple[int, ...] | None"]


def build_blocks(leaves: Iterable[Leaf], vocabulary: Vocabulary) -> Block:
    """The root block: every leaf with a role is in the roles of its block, every block in those of the one around it."""
    root = _Draft(("root", None))
    for leaf in leaves:
        draft = root
        draft.leaves.append(leaf)
        for step in leaf.block:
            draft = draft.inner.setdefault(step, _Draft(step))
            draft.leaves.append(leaf)
        if leaf.role is not None:
            draft.own.append(leaf)
    block = root.block(vocabulary, ())
    block.home = Place()
    return block


class _Draft:
    """A block while its leaves are gathered."""

    def __init__(self, step: Step):
        self.step = step
        self.leaves: list[Leaf] = []  # all below
        self.own: list[Leaf] = []  # with a role in this block
        self.inner: dict[Step, _Draft] = {}

    def block(self, vocabulary: Vocabulary, path: Sequence[Step]) -> Block:
        role, indices = self.step
        block = Block(vocabulary.block_kind(role), role, self.home(path), indices)
        for leaf in self.own:
            _add(block, leaf.role or "", leaf, _is_element(leaf, path, block.home))
        for step, draft in self.inner.items():
            _add(block, step[0], draft.block(vocabulary, (*path, step)), step[1] is not None)
        return block

    def home(self, path: Sequence[Step]) -> Place:
        """The lowest common folder of the leaves; for an element of a list, the element; never a list of its own."""
        common = common_folder([leaf.place for leaf in self.leaves])
        end = _position(common, path) + 1
        if self.step[1] is not None:
            return Place(common[:end])
        own_lists = [
            indices
            for leaf in self.leaves
            for _, indices in leaf.block[len(path) :]
            if indices is not None and not isinstance(indices, Numbered)
        ]
        for at in range(end, len(common)):
            if common[at] in own_lists:
                return Place(common[: max(at - 1, end)])  # the folder of the numbers is the list itself
        return common


def common_folder(places: Sequence[Place]) -> Place:
    """The lowest folder that holds all of the leaves at these places."""
    shared = places[0][:-1] if places else ()
    for place in places[1:]:
        length = 0
        for one, other in zip(shared, place, strict=False):
            if one != other:
                break
            length += 1
        shared = shared[:length]
    return Place(shared)


def _position(place: Sequence[object], path: Sequence[Step]) -> int:
    """Where the indices of the last step stand in a place."""
    at = -1
    for _, indices in path:
        wanted = indices.word if isinstance(indices, Numbered) else indices
        if wanted is not None and wanted in place[at + 1 :]:
            at = list(place).index(wanted, at + 1)
    return at


def _is_element(leaf: Leaf, path: Sequence[Step], home: Place) -> bool:
    """Whether the leaf is one of several with its role: it stands in a list inside its block."""
    start = _position(leaf.place, path) + 1
    return any(
        isinstance(part, tuple) and at not in leaf.fixed and (len(part) > 1 or at >= len(home))
        for at, part in enumerate(leaf.place[start:], start)
    )


def _add(block: Block, role: str, item: Leaf | Block, is_element: bool) -> None:
    held = block.roles.get(role)
    if held is None:
        block.roles[role] = [item] if is_element else item  # type: ignore[assignment]
    elif isinstance(held, list):
        held.append(item)  # type: ignore[arg-type]
    else:
        block.roles[role] = [held, item]  # type: ignore[assignment]
