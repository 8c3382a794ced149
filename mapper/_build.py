"""Source to module: the generated text is compiled, and the checkpoint's tensors are assigned, not copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from mapper._compiling import compile_source
from mapper.checkpoint import Checkpoint
from mapper.errors import ArchitectureError, MapperError, listed

if TYPE_CHECKING:
    from mapper.architecture import Architecture


def build_architecture(
    architecture: Architecture,
    dtype: torch.dtype | None = None,
    device: str | torch.device = "cpu",
    cache: bool = False,
    hidden_states: bool = False,
    text: str | None = None,
    train: bool = False,
) -> nn.Module:
    """The module of an architecture that has been read already; `text` is its source with the same options, if known."""
    from mapper.emission import emit
    from mapper.emission.train import with_dropout

    if train:
        architecture = with_dropout(architecture)
    checkpoint = architecture.checkpoint
    options = {"cache": cache, "hidden_states": hidden_states, "train": train}
    text = emit(architecture, **options) if text is None else text
    model = empty_model(text, checkpoint)
    if (
        architecture.graph is None
    ):  # what is stored of a model is read again by rules, and no rule reads a graph
        remember(model, Made(light(architecture), options, text))
    if checkpoint.read is None:
        type_as_stored(model, checkpoint)
        return model.eval()
    names = _globals_of(model)
    model.load_state_dict(_tensors(checkpoint, keys_of(model, checkpoint)), strict=True, assign=True)
    if "tie" in names:
        names["tie"](model)
    if dtype is not None or str(device) != "cpu":
        _move(model, device, dtype, architecture.checkpoint.source)
    return model.eval()


@dataclass(frozen=True)
class Made:
    """What a class of models was emitted from."""

    architecture: Architecture
    options: dict[str, bool]  # of `emit`
    text: str


_MADE: WeakKeyDictionary[type, Made] = WeakKeyDictionary()  # class of models -> what it was emitted from


def remember(model: nn.Module, made: Made) -> None:
    """Keep what a model's class was emitted from as long as there is the class: copies and casts of the model have it."""
    _MADE[type(model)] = made


def made_of(model: nn.Module) -> Made | None:
    """What the class of a model was emitted from; None where this process did not emit it."""
    return _MADE.get(type(model))


def light(architecture: Architecture) -> Architecture:
    """The architecture without the checkpoint's table and bytes, and without statements: what is held for a model's life."""
    checkpoint = architecture.checkpoint
    told = Checkpoint(
        checkpoint.source, checkpoint.container, {}, notes=checkpoint.notes, adapted=checkpoint.adapted
    )
    return replace(architecture, checkpoint=told, program=None)


def empty_model(text: str, checkpoint: Checkpoint) -> nn.Module:
    """The model of an emitted source on the meta device. Raises ArchitectureError unless it has the checkpoint's names."""
    namespace = compile_source(text, checkpoint.source)
    with torch.device("meta"), NothingDrawn():
        model: nn.Module = namespace.Model()
    _same_keys(model, keys_of(model, checkpoint))
    return model


def keys_of(model: nn.Module, checkpoint: Checkpoint) -> dict[str, str]:
    """Name in the module -> the checkpoint's key."""
    renames: dict[str, str] = _globals_of(model).get("RENAMED", {})
    return {renamed(key, renames): key for key in checkpoint.tensors}


def _globals_of(model: nn.Module) -> dict[str, Any]:
    """The names of the file that a generated model's class is from."""
    forward: Any = type(model).forward
    names: dict[str, Any] = forward.__globals__
    return names


def _move(model: nn.Module, device: str | torch.device, dtype: torch.dtype | None, name: str) -> None:
    """To another device or type. Raises MapperError where a tensor cannot be: torch copies no four-bit floats."""
    try:
        model.to(device=device, dtype=dtype)
    except (RuntimeError, TypeError, AssertionError) as error:  # NotImplementedError is a RuntimeError
        reason = str(error).partition("\n")[0].rstrip(".")
        raise MapperError(f"{name}: cannot be had on {device} as {dtype or 'stored'}: {reason}") from error


class NothingDrawn(TorchFunctionMode):
    """Skips initial values: on the meta device there are none, yet drawing one imports 800 modules (1 s)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def renamed(key: str, renames: Mapping[str, str]) -> str:
    """A checkpoint's key as the module spells it."""
    return ".".join(renames.get(word, word) for word in key.split(".")) if renames else key


def _same_keys(model: nn.Module, keys: Mapping[str, str]) -> None:
    """The checkpoint is the specification: no tensor dropped or invented."""
    made = set(model.state_dict(keep_vars=True))
    if made != set(keys):
        raise ArchitectureError(
            f"the module tree differs from the checkpoint: without a tensor {listed(sorted(made - set(keys)))}, "
            f"without a place {listed(sorted(set(keys) - made))}",
            tensors=sorted(made ^ set(keys)),
        )


def _tensors(checkpoint: Checkpoint, keys: Mapping[str, str]) -> dict[str, torch.Tensor]:
    assert checkpoint.read is not None
    tensors = checkpoint.read(keys.values())
    return {name: tensors[key] for name, key in keys.items()}


def type_as_stored(model: nn.Module, checkpoint: Checkpoint) -> None:
    """Parameters on the meta device get the dtypes that the header says."""
    from mapper.sources.storage import torch_dtype

    keys, header = keys_of(model, checkpoint), checkpoint.tensors
    wanted = {name: torch_dtype(header[key].dtype, key) for name, key in keys.items()}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if tensor.dtype != wanted[name]:
            tensor.data = tensor.data.to(wanted[name])
