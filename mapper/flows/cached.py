"""The option `cache`: a tower hands each layer the keys and values that it keeps, and counts positions from those."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from mapper.flows.language import copied, dotted, every

SLOTS, MEMORY, POSITIONS = "cache_position", "layer_cache", "position_ids"
MADE = frozenset({SLOTS, MEMORY})  # names that no flow binds, and those of a tower's layers read
_SLOTS = "cache_position = new_cache_positions(input_ids, start)"
_POSITIONS = "position_ids = cache_positions(cache_position, position_ids)"
_CACHES = "layer_caches(past, len(layers))"
_LISTED = ("zip", "enumerate")


def keep_caches(statements: list[ast.stmt], below: Iterable[Sequence[ast.stmt]]) -> list[ast.stmt] | None:
    """A tower's statements with a cache for each layer; `below` has those of the blocks that it holds.

    None where no loop runs once over all layers.
    """
    loops = [node for node in statements if isinstance(node, ast.For) and _over_layers(node.iter)]
    if len(loops) != 1:
        return None
    counted = any(_reads(inner, POSITIONS) and not _reads(inner, SLOTS) for inner in below)
    first = [_SLOTS, _POSITIONS] if counted else [_SLOTS]
    rest = [_with_caches(node) if node is loops[0] else node for node in statements]
    return [*_parsed(first), *(rest if counted else [_Counted().visit(copied(node)) for node in rest])]


def _over_layers(source: ast.expr) -> bool:
    """Whether a loop goes over all of `layers`, alone or beside something else."""
    if isinstance(source, ast.Call) and dotted(source.func) in _LISTED:
        return bool(source.args) and _over_layers(source.args[0])
    return dotted(source) == "layers"


def _with_caches(loop: ast.For) -> ast.For:
    """`for layer in layers` as `for layer, layer_cache in zip(layers, caches)`."""
    made = ast.For(*_zipped(copied(loop.target), copied(loop.iter)), loop.body, [])
    return ast.copy_location(made, loop)


def _zipped(target: ast.expr, source: ast.expr) -> tuple[ast.expr, ast.expr]:
    if isinstance(source, ast.Call) and dotted(source.func) == "enumerate":
        assert isinstance(target, ast.Tuple)
        target.elts[1], source.args[0] = _zipped(target.elts[1], source.args[0])
        return target, source
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    sources = source.args if isinstance(source, ast.Call) else [source]
    caches = ast.parse(_CACHES, mode="eval").body
    row = ast.Tuple([*targets, ast.Name(MEMORY, ast.Store())], ast.Store())
    return row, ast.Call(ast.Name("zip", ast.Load()), [*sources, caches], [])


class _Counted(ast.NodeTransformer):
    """Positions that the caller gave, or where the new ones stand behind those that are kept."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if dotted(node.func) == "position_indices" and dotted(node.args[1]) == POSITIONS:
            return ast.parse(_POSITIONS.partition(" = ")[2], mode="eval").body
        return node


def _reads(statements: Iterable[ast.stmt], name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name
        for statement in statements
        for node in every(statement)
    )


def _parsed(rows: Iterable[str]) -> list[ast.stmt]:
    return [statement for row in rows for statement in ast.parse(row).body]
