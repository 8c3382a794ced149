"""What a layer gives that nobody reads may be for: a gate, a score, a query, a transform, or, of a table, codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mapper.inference.chains.elements import CONVOLUTION
from mapper.inference.chains.residuals import is_called, is_of
from mapper.inference.chains.texts import names_in, plain

if TYPE_CHECKING:
    from mapper.inference.chains.nodes import Node, Sources

_AFFINE = 6  # numbers of an affine transform of places
LISTED = 8  # of a question


def weigh(sources: Sources) -> None:
    """Asks of whoever reads beside such a layer what it reads, but where a name shows it."""
    _gated(sources)
    _queried(sources)
    _located(sources)
    _coded(sources)


def _gated(sources: Sources) -> None:
    """A layer that nobody reads, as wide as what it comes from or one number, may weigh that for whoever else reads it."""
    read = {name for text, _ in sources.known.values() for name in names_in(text)}
    for node in (node for node in sources.nodes if node.name not in read):
        base = _base(sources, node)
        if base is not None and not (_scores(sources, node, base) or _lets_through(sources, node, base)):
            _gates_beside(sources, node)


def _scores(sources: Sources, node: Node, base: Node) -> bool:
    """Whether a layer gives one number for each position of what it comes from: how much each counts."""
    if node.first.outputs != 1:
        return False
    if base.gives.is_sequence:
        _weighed(sources, base, f"sum(softmax({node.name}) * {base.name})", node, "")
        return True
    scored = _sequence(sources, base)
    if scored is not None:
        _offer(sources, scored, f"sum(softmax({node.name}) * {scored.name})", node)
    return scored is not None


def _lets_through(sources: Sources, node: Node, base: Node) -> bool:
    """Whether a layer gives a number for each channel of what it comes from: a gate of it."""
    is_as_wide = node.first.outputs == base.gives.width
    if not is_as_wide or not (sources.home_of(node) or _squeezes(sources, node, base)):
        return False
    why = "" if _is_doubtful(sources, node, base) else "a gate, by its name"
    _weighed(sources, base, f"{base.name} * sigmoid({node.name})", node, why)
    return True


def _gates_beside(sources: Sources, node: Node) -> None:
    """What is called a gate may be one of whatever reads the same and gives as much."""
    for other in sources.nodes if sources.home_of(node) else ():
        is_beside = other is not node and sources.known[other.name][0] == sources.known[node.name][0]
        if is_beside and other.gives == node.gives:
            _weighed(sources, other, f"{other.name} * sigmoid({node.name})", node, "")


def _queried(sources: Sources) -> None:
    """What reads a layer that is called a query may read what that finds in the sequence that it comes of (1409.0473)."""
    for node in sources.nodes:
        base = sources.by_name.get(plain(sources.known[node.name][0]))
        if (
            is_called(node.first.leaf.place, sources.words.querying)
            and base is not None
            and base.gives.is_sequence
        ):
            found = f"sum(softmax(dot({base.name}, {node.name})) * {base.name})"
            _ask(sources, node.name, [f"last({base.name})"], [base.name])
            readers = [name for name, (text, _) in sources.known.items() if text in (base.name, node.name)]
            for name in (one for one in readers if one != node.name and not sources.leads(one, node.name)):
                _ask(sources, name, [found], [*sources.open.get(name, ()), node.name, base.name])


def _coded(sources: Sources) -> None:
    """Who reads what is as wide as a table that nobody reads may read its closest rows: a codebook (1711.00937)."""
    read = {name for text, _ in sources.known.values() for name in names_in(text)}
    read |= {name for texts in sources.open.values() for text in texts for name in names_in(text)}
    for table in (node for node in sources.nodes if node.gives.is_table and node.name not in read):
        for node in (one for one in sources.nodes if one is not table):
            text = sources.known[node.name][0]
            base = sources.by_name.get(text)
            if base is not None and base.gives.width == table.gives.width and base.first.group == CONVOLUTION:
                before = sources.open.get(node.name, (text,))
                _ask(sources, node.name, [f"nearest({text}, {table.name})"], before)


def _located(sources: Sources) -> None:
    """Convolutions that would read maps as an affine transform shows them, whose six numbers nobody reads (1506.02025)."""
    read = {name for text, _ in sources.known.values() for name in names_in(text)}
    for node in sources.nodes:
        is_affine = node.first.outputs == _AFFINE and node.name not in read
        if not (is_affine and any(is_of(part, sources.words.locating) for part in node.first.leaf.place)):
            continue
        for other in sources.nodes:
            entering = [
                name for name in sources.inputs_of(other) if sources.inputs[name] == other.first.inputs
            ]
            if other.first.group == CONVOLUTION and entering and not sources.leads(other.name, node.name):
                before = sources.open.get(other.name, (sources.known[other.name][0],))
                _ask(sources, other.name, [f"warped({name}, {node.name})" for name in entering], before)


def _ask(sources: Sources, name: str, texts: Sequence[str], before: Sequence[str]) -> None:
    """Asks of a layer first for these of what it may read."""
    sources.open[name] = tuple(dict.fromkeys((*texts, *before)))[:LISTED]
    sources.known[name] = (texts[0], "")


def _squeezes(sources: Sources, node: Node, base: Node) -> bool:
    """Whether layers one after the other lead to fewer numbers and back, as those that weigh channels do."""
    line = node
    while (before := sources.by_name[plain(sources.known[line.name][0])]) is not base:
        if before.first.outputs < base.gives.width:
            return True
        line = before
    return False


def _is_doubtful(sources: Sources, node: Node, base: Node) -> bool:
    """Whether what a gate reads is open, or its name says no more than that it is one."""
    line = node
    while line is not base:
        if line.name in sources.open:
            return True
        line = sources.by_name[plain(sources.known[line.name][0])]
    home = sources.home_of(node)
    return not home or any(isinstance(part, str) and is_of(part, sources.words.gating) for part in home[-2:])


def _weighed(sources: Sources, base: Node, text: str, gate: Node, why: str) -> None:
    """Whoever reads a layer may read what a gate lets through: asked for but where a name shows it."""
    readers = [name for name, (said, _) in sources.known.items() if said == base.name]
    for name in readers:
        if sources.leads(name, gate.name):
            continue
        if not why or name in sources.open:
            _ask(sources, name, [text], sources.open.get(name, (base.name,)))
        else:
            sources.known[name] = (text, why)


def _sequence(sources: Sources, node: Node) -> Node | None:
    """The recurrent layer that the line to a layer begins with: it is scored through layers of its own (1409.0473)."""
    seen = {node.name}
    while not node.gives.is_sequence:
        before = sources.by_name.get(plain(sources.known[node.name][0]))
        if before is None or before.name in seen or before.first.group == CONVOLUTION:
            return None
        seen.add(before.name)
        node = before
    return node


def _offer(sources: Sources, base: Node, text: str, score: Node) -> None:
    """Of whoever may read a layer it is asked whether it reads that as a score weighs it."""
    for name, others in sources.open.items():
        if base.name in others and not sources.leads(name, score.name):
            _ask(sources, name, [text], others)


def _base(sources: Sources, node: Node) -> Node | None:
    """Where the line of layers that ends in this one leaves others that read the same."""
    while True:
        text = plain(sources.known[node.name][0])
        before = sources.by_name.get(text)
        if before is None:
            return None
        if sum(names_in(text) == names_in(other) for other, _ in sources.known.values()) > 1:
            return before
        node = before
