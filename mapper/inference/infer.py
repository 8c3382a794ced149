"""A checkpoint to its architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from functools import partial as partial_call
from typing import TYPE_CHECKING, Any, NamedTuple

from mapper._collector import collection_paused
from mapper._dataclass import dataclass
from mapper.architecture import CONTRADICTION, Architecture
from mapper.errors import ArchitectureError, HintError, listed
from mapper.inference.called import called_by
from mapper.inference.case import Case
from mapper.inference.completeness import LOST, absent_names, lacking_recognition
from mapper.inference.config import Config
from mapper.inference.families import Families, compiled_vocabulary, gather, has_strangers
from mapper.inference.hinted import read_with_hints
from mapper.inference.hints import check_declared
from mapper.inference.matching import FamilyMatch, absent_options, match_family, type_finding
from mapper.inference.names import Names
from mapper.inference.part import Home
from mapper.inference.quantised import quantised
from mapper.inference.reading import read
from mapper.inference.refusals import holds_only, what_part
from mapper.inference.shown_blocks import show_blocks, shown_folders
from mapper.inference.stated_type import is_of_another_library, odd_type
from mapper.inference.updates import without_updates
from mapper.naming.tree import Node, grow
from mapper.rulebook.facts import TYPE

if TYPE_CHECKING:
    from mapper.checkpoint import Checkpoint
    from mapper.inference.chains.cells import Cell
    from mapper.inference.chains.network import Woven
    from mapper.inference.chains.reading import Chain
    from mapper.rulebook.rulebook import Rulebook


def infer(
    checkpoint: Checkpoint,
    rulebook: Rulebook,
    *,
    hints: Mapping[str, Any] | None = None,
    use_families: bool = True,
    found: Mapping[str, Any] | None = None,
) -> Architecture:
    """What a checkpoint is, with the evidence for everything that is said.

    `found` are answers to what is asked beside the hints, each with its evidence; whoever found them judges what comes of them.
    Raises ArchitectureError where it contradicts itself, HintError for a hint that names no fact or contradicts it.
    """
    with collection_paused():  # a hundred thousand names become as many objects, all of them kept
        architecture = _answered(checkpoint, rulebook, hints, use_families, found)
        # of a chain that cannot be built yet, too: its layers stand in no block
        is_open = architecture.reading == "skeleton" or bool(architecture.forward and architecture.questions)
        if is_open:
            return show_blocks(architecture, compiled_vocabulary(rulebook))
        if architecture.reading == "unverified":  # of what is vouched for the family says the blocks
            architecture.shown = shown_folders(architecture, compiled_vocabulary(rulebook))
        return architecture


def _answered(
    checkpoint: Checkpoint,
    rulebook: Rulebook,
    hints: Mapping[str, Any] | None,
    use_families: bool,
    found: Mapping[str, Any] | None,
) -> Architecture:
    """A reading with what is known beside the file, if anything is."""
    if found:
        return _told(checkpoint, rulebook, use_families, {**found, **(hints or {})})
    if not isinstance(hints, Mapping) or not hints:
        return _infer(checkpoint, rulebook, hints, use_families)
    read = partial_call(_told, checkpoint, rulebook, use_families)
    return read_with_hints(hints, read, read)


def _told(
    checkpoint: Checkpoint,
    rulebook: Rulebook,
    use_families: bool,
    hints: Mapping[str, Any],
    other: Architecture | None = None,
) -> Architecture:
    """A reading with hints; a model_type among them stands in for that of the config.

    Beside an `other` one it is read as far as it takes to see that it is no better: in family or in being a model.
    """
    typed = checkpoint
    if isinstance(hints.get(TYPE), str):
        check_declared(TYPE, hints[TYPE], "text", rulebook)
        typed = replace(checkpoint, config={**(checkpoint.config or {}), TYPE: hints[TYPE]})
    architecture = _infer(typed, rulebook, hints, use_families, other)
    architecture.checkpoint = checkpoint
    return architecture


def _infer(
    checkpoint: Checkpoint,
    rulebook: Rulebook,
    hints: Mapping[str, Any] | None,
    use_families: bool,
    other: Architecture | None = None,
) -> Architecture:
    start = _start(checkpoint, rulebook, hints, use_families, other)
    if start.is_brief and start.match is None and other is not None and other.reading != "skeleton":
        return other
    refusal = checkpoint.lacking or quantised(start.config, start.names)
    refusal = refusal or (f"the file holds only {start.held}" if start.held else "")
    if refusal:
        return start.read(None, refusal=refusal)
    if checkpoint.nameless:
        return start.read(None, checkpoint.nameless)
    _refuse_unrecognised(start)
    if start.match and start.match.by_type:
        if (architecture := _as_listed(start, start.match)) is not None:
            return architecture
        start = replace(start, match=None)
    match = _heard(start)
    attempts = _attempts(match, start.config, rulebook, start.names) if use_families else [Attempt(None)]
    try:
        architecture = _first_fit(start.read, attempts, start.findings, start.config.model_type is None)
    except ArchitectureError as error:
        return _as_chain_after_all(start, error)
    return _as_chain(start, architecture) if architecture.family is None else architecture


@dataclass(frozen=True)
class _Start:
    """What is known of a checkpoint before it is read with one family or another."""

    checkpoint: Checkpoint
    rulebook: Rulebook
    hints: Mapping[str, Any] | None
    use_families: bool
    tree: Node
    names: Names
    config: Config
    match: FamilyMatch | None  # the family by type, or else by names
    findings: list[str]
    held: str  # the one kind of thing that a file holds which is no model
    is_untyped: bool  # no class is named; timm names a network
    is_brief: bool  # it is read only as far as it takes to see that it is no better than another reading
    looked_up: set[str] = field(
        default_factory=set
    )  # in every attempt: the last one may be because of the others

    def read(
        self,
        match: FamilyMatch | None,
        refused: str = "",
        refusal: str = "",
        chain: Chain | Woven | Cell | None = None,
        by_names: bool = False,
    ) -> Architecture:
        """One attempt: with a family, without any, or with those that the names of each tower show."""
        kin = (
            gather(match, self.config, self.rulebook, self.names, by_names)
            if self.use_families
            else Families()
        )
        is_clear = self.match is not None and (self.match.by_type or self.config.model_type is None)
        case = Case(
            self.checkpoint,
            self.rulebook,
            self.tree,
            self.names,
            kin,
            self.hints,
            refused,
            refusal,
            self.use_families,
            is_strict=is_clear,
            home=self.match.home if self.match else Home(),
            what=self.what,
            looked_up=self.looked_up,
            chain=chain,
            is_brief=self.is_brief,
        )
        return read(case, [*self.findings, *kin.findings])

    @cached_property
    def what(self) -> str:
        """Which part of a model the file has, or what its library calls it."""
        return what_part(self.checkpoint, self.config, self.held) or called_by(self.tree, self.rulebook)


def _start(
    checkpoint: Checkpoint,
    rulebook: Rulebook,
    hints: Mapping[str, Any] | None,
    use_families: bool,
    other: Architecture | None,
) -> _Start:
    """What names and config show at once. Raises HintError for a type that the names speak against."""
    tree = grow(checkpoint.tensors)
    names = _names(checkpoint, tree)
    families = rulebook.family_entries if use_families else []
    config = Config(checkpoint.config, rulebook.config_vocabulary)
    match = match_family(families, names, config.model_type)
    told = type_finding(families, match, names, config.model_type)
    if told and TYPE in (hints or ()):
        raise HintError(f"--set {TYPE}={config.model_type} does not go with the names: {told}", fact=TYPE)
    findings = [*([told] if told else []), *odd_type(config, families, match)]
    held = holds_only(checkpoint, config)
    is_untyped = config.model_type is None or config.data.get(TYPE) is None
    is_brief = other is not None and _brings_no_family(other, match, is_untyped)
    return _Start(
        checkpoint, rulebook, hints, use_families, tree, names, config, match, findings, held, is_untyped, is_brief
    )  # fmt: skip


def _names(checkpoint: Checkpoint, tree: Node) -> Names:
    """What families are shown by: of weights with low-rank updates beside them those without these."""
    plain = without_updates(checkpoint.tensors)
    return Names(tree if len(plain) == len(checkpoint.tensors) else grow(plain))


def shown_family(checkpoint: Checkpoint, rulebook: Rulebook) -> FamilyMatch | None:
    """The family that type or names show: a reading without hints has this one or none.

    Raises ArchitectureError where two match equally.
    """
    config = Config(checkpoint.config, rulebook.config_vocabulary)
    names = _names(checkpoint, grow(checkpoint.tensors))
    return match_family(rulebook.family_entries, names, config.model_type)


def _as_listed(start: _Start, match: FamilyMatch) -> Architecture | None:
    """What the family that lists the type makes of it; None where it does not fit a network that its config changes."""
    try:
        return start.read(match)
    except ArchitectureError as error:
        if not start.config.changes_its_network:
            raise
        start.findings.append(f"it is no {match.model_type} as published: {error.in_command()}")
        return None


def _refuse_unrecognised(start: _Start) -> None:
    """ArchitectureError for a type whose family does not know these names, unless parts of it are of types that nobody lists."""
    match, families = start.match, start.rulebook.family_entries if start.use_families else []
    lacking = (
        "" if match and match.by_type else lacking_recognition(families, start.names, start.config.model_type)
    )
    if not lacking:
        return
    if start.config.changes_its_network or has_strangers(start.config, start.rulebook):
        start.findings.append(lacking)
        return
    refused = ArchitectureError(lacking + LOST)
    refused.so_far = partial_call(_without_family, start.read, lacking)
    raise refused


def _heard(start: _Start) -> FamilyMatch | None:
    """The family that the names show, unless config or names lack what each checkpoint of it has: that is a finding."""
    match = start.match
    if match is None:
        return None
    whose = f"of {match.family.name!r}: nothing is taken from that family"
    if absent := absent_options(match, start.config):
        start.findings.append(f"the config has no field for {listed(absent, 3)} {whose}")
        return None
    if absent := absent_names(match, start.names, start.config):
        start.findings.append(f"the names lack {listed(absent, 3)} {whose}")
        return None
    return match


def _as_chain_after_all(start: _Start, error: ArchitectureError) -> Architecture:
    """A network that nothing names as layers one after another where blocks that nobody named so contradict each other. Raises the error else."""
    so_far = error.so_far() if error.so_far else None
    if so_far is None or so_far.family is not None or start.match:
        raise error
    found = _as_chain(start, replace(so_far, reading="skeleton"))
    if found.reading == "skeleton":
        raise error
    return found


def _as_chain(start: _Start, architecture: Architecture) -> Architecture:
    """A skeleton of a network that nothing names as layers one after another, where it is that."""
    is_nameless = start.is_untyped and not (start.what or is_of_another_library(start.config))
    if not is_nameless or architecture.reading != "skeleton":
        return architecture
    from mapper.inference.chains.reading import chain_of, to_say

    chain = chain_of(architecture, start.rulebook, start.names, start.hints)
    untyped = replace(start, findings=[])  # no type of a config is that of a network that nothing names
    if chain:
        return untyped.read(None, chain=chain)
    said = to_say(architecture, start.rulebook, start.names)
    if not said:
        return architecture
    layers = [block for block in architecture.root.blocks() if block.kind == "layer"]
    if layers and all(block.flow for block in layers):
        # no chain: the answers to what is asked are what it lacks
        return replace(architecture, missing=[*architecture.missing, said])
    # first: no answer to what a part alone asks makes a model of these layers
    return replace(architecture, missing=[said, *architecture.missing], questions=[])


def _brings_no_family(other: Architecture, match: FamilyMatch | None, is_untyped: bool) -> bool:
    """Whether another reading of the same names and type has the family that there is: all that counts is whether there is a model.

    Not of a chain, nor where what is asked decides between two readings.
    """
    if TYPE in other.origin.hints:
        return False
    return not is_untyped if match is None else other.family is not None and bool(match.family.model_types)


def _without_family(read: Callable[..., Architecture], why: str) -> Architecture:
    """What is read of a checkpoint that is refused before any family is tried."""
    return replace(read(None, why), reading=CONTRADICTION, missing=[])


class Attempt(NamedTuple):
    """What one reading of a type that no family lists takes for known."""

    match: FamilyMatch | None  # the family of the whole
    by_names: bool = False  # whether towers have the families of their names


def _attempts(match: FamilyMatch | None, config: Config, rulebook: Rulebook, names: Names) -> list[Attempt]:
    """The readings to try, the one that knows most first, the one without any family last.

    What joins towers says more of them than their names do; a family of one tower says less.
    """
    joins = match is not None and bool(match.family.towers)
    is_library = match is not None and not match.family.model_types
    found = [Attempt(match, by_names=joins and is_library)] if match else []
    if has_strangers(config, rulebook):
        if not joins and gather(None, config, rulebook, names, by_names=True).are_complete:
            found = []
        found.insert(1 if joins else 0, Attempt(None, by_names=True))
    return [*found, Attempt(None)]


def _first_fit(
    read: Callable[..., Architecture], attempts: Sequence[Attempt], findings: list[str], is_bare: bool
) -> Architecture:
    """A reading of an architecture that no family lists: a contradiction says that a family or flow does not fit.

    Without a type (`is_bare`), what contradicts itself by any reading is refused.
    """
    match = next((one.match for one in attempts if one.match), None)
    is_library = match is not None and not match.family.model_types  # nobody else writes its names
    refused: ArchitectureError | None = None
    asking: Architecture | None = None  # a skeleton that answers would make a model of
    for attempt in attempts:
        try:
            architecture = read(attempt.match, by_names=attempt.by_names)
        except ArchitectureError as error:
            refused = refused or error
            if attempt.match is not None:
                findings.append(
                    f"the names are those of {attempt.match.family.name!r}, and it does not fit: {error.in_command()}"
                )
            continue
        if architecture.reading != "skeleton" and not (asking is not None and is_library):
            return architecture
        if asking is not None:
            less = len(asking.unfit) - len(architecture.unfit)
            is_nearer = architecture.questions and (less > 0 or (less == 0 and attempt.match is not None))
            asking = architecture if is_nearer and not is_library else asking
        elif architecture.questions or is_bare or attempt == attempts[-1]:
            asking = architecture
    if refused and is_bare and not asking:
        raise refused
    return asking or read(None, refused.in_command() if refused else "")
