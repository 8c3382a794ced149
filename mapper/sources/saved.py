"""What mapper saved: the document beside the tensors, or in the header of the one file that holds both.

    {"format": "mapper", "version": [1, 0], "wrote": {"mapper": ..., "torch": ...}, "files": [names in the folder],
     "architecture": ... or null, "tied": {alias: owner}, "absent": [paths], "raw": {tensor: {"dtype", "shape"}},
     "digests": {name: digest}, "carried": {name: digest}, "aux": structure, "metadata": ..., ...}

Unknown fields are ignored; a newer major version is refused. Tensors that belong to `aux` are read by name and are not
part of the table; tensors stored as bytes stand in it with their own type.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper import limits
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.errors import FormatError, MapperError, listed, shorten
from mapper.sources.documents import check_config, parse, read_document
from mapper.sources.manifest import DTYPE_NAMES
from mapper.sources.shards import Shard, check_shape

if TYPE_CHECKING:
    import torch

    Read = Callable[[Iterable[str]], dict[str, torch.Tensor]]

FORMAT = "mapper"
VERSION = (1, 0)
DOCUMENT = "mapper.json"  # in a folder
METADATA = "mapper"  # in the header of one file
SOURCE_METADATA = "mapper.source"
NAMES_METADATA = "mapper.names"  # of an ONNX file: what its tensors were called when the document was written
WEIGHTS = "model.safetensors"
AUX = "aux.safetensors"
SOURCE = "model.py"
AUX_PREFIX = "__aux__."
RESERVED = ("__aux__", "__metadata__")  # first parts of names that no state may have
_OWN = (DOCUMENT, WEIGHTS, AUX, SOURCE)
# Types without a name in the format, and the width in bytes of one element as torch counts them.
RAW_BYTES = {
    "complex128": 16, "complex32": 4, "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1,
    **{f"{sign}int{bits}": 1 for sign in ("", "u") for bits in range(1, 8)},
    "bits8": 1, "bits1x8": 1, "bits2x4": 1, "bits4x2": 1, "bits16": 2,
}  # fmt: skip


def read_folder_document(folder: str | Path, source: str) -> dict[str, Any] | None:
    """The checked document of the folder at `folder`; None where there is none."""
    path = os.path.join(folder, DOCUMENT)
    if not os.path.lexists(path):
        return None
    name = f"{source}/{DOCUMENT}"
    document = read_document(path, limits.HEADER_BYTES, name)
    check_document(document, name)
    return document


def document_of(shards: list[Shard]) -> dict[str, Any] | None:
    """The checked document in the header of a single file; None where there is none."""
    is_one = len(shards) == 1 or bool(
        shards[0].beside
    )  # a file whose tensors lie beside it is one all the same
    text = shards[0].metadata.get(METADATA) if is_one else None
    if text is None:
        return None
    name = f"{shards[0].name}: its entry {METADATA!r}"
    if not isinstance(text, str):
        raise FormatError(f"{name} is {shorten(str(text))}, not a text")
    document = parse(text.encode("utf-8", "replace"), name)
    check_document(document, name)
    return document


def digest_of_names(names: Iterable[str]) -> str:
    """What changes when tensors are added, taken out or called otherwise."""
    return f"{zlib.crc32(chr(10).join(sorted(names)).encode('utf-8', 'surrogateescape')):08x}"


def check_document(document: dict[str, Any], name: str) -> None:
    """Raise FormatError unless this version can read `document`."""
    if document.get("format") != FORMAT:
        seen = shorten(str(document.get("format")))
        raise FormatError(f"{name}: 'format' is {seen}, not '{FORMAT}'; was it written by mapper?")
    version = document.get("version")
    if (
        not isinstance(version, list)
        or len(version) != 2
        or any(type(part) is not int or part < 0 for part in version)
    ):
        raise FormatError(f"{name}: 'version' is {shorten(str(version))}, not two numbers")
    if version[0] != VERSION[0]:
        reason = (
            "install a newer mapper"
            if version[0] > VERSION[0]
            else "it is older than all that were ever written"
        )
        raise FormatError(
            f"{name}: written in version {version[0]}.{version[1]}, and this mapper reads versions up to "
            f"{VERSION[0]}.{VERSION[1]} and later ones of {VERSION[0]}; {reason}"
        )
    _check_fields(document, name)


def _check_fields(document: dict[str, Any], name: str) -> None:
    """Fill what is not there, and raise FormatError for a field of another kind."""
    for field, kind in (("tied", dict), ("absent", list), ("raw", dict), ("files", list)):
        if not isinstance(document.setdefault(field, kind()), kind):
            raise FormatError(f"{name}: {field!r} is {shorten(str(document[field]))}")
    for field in ("absent", "files"):
        odd = [item for item in document[field] if not isinstance(item, str)]
        if odd:
            raise FormatError(f"{name}: {field!r} holds {shorten(str(odd[0]))}, not a name")
    odd = [alias for alias, owner in document["tied"].items() if not isinstance(owner, str)]
    if odd:
        raise FormatError(f"{name}: {listed(odd)} in 'tied' has no name for its owner")
    if not isinstance(document.setdefault("architecture", None), (dict, type(None))):
        raise FormatError(f"{name}: 'architecture' is {shorten(str(document['architecture']))}")


def apply(checkpoint: Checkpoint, document: dict[str, Any]) -> None:
    """Make `checkpoint` what its document says: ties, real types, and the tensors of `aux` out of sight."""
    source = checkpoint.source
    checkpoint.document = document
    checkpoint.container = FORMAT
    try:
        config = config_of(document["architecture"])
    except FormatError as error:
        raise FormatError(f"{source}: the config in its document: {error}") from error
    if config is not None:  # a file's neighbours need not be its own
        check_config(config, source)
        checkpoint.config = config
    checkpoint.weights = [path for path in checkpoint.weights if os.path.basename(path) != AUX]
    raw = {name: _raw_info(name, entry, checkpoint, source) for name, entry in document["raw"].items()}
    checkpoint.hidden = [name for name in checkpoint.tensors if name.startswith(AUX_PREFIX)]
    checkpoint.tensors = {
        name: raw.get(name, info)
        for name, info in checkpoint.tensors.items()
        if not name.startswith(AUX_PREFIX)
    }
    for alias, owner in document["tied"].items():
        if owner not in checkpoint.tensors or alias in checkpoint.tensors:
            problem = "is not there" if owner not in checkpoint.tensors else f"has {shorten(alias)} beside it"
            raise FormatError(f"{source}: {shorten(owner)}, to which {shorten(alias)} is tied, {problem}")
    if checkpoint.read is not None and raw:
        checkpoint.read = _typed(checkpoint.read, document["raw"])


def config_of(architecture: dict[str, Any] | None) -> dict[str, Any] | None:
    """The config of the checkpoint that a generated model was made from; None for other models."""
    from mapper.weights.built.json_values import value_of

    model = (architecture or {}).get("model")
    origin = model.get("origin") if isinstance(model, dict) else None
    config = value_of(origin.get("config"), limits.CONFIG_DEPTH) if isinstance(origin, dict) else None
    return config if isinstance(config, dict) else None


def _raw_info(name: str, entry: Any, checkpoint: Checkpoint, source: str) -> TensorInfo:
    """The table's entry for a tensor that is stored as bytes. Raises FormatError unless it fits them."""
    stored = checkpoint.tensors.get(name)
    if stored is None:
        raise FormatError(f"{source}: {shorten(name)} is said to be stored as bytes, and is not there")
    dtype = entry.get("dtype") if isinstance(entry, dict) else None
    if not isinstance(dtype, str) or dtype not in RAW_BYTES:
        known = ", ".join(RAW_BYTES)
        raise FormatError(
            f"{source}: {shorten(name)} is stored as bytes of {shorten(str(entry))}, known are {known}"
        )
    shape = check_shape(entry.get("shape"), name, source)
    if stored.dtype != "U8" or stored.size != math.prod(shape) * RAW_BYTES[dtype]:
        seen = f"{stored.dtype} {list(stored.shape)}"
        raise FormatError(
            f"{source}: {shorten(name)} is {seen}, which are not the bytes of {dtype} {list(shape)}"
        )
    if dtype == "float4_e2m1fn_x2" and shape:  # the format counts single numbers, torch pairs
        return TensorInfo((*shape[:-1], shape[-1] * 2), "F4")
    known_name = DTYPE_NAMES.get(dtype)
    return stored if known_name is None else TensorInfo(shape, known_name)


def _typed(read: Read, raw: dict[str, Any]) -> Read:
    """`read`, with the tensors that are stored as bytes under their own types."""

    def typed(names: Iterable[str]) -> dict[str, torch.Tensor]:
        import torch

        from mapper.weights.arrays import from_raw

        found = read(names)
        for name in found.keys() & raw.keys():
            dtype = getattr(torch, raw[name]["dtype"], None)
            if not isinstance(dtype, torch.dtype):
                raise MapperError(
                    f"tensor {shorten(name)} is of {raw[name]['dtype']}, which this torch lacks",
                    tensors=[name],
                )
            found[name] = from_raw(found[name], dtype, raw[name]["shape"])
        return found

    return typed


def own_files(folder: Path) -> Collection[str] | None:
    """The names in `folder` that a save there may drop; None for a folder that mapper did not write."""
    path = folder / DOCUMENT
    if not path.is_file():
        return None
    try:
        document = read_document(path, limits.HEADER_BYTES)
    except MapperError:  # damaged: only what is surely of the save goes
        return _OWN
    if document.get("format") != FORMAT:
        return None
    files = document.get("files")
    named = [name for name in files if isinstance(name, str)] if isinstance(files, list) else []
    return {*_OWN, *named}
