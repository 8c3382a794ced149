"""The arguments of the constructor of a leaf: extents and options as its flow has them, marked in a draft."""

from __future__ import annotations

import ast
from typing import Any

from mapper.architecture import Leaf
from mapper.emission.derived import computed
from mapper.emission.drafts import Draft
from mapper.emission.identifiers import identifier
from mapper.emission.leaf_arguments import argument_value, facts_of_leaf
from mapper.emission.settings import INDEX, Setting, is_stated, of_element
from mapper.flows import arithmetic
from mapper.flows.language import dotted, parse_expression
from mapper.naming.members import matrix_of
from mapper.rulebook.flows import aligned


class Arguments:
    """Writes arguments of the call that makes one leaf."""

    def __init__(self, draft: Draft, leaf: Leaf, name: str, where: Setting):
        self.draft, self.leaf, self.name, self.where = draft, leaf, identifier(name), where

    def value(self, hint: str, value: Any, node: ast.expr | None = None) -> str:
        facts = (
            {name: self.where.facts[name] for name in arithmetic.names(node) if name != INDEX}
            if node is not None and self.where.facts
            else {}
        )
        return self.draft.size(
            f"{self.name}_{hint}", value, node if facts else None, facts, self.where.prefix
        )

    def extent(
        self, axis: int, shape: tuple[int, ...], hint: str, declared_shape: tuple[str, ...] | None = None
    ) -> str:
        """One extent of a tensor, of the weight unless told, as the flow declares it if that gives the file's value."""
        extents = aligned(self.where.shape if declared_shape is None else declared_shape, len(shape))
        declared = extents[axis] if len(extents) == len(shape) else None
        node = parse_expression(declared, "shapes", 1) if declared and not declared.isdigit() else None
        return self.value(
            hint, shape[axis], node if node is not None and self.agrees(node, shape[axis]) else None
        )

    def agrees(self, node: ast.expr, value: int) -> bool:
        try:
            known = {name: fact.value for name, fact in (self.where.facts or {}).items()}
            return bool(arithmetic.evaluate(node, known) == value)
        except (KeyError, ValueError):
            return False

    def option(self, name: str, default: Any) -> str | None:
        """`name=value` for an argument that the flow or a leaf fact gives; None for a constant that is torch's own default."""
        text = (self.where.arguments or {}).get(name)
        fact = facts_of_leaf(self.leaf).get(name)
        if text is None and fact is not None:
            if fact.value == default and not (name == "eps" and is_stated(fact)):
                return None
            symbol = self.draft.size(
                f"{self.name}_{name}", fact.value, ast.Name(name), {name: fact}, self.where.prefix
            )
            return f"{name}={symbol}"
        if text is None:
            return None
        node, value = self.argument(text)
        if name == "padding":
            node = self.half_of_kernel(node)
        names = [*arithmetic.names(node)]
        symbolic = not isinstance(node, ast.Tuple) and "kernel" not in names and bool(names)
        if value == default and not symbolic:
            return None
        symbol = self.value(name, value, node if symbolic else None)
        self.draft.arguments[-1].usual = default
        if self.goes_without_saying(names):
            self.draft.arguments[-1].default = default
        return f"{name}={symbol}"

    def half_of_kernel(self, node: ast.expr) -> ast.expr:
        """A padding that is one fact, as a rule computed this from others of its block."""
        facts = self.where.facts or {}
        fact = facts.get((dotted(node) or "").removeprefix("fact."))
        found = computed(fact, facts) if fact is not None else None
        return node if found is None or "kernel" in arithmetic.names(found) else found

    def argument(self, text: Any) -> tuple[ast.expr, Any]:
        """An argument as its flow has it, of this element where the leaf is one of a list, and its value."""
        node = parse_expression(str(text), "leaves", 1)
        known = {key: item.value for key, item in (self.where.facts or {}).items()} | {
            "kernel": self.kernel()
        }
        values = tuple(argument_value({**known, INDEX: index}, node) for index in self.where.indices)
        if len(values) == 1:
            return of_element(node, self.where.indices[0]), values[0]
        return node, values if INDEX in arithmetic.names(node) else values[0]

    def evaluated(self, name: str, default: Any) -> Any:
        """The value of an argument that the flow may give."""
        text = (self.where.arguments or {}).get(name)
        return default if text is None else self.argument(text)[1]

    def goes_without_saying(self, names: list[str]) -> bool:
        """Whether no file says what these facts are: what torch does anyway, nobody wants to change there."""
        facts = [(self.where.facts or {}).get(name) for name in names]
        return all(fact is not None and fact.evidence in ("default", "rule") for fact in facts)

    def kernel(self) -> Any:
        extents = self.weight()[2:]
        return extents[0] if extents and len(set(extents)) == 1 else tuple(extents)

    def weight(self) -> tuple[int, ...]:
        tensors = self.leaf.tensors
        for name in ("weight", matrix_of(tensors), "gamma", "scale", "g", "running_mean"):
            if name in tensors:
                return tensors[name].shape
        return next(iter(self.leaf.tensors.values())).shape

    def call(self, function: str, *parts: str | None) -> str:
        return f"{function}({', '.join(part for part in parts if part)})"

    def no_bias(self) -> str | None:
        return None if "bias" in self.leaf.tensors else "bias=False"
