"""What a graph computes that the layers of flows do not, so that names alone would say too little of it."""

from __future__ import annotations

from mapper.errors import shorten
from mapper.graphs.graph import Node
from mapper.graphs.recovery.origins import STEPS
from mapper.graphs.recovery.wiring import LONGEST, Wiring

LAYERS = ("MatMul", "Gemm", "Conv", "ConvTranspose")


def unusual(wiring: Wiring) -> str:
    """Why no flow computes what a graph does, whatever its names; "" where nothing speaks against one."""
    for node in wiring.graph.nodes:
        said = "" if node.domain else _said(wiring, node)
        if said:
            return f"{node.operator} {shorten(node.name)} {said}".replace("  ", " ")
    return ""


def _way(wiring: Wiring, name: str) -> str:
    """The operator by whose way alone a constant becomes a weight; "" where it is one as it is, or no constant."""
    waiting, last = [name], ""
    for _ in range(LONGEST):
        if not waiting:
            return last
        name = waiting.pop()
        if wiring.constant(name) is not None:
            continue
        node = wiring.producers.get(name)
        if node is None or node.domain or not node.inputs:
            return ""
        last = last or ("" if node.operator in STEPS else node.operator)
        waiting += filter(None, node.inputs)
    return ""


def draws(wiring: Wiring, node: Node) -> bool:
    """Whether a Dropout is always in training mode, with a rate that is not nought."""
    if node.operator != "Dropout" or node.domain or len(node.inputs) < 3:
        return False
    rate = wiring.number(node.inputs[1]) if node.inputs[1] else None
    return bool(wiring.number(node.inputs[2])) and rate != 0


def _said(wiring: Wiring, node: Node) -> str:
    if node.operator == "Gemm" and len(node.inputs) > 1 and wiring.constant(node.inputs[1]) is not None:
        if node.attributes.get("alpha", 1.0) != 1:
            return f"multiplies by an alpha of {node.attributes['alpha']!r}, which no linear layer has"
        if len(node.inputs) > 2 and node.attributes.get("beta", 1.0) != 1:
            return f"multiplies its bias by a beta of {node.attributes['beta']!r}, which no linear layer has"
        if node.attributes.get("transA", 0):
            return "transposes what goes in, which no linear layer does"
    if node.operator == "BatchNormalization" and node.attributes.get("training_mode", 0):
        return "is in training mode: it normalises by its own batch"
    way = _way(wiring, node.inputs[1]) if node.operator in LAYERS and len(node.inputs) > 1 else ""
    if way:
        return f"has a weight that a {way} makes of another, which no layer does"
    return "is in training mode: it draws at random" if draws(wiring, node) else ""
