"""An architecture back from the JSON value that `mapper.weights.built.blueprint` made: whatever it holds, it is data.

The value may come from a stranger. Words that emission writes as they are must be identifiers here, everything has
its type and a limit, flows are parsed by the closed subset, and the text that comes of it passes emission's last
check like any other. Fields that nobody asks for are ignored: a later version may have more.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mapper import limits
from mapper.architecture import (
    BLOCK_KINDS,
    DROPS,
    EVIDENCE,
    LEAF_KINDS,
    READINGS,
    Architecture,
    Block,
    Drop,
    Dropout,
    Fact,
    Leaf,
    Numbered,
    Origin,
    Place,
)
from mapper.checkpoint import Adapted, Checkpoint, TensorInfo
from mapper.emission.caching import ANNOTATIONS
from mapper.emission.constructors import TORCH_DTYPES
from mapper.flows import arithmetic
from mapper.flows.flow import parse_flow
from mapper.flows.language import parse_expression
from mapper.operations import OLDEST, VERSION
from mapper.rulebook.facts import ActivationRule
from mapper.rulebook.flows import NAME, FlowRule
from mapper.rulebook.renamed import calls_now
from mapper.weights.built.blueprint import FLOW_TABLES, FLOW_WORDS
from mapper.weights.built.json_values import (
    dotted,
    fail,
    items,
    matching,
    number,
    one_of,
    shown,
    table,
    text,
    texts,
    value_of,
    word,
    words,
    words_of,
)

OPTIONS = ("cache", "hidden_states", "train")
_EXTENT = re.compile(r"[A-Za-z0-9_ .*+/()-]{1,200}")
_FAMILY = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_DIGEST = re.compile(r"[0-9a-f]{0,64}")


@dataclass(frozen=True, eq=False)  # each is a rule set of its own
class Resolved:
    """The rules that one architecture uses, as far as emission reads them."""

    flows: dict[str, FlowRule]
    activations: dict[str, ActivationRule]
    inputs: dict[str, Any] = field(default_factory=dict)  # those of a cache are among the architecture's own


def read_data(data: Any) -> tuple[Architecture, dict[str, bool]]:
    """The architecture and the options of `emit`. Raises FormatError for what is no such value."""
    data = table(data, "it")
    _check_version(data.get("operations"))
    flows = {name: _flow(name, value) for name, value in table(data.get("flows", {}), "flows").items()}
    reader = _Reader([_fact(item) for item in items(data, "facts")], flows)
    reader.leaves = [reader.leaf(item) for item in items(data, "leaves")]
    checkpoint = Checkpoint(
        text(data, "source"),
        "mapper",
        reader.tensors(),
        notes=texts(data, "notes"),
        adapted=tuple(map(_adapted, items(data, "adapted"))),
    )
    architecture = Architecture(
        checkpoint,
        reader.leaves,
        reader.block(data.get("root"), limits.NAME_DEPTH),
        family=matching(data, "family", _FAMILY) or None,
        reading=one_of(data, "reading", READINGS),
        rules=matching(data, "rules", _DIGEST),
        findings=texts(data, "findings"),
        missing=texts(data, "missing"),
        unused=reader.reasons(),
        inputs={name: _input(value) for name, value in words_of(data, "inputs").items()},
        rulebook=Resolved(flows, _activations(data)),
        origin=_origin(data),
        dropout=_dropout(data.get("dropout")),
    )
    chosen = texts(data, "options")
    return architecture, {name: name in chosen for name in OPTIONS}


def _adapted(data: Any) -> Adapted:
    """An adapter that was added."""
    said = table(data, "an adapter")
    rank, alpha = (items(said, key) for key in ("rank", "alpha"))
    if not all(map(_is_size, (*rank, *alpha))) or not isinstance(said.get("merged"), bool):
        fail(f"an adapter is {shown(data)}")
    return Adapted(text(said, "base"), text(said, "adapter"), tuple(rank), tuple(alpha), said["merged"])


def _is_size(value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and abs(value) <= limits.EXTENT


def _check_version(version: Any) -> None:
    if not isinstance(version, int) or isinstance(version, bool):
        fail(f"operations is {shown(version)}, not a version")
    if version > VERSION:
        fail(f"it needs operations of version {version}, and this mapper has {VERSION}; install a newer one")
    if version < OLDEST:
        fail(
            f"it needs operations of version {version}, and this mapper has those from {OLDEST} on; "
            "build the checkpoint and save it anew"
        )


def _fact(data: Any) -> Fact:
    if not isinstance(data, list) or len(data) < 5:
        fail(f"a fact is {shown(data)}")
    name, value, at, evidence, source = data[:5]
    said = {"at": at, "source": source, "evidence": evidence}
    known = one_of(said, "evidence", EVIDENCE)
    later = data[5] if len(data) > 5 and isinstance(data[5], list) else []  # older documents have no sixth
    same = tuple(map(_same, later[: limits.LAYERS]))
    return Fact(dotted(name), value_of(value), text(said, "at"), known, text(said, "source"), same_as=same)


def _same(value: Any) -> str:
    """The name of another fact, or arithmetic over facts."""
    try:
        is_name = isinstance(arithmetic.parse(str(value)), (ast.Name, ast.Attribute))
    except ValueError:
        is_name = True
    return dotted(value) if is_name or not isinstance(value, str) else value


def _flow(name: str, data: Any) -> FlowRule:
    data = table(data, "a flow")
    if not NAME.fullmatch(name):
        fail(f"{shown(name)} is no name of a flow")
    lists = {key: words(data, key) or words(data, was) for key, was in FLOW_WORDS.items()}
    shapes, leaves, ties = (
        {dotted(role): value for role, value in table(data.get(key, {}), key).items()} for key in FLOW_TABLES
    )
    rule = FlowRule(
        name=name,
        doc=text(data, "doc"),
        **lists,  # type: ignore[arg-type]
        when={},
        shapes={role: tuple(map(str, items({role: value}, role))) for role, value in shapes.items()},
        leaves={role: _arguments(value) for role, value in leaves.items()},
        values={},
        body=calls_now(text(data, "body")),
        file=text(data, "file"),
        line=1,
        ties={role: dotted(path) for role, path in ties.items()},
    )
    nodes = sum(1 for statement in parse_flow(rule).statements for _ in ast.walk(statement))
    if nodes > limits.FLOW_NODES:
        fail(f"the flow {shown(name)} is larger than any: {nodes} nodes, at most {limits.FLOW_NODES}")
    return rule


def _arguments(data: Any) -> dict[str, Any]:
    """The constructor arguments of a role: texts of the flows' language, or plain values."""
    arguments = {word(name): value_of(value) for name, value in table(data, "arguments").items()}
    for value in arguments.values():
        if isinstance(value, str):
            parse_expression(value, "leaves", 1)
    return arguments


