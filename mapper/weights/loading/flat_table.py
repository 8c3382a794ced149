"""Whatever weights come in as one flat table: a module, a tree of containers, a checkpoint."""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from mapper.checkpoint import Checkpoint
from mapper.errors import FormatError, StructureError, listed, shorten
from mapper.weights.arrays import as_tensor, is_array, is_jax
from mapper.weights.modules import States, is_unshaped, states_of
from mapper.weights.saving.beside import extra_state_of

EXTRA = "_extra_state"  # torch's key for what a module keeps beside its tensors


class Held:
    """An array in memory."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.shape = tuple(value.shape)
        self.dtype: torch.dtype = (
            value.dtype if isinstance(value, torch.Tensor) else _torch_dtype(value.dtype)
        )

    @property
    def is_meta(self) -> bool:
        return isinstance(self.value, torch.Tensor) and self.value.is_meta

    @property
    def word(self) -> str:
        """The Python type, as errors name it."""
        return "jax.Array" if is_jax(self.value) else type(self.value).__name__

    def tensor(self) -> torch.Tensor:
        return as_tensor(self.value)


class Stored:
    """An array of a checkpoint: described by the header, read when asked, and anew each time."""

    is_meta = False
    word = "Tensor"

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        read: Callable[..., Any],
        packed: bool = False,
    ) -> None:
        self.name, self.shape, self.dtype, self.read = name, shape, dtype, read
        self.packed = packed  # reading it may fail: damage shows when it is unpacked

    def tensor(self) -> torch.Tensor:
        tensor: torch.Tensor = self.read([self.name])[self.name]
        return tensor


Array = Held | Stored


@dataclass
class Source:
    """A flat table of what a load may take: arrays, False, None, and other values, by path in the source's order."""

    leaves: dict[str, Any] = field(default_factory=dict)  # an `Array`, or the value itself
    tied: dict[str, str] = field(default_factory=dict)  # alias -> owner; both are in `leaves`
    extra: dict[str, Any] = field(default_factory=dict)  # module path -> its extra state
    metadata: Mapping[str, Any] = field(default_factory=dict)  # of a state dict, by module path
    strays: list[str] = field(default_factory=list)  # arrays that no path of the model can mean

    def arrays(self) -> dict[str, Array]:
        return {path: leaf for path, leaf in self.leaves.items() if isinstance(leaf, (Held, Stored))}

    def moved(self, move: Callable[[str], str | None]) -> Source:
        """The same under other paths; None leaves a path out. Two paths that become one are an error."""
        moved = Source(metadata=self.metadata)
        origin: dict[str, str] = {}
        for path, leaf in self.leaves.items():
            new = move(path)
            if new is None:
                continue
            if new in moved.leaves:
                raise StructureError(
                    f"{shorten(origin[new])} and {shorten(path)} both become {shorten(new)}", new
                )
            moved.leaves[new], origin[new] = leaf, path
        names = {old: new for new, old in origin.items()}
        moved.tied = {names[a]: names[o] for a, o in self.tied.items() if a in names and o in names}
        for path, value in self.extra.items():
            new = move(f"{path}.{EXTRA}" if path else EXTRA)
            if new is not None:
                moved.extra[new.removesuffix(EXTRA).removesuffix(".")] = value
        return moved


def read_source(source: Any, follow_links: bool = False) -> Source:
    """The table of a module, a container, or a checkpoint by path, `package:NAME` or hub id.

    Each leaf is taken once. Raises TypeError for other objects, StructureError where a path is a leaf and a branch.
    """
    if isinstance(source, (str, os.PathLike, Checkpoint)):
        return _from_checkpoint(source, follow_links)
    if not isinstance(source, nn.Module) and not is_container(source):
        raise TypeError(
            f"weights come from a module, a tree or a path, not from a {type(source).__name__}{_instead(source)}"
        )
    table = Source(metadata=getattr(source, "_metadata", None) or {})
    trees: list[tuple[str, Any]] = []  # prefix, Tree
    for path, value in leaves_of(source, lambda path, tree: trees.append((path, tree))):
        if isinstance(value, nn.Module):
            _take_module(table, path, value)
        elif path.rpartition(".")[2] == EXTRA:
            table.extra[path[: -len(EXTRA)].rstrip(".")] = value
        else:
            _enter(table, path, Held(value) if is_array(value) and _has_shape(value) else value)
    for prefix, tree in trees:
        for alias, owner in getattr(tree, "tied", {}).items():
            _tie(table, prefix + alias, prefix + owner)
    _check_branches(table)
    return table


