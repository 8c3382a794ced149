"""Modules that no word knows, by what the block around them lacks, or could have.

A block may have all that a flow reads but some maps, and beside it modules whose names mean nothing: where their shapes
are those of the maps that are lacking, they are these maps. Only of types that nobody lists: a listed one has its words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mapper.architecture import ROW_NORMS, Leaf, Place
from mapper.inference.case import Case
from mapper.inference.chosen import Chosen
from mapper.inference.completions import Way, decided, is_like_each_row, likeness, ways
from mapper.inference.leaf_shapes import weight_shape
from mapper.inference.nearest import nears
from mapper.inference.roots import TASK, task_of_config
from mapper.inference.scopes import Scope
from mapper.inference.sizes import WIDTH
from mapper.inference.tables import TABLE
from mapper.naming.leaf_groups import BlockPath, Taken, is_outside
from mapper.rulebook.declared import FLOW
from mapper.rulebook.flows import FlowRule

_EMBEDDINGS = ("embeddings", None)
_MOST = 3  # modules of a block that may be taken so: of more, shapes alone are no evidence


def left_over(case: Case, chosen: Chosen) -> dict[Place, Taken]:
    """The modules without a role that a flow of their block has a use for, each with its role.

    Where they could be one thing or another, or nothing but a row of numbers speaks for what a block does without, the
    flow is asked for.
    """
    found = _words(chosen)
    claimed = {*found}  # by blocks that lack something: what is theirs is not what others may have
    lacking = [(_lacks(chosen, scope), scope, idle) for scope, idle in _with_idle(chosen)]
    for is_lacking, scope, idle in sorted(lacking, key=lambda one: not one[0]):
        if any(leaf.place in claimed for leaf in idle):
            continue
        claimed |= {leaf.place for leaf in idle if is_lacking}
        every = _likely(case, chosen, scope, idle, is_lacking)
        way = decided(every)
        if way is not None and (is_lacking or _is_sure(chosen, scope, way, idle)):
            found |= _taken(scope, way, is_lacking)
        else:
            _ask(chosen, scope, every)
    for scope, around, idle in _hollow(chosen):
        if not any(leaf.place in claimed for leaf in idle):
            found |= _of_what_is_around(case, chosen, scope, around, idle)
    return found


def _of_what_is_around(
    case: Case, chosen: Chosen, scope: Scope, around: Scope, idle: Sequence[Leaf]
) -> dict[Place, Taken]:
    """The modules of a block that is made of nothing else, as what the block around it may have in its place."""
    roles = around.block.roles
    before = dict(roles)
    del roles[scope.block.role]
    try:
        every = _likely(case, chosen, around, idle, False)
        way = decided(every)
        if way is not None and _is_sure(chosen, around, way, idle):
            return _taken(around, way, False)
        _ask(chosen, around, every)
        return {}
    finally:
        roles.clear()
        roles.update(before)


def _likely(case: Case, chosen: Chosen, scope: Scope, idle: Sequence[Leaf], is_lacking: bool) -> list[Way]:
    """The ways to read a block with these modules that go with what stands around it."""
    widths = _widths(chosen, scope)
    is_needed = is_lacking and all(_is_as_wide(leaf, widths) for leaf in idle)
    found = ways(case, scope, chosen.outline.facts, idle, is_needed)
    return [
        way
        for way in found
        if _goes_with(way, widths) and (scope.parent is not None or _is_for_task(chosen, way.flow))
    ]


def _taken(scope: Scope, way: Way, is_lacking: bool) -> dict[Place, Taken]:
    """The modules, each with what it is, and why."""
    what = f"all that the {scope.topic} lacks" if is_lacking else f"what else the {scope.topic} may have"
    why, path = f"of its shape, and {what}", _path(scope)
    return {leaf.place: Taken(path, role, why, leaf.kind, leaf.form) for role, leaf in way.leaves.items()}


def _words(chosen: Chosen) -> dict[Place, Taken]:
    """The one table outside of the layers that has a row for each word of the config, where no other has words."""
    outline = chosen.outline
    rows = outline.facts.get(outline.root, "vocab_size")
    if rows is None or rows.evidence != "config" or any(leaf.role == "token" for leaf in outline.read):
        return {}
    tables = [leaf for leaf in outline.read if leaf.role is None and leaf.tensors.keys() == {"weight"}]
    tables = [leaf for leaf in tables if is_outside(leaf) and weight_shape(leaf)[:1] == (rows.value,)]
    if len(tables) != 1 or len(weight_shape(tables[0])) != 2 or len(tables[0].block) > 2:
        return {}
    (table,) = tables
    inner = () if table.block[-1:] == (_EMBEDDINGS,) else (_EMBEDDINGS,)
    why = "it has a row for each word of the config"
    return {table.place: Taken((*table.block, *inner), "token", why, TABLE)}


def _lacks(chosen: Chosen, scope: Scope) -> bool:
    """Whether a block needs more than it has: answers alone make no flow of it.

    So does a model whose class is for a task for which it has no head.
    """
    flow = chosen.flows.get(id(scope))
    if flow is not None:
        return scope.parent is None and not _is_for_task(chosen, flow.rule)
    choice = chosen.choices.get(id(scope))
    near = nears(scope, choice.answerable, chosen.outline.facts) if choice else ()
    return scope in chosen.lacking and not any(one.asks for one in near)


def _is_for_task(chosen: Chosen, rule: FlowRule) -> bool:
    """Whether the flow of a model is for what the config's class is for."""
    task = task_of_config(chosen.outline.facts.config)
    return task is None or task.value in rule.when.get(TASK, (task.value,))


