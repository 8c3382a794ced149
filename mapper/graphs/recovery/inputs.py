"""How token ids become positions, and which position is pooled."""

from __future__ import annotations

from collections.abc import Iterator

from mapper.checkpoint import Observed
from mapper.graphs.graph import Node
from mapper.graphs.recovery.lineage import Lineage
from mapper.graphs.recovery.scalars import numbers
from mapper.graphs.recovery.wiring import LONGEST, SAME, Wiring

MOST = 8192  # positions that are stored
STANDING = {"Slice", "Cast", "Identity", "Unsqueeze", "Expand", "Reshape", "Squeeze"}
MASKING = {"Cast", "Identity", "Not", "Mul", "CumSum", "Add", "Equal", "Unsqueeze", "Sub"}


def positions(wiring: Wiring, lineage: Lineage) -> Iterator[Observed]:
    """How the rows of each position table are counted."""
    for node in wiring.graph.nodes:
        leaf = lineage.leaf(node.inputs[0]) if node.operator == "Gather" and not node.domain else ""
        if not leaf:
            continue
        said = f"Gather {node.name}: how its positions are counted"
        if _are_standing(wiring, node.inputs[1]):
            yield Observed("position.counting", leaf, "all", said)
        elif (padding := _padding(wiring, node.inputs[1])) is not None:
            yield Observed("position.counting", leaf, "tokens", said)
            yield Observed("padding_index", leaf, padding, said)


def _are_standing(wiring: Wiring, name: str) -> bool:
    """Whether positions are 0, 1, 2 and so on: counted, or the beginning of a table of these."""
    node = wiring.producers.get(name)
    while (
        wiring.constant(name) is None and node is not None and node.operator in STANDING and not node.domain
    ):
        if node.operator == "Slice" and not _is_beginning(wiring, node):
            return False
        name = node.inputs[0]
        node = wiring.producers.get(name)
    ref = wiring.constant(name)
    if ref is not None:
        return numbers(ref, MOST) == list(range(ref.size)) and ref.size in ref.shape
    is_range = node is not None and node.operator == "Range" and not node.domain
    return (
        is_range
        and node is not None
        and wiring.number(node.inputs[0]) == 0
        and wiring.number(node.inputs[2]) == 1
    )


def _is_beginning(wiring: Wiring, node: Node) -> bool:
    """Whether a cut begins at the first and leaves out none; before version 10 attributes say so, which are not read."""
    if len(node.inputs) < 3 or wiring.number(node.inputs[1]) != 0:
        return False
    return len(node.inputs) < 5 or wiring.number(node.inputs[4]) == 1


def _padding(wiring: Wiring, name: str) -> int | None:
    """The id of the padding where positions are cumsum(ids != padding) * (ids != padding) + padding; None for others."""
    seen: list[Node] = []
    tests: set[tuple[str, ...]] = set()
    added: list[float] = []
    waiting = [name]
    while waiting and len(seen) < 40:
        node = wiring.producers.get(waiting.pop())
        if node is None:
            continue
        if node.domain or node.operator not in MASKING:
            return None
        seen.append(node)
        if node.operator == "Equal":
            tests.add(tuple(node.inputs))
            continue
        sums = (
            [value for one in node.inputs if (value := wiring.number(one))] if node.operator == "Add" else []
        )
        added += sums
        first = node.inputs[:1] if node.operator in ("CumSum", "Unsqueeze") else node.inputs
        waiting += [one for one in first if wiring.constant(one) is None]
    operators = [node.operator for node in seen]
    if len(tests) != 1 or operators.count("CumSum") != 1 or "Not" not in operators or len(added) != 1:
        return None
    compared = [wiring.number(one) for one in tests.pop()]
    return int(added[0]) if added[0].is_integer() and added[0] in compared else None


def scales(wiring: Wiring, lineage: Lineage) -> Iterator[Observed]:
    """That token embeddings are taken as they are stored, or by which one constant they are multiplied first of all."""
    inputs = {value.name for value in wiring.graph.inputs}
    for node in wiring.graph.nodes:
        leaf = lineage.leaf(node.inputs[0]) if node.operator == "Gather" and not node.domain else ""
        if not leaf or _source(wiring, node.inputs[1]) not in inputs:
            continue
        users = list(_users(wiring, node.outputs[0]))
        scaling = [
            user
            for user in users
            if user.operator in ("Mul", "Div") and any(map(wiring.constant, user.inputs))
        ]
        factors = [factor for user in users if (factor := _factor(wiring, user)) is not None]
        if users and (not scaling or len(factors) == len(users) == 1):
            factor = factors[0] if scaling and factors[0] != 1.0 else None
            said = f"Gather {node.name}: its rows " + (f"times {factor:.6g}" if factor else "as they are")
            yield Observed("embedding.scale", leaf, factor, said)
            yield Observed("features.scaled", leaf, "tokens", said)


def _factor(wiring: Wiring, node: Node) -> float | None:
    """The number that a product has beside a value; None for any other operation."""
    numbers = [number for name in node.inputs if (number := wiring.number(name)) is not None]
    return numbers[0] if node.operator == "Mul" and not node.domain and len(numbers) == 1 else None


def _users(wiring: Wiring, name: str) -> Iterator[Node]:
    """The nodes that read a value, also by way of those that change nothing."""
    seen, waiting = {name}, [name]
    while waiting:
        for user, _ in wiring.users.get(waiting.pop(), []):
            if user.operator not in SAME or user.domain:
                yield user
            elif user.outputs[0] not in seen:
                seen.add(user.outputs[0])
                waiting.append(user.outputs[0])


def pooling(wiring: Wiring, lineage: Lineage) -> Iterator[Observed]:
    """Which position is pooled: that of the highest token id, or that of one id; said of the table of tokens."""
    tables = {
        node.inputs[1]: leaf
        for node in wiring.graph.nodes
        if node.operator == "Gather" and (leaf := lineage.leaf(node.inputs[0]))
    }
    ids = {_source(wiring, name): leaf for name, leaf in tables.items()}
    for node in wiring.graph.nodes:
        if node.operator != "ArgMax" or node.domain:
            continue
        source = _source(wiring, node.inputs[0])
        test = wiring.producers.get(source)
        said = f"ArgMax {node.name}: which position is pooled"
        if source in ids:
            yield Observed("pooling", ids[source], "highest", said)
        elif test is not None and test.operator == "Equal":
            number = next((value for one in test.inputs if (value := wiring.number(one)) is not None), None)
            table = next((ids[one] for name in test.inputs if (one := _source(wiring, name)) in ids), "")
            if number is not None and number.is_integer() and table:
                yield Observed("pooling", table, "end", said)
                yield Observed("pooling.end_id", table, int(number), said)


def _source(wiring: Wiring, name: str) -> str:
    """A value before it is cast or viewed."""
    for _ in range(LONGEST):
        node = wiring.producers.get(name)
        if node is None or node.operator not in ("Cast", "Identity", "Reshape") or node.domain:
            break
        name = node.inputs[0]
    return name