def _activations(data: Mapping[str, Any]) -> dict[str, ActivationRule]:
    expressions = table(data.get("activations", {}), "activations")
    return {name: ActivationRule(name, text(expressions, name), "activations", 1) for name in expressions}


def _input(data: Any) -> dict[str, Any]:
    """A public input: its shape stands in a docstring, its kind decides on an annotation."""
    spec = table(value_of(data), "an input")
    shape = [str(extent) for extent in items(spec, "shape")]
    if not all(map(_EXTENT.fullmatch, shape)):
        fail(f"the shape of an input is {shown(shape)}")
    one_of({"kind": "tensor", **spec}, "kind", tuple(ANNOTATIONS))
    return spec


def _origin(data: Mapping[str, Any]) -> Origin:
    origin = table(data.get("origin", {}), "origin")
    config, hints = value_of(origin.get("config"), limits.CONFIG_DEPTH), value_of(origin.get("hints"))
    config = None if config is None else table(config, "config")
    return Origin(config, table(hints or {}, "hints"), origin.get("families") is not False)


def _dropout(data: Any) -> Dropout | None:
    said = None if data is None else table(data, "dropout")
    return None if said is None else Dropout(texts(said, "written"), texts(said, "left"))


def _drop(data: Any) -> Drop:
    if not isinstance(data, list) or len(data) != 3:
        fail(f"a site of dropout is {shown(data)}")
    way, role, rate = data
    return Drop(one_of({"way": way}, "way", DROPS), word(role) if role != "" else "", word(rate))


def _tensor(data: Any) -> TensorInfo:
    if not isinstance(data, list) or not 1 <= len(data) <= limits.DIMENSIONS + 1:
        fail(f"a tensor is {shown(data)}")
    dtype = one_of({"dtype": data[0]}, "dtype", tuple(TORCH_DTYPES))
    return TensorInfo(tuple(number(extent, "an extent") for extent in data[1:]), dtype)


