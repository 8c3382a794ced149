"""Leaves to roles: each path is read from its end, the longest pattern that fits decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from mapper._dataclass import dataclass
from mapper.architecture import Leaf, Numbered, Place
from mapper.limits import NAME_DEPTH
from mapper.naming.kinds import Found, find_leaves
from mapper.naming.numbered import named, numbered
from mapper.naming.towers import Folder, Towers
from mapper.naming.tree import NUMBER, Node
from mapper.naming.vocabulary import Match, Spot, Vocabulary, pattern_words

LAYERS = "layers"
BARE_NORM = "norm"  # of a word that says no more: `final_layer_norm.norm` is what its folder is called
Groups = dict[Place, list[tuple[int, ...]]]  # folder of a list -> its positions, those alike together


@dataclass(frozen=True)
class Step:
    """One step of a block path, and the folder where it was read."""

    role: str
    indices: tuple[int, ...] | None
    place: Folder  # for a list: its folder, without the index
    kind: str  # of the block
    in_folder: bool = True  # False: its leaves stand loose in a folder around it

    @property
    def is_layers(self) -> bool:
        return self.indices is not None and self.kind == "layer"


@dataclass
class Reading:
    """What was made of one leaf."""

    found: Found
    steps: tuple[Step, ...]
    role: str | None
    match: Match | None
    at_root: bool = False  # the role path starts at the root, whatever stands around it
    of_whole: bool = False  # even where it stands in the folder of one of several towers


def resolve(root: Node, vocabulary: Vocabulary, apart: Groups | None = None) -> list[Leaf]:
    """Every leaf of the tree, folded, with its kind and, where the vocabulary knows it, block and role.

    `apart`: elements of lists that are not folded into one, as equal as their tensors may be.
    """
    readings = read(root, vocabulary, apart or {})
    for _ in range(NAME_DEPTH):  # lists within lists: those that are split have others inside
        if not (crossing := crossing_elements(readings)):
            break
        apart = {**(apart or {}), **crossing}
        readings = read(root, vocabulary, apart)
    towers = Towers(readings, vocabulary)
    number_folders(readings, towers)
    placed = [(reading, towers.block(reading)) for reading in readings]
    taken = _taken(placed)
    leaves = []
    for reading, block in placed:
        role = reading.role
        if role is not None and _words(taken[block, role]) != _words(reading):
            role = None  # claimed by another leaf: elements of one list share a role, others do not
        leaves.append(_leaf(reading, block, role, vocabulary))
    return leaves


def _taken(placed: Iterable[tuple[Reading, object]]) -> dict[tuple[object, str | None], Reading]:
    """Who has each role of a block: the first that claims it, or of those that one entry names the nearest one.

    `output.LayerNorm` is the one beside the layer's folders before the one inside of `mixing.output.LayerNorm`.
    """
    taken: dict[tuple[object, str | None], Reading] = {}
    for reading, block in placed:
        first = taken.setdefault((block, reading.role), reading)
        by = first.match.entry if first.match else None
        is_by_same = by is not None and reading.match is not None and reading.match.entry is by
        if is_by_same and len(_words(reading)) < len(_words(first)):
            taken[block, reading.role] = reading
    return taken


def _words(reading: Reading) -> tuple[str, ...]:
    return tuple(part for part in reading.found.spot.place if isinstance(part, str))


def _around_layers(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps around a list of layers: of blocks those alone that stand in an element of other layers."""
    inside = next((at for at, step in enumerate(steps) if step.is_layers), len(steps))
    return tuple(step for at, step in enumerate(steps) if step.indices is not None or at > inside)


def number_folders(readings: list[Reading], towers: Towers) -> None:
    """Tells folders apart that have one role side by side, attention and attention_2, where no path from the root says."""
    numbers: dict[tuple[object, ...], dict[Folder, int]] = {}
    for reading in readings:
        steps: tuple[Step, ...] = ()
        tower = towers.tower(reading)
        for step in reading.steps:
            folders = numbers.setdefault((tower, steps, step.role), {})
            if step.indices is None and step.in_folder and not reading.of_whole:
                number = folders.setdefault(step.place, len(folders) + 1)
                step = replace(step, role=f"{step.role}_{number}") if number > 1 else step
            steps = (*steps, step)
        reading.steps = steps


