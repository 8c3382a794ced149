"""Whether a checkpoint is a chain, its leaves in order, or what else its layers make that nobody knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mapper.architecture import BARE, Architecture, Leaf, Place
from mapper.checkpoint import COUNTER
from mapper.inference.chains.aside import auxiliary_of, copies_of, is_spread
from mapper.inference.chains.bare import as_wide, is_bare, is_vector
from mapper.inference.chains.behind import placed
from mapper.inference.chains.cells import Cell, cell_of, has_gates
from mapper.inference.chains.doubts import in_lists_alike
from mapper.inference.chains.elements import (
    CONVOLUTION,
    LINEAR,
    Element,
    Scale,
    element_of,
    twice_registered,
    unfolded,
)
from mapper.inference.chains.forks import in_arms
from mapper.inference.chains.heads import in_order
from mapper.inference.chains.links import Link
from mapper.inference.chains.lookup import with_tables
from mapper.inference.chains.network import Woven, woven_of
from mapper.inference.chains.order import LAYERS, Order
from mapper.inference.chains.other_blocks import is_other
from mapper.inference.chains.residuals import Home, Span, apart, apart_by_sizes, branches_of, is_of
from mapper.inference.chains.scaling import with_scales
from mapper.inference.chains.square import with_kinds
from mapper.inference.chains.stored import as_the_others
from mapper.inference.chains.suspicion import is_doubtful
from mapper.inference.chains.texts import names_in
from mapper.inference.chains.twins import shared
from mapper.inference.chains.whole import is_whole
from mapper.inference.chains.woven import GIVES, READS
from mapper.inference.names import Names
from mapper.rulebook.chain import ChainWords
from mapper.rulebook.facts import FactRule
from mapper.rulebook.rulebook import Rulebook
from mapper.words import parts

_UNSAID = "neither sizes nor names show which of its layers reads which: say it of each, as in --set '{0}:chain.reads={1}' (its input is called inputs), and ask again for what is left"
_BESIDE = "; numbers that no layer has may stand in it, as in --set '{0}:chain.reads={1} * {2}'"
_LEAST = 2  # layers of a chain
_IN_ORDER = (
    "torch",
    "memory",
)  # containers whose names stand as their layers were defined, unless somebody sorted them


@dataclass(frozen=True)
class Chain:
    """The layers of a checkpoint in order."""

    order: Order
    rest: tuple[Leaf, ...]  # bare tensors that stand beside them
    branches: tuple[Span, ...] = ()  # blocks whose input goes through layers of its own

    @property
    def links(self) -> tuple[Link, ...]:
        """Its layers, behind the others the heads, then what blocks have beside them, and last the arms of forks."""
        beside = (link for span in self.branches for link in span.branch)
        heads = (link for head in self.order.heads for link in head.links)
        main = (link for link in self.order.links if not link.arms)
        return (*main, *heads, *beside, *in_arms(self.order.links))

    def leaves(self) -> list[Leaf]:
        """Every leaf, those of the chain with their roles."""
        roles = self.roles()
        chained = [
            replace(link.element.leaf, role=role, facts={})
            for link, role in zip(self.links, roles, strict=True)
        ]
        return [*chained, *self.rest]

    def roles(self) -> list[str]:
        """`convolution_1`, `norm_1`, `convolution_2`: what each is, by number."""
        count: Counter[str] = Counter()
        names = []
        for link in self.links:
            count[link.element.group] += 1
            names.append(f"{link.element.group}_{count[link.element.group]}")
        return names


def chain_of(
    architecture: Architecture, rulebook: Rulebook, names: Names, hints: Mapping[str, Any] | None = None
) -> Chain | Woven | Cell | None:
    """The chain that a checkpoint without a family is, or what else its layers make by their sizes; None for other blocks.

    Layers that `hints` say what they read of are no chain, nor those of which a published code, known by `names`, says it.
    """
    words = rulebook.chain_words
    is_aside = _asides(architecture, words)
    if any(is_other(block) for block in architecture.root.blocks() if not is_aside(block.home)):
        return None
    if sum(leaf.place.instances for leaf in architecture.leaves) > LAYERS:
        return None
    leaves = [one for leaf in architecture.leaves for one in unfolded(leaf)]
    leaves = as_the_others(leaves, hints, architecture.checkpoint.notes)
    leaves = with_tables(with_kinds(leaves, words.order, hints), words.order)
    layers, rest = _parted(leaves, words, is_aside)
    said = _said_by(hints or {})
    bare = [leaf for leaf in leaves if said and is_bare(leaf) and (leaf in layers or said.names(leaf))]
    vectors = [] if said else [leaf for leaf in layers if is_vector(leaf)]
    bare = bare or vectors
    elements = _elements(leaf for leaf in layers if leaf not in bare)
    if elements is None or not (is_whole(leaves) or sum(element.is_main for element in elements) >= _LEAST):
        return None
    order = {key: at for at, key in enumerate(architecture.checkpoint.tensors)}
    elements.sort(key=lambda element: min(order[key] for key in _placed(element.leaf)))
    if cell := cell_of(elements, rest, words):
        return cell
    if has_gates(elements, words) or _is_cell(elements, words) or _is_graph(elements, words):
        return None
    if not said and any(names.fit(rule.has, rule.lacks) for rule in _rules(rulebook, READS)):
        said = _Said()  # by a published code
    keeps_order = architecture.checkpoint.container in _IN_ORDER

    def in_line(elements: Sequence[Element]) -> Chain | None:
        return _in_line(elements, rest, words, hints, keeps_order)

    if vectors:
        is_gated = any(is_of(part, words.apart) for element in elements for part in element.leaf.place)
        line = None if is_gated else in_line(elements)
        mains = [link.element for link in line.order.links if link.element.is_main] if line else []
        is_told = line and mains and as_wide(vectors, (mains[0].inputs, mains[-1].outputs))
        return woven_of(elements, rest, words, True, (), vectors, line.order) if line and is_told else None
    return _by_sizes(elements, [leaf for leaf in rest if leaf not in bare], bare, words, said, in_line)


@dataclass(frozen=True)
class _Said:
    """That it is said what layers read."""

    layers: frozenset[str] = (
        frozenset()
    )  # those of which hints say it, by their names; "" where it is said of no one layer
    named: frozenset[str] = frozenset()  # all that such hints name

    def names(self, leaf: Leaf) -> bool:
        return leaf.place.first() in self.named


def _said_by(hints: Mapping[str, Any]) -> _Said | None:
    """What hints say of it; None for nothing."""
    facts = {str(key): str(key).rpartition(":")[2] for key in hints}
    if not {READS, GIVES}.intersection(facts.values()):
        return None
    layers = (key.rpartition(":")[0] for key, fact in facts.items() if fact == READS)
    named = (name for key, text in hints.items() for name in names_in(f"{key} {text}"))
    return _Said(frozenset(layers), frozenset(named))


def _by_sizes(
    elements: Sequence[Element],
    rest: Sequence[Leaf],
    bare: Sequence[Leaf],
    words: ChainWords,
    said: _Said | None,
    in_line: Callable[[Sequence[Element]], Chain | None],
) -> Chain | Woven | None:
    """The one chain that layers make, what else they make by their sizes and what is said, or a chain that two inputs share."""
    scaled = [one for one in _with_scales(elements, words) if not isinstance(one, Scale)]
    is_gated = any(is_of(part, words.apart) for element in scaled for part in element.leaf.place)
    is_gated |= any(element.leaf.kind == "Bilinear" for element in elements)  # of two inputs
    told = said.layers if said else frozenset()
    line = None if is_gated or (said and not any(told) and not bare) else in_line(elements)
    line = None if line and said and not any(told) and not _gives_ends(line, said) else line
    line = line or (in_line(_untold(elements, told)) if any(told) else None)
    chain = line if said is None else None
    found = chain or woven_of(
        elements, rest, words, said is not None, told, bare, line.order if line else None
    )
    if found or is_gated or said:
        return found
    pairs = map(in_line, shared(elements))
    return next((pair for pair in pairs if pair and not pair.order.heads), None)


def _gives_ends(line: Chain, said: _Said) -> bool:
    """Whether of a chain's layers nothing is named but those that give its outputs: the others are called one after the other."""
    ends = {line.order.links[-1].element.name, *(head.links[-1].element.name for head in line.order.heads)}
    mains = [link.element.name for link in line.order.links if link.element.is_main]
    named = said.named & {link.element.name for link in line.links}
    return named <= {*ends, *mains[-1:]}