@dataclass(eq=False)
class _Reader:
    """Leaves and blocks, which name facts and leaves by their numbers."""

    facts: list[Fact]
    flows: Mapping[str, FlowRule]
    leaves: list[Leaf] = field(default_factory=list)
    unused: list[str] = field(
        default_factory=list
    )  # of each leaf: why no forward reads it, "" where one does
    blocks: int = 0
    indices: int = 0  # in all places

    def tensors(self) -> dict[str, TensorInfo]:
        """Every tensor of every instance."""
        count = sum(leaf.place.instances * len(leaf.tensors) for leaf in self.leaves)
        if count > limits.TENSORS:
            fail(f"it has {count} tensors; at most {limits.TENSORS}")
        return {
            f"{path}.{name}" if name and leaf.place else name or path: info
            for leaf in self.leaves
            for path in leaf.place.expand()
            for name, info in leaf.tensors.items()
        }

    def reasons(self) -> list[tuple[str, str]]:
        """Of the keys that no forward reads, each with why."""
        said = zip(self.leaves, self.unused, strict=True)
        return [(key, why) for leaf, why in said if why for key in Leaf.keys(leaf)]

    def leaf(self, data: Any) -> Leaf:
        data = table(data, "a leaf")
        named = table(data.get("tensors"), "tensors").items()
        tensors = {_tensor_name(name): _tensor(info) for name, info in named}
        place = self.place(data.get("place"))
        if not tensors or max(map(len, tensors)) > limits.NAME_CHARACTERS:
            fail(f"the leaf at {shown(str(place)[:200])} has no tensors, or names that are too long")
        self.unused.append(text(data, "unused"))
        return Leaf(
            place,
            one_of(data, "kind", LEAF_KINDS),
            tensors,
            why="saved",
            role=word(data["role"]) if data.get("role") is not None else None,
            form=word(data.get("form", "plain")),
            facts=self.table(data),
            fixed=tuple(number(item, "fixed", limits.NAME_DEPTH) for item in items(data, "fixed")),
        )

    def block(self, data: Any, depth: int) -> Block:
        data = table(data, "a block")
        self.blocks += 1
        if depth == 0 or self.blocks > limits.LAYERS:
            fail("blocks are nested too deeply, or too many")
        flow = data.get("flow")
        if flow is not None and not (isinstance(flow, str) and flow in self.flows):
            fail(f"there is no flow {shown(flow)}")
        return Block(
            one_of(data, "kind", BLOCK_KINDS),
            word(data.get("role")),
            self.place(data.get("home", [])),
            self.positions(data.get("indices")),
            {role: self.role(value, depth) for role, value in words_of(data, "roles").items()},
            flow,
            self.table(data),
            [_drop(item) for item in items(data, "drops")],
        )

    def role(self, value: Any, depth: int) -> Any:
        if not isinstance(value, list):
            return self.item(value, depth)
        found = [self.item(item, depth) for item in items({"a role": value}, "a role")]
        if not found or len({type(item) for item in found}) > 1:
            fail("a list of roles has elements of two kinds, or none")
        return found

    def item(self, value: Any, depth: int) -> Leaf | Block:
        if isinstance(value, dict):
            return self.block(value, depth - 1)
        return self.leaves[self.at(value, self.leaves, "leaf")]

    def table(self, data: Mapping[str, Any]) -> dict[str, Fact]:
        named = table(data.get("facts", {}), "facts").items()
        return {dotted(name): self.facts[self.at(value, self.facts, "fact")] for name, value in named}

    def at(self, value: Any, known: list[Any], what: str) -> int:
        return number(value, f"the number of a {what}", len(known) - 1)

    def place(self, data: Any) -> Place:
        """A folded path."""
        parts = items({"a place": data}, "a place", limits.NAME_DEPTH)
        return Place(tuple(_folder(part) if isinstance(part, str) else self.runs(part) for part in parts))

    def positions(self, data: Any) -> tuple[int, ...] | None:
        """The positions of a block in a list role."""
        if isinstance(data, dict):
            return Numbered(number(data.get("number"), "a position", limits.LAYERS), text(data, "word"))
        return None if data is None else self.runs(data)

    def runs(self, data: Any) -> tuple[int, ...]:
        """The positions that runs stand for, ascending."""
        found: list[int] = []
        for run in items({"indices": data}, "indices"):
            if not isinstance(run, list) or len(run) not in (1, 2):
                fail(f"indices are {shown(data)}")
            first, last = (number(end, "an index", limits.TENSORS) for end in (run[0], run[-1]))
            self.indices += last - first + 1
            if (found and first <= found[-1]) or last < first or self.indices > limits.TENSORS:
                fail(f"indices are {shown(data)}")
            found += range(first, last + 1)
        return tuple(found) if found else fail("a place has no indices")


def _tensor_name(name: str) -> str:
    """The name of a tensor below its module: words that can be attributes, or nothing for a bare tensor."""
    for part in name.split(".") if name else ():
        if not (part.isascii() and part.isdigit()):
            word(part)
    return name


def _folder(name: str) -> str:
    if len(name) > limits.NAME_CHARACTERS:
        fail("a word of a place is too long")
    return name
