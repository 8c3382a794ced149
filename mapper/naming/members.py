"""Whether the tensors of a module go together: a bias as long as its map is wide, gates of one width."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mapper.checkpoint import COUNTER, FLOATS, TensorInfo

# A low-rank update beside the weight of a map or a table: A (rank, in), and B (out, rank).
DOWN = ("lora_A.weight", "lora_embedding_A")
UP = ("lora_B.weight", "lora_embedding_B")
UPDATED = (*DOWN, *UP)
# Of a weight norm (1602.07868), in torch's two ways.
LENGTHS = ("weight_g", "parametrizations.weight.original0")
DIRECTIONS = ("weight_v", "parametrizations.weight.original1")
# A weight before it is divided by its largest singular value (1802.05957), whose vectors stand beside it.
UNDIVIDED = ("weight_orig", "parametrizations.weight.original")
LEFT = ("weight_u", "parametrizations.weight.0._u")
RIGHT = ("weight_v", "parametrizations.weight.0._v")
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_MODULES = ("Linear", "Embedding", "Norm", "Conv", *_GATES)


def is_module(kind: str) -> bool:
    """Whether a leaf of this kind computes; Parameters and Buffers only hold."""
    return any(word in kind for word in _MODULES)


def odd_dtype(kind: str, tensors: Mapping[str, TensorInfo]) -> str:
    """The first tensor of a module whose dtype nothing is computed with; "" if there is none."""
    if not is_module(kind):
        return ""
    return next((name for name, info in tensors.items() if info.dtype not in FLOATS and name != COUNTER), "")


def matrix_of(tensors: Mapping[str, TensorInfo]) -> str:
    """The name of the tensor that a weight is made of; "" where none is."""
    return next((name for name in (*UNDIVIDED, *DIRECTIONS) if name in tensors), "")


def misfit(kind: str, tensors: Mapping[str, TensorInfo]) -> str:
    """What contradicts among the tensors of one module: `bias [7] does not go with weight [16, 16]`; "" if nothing does."""
    every = ["weight", "gamma", "scale", "g", "running_mean", matrix_of(tensors)]
    every += ["kernel"] if kind == "Linear" else []  # that of a convolution has its channels last
    main = next((name for name in every if name in tensors), None)
    if kind in _GATES:
        return next(_gates(tensors, _GATES[kind]), "")
    if main is None:
        return ""
    for name, info in tensors.items():
        if name != main and not _goes(kind, name, info.shape, tensors[main].shape):
            return f"{name} {list(info.shape)} does not go with {main} {list(tensors[main].shape)}"
    return ""


def _goes(kind: str, name: str, shape: tuple[int, ...], main: tuple[int, ...]) -> bool:
    if name == COUNTER:
        return shape == ()
    if kind.endswith("Norm"):
        return shape == main
    if name != "bias":
        return True
    if kind.startswith("ConvTranspose"):
        return len(shape) == 1 and len(main) > 1 and main[1] > 0 and shape[0] % main[1] == 0
    return len(shape) == 1 and shape[0] in (main if kind == "Linear" else main[:1])


def _gates(tensors: Mapping[str, TensorInfo], gates: int) -> Iterator[str]:
    first = tensors.get("weight_hh_l0", tensors.get("weight_hh"))
    if first is None or not {"weight_ih_l0", "weight_ih"} & tensors.keys():
        return
    hidden = first.shape[-1] if first.shape else 0
    projection = tensors.get("weight_hr_l0")  # of an LSTM that gives fewer numbers than it keeps
    if projection is not None:
        hidden = projection.shape[-1] if projection.shape else 0
    maps = {name: info for name, info in tensors.items() if not name.startswith("weight_hr")}
    for name, info in maps.items():
        rank = 1 if name.startswith("bias") else 2
        if hidden < 1 or len(info.shape) != rank or info.shape[0] != gates * hidden:
            yield f"{name} {list(info.shape)} does not go with weight_hh {list(first.shape)}"
    biases = [name for name in maps if name.startswith("bias")]
    if biases and 2 * len(biases) != len(maps):
        yield f"{len(biases)} biases do not go with {len(maps) - len(biases)} weights"
