"""Activation functions: operations that are one, and those that exporters write as several."""

from __future__ import annotations

import math

from mapper.graphs.graph import Node
from mapper.graphs.recovery.wiring import Wiring

SINGLE = {"Relu": "relu", "Tanh": "tanh", "Mish": "mish", "HardSwish": "hardswish"}
CLOSE = 1e-6  # relative, of constants in float32
Found = tuple[str, Node]


def activation_after(wiring: Wiring, name: str) -> Found | None:
    """The activation that a value goes through before anything else, and the last node of it; None where that is not sure."""
    users = [node for node, _ in wiring.users.get(name, []) if not node.domain]
    if name in wiring.inner or name in wiring.outputs:
        return None
    if len(users) == 1:
        return _single(users[0])
    return _sigmoid(wiring, name, users) or _tanh_gelu(wiring, name, users) or _erf_gelu(wiring, name, users)


def _single(node: Node) -> Found | None:
    if node.operator == "Gelu":
        how = node.attributes.get("approximate", b"none")
        words = {b"none": "gelu", b"tanh": "gelu_pytorch_tanh"}
        return (words[how], node) if isinstance(how, bytes) and how in words else None
    return (SINGLE[node.operator], node) if node.operator in SINGLE else None


def _sigmoid(wiring: Wiring, name: str, users: list[Node]) -> Found | None:
    """x * sigmoid(a x): SiLU for a of 1, its quick approximation of GELU for 1.702, https://arxiv.org/abs/1606.08415."""
    last = next(
        (
            node
            for node in users
            if node.operator == "Mul" and name in node.inputs and _gate(wiring, node, name)
        ),
        None,
    )
    if last is None or len(users) != 2:
        return None
    gate = _gate(wiring, last, name)
    assert gate is not None
    of, factor = wiring.scaled_by(gate.inputs[0])
    if of != name:
        return None
    if factor == 1.0:
        return "silu", last
    return ("quick_gelu", last) if _is(factor, 1.702) else None


def _gate(wiring: Wiring, node: Node, name: str) -> Node | None:
    others = [wiring.producers.get(one) for one in node.inputs if one != name]
    return next((one for one in others if one is not None and one.operator == "Sigmoid"), None)


def _tanh_gelu(wiring: Wiring, name: str, users: list[Node]) -> Found | None:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), https://arxiv.org/abs/1606.08415."""
    power = next(
        (node for node in users if node.operator == "Pow" and wiring.number(node.inputs[1]) == 3), None
    )
    if power is None or len(users) != 3:
        return None
    cubic = wiring.only_user(power.outputs[0])
    inner = (
        wiring.only_user(cubic.outputs[0]) if cubic is not None and _times(wiring, cubic, 0.044715) else None
    )
    if inner is None or inner.operator != "Add" or name not in inner.inputs:
        return None
    scaled = wiring.only_user(inner.outputs[0])
    bent = (
        wiring.only_user(scaled.outputs[0])
        if scaled is not None and _times(wiring, scaled, math.sqrt(2 / math.pi))
        else None
    )
    return _halved(wiring, name, bent, "gelu_new") if bent is not None and bent.operator == "Tanh" else None


def _erf_gelu(wiring: Wiring, name: str, users: list[Node]) -> Found | None:
    """0.5 x (1 + erf(x / sqrt(2)))."""
    for node in users:
        of, factor = wiring.scaled_by(node.outputs[0]) if node.operator in ("Mul", "Div") else ("", 0.0)
        bent = wiring.only_user(node.outputs[0]) if of == name and _is(factor, math.sqrt(0.5)) else None
        if bent is not None and bent.operator == "Erf":
            return _halved(wiring, name, bent, "gelu") if len(users) == 2 else None
    return None


def _halved(wiring: Wiring, name: str, bent: Node, word: str) -> Found | None:
    """0.5 x (1 + bent), in whatever order it is multiplied."""
    raised = wiring.only_user(bent.outputs[0])
    if raised is None or raised.operator != "Add" or 1.0 not in [wiring.number(one) for one in raised.inputs]:
        return None
    factors, last, factor = {raised.outputs[0]}, wiring.only_user(raised.outputs[0]), 1.0
    while last is not None and last.operator == "Mul":
        other = next((one for one in last.inputs if one not in factors), "")
        number = wiring.number(other)
        of, half = (name, number) if number is not None else wiring.scaled_by(other)
        if number is None and of != name:
            return None
        factor *= half or 1.0
        has_value = number is None
        if _is(factor, 0.5) and (has_value or name in factors):
            return word, last
        factors = {last.outputs[0], *([name] if has_value else [])}
        last = wiring.only_user(last.outputs[0])
    return None


def _times(wiring: Wiring, node: Node, factor: float) -> bool:
    found = next((value for one in node.inputs if (value := wiring.number(one)) is not None), None)
    return node.operator == "Mul" and found is not None and _is(found, factor)


def _is(value: float, wanted: float) -> bool:
    return abs(value - wanted) <= CLOSE * abs(wanted)
