"""Layers of torch.nn from their description: whatever a stranger's file holds, it is data, and small in memory."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

from mapper import limits
from mapper.errors import FormatError, shorten
from mapper.weights.modules import joined
from mapper.weights.stock.settings import accepted, from_plain, stock_class

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
INTERNAL = frozenset(nn.Module().__dict__)
# Derived from the parameters by the modules themselves; and what `compile()` keeps, which no copy of a module has.
_DERIVED = frozenset({"_flat_weights", "_flat_weight_refs", "_compiled_call_impl"})
_COUNTS = ("num_layers", "num_encoder_layers", "num_decoder_layers")
_PARTS = 14  # modules in a TransformerDecoderLayer, the larger of the two that nn.Transformer repeats


def module_from_stock(data: Any, states: int = limits.TENSORS) -> nn.Module:
    """The model that `data` describes, on the meta device. `states` bounds how often a setting may repeat a layer.

    Raises FormatError for a class that is not one of torch.nn's layers, a value that is no literal, settings that
    the class does not take, and modules that contain themselves or are more than `limits.LAYERS` by repetition.
    """
    try:
        with torch.device("meta"), _undrawn():
            return Builder(states).module(data)
    except RecursionError:
        raise FormatError("the architecture is nested too deeply") from None


def _undrawn() -> Any:
    from mapper._build import NothingDrawn

    return NothingDrawn()


def own(module: nn.Module) -> dict[str, Any]:
    """What the module holds besides states and children."""
    return {
        name: value
        for name, value in module.__dict__.items()
        if name not in INTERNAL and name not in _DERIVED
    }


def registered(module: nn.Module) -> dict[str, Any]:
    """Its own parameters and buffers by name, absent ones as None."""
    return {**module._parameters, **module._buffers}


class Builder:
    """Makes modules from nodes. What a few bytes of a file repeat is counted: layers by settings, paths by sharing."""

    def __init__(self, states: int) -> None:
        self.states = states
        self.left = limits.LAYERS  # modules that may yet come of repetition

    def module(self, node: Any) -> nn.Module:
        """The module of a node with all below it."""
        return self._below(node, "", {})[0]

    def alone(self, node: dict[str, Any]) -> nn.Module:
        """The module of a node from its class and settings alone."""
        with torch.device("meta"), _undrawn():
            return self._construct(node)

    def _below(
        self, node: Any, path: str, built: dict[str, tuple[nn.Module, int] | None]
    ) -> tuple[nn.Module, int]:
        """The module of a node, and under how many paths modules are in it; `built` has those done, by path."""
        if not isinstance(node, dict):
            raise FormatError(
                f"the architecture has {shorten(str(node))} at {shorten(path)} where a layer is described"
            )
        if "same" in node:
            return self._shared(node["same"], path, built)
        built[path] = None
        module = self._construct(node)
        _restore(module, node, path)
        children = _object(node, "children", path)
        if children and not isinstance(module, CONTAINERS) and children.keys() != module._modules.keys():
            raise FormatError(
                f"{shorten(path)}: a {node['class']} has other parts than {shorten(', '.join(children))}"
            )
        count = 1 if children else sum(1 for _ in module.modules())
        for name, child in children.items():
            if not name or "." in name or (name not in module._modules and hasattr(module, name)):
                raise FormatError(f"{shorten(path)}: {shorten(name)} is no name of a module")
            inner, paths = (None, 0) if child is None else self._below(child, joined(path, name), built)
            module._modules[name] = inner
            count += paths
        built[path] = module, count
        return module, count

    def _shared(
        self, first: Any, path: str, built: dict[str, tuple[nn.Module, int] | None]
    ) -> tuple[nn.Module, int]:
        """The module that another path has already: a walk visits all below it once more."""
        if not isinstance(first, str) or first not in built:
            raise FormatError(
                f"{shorten(path)} is the same module as {shorten(str(first))}, which is not there"
            )
        found = built[first]
        if found is None:
            raise FormatError(f"{shorten(path)} is the same module as {shorten(first)}, which contains it")
        self._take(found[1])
        return found

    def _construct(self, node: dict[str, Any]) -> nn.Module:
        name = node.get("class")
        kind = stock_class(name) if isinstance(name, str) else None
        if kind is None:
            raise FormatError(
                f"the architecture names the class {shorten(str(name))}, which is no layer of torch.nn"
            )
        settings = _object(node, "settings", name)
        unknown = sorted(settings.keys() - accepted(kind))
        if unknown:
            raise FormatError(
                f"the architecture gives {name} the setting {shorten(unknown[0])}, which this torch lacks"
            )
        values = {key: self._value(value) for key, value in settings.items()}
        self._check_repeated(kind, values)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # advice on settings, which whoever chose them has had
                return kind(**values)
        except RecursionError:
            raise
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise FormatError(
                f"the architecture's settings of {name} are refused: {shorten(reason, 200)}"
            ) from error

    def _value(self, value: Any) -> Any:
        return (
            self.module(value["module"])
            if isinstance(value, dict) and "module" in value
            else from_plain(value)
        )

    def _check_repeated(self, kind: type[nn.Module], values: dict[str, Any]) -> None:
        """Raise FormatError for settings by which a class makes more modules than a file of its size can mean."""
        given = sum(1 for value in values.values() if isinstance(value, nn.Module) for _ in value.modules())
        parts = _PARTS if kind is nn.Transformer else max(given, 1)
        for count in (values[key] for key in _COUNTS if isinstance(values.get(key), int)):
            if count > self.states:
                raise FormatError(
                    f"the architecture asks for {count:,} layers of {kind.__name__}; there are {self.states:,} states"
                )
            self._take(max(count, 0) * parts)
        if isinstance(values.get("cutoffs"), (list, tuple)):  # each makes layers, by a power of its position
            self._take(len(values["cutoffs"]) ** 2)

    def _take(self, modules: int) -> None:
        self.left -= modules
        if self.left < 0:
            raise FormatError(
                f"the architecture repeats layers until they are more than {limits.LAYERS:,} modules"
            )


def _object(node: dict[str, Any], key: str, path: Any) -> dict[str, Any]:
    found = node.get(key, {})
    if not isinstance(found, dict):
        raise FormatError(f"{shorten(str(path))}: {key!r} is {shorten(str(found))} in the architecture")
    return found


def _restore(module: nn.Module, node: dict[str, Any], path: str) -> None:
    """The values, absent states and shapes of `node` that the constructor did not give."""
    for name, value in _object(node, "attributes", path).items():
        if name not in own(module) and (
            not name.isidentifier() or name.startswith("__") or hasattr(module, name)
        ):
            raise FormatError(f"{shorten(path)}: the attribute {shorten(name)} may not be set")
        module.__dict__[name] = from_plain(value)
    absent, shapes = node.get("none", []), _object(node, "shapes", path)
    for name in [*(absent if isinstance(absent, list) else []), *shapes]:
        if not isinstance(name, str) or name not in registered(module):
            raise FormatError(f"{shorten(path)}: a {node['class']} has no state {shorten(str(name))}")
        _set_state(module, name, None if name not in shapes else _meta(shapes[name], path))


def _meta(shape: Any, path: str) -> torch.Tensor:
    from mapper.sources.shards import check_shape

    try:
        return torch.empty(check_shape(shape, path, "the architecture"), device="meta")
    except RuntimeError as error:  # more elements than 64 bits count
        raise FormatError(f"{shorten(path)}: the shape {shorten(str(shape))} is of no tensor") from error


def _set_state(module: nn.Module, name: str, tensor: torch.Tensor | None) -> None:
    if name in module._buffers:
        module._buffers[name] = tensor
    else:
        module._parameters[name] = None if tensor is None else nn.Parameter(tensor)
