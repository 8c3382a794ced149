"""A tree taken apart into leaves with paths, and put together again. Nothing here recurses or changes the tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from mapper.errors import StructureError
from mapper.weights.modules import State, is_unshaped, states_of
from mapper.weights.trees.containers import Level, Step, level
from mapper.weights.trees.records import Path, path_text


@dataclass(eq=False)
class Leaf:
    """One leaf, under every path it has; `state` where it is in modules."""

    paths: list[Path]
    value: Any
    function: Callable[[Any, Any], Any] | None  # None: left out
    state: State | None = None
    result: Any = None  # what stands there in the tree that is put together
    failed: bool = False

    @property
    def path(self) -> Path:
        return self.paths[0]


@dataclass(eq=False)
class Branch:
    """A container with what its children became; a module, whose result is itself."""

    value: Any
    level: Level | None = None
    children: list[Branch | Leaf] = field(default_factory=list)
    result: Any = None


@dataclass
class Walked:
    root: Branch | Leaf
    branches: list[Branch]  # the outer one before the inner one
    leaves: list[Leaf]  # depth first
    left_out: list[Path]  # where the filter has None

    def rebuilt(self) -> Any:
        """The tree with the results of its leaves."""
        for branch in reversed(self.branches):
            branch.result = branch.value
            if branch.level is not None:
                branch.result = branch.level.rebuilt([child.result for child in branch.children])
        return self.root.result


def walk(tree: Any, filter_spec: Any, is_leaf: Callable[[Any], bool] | None) -> Walked:
    """Every leaf of a tree with the function that `filter_spec` has for it."""
    if is_leaf is not None and not callable(is_leaf):
        raise TypeError(
            f"is_leaf is of type {type(is_leaf).__name__}; it is a function that says of a node whether to stop"
        )
    return _Walker(is_leaf).run(tree, filter_spec)


class _Place:
    """A place on the way down. Its path is only made for leaves: on a deep way all of them would be long."""

    def __init__(self, above: _Place | None = None, step: Step | None = None) -> None:
        self.above, self.step = above, step

    def path(self) -> Path:
        steps: list[Step] = []
        at: _Place | None = self
        while at is not None and at.step is not None:
            steps.append(at.step)
            at = at.above
        return tuple(reversed(steps))

    def text(self) -> str:
        return path_text(self.path())


class _Walker:
    def __init__(self, is_leaf: Callable[[Any], bool] | None) -> None:
        self.is_leaf = is_leaf
        self.found = Walked(Branch(None), [], [], [])
        self.above: set[int] = set()
        self.tensors: dict[int, Leaf] = {}  # of modules, by id: a tied one is one leaf

    def run(self, tree: Any, spec: Any) -> Walked:
        top = _Place()
        self.found.root = self.enter(top, tree, spec)
        stack = [(self.found.root, self.children(top, self.found.root, spec))]
        while stack:
            node, children = stack[-1]
            step = next(children, None)
            if step is None:
                stack.pop()
                self.above.discard(id(node.value))
                continue
            place, value, child_spec = step
            child = self.enter(place, value, child_spec)
            if isinstance(node, Branch):
                node.children.append(child)
            if isinstance(child, Branch):
                stack.append((child, self.children(place, child, child_spec)))
        return self.found

    def enter(self, place: _Place, value: Any, spec: Any) -> Branch | Leaf:
        if spec is None:
            self.found.left_out.append(place.path())
            return Leaf([place.path()], value, None, result=value)
        stop = self.is_leaf is not None and self.is_leaf(value)
        if isinstance(value, nn.Module) and not stop:
            return self.module(place, value, spec)
        taken = None if stop else level(value)
        if taken is None:
            leaf = Leaf([place.path()], value, _function(place, value, spec), result=value)
            self.found.leaves.append(leaf)
            return leaf
        if id(value) in self.above:
            raise StructureError(
                f"{place.text()}: a {type(value).__name__} that contains itself", place.text()
            )
        self.above.add(id(value))
        branch = Branch(value, taken)
        self.found.branches.append(branch)
        return branch

    def module(self, place: _Place, module: nn.Module, spec: Any) -> Branch:
        function, path = _function(place, module, spec), place.path()
        for state in states_of(module).states:
            if state.tensor is None:
                continue
            paths = [(*path, Step(name, True)) for name in state.paths]
            known = self.tensors.get(id(state.tensor))
            if known is not None and known.state is not None:
                known.paths += [other for other in paths if other not in known.paths]
                known.state.places += [place for place in state.places if place not in known.state.places]
                continue
            value = state.tensor if is_unshaped(state.tensor) else state.tensor.detach()
            leaf = self.tensors[id(state.tensor)] = Leaf(paths, value, function, state, value)
            self.found.leaves.append(leaf)
        branch = Branch(module)
        self.found.branches.append(branch)
        return branch

    def children(self, place: _Place, node: Branch | Leaf, spec: Any) -> Iterator[tuple[_Place, Any, Any]]:
        if isinstance(node, Branch) and node.level is not None:
            specs = _specs(place, node, spec)
            for step, value, own in zip(node.level.steps, node.level.children, specs, strict=True):
                yield _Place(place, step), value, own


def _function(place: _Place, value: Any, spec: Any) -> Any:
    """The function for a node that is not walked into."""
    if not callable(spec):
        raise _misfit(place, value, spec)
    return spec


def _misfit(place: _Place, value: Any, spec: Any) -> StructureError:
    at = place.text()
    return StructureError(
        f"{at}: filter_spec has a {type(spec).__name__} where the tree has a {type(value).__name__}; "
        "it is a function, None, or a tree of these that begins as the tree does",
        at,
    )


def _specs(place: _Place, branch: Branch, spec: Any) -> list[Any]:
    """What of the filter is for each child: the function itself, or the child's part of the tree of functions."""
    assert branch.level is not None
    if spec is None or (callable(spec) and type(spec) is not type(branch.value)):
        return [spec] * len(branch.level.steps)
    parts = level(spec)
    if parts is None:
        raise _misfit(place, branch.value, spec)
    found = {repr(step): child for step, child in zip(parts.steps, parts.children, strict=True)}
    names = [repr(step) for step in branch.level.steps]
    if set(found) != set(names):
        wanted = ", ".join(step.text() for step in branch.level.steps[:8]) or "nothing"
        raise StructureError(
            f"{place.text()}: filter_spec has a {type(spec).__name__} with other children than the tree, which has "
            f"{wanted}",
            place.text(),
        )
    return [found[name] for name in names]
