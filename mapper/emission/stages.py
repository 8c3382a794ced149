"""Sizes that differ from stage to stage: a list of the Config each, of which a stage reads its element."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mapper.architecture import Block, Fact, Leaf, Place
from mapper.emission.ratios import Scaled, ratios
from mapper.emission.runs import COUNT, elements, runs
from mapper.flows.references import element_indices

MOST = 8  # stages; of more, numbers are easier to read where they stand
_STREAM = ("hidden_size", "output_size", "out_channels")  # of what goes from a stage into the next
_COUNT = "layers"
_LISTED = (
    *_STREAM,
    "intermediate_size",
    "reduced_size",
    "heads",
    "head_dim",
    "channel_groups",
    _COUNT,
    COUNT,
)  # what configs list by stage
_JOINED = (*_STREAM, "reduced_size")  # what one layer gives and another reads
WIDTHS = ("channels", "features", "input_size", "hidden_size", "output_size")  # how names of widths end
_INNER = (*WIDTHS, "inner_size")  # of a layer that has no expansion
INPUTS = ("in_channels", "in_features", "input_size")
# Of what goes into the first stage, and of what comes out of the last.
_ENDS = ("embedding_size", "pooled_size")
_NO_WIDTHS = ("kernel_size", "stride", "padding", "dilation", "groups", "heads", "count", "layers", "eps")
_SIZES = ("_size", "channels")
_NUMBER = re.compile(r"(?<![\w.\[])\d+(?![\w.])")


@dataclass(frozen=True, eq=False)
class Listed:
    """A size that differs from stage to stage."""

    fact: Fact  # its value has an element for each stage
    tower: str  # role of the block right below the root that the stages are in; "" for the root's own


@dataclass(frozen=True)
class Element:
    """One value of a list of sizes."""

    listed: Listed
    at: int


@dataclass(frozen=True)
class Written:
    """An argument as it is written."""

    text: str
    hint: str  # what it is called
    facts: tuple[str, ...]  # that it is written in
    tower: str


@dataclass
class Stages:
    """The elements that facts of stages are, by the facts' identity: equal facts of two stages are two."""

    elements: dict[int, Element] = field(default_factory=dict)
    lists: dict[int, Listed] = field(
        default_factory=dict
    )  # by the identity of the fact that is the whole list
    entries: dict[int, Fact] = field(
        default_factory=dict
    )  # what a first stage reads -> the size of the embeddings that it is
    lengths: dict[int, Fact] = field(default_factory=dict)  # by the identity of a norm beside a stage
    inputs: dict[int, Fact] = field(default_factory=dict)  # by the identity of a leaf that reads a stage
    own: dict[str, set[int]] = field(default_factory=dict)  # role at the root -> widths of what is in it
    streams: dict[str, set[int]] = field(default_factory=dict)  # the same of its streams alone
    made: list[Fact] = field(default_factory=list)  # sizes that no rule has, and a source says once
    scaled: dict[int, Scaled] = field(default_factory=dict)  # by the identity of a width in a stage
    read: dict[Listed, set[int]] = field(default_factory=dict)  # the elements that a source names
    same: list[list[tuple[Fact, str]]] = field(default_factory=list)  # sizes that are one width, with towers
    counts: dict[Place, list[Fact]] = field(
        default_factory=dict
    )  # by the folder of a list without stages: how many layers each run of one width has

    def element(self, fact: Fact) -> Element | None:
        return self.elements.get(id(fact))

    def listed(self, fact: Fact) -> Listed | None:
        """The list that this fact is, whole."""
        return self.lists.get(id(fact))

    def reads(self, listed: Listed, *places: int) -> None:
        """Notes that a source names these elements of a list."""
        self.read.setdefault(listed, set()).update(places)

    def half_read(self) -> frozenset[str]:
        """The lists of which a source names some elements alone: who changed the others would change nothing."""
        return frozenset(
            listed.fact.name for listed, places in self.read.items() if len(places) < len(listed.fact.value)
        )

    def half_written(self, written: Iterable[Written]) -> frozenset[str]:
        """The widths of which some are still numbers: who changed the list would break the model."""
        numbers = [(item, set(map(int, found))) for item in written if (found := _NUMBER.findall(item.text))]
        return frozenset(
            listed.fact.name
            for listed in self.read
            if _last(listed.fact) in _JOINED
            and any(
                self.may_be(listed, item, values.intersection(listed.fact.value)) for item, values in numbers
            )
        )

    def may_be(self, listed: Listed, item: Written, values: set[int]) -> bool:
        """Whether numbers may be widths of the list: another quantity, and another tower, have its values by chance."""
        if item.tower != listed.tower and not item.hint.endswith(INPUTS):
            return False
        own = self.own.get(item.tower, set())
        if item.tower != listed.tower and values <= own | {2 * width for width in own}:  # two maps, joined
            return False
        if item.facts:
            ends = (*WIDTHS, *_ENDS)
            return bool(values) and any(
                fact == listed.fact.name or fact.endswith(ends) for fact in item.facts
            )
        return bool(values) and not item.hint.endswith(_NO_WIDTHS)

    def list_of(self, facts: list[Fact | None]) -> tuple[Fact, bool] | None:
        """The list whose elements these are in order, or with the last left out and another before (True)."""
        found = [fact and self.element(fact) for fact in facts]
        last = found[-1] if found else None
        if not last or len(found) != len(last.listed.fact.value):
            return None
        is_shifted = last.at == len(found) - 2
        in_order = [Element(last.listed, at) for at in range(len(found) - is_shifted)]
        return (last.listed.fact, is_shifted) if found[is_shifted:] == in_order else None

    def some_of(self, facts: list[Fact | None]) -> tuple[Fact, list[int]] | None:
        """The list of which these are elements in another order, and which."""
        found = [self.element(fact) if fact is not None else None for fact in facts]
        first = found[0] if found else None
        if first is None or any(item is None or item.listed is not first.listed for item in found):
            return None
        return first.listed.fact, [item.at for item in found if item]


