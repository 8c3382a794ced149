"""What operations show of the layers that they belong to: facts, each with the path of a layer and the node that shows it."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from mapper.checkpoint import Observed
from mapper.graphs.graph import Node
from mapper.graphs.recovery.activations import activation_after
from mapper.graphs.recovery.angles import angles_of
from mapper.graphs.recovery.attention import Attention, attentions
from mapper.graphs.recovery.heads import heads_of
from mapper.graphs.recovery.inputs import pooling, positions, scales
from mapper.graphs.recovery.lineage import Behind, Lineage
from mapper.graphs.recovery.masks import is_causal
from mapper.graphs.recovery.norms import layer_norms, rms_norms
from mapper.graphs.recovery.wiring import Wiring

NORMS = (
    "LayerNormalization",
    "GroupNormalization",
    "InstanceNormalization",
    "BatchNormalization",
    "RMSNormalization",
)
ABSENT = {
    "image.masked": ("TopK", "GatherElements", "ScatterElements", "NonZero"),
    "frames.paired": ("AveragePool",),
}
EPSILON = 1e-5  # where a node has none, https://onnx.ai/onnx/operators/
CLOSE = 1e-6  # relative, of numbers that went through float32


def observe(wiring: Wiring, names: Mapping[str, str]) -> list[Observed]:
    """All that is shown for sure; `names` are those of the weights, by the values that hold them."""
    lineage = Lineage(wiring, names)
    calls = list(attentions(wiring))
    return [
        *_norms(wiring, lineage),
        *_activations(wiring, lineage),
        *(one for call in calls for one in _of_call(wiring, lineage, call)),
        *_repeated(lineage, calls),
        *positions(wiring, lineage),
        *pooling(wiring, lineage),
        *scales(wiring, lineage),
        *_absent(wiring, lineage),
        *_outputs(wiring, lineage),
    ]


def source_of(node: Node, what: str) -> str:
    """`Softmax /layers.0/attention/Softmax: what`."""
    return f"{node.operator} {node.name}: {what}" if node.name else f"{node.operator}: {what}"


def shortest(value: float) -> float:
    """The shortest number that is this one in float32: 1e-12 for 9.999999960041972e-13."""
    bits = struct.pack("<f", value)
    return next(
        (short for digits in range(1, 9) if struct.pack("<f", short := float(f"{value:.{digits}g}")) == bits),
        value,
    )


def _norms(wiring: Wiring, lineage: Lineage) -> Iterator[Observed]:
    for node in wiring.graph.nodes:
        if node.operator in NORMS and not node.domain and len(node.inputs) > 1:
            leaf = lineage.leaf(node.inputs[1])
            epsilon = node.attributes.get("epsilon", EPSILON)
            if leaf and isinstance(epsilon, float):
                yield Observed("norm.eps", leaf, shortest(epsilon), source_of(node, "epsilon"))
    for whole in layer_norms(wiring):
        leaf = lineage.leaf(whole.weight)
        if leaf:
            yield Observed("norm.eps", leaf, shortest(whole.epsilon), source_of(whole.node, "epsilon"))
    for norm in rms_norms(wiring):
        leaf = lineage.leaf(norm.weight)
        if leaf:
            yield Observed("norm.eps", leaf, shortest(norm.epsilon), source_of(norm.node, "epsilon"))
            yield Observed("norm.offset", leaf, norm.offset, source_of(norm.node, "what scales it"))


def _activations(wiring: Wiring, lineage: Lineage) -> Iterator[Observed]:
    """What stands between the two layers of a feed-forward, said of the first."""
    for node in wiring.graph.nodes:
        leaf = lineage.linear(node)
        if not leaf:
            continue
        found = activation_after(wiring, lineage.result(node))
        if found:
            word, last = found
            yield Observed("feed_forward.activation", leaf, word, source_of(last, "activation"))


def _repeated(lineage: Lineage, calls: list[Attention]) -> Iterator[Observed]:
    """How often layers are called that share their weights."""
    found = [behind.leaf for call in calls if (behind := lineage.behind(call.query))]
    counts = Counter(found)
    if len(found) != len(calls) or max(counts.values(), default=1) < 2:
        return
    for leaf, count in counts.items():
        yield Observed("repetitions", leaf, count, f"{count} calls of its attention")
        yield Observed("passes", leaf, len(calls), f"{len(calls)} calls of attention")


def _absent(wiring: Wiring, lineage: Lineage) -> Iterator[Observed]:
    """What no operation of the graph does, said of its convolutions."""
    operators = {node.operator for node in wiring.graph.nodes}
    for node in wiring.graph.nodes:
        leaf = lineage.leaf(node.inputs[1]) if node.operator == "Conv" and not node.domain else ""
        for fact, those in ABSENT.items():
            if leaf and operators.isdisjoint(those):
                yield Observed(fact, leaf, False, f"no {' and no '.join(those)} in the graph")


def _outputs(wiring: Wiring, lineage: Lineage) -> Iterator[Observed]:
    """What a head's layer gives is the model's result, without a bound on it."""
    for node in wiring.graph.nodes:
        leaf = lineage.linear(node)
        if leaf and lineage.result(node) in wiring.outputs:
            yield Observed("head.softcap", leaf, None, source_of(node, "the result as it is"))


def _of_call(wiring: Wiring, lineage: Lineage, call: Attention) -> Iterator[Observed]:
    query, key = lineage.behind(call.query), lineage.behind(call.key)
    if query is None or key is None:
        return
    said = source_of(call.scores, "scores of attention")
    causal = is_causal(wiring, call.mask)
    if causal is not None:
        yield Observed(
            "attention.causal", query.leaf, causal, source_of(call.softmax, "what its mask compares")
        )
        yield Observed(
            "attention.pattern",
            query.leaf,
            "full_attention",
            source_of(call.softmax, "no window in its mask"),
        )
        yield Observed(
            "attention.layer_types", query.leaf, None, source_of(call.softmax, "no window in its mask")
        )
    if not call.mask:
        yield Observed("attention.masked", query.leaf, False, source_of(call.softmax, "no mask"))
    yield Observed("attention.similarity", query.leaf, "dot_product", said)
    yield Observed("attention.softcap", query.leaf, None, said)
    heads = heads_of(wiring, lineage, query)
    if heads is None:
        return
    yield Observed(
        "attention.heads", query.leaf, heads.number, source_of(heads.node, f"heads of {heads.size}")
    )
    if abs(call.scale * heads.size**0.5 - 1) < CLOSE:
        yield Observed(
            "attention.scaling", query.leaf, "head_dim", source_of(call.scores, f"scaled by {call.scale:.6g}")
        )
    others = heads_of(wiring, lineage, key)
    if others and query.leaf != key.leaf:
        yield Observed(
            "attention.kv_heads", key.leaf, others.number, source_of(others.node, f"heads of {others.size}")
        )
    if query.is_rotated is not None and query.is_rotated == key.is_rotated:
        yield from _rotated(wiring, query, call, heads.size)


def _rotated(wiring: Wiring, query: Behind, call: Attention, size: int) -> Iterator[Observed]:
    """Whether and how the channels of a head are rotated: all of them, or the first, by halves."""
    said = source_of(call.scores, "what its queries went through")
    factors = [
        node for node in query.passed if node.operator == "Mul" and not any(map(wiring.constant, node.inputs))
    ]
    normed = any(node.operator == "ReduceMean" for node in query.passed)
    if len(factors) == 2 * bool(query.is_rotated) + normed:
        yield Observed("attention.temperature_scaled", query.leaf, False, said)
    found: dict[str, Any] = {"rotary": query.is_rotated, "attention.rotary": query.is_rotated}
    angles = angles_of(wiring, query.passed) if query.is_rotated else None
    dim = size if not query.is_partial else angles.dim if angles else None
    if query.is_rotated:
        found["rotary.style"] = "half"
    if query.is_rotated and dim is not None:
        found |= {"rotary.fraction": dim / size, "rotary.dim": dim}
    if angles and angles.dim == dim:
        found |= {"rotary.base": angles.base, "rotary.type": "default", "rotary.layout": None}
    for fact, value in found.items():
        yield Observed(fact, query.leaf, value, said)