def _is_sure(chosen: Chosen, scope: Scope, way: Way, idle: Sequence[Leaf]) -> bool:
    """Whether names speak for what modules are that a block does without, or maps fit into the flow that it has anyway."""
    flow = chosen.flows.get(id(scope))
    are_maps = all(len(weight_shape(leaf)) > 1 for leaf in idle)
    if chosen.outline.facts.hints.stated(scope, FLOW):
        return True
    is_said = likeness(way) > 0 and is_like_each_row(way)
    return is_said or (are_maps and flow is not None and flow.rule.name == way.flow.name)


def _ask(chosen: Chosen, scope: Scope, found: Sequence[Way]) -> None:
    """Ask which flow it is that reads the modules, unless that would leave open which of them is which.

    Where each flow needs facts that nobody knows, these first.
    """
    flows = list(dict.fromkeys(way.flow.name for way in found))
    if any(not way.asks for way in found):
        if all(decided([way for way in found if way.flow.name == flow]) for flow in flows):
            chosen.outline.asked.add(scope, FLOW, flows)
        return
    for name in dict.fromkeys(name for way in found for name in way.asks):
        values = dict.fromkeys(value for way in found for value in way.asks.get(name, ()))
        if len(values) > 1:
            chosen.outline.asked.add(scope, name, list(values))


def _with_idle(chosen: Chosen) -> list[tuple[Scope, list[Leaf]]]:
    """The blocks in which modules without a role stand, few enough to say what they are."""
    idle = [leaf for leaf in chosen.outline.read if leaf.role is None]
    found = []
    for scope in chosen.outline.every() if idle else ():
        path = _path(scope)
        own = [leaf for leaf in idle if _is_of(leaf, scope, path, scope in chosen.lacking)]
        if 0 < len(own) <= _MOST and all(leaf.kind != "Buffer" for leaf in own):
            found.append((scope, own))
    return found


def _hollow(chosen: Chosen) -> Iterator[tuple[Scope, Scope, list[Leaf]]]:
    """Blocks in which no module has a role, beside others of their kind, with what is around them."""
    for scope, idle in _with_idle(chosen):
        around = scope.parent
        if around is not None and not scope.block.roles and scope.block.role.rpartition("_")[2].isdigit():
            yield scope, around, idle


def _path(scope: Scope) -> BlockPath:
    steps = [(one.block.role, one.block.indices) for one in scope.up() if one.parent is not None]
    return tuple(reversed(steps))


def _is_of(leaf: Leaf, scope: Scope, path: BlockPath, is_lacking: bool) -> bool:
    """Whether a leaf is a block's: said so, or in its folder, which is its alone unless the block lacks something.

    At the top it may be the root's.
    """
    home, around = scope.block.home, scope.parent.block.home if scope.parent else ()
    if leaf.block == path:
        return True
    if scope.parent is None:
        inner = (child.block.home for child in scope.children if child.block.home)
        return len(leaf.block) == 1 and _is_at_top(leaf) and not any(map(leaf.place.within, inner))
    is_near = leaf.block == path[:-1] and leaf.place.within(home) and len(leaf.place) == len(home) + 1
    return is_near and (len(home) > len(around) or is_lacking)


def _is_at_top(leaf: Leaf) -> bool:
    """Whether a module stands in no folder, or in one with a name that is no tower's: as heads do."""
    return len(leaf.place) <= 2 and all(isinstance(word, str) for word in leaf.place)


def _widths(chosen: Chosen, scope: Scope) -> set[int]:
    """The lengths of the norms around a block: of the states that it reads and gives."""
    outer = _path(scope)[:-1]
    around = (leaf for leaf in chosen.outline.read if leaf.block[: len(outer)] == outer)
    return {extent for leaf in around if leaf.kind in ROW_NORMS for extent in weight_shape(leaf)[:1]}


def _is_as_wide(leaf: Leaf, widths: set[int]) -> bool:
    """Whether a module reads or gives such states, as far as a width is known."""
    return not widths or not widths.isdisjoint(weight_shape(leaf))


def _goes_with(way: Way, widths: set[int]) -> bool:
    """Whether the modules that read or give the states of a block are as wide as these."""
    wide = (leaf for role, leaf in way.leaves.items() if WIDTH in way.flow.shapes.get(role, ()))
    return all(_is_as_wide(leaf, widths) for leaf in wide)
