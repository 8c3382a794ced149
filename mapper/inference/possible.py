"""Which values of a fact the shapes of a block leave, where nothing but listed types speaks of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mapper.errors import ArchitectureError
from mapper.inference.evidence import Known
from mapper.inference.nearest import nears
from mapper.inference.select import choose
from mapper.inference.sizes import Sizes

if TYPE_CHECKING:
    from mapper.inference.facts import Facts
    from mapper.inference.scopes import Scope
    from mapper.rulebook.flows import FlowRule
    from mapper.rulebook.index import FlowTable


def possible(scope: Scope, name: str, values: Iterable[Any], flows: FlowTable, facts: Facts) -> list[Any]:
    """The values without those that lead to a flow whose shapes are not those of the block.

    A norm as long as one head is none over all of them, whatever listed types of these names have.
    """
    return [value for value in values if _goes_with_shapes(scope, name, value, flows, facts)]


def _goes_with_shapes(scope: Scope, name: str, value: Any, flows: FlowTable, facts: Facts) -> bool:
    """Whether a flow that a value leads to, or with answers to what else is open, may have these shapes; any value without one."""
    with facts.supposing(scope, {name: Known(value, "name", "supposed")}):
        choice = choose(scope, flows, facts.families, facts)
        near = [] if choice.flow else nears(scope, choice.answerable, facts)
        rules = [choice.flow] if choice.flow else [one.rule for one in near if one.asks]
        return not rules or any(_may_have(scope, rule, facts) for rule in rules)


def _may_have(scope: Scope, rule: FlowRule, facts: Facts) -> bool:
    try:
        return Sizes(scope, rule, facts).are_possible()
    except ArchitectureError:  # of another rank
        return False