def read(root: Node, vocabulary: Vocabulary, apart: Groups | None = None) -> list[Reading]:
    """Steps and role of every leaf, before towers."""
    reader = _Reader(vocabulary)
    return [
        reading
        for leaf in find_leaves(root, vocabulary)
        for part in parted(leaf, apart or {})
        for reading in _told_apart(part, reader, vocabulary)
    ]


def parted(found: Found, apart: Groups) -> Iterator[Found]:
    """The leaf, once for each group of elements that it stands for."""
    for at, part in enumerate(found.spot.place):
        groups = apart.get(Place(found.spot.place[:at])) if isinstance(part, tuple) else None
        inside = [group for group in groups or () if set(group) < set(part)]
        if inside:
            rest = tuple(
                index
                for index in part
                if isinstance(index, int) and not any(index in group for group in inside)
            )
            for group in [*inside, *([rest] if rest else [])]:
                yield from parted(replace(found, spot=found.spot.with_indices(at, group)), apart)
            return
    yield found


def crossing_elements(readings: Iterable[Reading]) -> Groups:
    """Lists of which one leaf stands for some elements and another for some of these and more: each is split for all.

    An element would else be two modules: `fns.{0..1}.to_qkv` beside `fns.0.norm`, which has another role.
    """
    groups: dict[Folder, dict[tuple[int, ...], None]] = {}
    for reading in readings:
        place = reading.found.spot.place
        for at, part in enumerate(place):
            if isinstance(part, tuple):
                groups.setdefault(place[:at], {})[part] = None
    return {
        Place(folder): _split_by(list(of))
        for folder, of in groups.items()
        if len(of) > 1 and sum(map(len, of)) > len(set().union(*of))
    }