def _instead(source: Any) -> str:
    """What to give in place of what was given, where that is a usual slip."""
    if isinstance(source, (bytes, io.IOBase)):
        return "; give the file's path"
    if isinstance(source, Iterator):
        return "; give the model itself, or dict(model.named_parameters())"
    if isinstance(source, type):
        return "; make an instance of it"
    return ""


def is_container(value: Any) -> bool:
    """Whether a tree goes on below `value`."""
    if isinstance(value, (Mapping, list)):
        return True
    if isinstance(value, tuple):
        return not isinstance(value, torch.Size)
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def is_empty(container: Any) -> bool:
    return next(children(container), None) is None


def children(container: Any) -> Iterator[tuple[str, Any]]:
    """(name, child) of a container: keys, positions, or the names of fields."""
    if isinstance(container, Mapping):
        yield from ((str(key), child) for key, child in container.items())
    elif isinstance(container, tuple) and hasattr(container, "_fields"):
        yield from zip(container._fields, container, strict=True)
    elif isinstance(container, (list, tuple)):
        yield from ((str(position), child) for position, child in enumerate(container))
    else:
        for entry in dataclasses.fields(container):
            if hasattr(container, entry.name):
                yield entry.name, getattr(container, entry.name)


def leaves_of(
    tree: Any, meet: Callable[[str, Any], Any] | None = None, *, empty: bool = False
) -> Iterator[tuple[str, Any]]:
    """(dotted path, leaf) of a tree of containers, in order; modules are leaves here, and so is any extra state.

    `meet` is called with the prefix of each dict that knows its ties; `empty` containers are leaves where asked for.
    Raises StructureError for a container that holds itself.
    """
    if not is_container(tree):
        yield "", tree
        return
    above = {id(tree)}
    _meet(meet, "", tree)
    stack = [("", id(tree), children(tree))]
    while stack:
        prefix, own, rest = stack[-1]
        name, child = next(rest, (None, None))
        if name is None:
            stack.pop()
            above.discard(own)
        elif not is_container(child) or name.rpartition(".")[2] == EXTRA or (empty and is_empty(child)):
            yield prefix + name, child
        elif id(child) in above:
            path = prefix + name
            raise StructureError(f"{shorten(path)} is a {type(child).__name__} that contains itself", path)
        else:
            above.add(id(child))
            _meet(meet, f"{prefix}{name}.", child)
            stack.append((f"{prefix}{name}.", id(child), children(child)))


def _meet(meet: Callable[[str, Any], Any] | None, prefix: str, container: Any) -> None:
    if (
        meet is not None
        and isinstance(getattr(container, "tied", None), dict)
        and isinstance(container, dict)
    ):
        meet(prefix, container)


def _enter(table: Source, path: str, leaf: Any) -> None:
    if path in table.leaves:
        raise StructureError(f"{shorten(path)} is there twice, once nested and once as a dotted key", path)
    table.leaves[path] = leaf


def _take_module(table: Source, prefix: str, module: nn.Module) -> None:
    """The states of a module, absent ones as False, and what `get_extra_state` of its modules gives."""
    found = states_of(module)
    start = f"{prefix}." if prefix else ""
    arrays = {id(state): Held(state.tensor) for state in found.states if _has_data(state.tensor)}
    for path, state in found.by_path.items():
        if state.tensor is None or id(state) in arrays:
            _enter(table, start + path, arrays.get(id(state), False))
    table.tied |= {start + alias: start + owner for alias, owner in found.ties().items()}
    for path, each in found.modules.items():
        if type(each).get_extra_state is not nn.Module.get_extra_state:
            table.extra[(start + path).rstrip(".")] = each.get_extra_state()


def _has_data(tensor: torch.Tensor | None) -> bool:
    return tensor is not None and not nn.parameter.is_lazy(tensor)


def _has_shape(value: Any) -> bool:
    return not is_unshaped(value) and not (isinstance(value, torch.Tensor) and value.is_nested)


def _tie(table: Source, alias: str, owner: str) -> None:
    if owner in table.leaves and alias not in table.leaves:
        table.leaves[alias] = table.leaves[owner]
        table.tied[alias] = owner


