"""Attention as exporters write it: two products and a softmax between them.

Scores are (q * a) (k * b)^T, scaled on either side or afterwards, with a mask added; rows that a mask leaves empty become zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mapper.graphs.graph import Node
from mapper.graphs.recovery.wiring import Wiring


@dataclass(frozen=True)
class Attention:
    """One call of attention: the values that go into it, as the graph calls them."""

    query: str  # [..., queries, head size], before it is scaled
    key: str  # [..., head size, keys]: transposed, before it is scaled
    value: str  # [..., keys, head size]
    mask: str  # added to the scores; "" for none
    scale: float
    scores: Node
    softmax: Node
    product: Node  # whose result is that of the call
    zeroed: bool  # whether rows without any key give zeros


def attentions(wiring: Wiring) -> Iterator[Attention]:
    """Every attention of a graph, in its order."""
    for node in wiring.graph.nodes:
        # without one it is the last axis since version 13 alone
        if node.operator == "Softmax" and not node.domain and node.attributes.get("axis") in (-1, 3):
            found = _around(wiring, node)
            if found:
                yield found


def _around(wiring: Wiring, softmax: Node) -> Attention | None:
    weights, zeroed = _without_zeroing(wiring, softmax.outputs[0])
    product = wiring.only_user(weights)
    product = _past_same(wiring, product)
    if product is None or product.operator != "MatMul" or product.domain:
        return None
    if _made_by(wiring, product.inputs[0]) not in (softmax, wiring.producers.get(weights)):
        return None
    mask = ""
    name, factor = wiring.scaled_by(softmax.inputs[0])
    node = wiring.producer(name)
    if node is not None and node.operator == "Add" and not node.domain:
        if factor != 1.0:
            return None
        sides = [(wiring.scaled_by(one), other) for one, other in (node.inputs, node.inputs[::-1])]
        both = [(scaled, other) for scaled, other in sides if _is_scores(wiring, scaled[0])]
        if len(both) != 1:
            return None
        (name, factor), mask = both[0]
        node = wiring.producer(name)
    if node is None or not _is_scores(wiring, name):
        return None
    query, left = wiring.scaled_by(node.inputs[0])
    key, right = wiring.scaled_by(node.inputs[1])
    return Attention(
        query, key, product.inputs[1], mask, factor * left * right, node, softmax, product, zeroed
    )


def _is_scores(wiring: Wiring, name: str) -> bool:
    node = wiring.producer(name)
    is_product = node is not None and node.operator == "MatMul" and not node.domain
    return is_product and node is not None and all(wiring.constant(one) is None for one in node.inputs)


def _made_by(wiring: Wiring, name: str) -> Node | None:
    return wiring.producer(name)


def _past_same(wiring: Wiring, node: Node | None) -> Node | None:
    """The node after those that change nothing."""
    while node is not None and node.operator in ("Identity", "Cast", "Dropout") and not node.domain:
        node = wiring.only_user(node.outputs[0])
    return node


def _without_zeroing(wiring: Wiring, name: str) -> tuple[str, bool]:
    """The weights of attention after `Where(IsNaN(weights), 0, weights)`, if that is what becomes of them."""
    users = [node for node, _ in wiring.users.get(name, [])]
    tests = [node for node in users if node.operator == "IsNaN"]
    chosen = [node for node in users if node.operator == "Where"]
    if len(users) != 2 or len(tests) != 1 or len(chosen) != 1:
        return name, False
    test, where = tests[0], chosen[0]
    is_zeroing = (
        where.inputs[0] == test.outputs[0] and where.inputs[2] == name and wiring.number(where.inputs[1]) == 0
    )
    return (where.outputs[0], True) if is_zeroing else (name, False)
