"""Checkpoints of what is in memory already: modules, and tables of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.errors import SourceError, shorten
from mapper.sources.documents import check_config
from mapper.sources.manifest import dtype_name, from_document
from mapper.sources.shards import check_names


def open_module(module: Any) -> Checkpoint:
    """The checkpoint of a torch module: its state dict, and its config where it keeps one."""
    checkpoint = open_tensors(module.state_dict(), type(module).__name__)
    checkpoint.config = config_of(module)
    return checkpoint


def config_of(module: Any) -> dict[str, Any] | None:
    """The config that a module keeps as `.config`; None where it keeps none."""
    kept: Any = getattr(module, "config", None)
    config = kept.to_dict() if hasattr(kept, "to_dict") else kept
    if not isinstance(config, dict):
        return None
    check_config(config, type(module).__name__)
    return config


def open_mapping(table: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint of a parsed manifest, or of a table of tensors."""
    if table and all(hasattr(value, "shape") and hasattr(value, "dtype") for value in table.values()):
        return open_tensors(table, "state dict")
    return from_document(table, "manifest")


def open_tensors(tensors: Mapping[str, Any], source: str) -> Checkpoint:
    """The checkpoint of torch tensors by name; reading gives the same tensors."""
    tensors = {
        key: tensor for key, tensor in tensors.items() if hasattr(tensor, "shape")
    }  # not a module's extra state
    if not tensors:
        raise SourceError(f"{source}: it has no tensors")
    check_names(tensors, source)
    table = {
        key: TensorInfo(tuple(tensor.shape), dtype_name(tensor.dtype, key, source))
        for key, tensor in tensors.items()
    }

    def read(names: Iterable[str]) -> dict[str, Any]:
        wanted = {name: tensors[name] for name in names}
        on_meta = [name for name, tensor in wanted.items() if getattr(tensor, "is_meta", False)]
        if on_meta:
            raise SourceError(f"{source}: tensor {shorten(on_meta[0])} is on the meta device and has no data")
        return {
            name: tensor.detach() if hasattr(tensor, "detach") else _from_array(tensor)
            for name, tensor in wanted.items()
        }

    return Checkpoint(source, "memory", table, None, read)


def _from_array(array: Any) -> Any:
    from mapper.weights.arrays import as_tensor

    return as_tensor(array)
