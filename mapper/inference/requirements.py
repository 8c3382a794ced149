"""Which facts a flow needs for one block: guards decide what the rest of its body reads."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from mapper.flows.flow import Flow, facts_in
from mapper.flows.guards import Answers, Unknown, holds
from mapper.flows.language import dotted, every

Has = Callable[[str], bool]
Lookup = Callable[[str], Any]  # raises KeyError for what is unknown


class Needs:
    """Facts in order of first use; an unknown one in a guard makes both of its branches needed.

    What is read in one of them alone is asked `later`: the answer to the guard may leave no place for it.
    """

    def __init__(self, flow: Flow, has: Has, lookup: Lookup):
        self.lookup = lookup
        self.answers = Answers(has, self._fact, lambda name: None)  # an option may be chosen or not
        self.facts: dict[str, None] = {}
        self.sure: set[str] = set()  # those that are read whatever an unknown guard is answered
        self.is_open = False  # whether a fact that a guard asks for is unknown
        self.bare: set[str] = (
            set()
        )  # names that stand alone, not before a dot: what is called or passed on whole
        self._block(flow.statements)
        built = [facts for role, facts in flow.leaf_facts.items() if has(role)]
        self._add(sorted(frozenset().union(*built)))
        needed = flow.rule.needs
        if any(has(other) and (has(role) or role in needed) for role, other in flow.rule.ties.items()):
            self._add(["head.tied"])

    @property
    def later(self) -> set[str]:
        return self.facts.keys() - self.sure

    def _add(self, names: Iterable[str]) -> None:
        self.facts.update(dict.fromkeys(names))
        self.sure.update(names)

    def _block(self, statements: Iterable[ast.stmt]) -> bool:
        """Reads statements up to a return that is surely reached; whether there was one."""
        for node in statements:
            if isinstance(node, ast.If):
                if self._guarded(node):
                    return True
            elif isinstance(node, ast.For):
                self._read(node.iter)
                self._block(node.body)
            else:
                self._read(node)
                if isinstance(node, ast.Return):
                    return True
        return False

    def _guarded(self, node: ast.If) -> bool:
        self.is_open = False
        held = holds(node.test, self.answers)
        if held is not None:
            return self._block(node.body if held else node.orelse)
        if not self.is_open:  # an option, which whoever builds may choose: both of its branches are read
            ends = self._block(node.body)
            return self._block(node.orelse) and ends
        around, self.sure = self.sure, set()
        ends = self._block(node.body)
        then, self.sure = self.sure, set()
        ends = self._block(node.orelse) and ends
        self.sure = around | (then & self.sure)
        return ends

    def _fact(self, name: str) -> Any:
        self._add([name])
        try:
            return self.lookup(name)
        except KeyError:
            self.is_open = True
            raise Unknown from None

    def _read(self, node: ast.AST) -> None:
        facts, bare = _read(node)
        self._add(facts)
        self.bare |= bare


@lru_cache(maxsize=4096)
def _read(node: ast.AST) -> tuple[dict[str, None], frozenset[str]]:
    """The facts of a statement without guards, and its names that stand alone: asked again for each block of a flow."""
    facts = dict.fromkeys(facts_in(node))
    calls = (child for child in every(node) if isinstance(child, ast.Call))
    if any(dotted(call.func) == "activation" for call in calls):
        facts["activation"] = None
    return facts, frozenset(_bare(node))


def _bare(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif not (isinstance(node, ast.Attribute) and dotted(node)):
        for child in ast.iter_child_nodes(node):
            yield from _bare(child)
