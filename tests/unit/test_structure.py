"""Modules import one another in one direction, within functions too; what is imported for types alone does not count."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def named(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {named(path): path for path in (ROOT / "mapper").rglob("*.py")}


def imports(node: ast.AST) -> Iterator[str]:
    """The modules that a piece of code imports when it runs."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.ImportFrom) and node.module:
        for name in node.names:
            full = f"{node.module}.{name.name}"
            yield full if full in MODULES else node.module
    elif isinstance(node, ast.Import):
        yield from (name.name for name in node.names)
    for child in ast.iter_child_nodes(node):
        yield from imports(child)


def in_order(graph: dict[str, set[str]]) -> None:
    """Raises CycleError with a cycle."""
    TopologicalSorter(graph).prepare()


def test_no_module_imports_what_imports_it() -> None:
    # The package itself re-exports; who asks it for its version imports nothing that it re-exports.
    graph = {
        name: {other for other in imports(ast.parse(path.read_text())) if other in MODULES} - {name, "mapper"}
        for name, path in MODULES.items()
    }
    assert len(graph) > 200
    in_order(graph)


def test_a_cycle_is_seen_also_within_a_function() -> None:
    code = "def late():\n    from mapper.checkpoint import Checkpoint\n"
    assert [*imports(ast.parse(code))] == ["mapper.checkpoint"]
    assert [*imports(ast.parse("if TYPE_CHECKING:\n    from mapper.errors import RuleError\n"))] == []
    with pytest.raises(CycleError):
        in_order({"a": {"b"}, "b": {"a"}})