def _with_scales(elements: Sequence[Element], words: ChainWords) -> list[Element]:
    return with_scales(elements, words.scaling, words.apart - words.scaling)


def _untold(elements: Sequence[Element], told: Container[str]) -> list[Element]:
    """The layers before those of which it was said what they read, where these are the last of the file; else none."""
    first = next((at for at, element in enumerate(elements) if element.name in told), 0)
    is_last = all(element.name in told or not element.is_main for element in elements[first:])
    return list(elements[:first]) if is_last else []


def to_say(architecture: Architecture, rulebook: Rulebook, names: Names) -> str:
    """How to say what layers read whose order nothing shows; "" where they are no network of layers alone."""
    woven = chain_of(architecture, rulebook, names, {READS: ""})
    if not isinstance(woven, Woven):
        return ""
    layers = [(one, other) for one in woven.nodes for other in woven.nodes if one is not other]
    fitting = (pair for pair in layers if pair[0].gives.width == pair[1].first.inputs)
    one, other = (node.name for node in next(fitting, layers[0]))
    beside = _BESIDE.format(other, one, woven.bare[0].place.first()) if woven.bare else ""
    return _UNSAID.format(other, one) + beside


def _asides(architecture: Architecture, words: ChainWords) -> Callable[[Place], bool]:
    """Whether what stands at a place is for training alone: an auxiliary head, or a copy of another network."""
    copies = copies_of(architecture.leaves, words.copies)
    idle = {*copies, *auxiliary_of(architecture.leaves, words.auxiliary)}
    return lambda place: bool(place) and place[0] in idle


