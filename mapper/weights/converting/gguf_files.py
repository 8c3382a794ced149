"""A GGUF file, written by the `gguf` package a tensor at a time."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper.checkpoint import TensorInfo
from mapper.errors import MapperError, SourceError, shorten
from mapper.sources.ggml import PACKAGE, TYPES, Type

if TYPE_CHECKING:
    import torch

SUFFIX = ".gguf"
PLAIN = ("F32", "F16", "BF16")
QUANTISED = ("Q8_0",)  # types in blocks that are written
_NUMBERS = {kind.name: number for number, kind in TYPES.items()}
# What general.file_type says of a file whose maps are of a type: llama.cpp's enumeration of them.
_FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7, "BF16": 32}
_LARGEST = 3.4e38  # of a float of 32 bits
_QUANTISATION = 2  # version of the types in blocks


def check_package() -> None:
    """Raise SourceError where the package that writes is not installed."""
    if importlib.util.find_spec("gguf") is None:
        raise SourceError(f'GGUF files are written by the gguf package: pip install "{PACKAGE}"')


def kind_of(name: str, shape: tuple[int, ...], dtype: str, quantised: str | None) -> Type:
    """The type that a tensor is stored in: vectors in 32 bits, as all readers of GGUF take norms and biases."""
    if dtype not in (*PLAIN, "F64"):
        raise MapperError(
            f"{shorten(name)} is of {dtype}; GGUF files are written of floats of 16 bits and more"
        )
    wanted = quantised or ("F32" if dtype == "F64" else dtype)
    if len(shape) < 2 or shape[-1] % TYPES[_NUMBERS[wanted]].block:
        wanted = "F32" if len(shape) < 2 or dtype == "F64" else dtype
    return TYPES[_NUMBERS[wanted]]


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, tuple[TensorInfo, Callable[[], torch.Tensor]]],
    quantised: str | None,
    count: Callable[[int], None],
) -> None:
    """Write the file; each tensor is made when its turn comes."""
    import gguf

    kinds = {name: kind_of(name, info.shape, info.dtype, quantised) for name, (info, _) in tensors.items()}
    with closing(gguf.GGUFWriter(str(path), metadata["general.architecture"])) as writer:
        for key, value in metadata.items():
            if key != "general.architecture":
                _add(writer, key, value)
        main = max(
            kinds.values(), key=lambda kind: sum(one is kind for one in kinds.values()), default=TYPES[0]
        )
        writer.add_file_type(_FILE_TYPES.get(quantised or main.name, 0))
        if quantised:
            writer.add_quantization_version(_QUANTISATION)
        for name, (info, _) in tensors.items():
            _announce(writer, name, info.shape, kinds[name])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for name, (_, make) in tensors.items():
            data = _bytes(make(), kinds[name])
            writer.write_tensor_data(data)
            count(data.nbytes)


def _add(writer: Any, key: str, value: Any) -> None:
    """Enter one value of the metadata. Raises MapperError for one that its types cannot hold."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int) and 0 <= value < 2**32:
        writer.add_uint32(key, value)
    elif isinstance(value, int) and abs(value) < 2**63:
        writer.add_int64(key, value)
    elif isinstance(value, float) and abs(value) < _LARGEST:
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, list) and len({type(item) for item in value}) == 1 and _are_plain(value):
        writer.add_array(key, value)
    else:
        raise MapperError(f"{key} is {shorten(str(value))}, which the metadata of GGUF cannot hold")


def _are_plain(items: list[Any]) -> bool:
    """Whether these, of one type, are what a list of the metadata has."""
    if isinstance(items[0], (bool, str)):
        return True
    limit = 2**31 if isinstance(items[0], int) else _LARGEST
    return isinstance(items[0], (int, float)) and all(abs(item) < limit for item in items)


def _announce(writer: Any, name: str, shape: tuple[int, ...], kind: Type) -> None:
    import gguf
    import numpy as np

    rows = (*shape[:-1], shape[-1] // kind.block * kind.bytes) if shape else (kind.bytes,)
    size = int(np.prod(rows))
    writer.add_tensor_info(
        name, rows, np.dtype("uint8"), size, gguf.GGMLQuantizationType(_NUMBERS[kind.name])
    )


def _bytes(tensor: torch.Tensor, kind: Type) -> Any:
    """The bytes of a tensor in its type."""
    from gguf import GGMLQuantizationType, quants

    from mapper.sources.storage import torch_dtype
    from mapper.weights.arrays import raw_bytes

    if kind.dtype:
        return raw_bytes(tensor.to(torch_dtype(kind.dtype, "")).contiguous()).numpy()
    return quants.quantize(tensor.float().numpy(), GGMLQuantizationType(_NUMBERS[kind.name]))
