"""The weights of ONNX's recurrent layers as torch's have them: gates in another order, each tensor by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mapper.graphs.graph import Node, TensorRef
from mapper.graphs.straight.constants import Make, derived
from mapper.graphs.straight.types import integer

if TYPE_CHECKING:
    import torch

GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}  # torch's gates by their places in ONNX
USUAL = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}
# The attributes that are read; a layer with another one set is not torch's.
READ = {"hidden_size", "direction", "activations", "linear_before_reset"}


def recurrent_layer(
    node: Node, refs: list[TensorRef | None], is_biased: bool
) -> tuple[str, dict[str, TensorRef]] | None:
    """The expression of a layer and its tensors; None for what torch's does not compute.

    W [D, gates H, I] and R [D, gates H, H] become weight_ih_l0 and weight_hh_l0, B [D, 2 gates H] the two biases; what is
    for the way back ends with _reverse.
    """
    w, r, b = refs
    kind, count = node.operator, len(GATES[node.operator])
    if (
        w is None
        or r is None
        or (b is None and is_biased)
        or {ref.dtype for ref in refs if ref is not None} != {"F32"}
    ):
        return None
    hidden = r.shape[2]
    is_fit = w.shape[1] == r.shape[1] == count * hidden and (
        b is None or b.shape == (w.shape[0], 2 * count * hidden)
    )
    if not is_fit or not _is_plain(node, w.shape[0]):
        return None
    words = [str(w.shape[2]), str(hidden), *([] if is_biased else ["bias=False"])]
    words += ["bidirectional=True"] if w.shape[0] == 2 else []
    words += ['nonlinearity="relu"'] if _activations(node)[:1] == ["relu"] else []
    tensors: dict[str, TensorRef] = {}
    for way in range(w.shape[0]):
        tail = "l0_reverse" if way else "l0"
        tensors[f"weight_ih_{tail}"] = derived(w.shape[1:], [w], _gates(kind, way, 0, count * hidden))
        tensors[f"weight_hh_{tail}"] = derived(r.shape[1:], [r], _gates(kind, way, 0, count * hidden))
        for place, word in enumerate(("bias_ih", "bias_hh") if b is not None else ()):
            make = _gates(kind, way, place * count * hidden, count * hidden)
            tensors[f"{word}_{tail}"] = derived((count * hidden,), [b], make) if b is not None else w
    return f"nn.{kind}({', '.join(words)})", tensors


def _gates(kind: str, way: int, start: int, size: int) -> Make:
    def made(tensors: list[torch.Tensor]) -> torch.Tensor:
        import torch

        parts = tensors[0][way, start : start + size].chunk(len(GATES[kind]))
        return torch.cat([parts[place] for place in GATES[kind]])

    return made


def _activations(node: Node) -> list[str]:
    said = node.attributes.get("activations")
    return (
        [item.decode("utf-8", "replace").lower() for item in said if isinstance(item, bytes)]
        if isinstance(said, list)
        else []
    )


def _is_plain(node: Node, directions: int) -> bool:
    """Whether nothing is asked that torch's layer does not have: lengths, peepholes, clipping, other activations, backwards alone."""
    asked = any(value for name, value in node.attributes.items() if name not in READ)
    way = node.attributes.get("direction", b"forward")
    given = [bool(name) for name in [*node.inputs, *[""] * 8][:8]]
    usual = USUAL[node.operator] * directions
    is_relu = node.operator == "RNN" and _activations(node) == ["relu"] * directions
    is_usual = (_activations(node) or usual) == usual or is_relu
    is_state = given[5] == given[6] if node.operator == "LSTM" else not given[6]
    is_gru = node.operator != "GRU" or integer(node, "linear_before_reset", 0) == 1
    is_way = way == (b"bidirectional" if directions == 2 else b"forward")
    return not asked and is_usual and is_state and is_gru and is_way and not given[4] and not given[7]
