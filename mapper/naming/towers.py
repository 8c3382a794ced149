"""Which stack of layers a leaf belongs to: one stack is "tower", several are told apart by the words of their paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mapper.naming.leaf_groups import BlockPath
from mapper.words import normal

if TYPE_CHECKING:
    from mapper.naming.resolve import Reading, Step
    from mapper.naming.vocabulary import Vocabulary

Folder = tuple["str | tuple[int, ...]", ...]
SENSES = ("vision", "audio")
HALVES = {"encoder", "decoder"}  # of a text


class Towers:
    """The towers of one checkpoint, from the lists of layers that its leaves stand in."""

    def __init__(self, readings: Sequence[Reading], vocabulary: Vocabulary):
        self.stages: set[Folder] = set()  # lists of layers whose elements hold lists of layers
        sizes: Counter[Folder] = Counter()
        roles: dict[Folder, str] = {}
        for reading in readings:
            layers = [step for step in reading.steps if step.is_layers]
            self.stages.update(step.place for step in layers[:-1])
            if layers:
                sizes[layers[0].place] += reading.found.spot.place.instances
                roles[layers[0].place] = layers[0].role
        for reading in readings if not sizes else ():
            # no layers, but a list of attentions beside one of feed-forwards: together they are a tower
            lists = [step.place for step in reading.steps if step.indices is not None]
            if lists and reading.steps[-1].kind == "attention":
                sizes[lists[0]] += reading.found.spot.place.instances
        self.vocabulary = vocabulary
        self.names = _names(sizes, vocabulary)
        said = {place: self._said(place, readings) for place in self.names}
        if len(set(self.names.values())) == 1:  # the others have no layers
            self.names = {place: said[place] or name for place, name in self.names.items()}
        self.folders = {
            place: place[:1] if said[place] else _folder(place, name, self.names)
            for place, name in self.names.items()
        }
        self.numbers = _numbers(sizes, self.names, roles)

    def _said(self, place: Folder, readings: Sequence[Reading]) -> str | None:
        """What a family calls the folder of a list, where it has names for other folders that are there, too."""
        said = self.vocabulary.folders
        tops = (reading.found.spot.place[0] for reading in readings if said)
        told = {said.get(normal(top)) for top in tops if isinstance(top, str)} - {None}
        return said.get(normal(place[0])) if len(told) > 1 and isinstance(place[0], str) else None

    def block(self, reading: Reading) -> BlockPath:
        """The role path of the block that a leaf belongs to."""
        tower = self.tower(reading)
        steps = tuple(self.step(step) for step in reading.steps)
        return ((tower, None), *steps) if tower else steps

    def tower(self, reading: Reading) -> str | None:
        for step in reading.steps:
            if step.is_layers:
                return self.names[step.place]
        if set(self.names.values()) == {"tower"}:
            return None if reading.at_root else "tower"
        if reading.of_whole:
            return None
        place = reading.found.spot.place
        inside = [
            (len(folder), self.names[list_])
            for list_, folder in self.folders.items()
            if place[: len(folder)] == folder
        ]
        return max(inside)[1] if inside else self.beside(reading)

    def beside(self, reading: Reading) -> str | None:
        """The tower that a family gives a folder to, or whose layers stand in the folder around a leaf of towers."""
        place = reading.found.spot.place
        said = [self.vocabulary.folders.get(normal(part)) for part in place if isinstance(part, str)]
        if any(said) and not reading.at_root:
            return next(filter(None, said))
        if reading.match is None or reading.match.entry.scope != "tower":
            return None
        names = {name for list_, name in self.names.items() if place[: len(list_) - 1] == list_[:-1]}
        return names.pop() if len(names) == 1 else None

    def step(self, step: Step) -> tuple[str, tuple[int, ...] | None]:
        if not step.is_layers:
            return step.role, step.indices
        role = "stages" if step.place in self.stages and step.role == "layers" else step.role
        if step.place[:-1] in self.stages and step.place not in self.stages:
            role = "layers"  # of a list of stages that has a role of its own
        number = self.numbers.get(step.place, 1)
        return (f"{role}_{number}" if number > 1 else role), step.indices


def _names(sizes: Counter[Folder], vocabulary: Vocabulary) -> dict[Folder, str]:
    """A name for each list of layers: "tower" for one alone, else by the first word that tells it from others."""
    if len({_stem(place) for place in sizes}) <= 1 and not vocabulary.folders:
        return dict.fromkeys(sizes, "tower")
    names = _halves({place: _word(place, sizes, vocabulary) for place in sizes}, vocabulary)
    if len({_told(place, name, vocabulary) for place, name in names.items()}) == 1:
        names = _by_parts(list(sizes), vocabulary)
    if len(set(names.values())) <= 1:
        return dict.fromkeys(sizes, "tower")
    told = set(names.values())  # beside what sees or hears, maybe behind a backbone, the nameless one writes
    if told <= {*SENSES, "backbone", "tower"} and not told.isdisjoint(SENSES):
        names = {place: "text" if name == "tower" else name for place, name in names.items()}
    return names


def _stem(place: Folder) -> Folder:
    return place[:-1]


def _word(place: Folder, sizes: Counter[Folder], vocabulary: Vocabulary) -> str:
    common = _common(list(sizes))
    said = [vocabulary.folders.get(normal(part)) for part in place[common:] if isinstance(part, str)]
    if any(said):  # what a family says of a folder goes before the words around it
        return next(filter(None, said))
    for at in range(common, len(place)):
        name = vocabulary.tower(place[: at + 1])
        if name:
            return name
    return "tower"


def _halves(names: dict[Folder, str], vocabulary: Vocabulary) -> dict[Folder, str]:
    """`language_model.encoder` and `language_model.decoder` are two towers of a text, not two lists of one."""
    inner = {place: vocabulary.tower(_stem(place)) for place, name in names.items() if name == "text"}
    told = {place: name for place, name in inner.items() if name in HALVES}
    return {**names, **told} if set(told.values()) == HALVES and len(told) == len(inner) else names


def _told(place: Folder, name: str, vocabulary: Vocabulary) -> str:
    """The name; of a nameless one that by the last part of its folder: `char_encoder` beside `encoder` is one, too."""
    if name != "tower" or len(place) < 2:
        return name
    return vocabulary.tower([normal(str(place[-2])).split("_")[-1]]) or name


def _by_parts(places: list[Folder], vocabulary: Vocabulary) -> dict[Folder, str]:
    """`text_encoder` and `text_decoder` are both of text: the part in which their words differ tells them apart."""
    at = _common(places)
    words = {place: normal(str(place[at])).split("_") for place in places if at < len(place)}
    shared = set.intersection(*map(set, words.values())) if len(words) == len(places) else set()
    found = {}
    for place in places if shared else ():
        own = [name for part in words[place] if part not in shared and (name := vocabulary.tower([part]))]
        found[place] = own[0] if own else "tower"
    return found if "tower" not in found.values() else {}


def _common(places: Sequence[Folder]) -> int:
    """How many words all places start with."""
    count = 0
    for words in zip(*places, strict=False):
        if len(set(words)) > 1:
            break
        count += 1
    return count


def _folder(place: Folder, name: str, names: dict[Folder, str]) -> Folder:
    """The topmost folder that holds lists of this tower only."""
    others = [other for other, its in names.items() if its != name]
    for length in range(len(place)):
        if not any(other[:length] == place[:length] for other in others):
            return place[:length]
    return place


def _numbers(sizes: Counter[Folder], names: dict[Folder, str], roles: dict[Folder, str]) -> dict[Folder, int]:
    """Lists of one role in a tower by size: the largest is its layers, the next layers_2."""
    seen: Counter[tuple[str, str | None]] = Counter()
    numbers = {}
    for place, _ in sorted(sizes.items(), key=lambda item: (-item[1], str(item[0]))):
        key = (names[place], roles.get(place))
        seen[key] += 1
        numbers[place] = seen[key]
    return numbers
