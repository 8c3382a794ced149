"""The document of a save: what a model is besides its tensors, as JSON. `mapper.sources.saved` says what is in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from mapper import limits
from mapper._version import __version__
from mapper.checkpoint import Checkpoint
from mapper.errors import FormatError, MapperError, UnsupportedLeaf, listed, shorten
from mapper.sources.saved import AUX_PREFIX, FORMAT, RESERVED, VERSION
from mapper.sources.shards import check_name
from mapper.weights.loading.flat_table import EXTRA
from mapper.weights.modules import State, States, states_of
from mapper.weights.saving.container import check_storable, stored_raw
from mapper.weights.saving.placement import placements
from mapper.weights.values.aux_values import encode

GENERATED, STOCK = "generated", "stock"  # kinds of architecture


def tensors_of(states: States) -> dict[str, torch.Tensor]:
    """What is stored of a model: every tensor once, at its first path. Raises UnsupportedLeaf."""
    tensors = {state.path: state.tensor for state in states.states if state.tensor is not None}
    for path, module in states.modules.items():
        _check_all_registered(path, module)
    for path, tensor in tensors.items():
        if path.partition(".")[0] in RESERVED:
            raise UnsupportedLeaf(
                f"{path}: the name {path.partition('.')[0]!r} is mapper's own; rename the module", path
            )
        try:
            check_name(path, "the model")
        except FormatError as error:
            reason = str(error).partition(";")[0]
            raise UnsupportedLeaf(f"{reason}, so it cannot be stored", path) from None
        check_storable(tensor, path)
    return tensors


def _check_all_registered(path: str, module: nn.Module) -> None:
    """Raise UnsupportedLeaf for what a module adds to its state dict by itself: quantised ones hold no parameters."""
    if type(module)._save_to_state_dict is nn.Module._save_to_state_dict:
        return
    table: dict[str, Any] = {}
    module._save_to_state_dict(table, "", True)
    known = {*module._parameters, *module._buffers, EXTRA}
    if lost := [name for name in table if name not in known]:
        raise UnsupportedLeaf(
            f"{path or 'the model'}: a {type(module).__name__} keeps {listed(lost)} beside its parameters and buffers, "
            "which would be lost; put its state_dict() into aux",
            path,
        )


def architecture_of(model: nn.Module) -> tuple[dict[str, Any] | None, str | None]:
    """The architecture of a model as data, and its source; (None, None) where it has none."""
    from mapper.weights.built.model import data_and_source
    from mapper.weights.stock.layer_source import stock_source
    from mapper.weights.stock.layers import stock_data

    found = data_and_source(model)
    if found is not None:
        return {"kind": GENERATED, "model": found[0]}, found[1]
    data = stock_data(model)
    if data is not None:
        return {"kind": STOCK, "model": data}, stock_source(data, states_of(model).ties())
    return None, None


def document_of(
    states: States,
    tensors: Mapping[str, torch.Tensor],
    aux: Mapping[Any, Any] | None,
    metadata: Mapping[str, Any] | None = None,
    architecture: dict[str, Any] | None = None,
    without: str = "",
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The document and the tensors of `aux`, under the names they are stored by. Raises UnsupportedLeaf.

    `without` says why a model that mapper made has no architecture any more.
    """
    structure, kept = encode({} if aux is None else aux)  # type: ignore[arg-type]
    stored = {AUX_PREFIX + name: tensor for name, tensor in kept.items()}
    document = {
        "format": FORMAT,
        "version": list(VERSION),
        "wrote": {"mapper": __version__, "torch": torch.__version__},
        "architecture": architecture,
        "tied": states.ties(),
        "absent": [path for state in states.states if state.tensor is None for path in state.paths],
        "raw": stored_raw({**tensors, **stored}),
        "aux": structure,
        "metadata": _checked_metadata(metadata),
        "training": _training(states),
    }
    seldom = {
        "without": without,
        "frozen": [state.path for state in states.states if _is_frozen(state)],
        "placement": placements(tensors),
        "extra_state": _extra_state(states, stored),
    }
    return document | {key: value for key, value in seldom.items() if value}, stored


def as_text(document: Mapping[str, Any], indent: int | None = None) -> str:
    """The document as JSON that holds any text. Raises MapperError for one that no reader takes."""
    try:
        text = json.dumps(document, indent=indent, separators=None if indent else (",", ":"))
    except RecursionError:
        raise MapperError("the model is nested too deeply to be saved") from None
    if len(text) > limits.HEADER_BYTES:
        raise MapperError(
            f"what is to be saved beside the tensors takes {len(text):,} bytes of JSON, at most "
            f"{limits.HEADER_BYTES:,} are read; put long lists of numbers into arrays"
        )
    return text