def staged(root: Block, without: frozenset[str] = frozenset()) -> Stages:
    """The lists of sizes of every stack of stages below a block, but of these facts."""
    parts = _parts(root)
    found = Stages(
        own={role: _widths(blocks, _SIZES) for role, blocks in parts.items()},
        streams={role: _widths(blocks, _STREAM) for role, blocks in parts.items()},
    )
    for block, tower in _placed(root):
        for value in block.roles.values():
            flat = runs(value, [*_below(block)]) if isinstance(value, list) else []
            if isinstance(value, list) and (flat or _has_layers(_each(value))):
                stages = flat or _each(value)
                scaled = ratios(stages)
                found.scaled |= scaled
                found.made += [item.ratio for item in scaled.values()]
                stack = (_Runs if flat else _Stack)(found, stages, tower, without)
                stack.learn(block)
                stack.learn_ends(root, block)
                stack.learn_readers(root, block)
    return found


def _placed(root: Block) -> Iterator[tuple[Block, str]]:
    """Every block with the role of the one right below the root that it is in."""
    yield root, ""
    for value in root.roles.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Block):
                yield from ((block, item.role) for block in (item, *item.blocks()))


def _below(block: Block) -> Iterator[Block]:
    """The blocks right below one that stand in no list."""
    return (item for item in block.roles.values() if isinstance(item, Block))


def _blocks_of(block: Block, role: str) -> list[Block]:
    value = block.roles[role]
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, Block)]


def _parts(root: Block) -> dict[str, list[Block]]:
    """By the role of each block right below the root all blocks that are in it; by "" the root alone."""
    found = {"": [root]}
    for role in root.roles:
        if below := _blocks_of(root, role):
            found[role] = [block for item in below for block in (item, *item.blocks())]
    return found


def _widths(blocks: list[Block], ends: tuple[str, ...]) -> set[int]:
    """The widths of blocks, but for what they read."""
    facts = (fact for block in blocks for fact in block.facts.values() if type(fact.value) is int)
    return {fact.value for fact in facts if fact.name.endswith(ends) and not fact.name.endswith(INPUTS)}


def _leaves(block: Block) -> Iterator[Leaf]:
    for value in block.roles.values():
        yield from (
            item for item in (value if isinstance(value, list) else [value]) if isinstance(item, Leaf)
        )


def _in_order(value: Any) -> list[Leaf]:
    """The leaves of a list of them."""
    items = value if isinstance(value, list) else []
    return sorted((item for item in items if isinstance(item, Leaf)), key=element_indices)


def _input(leaf: Leaf) -> int | None:
    """How many channels a map reads."""
    weight = leaf.tensors.get("weight") if leaf.kind in ("Linear", "Conv1d", "Conv2d") else None
    return weight.shape[1] if weight is not None and len(weight.shape) > 1 else None


