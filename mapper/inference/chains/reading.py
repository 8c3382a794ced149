"""A checkpoint as a chain: its leaves in order, and a flow that calls one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from mapper.architecture import BLOCK_KINDS, Architecture, Block, Leaf, Place, Question
from mapper.checkpoint import COUNTER
from mapper.inference.chains.answers import Answers
from mapper.inference.chains.aside import auxiliary_of, copies_of, is_spread
from mapper.inference.chains.bare import is_bare
from mapper.inference.chains.behind import ask, placed
from mapper.inference.chains.between import IDS, INPUT, Between, Written
from mapper.inference.chains.cells import LSTM_NOTE, Cell, cell_of, has_gates, write_cell
from mapper.inference.chains.combined import NoReadingError
from mapper.inference.chains.doubts import in_lists_alike
from mapper.inference.chains.elements import (
    CONVOLUTION,
    EMBEDDING,
    LINEAR,
    NORM,
    RECURRENT,
    Element,
    element_of,
    twice_registered,
    unfolded,
)
from mapper.inference.chains.entering import inputs_of
from mapper.inference.chains.forks import in_arms, with_roles
from mapper.inference.chains.heads import in_order
from mapper.inference.chains.inputs import LAST, grouped_first
from mapper.inference.chains.lookup import ask_tied, with_tables
from mapper.inference.chains.network import Woven, woven_of
from mapper.inference.chains.order import LAYERS, MAPS, START, Data, Head, Link, Order
from mapper.inference.chains.residuals import Span, apart, branches_of, is_of, with_links
from mapper.inference.chains.solving import fitting
from mapper.inference.chains.square import ask_kinds, with_kinds
from mapper.inference.chains.stored import as_the_others, ask_stored
from mapper.inference.chains.suspicion import is_doubtful
from mapper.inference.chains.texts import names_in
from mapper.inference.chains.twins import OTHER, Twins, ask_shared, shared
from mapper.inference.chains.whole import NOTE, is_whole
from mapper.inference.chains.woven import GIVES, READS, Weaving
from mapper.inference.evidence import Known
from mapper.inference.facts import Facts
from mapper.inference.leaf_shapes import weight_shape
from mapper.inference.names import Names
from mapper.inference.scopes import Scope
from mapper.rulebook.chain import ChainWords
from mapper.rulebook.facts import FactRule, InputRule
from mapper.rulebook.flows import FlowRule
from mapper.rulebook.index import FlowEntry, FlowTable
from mapper.rulebook.rulebook import Rulebook
from mapper.words import parts

FLOW = "root/chain"
_FILE = "vocabulary/chain.yaml"
_BY_NAMES = "the layers are called in the order of their names; their sizes allow others"
_SPREAD = "'{}' gives what the next layer reads, and '{}' stands beside it: taken for a mean and a spread, of which no sample is drawn"
_IN_A_ROW = "'{0}' is taken to read {1} words of '{2}' in one row; where it reads one, and an input beside it: --set '{0}:chain.reads={2} & inputs_2'"
_UNSAID = "neither sizes nor names show which of its layers reads which: say it of each, as in --set '{0}:chain.reads={1}' (its input is called inputs), and ask again for what is left"
_BESIDE = "; numbers that no layer has may stand in it, as in --set '{0}:chain.reads={1} * {2}'"
_TWICE = "each layer of '{}' stands beside it under another name too: no name tells whether they are the same"
_OTHER = frozenset(BLOCK_KINDS) - {
    "feed_forward",
    "norm",
    "embedding",
    "convolution",
    "recurrent",
    "head",
    "other",
}
_LENGTH_FIRST = "recurrent layers read (batch, length, ...); what was made without batch_first=True takes and gives the same, length first"
_AXES = ("depth", "height", "width")
_PUBLIC = "what layers of a network without a name read"
_FORK = "fork"  # in place of a role: a fork is no layer
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
    if any(_is_other(block) for block in architecture.root.blocks() if not is_aside(block.home)):
        return None
    if sum(leaf.place.instances for leaf in architecture.leaves) > LAYERS:
        return None
    leaves = [one for leaf in architecture.leaves for one in unfolded(leaf)]
    leaves = as_the_others(leaves, hints, architecture.checkpoint.notes)
    leaves = with_tables(with_kinds(leaves, words.order, hints), words.order)
    layers, rest = _parted(leaves, words, is_aside)
    is_told = any(str(key).rpartition(":")[2] in (READS, GIVES) for key in hints or ())
    named = {name for key, text in (hints or {}).items() if is_told for name in names_in(f"{key} {text}")}
    bare = [
        leaf
        for leaf in leaves
        if is_told and is_bare(leaf) and (leaf in layers or leaf.place.first() in named)
    ]
    elements = _elements(leaf for leaf in layers if leaf not in bare)
    if elements is None or not (is_whole(leaves) or sum(element.is_main for element in elements) >= _LEAST):
        return None
    order = {key: at for at, key in enumerate(architecture.checkpoint.tensors)}
    elements.sort(key=lambda element: min(order[key] for key in _placed(element.leaf)))
    if cell := cell_of(elements, rest, words):
        return cell
    if has_gates(elements, words) or _is_cell(elements, words) or _is_graph(elements, words):
        return None
    is_told = is_told or any(names.fit(rule.has, rule.lacks) for rule in _rules(rulebook, READS))
    is_gated = any(is_of(part, words.apart) for element in elements for part in element.leaf.place)
    keeps_order = architecture.checkpoint.container in _IN_ORDER
    told = {str(key).rpartition(":")[0] for key in hints or () if str(key).rpartition(":")[2] == READS}
    is_read = is_gated or (is_told and not any(told))
    line = None if is_read else _in_line(elements, rest, words, hints, keeps_order)
    line = line or (_in_line(_untold(elements, told), rest, words, hints, keeps_order) if any(told) else None)
    chain = None if is_told else line
    rest = [leaf for leaf in rest if leaf not in bare]
    found = chain or woven_of(elements, rest, words, is_told, told, bare, line.order if line else None)
    if found or is_gated or is_told:
        return found
    pairs = (_in_line(one, rest, words, hints, keeps_order) for one in shared(elements))
    return next((pair for pair in pairs if pair and not pair.order.heads), None)


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
    bare = [leaf for leaf in leaves if leaf.kind in ("Parameter", "Buffer")]
    rest = [leaf for leaf in bare if _is_small(leaf) or is_spread(leaf, words.spread_alone)]
    rest += [leaf for leaf in leaves if is_aside(leaf.place)]
    idle = {id(leaf) for leaf in rest}
    layers = [leaf for leaf in leaves if id(leaf) not in idle]
    twice = [leaf for found in twice_registered(layers).values() for leaf in found]
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
    main, beside = apart(elements, words.shortcut)
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


def _is_other(block: Block) -> bool:
    """Whether a block computes more than its layers one after the other; one of these may be residual."""
    if block.kind == "layer":
        return not all(
            leaf.kind.startswith("Conv")
            or leaf.kind in ("BatchNorm", "GroupNorm", "PReLU", "Linear", "LayerNorm")
            for leaf in block.leaves()
        )
    is_attention = block.kind == "attention"
    if (
        block.kind == "moe"
    ):  # experts by numbers alone are rows of maps; those with words are feed-forward networks
        inner = [leaf for leaf in block.leaves() if len(leaf.place) > len(block.home) + 1]
        return not all(leaf.kind == "Linear" and isinstance(leaf.place[-1], tuple) for leaf in inner)
    return block.kind in _OTHER and not (
        is_attention and (_is_one_map(block) or _is_gate(block) or _is_of_maps(block))
    )


def _is_one_map(block: Block) -> bool:
    """Whether a block called attention holds no more than maps to one number, or one map: `value_net` may be the value of a state.

    Of a block without layers of its own the name alone says something.
    """
    leaves = list(block.leaves())
    shapes = [weight_shape(leaf) for leaf in leaves if leaf.kind == "Linear"]
    is_score = any(shape and shape[0] == 1 for shape in shapes)
    return len(shapes) == len(leaves) and (len(leaves) < 2 or is_score)


def _is_gate(block: Block) -> bool:
    """Whether a block called attention holds two maps, to fewer channels and back: it weighs channels (1709.01507)."""
    shapes = [weight_shape(leaf) for leaf in block.leaves()]
    extents = {shape[:2] for shape in shapes if len(shape) > 1 and set(shape[2:]) <= {1}}
    return len(shapes) == len(extents) == 2 and extents == {shape[::-1] for shape in extents}


def _is_of_maps(block: Block) -> bool:
    """Whether a block called attention holds convolutions to fewer channels and their norms alone: it weighs places (1804.03999)."""
    kinds = {leaf.kind for leaf in block.leaves()}
    return bool(kinds) and kinds <= {"Conv1d", "Conv2d", "Conv3d", "BatchNorm", "PReLU"}


def _is_small(leaf: Leaf) -> bool:
    """Whether a bare tensor is one number, which a loss may have: no layer. A weight is of some module, and may be slopes."""
    is_weight = leaf.place[-1:] == ("weight",) and len(leaf.place) > 1
    return not is_weight and all(info.size <= 1 for info in leaf.tensors.values())


def _elements(leaves: Iterable[Leaf]) -> list[Element] | None:
    found = [element_of(leaf) for leaf in leaves]
    elements = [element for element in found if element is not None]
    return elements if len(elements) == len(found) else None


@dataclass
class Laid:
    """What is made of a chain: rules with its flow, and what is asked."""

    rulebook: Rulebook
    questions: list[Question]
    problems: list[str]
    forward: list[str]  # for a reader
    notes: list[str]


def lay(
    chain: Chain | Woven | Cell, leaves: Sequence[Leaf], facts: Facts, root: Scope, rulebook: Rulebook
) -> Laid:
    """The flow of a chain. Raises HintError for an answer that does not go with it.

    `leaves` are those of the chain as the blocks have them, and more.
    """
    own = [element.leaf for element in _every(chain)]
    names = frozenset(leaf.place.first() for leaf in own)
    answers = Answers(facts, root, rulebook.chain_words, names=names)
    problems = _twice(chain, answers)
    ask_kinds(own, answers)
    ask_stored(own, answers)
    if isinstance(chain, Cell):
        written, inputs = write_cell(chain, leaves, answers, rulebook.activations)
        made = _with_flow(rulebook, _rule(chain, written, inputs))
        notes = [LSTM_NOTE] if chain.is_gated else []
        return Laid(made, answers.questions(), written.problems, written.forward, notes)
    if isinstance(chain, Woven):
        return _lay_woven(chain, leaves, answers, rulebook)
    main, roles, heads, spans = _with_leaves(chain, leaves)
    main = grouped_first(main, answers)
    ask(chain.order, main, answers)
    ask_shared(main, answers)
    if not heads:
        ask_tied(main, answers)

    def trial(assumed: dict[str, str]) -> Written:
        tried = Answers(facts, root, rulebook.chain_words, assumed=assumed, names=names)
        return Between(main, roles, tried, rulebook.activations, heads, spans).run()

    between = Between(main, roles, answers, rulebook.activations, heads, spans)
    written = between.run()
    if answers.told("chain.input_size"):
        answers.narrow(fitting(trial, answers.asked))
    if written.input_size:
        known = Known(written.input_size, "shape", "the smallest for which the sizes add up")
        facts.used.setdefault((root, "chain.input_size"), (root, "chain.input_size", known))
    inputs = _inputs(main[0], between)
    rule = _rule(chain, written, inputs)
    made = _with_flow(rulebook, rule)
    if Twins.are_told(answers):
        name = next(iter(inputs), IDS)
        shape = inputs[name][0]["shape"] if inputs else ["batch", "length"]
        rule.inputs[OTHER] = [{"shape": shape}]
        dtype = "float32" if inputs else "int64"
        both = {each: InputRule(each, tuple(shape), dtype, False, _PUBLIC) for each in (name, OTHER)}
        made.__dict__["inputs"] = both
    notes = [_BY_NAMES] if chain.order.is_by_names else []
    notes += [NOTE] if is_whole(leaves) else _of_sequences(chain)
    notes += [_SPREAD.format(mean, spread) for mean, spread in between.means.items()]
    notes += [
        _IN_A_ROW.format(link.element.name, link.places, before.element.name)
        for before, link in pairwise(main)
        if link.before.is_table and link.places > 1
    ]
    return Laid(made, answers.questions(), [*problems, *written.problems], written.forward, notes)


def _twice(chain: Chain | Woven | Cell, answers: Answers) -> list[str]:
    """What is wrong with layers that stand under two names: asked, and nothing where they are said to be the same."""
    listed = twice_registered([link.leaf for link in _every(chain)] + list(chain.rest))
    found = []
    for folder, leaves in listed.items():
        value = answers.find(leaves[0], "chain.twice", among=("same", "apart"))
        if value not in (None, "same"):
            found.append(_TWICE.format(folder))
    return found


def _every(chain: Chain | Woven | Cell) -> Iterable[Element]:
    return (link.element for link in chain.links) if isinstance(chain, Chain) else chain.elements()


def _lay_woven(woven: Woven, leaves: Sequence[Leaf], answers: Answers, rulebook: Rulebook) -> Laid:
    """The flow of a network that is no chain."""
    weaving = Weaving(woven, leaves, answers, rulebook.activations)
    links = [Link(each, Data(START), Data(START)) for node in weaving.nodes for each in node.elements]
    between = Between(links, woven.roles()[: len(links)], answers, rulebook.activations)
    try:
        weaving.run(between)
    except NoReadingError as error:
        between.written.problems.append(str(error))
        for link in links:  # nobody came to ask what these norms have
            if link.element.group == NORM:
                answers.epsilon(link.element.leaf)
    written, inputs = between.written, inputs_of(weaving)
    rule = _rule(woven, written, {name: [{"shape": spec["shape"]}] for name, spec in inputs.items()})
    made = _with_flow(rulebook, rule)
    declared = {
        name: InputRule(name, tuple(spec["shape"]), spec["dtype"], False, _PUBLIC)
        for name, spec in inputs.items()
    }
    made.__dict__["inputs"] = declared
    return Laid(made, answers.questions(), written.problems, written.forward, _of_sequences(woven))


def _of_sequences(chain: Chain | Woven) -> list[str]:
    """What no file says of recurrent layers: which axis of their input is the first; their numbers are the same."""
    return [_LENGTH_FIRST] if any(element.group == RECURRENT for element in _every(chain)) else []


def _rule(chain: Chain | Woven | Cell, written: Written, inputs: dict[str, list[dict[str, Any]]]) -> FlowRule:
    """The statements as a flow of the whole model."""
    return FlowRule(
        name=FLOW,
        doc="its layers in the order in which they are called",
        takes=(),
        needs=tuple(chain.roles()),
        options=(),
        when={},
        shapes={},
        leaves={role: dict(arguments) for role, arguments in written.arguments.items() if arguments},
        values={},
        body="\n".join(written.lines),
        file=_FILE,
        line=1,
        inputs=inputs,
    )


def _with_leaves(
    chain: Chain, leaves: Sequence[Leaf]
) -> tuple[list[Link], list[str], list[Head], list[Span]]:
    """The layers, with these leaves, and their roles: in order, a fork among them; then the heads, and what blocks have beside them."""
    links = [
        replace(link, element=replace(link.element, leaf=leaf), role=role)
        for link, leaf, role in zip(chain.links, leaves, chain.roles(), strict=False)
    ]
    in_forks = sum(1 for _ in in_arms(chain.order.links))
    own, arms = iter(links[: len(links) - in_forks]), iter(links[len(links) - in_forks :])
    main = [with_roles(link, arms) if link.arms else next(own) for link in chain.order.links]
    beside = list(own)
    roles = [link.role or _FORK for link in main] + [link.role for link in beside]
    left = iter(beside)
    heads = [replace(head, links=tuple(next(left) for _ in head.links)) for head in chain.order.heads]
    return main, roles, heads, with_links(chain.branches, list(left))


def _inputs(first: Link, between: Between) -> dict[str, list[dict[str, Any]]]:
    """The shape of the public input, by the first layer that is no norm of it."""
    if first.element.group == EMBEDDING:
        return {}
    main = next((link for link in between.links if link.element.is_main), first)
    batch = ("batch", "frames") if between.has_frames else ("batch",)
    if main.after.form != MAPS:
        is_recurrent = any(link.element.group == RECURRENT for link in between.links)
        length = [] if between.written.has_single_rows and not is_recurrent else ["length"]
        return {INPUT: [{"shape": [*batch, *length, main.element.inputs]}]}
    axes = ("length",) if main.after.axes == 1 else _AXES[-main.after.axes :]
    if between.is_sampled:
        return {INPUT: [{"shape": [*batch, "length"]}]}
    if between.answers.told("chain.input") == LAST:
        return {INPUT: [{"shape": [*batch, *axes, main.element.inputs]}]}
    width = main.element.inputs * (main.groups if main.before.form == START else 1)
    return {INPUT: [{"shape": [*batch, width, *axes]}]}


def _with_flow(rulebook: Rulebook, rule: FlowRule) -> Rulebook:
    """The rules with one flow alone, of the whole model."""
    made = copy(rulebook)
    _ = rulebook.flow_facts
    entry = FlowEntry(0, list(rule.needs), [], False, [], {}, [], [])
    made.__dict__["flows"] = FlowTable({rule.name: entry}, lambda _: rule)
    made.__dict__["flow_facts"] = rulebook.flow_facts
    made.parsed = {}
    return made