def _parted(
    leaves: Sequence[Leaf], words: ChainWords, is_aside: Callable[[Place], bool]
) -> tuple[list[Leaf], list[Leaf]]:
    """The layers, each once, and what is none: single numbers, what stands aside, a layer's second name."""
    bare = [leaf for leaf in leaves if leaf.kind in BARE]
    rest = [leaf for leaf in bare if _is_small(leaf) or is_spread(leaf, words.spread_alone)]
    rest += [leaf for leaf in leaves if is_aside(leaf.place)]
    idle = {id(leaf) for leaf in rest}
    layers = [leaf for leaf in leaves if id(leaf) not in idle]
    twice = [leaf for found in twice_registered(layers, words.shortcut).values() for leaf in found]
    again = {id(leaf) for leaf in twice}
    return [leaf for leaf in layers if id(leaf) not in again], [*rest, *twice]


def _is_cell(elements: Sequence[Element], words: ChainWords) -> bool:
    """Whether two maps are called as those of a cell are: `h2o` alone may be the output of recurrent layers."""
    every = (word for element in elements for part in element.leaf.place for word in parts(str(part)))
    return len(words.cells.intersection(every)) > 1


def _is_graph(elements: Sequence[Element], words: ChainWords) -> bool:
    """Whether linear layers are called convolutions of a graph (1609.02907), or stand in folders called so where nothing is one."""
    linear = [element.leaf.place for element in elements if element.group == LINEAR]
    is_convolved = any(element.group == CONVOLUTION for element in elements)
    folders = _stems(part for place in linear for part in place[:-1])
    called = _stems(part for place in linear for part in place)
    return bool(called & words.graph) or (not is_convolved and bool(folders & words.graph_folders))


def _stems(path: Iterable[str | tuple[int, ...]]) -> set[str]:
    """The words of paths without the numbers at their ends."""
    return {word.rstrip("0123456789") for part in path for word in parts(str(part))}


def _rules(rulebook: Rulebook, fact: str) -> Sequence[FactRule]:
    """What rules say of a fact by names."""
    unlisted = rulebook.config_vocabulary.unlisted
    return [rule for rule in unlisted.get(fact, ()) if rule.has]


def _in_line(
    elements: Sequence[Element],
    rest: Sequence[Leaf],
    words: ChainWords,
    hints: Mapping[str, Any] | None,
    keeps_order: bool,
) -> Chain | None:
    """The layers one after the other, with what stands beside them; None where their sizes allow no order."""
    if in_lists_alike(elements):
        return None
    elements = _with_scales(elements, words)
    main, beside = apart(elements, words.shortcut)
    left, more = apart_by_sizes(main, words.gating | words.weighing | words.masking | words.querying)
    if more and not more.keys() & beside.keys():
        found = _with_branches(left, beside | more, rest, words, hints, keeps_order)
        if found:
            return found
    return _with_branches(main, beside, rest, words, hints, keeps_order)


def _with_branches(
    main: Sequence[Element],
    beside: Mapping[Home, Sequence[Element]],
    rest: Sequence[Leaf],
    words: ChainWords,
    hints: Mapping[str, Any] | None,
    keeps_order: bool,
) -> Chain | None:
    """The layers one after the other, and those beside them that lead to the sum at the end of their block."""
    found = in_order(main, words, keeps_order)
    if found and is_doubtful(found, words):
        return None
    found = placed(found, hints) if found else None
    branches = branches_of(found.links, beside) if found else None
    return Chain(found, tuple(rest), tuple(branches)) if found and branches is not None else None


def _placed(leaf: Leaf) -> list[str]:
    """The keys that show where a layer stands in a file: some containers have whole numbers, as counters are, before all others."""
    keys = list(Leaf.keys(leaf))
    return [key for key in keys if not key.endswith(COUNTER)] or keys


def _is_small(leaf: Leaf) -> bool:
    """Whether a bare tensor is one number, which a loss may have: no layer. A weight is of some module, and may be slopes."""
    is_weight = leaf.place[-1:] == ("weight",) and len(leaf.place) > 1
    return not is_weight and all(info.size <= 1 for info in leaf.tensors.values())


def _elements(leaves: Iterable[Leaf]) -> list[Element] | None:
    found = [element_of(leaf) for leaf in leaves]
    elements = [element for element in found if element is not None]
    return elements if len(elements) == len(found) else None
