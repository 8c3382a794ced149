"""The states of a model as a tree of views, flat tables of them, and trees made flat and nested again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from mapper._collector import collection_paused
from mapper.errors import StructureError, shorten
from mapper.weights.loading.flat_table import Held, Stored, is_container, leaves_of, read_source
from mapper.weights.modules import State, States, is_unshaped, states_of
from mapper.weights.values.state_table import Tree

WHICH = ("states", "params")


def tree(model: nn.Module, *, which: str = "states") -> Tree:
    """What `load_weights` would load from a model: nested, each tensor once and a view of the model's own memory.

    A tied tensor stands at its first path, `.tied` has the others; an absent parameter that stands for 0 or 1 is
    False. `which` is "states" (persistent buffers too) or "params".

        mapper.tree(nn.Linear(2, 1, bias=False))  # {"weight": tensor(...), "bias": False}
    """
    if which not in WHICH:
        raise ValueError(f"which is {which!r}; known are 'states', 'params'")
    with collection_paused():
        return _tree_of_states(states_of(model), which)


def _tree_of_states(found: States, which: str) -> Tree:
    made = Tree()
    branches: dict[str, dict[str, Any]] = {"": made}
    for path, state in found.by_path.items():
        if which != "states" and not state.is_param:
            continue
        if path != state.paths[0] and state.tensor is not None:
            made.tied[path] = state.paths[0]
            continue
        above, _, name = path.rpartition(".")
        _branch(branches, above)[name] = _view(state)
    return made


def _view(state: State) -> Any:
    tensor = state.tensor
    if tensor is None:
        return False
    return tensor if type(tensor) is not nn.Parameter and is_unshaped(tensor) else tensor.detach()


def _branch(branches: dict[str, dict[str, Any]], path: str) -> dict[str, Any]:
    """The dict at a path, made where it is new, with those above it."""
    found = branches.get(path)
    if found is None:
        above, _, name = path.rpartition(".")
        found = branches[path] = _branch(branches, above)[name] = {}
    return found


def params(model: nn.Module) -> dict[str, Any]:
    """The parameters of a model by path, the objects themselves; a tied one once."""
    return {s.path: s.tensor for s in states_of(model).states if s.is_param and s.tensor is not None}


def states(model: nn.Module) -> dict[str, Any]:
    """The parameters and persistent buffers of a model by path, the objects themselves; a tied one once."""
    return {s.path: s.tensor for s in states_of(model).states if s.tensor is not None}


def attributes(model: nn.Module) -> dict[str, Any]:
    """The states of a model and every public plain member of its modules: `drop.p`, `stem.in_channels`."""
    found: dict[str, Any] = states(model)
    for path, module in states_of(model).modules.items():
        start = f"{path}." if path else ""
        plain = {name: value for name, value in vars(module).items() if not name.startswith("_")}
        found |= {start + name: value for name, value in plain.items()}
    return found


def flatten(tree: Any, sep: str = ".") -> dict[str, Any]:
    """The leaves of a tree by path: of every source of `load_weights`, and of containers of anything else.

    Raises StructureError where a path is a leaf and a branch. An empty container is a leaf.

        mapper.flatten({"a": {"b": 1}}, sep="/")  # {"a/b": 1}
    """
    _check_sep(sep)
    if isinstance(tree, nn.Module):
        tree = _tree_of(tree)
    if tree is None:
        return {}
    if not is_container(tree):
        return _with(sep, {path: _plain(leaf) for path, leaf in read_source(tree).leaves.items()})
    flat: dict[str, Any] = {}
    for path, leaf in _expanded(tree):
        if path in flat:
            raise StructureError(
                f"{shorten(path)} is there twice, once nested and once as a dotted key", path
            )
        flat[path] = leaf
    unflatten(flat)  # a path that is a leaf and a branch
    return _with(sep, flat)


def _check_sep(sep: Any) -> None:
    if not isinstance(sep, str) or not sep:
        raise ValueError(f"sep is {sep!r}; it is the text between the names of a path, '.' or '/'")


def _with(sep: str, flat: dict[str, Any]) -> dict[str, Any]:
    """The table with `sep` between names. Raises StructureError where two paths become one."""
    if sep == ".":
        return flat
    table: dict[str, Any] = {}
    for path, leaf in flat.items():
        new = path.replace(".", sep)
        if new in table:
            raise StructureError(
                f"two paths become {shorten(new)}: names have {sep!r} in them; give another sep", new
            )
        table[new] = leaf
    return table


def _tree_of(model: nn.Module) -> Tree:
    return tree(model)


def _expanded(container: Any) -> Any:
    for path, leaf in leaves_of(container, empty=True):
        if isinstance(leaf, nn.Module):
            yield from ((f"{path}.{below}", value) for below, value in flatten(leaf).items())
        else:
            yield path, leaf


def _plain(leaf: Any) -> Any:
    return leaf.tensor() if isinstance(leaf, (Held, Stored)) else leaf


def unflatten(flat: Any, sep: str = ".") -> dict[str, Any]:
    """Nested dicts of a table whose keys are paths; containers are taken as `flatten` takes them.

    Raises StructureError where a path is a leaf and a branch.

        mapper.unflatten({"a/b": 1}, sep="/")  # {"a": {"b": 1}}
    """
    _check_sep(sep)
    table = flat if isinstance(flat, Mapping) and not _is_nested(flat) else flatten(flat, sep)
    nested: dict[str, Any] = {}
    made = {id(nested)}  # the dicts made here, to tell them from leaves that are dicts
    for path, leaf in table.items():
        words = str(path).split(sep)
        branch = nested
        for depth, word in enumerate(words[:-1], 1):
            if word not in branch:
                branch[word] = {}
                made.add(id(branch[word]))
            branch = branch[word]
            if id(branch) not in made:
                _refuse(sep.join(words[:depth]))
        if words[-1] in branch:
            _refuse(str(path))
        branch[words[-1]] = leaf
    return nested


def _refuse(path: str) -> None:
    raise StructureError(f"{shorten(path)} is both a leaf and a branch of the tree", path)


def _is_nested(table: Mapping[Any, Any]) -> bool:
    return any(
        is_container(value) and len(value) if hasattr(value, "__len__") else is_container(value)
        for value in table.values()
    )
