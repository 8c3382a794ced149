"""Programs of `torch.export` (`.pt2`): the tensors of their state, and what the graph says of the layers that hold them.

An archive has each tensor's bytes as a record, a table of them (`data/weights/MODEL_weights_config.json`) and the graph as JSON
(`models/MODEL.json`); before torch 2.9 the state is a file of torch.save inside of the archive.
https://github.com/pytorch/pytorch/blob/main/torch/export/pt2_archive/PT2ARCHIVE.md
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

from mapper import limits
from mapper.checkpoint import DTYPE_BYTES, Observed
from mapper.errors import FormatError, listed, shorten
from mapper.sources.documents import parse
from mapper.sources.pickles import Storage, StoredTensor
from mapper.sources.torch_script import FACTS, TRANSPOSED, as_fact

CONFIG = "_weights_config.json"
STATE = ("serialized_state_dict.pt", "serialized_state_dict.json")
# The numbers of dtypes: https://github.com/pytorch/pytorch/blob/main/torch/_export/serde/schema.py
DTYPES = {
    1: "U8", 2: "I8", 3: "I16", 4: "I32", 5: "I64", 6: "F16", 7: "F32", 8: "F64", 10: "C64", 11: "C128", 12: "BOOL", 13: "BF16",
    28: "U16", 29: "F8_E4M3", 30: "F8_E5M2", 31: "F8_E4M3FNUZ", 32: "F8_E5M2FNUZ", 33: "F8_E8M0", 34: "U32", 35: "U64",
}  # fmt: skip


class Records(NamedTuple):
    """An archive with its records by name."""

    archive: zipfile.ZipFile
    entries: Mapping[str, zipfile.ZipInfo]
    name: str  # of the file, for errors

    def json(self, record: str) -> dict[str, Any]:
        """The JSON object in a record."""
        entry = self.entries[record]
        if entry.file_size > limits.HEADER_BYTES:
            limit = f"at most {limits.HEADER_BYTES:,} are read"
            raise FormatError(f"{self.name}: {shorten(record)} has {entry.file_size:,} bytes, {limit}")
        return parse(self.archive.read(entry), f"{self.name}: {record.rpartition('/')[2]}")


def is_exported(entries: Mapping[str, zipfile.ZipInfo]) -> bool:
    """Whether an archive is one of these."""
    return any(record.rpartition("/")[2] in ("archive_format", *STATE) for record in entries)


def inner_state(entries: Mapping[str, zipfile.ZipInfo]) -> zipfile.ZipInfo | None:
    """The file of torch.save inside of the archive, where the state is one."""
    found = [entries[record] for record in entries if _is_state(record)]
    return found[0] if len(found) == 1 else None


def _is_state(record: str) -> bool:
    folder, _, last = record.rpartition("/")
    return last in STATE or (folder.endswith("data/weights") and last.endswith(".pt"))


def weights_of(records: Records) -> dict[str, StoredTensor]:
    """The tensors of the state by name; the key of each storage is the record. Raises FormatError."""
    tables = [record for record in records.entries if record.endswith(CONFIG)]
    if len(tables) != 1:
        seen = f"{len(tables)} models in one program: {listed(tables)}" if tables else "no table of weights"
        raise FormatError(f"{records.name}: a program of torch.export, and {seen}; save its state dict")
    folder = tables[0].rpartition("/")[0]
    said = records.json(tables[0]).get("config")
    if not isinstance(said, dict):
        raise FormatError(f"{records.name}: {shorten(tables[0])} has no table of weights")
    return {key: _stored(entry, key, folder, records) for key, entry in said.items()}


def _stored(entry: Any, key: str, folder: str, records: Records) -> StoredTensor:
    meta = entry.get("tensor_meta") if isinstance(entry, dict) else None
    place = entry.get("path_name") if isinstance(entry, dict) else None
    if not isinstance(meta, dict) or not isinstance(place, str):
        raise FormatError(f"{records.name}: tensor {shorten(key)} has no size or place", tensors=[key])
    dtype = DTYPES.get(meta.get("dtype", 0))
    if entry.get("use_pickle") or dtype is None:
        why = "has a dtype that no safetensors name stands for" if dtype is None else "is pickled by itself"
        raise FormatError(
            f"{records.name}: tensor {shorten(key)} {why}; save a plain state dict", tensors=[key]
        )
    offset = _integer(meta.get("storage_offset"), key, records)
    shape, strides = (
        [_integer(one, key, records) for one in meta.get(word) or ()] for word in ("sizes", "strides")
    )
    if len(shape) != len(strides):
        raise FormatError(
            f"{records.name}: tensor {shorten(key)} has other strides than sizes", tensors=[key]
        )
    record = records.entries.get(f"{folder}/{place}")
    held = int(record.file_size // DTYPE_BYTES[dtype]) if record else 0
    return StoredTensor(
        Storage(f"{folder}/{place}", dtype, held), dtype, offset, tuple(shape), tuple(strides)
    )


def _integer(said: Any, key: str, records: Records) -> int:
    """`{"as_int": 3}` as 3."""
    found = said.get("as_int") if isinstance(said, dict) else said
    if type(found) is not int or not 0 <= found < 2**63:
        raise FormatError(
            f"{records.name}: tensor {shorten(key)} has a size that is no number", tensors=[key]
        )
    return found


def observed(records: Records) -> Iterator[Observed]:
    """What the calls of the graph show of the modules whose weights they read."""
    models = [record for record in records.entries if _is_graph(record)]
    if len(models) != 1:
        return
    module = records.json(models[0]).get("graph_module")
    graph = module.get("graph") if isinstance(module, dict) else None
    signature = module.get("signature") if isinstance(module, dict) else None
    if isinstance(graph, dict) and isinstance(signature, dict):
        names = _parameters(signature)
        for node in filter(_is_table, graph.get("nodes") or ()):
            yield from _of_node(node, names)


def _is_graph(record: str) -> bool:
    folder, _, last = record.rpartition("/")
    return folder.rpartition("/")[2] == "models" and last.endswith(".json")


def _is_table(item: Any) -> bool:
    return isinstance(item, dict)


def _parameters(signature: Mapping[str, Any]) -> dict[str, str]:
    """Name in the graph -> name in the state."""
    names = {}
    for item in filter(_is_table, signature.get("input_specs") or ()):
        said = item.get("parameter")
        if isinstance(said, dict) and isinstance(said.get("arg"), dict):
            names[str(said["arg"].get("name"))] = str(said.get("parameter_name"))
    return names


def _of_node(node: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[Observed]:
    said = {
        str(item.get("name")): _plain(item.get("arg")) for item in filter(_is_table, node.get("inputs") or ())
    }
    path, _, last = names.get(str(said.get("weight")), "").rpartition(".")
    if last != "weight":
        return
    target = str(node.get("target")).removeprefix("torch.ops.")
    turned = "conv_transpose" in target or said.get("transposed") is True
    for word, fact in (TRANSPOSED if turned else FACTS).items():
        if said.get(word) is not None:
            yield Observed(fact, path, as_fact(word, said[word]), f"{word} of {shorten(target)[1:-1]}")


def _plain(argument: Any) -> Any:
    """What an argument of a node is, `{"as_ints": [2, 2]}`: a number, several, a text, or the name of a tensor."""
    if not isinstance(argument, dict) or len(argument) != 1:
        return None
    value = next(iter(argument.values()))
    return value.get("name") if isinstance(value, dict) else value


class Section:
    """A part of a file as a file of its own."""

    def __init__(self, file: BinaryIO, start: int, size: int):
        self.file, self.start, self.size, self.at = file, start, size, 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = max(0, offset + (0, self.at, self.size)[whence])
        return self.at

    def read(self, count: int = -1) -> bytes:
        left = max(0, self.size - self.at)
        self.file.seek(self.start + self.at)
        data = self.file.read(left if count < 0 else min(count, left))
        self.at += len(data)
        return data