def _each(items: list[Any]) -> list[Block]:
    """The blocks of a list in order, if each stands for itself."""
    blocks = [item for item in items if isinstance(item, Block) and len(item.indices or ()) == 1]
    return sorted(blocks, key=element_indices) if len(blocks) == len(items) else []


def _has_layers(blocks: list[Block]) -> bool:
    """Whether blocks are stages: few, with layers of their own."""
    lists = any(isinstance(value, list) for block in blocks for value in block.roles.values())
    return lists and 1 < len(blocks) <= MOST


class _Stack:
    """The stages of one list."""

    def __init__(self, found: Stages, stages: list[Block], tower: str, without: frozenset[str]):
        self.found, self.tower = found, tower
        self.facts = [_sizes(stage) for stage in stages]
        self.is_varied = any(_varies(stage) for stage in stages)
        names = dict.fromkeys(fact.name for facts in self.facts for fact in facts if _last(fact) in _LISTED)
        names = dict.fromkeys(name for name in names if name not in without)
        self.lists = {name: listed for name in names if (listed := self.list_of(name))}
        whole = {name: item for name, item in self.lists.items() if len(item.fact.value) == len(stages)}
        streams = {name.rpartition(".")[2]: listed for name, listed in whole.items()}
        self.stream = next((streams[name] for name in _STREAM if name in streams), None)

    def list_of(self, name: str) -> Listed | None:
        """The values of one fact, of each stage that has it; None where one has several, or all have the same.

        Nor of how many layers there are where one stage has its first one alone: nothing there is repeated.
        """
        own = [{fact.value for fact in facts if fact.name == name} for facts in self.facts]
        own = [found for found in own if found]
        values = [next(iter(found)) for found in own if len(found) == 1]
        first = next(fact for facts in self.facts for fact in facts if fact.name == name)
        is_single = _last(first) == _COUNT and 1 in values and self.is_varied
        if len(values) != len(own) or len({*values}) == 1 or is_single:
            return None
        source = f"{first.source} and {len(own) - 1} more"
        return Listed(Fact(name, values, first.at, first.evidence, source, first.rule), self.tower)

    def place_in(self, listed: Listed, at: int) -> int:
        """Which element of a list is a stage's: some lists have none for the stages without such a size."""
        has = [any(fact.name == listed.fact.name for fact in facts) for facts in self.facts]
        return sum(has[:at])

    def learn(self, around: Block) -> None:
        """Notes what facts of the stages are, and of what stands beside them one by one."""
        for at, facts in enumerate(self.facts):
            for fact in facts:
                self.note(fact, self.of_stream(fact, at) or self.of_own(fact, at))
        for value in around.roles.values():
            if isinstance(value, list) and len(value) == len(self.facts):
                for at, block in enumerate(_each(value)):
                    for fact in _sizes(block):
                        self.note(fact, self.of_stream(fact, at))
                self.learn_norms(value)
        for leaves in _numbered(around):
            self.learn_norms(leaves)

    def learn_ends(self, root: Block, around: Block) -> None:
        """Notes the width of what the first stage reads, and of what is read of the last."""
        if self.stream is None:
            return
        first, *_, last = self.stream.fact.value
        beside = [item for item in around.roles.values() if isinstance(item, Block)]
        for block in beside:
            given = ("embedding_size", "out_channels") if _is_entry(block) else ("embedding_size",)
            for fact in (fact for fact in block.facts.values() if _last(fact) in given):
                if fact.value == first:
                    self.note(fact, Element(self.stream, 0))
                elif _last(fact) == "embedding_size":
                    self.learn_entry(fact)
        end = Element(self.stream, len(self.facts) - 1)
        for fact in (fact for block in (root, around) for fact in block.facts.values()):
            if _last(fact) in ("pooled_size", "hidden_size") and fact.value == last:
                self.note(fact, end)
        heads = [block for block in _head_parts(root) if block is not around]
        for fact in (fact for block in heads for fact in block.facts.values()):
            if _last(fact) == "hidden_size" and fact.value == last:
                self.note(fact, end)
        for fact in (fact for block in beside if not _is_entry(block) for fact in block.facts.values()):
            if fact.name.endswith(INPUTS) and fact.value == last:
                self.note(fact, end)
        self.learn_pooled(root, around, beside)
        for leaf in (item for block in (root, around) for item in block.roles.values()):
            if isinstance(leaf, Leaf) and _length(leaf) == last:
                self.note_length(leaf, end)

    def learn_pooled(self, root: Block, around: Block, beside: list[Block]) -> None:
        """Notes what a last map gives where that is as wide as what is pooled, and no stage is."""
        known = (fact for block in (root, around) for fact in block.facts.values())
        pooled = next((fact for fact in known if _last(fact) == "pooled_size"), None)
        if pooled is None or self.stream is None or pooled.value in self.stream.fact.value:
            return
        for fact in (fact for block in beside if not _is_entry(block) for fact in block.facts.values()):
            if fact.name.endswith("out_channels") and fact.value == pooled.value:
                self.found.entries.setdefault(id(fact), pooled)

    def learn_entry(self, embedding: Fact) -> None:
        """Notes what the first stage reads where that is as wide as the embeddings, and no stage is."""
        for fact in self.facts[0]:
            if fact.name.endswith(INPUTS) and fact.value == embedding.value:
                self.found.entries.setdefault(id(fact), embedding)

    def learn_readers(self, root: Block, around: Block) -> None:
        """Notes what the rest of the model reads of several stages: widths that are none of its own."""
        widths = self.stream.fact.value if self.stream else []
        if self.stream is None or len({*widths}) < len(widths):
            return
        for role, blocks in _parts(root).items():
            if any(block is around for block in blocks):
                continue
            streams = (self.found.streams[other] for other in self.found.streams if other != self.tower)
            foreign = {*widths} - self.found.own.get(role, set()) - set().union(*streams)
            tops = _blocks_of(root, role) if role else [root]
            nearest = [
                *tops,
                *(below for top in tops if role for word in top.roles for below in _blocks_of(top, word)),
            ]
            for fact in (fact for block in nearest for fact in block.facts.values()):
                if fact.name.endswith(INPUTS) and fact.value in foreign:
                    self.note(fact, Element(self.stream, widths.index(fact.value)))
            for maps in (
                leaves for top in tops for value in top.roles.values() if (leaves := _in_order(value))
            ):
                if [_input(leaf) for leaf in maps] == widths:  # one for each stage
                    for at, leaf in enumerate(maps):
                        self.found.inputs[id(leaf)] = self.copy_of(Element(self.stream, at))
            for leaf in (leaf for top in tops for leaf in _leaves(top)):
                if (read := _input(leaf)) in foreign:
                    self.found.inputs[id(leaf)] = self.copy_of(Element(self.stream, widths.index(read)))

    def note(self, fact: Fact, element: Element | None) -> None:
        if element is not None:
            self.found.elements.setdefault(id(fact), element)
            self.found.lists[id(element.listed.fact)] = element.listed

    def of_own(self, fact: Fact, at: int) -> Element | None:
        """The element of the fact's own list; what the first stage reads is no stage's."""
        is_input = self.stream is not None and fact.name.endswith(INPUTS)
        listed = None if is_input else self.lists.get(fact.name)
        if listed is None:
            return None
        if self.stream and listed.fact.value == self.stream.fact.value:
            listed = self.stream  # a bottleneck as wide as the stage is the stage's width
        return Element(listed, self.place_in(listed, at))

    def of_stream(self, fact: Fact, at: int) -> Element | None:
        """What a width in a stage is: that of the stage, of the one before, or of the next, which reads it."""
        if self.stream is None or not fact.name.endswith(WIDTHS):
            return None
        places = (at - 1, at) if fact.name.endswith(INPUTS) else (at, at + 1, at - 1)
        known = dict(enumerate(self.stream.fact.value))
        return next((Element(self.stream, place) for place in places if known.get(place) == fact.value), None)

    def learn_norms(self, items: list[Any]) -> None:
        """Notes the lengths of norms of which one belongs to each stage."""
        order = sorted((item for item in items if isinstance(item, Leaf)), key=element_indices)
        if self.stream is not None and [_length(leaf) for leaf in order] == self.stream.fact.value:
            for at, leaf in enumerate(order):
                self.note_length(leaf, Element(self.stream, at))

    def note_length(self, leaf: Leaf, element: Element) -> None:
        self.found.lengths[id(leaf)] = self.copy_of(element)

    def copy_of(self, element: Element) -> Fact:
        """A fact that is this element, for a leaf of which no flow declares that it is."""
        whole = element.listed.fact
        fact = Fact(whole.name, whole.value[element.at], whole.at, whole.evidence, whole.source)
        self.note(fact, element)
        return fact


