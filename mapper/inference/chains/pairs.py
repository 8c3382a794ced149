"""Bilinear layers, which read two things side by side: what these may be, by the widths of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mapper.architecture import Leaf
from mapper.inference.leaf_shapes import weight_shape

if TYPE_CHECKING:
    from mapper.inference.chains.nodes import Node, Sources

_KIND = "Bilinear"
_LISTED = 12  # pairs that are asked for
_INPUTS = ("inputs", "inputs_2")


def has_pairs(nodes: Sequence[Node]) -> bool:
    """Whether a layer reads two things: no order of sizes shows which."""
    return any(node.first.leaf.kind == _KIND for node in nodes)


def in_parts(leaf: Leaf) -> str:
    """What passes, as a layer is called with it: a bilinear one reads the first features and the others apart."""
    if leaf.kind != _KIND:
        return "x"
    first = weight_shape(leaf)[1]
    return f"x[..., :{first}], x[..., {first}:]"


def ask_pairs(sources: Sources) -> None:
    """What bilinear layers read: layers of both widths, which is asked, or two inputs where nothing gives them."""
    for node in (node for node in sources.nodes if node.first.leaf.kind == _KIND):
        widths = weight_shape(node.first.leaf)[1:]
        given = [
            [one.name for one in sources.nodes if one is not node and one.gives.width == width]
            for width in widths
        ]
        found = [f"{one} & {other}" for one in given[0] for other in given[1] if one != other]
        if found:
            sources.open[node.name] = tuple(found[:_LISTED])
            sources.known[node.name] = (found[0], "")
        elif not any(given) and not sources.inputs:
            sources.inputs |= dict(zip(_INPUTS, widths, strict=True))
            sources.known[node.name] = (" & ".join(_INPUTS), "no layer gives what it reads")
