"""One attempt to read a checkpoint: blocks, flows, sizes, facts, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial as partial_call
from typing import TYPE_CHECKING, Any

from mapper.architecture import Architecture, Block, Leaf, Origin, Place, Question, Unfit
from mapper.errors import ArchitectureError, FlowError, listed
from mapper.flows.flow import Flow, parse_flow
from mapper.flows.program import link, unused_leaves
from mapper.flows.references import has_role
from mapper.inference.aside import why_unread, why_unused
from mapper.inference.checks import (
    check_bounds,
    check_config,
    check_modules,
    check_widths,
    harmful_fields,
    left_out,
    unread_fields,
    untaken_stages,
)
from mapper.inference.choice import Choice, choose, untaken
from mapper.inference.config import Config
from mapper.inference.counting import count_layers
from mapper.inference.elements import differing_elements
from mapper.inference.facts import Facts
from mapper.inference.families import Families, turned_round, words_of
from mapper.inference.fill import Filler
from mapper.inference.gaps import (
    broken_promises,
    differing_roles,
    has_no_biases,
    lacking_biases,
    lacking_kept_roles,
    lacking_names,
    lacking_roles,
    lacking_tensors,
    tensors_of,
    unread_names,
)
from mapper.inference.given import check_scopes, read_hints
from mapper.inference.inputs import public_inputs
from mapper.inference.names import Names
from mapper.inference.nearest import Open, said_of
from mapper.inference.needs import Needs
from mapper.inference.part import Home
from mapper.inference.quantised import odd_types, several_types
from mapper.inference.roots import choose_root
from mapper.inference.scopes import Scope, add_parts, scopes
from mapper.inference.sizes import Sizes
from mapper.inference.so_far import so_far
from mapper.inference.twins import Twins
from mapper.inference.updates import SETTINGS, scale
from mapper.naming.blocks import build_blocks
from mapper.naming.resolve import resolve
from mapper.naming.tree import Node
from mapper.naming.vocabulary import Vocabulary, in_region

if TYPE_CHECKING:
    from mapper.checkpoint import Checkpoint
    from mapper.rulebook.rulebook import Rulebook


@dataclass(eq=False)
class Reading:
    """One attempt to read a checkpoint, with a family or without."""

    checkpoint: Checkpoint
    rulebook: Rulebook
    tree: Node
    names: Names
    families: Families
    hints: Mapping[str, Any] | None
    refused: str = ""  # why no flow may be chosen: every attempt to read it contradicted itself
    findings: list[str] = field(default_factory=list)
    refusal: str = ""  # why there must be no model of it at all
    use_families: bool = True
    is_strict: bool = (
        False  # whether it is clear what the checkpoint should be: what is missing then is an error
    )
    home: Home = field(default_factory=Home)  # where that stands
    what: str = ""
    looked_up: set[str] = field(default_factory=set)  # fields of the config that were there
    notes: list[str] = field(default_factory=list)  # what is no doubt, but should be known
    missing: list[str] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)  # facts that nobody knows
    unfit: list[Unfit] = field(default_factory=list)  # blocks without a flow
    flows: dict[int, Flow] = field(default_factory=dict)  # by identity of the scope
    leaves: list[Leaf] = field(default_factory=list)
    lenient: bool = False  # whether a gap is a finding and no more: for what is shown of a refused checkpoint

    def run(self) -> Architecture:
        """The architecture. Raises ArchitectureError, with what was read until then."""
        try:
            return self.read()
        except ArchitectureError as error:
            error.so_far = error.so_far or partial_call(so_far, self, error.in_command())
            raise

    def read(self) -> Architecture:
        vocabulary = words_of(self.rulebook, self.families, self.names)
        self.findings += turned_round(self.rulebook, self.families, self.names)
        leaves = resolve(self.tree, vocabulary)
        self.place(leaves, vocabulary)
        found = list(self.findings)
        self.count_layers()
        if apart := differing_elements(self.root, self.facts):
            leaves = resolve(self.tree, vocabulary, apart)
            self.place(leaves, vocabulary)
            self.findings = found
            self.count_layers()
        reasons = [(leaf, why_unused(leaf, vocabulary)) for leaf in leaves]
        unused = [(leaf, why) for leaf, why in reasons if why]
        read = [leaf for leaf, why in reasons if not why]
        check_scopes(self.facts.given, self.root)
        self.find_gaps(read)
        judged = [leaf for leaf in leaves if self.judges(leaf.place)]
        self.gap(lacking_tensors(judged))
        self.findings += lacking_tensors(leaf for leaf in leaves if not self.judges(leaf.place))
        complete = self.choose_flows(leaves) and self.computes(read)
        sizes = self.solve_sizes(complete)
        twins = Twins(self.facts, self.rulebook if self.use_families else None, self.names, self.root)
        filler = Filler(self.root, self.facts, self.rulebook, twins)
        for scope, flow, needs in self.needs():
            filler.block(scope, flow, needs, sizes.get(id(scope)))
        self.notes += twins.notes()
        self.missing += [*filler.missing, *scale(leaves, self.checkpoint.config)]
        self.questions += filler.questions
        self.facts.config.consult([SETTINGS])
        self.facts.config.read.add(SETTINGS)
        if complete:
            check_config(self.facts)
            check_bounds(self.facts)
            check_widths(self.root)
            check_modules(read)
            self.gap(self.untaken())
            self.findings += several_types(read)
            self.findings += [*filler.findings(), *left_out(self.facts)]
        architecture = self.described(leaves, filler)
        architecture.unused = [(key, why) for leaf, why in unused for key in Leaf.keys(leaf)]
        self.finish(architecture, [leaf for leaf, _ in unused], complete)
        architecture.origin = self.origin()
        architecture.unheard = self.facts.unheard
        return architecture

    def origin(self) -> Origin:
        """What of the config and the hints this reading rests on."""
        config = self.facts.config
        config.consult(self.rulebook.config_vocabulary.quantised_fields)
        kept = None if self.checkpoint.config is None else config.needed(self.families.spared())
        return Origin(kept, dict(self.hints or {}), self.use_families)

    def find_gaps(self, read: list[Leaf]) -> None:
        """What the families say that every checkpoint of theirs has, and this one has not."""
        whole = self.families.whole
        settled = [name for names in whole.promises.values() for name in names] if whole else []
        for part in self.families.checked(self.names, read):
            model_type = part.model_type or self.facts.config.model_type
            self.other(lacking_names(part.family, part.names, model_type))
            every = () if part.folder else (self.root, *self.root.below())
            own = [scope for scope in every if self.families.home.holds(scope.block.home)]
            self.other(lacking_kept_roles(part.family, own))
            unbiased = lacking_biases(part.family, part.leaves, settled if part.folder else ())
            if unbiased and has_no_biases(part.leaves):
                self.findings.append(
                    f"nothing has a bias here, and all maps of every {part.family.name} have"
                )
            else:
                self.unlike(unbiased)
            self.facts.config.consult(part.family.promises, part.folder)
            config = self.facts.config.part(part.folder)
            lacking, extra = broken_promises(part.family, config, part.names, model_type)
            self.unlike(lacking)
            self.findings += extra

    def described(self, leaves: list[Leaf], filler: Filler) -> Architecture:
        """The architecture as far as it is known before its flows are linked."""
        return Architecture(
            self.checkpoint,
            leaves,
            self.root.block,
            family=self.families.whole.name if self.families.whole else None,
            towers=self.families.towers(),
            rules=self.rulebook.digest,
            facts=filler.report(),
            lost=filler.lost,
            rulebook=self.rulebook,
            refusal=self.refusal,
            questions=self.questions,
            unfit=self.unfit,
            notes=self.notes,
            what=self.what,
        )

    def place(self, leaves: list[Leaf], vocabulary: Vocabulary) -> None:
        """The blocks that the leaves make, and what is known of them."""
        self.leaves = leaves
        read = [leaf for leaf in leaves if not why_unused(leaf, vocabulary)]
        self.root = scopes(build_blocks(read, vocabulary))
        self.facts = self.known_facts(vocabulary)

    def known_facts(self, vocabulary: Vocabulary) -> Facts:
        match = self.families.match
        listed = match.model_type if match and match.by_type else None
        said = self.families.fields_said() if listed else frozenset()
        config = Config(self.checkpoint.config, self.rulebook.config_vocabulary, listed, said)
        config.lone = self.lone_tower(vocabulary)
        config.looked_up = self.looked_up
        named = [name for rule in self.rulebook.flows.values() for name in (*rule.when, *rule.values)]
        facts = Facts(self.rulebook, self.families, config, self.names, named)
        facts.given = read_hints(self.hints, facts.types, self.rulebook)
        return facts

    def lone_tower(self, vocabulary: Vocabulary) -> str | None:
        """What the path of the only tower says that it is: `vision_model.encoder` in a checkpoint of that part alone."""
        towers = [scope for scope in self.root.below() if scope.tower is scope]
        words = towers[0].block.home if len(towers) == 1 else ()
        return next(filter(None, map(vocabulary.tower, words)), None)

    def count_layers(self) -> None:
        """The length of each list of layers; what numbers are left out is missing, in what is judged here."""
        for place, line in count_layers(self.root):
            if self.judges(place):
                self.gap([line])
            else:
                self.findings.append(line)

    def choose_flows(self, leaves: list[Leaf]) -> bool:
        """Give every block its flow; whether each block that a flow calls has one."""
        if self.refusal or self.refused:
            self.missing.append(self.refusal or self.refused)
            return False
        rules, families = self.rulebook.flows, self.families
        choices: dict[int, Choice] = {}
        choice = choices[id(self.root)] = choose_root(
            self.root, rules, families, self.facts, self.findings, self.notes
        )
        add_parts(self.root, choice.flow)
        for scope in self.root.below():
            choice = choices[id(scope)] = choose(scope, rules, families, self.facts)
            add_parts(scope, choice.flow)
        for scope in (self.root, *self.root.below()):
            rule = choices[id(scope)].flow
            if rule is not None:
                self.flows[id(scope)] = self.rulebook_flow(rule.name)
                scope.block.flow = rule.name
        lacking = [
            scope
            for scope in (self.root, *self.root.below())
            if id(scope) not in self.flows and self.is_called(scope)
        ]
        every = [self.root, *self.root.below()]
        undecided = Open(self.root, self.facts, leaves)
        for scope in lacking:
            if choices[id(scope)].problem:
                raise ArchitectureError(choices[id(scope)].problem)
            if self.judges(scope.block.home):
                self.gap(lacking_roles(scope, every))
            undecided.add(scope, choices[id(scope)])
        self.findings += differing_roles(every, self.families.varies())
        self.unfit, self.questions = undecided.unfit, undecided.questions()
        self.missing += map(str, (*self.unfit, *self.questions))
        self.drop_uncalled()
        return not lacking

    def drop_uncalled(self) -> None:
        """No flow for a block that the one around it only reaches into, to `embeddings.token` say, nor for its parts."""
        for scope in self.root.below():
            outer = scope.parent
            is_part = next(scope.block.leaves(), None) is None
            if outer is not None and (is_part or id(outer) in self.flows) and not self.is_called(scope):
                self.flows.pop(id(scope), None)
                scope.block.flow = None

    def untaken(self) -> list[str]:
        """What the sizes have shown that a chosen flow does not take."""
        every = (self.root, *self.root.below())
        chosen = [(scope, self.flows[id(scope)].rule) for scope in every if id(scope) in self.flows]
        return [
            f"{said_of(rule, fault)} at '{scope.block.home}'"
            for scope, rule in chosen
            for fault in untaken(scope, rule, self.facts)
        ]

    def judges(self, place: Place) -> bool:
        """Whether what stands at a path is of the whole, or of a tower that a family reads."""
        return self.home.holds(place) or any(in_region(part.region, place) for part in self.families.parts)

    def gap(self, lines: list[str]) -> None:
        """What is missing is fatal where it is clear what the checkpoint should be."""
        if self.is_strict and not self.lenient:
            _refuse(lines)
        self.findings += lines

    def other(self, lines: list[str]) -> None:
        """The same of what makes a family: names alone that lack it are another's."""
        if self.is_strict and self.families.match and not self.lenient:
            _refuse(lines)
        self.unlike(lines)

    def unlike(self, lines: list[str]) -> None:
        """What every checkpoint of a family has is missing: fatal where the config names it, else the names mislead."""
        if self.families.are_vouched_for and not self.lenient:
            _refuse(lines)
        self.findings += lines

    def computes(self, leaves: list[Leaf]) -> bool:
        """Whether torch computes with what the modules hold: not with few bits."""
        self.refusal = odd_types(leaves)
        self.missing += [self.refusal] if self.refusal else []
        return not self.refusal

    def rulebook_flow(self, name: str) -> Flow:
        parsed = self.rulebook.parsed
        if name not in parsed:
            parsed[name] = parse_flow(self.rulebook.flows[name])
        return parsed[name]

    def is_called(self, scope: Scope) -> bool:
        """Whether a block must have a flow: the one around it calls or lends it, or has none itself."""
        outer = scope.parent
        flow = self.flows.get(id(outer)) if outer else None
        if outer is None or flow is None:
            return outer is None or scope.topic in ("layer", "attention", "feed_forward")
        if scope.block.role in flow.rule.lends:  # a flow further out calls it
            return True
        return scope.block.role in Needs(flow, _has(outer.block), self.lookup(outer)).bare

    def solve_sizes(self, complete: bool) -> dict[int, Sizes]:
        """Sizes of every block with a flow; what contradicts is fatal where the model would be built."""
        solved: dict[int, Sizes] = {}
        for scope in (*self.root.below(), self.root):
            flow = self.flows.get(id(scope))
            if flow is None:
                continue
            try:
                sizes = Sizes(scope, flow.rule, self.facts)
                sizes.solve()
            except ArchitectureError as error:
                if complete:
                    raise
                self.findings.append(error.in_command())
                continue
            solved[id(scope)] = sizes
        self.facts.settle()
        return solved

    def needs(self) -> list[tuple[Scope, Flow, Needs]]:
        """What each block's flow reads once its guards are decided."""
        found = []
        for scope in (self.root, *self.root.below()):
            flow = self.flows.get(id(scope))
            if flow is not None and self.is_called(scope):
                found.append((scope, flow, Needs(flow, _has(scope.block), self.lookup(scope))))
        return found

    def lookup(self, scope: Scope) -> Any:
        def value(name: str) -> Any:
            known = self.facts.get(scope, self.facts.full_name(scope, name))
            if known is None or known.problem:
                raise KeyError(name)
            return known.value

        return value

    def extent(self, block: Block, name: str) -> Any:
        """A fact of a block by its short name; KeyError where nothing is known of it."""
        scope = next(scope for scope in (self.root, *self.root.below()) if scope.block is block)
        return self.lookup(scope)(name)

    def finish(self, architecture: Architecture, unused: list[Leaf], complete: bool) -> None:
        """Link the flows, list what no flow reads, and say how far the reading can be trusted."""
        idle = [leaf for leaf in architecture.leaves if leaf.role is None]
        if complete and not self.missing:
            try:
                program = link(architecture, self.rulebook_flow, {})
                architecture.inputs = public_inputs(program, self.rulebook.inputs, self.extent)
                for leaf in unused_leaves(program):
                    if why := why_unread(program, leaf):
                        architecture.unused += [(key, why) for key in Leaf.keys(leaf)]
                    elif leaf.role is not None:
                        idle.append(leaf)
            except FlowError as error:
                complete = False
                self.missing.append(error.in_command())
        aside = {id(leaf) for leaf in unused}
        idle = [leaf for leaf in idle if id(leaf) not in aside]
        inner = [
            str(leaf.place)
            for leaf in idle
            if leaf.kind != "Buffer" and (self.is_unlisted() or any(indices for _, indices in leaf.block))
        ]
        if complete and inner:  # what stands in every layer is read by the model, whatever it is
            complete = False
            self.missing.append(f"no flow reads {listed(inner)}")
        for part in self.families.checked(self.names, idle) if complete else ():
            self.unlike(unread_names(part.family, part.leaves))
        architecture.unmapped = [key for leaf in idle for key in Leaf.keys(leaf)]
        if complete:
            self.findings += unread_fields(self.facts.config, self.families)
            self.missing += harmful_fields(self.facts.config, self.families)
            self.missing += untaken_stages(self.facts)
        architecture.findings, architecture.missing = self.findings, self.missing
        architecture.reading = self.trust(architecture, complete)

    def is_unlisted(self) -> bool:
        """Whether the config names a type that no family lists: then nothing that stands there may be left out."""
        return self.facts.config.model_type is not None and not self.families.are_vouched_for

    def trust(self, architecture: Architecture, complete: bool) -> str:
        if not complete:
            return "skeleton"
        open_ends = self.findings or self.missing or architecture.unmapped or self.hints
        return "exact" if self.families.are_vouched_for and not open_ends else "unverified"


def _refuse(lines: list[str]) -> None:
    """ArchitectureError with the first of these lines, if there is one."""
    if lines:
        more = f", and {len(lines) - 1} more like it" if len(lines) > 1 else ""
        raise ArchitectureError(lines[0] + more, tensors=[key for line in lines for key in tensors_of(line)])


def _has(block: Block) -> Any:
    return lambda role: has_role(block, role)
