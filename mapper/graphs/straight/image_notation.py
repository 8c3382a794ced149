"""Windows, edges and sizes of images and sounds as torch's functions have them, where these compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mapper.checkpoint import FLOATS
from mapper.graphs.graph import Node
from mapper.graphs.straight.types import axes_of, integer
from mapper.graphs.straight.values import Held, text_of
from mapper.graphs.straight.windows import one_or_all, window

Spelled: TypeAlias = "Callable[[Node, list[Held | None], int], str | None]"
LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}  # torch's words, by the number of axes
NEAREST = {"floor": ("asymmetric",), "round_prefer_floor": ("half_pixel", "pytorch_half_pixel"), "round_prefer_ceil": ("half_pixel", "pytorch_half_pixel")}  # fmt: skip
EDGES = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}  # ONNX's words and torch's


def _pooled(node: Node, inputs: list[Held | None], version: int) -> str | None:
    x = inputs[0]
    if x is None or x.is_sizes or x.rank is None or x.rank < 3 or (x.shape and 0 in x.shape):
        return None
    over = str(tuple(range(2, x.rank))) if x.rank > 3 else "2"
    return f"{x.text}.{'mean' if 'Average' in node.operator else 'amax'}({over}, keepdim=True)"


def _max_pool(node: Node, inputs: list[Held | None], version: int) -> str | None:
    """Padded alike on both sides by at most half a window, and with no window that begins behind the end."""
    x, kernel = inputs[0], axes_of(node, None, "kernel_shape") or []
    if x is None or x.dtype not in FLOATS or not 1 <= len(kernel) <= 3 or sum(map(bool, node.outputs)) > 1:
        return None
    if node.attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or node.attributes.get(
        "ceil_mode"
    ):
        return None
    edges = axes_of(node, None, "pads") or [0] * 2 * len(kernel)
    front = edges[: len(kernel)]
    if front != edges[len(kernel) :] or any(
        2 * edge > size for edge, size in zip(front, kernel, strict=True)
    ):
        return None
    gaps = axes_of(node, None, "dilations") or [1]
    steps = axes_of(node, None, "strides") or [1] * len(kernel)
    words = [f"stride={one_or_all(steps)}"] if steps != kernel else []
    words += [f"padding={one_or_all(front)}"] if any(front) else []
    words += [f"dilation={one_or_all(gaps)}"] if set(gaps) != {1} else []
    return f"F.max_pool{len(kernel)}d({', '.join([x.text, one_or_all(kernel), *words])})"


def _conv(node: Node, inputs: list[Held | None], version: int) -> str | None:
    """With a weight that no layer has."""
    x, weight, bias = [*inputs, None][:3]
    if x is None or weight is None or weight.known_shape is None:
        return None
    kernel = tuple(size for size in weight.known_shape[2:] if isinstance(size, int))
    found = window(node, kernel) if len(kernel) == len(weight.known_shape) - 2 else None
    if found is None:
        return None
    words = [
        found.around(x.text),
        text_of(weight),
        *([text_of(bias)] if bias is not None else []),
        *found.keywords(),
    ]
    return f"F.conv{len(kernel)}d({', '.join(words)})"


def _pad(node: Node, inputs: list[Held | None], version: int) -> str | None:
    """Counts that are known; of the other ways than by one number, those that torch has for so many axes."""
    x, counts, value, axes = [*inputs, None, None, None][:4]
    said = counts.constants if counts is not None else None
    if version < 11 or x is None or x.is_sizes or x.dtype not in FLOATS or x.rank is None or said is None:
        return None
    along = list(range(x.rank)) if axes is None else axes.constants
    if not said or along is None or len(said) != 2 * len(along) or any(axis >= x.rank for axis in along):
        return None
    pairs = {axis % x.rank: (said[place], said[place + len(along)]) for place, axis in enumerate(along)}
    edges = [pairs.get(axis, (0, 0)) for axis in reversed(range(x.rank))]
    while edges and edges[-1] == (0, 0):
        edges.pop()
    if not edges or len(pairs) < len(along):
        return None
    way = node.attributes.get("mode", b"constant")
    words = [x.text, str(tuple(count for pair in edges for count in pair))]
    if way == b"constant":
        number = "" if value is None else value.number
        if value is not None and (not number or "math" in number):
            return None
        return f"F.pad({', '.join(words + ([f'value={number}'] if number not in ('', '0.0') else []))})"
    word = EDGES.get(way.decode("utf-8", "replace")) if isinstance(way, bytes) else None
    is_known = word is not None and len(edges) in (x.rank - 1, x.rank - 2) and len(edges) <= 3
    return f'F.pad({", ".join(words)}, mode="{word}")' if is_known and min(map(min, edges)) >= 0 else None


def _resize(node: Node, inputs: list[Held | None], version: int) -> str | None:
    """By scales that are known, of all axes behind the first two."""
    x = inputs[0]
    held = inputs[2 if node.operator == "Resize" and version > 10 else 1 :][:1]
    rates = held[0].floats if held and held[0] is not None else None
    if x is None or x.dtype not in FLOATS or x.rank not in LINEAR or rates is None or len(rates) != x.rank:
        return None
    how = _interpolated(node, version, x.rank, all(rate == int(rate) > 1 for rate in rates[2:]))
    is_usual = rates[:2] == (1.0, 1.0) and not {"axes", "keep_aspect_ratio_policy"} & node.attributes.keys()
    if how is None or not is_usual or min(rates[2:]) <= 0 or len([one for one in inputs if one]) > 3:
        return None
    factor = one_or_all([int(rate) if rate == int(rate) else rate for rate in rates[2:]])  # type: ignore[misc]
    return f"F.interpolate({x.text}, scale_factor={factor}, {how})"


def _interpolated(node: Node, version: int, rank: int, is_whole: bool) -> str | None:
    """The keywords of torch's function; `is_whole`: by whole numbers, of which at least two."""
    said = {
        name: value.decode("utf-8", "replace")
        for name, value in node.attributes.items()
        if isinstance(value, bytes)
    }
    old = version < 11 or node.operator == "Upsample"
    mode, at = (
        said.get("mode", "nearest"),
        said.get("coordinate_transformation_mode", "asymmetric" if old else "half_pixel"),
    )
    if integer(node, "antialias", 0) or integer(node, "exclude_outside", 0) or not is_whole:
        return None
    if mode == "nearest":
        rounded = said.get("nearest_mode", "floor" if old else "round_prefer_floor")
        return 'mode="nearest"' if at in NEAREST.get(rounded, ()) else None
    word = LINEAR[rank] if mode == "linear" else "bicubic" if mode == "cubic" and rank == 4 else ""
    if not word or node.attributes.get("cubic_coeff_a", -0.75) != -0.75:
        return None
    if at == "align_corners":
        return f'mode="{word}", align_corners=True'
    return f'mode="{word}"' if at in ("half_pixel", "pytorch_half_pixel") else None


SPELLED: dict[str, Spelled] = {
    "GlobalAveragePool": _pooled, "GlobalMaxPool": _pooled, "MaxPool": _max_pool, "Conv": _conv, "Pad": _pad,
    "Resize": _resize, "Upsample": _resize,
}  # fmt: skip