def _check_branches(table: Source) -> None:
    """Raise StructureError for a path that is both a leaf and a branch."""
    branches: set[str] = set()
    for path in table.leaves:
        above = path.rpartition(".")[0]
        while above and above not in branches:
            branches.add(above)
            above = above.rpartition(".")[0]
    for path in table.leaves:
        if path in branches:
            raise StructureError(f"{shorten(path)} is both a leaf and a branch of the source", path)


def _from_checkpoint(source: Any, follow_links: bool) -> Source:
    """The table of a checkpoint's header. Nothing is read yet."""
    from mapper.sources import open_source
    from mapper.sources.storage import torch_dtype

    checkpoint = (
        source
        if isinstance(source, Checkpoint)
        else open_source(source, purpose="weights", follow_links=follow_links)
    )
    if checkpoint.foreign:
        raise FormatError(
            f"{checkpoint.source}: holds objects of other classes, {listed(checkpoint.foreign)}, which only code could "
            "make; save the state dict alone"
        )
    if checkpoint.read is None:
        raise FormatError(f"{checkpoint.source}: a manifest names tensors and has no weights to load")
    table = Source()
    for name, info in checkpoint.tensors.items():
        dtype = torch_dtype(info.dtype, name)
        stored = Stored(name, info.torch_shape, dtype, checkpoint.read, packed=checkpoint.container == "npz")
        if name == EXTRA or name.endswith(f".{EXTRA}"):
            table.extra[name[: -len(EXTRA)].rstrip(".")] = stored.tensor()
        else:
            table.leaves[name] = stored
    document = checkpoint.document or {}
    if document:
        table.extra |= extra_state_of(checkpoint)
    for path in document.get("absent", ()):
        table.leaves.setdefault(path, False)
    for alias, owner in document.get("tied", {}).items():
        _tie(table, alias, owner)
    _check_branches(table)
    return table


def _torch_dtype(dtype: Any) -> torch.dtype:
    names = {"bool_": "bool"}
    found: torch.dtype = getattr(torch, names.get(dtype.name, dtype.name))
    return found


def without_wrappers(source: Source, states: States) -> Source:
    """Without `_orig_mod` anywhere, and without `module.` where all arrays of a branch have it and the model has not."""
    if any("_orig_mod" in path.split(".") for path in source.leaves):
        source = source.moved(lambda path: ".".join(part for part in path.split(".") if part != "_orig_mod"))
    while (branch := _wrapped(source, states)) is not None:
        start = f"{branch}.module." if branch else "module."
        short = f"{branch}." if branch else ""
        source = source.moved(partial(_without, start, short))
    return source


def _without(start: str, short: str, path: str) -> str:
    return short + path.removeprefix(start) if path.startswith(start) else path


def _wrapped(source: Source, states: States) -> str | None:
    """A branch of the source whose arrays all stand under `module`, which is no child of the model's module there."""
    below: dict[str, set[str]] = {}
    arrays = source.arrays()
    if not any("module" in path.split(".") for path in arrays):
        return None
    for path in arrays:
        parts = path.split(".")
        for depth, part in enumerate(parts[:-1]):
            below.setdefault(".".join(parts[:depth]), set()).add(part)
        below.setdefault(".".join(parts[:-1]), set()).add("")
    for branch, names in below.items():
        module = states.modules.get(branch)
        if names == {"module"} and module is not None and "module" not in module._modules:
            return branch
    return None


def beginning(source: Source, prefix: str) -> Source:
    """What starts with `prefix`, which is cut off with the dot after it."""

    def cut(path: str) -> str | None:
        rest = path.removeprefix(prefix)
        return rest.removeprefix(".") or None if path.startswith(prefix) else None

    return source.moved(cut)


def renamed(source: Source, rename: Mapping[str, str] | Callable[[str], str]) -> Source:
    """Under other names: by a function, or by a table of paths, whose branches stand for all below them."""
    if not isinstance(rename, Mapping):
        return source.moved(rename)
    table = rename

    def move(path: str) -> str:
        above, below = path, ""
        while above:
            if above in table:
                return f"{table[above]}{below}" if table[above] else below.removeprefix(".")
            above, dot, last = above.rpartition(".")
            below = f"{dot}{last}{below}"
        return path

    return source.moved(move)
