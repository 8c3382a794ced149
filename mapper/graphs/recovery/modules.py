"""The dotted paths of modules, told from the paths that the tracing exporter gives its nodes.

It writes the module `layer1.0.conv1` of a Sequential as /layer1/layer1.0/conv1, leaves out containers that are not called, and counts
calls: /attention_1. Weights that kept their names say what such a path stands for, for what is beside them too.
"""

from __future__ import annotations

from collections.abc import Iterator

from mapper.graphs.graph import Node
from mapper.graphs.recovery.wiring import SCOPES, Wiring, module_of

Path = tuple[str, ...]


class Modules:
    """What a node's path stands for."""

    def __init__(self, wiring: Wiring):
        self.known: dict[Path, Path | None] = {}  # None: more than one thing
        for path, module in _pairs(wiring):
            for start, stands_for in _ancestors(path, module):
                if self.known.setdefault(start, stands_for) != stands_for:
                    self.known[start] = None

    def name(self, node: Node) -> str:
        """The dotted path of the module that a node stands in; "" where that is not sure."""
        path = module_of(node)
        if not path or SCOPES in node.metadata:
            return path or ""
        parts = tuple(path.split("."))
        for end in range(len(parts), 0, -1):
            if parts[:end] in self.known:
                module = self.known[parts[:end]]
                return ".".join((*module, *parts[end:])) if module is not None else ""
        is_moved = self.known.get((), ()) != ()  # below a container that is not called: but this one, too?
        return "" if is_moved or _number(parts[0]) else ".".join(_collapsed(parts))


def _pairs(wiring: Wiring) -> Iterator[tuple[Path, Path]]:
    """The path of a node, and the module that a weight in it says it is of."""
    for node in wiring.graph.nodes:
        path = module_of(node)
        if path is None or SCOPES in node.metadata:
            continue
        for name in node.inputs:
            if name in wiring.held and "." in name and "/" not in name and "::" not in name:
                yield tuple(path.split(".")) if path else (), tuple(name.split(".")[:-1])


def _ancestors(path: Path, module: Path) -> Iterator[tuple[Path, Path]]:
    """The module and those around it, as far as both call them the same."""
    if not path or path[-1:] != module[-1:]:
        return
    yield path, module
    while path and path[-1:] == module[-1:]:
        path, module = path[:-1], module[:-1]
        yield path, module


def _collapsed(parts: Path) -> Path:
    """`layer1.layer1.0`, a Sequential and an element of it, as `layer1.0`."""
    return tuple(
        part
        for at, part in enumerate(parts)
        if not (parts[at + 1 : at + 2] == (part,) and _number("".join(parts[at + 2 : at + 3])))
    )


def _number(part: str) -> bool:
    return part.isascii() and part.isdigit()
