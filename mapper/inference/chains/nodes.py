"""Layers of a network that is no chain: which norms and slopes belong to which, and what each may read, by sizes and names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, permutations

from mapper.inference.chains.doubts import in_lists_alike
from mapper.inference.chains.elements import (
    CONVOLUTION,
    EMBEDDING,
    LINEAR,
    NORM,
    RECURRENT,
    Element,
)
from mapper.inference.chains.ends import ask_ends, origins
from mapper.inference.chains.links import MAPS, ROWS, START, Data, follow
from mapper.inference.chains.naming import DECODER, ENCODER, natural, ranked
from mapper.inference.chains.pairs import ask_pairs
from mapper.inference.chains.residuals import is_of
from mapper.inference.chains.texts import names_in, plain, sayable
from mapper.inference.chains.weighing import LISTED, weigh
from mapper.rulebook.chain import ChainWords

_SIDE_BY_SIDE = 4  # that one layer reads
_FEW, _POOL = 8, 28  # of more than so many no four, and no three
INPUT, IDS = "inputs", "input_ids"
_MOST = 100  # for a layer that nothing is known of: it comes last


@dataclass(frozen=True, eq=False)
class Node:
    """A layer with the norms and slopes behind it, and those before it where its list begins with them."""

    elements: tuple[Element, ...]

    @cached_property
    def first(self) -> Element:
        return next((element for element in self.elements if element.is_main), self.elements[0])

    @cached_property
    def name(self) -> str:
        return sayable(self.first.name)

    @cached_property
    def stem(self) -> tuple[str, int]:
        """What layers of one list or of one numbered word share; a layer without a number shares it with none."""
        return re.sub(r"\d+(?=\D*$)", "#", self.name), len(self.first.kernel)

    @property
    def gives(self) -> Data:
        """What it gives, as far as its sizes show it."""
        element = self.first
        if element.group == CONVOLUTION:
            return Data(MAPS, element.outputs, len(element.kernel))
        if element.group == NORM:
            return Data(START, element.outputs)
        is_table = element.group == EMBEDDING
        return Data(
            ROWS, element.outputs, is_sequence=is_table or element.group == RECURRENT, is_table=is_table
        )


@dataclass
class Sources:
    """What is known of what each layer reads: an expression, and what shows it."""

    nodes: Sequence[Node]
    words: ChainWords
    known: dict[str, tuple[str, str]] = field(default_factory=dict)
    open: dict[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # what each layer that is asked about may read
    inputs: dict[str, int] = field(default_factory=dict)  # name -> width, of vectors and maps
    maps: set[str] = field(default_factory=set)  # those of inputs that are maps

    def __post_init__(self) -> None:
        self.apart = self.words.apart
        alike = in_lists_alike([node.first for node in self.nodes])
        self.alike = {node.name for node in self.nodes if id(node.first) in alike}
        self.by_name = {node.name: node for node in self.nodes}
        # each is asked for again and again, of every pair of layers
        self.homes = {node.name: self._gate_of(node) for node in self.nodes}
        self.blocks_before = {node.name: self._block_before(node) for node in self.nodes}

    # ---------------------------------------------------------------------------------------------- looking
    def solve(self) -> None:
        """Finds what every layer reads: what shows it, or what it may be."""
        self._tables()
        ask_pairs(self)
        while left := [node for node in self.nodes if node.name not in self.known]:
            if any(self._number(node) for node in left):
                continue
            if not any(self._decide(node) for node in left):
                node = min(left, key=self._rank)
                found = (*([INPUT] if self._may_be_first(node) else []), *self.candidates(node))
                if not found:
                    self.enter(node)
                    continue
                found = (*dict.fromkeys((*self._entries(node), *self._together(found), *found)),)
                if not set(names_in(found[0])) & {*self.inputs, *self.by_name}:
                    self.note(found[0], node)
                self.open[node.name] = found[:LISTED]
                self.known[node.name] = (found[0], "")
        weigh(self)
        ask_ends(self)

    def reads(self) -> dict[str, tuple[str, ...]]:
        """For each layer what it is known to read, by name."""
        return {name: names_in(text) for name, (text, _) in self.known.items()}

    def _rank(self, node: Node) -> tuple[bool, int]:
        """What may be the first layer comes first, then what may read the fewest others."""
        return not self._may_be_first(node), len(self.candidates(node)) or _MOST

    def _may_be_first(self, node: Node) -> bool:
        """Whether it may read the input, which nobody does so far: no layer gives as many channels as a convolution reads."""
        has_tables = any(other.first.group == EMBEDDING for other in self.nodes)
        if self.inputs or has_tables or node.first.group != CONVOLUTION:
            return False
        return all(other.gives.width != node.first.inputs for other in self.nodes)

    def _entries(self, node: Node) -> Iterator[str]:
        """The inputs that a layer may read which begins a folder as others do: one that another reads, and one of its own."""
        if self._enters(node):
            yield from (name for name in self.inputs_of(node) if self.inputs[name] == node.first.inputs)
            own = re.sub(r"\W", "_", f"{node.first.leaf.place[0]}_{INPUT}")
            yield own if own.isidentifier() else f"{INPUT}_{len(self.inputs) + 1}"

    def _together(self, found: Sequence[str]) -> Iterator[str]:
        """What layers with a number each that read the same may come to: the largest of their numbers, or the sum."""
        nodes = [self.by_name[text] for text in found if text in self.by_name]
        read = {self.known.get(node.name, ("", ""))[0] for node in nodes}
        is_numbered = len({re.sub(r"\d+", "#", node.name) for node in nodes}) == 1
        if len(nodes) == len(found) > 1 == len(read) and "" not in read and is_numbered:
            if len(found) == 2 and nodes[0].first.group == CONVOLUTION:
                yield f"{found[0]} * sigmoid({found[1]})"
            yield f"max({', '.join(found)})"
            yield " + ".join(found)

    def enter(self, node: Node) -> None:
        """It reads the input of the network, or one of its own where that is of another size."""
        width = node.first.inputs
        name = next((name for name in self.inputs_of(node) if self.inputs[name] == width), "")
        if not name:
            name = f"{INPUT}_{len(self.inputs) + 1}" if self.inputs else INPUT
            self.note(name, node)
        self.known[node.name] = (name, "no layer gives what it reads")

    def note(self, name: str, node: Node) -> None:
        """A layer reads an input of its width."""
        self.inputs[name] = node.first.inputs
        if node.first.group == CONVOLUTION:
            self.maps.add(name)

    def inputs_of(self, node: Node) -> list[str]:
        """The inputs that are of the form that a layer reads."""
        return [name for name in self.inputs if (name in self.maps) is (node.first.group == CONVOLUTION)]

    def _tables(self) -> None:
        tables = [
            node for node in self.nodes if node.first.group == EMBEDDING and node.name not in self.known
        ]
        lists = {node.first.leaf.place[:-1] for node in tables if node.first.leaf.place.is_element}
        for node in tables:
            place = node.first.leaf.place
            if len(tables) == 1:
                self.known[node.name] = (IDS, "the only table")
            elif place.is_element and len(lists) == 1:
                number = sum(natural(other.name) < natural(node.name) for other in tables)
                self.known[node.name] = (f"column({IDS}, {number})", "tables in one list")
            elif [other.first.inputs for other in tables].count(node.first.inputs) == 1:
                self.known[node.name] = (_ids(node), "tables of different sizes")
            else:
                same = [other for other in tables if other.first.inputs == node.first.inputs]
                first = self.open[node.name] = tuple(_ids(other) for other in same)
                self.known[node.name] = (first[0], "")

    def _decide(self, node: Node) -> bool:
        """Whether sizes and names show what it reads."""
        found = self.candidates(node)
        if node.name in self.alike:
            return False
        if len(found) == 1 and plain(found[0]) in self.by_name and not self._enters(node):
            self.known[node.name] = (found[0], "nothing else gives what it reads")
        elif near := self._nearest(node, found):
            self.known[node.name] = (near, "of the same part")
        elif not found and not self._waits(node):
            self.enter(node)
        else:
            return False
        return True

    def _number(self, node: Node) -> bool:
        """Whether numbers show what it reads: those of layers, or those of blocks in one list."""
        if node.name in self.alike:
            return False
        found = self.candidates(node)
        for before in filter(None, (self._numbered_before(node), self.blocks_before[node.name])):
            if before.name in found:
                self.known[node.name] = (before.name, f"numbers: {before.name}, then {node.name}")
                return True
        return False

    def _block_before(self, node: Node) -> Node | None:
        """The last layer of the block before that which a layer is the first of, in the innermost list of blocks with one."""
        place = node.first.leaf.place
        lists = (at for at in range(len(place) - 1, 0, -1) if isinstance(place[at], tuple))
        return next(filter(None, (self._before_in_list(node, at) for at in lists)), None)

    def _before_in_list(self, node: Node, at: int) -> Node | None:
        """The same in the list whose blocks differ in this part of their paths."""
        place = node.first.leaf.place
        others = (other for other in self.nodes if other.first.leaf.place[:at] == place[:at])
        listed = [
            other
            for other in others
            if len(other.first.leaf.place) > at and self.home_of(other) == self.home_of(node)
        ]
        own = [other for other in listed if other.first.leaf.place[at] == place[at]]
        if node is not min(own, key=lambda other: natural(other.name)):
            return None
        earlier = [other for other in listed if natural(other.name) < natural(node.name)]
        return max(earlier, key=lambda other: natural(other.name)) if earlier else None

    def _enters(self, node: Node) -> bool:
        """Whether it may as well read an input of its own: it begins a folder, and so do others of its width."""
        return self._begins(node) and any(
            other.first.inputs == node.first.inputs and self._begins(other)
            for other in self.nodes
            if other.first.leaf.place[:1] != node.first.leaf.place[:1]
        )

    def _waits(self, node: Node) -> bool:
        """Whether what it reads may be put together once the width of the input is known."""
        return not self.inputs and any(
            other is not node and other.name not in self.known and not self.candidates(other)
            for other in self.nodes
            if other.first.inputs < node.first.inputs
        )

    # ------------------------------------------------------------------------------------------- candidates
    def candidates(self, node: Node) -> tuple[str, ...]:
        """Layers and inputs that give what it reads; else what gives it side by side."""
        free = [other for other in self.nodes if other is not node and not self.is_behind(other, node)]
        free = [other for other in free if self.home_of(other) in ((), self.home_of(node))]
        single = [self._read_by(node, other) for other in free if self._fits(other, node, exactly=True)]
        inputs = [name for name in self.inputs_of(node) if self.inputs[name] == node.first.inputs]
        single += inputs if single else []
        halves = tuple(self._halves(node, free))
        if single or halves:
            return (*self._again(node), *halves, *single)
        if dense := tuple(self._dense(node)):
            return dense
        side = self._side_by_side(node, free)
        found = [self._read_by(node, other) for other in free if self._fits(other, node, exactly=False)]
        is_pooled = any("mean(" in text for text in side)  # rarer than all places of some maps in one row
        whole = self._in_one_row(node, free) if is_pooled else []
        found = [*whole, *side, *(text for text in found if text not in whole), *self._beside_a_label(found)]
        return tuple(found or self._beside_an_input(node, free))

    def _beside_a_label(self, found: Sequence[str]) -> Iterator[str]:
        """Instead of several rows of a table of labels, one beside the network's input (1411.1784)."""
        for table in (plain(text) for text in found if text.startswith("flatten(")):
            if any(is_of(part, self.words.labels) for part in self.by_name[table].first.leaf.place):
                yield from (f"{table} & {INPUT}", f"{INPUT} & {table}")

    def _in_one_row(self, node: Node, free: Sequence[Node]) -> list[str]:
        """Maps behind which no number has another layer, of which a linear layer may read a square of places."""
        read = {before.name for one in self.nodes if (before := self._numbered_before(one))}
        maps = [
            one
            for one in free
            if one.gives.form == MAPS and one.name not in read and node.first.group == LINEAR
        ]
        return [
            one.name
            for one in maps
            if Element.places_in(replace(one.first, inputs=one.gives.width), node.first.inputs) > 1
        ]

    def _halves(self, node: Node, free: Sequence[Node]) -> Iterator[str]:
        """What the layer before by its number or its block gives, where that is twice what this one reads: a gate, or a mean and a spread."""
        before = self._numbered_before(node) or self.blocks_before[node.name]
        is_twice = before is not None and before in free and before.gives.width == 2 * node.first.inputs > 2
        if is_twice and before is not None and before.gives.form == MAPS and node.first.group == CONVOLUTION:
            yield from (f"glu({before.name})", f"first_half({before.name})")

    def _again(self, node: Node) -> Iterator[str]:
        """What the layer before by its number gives, and the input again, where it takes both to make up what a layer reads (1901.05103)."""
        before = self._numbered_before(node)
        number = re.search(r"\d+$", node.name)
        # `fc22` is the second of `fc2`
        is_counted = number is not None and int(number[0][:6]) <= len(self.nodes)
        if before is not None and is_counted and before.gives.form == ROWS and node.first.group == LINEAR:
            left = node.first.inputs - before.gives.width
            for name in (name for name in self.inputs_of(node) if self.inputs[name] == left):
                yield from (f"{before.name} & {name}", f"{name} & {before.name}")

    def _read_by(self, node: Node, other: Node) -> str:
        """What a layer gives, as another reads it: a gate of convolutions over one place reads means of maps."""
        if node.first.group == LINEAR and other.gives.is_table and node.first.inputs > other.gives.width:
            return f"flatten({other.name})"
        is_pooled = self.home_of(node) and not self.home_of(other) and set(node.first.kernel) == {1}
        return f"pooled({other.name})" if is_pooled else other.name

    def home_of(self, node: Node) -> tuple[object, ...]:
        return self.homes[node.name]

    def _gate_of(self, node: Node) -> tuple[object, ...]:
        """The gate that a layer belongs to; of `gates.0` and `gates.1` each is one. Empty for none."""
        place = node.first.leaf.place
        at = next((at for at, part in enumerate(place) if is_of(part, self.apart)), None)
        if at is None:
            return ()
        is_list = str(place[at]).endswith("gates") and at + 2 == len(place)
        return tuple(place[: at + 1 + is_list])

    def _beside_an_input(self, node: Node, free: Sequence[Node]) -> Iterator[str]:
        """Layers that give less than it reads, with another input for the rest: once something reads the first one."""
        form = MAPS if node.first.group == CONVOLUTION else ROWS
        before = self._numbered_before(node)
        bases = [
            other for other in free if other.gives.form == form and 1 < other.gives.width < node.first.inputs
        ]
        read = {name for text, _ in self.known.values() for name in names_in(text)}
        bases = [before] if before in bases else [other for other in bases if other.name not in read]
        is_known = bool(self.inputs_of(node)) or (before in bases and bool(self.inputs))
        for base in bases if is_known and not self._begins(node) else ():
            another = f"{INPUT}_{len(self.inputs) + 1}"
            yield from (f"{base.name} & {another}", f"{another} & {base.name}")

    def _fits(self, other: Node, node: Node, exactly: bool) -> bool:
        if (other.gives.width != node.first.inputs) is exactly:
            return False
        if other.gives.form == START:  # a norm that stands alone, of maps or of vectors
            return exactly
        before = other.gives
        if node.first.group == LINEAR and before.is_table and not exactly:  # several words in one row
            return other in self._wide_tables() and node.first.inputs % before.width == 0
        if node.first.group in (LINEAR, RECURRENT) and before.form == ROWS:
            return before.width == node.first.inputs
        link = follow(before, node.first, is_grouped=False)
        return link is not None and not link.is_flattened

    def _wide_tables(self) -> list[Node]:
        """The only table of more than one number for each row, if there is one alone."""
        found = [node for node in self.nodes if node.gives.is_table and node.gives.width > 1]
        return found if len(found) == 1 else []

    def _dense(self, node: Node) -> Iterator[str]:
        """What a layer of a list reads with what it gives, as the next one does, and whoever reads all of them (1608.06993)."""
        before = self._numbered_before(node) or self.blocks_before[node.name]
        ends = [other for other in self.nodes if other.first.inputs + other.gives.width == node.first.inputs]
        ends = [before] if before in ends else [] if before else ends
        for end in (end for end in ends if end is not node and not self.is_behind(end, node)):
            text = self.known.get(end.name, ("", ""))[0]
            if (text in self.by_name or "&" in text) and self._is_in_list(end):
                yield from (f"{text} & {end.name}", f"{end.name} & {text}")

    def _is_in_list(self, node: Node) -> bool:
        """Whether a layer stands in a list, be it in a block of it."""
        return any(isinstance(part, tuple) for part in node.first.leaf.place)

    def _side_by_side(self, node: Node, free: Sequence[Node]) -> list[str]:
        """Layers and inputs whose features or channels are together as many as it reads."""
        is_row = node.first.group != CONVOLUTION
        is_long = len(node.first.kernel) == 1
        pool = {
            other.name: other.gives.width
            for other in free
            if is_row or other.gives.form == MAPS or (is_long and other.first.group == EMBEDDING)
        }
        pool |= {name: self.inputs[name] for name in self.inputs_of(node) if is_row}
        before = self._numbered_before(node)
        pool = {name: width for name, width in pool.items() if width < node.first.inputs}
        found: list[str] = []
        for count in range(2, _SIDE_BY_SIDE + 1 - (len(pool) > _FEW) - (len(pool) > _POOL)):
            for names in combinations(sorted(pool, key=natural), count):
                is_right = sum(pool[name] for name in names) == node.first.inputs
                if is_right and (before is None or before.name not in pool or before.name in names):
                    orders = list(permutations(names))
                    found += [" & ".join(self._of_words(order)) for order in orders if self._has_words(order)]
                    found += [" & ".join(self._as_rows(order)) for order in orders]
        return found

    def _has_words(self, names: Sequence[str]) -> bool:
        """Whether a table stands beside what layers make of another one: characters of each word, maybe (1603.01360)."""
        nodes = [self.by_name[name] for name in names if name in self.by_name]
        tables = [node for node in nodes if node.first.group == EMBEDDING]
        return 0 < len(tables) < len(nodes) == len(names) and len(self._tables_of(nodes)) > len(tables)

    def _tables_of(self, nodes: Sequence[Node]) -> set[str]:
        """The tables that layers come of."""
        reads = self.reads()
        every = {name for node in nodes for name in origins([node.name], reads)}
        return {
            name for name in every if name in self.by_name and self.by_name[name].first.group == EMBEDDING
        }

    def _of_words(self, names: Sequence[str]) -> Iterator[str]:
        """The same, each but a table as a vector for each word."""
        for name in names:
            first = self.by_name[name].first
            last = "final_states" if first.is_bidirectional else "last"
            word = "max" if first.group == CONVOLUTION else last
            yield name if first.group == EMBEDDING else f"each({word}({name}))"

    def _as_rows(self, names: Sequence[str]) -> Sequence[str]:
        """Names side by side; of maps beside vectors their means."""
        maps = [name for name in names if name in self.by_name and self.by_name[name].gives.form == MAPS]
        return (
            [f"mean({name})" if name in maps else name for name in names] if len(maps) < len(names) else names
        )

    def is_behind(self, other: Node, node: Node) -> bool:
        """Whether a layer reads, or may by its number only read, what comes of another."""
        if _is_later(other, node) or self._is_decoded(other, node):
            return True
        seen: set[str] = set()
        waiting = [other.name]
        while waiting:
            name = waiting.pop()
            if name == node.name:
                return True
            if name not in seen and name in self.known:
                seen.add(name)
                waiting += [one for one in names_in(self.known[name][0]) if one in self.by_name]
        return False

    def _is_decoded(self, other: Node, node: Node) -> bool:
        """Whether one is of a decoder and the other of the encoder before it, which is no second one."""
        ranks = [ranked(one.first.leaf.place[:-1], self.words.order) for one in (other, node)]
        is_second = re.search(r"[2-9]\d*$", str(node.first.leaf.place[0]))
        return ranks == [DECODER, ENCODER] and not is_second

    def _numbered_before(self, node: Node) -> Node | None:
        same = [
            other
            for other in self.nodes
            if other.stem == node.stem and natural(other.name) < natural(node.name)
            if self.home_of(other) == self.home_of(node)
        ]
        return max(same, key=lambda other: natural(other.name)) if same else None

    def _nearest(self, node: Node, found: Sequence[str]) -> str:
        """The one layer with which it shares most of its path, or its first word; "" for several."""
        shared = {
            text: _shared(self.by_name[plain(text)], node) for text in found if plain(text) in self.by_name
        }
        most = max(shared.values(), default=0)
        best = [text for text, count in shared.items() if count == most]
        return best[0] if most and len(best) == 1 and len(shared) == len(found) else ""

    def _begins(self, node: Node) -> bool:
        """Whether it is the first of several layers in a folder, which may be a network beside others."""
        top = node.first.leaf.place[:1]
        same = [other for other in self.nodes if other.first.leaf.place[:1] == top]
        return len(same) > 1 and node is min(same, key=lambda other: natural(other.name))

    def leads(self, name: str, end: str) -> bool:
        return name == end or self.is_behind(self.by_name[end], self.by_name[name])


def _is_later(other: Node, node: Node) -> bool:
    """Whether the number of a layer, or that of its block in the same list, is behind another's."""
    if other.stem == node.stem and natural(other.name) > natural(node.name):
        return True
    pairs = zip(other.first.leaf.place, node.first.leaf.place, strict=False)
    one, two = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    return isinstance(one, tuple) and isinstance(two, tuple) and one > two


def _ids(node: Node) -> str:
    return re.sub(r"\W", "_", node.name) + "_ids"


def _shared(one: Node, other: Node) -> int:
    """How many parts of their paths are the same, or whether their first words are."""
    paths = [str(node.first.leaf.place).split(".")[:-1] for node in (one, other)]
    same = next(
        (at for at, pair in enumerate(zip(*paths, strict=False)) if pair[0] != pair[1]), min(map(len, paths))
    )
    words = [re.split(r"[_.]", node.name)[0] for node in (one, other)]
    return same or int(words[0] == words[1] and "_" in one.name and "_" in other.name)


def outputs_of(known: Mapping[str, str], nodes: Sequence[Node]) -> Iterator[Node]:
    """The layers that no other reads."""
    read = {name for text in known.values() for name in names_in(text)}
    yield from (node for node in nodes if node.name not in read)