def _split_by(groups: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Elements that the same of some groups hold, together."""
    within: dict[int, list[int]] = {}
    for at, group in enumerate(groups):
        for index in group:
            within.setdefault(index, []).append(at)
    alike: dict[tuple[int, ...], list[int]] = {}
    for index, held in within.items():
        alike.setdefault(tuple(held), []).append(index)
    return [tuple(sorted(group)) for group in alike.values()]


def _told_apart(found: Found, reader: _Reader, vocabulary: Vocabulary) -> list[Reading]:
    """A leaf's readings: one for each of its indices that a pattern tells from the others, if they then differ."""
    readings = [reader.read(part) for part in split(found, vocabulary)]
    meanings = {
        (reading.role, tuple(step.role for step in reading.steps), reading.found.kind) for reading in readings
    }
    return readings if len(meanings) > 1 else [reader.read(found)]


def _leaf(
    reading: Reading,
    block: tuple[tuple[str, tuple[int, ...] | None], ...],
    role: str | None,
    vocabulary: Vocabulary,
) -> Leaf:
    found, match = reading.found, reading.match
    why = f"{found.why}; {match.entry.where}" if match and role else found.why
    form = vocabulary.decide("forms", found.spot, found.kind)
    return Leaf(
        found.spot.place,
        found.kind,
        found.tensors,
        why,
        block,
        role,
        form.entry.target if form else "plain",
        fixed=_fixed(found.spot, match) if match and role else (),
    )


def _fixed(spot: Spot, match: Match) -> tuple[int, ...]:
    """Positions of the numbers that the pattern itself names, as the 0 in `layer.0.convolution`."""
    start = len(spot.words) - match.length
    for name in match.entry.names:
        words = pattern_words(name)
        if len(words) == match.length and all(map(_agrees, words, spot.words[start:])):
            return tuple(at for at, word in enumerate(words, start) if word.isdigit())
    return ()


def _agrees(word: str, part: str | tuple[int, ...]) -> bool:
    if isinstance(part, str):
        return word == part
    return word == NUMBER or (len(part) == 1 and word == str(part[0]))


def split(found: Found, vocabulary: Vocabulary) -> Iterable[Found]:
    """The leaf, once for each of its indices that a pattern tells from the others."""
    for section in ("roles", "kinds"):
        for at, index in vocabulary.tries[section].splits(found.spot.words):
            yield from split(replace(found, spot=found.spot.with_indices(at, (index,))), vocabulary)
            rest = tuple(other for other in found.spot.place[at] if isinstance(other, int) and other != index)
            yield from split(replace(found, spot=found.spot.with_indices(at, rest)), vocabulary)
            return
    yield found


def _is_alone(found: Found) -> bool:
    """Whether a module is all that a folder with a name holds: `q_proj.linear` is what `q_proj` is called."""
    place = found.spot.place
    has_folder = len(place) > 1 and all(isinstance(word, str) for word in place[-2:])
    return found.is_module and has_folder and len(found.spot.nodes[-1].children) == 1


class _Reader:
    """Reads leaves one by one; what folders mean is remembered."""

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        self.known: dict[tuple[object, ...], tuple[Step, ...]] = {}

    def read(self, found: Found) -> Reading:
        spot = found.spot
        for length in range(len(spot.place)):
            self.chain(spot, length)  # from the top, so that no name is too deep for the stack
        read = self.matched(found, spot)
        if _is_alone(found) and (read is None or read.role == BARE_NORM):
            read = self.matched(found, spot.folder(len(spot.place) - 1)) or read
        return read or Reading(found, self.chain(spot, len(spot.place) - (not found.is_module)), None, None)

    def matched(self, found: Found, spot: Spot) -> Reading | None:
        """The reading of a leaf by a place: its own, or the folder that it stands alone in."""
        for match in self.vocabulary.matches("roles", spot, found.kind):
            *outer, role = match.entry.target.split(".")
            chain = self.chain(spot, len(spot.place) - max(match.length, 1))
            steps = self.fit(chain, outer, match, spot)
            if steps is not None:
                scope = match.entry.scope
                return Reading(found, steps, role, match, scope in ("root", "whole"), scope == "whole")
        return None

    def fit(
        self, chain: tuple[Step, ...], outer: list[str], match: Match, spot: Spot
    ) -> tuple[Step, ...] | None:
        """The steps of a match after those of the folders around it; None where the two do not go together."""
        in_layer = any(step.is_layers for step in chain)
        if match.entry.scope != "any" and (match.entry.scope == LAYERS[:-1]) != in_layer:
            return None
        last = chain[-1] if chain and not chain[-1].is_layers else None
        kind = self.vocabulary.block_kind
        place = spot.place[: len(spot.place) - max(match.length, 1)]
        if last is None and match.entry.inside:
            return None
        if last is None:
            home = self.own_folder(spot, chain, outer)
            return (
                *chain,
                *(Step(role, None, home or place, kind(role), home is not None) for role in outer),
            )
        if not outer:
            return None if last.kind != "other" else chain
        if last.role == outer[0] or self.vocabulary.takes_roles_of(last.role) == kind(outer[0]):
            return (*chain, *(Step(role, None, place, kind(role), False) for role in outer[1:]))
        return None

    def own_folder(self, spot: Spot, chain: tuple[Step, ...], outer: list[str]) -> Folder | None:
        """The folder of a block whose folder is part of the pattern that was read: `attention` in `attention.dense`."""
        full = self.chain(spot, len(spot.place) - 1)
        if outer and len(full) == len(chain) + 1 and full[-1].role == outer[0]:
            return full[-1].place
        return None

    def chain(self, spot: Spot, length: int) -> tuple[Step, ...]:
        """What the first `length` folders of a path mean."""
        place = spot.place[:length]
        if place in self.known:
            return self.known[place]
        steps: tuple[Step, ...] = ()
        if length > NAME_DEPTH:
            steps = self.chain(spot, NAME_DEPTH)  # no deeper: a description of blocks is read by recursion
        elif length:
            folder = spot.folder(length)
            steps = self.list_step(folder) if isinstance(place[-1], tuple) else self.named_step(folder)
        self.known[place] = steps
        return steps

    def named_step(self, folder: Spot) -> tuple[Step, ...]:
        """A folder with a name: an element of a list by the number in it, else a block or a plain container."""
        found = numbered(folder)
        match = self.vocabulary.decide("numbered", folder.renamed(found.stem)) if found else None
        if found is None or match is None:
            return self.numbered_block(folder) or self.block_step(folder)
        role, place = match.entry.target, (*folder.place[:-1], found.stem)
        outer = tuple(step for step in self.chain(folder, len(place) - 1) if step.indices is not None)
        return (*outer, Step(role, found.index, place, self.vocabulary.block_kind(role)))

    def numbered_block(self, folder: Spot) -> tuple[Step, ...]:
        """A block that is one of several by its name, or the number in it; none where it is not."""
        around = folder.folder(len(folder.place) - 1)
        match = self.vocabulary.decide("named_blocks", around) if around.place else None
        if match is not None:
            role = match.entry.target
            outer = self.chain(folder, len(around.place))
            return (*outer, Step(role, named(folder), around.place, self.vocabulary.block_kind(role)))
        found = numbered(folder, lists=False)
        match = self.vocabulary.decide("numbered_blocks", folder.renamed(found.stem)) if found else None
        if found is None or match is None:
            return ()
        role, place = match.entry.target, (*folder.place[:-1], found.stem)
        outer = self.chain(folder, len(place) - 1)
        return (*outer, Step(role, found.index, place, self.vocabulary.block_kind(role)))

    def block_step(self, folder: Spot) -> tuple[Step, ...]:
        for match in self.vocabulary.matches("blocks", folder):
            role = match.entry.target
            chain = self.chain(folder, len(folder.place) - max(match.length, 1))
            scope = match.entry.scope
            if scope != "any" and (scope == LAYERS[:-1]) != any(step.is_layers for step in chain):
                continue
            kind = self.vocabulary.block_kind(role)
            if chain and self.vocabulary.takes_roles_of(chain[-1].role) == kind != "layer":
                return chain  # a folder of the same kind inside: `attention.self`, `experts.0.mlp`
            return (*chain, Step(role, None, folder.place, kind))
        return self.chain(folder, len(folder.place) - 1)

    def list_step(self, element: Spot) -> tuple[Step, ...]:
        place = element.place[:-1]
        indices: tuple[int, ...] = element.place[-1]  # type: ignore[assignment]
        outer = self.chain(element, len(place))
        inside = outer[-1] if outer else None
        if place and isinstance(place[-1], tuple):
            return (*outer, *self.inner_element(element, inside))
        if inside and isinstance(inside.indices, Numbered) and inside.indices.word == place[-1]:
            return (*outer, replace(inside, indices=indices, place=place))
        match = self.vocabulary.decide("lists", element.folder(len(place)))
        if match is None:
            return outer
        outer = self.chain(element, max(len(place) - max(match.length, 1), 0))
        inside = outer[-1] if outer else None
        role = match.entry.target
        kind = self.vocabulary.block_kind(role)
        if kind == "layer":
            if inside and inside.indices is None and inside.kind not in ("other", "head"):
                return outer  # the layers of a feed-forward are no layers of the model
            outer = _around_layers(outer)
        return (*outer, Step(role, indices, place, kind))

    def inner_element(self, element: Spot, inside: Step | None) -> tuple[Step, ...]:
        """A number below a number: a block by what it holds (`layers.0.1.to_q`), else a list in a list."""
        for match in self.vocabulary.matches("blocks", element):
            if match.length < 0 and match.entry.scope in ("any", "layer"):
                role = match.entry.target
                return (Step(role, None, element.place, self.vocabulary.block_kind(role)),)
        indices: tuple[int, ...] = element.place[-1]  # type: ignore[assignment]
        return (
            (replace(inside, indices=indices, place=element.place[:-1]),) if inside and inside.indices else ()
        )