def _training(states: States) -> dict[str, Any]:
    """Whether the model is in training mode, and the modules in it that are not as it is."""
    mode = states.root.training
    others = [path for path, module in states.modules.items() if module.training != mode]
    return {"mode": mode, **({"others": others} if others else {})}


def _is_frozen(state: State) -> bool:
    return state.is_param and state.tensor is not None and not state.tensor.requires_grad


def _extra_state(states: States, stored: dict[str, torch.Tensor]) -> dict[str, Any] | None:
    """What `get_extra_state` of the modules gives, as `aux` is kept; its tensors join those that are stored."""
    extra = {
        path: module.get_extra_state()
        for path, module in states.modules.items()
        if type(module).get_extra_state is not nn.Module.get_extra_state
    }
    if not extra:
        return None
    try:
        structure, kept = encode(extra)
    except UnsupportedLeaf as error:
        where = error.path.replace("aux", "extra state", 1)
        raise UnsupportedLeaf(str(error).replace(error.path, where, 1), where) from None
    stored.update({f"{AUX_PREFIX}extra.{name}": tensor for name, tensor in kept.items()})
    return structure


def _checked_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """`metadata` as it will be read back. Raises UnsupportedLeaf for what JSON would change."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping) or any(type(key) is not str for key in metadata):
        raise UnsupportedLeaf("metadata is a table of names and JSON values", "metadata")
    for key, value in metadata.items():
        path = f"metadata[{key!r}]"
        try:
            same = json.loads(json.dumps(value, allow_nan=False)) == value
        except (TypeError, ValueError, RecursionError):
            same = False
        if not same:
            raise UnsupportedLeaf(f"{path}: {shorten(str(value))} is no JSON value; put it into aux", path)
    return dict(metadata)


# ---- reading


def model_of(checkpoint: Checkpoint) -> nn.Module | None:
    """The model that the document describes, on the meta device, tied as it was; None without an architecture."""
    document = checkpoint.document or {}
    architecture = document.get("architecture")
    if architecture is None:
        return None
    kind = architecture.get("kind")
    try:
        if kind == STOCK:
            from mapper.weights.stock.described import module_from_stock

            count = len(checkpoint.tensors) + len(document["tied"]) + len(document["absent"])
            model = module_from_stock(architecture.get("model"), count)
        elif kind == GENERATED:
            from mapper.weights.built.model import module_from

            model = module_from(architecture.get("model"), len(checkpoint.tensors) + len(document["tied"]))
        else:
            raise FormatError(
                f"an architecture of the kind {shorten(str(kind))}, known are '{GENERATED}', '{STOCK}'"
            )
    except FormatError as error:
        raise FormatError(f"{checkpoint.source}: {error}") from error
    _tie(model, document["tied"], checkpoint.source)
    return model


def _tie(model: nn.Module, tied: Mapping[str, str], source: str) -> None:
    for alias, owner in tied.items():
        try:
            above, _, name = alias.rpartition(".")
            owner_above, _, owner_name = owner.rpartition(".")
            place, other = model.get_submodule(above), model.get_submodule(owner_above)
            registered = name in place._parameters or name in place._buffers
            tensor = getattr(other, owner_name) if registered else None
        except AttributeError:
            tensor = None
        mine = getattr(place, name, None) if isinstance(tensor, torch.Tensor) else None
        if not isinstance(mine, torch.Tensor) or mine.shape != tensor.shape:  # type: ignore[union-attr]
            raise FormatError(
                f"{source}: {shorten(alias)} cannot be {shorten(owner)} in the architecture of the file"
            )
        if mine is not tensor:
            setattr(place, name, tensor)


def set_modes(model: nn.Module, document: Mapping[str, Any], source: str) -> None:
    """Training mode or not, module by module, as it was saved."""
    training = document.get("training")
    if not isinstance(training, dict):
        return
    mode, others = training.get("mode") is True, training.get("others", [])
    modules = dict(model.named_modules(remove_duplicate=False))
    others = others if isinstance(others, list) else [others]
    unknown = [path for path in others if not isinstance(path, str) or path not in modules]
    if unknown:
        raise FormatError(
            f"{source}: 'training' names {listed([str(path) for path in unknown])}, which is no module"
        )
    model.train(mode)
    for path in others:
        modules[path].training = not mode
