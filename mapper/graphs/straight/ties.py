"""A table and a layer with the same numbers: one parameter in the written model, as a head tied to its word embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mapper.emission.line_breaks import lines
from mapper.graphs.graph import TensorRef
from mapper.graphs.recovery.fusing import Arranged
from mapper.graphs.recovery.tying import Laid, equal, laid_out
from mapper.graphs.straight.constants import Derived
from mapper.graphs.straight.layers import Layer
from mapper.graphs.straight.weights import Tree, path_text

Pairs = list[tuple[str, str]]


def tied_layers(layers: Iterable[Layer]) -> Pairs:
    """The dotted paths of linear layers and of the tables that have their weights, as far as the file shows it."""
    found = list(layers)
    tables, linears = (
        {one.path: one for one in found if one.word == word} for word in ("embedding", "linear")
    )
    return list(dict.fromkeys(_pairs(linears, tables)))


def _pairs(linears: dict[str, Layer], tables: dict[str, Layer]) -> Iterator[tuple[str, str]]:
    for path, linear in linears.items():
        weight = _laid(linear.tensors["weight"])
        for place, table in tables.items():
            rows = _laid(table.tensors["weight"])
            if weight and rows and weight.shape == rows.shape and equal(weight, rows):
                yield path, place


def _laid(ref: TensorRef) -> Laid | None:
    if isinstance(ref, Arranged):
        return laid_out(ref.held) if ref.held is not None else None
    if isinstance(ref, Derived):
        return Laid(ref.sources[0], True) if ref.is_turned else None
    return Laid(ref, False) if ref.packing == "plain" else None


def tie_text(pairs: Pairs, tree: Tree) -> str:
    """The function that ties the modules of a model, after its weights are there."""
    rows = [
        "def tie(model: Model) -> None:",
        '    """One parameter where the file has the same numbers twice."""',
    ]
    for pair in pairs:
        tied, table = (path_text(tree, path, "model") for path in pair)
        rows += lines(f"{tied}.weight = {table}.weight", 4)
    return "\n".join(rows)
