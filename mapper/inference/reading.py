"""One attempt to read a checkpoint, stage by stage: outline, gaps, flows, sizes, facts, and how far all that can be trusted."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field, replace
from functools import partial as partial_call
from typing import TYPE_CHECKING

from mapper._dataclass import dataclass
from mapper.architecture import CONTRADICTION, Architecture, Leaf, Origin, Place, Question
from mapper.errors import ArchitectureError, FlowError, MapperError, listed
from mapper.flows.flow import flow_of
from mapper.flows.program import link, unused_leaves
from mapper.flows.results import check_results
from mapper.inference.assign import Filler
from mapper.inference.case import Case, Doubts
from mapper.inference.chosen import (
    Chosen,
    choose_flows,
    drop_uncalled,
    say_what_lacks,
    value_of,
)
from mapper.inference.completeness import unread_names
from mapper.inference.contradictions import (
    against_graph,
    check_agreement,
    check_bounds,
    check_config,
    check_frequencies,
    check_modules,
    check_widths,
    given_stages,
    harmful_fields,
    left_out,
    unread_fields,
    untaken_stages,
)
from mapper.inference.families import turned_round
from mapper.inference.gaps import find_gaps, find_lacking
from mapper.inference.inputs import public_inputs
from mapper.inference.left_over import left_over
from mapper.inference.outline import Outline, lay_out
from mapper.inference.quantised import odd_types, several_types
from mapper.inference.sizes import Sizes
from mapper.inference.twins import Twins
from mapper.inference.unused import why_unread
from mapper.inference.updates import SETTINGS, scale
from mapper.naming.leaf_groups import Taken

if TYPE_CHECKING:
    from mapper.inference.chains.laying import Laid


@dataclass
class _Stages:
    """What the stages have found so far, for whoever asks what was read of a checkpoint that contradicts itself."""

    outline: Outline | None = None
    chosen: Chosen | None = None


def read(case: Case, findings: list[str]) -> Architecture:
    """The architecture. Raises ArchitectureError, with what was read until then."""
    doubts, stages = Doubts(case, findings), _Stages()
    try:
        return _read(case, doubts, stages)
    except ArchitectureError as error:
        error.so_far = error.so_far or partial_call(_so_far, case, doubts, stages, error.in_command())
        raise


def _read(case: Case, doubts: Doubts, stages: _Stages) -> Architecture:
    before = list(doubts.findings)
    doubts.findings += turned_round(case.rulebook, case.families, case.names)
    outline = stages.outline = lay_out(case, doubts)
    laid = _laid(case, outline, doubts)
    case = replace(case, rulebook=laid.rulebook) if laid else case
    find_gaps(case, outline, doubts)
    chosen = stages.chosen = choose_flows(case, outline, doubts)
    if taken := _newly_taken(case, chosen):
        doubts.findings, doubts.notes, doubts.missing = before, [], []
        return _read(replace(case, taken={**case.taken, **taken}), doubts, stages)
    if chosen.is_tried:
        say_what_lacks(case, chosen, doubts)
        drop_uncalled(chosen)
    refusal = case.refusal
    if chosen.is_complete and (refusal := odd_types(outline.read)):  # torch does not compute with few bits
        doubts.missing.append(refusal)
    is_complete = chosen.is_complete and not refusal
    if case.is_brief and not is_complete:
        return _skeleton(case, outline)
    filler = _fill(case, outline, chosen, doubts, is_complete)
    questions = _questions(case, outline, laid)
    doubts.missing += [*map(str, questions), *filler.unusable, *scale(outline.leaves, case.checkpoint.config)]
    if is_complete:
        _check(outline, chosen, filler, doubts)
    find_lacking(case, outline, doubts)
    architecture = _described(case, outline, filler, doubts)
    architecture.refusal, architecture.unfit, architecture.questions = refusal, chosen.unfit, questions
    architecture.unused = [(key, why) for leaf, why in outline.unused for key in Leaf.keys(leaf)]
    _conclude(case, outline, architecture, doubts, is_complete)
    architecture.origin, architecture.forward = _origin(case, outline), laid.forward if laid else []
    architecture.unheard = outline.facts.hints.unheard
    return architecture


def _laid(case: Case, outline: Outline, doubts: Doubts) -> Laid | None:
    """The layers of a network that is read as a chain, with rules of its own."""
    if case.chain is None:
        return None
    from mapper.inference.chains.laying import lay

    laid = lay(case.chain, outline.leaves, outline.facts, outline.root, case.rulebook)
    doubts.missing += laid.problems
    doubts.notes += laid.notes
    return laid


def _questions(case: Case, outline: Outline, laid: Laid | None) -> list[Question]:
    """What is asked: of the layers of a chain first. Of what no answer makes a model, nothing."""
    if case.refusal:
        return []
    asked = laid.questions if laid else []
    own = {question.fact.rpartition(".")[2] for question in asked}  # groups of a norm are asked by two facts
    return [*asked, *(one for one in outline.asked.questions() if one.fact.rpartition(".")[2] not in own)]


def _skeleton(case: Case, outline: Outline) -> Architecture:
    """What is no model, for whoever asks no more of it."""
    family = case.families.whole.name if case.families.whole else None
    return Architecture(case.checkpoint, outline.leaves, outline.root.block, family=family)


def _newly_taken(case: Case, chosen: Chosen) -> dict[Place, Taken]:
    """The modules that are all that blocks lack, of a type that nobody lists, without those that are taken already."""
    if case.families.are_vouched_for or case.chain:
        return {}
    return {place: there for place, there in left_over(case, chosen).items() if place not in case.taken}


def solve_sizes(outline: Outline, chosen: Chosen, doubts: Doubts, is_fatal: bool) -> dict[int, Sizes]:
    """Sizes of every block with a flow, by identity of its scope; what contradicts is fatal where there will be a model."""
    solved: dict[int, Sizes] = {}
    for scope in (*outline.root.below(), outline.root):
        flow = chosen.of(scope)
        if flow is None:
            continue
        try:
            sizes = Sizes(scope, flow.rule, outline.facts)
            sizes.solve()
        except ArchitectureError as error:
            if is_fatal:
                raise
            if id(scope) in chosen.flows:
                doubts.findings.append(error.in_command())
            continue
        solved[id(scope)] = sizes
    outline.facts.settle()
    return solved


def _fill(case: Case, outline: Outline, chosen: Chosen, doubts: Doubts, is_complete: bool) -> Filler:
    """Every fact where a flow reads it; what nobody knows is asked."""
    sizes = solve_sizes(outline, chosen, doubts, is_complete)
    rulebook = case.rulebook if case.use_families else None
    twins = Twins(outline.facts, rulebook, case.names, outline.root)
    filler = Filler(outline.root, outline.facts, case.rulebook, outline.asked, twins)
    for scope, flow, needs in chosen.needs():
        filler.block(scope, flow, needs, sizes.get(id(scope)))
    for scope in chosen.lacking:
        filler.forks(scope, None)
    doubts.notes += twins.notes()
    outline.facts.config.consult([SETTINGS])
    outline.facts.config.read.add(SETTINGS)
    return filler


def _check(outline: Outline, chosen: Chosen, filler: Filler, doubts: Doubts) -> None:
    """Whether config, sizes and modules go together. Raises ArchitectureError."""
    other_sizes = check_config(outline.facts)
    check_bounds(outline.facts)
    check_agreement(outline.facts, ((scope, flow.rule) for scope, flow, _ in chosen.needs()))
    check_frequencies(outline.leaves, outline.facts)
    check_widths(outline.root)
    check_modules(outline.read)
    doubts.gap(chosen.untaken())
    doubts.findings += [
        *several_types(outline.read),
        *filler.findings(),
        *left_out(outline.facts),
        *other_sizes,
        *against_graph(outline.facts),
    ]


def _described(case: Case, outline: Outline, filler: Filler, doubts: Doubts) -> Architecture:
    """The architecture as far as it is known before its flows are linked."""
    return Architecture(
        case.checkpoint,
        outline.leaves,
        outline.root.block,
        family=case.families.whole.name if case.families.whole else None,
        towers=case.families.towers(),
        rules=case.rulebook.digest,
        facts=filler.report(),
        lost=filler.lost,
        rulebook=case.rulebook,
        refusal=case.refusal,
        notes=[*doubts.notes, *case.rulebook.notes],
        what=case.what,
    )


def _conclude(
    case: Case, outline: Outline, architecture: Architecture, doubts: Doubts, is_complete: bool
) -> None:
    """Link the flows, list what no flow reads, and say how far the reading can be trusted."""
    linked = _link(case, outline, architecture, doubts) if is_complete and not doubts.missing else _Linked()
    is_complete &= not linked.has_failed
    aside = {id(leaf) for leaf, _ in outline.unused}
    roleless = (leaf for leaf in architecture.leaves if leaf.role is None)
    idle = [leaf for leaf in (*roleless, *linked.idle) if id(leaf) not in aside]
    inner = [str(leaf.place) for leaf in idle if _must_be_read(leaf, case, outline)]
    if (is_complete or linked.has_failed) and inner:
        is_complete = False
        doubts.missing.append(f"no flow reads {listed(inner)}")
    for part in case.families.checked(case.names, idle) if is_complete else ():
        doubts.unlike(unread_names(part.family, part.leaves))
    architecture.unmapped = [key for leaf in idle for key in Leaf.keys(leaf)]
    if is_complete:
        facts = outline.facts
        doubts.findings += [*given_stages(facts), *unread_fields(facts.config, case.families)]
        lines, questions = harmful_fields(facts, outline.root)
        doubts.missing += [*lines, *untaken_stages(facts)]
        architecture.questions = [*architecture.questions, *questions]
    architecture.findings, architecture.missing = doubts.findings, doubts.missing
    architecture.reading = _trust(case, architecture) if is_complete else "skeleton"


@dataclass
class _Linked:
    """What came of linking the flows."""

    idle: list[Leaf] = field(default_factory=list)  # leaves with a role that no flow reads
    has_failed: bool = False


def _link(case: Case, outline: Outline, architecture: Architecture, doubts: Doubts) -> _Linked:
    """Gives the architecture its inputs, and its program: what is written is made of the same."""
    idle: list[Leaf] = []
    try:
        program = link(architecture, lambda name: flow_of(case.rulebook, name), {})
        check_results(program)
        has_types = case.families.whole is not None and bool(case.families.whole.model_types)
        architecture.inputs = public_inputs(
            program, case.rulebook.inputs, partial_call(value_of, outline), has_types
        )
        for leaf in unused_leaves(program):
            if why := why_unread(program, leaf):
                architecture.unused += [(key, why) for key in Leaf.keys(leaf)]
            elif leaf.role is not None:
                idle.append(leaf)
        architecture.program = program
    except FlowError as error:
        doubts.missing.append(error.in_command())
        return _Linked(idle, has_failed=True)
    return _Linked(idle)


def _must_be_read(leaf: Leaf, case: Case, outline: Outline) -> bool:
    """Whether nothing is a model that leaves this out: what stands in every layer, and all there is of an unlisted type."""
    if case.chain is not None:
        return False  # single numbers beside a chain: those of a loss
    return leaf.kind != "Buffer" and (
        not case.families.are_vouched_for or any(indices for _, indices in leaf.block)
    )


def _trust(case: Case, architecture: Architecture) -> str:
    open_ends = architecture.findings or architecture.missing or architecture.unmapped or case.hints
    return "exact" if case.families.are_vouched_for and not open_ends else "unverified"


def _origin(case: Case, outline: Outline) -> Origin:
    """What of the config and the hints this reading rests on."""
    config = outline.facts.config
    config.consult(case.rulebook.config_vocabulary.quantised_fields)
    kept = None if case.checkpoint.config is None else config.needed(case.families.ignored())
    return Origin(kept, dict(case.hints or {}), case.use_families)


def _so_far(case: Case, doubts: Doubts, stages: _Stages, why: str) -> Architecture:
    """The architecture of a checkpoint that contradicts itself, as far as it goes: nothing more is refused of it."""
    doubts.lenient = True
    outline = stages.outline
    if outline is None:
        outline = lay_out(case, doubts)
    chosen = stages.chosen or Chosen(outline)
    with suppress(MapperError):
        chosen = stages.chosen or choose_flows(case, outline, doubts)
    drop_uncalled(chosen)
    sizes = {}
    with suppress(MapperError):
        sizes = solve_sizes(outline, chosen, doubts, is_fatal=False)
    filler = Filler(outline.root, outline.facts, case.rulebook, outline.asked)
    for scope, flow, needs in chosen.needs():
        with suppress(MapperError):
            filler.block(scope, flow, needs, sizes.get(id(scope)))
    architecture = _described(case, outline, filler, doubts)
    architecture.reading = CONTRADICTION
    architecture.findings = [text for text in dict.fromkeys(doubts.findings) if text not in why]
    return architecture
