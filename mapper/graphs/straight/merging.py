"""Calls that stand for several operations, found while these are written: what gave each value is known then, and its shape.

The operations before stay where they are; those that nothing reads any more are left out by `tidying`.
"""

from __future__ import annotations

import math

from mapper.graphs.graph import Node
from mapper.graphs.operators import registry
from mapper.graphs.straight.calls import Written, float_text
from mapper.graphs.straight.layers import Layer
from mapper.graphs.straight.masks import chosen, looked_up
from mapper.graphs.straight.types import axes_of, integer, slice_bounds
from mapper.graphs.straight.values import Held, Made

DOMAIN = "mapper"
CLOSE = 1e-6  # relative, of a scale that went through float32


def merged(node: Node, inputs: list[Held | None]) -> Written | None:
    """The call that computes a node and some before it; None where the node is written alone."""
    if node.domain == DOMAIN and node.operator == "Attention":
        return _attention(node, inputs)
    if node.domain:
        return None
    if node.operator == "Add":
        return _rotary(inputs)
    if node.operator == "Div":
        return _hard_swish(inputs)
    padding = looked_up(node, inputs)
    if padding is not None:
        return Written(padding)
    return _turned(node, inputs) or _repeated(node, inputs) if node.operator == "Reshape" else None


def _hard_swish(inputs: list[Held | None]) -> Written | None:
    """x clip(x + 3, 0, 6) / 6, https://arxiv.org/abs/1905.02244."""
    product = inputs[0].made if inputs[0] is not None else None
    if product is None or not product.of("Mul") or not _is_number(inputs[1], "6.0"):
        return None
    for x, cut in (product.inputs, product.inputs[::-1]):
        clip = cut.made if cut is not None else None
        bounds = [*clip.inputs[1:]] if clip is not None and clip.of("Clip") else []
        if len(bounds) != 2 or not _is_number(bounds[0], "0.0") or not _is_number(bounds[1], "6.0"):
            continue
        raised = clip.inputs[0].made if clip is not None and clip.inputs[0] is not None else None
        sides = raised.inputs if raised is not None and raised.of("Add") else ()
        of = next((one for one in sides if one is not None and not one.number), None)
        if (
            x is not None
            and of is not None
            and of.text == x.text
            and any(_is_number(one, "3.0") for one in sides)
        ):
            return Written(f"F.hardswish({x.text})")
    return None


def _is_number(held: Held | None, text: str) -> bool:
    return held is not None and held.number == text


def _attention(node: Node, inputs: list[Held | None]) -> Written | None:
    """Attention, with keys as they were before an exporter transposed them. (B, H, T, D)"""
    query, key, value, mask = [*inputs, None][:4]
    scale = node.attributes.get("scale")
    if query is None or key is None or value is None or not isinstance(scale, float):
        return None
    words = [query.text, _transposed(key), value.text]
    words += [f"attn_mask={(chosen(mask) or mask).text}"] if mask is not None else []
    width = query.known_shape[-1] if query.known_shape else None
    is_usual = isinstance(width, int) and width > 0 and abs(scale * math.sqrt(width) - 1) < CLOSE
    words += [] if is_usual else [f"scale={float_text(scale)}"]
    return Written(f"F.scaled_dot_product_attention({', '.join(words)})")


def _transposed(held: Held) -> str:
    """A value with its last two axes in each other's place."""
    made = held.made
    order = axes_of(made.node, None, "perm") if made is not None and made.of("Transpose") else None
    before = made.inputs[0] if made is not None and made.inputs else None
    if made is not None and made.of("Reshape"):
        found = _before_turn(made.node, list(made.inputs))
        if found is not None:
            return found.text
    if order is None or before is None or before.is_sizes or len(order) < 2:
        return f"{held.text}.transpose(-2, -1)"
    order = [*order[:-2], order[-1], order[-2]]
    moved = [axis for axis, other in enumerate(order) if axis != other]
    if not moved:
        return before.text
    if len(moved) == 2:
        return f"{before.text}.transpose({moved[0]}, {moved[1]})"
    return f"{before.text}.permute({', '.join(map(str, order))})"


