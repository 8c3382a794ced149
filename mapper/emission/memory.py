"""The option `cache`: inputs for keys and values of earlier positions, and a method that makes room for them."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from mapper.architecture import Architecture, Block, Fact
from mapper.emission.drafts import Argument, Draft
from mapper.errors import ArchitectureError
from mapper.flows.language import dotted
from mapper.flows.program import Program

ANNOTATIONS = {
    "tensor": "Tensor",
    "cache": "list[tuple[Tensor, Tensor]]",
    "index": "Tensor | int",
    "state": "Tensor",
}
_METHOD = '''\
def new_cache(self, batch: int, length: int) -> list[tuple[Tensor, Tensor]]:
    """Room for the keys and values of `length` positions: `past` of the forward, which fills it from `start` on.

    past = model.new_cache(1, 100)
    out = model(ids, past=past)
    out = model(more, past=past, start=ids.shape[1])
    """
    return empty_cache(next(self.parameters()), batch, length, self.cache_sizes)
'''


def annotation(spec: dict[str, Any]) -> str:
    """The annotation of a public input."""
    text = ANNOTATIONS[spec.get("kind", "tensor")]
    return f"{text} | None" if spec.get("optional") else text


def with_cache(architecture: Architecture) -> Architecture:
    """The architecture with the inputs that a cache needs."""
    declared = architecture.rulebook.inputs
    more = {
        name: {"shape": list(rule.shape), "dtype": rule.dtype, "optional": rule.optional, "kind": rule.kind}
        for name, rule in declared.items()
        if rule.kind != "tensor"
    }
    return replace(architecture, inputs={**architecture.inputs, **more})


def cache_method(program: Program, draft: Draft) -> list[str]:
    """The method that makes an empty cache, and the sizes it needs in the constructor."""
    draft.attributes["cache_sizes"] = f"self.cache_sizes = {_sizes(program, cached_tower(program), draft)}"
    return [f"    {row}" if row else "" for row in _METHOD.rstrip().split("\n")]


def cached_tower(program: Program) -> Block:
    """The tower whose layers have a cache each. Raises ArchitectureError where there is none."""
    towers = [piece.block for piece in program.pieces.values() if _calls(piece.statements, "layer_caches")]
    if len(towers) != 1:
        raise ArchitectureError(
            "no flow of this model keeps keys and values: it has no cache; leave the option out"
        )
    return towers[0]


def _sizes(program: Program, tower: Block, draft: Draft) -> str:
    """Key/value heads and head size of every layer, as the constructor writes them."""
    layers: dict[int, tuple[Fact, Fact]] = {}
    elements = tower.roles["layers"]
    for element in elements if isinstance(elements, list) else []:
        assert isinstance(element, Block)
        kept = next((block for block in element.blocks() if _is_kept(program, block)), None)
        if kept is None:
            raise ArchitectureError(
                f"'{element.home}' keeps no keys and values, other layers do; leave the cache out"
            )
        for index in element.indices or ():
            layers[index] = (kept.facts.get("kv_heads") or kept.facts["heads"], kept.facts["head_dim"])
    pairs = [layers[index] for index in sorted(layers)]
    values = [(heads.value, size.value) for heads, size in pairs]
    if len(set(values)) > 1:
        return draft.place(Argument("cache_sizes", values))
    heads, size = (_mark(draft, fact) for fact in pairs[0])
    count = tower.facts.get("layers")
    return f"[({heads}, {size})] * {_mark(draft, count) if count else len(pairs)}"


def _mark(draft: Draft, fact: Fact) -> str:
    symbol = draft.symbol(fact, "cache")
    return draft.place(Argument(symbol, fact.value, ast.Name(symbol), {symbol: fact}))


def _is_kept(program: Program, block: Block) -> bool:
    return id(block) in program.pieces and _calls(program.piece(block).statements, "extend")


def _calls(statements: list[ast.stmt], name: str) -> bool:
    nodes = (node for statement in statements for node in ast.walk(statement))
    return any(isinstance(node, ast.Call) and dotted(node.func) == name for node in nodes)
