"""Blocks that no word names and no flow reads: what stands together in a folder shows what it is.

Only what a skeleton says of itself comes from here: nothing is computed by these blocks.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from mapper.architecture import BARE, Architecture, Block, Leaf, Place
from mapper.naming.blocks import common_folder
from mapper.naming.vocabulary import Vocabulary
from mapper.words import parts

_CONVOLUTION, _LAYER, _ATTENTION, _FEED_FORWARD = "convolution", "layer", "attention", "feed_forward"
_MOE = "moe"
_SUB_LAYERS = {_CONVOLUTION, _ATTENTION, _FEED_FORWARD}
_UNIT = 3  # convolutions whose names are numbers and that are one block; of more the folder is a network
_LEAST = 2  # of what makes a block
_THREE = ("query", "key", "value")
_NUMBER = re.compile("[0-9]")

Folders = dict[Place, list[Leaf]]
Kinds = dict[Place, str]


def show_blocks(architecture: Architecture, vocabulary: Vocabulary) -> Architecture:
    """The skeleton, with a block for each folder that shows what it is by what it holds."""
    for block in architecture.root.blocks():
        block.home = _narrowed(block)
    shown = shown_folders(architecture, vocabulary)
    for leaf in architecture.leaves if shown else ():
        if leaf.role is None or any(place in shown for place in _around(leaf.place)):
            _insert(architecture.root, leaf, shown)
    return architecture


def shown_folders(architecture: Architecture, vocabulary: Vocabulary) -> Kinds:
    """The folders that are blocks by what they hold, without those that are known for one."""
    every = list(architecture.root.blocks())[::-1]  # of several at one home the outermost counts
    known = {_narrowed(block): block.kind for block in every} | {block.home: block.kind for block in every}
    folders = _by_folder(architecture.leaves)
    shown: Kinds = dict.fromkeys(_convolutions(folders), _CONVOLUTION)
    shown |= dict.fromkeys(_lone_convolutions(folders, shown), _CONVOLUTION)
    shown |= dict.fromkeys(_attentions(folders, vocabulary), _ATTENTION)
    shown |= dict.fromkeys(_feed_forwards(folders, vocabulary), _FEED_FORWARD)
    shown |= dict.fromkeys(_experts(folders, known), _FEED_FORWARD)
    shown = {
        folder: kind for folder, kind in shown.items() if known.get(folder) not in (*_SUB_LAYERS, _LAYER)
    }
    for folder, is_whole in _layers(architecture.leaves, {**known, **shown}):
        is_inner = any(known.get(place) == _LAYER for place in _around(folder))
        shown[folder] = _CONVOLUTION if is_inner and not is_whole else _LAYER
    for folder in _around_one(architecture.leaves, vocabulary):
        shown.setdefault(folder, _CONVOLUTION)
    whole = common_folder(
        [leaf.place for leaf in architecture.leaves]
    )  # `module` around all is no layer of it
    return {
        folder: kind
        for folder, kind in shown.items()
        if known.get(folder) not in (kind, _LAYER) and (kind, folder) != (_LAYER, whole)
    }


def _narrowed(block: Block) -> Place:
    """The home of an attention around which only a norm stands, or a feed-forward network: that of its own maps."""
    own = [item for value in block.roles.values() for item in (value if isinstance(value, list) else [value])]
    maps = [item.place for item in own if isinstance(item, Leaf) and not item.kind.endswith("Norm")]
    inner = {item.kind for item in own if isinstance(item, Block)}
    if block.kind not in (_ATTENTION, _FEED_FORWARD) or len(maps) < _LEAST or inner - {_FEED_FORWARD}:
        return block.home
    home = common_folder(maps)
    return home if len(home) > len(block.home) else block.home


def _by_folder(leaves: Iterable[Leaf]) -> Folders:
    folders: Folders = defaultdict(list)
    for leaf in leaves:
        if len(leaf.place) > 1:
            folders[Place(leaf.place[:-1])].append(leaf)
            if _is_wrapped(leaf.place):
                folders[Place(leaf.place[:-2])].append(leaf)
    for folder, inside in list(folders.items()):
        around = folders.get(Place(folder[:-1]), []) if isinstance(folder[-1], str) else []
        if any(map(_is_convolution, around)) and all(map(_only_goes_with_convolutions, inside)):
            around += [leaf for leaf in inside if leaf not in around]
    return folders


def _is_wrapped(place: Place) -> bool:
    """Whether a module stands in a folder of its name, `conv1.conv`: it counts for the folder around too."""
    around, own = place[-2:]
    return (
        len(place) > 2
        and isinstance(around, str)
        and isinstance(own, str)
        and around.rstrip("0123456789") == own
    )


def _convolutions(folders: Folders) -> Iterator[Place]:
    """The folders of convolutions and what goes with them, with no more convolutions further inside."""
    below = _counted_below(folders)
    stems = Counter(map(_stem, folders))
    for folder, inside in folders.items():
        count = sum(leaf.place.instances // folder.instances for leaf in inside if _is_convolution(leaf))
        is_list = any(isinstance(leaf.place[-1], tuple) for leaf in inside)
        is_one = count and len(inside) >= _LEAST and all(map(_goes_with_convolutions, inside))
        is_most = 2 * count * folder.instances >= below[folder]
        is_network = is_list and count >= _LEAST and len(folder) == 1 and stems[_stem(folder)] < _LEAST
        if is_one and is_most and (count <= _UNIT or not is_list) and not is_network:
            yield folder


def _counted_below(folders: Folders) -> Counter[Place]:
    """How many convolutions are in each folder and in those inside of it."""
    below: Counter[Place] = Counter()
    for folder, inside in folders.items():
        count = sum(leaf.place.instances for leaf in inside if _is_convolution(leaf))
        for around in _around(folder):
            below[around] += count
    return below


def _lone_convolutions(folders: Folders, shown: Kinds) -> Iterator[Place]:
    """The folders of a convolution without a norm, beside those of others with one."""
    beside = {place[:-1] for place in shown}
    for folder, inside in folders.items():
        is_alone = len(inside) == 1 and _is_convolution(inside[0]) and inside[0].role is None
        if is_alone and folder[:-1] in beside:
            yield folder


def _around_one(leaves: Iterable[Leaf], vocabulary: Vocabulary) -> Iterator[Place]:
    """The folders that have one module, a convolution that is called one, and nothing else."""
    below = Counter(place for leaf in leaves for place in _around(Place(leaf.place[:-1])))
    for leaf in leaves:
        folder = Place(leaf.place[:-1])
        is_alone = below[folder] == 1 and len(folder) > 0
        if is_alone and _is_convolution(leaf) and leaf.place[-1] in vocabulary.words("convolution"):
            yield folder


def _is_convolution(leaf: Leaf) -> bool:
    return leaf.kind.startswith("Conv")


def _goes_with_convolutions(leaf: Leaf) -> bool:
    return _is_convolution(leaf) or leaf.kind.endswith("Norm") or leaf.kind in ("PReLU", *BARE)


def _only_goes_with_convolutions(leaf: Leaf) -> bool:
    """Whether it is a norm or slopes, which may have a folder to themselves beside the convolution."""
    return leaf.kind.endswith("Norm") or leaf.kind == "PReLU"


def _maps(folders: Folders) -> Iterator[tuple[Place, list[tuple[int, ...]]]]:
    """The folders in which two maps stand, and norms and bare tensors at most; the larger weight first."""
    for folder, inside in folders.items():
        maps = [leaf for leaf in inside if leaf.kind == "Linear" and "weight" in leaf.tensors]
        count = sum(leaf.place.instances for leaf in maps)
        rest = (leaf for leaf in inside if leaf.kind != "Linear")
        if count == 2 * folder.instances and all(
            leaf.kind in BARE or leaf.kind.endswith("Norm") for leaf in rest
        ):
            shapes = sorted((leaf.tensors["weight"].shape for leaf in maps), reverse=True)
            if len(shapes) == 2 and all(len(shape) == 2 for shape in shapes):
                yield folder, shapes


def _attentions(folders: Folders, vocabulary: Vocabulary) -> Iterator[Place]:
    """The folders with one map to queries, keys and values together, and one back; or with maps that are called so."""
    for folder, inside in folders.items():
        words = {word for leaf in inside for word in parts(str(leaf.place[-1]))}
        is_fused = not words.isdisjoint(vocabulary.words("qkv"))
        if is_fused or not any(words.isdisjoint(vocabulary.words(role)) for role in _THREE):
            yield folder
    for folder, ((rows, width), back) in _maps(folders):
        if rows == 3 * width and back == (width, width):
            yield folder


def _feed_forwards(folders: Folders, vocabulary: Vocabulary) -> Iterator[Place]:
    """The folders with one map up and one down."""
    for folder, ((rows, width), back) in _maps(folders):
        if rows > width and back == (width, rows):
            yield folder
    for folder, inside in folders.items():
        if _is_up_and_down(inside) or _are_called_connected(inside, vocabulary):
            yield folder


def _experts(folders: Folders, known: Mapping[Place, str]) -> Iterator[Place]:
    """The folders of experts that are feed-forward networks of their own, each with its maps."""
    for folder, inside in folders.items():
        maps = [leaf for leaf in inside if leaf.kind == "Linear" and len(leaf.place) == len(folder) + 1]
        if known.get(folder) == _MOE and isinstance(folder[-1], tuple) and len(maps) >= _LEAST:
            yield folder


def _are_called_connected(inside: Sequence[Leaf], vocabulary: Vocabulary) -> bool:
    """Whether two convolutions, and nothing else, are called as maps up and down (`fc1`, `fc2`): maps of channels, whatever their kernels."""
    if len(inside) != 2 or not all(map(_is_convolution, inside)):
        return False
    first, second = (str(leaf.place[-1]) for leaf in inside)
    return first in vocabulary.words("up") and second in vocabulary.words("down")


def _is_up_and_down(inside: Iterable[Leaf]) -> bool:
    """Whether a list has two convolutions of one place, up and then down, with norms and bare tensors at most: maps of channels."""
    maps = [leaf for leaf in inside if _is_convolution(leaf)]
    shapes = [leaf.tensors["weight"].shape for leaf in maps if "weight" in leaf.tensors]
    if len(maps) != 2 or len(shapes) != 2 or any(set(shape[2:]) != {1} for shape in shapes):
        return False
    is_list = all(isinstance(leaf.place[-1], tuple) for leaf in maps)
    (rows, width), back = shapes[0][:2], shapes[1][:2]
    return is_list and rows > width and back == (width, rows) and all(map(_goes_with_convolutions, inside))


def _layers(leaves: Iterable[Leaf], blocks: Mapping[Place, str]) -> Iterator[tuple[Place, bool]]:
    """The innermost folders with several sub-layers or convolutions that are one of several, or hold nothing deeper.

    With each whether it has an attention and a feed-forward network, which make a layer wherever they stand.
    """
    units = _units(leaves, blocks)
    several = {folder for folder, inside in units.items() if _are_several(folder, inside)}
    alike, lone = _one_of_several(units, several)
    whole = {
        folder
        for folder, inside in units.items()
        if {blocks.get(unit) for unit in inside} >= {_ATTENTION, _FEED_FORWARD}
    }
    found = whole | {
        folder
        for folder in several
        if not _is_list_of_blocks(folder, units[folder], blocks)
        and (
            isinstance(folder[-1], tuple)
            or folder in alike
            or (folder in lone and all(_is_named_in(unit, folder) for unit in units[folder]))
        )
    }
    layers = {place for place, kind in blocks.items() if kind == _LAYER}
    for folder in (one for one in units if one in found):  # in the order of the leaves: a set has none
        if not any(other != folder and other.within(folder) for other in (*found, *layers)):
            yield folder, folder in whole


def _are_several(folder: Place, inside: Iterable[Place]) -> bool:
    return sum(unit.instances for unit in inside) >= _LEAST * folder.instances


def _one_of_several(units: Mapping[Place, set[Place]], several: set[Place]) -> tuple[set[Place], set[Place]]:
    """The folders with several units, of whose name others have them too, if not all; and those that are alone with theirs.

    Of the branches of a block, as `branch1` and `branch2`, some have one unit: these are in neither.
    """
    siblings: dict[tuple[object, ...], set[Place]] = defaultdict(set)
    for folder in {*units, *(unit for inside in units.values() for unit in inside)}:
        siblings[_stem(folder)].add(folder)
    beside = {folder: siblings[_stem(folder)] for folder in several}
    alike = {
        folder
        for folder, those in beside.items()
        if len(those) >= _LEAST and 2 * len(those & several) > len(those)
    }
    return alike, {folder for folder, those in beside.items() if len(those) < _LEAST}


def _is_named_in(unit: Place, folder: Place) -> bool:
    return len(unit) == len(folder) + 1 and isinstance(unit[-1], str)


def _is_list_of_blocks(folder: Place, inside: Iterable[Place], blocks: Mapping[Place, str]) -> bool:
    """Whether all that a folder has are blocks with numbers as names: a stage of a network."""
    return all(unit in blocks and isinstance(unit[len(folder)], tuple) for unit in inside)


def _units(leaves: Iterable[Leaf], blocks: Mapping[Place, str]) -> dict[Place, set[Place]]:
    """For each folder the innermost sub-layers below it, and the convolutions that stand in none."""
    units: dict[Place, set[Place]] = defaultdict(set)
    for leaf in leaves:
        unit = next((place for place in _around(leaf.place) if blocks.get(place) in _SUB_LAYERS), None)
        if unit or _is_convolution(leaf):
            for folder in _around(Place((unit or leaf.place)[:-1])):
                units[folder].add(unit or leaf.place)
    return units


def _around(place: Place) -> Iterator[Place]:
    """The place and the folders around it, the innermost first."""
    return (Place(place[:length]) for length in range(len(place), 0, -1))


def _stem(folder: Place) -> tuple[object, ...]:
    """What folders share that differ from a number on: `block1` and `block2`, `inception3a` and `inception3b`."""
    last = folder[-1]
    return (*folder[:-1], _NUMBER.split(last, maxsplit=1)[0] if isinstance(last, str) else ())


def _insert(root: Block, leaf: Leaf, shown: Mapping[Place, str]) -> None:
    """A block for each of the folders around a leaf that is one, the outermost first."""
    block = root
    for step in leaf.block:
        block = next((inner for inner in _at(block, step[0]) if inner.indices == step[1]), block)
    for folder in reversed(list(_around(leaf.place))):
        if folder in shown:
            block = _inner(block, folder, shown[folder])
    if leaf.role is None and block.home in shown:
        block.roles[str(Place(leaf.place[len(block.home) :]))] = leaf


def _at(block: Block, role: str) -> list[Block]:
    held = block.roles.get(role)
    return [item for item in (held if isinstance(held, list) else [held]) if isinstance(item, Block)]


def _inner(block: Block, folder: Place, kind: str) -> Block:
    """The block at a folder inside of another."""
    held = [value for value in block.roles.values() if isinstance(value, Block)]
    for inner in held:
        if inner.home == folder and inner.kind == kind:
            return inner
    count = sum(role.rstrip("_0123456789") == kind for role in block.roles) + 1
    role = f"{kind}_{count}" if count > 1 else kind
    made = block.roles[role] = Block(kind, role, folder)
    return made