def _turned(node: Node, inputs: list[Held | None]) -> Written | None:
    """A transpose that an exporter wrote with the leading axes joined before and parted after."""
    found = _before_turn(node, inputs)
    return Written(f"{found.text}.transpose(-2, -1)") if found is not None else None


def _before_turn(node: Node, inputs: list[Held | None]) -> Held | None:
    """x of `x.reshape(-1, T, D).transpose(1, 2).reshape(B, H, D, T)` for x (B, H, T, D); None for any other view."""
    made = inputs[0].made if inputs and inputs[0] is not None else None
    if made is None or not made.of("Transpose") or axes_of(made.node, None, "perm") != [0, 2, 1]:
        return None
    joined = made.inputs[0].made if made.inputs[0] is not None else None
    x = joined.inputs[0] if joined is not None and joined.of("Reshape") else None
    if x is None or joined is None or x.is_sizes or x.rank is None or x.rank < 3:
        return None
    turned = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    given, front = _items(Made(node, tuple(inputs))), _items(joined)
    if len(given) != x.rank or len(front) != 3 or front[0] != "-1":
        return None
    if not all(_is_extent(item, x, x.rank - 2 + at) for at, item in enumerate(front[1:])):
        return None
    # A size that is not known is what is left over, where all others are the same.
    others = [axis for item, axis in zip(given, turned, strict=True) if not _is_extent(item, x, axis)]
    is_open = x.known_shape is None or [x.known_shape[axis] for axis in others] == [None]
    return x if not others or (len(others) == 1 and others[0] < x.rank - 2 and is_open) else None


def _is_extent(item: str, x: Held, axis: int) -> bool:
    """Whether a size that is asked for is that of an axis, for what is known of it."""
    size = x.known_shape[axis] if x.known_shape is not None else None
    return item == f"{x.text}.shape[{axis}]" or (size is not None and item == str(size))


def unviewed(node: Node, inputs: list[Held | None], layer: Layer) -> str | None:
    """What a linear layer takes, where an exporter joins the leading axes before it and parts them by `node` after it.

    Linear layers take any leading axes, https://pytorch.org/docs/stable/generated/torch.nn.Linear.html. None for another view.
    """
    made = inputs[0].made if inputs and inputs[0] is not None else None
    joined = made.inputs[0].made if made is not None and made.inputs[0] is not None else None
    x = joined.inputs[0] if joined is not None and joined.of("Reshape") else None
    width, depth = layer.tensors["weight"].shape
    if x is None or joined is None or x.is_sizes or x.rank is None or _items(joined) != ["-1", str(depth)]:
        return None
    *front, last = _items(Made(node, tuple(inputs))) or [""]
    is_same = [_is_extent(item, x, axis) for axis, item in enumerate(front[: x.rank])]
    if last != str(width) or not 0 < len(front) < x.rank or not all(is_same):
        return None
    return x.text if len(front) == x.rank - 1 else f"{x.text}.flatten({len(front)})"


