"""A leaf or a layer in a few words."""

from __future__ import annotations

from collections import Counter

from mapper.architecture import BARE, RECURRENT_KINDS, Block, Leaf
from mapper.naming.members import DOWN, matrix_of
from mapper.report.chain import value_text
from mapper.report.wording import printable, rounded

_PARTS = ("attention", "feed_forward", "moe", "state_space", "convolution", "recurrent")  # kinds worth a word


def leaf_summary(leaf: Leaf) -> str:
    """`Linear 384 → 1,536`: the kind and the sizes that its shapes show."""
    weight = leaf.tensors.get("weight") or leaf.tensors.get(matrix_of(leaf.tensors))
    shape = weight.shape if weight else ()
    note = f", {leaf.form}" if leaf.form != "plain" else ""
    rank = next((leaf.tensors[name].shape[0] for name in DOWN if name in leaf.tensors), None)
    note += f" with an update of rank {rank}" if rank is not None else ""
    if leaf.kind == "Linear" and len(shape) == 2:
        rows, columns = shape[::-1] if leaf.form == "transposed" else shape
        return f"Linear {columns:,} → {rows:,}{note}"
    if leaf.kind.startswith("Conv") and len(shape) > 2:
        return f"{leaf.kind} {_channels(leaf.kind, shape)}, kernel {_extents(shape[2:])}{note}"
    if leaf.kind in RECURRENT_KINDS:
        return _recurrent(leaf) + note
    if leaf.kind in BARE:
        return f"{leaf.kind} {_extents(next(iter(leaf.tensors.values())).shape)}{note}"
    if not shape:
        shape = max((info.shape for info in leaf.tensors.values()), key=len, default=())
    return f"{leaf.kind} {_extents(shape)}{note}"


def _recurrent(leaf: Leaf) -> str:
    """`LSTM 40 → 256, 3 layers, both directions`."""
    inputs = [name for name in leaf.tensors if name.startswith("weight_ih")]
    layers = sum(not name.endswith("_reverse") for name in inputs)
    first = next(
        (leaf.tensors[name].shape for name in ("weight_ih_l0", "weight_ih") if name in leaf.tensors), ()
    )
    inner = next(
        (
            leaf.tensors[name].shape
            for name in ("weight_hr_l0", "weight_hh_l0", "weight_hh")
            if name in leaf.tensors
        ),
        (),
    )
    sizes = (
        f" {first[-1]:,} → {inner[0] if 'weight_hr_l0' in leaf.tensors else inner[-1]:,}"
        if first and inner
        else ""
    )
    words = (
        [f"{layers} layers"] * (layers > 1)
        + ["both directions"] * (len(inputs) > layers)
        + ["a cell"] * ("weight_ih" in leaf.tensors)
    )
    return ", ".join([f"{leaf.kind}{sizes}", *words])


def _channels(kind: str, shape: tuple[int, ...]) -> str:
    first, second = (shape[0], shape[1]) if "Transpose" in kind else (shape[1], shape[0])
    return f"{first:,} → {second:,}"


def _extents(shape: tuple[int, ...]) -> str:
    return " × ".join(f"{extent:,}" for extent in shape) or "scalar"


def layer_summary(layer: Block) -> str:
    """`attention 12 heads, feed_forward 384-1536 gelu`."""
    parts = []
    for role, value in layer.roles.items():
        block = value[0] if isinstance(value, list) and value else value
        if isinstance(block, Block) and block.kind in _PARTS:
            parts.append(" ".join([role, *block_summary(block)]))
    return ", ".join(parts)


def held_summary(block: Block) -> str:
    """`3 Conv2d, 2 BatchNorm, 11,408 parameters`: how many modules of each kind one instance of a block has."""
    count: Counter[str] = Counter()
    for leaf in block.leaves():
        count[leaf.kind] += leaf.place.instances // block.home.instances
    size = sum(leaf.place.instances * info.size for leaf in block.leaves() for info in leaf.tensors.values())
    amounts = [f"{number} {kind}" for kind, number in count.items()]
    return ", ".join([*amounts, f"{rounded(size // block.home.instances)} parameters"])


def block_summary(block: Block) -> list[str]:
    """`["12 heads"]`, `["384-1536", "gelu"]`, `["128 experts", "8 at a time"]`: what tells a block from others of its kind."""
    if block.kind == "attention":
        return _attention(block)
    if block.kind == "feed_forward":
        return _feed_forward(block)
    if block.kind == "moe":
        return _experts(block)
    return []


def _attention(block: Block) -> list[str]:
    heads, kv_heads = _value(block, "heads"), _value(block, "kv_heads")
    if heads is None:
        return []
    return [f"{heads} heads" + (f" ({kv_heads} of key and value)" if kv_heads not in (None, heads) else "")]


def _feed_forward(block: Block) -> list[str]:
    up = block.roles.get("up") or block.roles.get("gate_up")
    sizes = []
    if isinstance(up, Leaf) and "weight" in up.tensors and len(up.tensors["weight"].shape) == 2:
        shape = up.tensors["weight"].shape
        out, into = shape[::-1] if up.form == "transposed" else shape
        sizes.append(f"{into}-{out}")
    activation = _value(block, "activation")
    return [*sizes, *([activation] if activation else [])]


def _experts(block: Block) -> list[str]:
    experts = block.roles.get("experts")
    count = (
        sum(item.home.instances for item in experts if isinstance(item, Block))
        if isinstance(experts, list)
        else 0
    )
    within = block.home.instances or 1
    chosen = _value(block, "experts_per_token") or _value(block, "top_k")
    return [*([f"{count // within} experts"] if count else []), *([f"{chosen} at a time"] if chosen else [])]


def _value(block: Block, name: str) -> str | None:
    fact = block.facts.get(name)
    return printable(value_text(fact.value)) if fact is not None else None
