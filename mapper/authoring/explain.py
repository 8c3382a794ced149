"""`mapper rules explain` and `list`: which line decided, what lost, and which rules there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mapper.architecture import Architecture, Block, Filled
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.errors import joined
from mapper.rulebook.declared import declared, rules_for
from mapper.rulebook.values import in_words, shown

if TYPE_CHECKING:
    from mapper.rulebook.rulebook import Rulebook

_LISTED = 12  # values, fields and places of a fact
_ONE_DIMENSION = ("bias", "gamma", "beta")  # names of vectors, where a name comes without its shape


@dataclass(frozen=True)
class LeafExplanation:
    """What one leaf was taken for, and the entries that also fitted, weaker ones last."""

    path: str
    kind: str
    role: str | None  # "tower.layers.attention.query"
    why: str
    lost: tuple[str, ...]  # "vocabulary/attention.yaml:12: attention.output"


@dataclass(frozen=True)
class FamilyExplanation:
    """Whether a family is recognised in the names, and what it lacks."""

    name: str
    file: str
    chosen: bool
    lacking: tuple[str, ...]  # patterns that do not occur
    foreign: tuple[str, ...]  # patterns that must not occur, and do


@dataclass(frozen=True)
class FlowExplanation:
    """The flow of a block."""

    block: str  # role path
    place: str
    flow: str | None
    file: str
    slots: tuple[Filled, ...] = ()  # of a flow that was put together from steps


@dataclass(frozen=True)
class Explanation:
    """How rules and names led to a reading."""

    leaves: tuple[LeafExplanation, ...]
    families: tuple[FamilyExplanation, ...]
    flows: tuple[FlowExplanation, ...]


@dataclass(frozen=True)
class RuleRow:
    """One rule file, for `mapper rules list`."""

    kind: str
    name: str
    file: str
    about: str


def explain_key(key: str, rulebook: Rulebook) -> LeafExplanation:
    """What one name means by itself, its shape not known."""
    shape = (1,) if key.rpartition(".")[2] in _ONE_DIMENSION else (1, 1)
    checkpoint = Checkpoint(key, "manifest", {key: TensorInfo(shape, "F32")})
    return next(iter(_leaves(checkpoint, rulebook, None)))


def explain_checkpoint(checkpoint: Checkpoint, rulebook: Rulebook) -> Explanation:
    """Every decision about a checkpoint. Raises what inference raises."""
    from mapper.inference import infer

    architecture = infer(checkpoint, rulebook)
    return Explanation(
        tuple(_leaves(checkpoint, rulebook, architecture.family)),
        tuple(_families(checkpoint, rulebook, architecture)),
        tuple(_flows(architecture.root, (), rulebook)),
    )


def list_rules(rulebook: Rulebook) -> list[RuleRow]:
    """Every rule file in use, by kind."""
    families = [
        RuleRow("family", item.name, item.file, ", ".join(item.model_types)) for item in rulebook.families
    ]
    flows = [RuleRow("flow", item.name, item.file, item.doc) for item in rulebook.flows.values()]
    words = [
        RuleRow("vocabulary", str(document.data.get("vocabulary")), document.label, _about(document.data))
        for document in rulebook.documents("vocabulary")
    ]
    drops = [
        RuleRow(
            "dropout", str(document.data.get("dropout")), document.label, str(document.data.get("doc", ""))
        )
        for document in rulebook.documents("dropout")
    ]
    return [*families, *flows, *words, *drops]


def _about(data: dict[str, Any]) -> str:
    return ", ".join(f"{len(value)} {key}" for key, value in data.items() if isinstance(value, (dict, list)))


def _leaves(checkpoint: Checkpoint, rulebook: Rulebook, family: str | None) -> Iterator[LeafExplanation]:
    from mapper.authoring.expectations import role_path
    from mapper.inference.config import Config
    from mapper.inference.families import gather, words_of
    from mapper.inference.matching import FamilyMatch
    from mapper.inference.names import Names
    from mapper.naming.resolve import read, resolve
    from mapper.naming.tree import grow

    tree = grow(checkpoint.tensors)
    names, config = Names(tree), Config(checkpoint.config, rulebook.config_vocabulary)
    chosen = (FamilyMatch(item, by_type=True) for item in rulebook.families if item.name == family)
    vocabulary = words_of(rulebook, gather(next(chosen, None), config, rulebook, names), names)
    spots = {str(reading.found.spot.place): reading.found for reading in read(tree, vocabulary)}
    for leaf in resolve(tree, vocabulary):
        found = spots.get(str(leaf.place))
        verdicts = vocabulary.verdicts("roles", found.spot, found.kind) if found else []
        candidates = [
            (match.entry.where, f"{match.entry.target}{verdict and f' ({verdict})'}")
            for match, verdict in verdicts
        ]
        chosen_by = leaf.why.split("; ")
        others = (f"{where}: {target}" for where, target in candidates if where not in chosen_by)
        lost = tuple(dict.fromkeys(others))  # an entry has several patterns, and more than one may fit
        yield LeafExplanation(str(leaf.place), leaf.kind, role_path(leaf.block, leaf.role), leaf.why, lost)


def _families(
    checkpoint: Checkpoint, rulebook: Rulebook, architecture: Architecture
) -> Iterator[FamilyExplanation]:
    from mapper.inference.names import Names
    from mapper.naming.tree import grow

    names = Names(grow(checkpoint.tensors))
    for family in rulebook.families:
        lacking = tuple(
            item for item in family.recognise if not names.has(item, family.recognise_shapes.get(item))
        )
        foreign = tuple(item for item in family.absent if names.has(item))
        yield FamilyExplanation(
            family.name,
            family.file,
            family.name in (architecture.family, *architecture.towers.values()),
            lacking,
            foreign,
        )


def _flows(block: Block, path: tuple[str, ...], rulebook: Rulebook) -> Iterator[FlowExplanation]:
    words = (*path, block.role)
    flow = rulebook.flows.get(block.flow or "")  # that of a chain is made of its layers, in no file
    file = flow.file if flow else ""
    yield FlowExplanation(".".join(words), str(block.home), block.flow, file, tuple(block.slots))
    for value in block.roles.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Block):
                yield from _flows(item, words, rulebook)


def explain_fact(name: str, rulebook: Rulebook) -> list[str]:
    """What a fact is, what it may be, which fields of configs say it, and the first lines of rules that do."""
    rules = rules_for(rulebook, name)
    doc = next((rule.doc for rule in rules if rule.doc), "no rule says what it is")
    values = [value if isinstance(value, str) else shown(value) for value in declared(rulebook, name)]
    fields = list(dict.fromkeys(field for rule in rules for field in rule.config))
    may_be = in_words(rulebook.config_vocabulary.types[name])
    places = list(dict.fromkeys(rule.place for rule in rules))
    said = {
        "may be": [may_be] if may_be else [],
        "rules have": values,
        "config": fields,
        "stated in": places,
        "answered by": [f"--set {name}=VALUE"],
    }
    lines = (f"  {what}: {joined(items, _LISTED)}" for what, items in said.items() if items)
    return [f"{name}: {doc}", *lines]