class _Runs(_Stack):
    """The runs of a list that has no stages."""

    def __init__(self, found: Stages, stages: list[Block], tower: str, without: frozenset[str]):
        super().__init__(found, stages, tower, without)
        self.stages, self.without = stages, without

    def learn(self, around: Block) -> None:
        for at, stage in enumerate(self.stages):
            for fact in (fact for layer in elements(stage)[1:] for fact in _sizes(layer)):
                if fact.name.endswith(_INNER) and self.stream and fact.value == self.stream.fact.value[at]:
                    self.note(fact, Element(self.stream, at))  # what the first has made, the others read, too
        super().learn(around)
        for stage in self.stages:
            if count := stage.facts.get(COUNT):
                self.found.counts.setdefault(stage.home, []).append(count)
        self.learn_maps("stride", to_all=False)
        self.learn_maps("kernel_size", to_all=True)

    def learn_maps(self, word: str, to_all: bool) -> None:
        """Notes what a map of the first layer of each run has, and those of the others where these have the same."""
        layers = [elements(stage) for stage in self.stages if stage.facts]
        for role in dict.fromkeys(block.role for first, *_ in layers for block in _below(first)):
            facts = [[fact for layer in run if (fact := _fact_of(layer, role, word))] for run in layers]
            name = f"{role}.{word}"
            whole = all(len(own) == len(run) for own, run in zip(facts, layers, strict=True))
            if not whole or len({own[0].value for own in facts}) == 1 or name in self.without:
                continue
            if to_all and any(fact.value != own[0].value for own in facts for fact in own):
                continue
            first = facts[0][0]
            source = f"{first.source} and {len(facts) - 1} more"
            values = [own[0].value for own in facts]
            listed = Listed(Fact(name, values, first.at, first.evidence, source, first.rule), self.tower)
            for at, own in enumerate(facts):
                for fact in own if to_all else own[:1]:
                    self.note(fact, Element(listed, at))

    def learn_ends(self, root: Block, around: Block) -> None:
        super().learn_ends(root, around)
        for fact in (fact for block in around.blocks() for fact in block.facts.values()):
            if _last(fact) == "embedding_size":
                self.learn_entry(fact)

    def learn_entry(self, embedding: Fact) -> None:
        """Notes, too, what the first layer has as wide as that: without an expansion its inner channels."""
        super().learn_entry(embedding)
        for fact in self.facts[0]:
            if fact.value == embedding.value and fact.name.endswith(_INNER):
                self.found.entries.setdefault(id(fact), embedding)


