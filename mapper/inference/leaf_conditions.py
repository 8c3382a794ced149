"""What a rule about a fact asks of the leaves of a checkpoint: their roles, their kinds, their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mapper.flows.references import has_role
from mapper.inference.entries import mapped
from mapper.inference.evidence import Known
from mapper.inference.leaf_shapes import weight_shape
from mapper.inference.lengths import is_as_long, is_square
from mapper.inference.names import EITHER, Names
from mapper.inference.scopes import Scope, leaves_at

if TYPE_CHECKING:
    from mapper.architecture import Leaf
    from mapper.rulebook.facts import FactRule


def leaves_fit(rule: FactRule, scope: Scope) -> bool:
    """Whether the leaves of a block, and the roles of its tower, are as a rule asks."""
    return (  # most rules ask little: what is empty is not begun
        (not rule.block or all(has_role(scope.block, path) == there for path, there in rule.block.items()))
        and (not rule.holds or all(holds(scope, path, kind) for path, kind in rule.holds.items()))
        and (not rule.as_long or all(is_as_long(scope, path, it) for path, it in rule.as_long.items()))
        and (not rule.square or all(is_square(scope, path) for path in rule.square))
        and (not rule.tower or tower_fits(rule.tower, scope))
    )


def tower_fits(wanted: Mapping[str, bool], scope: Scope) -> bool:
    """Whether the tower around a block, or the only one below it, has the roles that it should and lacks the others."""
    tower = _tower_around(scope)
    return tower is not None and all(has_role(tower.block, path) == there for path, there in wanted.items())


def _tower_around(scope: Scope) -> Scope | None:
    return scope.tower or next((outer.only_tower for outer in scope.up() if outer.only_tower), None)


def counted(rule: FactRule, scope: Scope, names: Names) -> Iterator[Known]:
    """How many rows or columns the weight of a role has in a block (of a leaf its own), else in the tower around it, or in the only one below.

    A path of several roles may begin at the top, too.
    What a rule makes of such a number stands in its map.
    """
    if rule.stored:
        yield from _counted_stored(rule, scope, names)
        return
    path, what, at = _counted_extent(rule)
    block = scope.parent if scope.parent and scope.is_leaf else scope
    places = [block, *([tower] if (tower := _tower_around(scope)) else [])]
    places += [*scope.up()][-1:] if "." in path else []  # a path from the top says where it leads
    leaves = next((leaves for place in places if (leaves := leaves_at(place.block, path))), [])
    if rule.kernels:
        kernels = [weight_shape(leaf)[-1] for leaf in leaves for _ in leaf.place.expand()]
        if kernels:
            yield Known(
                kernels, "shape", f"kernels of {leaves[0].place} and its kin", rule=rule.place, by=rule
            )
        return
    if rule.per:
        yield from _counted_each(rule, f"{what} of", at, leaves)
        return
    counts = {weight_shape(leaf)[at : at + 1] for leaf in leaves}
    if len(counts) == 1 and (count := counts.pop()):
        value = mapped(rule, count[0]) if rule.map else count[0]
        yield Known(value, "shape", f"{what} of {leaves[0].place}", rule=rule.place, by=rule)


def _counted_stored(rule: FactRule, scope: Scope, names: Names) -> Iterator[Known]:
    """How many numbers the rows of these names have in the tower around a block: they may be of no role."""
    tower = _tower_around(scope)
    around = (tower.block.home, tower.towers_inside) if tower else ()
    counts = {shape[0] for shape in names.shapes(rule.stored, *around) if len(shape) == 1}
    if len(counts) == 1:
        source = f"numbers of {rule.stored.partition(EITHER)[0]}"
        yield Known(counts.pop(), "shape", source, rule=rule.place, by=rule)


def _counted_extent(rule: FactRule) -> tuple[str, str, int]:
    """The role whose weight is counted, what of it, and which extent that is."""
    extents = ((rule.rows, "rows", 0), (rule.columns, "columns", 1), (rule.kernels, "kernels", -1))
    return next(extent for extent in extents if extent[0])


def _counted_each(rule: FactRule, what: str, at: int, leaves: Sequence[Leaf]) -> Iterator[Known]:
    """The same of each layer: one number for each number in a list's names, from 0 on without a gap."""
    counts = {
        number: count
        for leaf in leaves
        for count in weight_shape(leaf)[at : at + 1]
        for place in leaf.place.expand()
        for number in [int(word) for word in place.split(".") if word.isdigit()][:1]
    }
    if counts and sorted(counts) == list(range(len(counts))):
        every = [counts[number] for number in sorted(counts)]
        yield Known(every, "shape", f"{what} {leaves[0].place} and its kin", rule=rule.place, by=rule)


def holds(scope: Scope, path: str, kind: str) -> bool:
    """Whether the leaf with a role, in the block or the closest one around it that has the role, is of a kind."""
    for outer in scope.up():
        leaves = leaves_at(outer.block, path)
        if leaves:
            return all(leaf.kind == kind for leaf in leaves)
    return False
