"""Manifests: a checkpoint's header as JSON, without weights.

`{"repo": ..., "evidence": ..., "config": {...}, "tensors": {name: {"shape": [...], "dtype": "F32"}}}`, plain
or gzipped; the shape alone may stand for an entry, and the table of tensors for the whole document.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mapper import limits
from mapper.checkpoint import DTYPE_BYTES, TORCH_NAMES, Checkpoint, TensorInfo
from mapper.errors import FormatError, SourceError, shorten
from mapper.sources.documents import check_config, parse
from mapper.sources.files import SNIFFED, base_name, open_regular, printable, reading, refuse_impostor
from mapper.sources.shards import check_names, check_shape

GZIP = b"\x1f\x8b"
ASSUMED_DTYPE = "F32"
DTYPE_NAMES = {word: name for name, word in TORCH_NAMES.items()} | {
    "double": "F64", "float": "F32", "half": "F16", "long": "I64", "int": "I32", "short": "I16",
}  # fmt: skip


def open_manifest(path: str | Path) -> Checkpoint:
    """The checkpoint that the manifest at `path` describes."""
    name = base_name(path)
    document = parse(_content(path, name), name)
    if "weight_map" in document:
        raise SourceError(f"{name}: an index of shards, not a manifest; keep its name ending in .index.json")
    if "tensors" not in document and ("model_type" in document or name == "config.json"):
        raise SourceError(
            f"{name}: a config without tensors; give the directory that also holds the weights, or a manifest"
        )
    return from_document(document, name)


def _content(path: str | Path, name: str) -> bytes:
    file, size = open_regular(path)
    with file, reading(name):
        data = file.read(limits.HEADER_BYTES + 1)
    refuse_impostor(data[:SNIFFED], size, name)
    if data.startswith(GZIP):
        try:
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(limits.HEADER_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(
                f"{name}: its compressed content is damaged ({str(error).lower()}); fetch it again"
            ) from error
    if len(data) > limits.HEADER_BYTES:
        raise FormatError(
            f"{name}: more than {limits.HEADER_BYTES:,} bytes of JSON, which is the most that is read"
        )
    return data


def from_document(document: Mapping[str, Any], name: str) -> Checkpoint:
    """The checkpoint that a parsed manifest describes; `name` is used where the manifest has no `repo`."""
    table = document.get("tensors") if "tensors" in document else document
    if not isinstance(table, Mapping) or not table:
        raise FormatError(
            f"{name}: no table of tensors; expected {{'tensors': {{name: {{'shape': [...], 'dtype': ...}}}}}}"
        )
    if len(table) > limits.TENSORS:
        raise FormatError(f"{name}: {len(table):,} tensors, at most {limits.TENSORS:,} are read")
    config = document.get("config") if "tensors" in document else None
    if config is not None:
        check_config(config, name)
    repo = document.get("repo") if table is not document else None
    source = printable(repo) if isinstance(repo, str) and repo else name
    checkpoint = Checkpoint(source, "manifest", {}, config)
    check_names(table, name)
    checkpoint.tensors = {key: _info(entry, key, name) for key, entry in table.items()}
    evidence = document.get("evidence")
    if isinstance(evidence, str) and table is not document:
        checkpoint.notes.append(f"a manifest without weights: {printable(evidence)}")
    else:
        checkpoint.notes.append("a manifest without weights")
    if not all(isinstance(entry, Mapping) and "dtype" in entry for entry in table.values()):
        checkpoint.notes.append(f"the manifest names no dtypes: {ASSUMED_DTYPE} is assumed")
    return checkpoint


def _info(entry: Any, key: str, name: str) -> TensorInfo:
    shape, dtype = (
        (entry.get("shape"), entry.get("dtype", ASSUMED_DTYPE))
        if isinstance(entry, Mapping)
        else (entry, ASSUMED_DTYPE)
    )
    return TensorInfo(check_shape(shape, key, name), dtype_name(dtype, key, name))


def dtype_name(dtype: object, key: str, name: str) -> str:
    """The safetensors name of `dtype`, which may be spelled as torch does."""
    text = str(getattr(dtype, "name", dtype)).removeprefix("torch.")  # NumPy writes '>f4' for float32
    text = DTYPE_NAMES.get(text, text)
    if text not in DTYPE_BYTES:
        raise FormatError(
            f"{name}: tensor {shorten(key)} has the dtype {shorten(str(dtype))}, known are "
            f"{', '.join(DTYPE_BYTES)}",
            tensors=[key],
        )
    return text
