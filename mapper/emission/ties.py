"""Weights that the config ties and the checkpoint stores all the same: one parameter under both names, where they agree."""

from __future__ import annotations

from mapper.architecture import Leaf, Place
from mapper.emission.expressions import literal
from mapper.emission.line_breaks import lines
from mapper.emission.paths import Paths
from mapper.flows.program import Piece, Program
from mapper.flows.references import refer

Pairs = list[tuple[Leaf, Leaf]]


def tied_leaves(program: Program) -> Pairs:
    """Pairs of leaves: the second one's weight is also the first one's."""
    pairs = []
    for piece in program.pieces.values():
        fact = piece.block.facts.get("head.tied")
        for role, other in piece.flow.rule.ties.items() if fact and fact.value is True else ():
            tied, source = _leaf(piece, role), _leaf(piece, other)
            if tied and source and tied.tensors.get("weight") == source.tensors.get("weight", ()):
                pairs.append((tied, source))
    return pairs


def _leaf(piece: Piece, path: str) -> Leaf | None:
    reference = refer(piece.block, list(path.split(".")), {})
    item = reference.items[0] if reference and not reference.rest and len(reference.items) == 1 else None
    return item if isinstance(item, Leaf) and item.form == "plain" and item.place.instances == 1 else None


def _spelled(paths: Paths, leaf: Leaf) -> str:
    return paths.spell("model", Place(), leaf.place)


def tie_text(pairs: Pairs, paths: Paths) -> str:
    """The function that ties the modules of a model, after its weights are there."""
    rows = [
        "def tie(model: Model) -> None:",
        '    """One parameter for two weights that are mostly tied, where the file has the same numbers twice."""',
    ]
    for tied, source in ((_spelled(paths, one), _spelled(paths, other)) for one, other in pairs):
        rows += lines(f"if torch.equal({tied}.weight, {source}.weight):", 4)
        rows += lines(f"{tied}.weight = {source}.weight", 8)
    return "\n".join(rows)


def untied_text(pairs: Pairs) -> str:
    """The statement of `load` that gives a weight that is stored under one of its names the other one too."""
    keys = [tuple(f"{leaf.place.first()}.weight" for leaf in pair) for pair in pairs]
    rows = [
        "    # A weight with two names may be stored under one of them.",
        *lines(f"tied = {literal(keys)}", 4),
        "    for name, other in (*tied, *(pair[::-1] for pair in tied)):",
        "        if other in tensors:",
        "            tensors.setdefault(name, tensors[other])",
    ]
    return "".join(f"{row}\n" for row in rows)
