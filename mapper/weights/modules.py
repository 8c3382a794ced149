"""The states of a module: every tensor once, under all of its paths, and what a missing bias stands for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy

from mapper._collector import collection_paused
from mapper.checkpoint import COUNTER

NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, _NormBase)  # _NormBase: BatchNorm*, InstanceNorm*


@dataclass(eq=False)
class State:
    """One tensor of a module, or one parameter that it registers as None, under every path it has."""

    paths: list[str]
    places: list[tuple[nn.Module, str]]  # (module, name) that hold it, each once
    tensor: torch.Tensor | None  # None: absent
    is_param: bool

    @property
    def neutral(self) -> int | None:
        """What it stands for where it is absent."""
        module, name = self.places[0]
        return neutral_value(module, name) if self.is_param else None

    @property
    def path(self) -> str:
        """The first one, in the order of registration."""
        return self.paths[0]

    @property
    def module(self) -> nn.Module:
        return self.places[0][0]

    @property
    def is_count_of_batches(self) -> bool:
        """Whether it may be missing: files of torch before 0.4.1 lack it."""
        return self.places[0][1] == COUNTER and isinstance(self.module, _NormBase)


@dataclass
class States:
    """All states of a module in the order of registration; absent ones only where they stand for a value."""

    root: nn.Module
    modules: dict[str, nn.Module]  # every module by path; "" is the root
    states: list[State] = field(default_factory=list)
    by_path: dict[str, State] = field(default_factory=dict)

    def ties(self) -> dict[str, str]:
        """{alias path: owner path} of the tensors that stand under several paths."""
        real = [state for state in self.states if state.tensor is not None]
        return {alias: state.path for state in real for alias in state.paths[1:]}


def joined(path: str, name: str) -> str:
    """The path of what is called `name` at `path`; the root's is empty."""
    return f"{path}.{name}" if path else name


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside DataParallel, DistributedDataParallel and what torch.compile returns."""
    while True:
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            module = module.module
        elif type(module).__name__ == "OptimizedModule" and "_orig_mod" in module._modules:
            module = module._modules["_orig_mod"]  # type: ignore[assignment]  # its class: 2 s of imports
        else:
            return module


def walk(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """(path, module) of every module at every path, parents first; a module inside itself is left out."""
    root = unwrapped(root)
    yield "", root
    above = {id(root)}
    plain: set[type] = set()  # classes that wrap nothing: asking each module takes a quarter of the time
    stack = [("", id(root), iter(list(root._modules.items())))]
    while stack:
        prefix, own, children = stack[-1]
        name, child = next(children, (None, None))
        if name is None:
            stack.pop()
            above.discard(own)
            continue
        if child is not None and type(child) not in plain:
            outer, child = child, unwrapped(child)
            plain |= {type(child)} if child is outer else set()
        if child is not None and id(child) not in above:
            path = prefix + name
            yield path, child
            if child._modules:
                above.add(id(child))
                stack.append((path + ".", id(child), iter(list(child._modules.items()))))


def states_of(model: nn.Module) -> States:
    """Every state of a module under every path. No tensor is copied. Raises TypeError for what is no module."""
    if not isinstance(model, nn.Module):
        hint = f"; make an instance of {model.__name__}" if isinstance(model, type) else ""
        raise TypeError(f"a model is a torch.nn.Module, not a {type(model).__name__}{hint}")
    with collection_paused():
        return _states_of(model)


def _states_of(model: nn.Module) -> States:
    modules = dict(walk(model))
    found = States(modules[""], modules)
    known: dict[Any, State] = {}
    for prefix, module in modules.items():
        for name, tensor, is_param in _registered(module):
            if tensor is None and neutral_value(module, name) is None:
                continue
            path = f"{prefix}.{name}" if prefix else name
            key = (id(module), name) if tensor is None else id(tensor)
            state = known.get(key)
            if state is None:
                state = known[key] = State([path], [(module, name)], tensor, is_param)
                found.states.append(state)
            else:
                state.paths.append(path)
                if (module, name) not in state.places:
                    state.places.append((module, name))
            found.by_path[path] = state
    return found


def _registered(module: nn.Module) -> Iterator[tuple[str, torch.Tensor | None, bool]]:
    for name, param in module._parameters.items():
        yield name, param, True
    for name, tensor in module._buffers.items():
        if tensor is not None and name not in module._non_persistent_buffers_set:
            yield name, tensor, False


def neutral_value(module: nn.Module, name: str) -> int | None:
    """What a parameter stands for where the module registers None: 0 for biases, 1 for the scale of torch's norms.

    A subclass of one of torch's norms may scale by 1 + weight, so only torch's own classes count.
    """
    if name == "bias" or name.endswith("_bias"):
        return 0
    own = type(module).__module__.startswith("torch.nn.")
    return 1 if name == "weight" and own and isinstance(module, NORMS) else None


def is_unshaped(value: Any) -> bool:
    """Whether it is a parameter or buffer of a lazy module that has no shape yet."""
    return isinstance(value, torch.Tensor) and is_lazy(value)