def _fact_of(layer: Block, role: str, word: str) -> Fact | None:
    """A size of the map of a layer that has that role."""
    block = layer.roles.get(role)
    facts = block.facts.values() if isinstance(block, Block) else ()
    return next((fact for fact in facts if _last(fact) == word and type(fact.value) is int), None)


def _head_parts(root: Block) -> list[Block]:
    """The blocks right below the root that are no towers, and have none in them."""
    tops = [block for role in root.roles for block in _blocks_of(root, role)]
    return [block for block in tops if not (block.flow or "").startswith("tower/") and not [*block.blocks()]]


def _is_entry(block: Block) -> bool:
    """Whether a block makes what the first stage reads."""
    return (block.flow or "").startswith(("embedding/", "patches/"))


def _numbered(block: Block) -> list[list[Any]]:
    """Leaves whose roles differ in a number alone, in its order: `stage_norm_1`, `stage_norm_2`."""
    found: dict[str, list[tuple[int, Leaf]]] = {}
    for role, item in block.roles.items():
        word, _, number = role.rpartition("_")
        if isinstance(item, Leaf) and number.isdigit():
            found.setdefault(word, []).append((int(number), item))
    return [[leaf for _, leaf in sorted(leaves, key=lambda pair: pair[0])] for leaves in found.values()]


def _length(norm: Leaf) -> int | None:
    """How many channels a norm has."""
    weight = norm.tensors.get("weight") if "Norm" in norm.kind else None
    return weight.shape[0] if weight is not None and len(weight.shape) == 1 else None


def _last(fact: Fact) -> str:
    return fact.name.rpartition(".")[2]


def _varies(stage: Block) -> bool:
    """Whether the first layer of a stage is another than those that follow."""
    lists = (value for value in stage.roles.values() if isinstance(value, list))
    return any(len(value) > 1 for value in lists)


def _sizes(stage: Block) -> list[Fact]:
    """The facts of a stage and of all that is in it that are whole numbers."""
    blocks = (stage, *stage.blocks())
    return [fact for block in blocks for fact in block.facts.values() if type(fact.value) is int]
