"""The option `cache`: inputs for keys and values of earlier positions, and a method that makes room for them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mapper.architecture import Architecture, Block, Fact
from mapper.emission.drafts import Argument, Draft
from mapper.errors import ArchitectureError
from mapper.flows.language import dotted
from mapper.flows.program import Program

ANNOTATIONS = {
    "tensor": "Tensor",
    "cache": "list[list[Tensor]]",
    "index": "Tensor | int",
    "state": "Tensor",
}
NO_CACHE = "no flow of this model keeps keys and values: it has no cache; leave the option out"
_METHOD = '''\
def new_cache(self, batch: int, length: int) -> list[list[Tensor]]:
    """Room for the keys and values of `length` positions: `past` of the forward, which fills it from `start` on.

    past = model.new_cache(1, 100)
%s
    """
    return empty_cache(next(self.parameters()), batch, length, self.cache_sizes)
'''
_CONTINUED = """\
    out = model(ids, past=past)
    out = model(more, past=past, start=ids.shape[1])"""
_CONTINUED_FROM_SOURCE = """\
    out = model(ids, decoder_input_ids=first, past=past)
    known = out.encoder_last_hidden_state  # with it the encoder is not run again, nor are its keys and values made
    out = model(ids, decoder_input_ids=more, past=past, start=first.shape[1], encoder_last_hidden_state=known)"""


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
    draft.attributes["cache_sizes"] = (
        f"self.cache_sizes: tuple[tuple[int, ...], ...] = {_sizes(program, cached_tower(program), draft)}"
    )
    usage = _CONTINUED_FROM_SOURCE if "encoder_last_hidden_state" in program.inputs else _CONTINUED
    return [f"    {row}" if row else "" for row in (_METHOD % usage).rstrip().split("\n")]


def cached_tower(program: Program) -> Block:
    """The tower whose layers have a cache each. Raises ArchitectureError where there is none."""
    towers = [piece.block for piece in program.pieces.values() if _calls(piece.statements, "layer_caches")]
    if len(towers) != 1:
        raise ArchitectureError(NO_CACHE)
    return towers[0]


def _sizes(program: Program, tower: Block, draft: Draft) -> str:
    """Key/value heads, head size and, where it is another, that of the values, of every layer as the constructor writes them."""
    layers: dict[int, list[Fact]] = {}
    elements = tower.roles["layers"]
    for element in elements if isinstance(elements, list) else []:
        assert isinstance(element, Block)
        kept = next((block for block in element.blocks() if _is_kept(program, block)), None)
        if kept is None:
            raise ArchitectureError(
                f"'{element.home}' keeps no keys and values, other layers do; leave the cache out"
            )
        if any(block.kind == "state_space" for block in element.blocks()):
            raise ArchitectureError(
                f"'{element.home}' has a state beside keys and values, which nothing keeps; leave the cache out"
            )
        for index in element.indices or ():
            layers[index] = list(_kept_sizes(kept))
    rows = [layers[index] for index in sorted(layers)]
    values = [tuple(fact.value for fact in facts) for facts in rows]
    if len(set(values)) > 1:
        return draft.place(Argument("cache_sizes", values))
    sizes = ", ".join(_mark(draft, fact) for fact in rows[0])
    count = tower.facts.get("layers")
    counted = count is not None and count.value == len(rows)
    return f"(({sizes}),) * {_mark(draft, count) if count and counted else len(rows)}"


def _kept_sizes(attention: Block) -> Iterator[Fact]:
    yield attention.facts.get("kv_heads") or attention.facts["heads"]
    yield attention.facts["head_dim"]
    if "value_dim" in attention.facts:
        yield attention.facts["value_dim"]


def _mark(draft: Draft, fact: Fact) -> str:
    symbol = draft.symbol(fact, "cache")
    return draft.place(Argument(symbol, fact.value, ast.Name(symbol), {symbol: fact}))


def _is_kept(program: Program, block: Block) -> bool:
    return id(block) in program.pieces and _calls(program.piece(block).statements, "extend_cache")


def _calls(statements: list[ast.stmt], name: str) -> bool:
    nodes = (node for statement in statements for node in ast.walk(statement))
    return any(isinstance(node, ast.Call) and dotted(node.func) == name for node in nodes)