def _repeated(node: Node, inputs: list[Held | None]) -> Written | None:
    """Heads that several queries share: (B, H, T, D) -> (B, H R, T, D) by way of (B, H, R, T, D)"""
    made = inputs[0].made if inputs and inputs[0] is not None else None
    spread = (
        made.inputs[0].made if made is not None and made.of("Expand") and made.inputs[0] is not None else None
    )
    x = spread.inputs[0] if spread is not None and spread.of("Unsqueeze") else None
    if made is None or spread is None or x is None or x.is_sizes or x.rank != 4:
        return None
    have = [str(_extent(x, axis)) for axis in range(4)]
    have[1] = str(x.known_shape[1]) if x.known_shape else ""
    wanted = _items(made)
    times = wanted[2] if len(wanted) == 5 else ""
    if not times.isdigit() or not have[1].isdigit() or axes_of(spread.node, spread.inputs[1], "axes") != [2]:
        return None
    width = str(x.known_shape[3]) if x.known_shape else ""
    tails = [[*have[2:3], one] for one in (have[3], width)]
    heads = str(int(have[1]) * int(times))
    is_same = wanted[:2] == have[:2] and wanted[3:] in tails
    is_joined = _items(Made(node, tuple(inputs))) in [[have[0], heads, *tail] for tail in tails]
    return Written(f"{x.text}.repeat_interleave({times}, 1)") if is_same and is_joined else None


def _extent(x: Held, axis: int) -> str:
    size = x.shape[axis] if x.shape is not None else None
    return f"{x.text}.shape[{axis}]" if size is None or isinstance(size, int) else size


def _items(made: Made) -> list[str]:
    """The sizes that a Reshape asks for."""
    shape = made.inputs[1] if len(made.inputs) > 1 else None
    return list(shape.items or ()) if shape is not None else []


def _rotary(inputs: list[Held | None]) -> Written | None:
    """Rotary embeddings: x cos + (-x2, x1) sin, where x is (x1, x2) along the last axis."""
    products = [
        held.made for held in inputs if held is not None and held.made is not None and held.made.of("Mul")
    ]
    if len(products) != 2:
        return None
    for straight, turned in (products, products[::-1]):
        for at, joined in enumerate(turned.inputs):
            x = _halved(joined)
            sine = turned.inputs[1 - at]
            cosine = _beside(straight, x)
            if x is not None and cosine is not None and sine is not None:
                function = registry.find("Rotary", DOMAIN, 1)
                return Written(f"rotary({x.text}, {cosine.text}, {sine.text})", function)
    return None


def _beside(product: Made, x: Held | None) -> Held | None:
    """The other factor of a product with x."""
    for at, held in enumerate(product.inputs):
        if x is not None and held is not None and held.text == x.text and not held.is_sizes:
            return product.inputs[1 - at]
    return None


def _halved(joined: Held | None) -> Held | None:
    """x, where a value is its second half, negated, and its first; None for any other value."""
    made = joined.made if joined is not None else None
    if joined is None or made is None or not made.of("Concat") or len(made.inputs) != 2:
        return None
    if integer(made.node, "axis", 1) not in (-1, (joined.rank or 0) - 1):
        return None
    first, second = made.inputs
    negated = first.made if first is not None else None
    if negated is None or not negated.of("Neg"):
        return None
    x, other = _part(negated.inputs[0], 1), _part(second, 0)
    return x if x is not None and other is not None and x.text == other.text else None


def _part(held: Held | None, half: int) -> Held | None:
    """What a value is one half of, along the last axis."""
    made = held.made if held is not None else None
    x = made.inputs[0] if made is not None and made.inputs else None
    width = x.known_shape[-1] if x is not None and x.known_shape else None
    if made is None or x is None or not isinstance(width, int) or width % 2 or x.is_sizes:
        return None
    last = (-1, len(x.known_shape or ()) - 1)
    if made.of("Split"):
        sizes = axes_of(made.node, made.inputs[1] if len(made.inputs) > 1 else None, "split")
        is_even = sizes == [width // 2] * 2 if len(made.inputs) > 1 or sizes else len(made.node.outputs) == 2
        return x if is_even and made.place == half and integer(made.node, "axis", 0) in last else None
    bounds = slice_bounds(made.node, list(made.inputs)) if made.of("Slice") else None
    if not bounds or len(bounds) != 1 or bounds[0][0] not in last:
        return None
    _, start, end, step = bounds[0]
    taken = range(width)[slice(start, end, step)]
    return x if taken == range(width // 2 * half, width // 2 * (half + 1)) else None
