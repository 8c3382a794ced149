"""The public inputs of a network that is no chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mapper.inference.chains.elements import CONVOLUTION, EMBEDDING, RECURRENT
from mapper.inference.chains.nodes import INPUT, Node
from mapper.inference.chains.texts import names_in

if TYPE_CHECKING:
    from mapper.inference.chains.woven import Weaving

_READS = "chain.reads"


def _counted(name: str) -> int:
    """Inputs that are told apart by a number alone stand in its order: `inputs`, `inputs_2`."""
    number = name.removeprefix(f"{INPUT}_")
    return int(number[:6]) if number != name and number.isdecimal() else 1


def inputs_of(weaving: Weaving) -> dict[str, dict[str, Any]]:
    """The public inputs in the order in which layers read them, or as told, with their shapes and types."""
    found: dict[str, dict[str, Any]] = {}
    for node in weaving.called:
        for name in names_in(weaving.texts[node.name]):
            if not weaving.is_own(name):
                found.setdefault(name, _input(weaving, name, node))
    told = (weaving.answers.told_at(node.first.leaf, _READS) for node in weaving.nodes)
    is_counted = any(_counted(name) > 1 for text in told for name in names_in(text))
    counted = sorted(found, key=_counted) if is_counted else found  # whoever names inputs counts them
    order = [*(name for name in weaving.takes if name in found), *counted]
    return {name: found[name] for name in dict.fromkeys(order)}


def _input(weaving: Weaving, name: str, node: Node) -> dict[str, Any]:
    if node.first.group == EMBEDDING:
        if name in weaving.rows:
            return {"shape": ["batch", "length", "characters"], "dtype": "int64"}
        columns = sum(f"column({name}," in text for text in weaving.texts.values())
        return {"shape": ["batch", columns or "length"], "dtype": "int64"}
    width = weaving.sources.inputs.get(name, node.first.inputs)
    readers = [other for other in weaving.nodes if name in names_in(weaving.texts[other.name])]
    kernel = next((other.first.kernel for other in readers if other.first.group == CONVOLUTION), ())
    if kernel:
        return {
            "shape": [
                "batch",
                width,
                *(("length",) if len(kernel) == 1 else ("depth", "height", "width")[-len(kernel) :]),
            ],
            "dtype": "float32",
        }
    is_long = any(node.first.group == RECURRENT for node in weaving.nodes)
    return {"shape": ["batch", *["length"] * is_long, width], "dtype": "float32"}
