"""The base of rotary embeddings, from the frequencies that a graph holds: base^(-2i / d), https://arxiv.org/abs/2104.09864."""

from __future__ import annotations

from typing import NamedTuple

from mapper.graphs.graph import Node
from mapper.graphs.recovery.scalars import numbers
from mapper.graphs.recovery.wiring import Wiring

DEEPEST = 12  # nodes between the cosines and their frequencies
CLOSE = 3e-6  # relative, of powers in float32
MOST = 1024  # frequencies


class Angles(NamedTuple):
    """Rotary angles: one base for all, of so many channels."""

    base: float
    dim: int
    node: Node


def angles_of(wiring: Wiring, passed: list[Node]) -> Angles | None:
    """The angles by whose cosines one of these nodes multiplies; None where they are none of one base."""
    for node in passed:
        for name in node.inputs if node.operator == "Mul" else ():
            cosine = _cosine(wiring, name)
            if cosine is not None:
                return _of(wiring, cosine)
    return None


def _cosine(wiring: Wiring, name: str) -> Node | None:
    node = wiring.producer(name)
    while node is not None and node.operator in ("Unsqueeze", "Cast", "Identity", "Transpose"):
        node = wiring.producer(node.inputs[0])
    return node if node is not None and node.operator == "Cos" and not node.domain else None


def _of(wiring: Wiring, cosine: Node) -> Angles | None:
    waiting = [(cosine.inputs[0], 0)]
    found: dict[str, list[float]] = {}
    while waiting:
        name, depth = waiting.pop()
        ref = wiring.constant(name)
        if ref is not None:
            if ref.dtype == "F32" and ref.size > 1 and ref.size in ref.shape:
                found[name] = numbers(ref, MOST) or []
            continue
        node = wiring.producers.get(name)
        if node is None or depth > DEEPEST or node.operator == "Shape":
            continue
        if node.operator in ("Mul", "Div") and any(
            wiring.number(one) not in (None, 1) for one in node.inputs
        ):
            return None  # positions or angles are scaled
        waiting += [(one, depth + 1) for one in node.inputs if one]
    frequencies = next(iter(found.values()), [])
    base = base_of(frequencies) if len(found) == 1 and len(frequencies) > 1 else None
    return Angles(base, 2 * len(frequencies), cosine) if base else None


def base_of(frequencies: list[float]) -> float | None:
    """The shortest base that gives these frequencies; None where they are no powers of one."""
    count, last = len(frequencies), frequencies[-1]
    if frequencies[0] != 1 or not 0 < last < 1:
        return None
    exact = last ** (-count / (count - 1))
    for digits in range(1, 8):
        base = float(f"{exact:.{digits}g}")
        if all(abs(base ** (-at / count) / one - 1) < CLOSE for at, one in enumerate(frequencies) if one > 0):
            return base
    return None
