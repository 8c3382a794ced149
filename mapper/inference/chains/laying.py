"""The flow of a chain, and of what else layers make that nobody knows: written for one checkpoint, with what is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from mapper.architecture import Leaf, Question
from mapper.inference.chains.answers import Answers
from mapper.inference.chains.behind import ask
from mapper.inference.chains.between import IDS, INPUT, Between, Written
from mapper.inference.chains.cells import LSTM_NOTE, Cell, write_cell
from mapper.inference.chains.elements import (
    EMBEDDING,
    NORM,
    RECURRENT,
    Element,
    twice_registered,
)
from mapper.inference.chains.entering import inputs_of
from mapper.inference.chains.forks import in_arms, with_roles
from mapper.inference.chains.inputs import LAST, grouped_first
from mapper.inference.chains.links import MAPS, START, Data, Link
from mapper.inference.chains.lookup import ask_tied
from mapper.inference.chains.network import Woven
from mapper.inference.chains.order import Head
from mapper.inference.chains.reading import Chain
from mapper.inference.chains.residuals import Span, with_links
from mapper.inference.chains.solving import fitting
from mapper.inference.chains.square import ask_kinds
from mapper.inference.chains.steps import in_steps
from mapper.inference.chains.stored import ask_stored
from mapper.inference.chains.twins import OTHER, Twins, ask_shared
from mapper.inference.chains.value import NoReadingError
from mapper.inference.chains.whole import NOTE, is_whole
from mapper.inference.chains.woven import Weaving
from mapper.inference.evidence import Known
from mapper.inference.facts import Facts
from mapper.inference.scopes import Scope
from mapper.rulebook.facts import InputRule
from mapper.rulebook.flows import FlowRule
from mapper.rulebook.index import FlowEntry, FlowTable
from mapper.rulebook.rulebook import Rulebook

FLOW = "root/chain"
_FILE = "vocabulary/chain.yaml"
_BY_NAMES = "the layers are called in the order of their names; their sizes allow others"
_SPREAD = "'{}' gives what the next layer reads, and '{}' stands beside it: taken for a mean and a spread, of which no sample is drawn"
_IN_A_ROW = "'{0}' is taken to read {1} words of '{2}' in one row; where it reads one, and an input beside it: --set '{0}:chain.reads={2} & inputs_2'"
_TWICE = "each layer of '{}' stands beside it under another name too: no name tells whether they are the same"
_LENGTH_FIRST = "recurrent layers read (batch, length, ...); what was made without batch_first=True takes and gives the same, length first"
_AXES = ("depth", "height", "width")
_INPUT_SIZE = "chain.input_size"
_PUBLIC = "what layers of a network without a name read"
_FORK = "fork"  # in place of a role: a fork is no layer


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
        return _lay_cell(chain, leaves, answers, rulebook)
    if isinstance(chain, Woven):
        return _lay_woven(chain, leaves, answers, rulebook)
    laid = _lay_line(chain, leaves, answers, rulebook)
    return replace(laid, problems=[*problems, *laid.problems])


def _lay_cell(cell: Cell, leaves: Sequence[Leaf], answers: Answers, rulebook: Rulebook) -> Laid:
    """The flow of what each step of a sequence calls with the state of the last."""
    written, inputs = write_cell(cell, leaves, answers, rulebook.activations)
    made = _with_flow(rulebook, _rule(cell, written, inputs))
    notes = [LSTM_NOTE] if cell.is_gated else []
    return Laid(made, answers.questions(), written.problems, written.forward, notes)


def _lay_line(chain: Chain, leaves: Sequence[Leaf], answers: Answers, rulebook: Rulebook) -> Laid:
    """The flow of layers that are called one after the other."""
    main, roles, heads, spans = _with_leaves(chain, leaves)
    main = grouped_first(main, answers)
    ask(chain.order, main, answers)
    ask_shared(main, answers)
    if not heads:
        ask_tied(main, answers)

    def between(answers: Answers) -> Between:
        return Between(main, roles, answers, rulebook.activations, heads, spans)

    laid = between(answers)
    written = laid.run()
    if answers.told(_INPUT_SIZE):
        answers.narrow(fitting(lambda assumed: between(answers.supposing(assumed)).run(), answers.asked))
    if written.input_size:
        known = Known(written.input_size, "shape", "the smallest for which the sizes add up")
        answers.facts.used.setdefault((answers.root, _INPUT_SIZE), (answers.root, _INPUT_SIZE, known))
    rule = _rule(chain, written, _inputs(main[0], laid))
    made = _with_flow(rulebook, rule)
    if Twins.are_told(answers):
        _take_two(rule, made)
    notes = [_BY_NAMES] if chain.order.is_by_names else []
    notes += [NOTE] if is_whole(leaves) else _of_sequences(chain)
    notes += [_SPREAD.format(mean, spread) for mean, spread in laid.means.items()]
    notes += _in_a_row(main)
    return Laid(made, answers.questions(), written.problems, written.forward, notes)


def _take_two(rule: FlowRule, made: Rulebook) -> None:
    """A second public input like the first, which the same layers read."""
    inputs = rule.inputs
    name = next(iter(inputs), IDS)
    shape = inputs[name][0]["shape"] if inputs else ["batch", "length"]
    dtype = "float32" if inputs else "int64"
    inputs[OTHER] = [{"shape": shape}]
    both = {each: InputRule(each, tuple(shape), dtype, False, _PUBLIC) for each in (name, OTHER)}
    made.__dict__["inputs"] = both


def _in_a_row(main: Sequence[Link]) -> list[str]:
    """Notes for layers that may read several words in one row, or one and an input beside it."""
    return [
        _IN_A_ROW.format(link.element.name, link.places, before.element.name)
        for before, link in pairwise(main)
        if link.before.is_table and link.places > 1
    ]


def _twice(chain: Chain | Woven | Cell, answers: Answers) -> list[str]:
    """What is wrong with layers that stand under two names: asked, and nothing where they are said to be the same."""
    leaves = [element.leaf for element in _every(chain)] + list(chain.rest)
    listed = twice_registered(leaves, answers.words.shortcut)
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
    notes = [*_of_sequences(woven), *in_steps(woven.nodes, answers.words)]
    return Laid(made, answers.questions(), written.problems, written.forward, notes)


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
    return made
