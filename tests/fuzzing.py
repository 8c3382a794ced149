"""Every parser of files as a function of bytes, with small good files to start from: for the tests and for `tools/fuzz.py`."""

from __future__ import annotations

import io
import json
import pickle
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save

from mapper.checkpoint import DTYPE_BYTES, Checkpoint
from mapper.errors import MapperError
from mapper.sources import documents, manifest, pickles, safetensors, saved, sharded
from mapper.sources.directory import read_table
from mapper.sources.joining import joined
from mapper.sources.shards import Shard
from mapper.sources.state_dict import take_tensors
from mapper.sources.storage import plain, torch_dtype
from tests.checkpoints import BERT
from tests.flax_files import packed
from tests.gguf_files import gguf_bytes
from tests.onnx_files import beside, held, initialiser, model

LOOKED_AT = 8  # tensors of a file whose numbers are read
SMALL = 2**16  # bytes of one of them
TORCH = {
    "a.weight": torch.arange(6.0).view(2, 3),
    "a.bias": torch.ones(4, dtype=torch.bfloat16)[::2],
    "b": torch.ones(2, 2).t(),
}
ARRAYS = {
    "a/kernel": np.arange(6.0).reshape(2, 3),
    "b": np.ones(2, ">i2"),
    "c": np.asfortranarray(np.ones((2, 2), "f4")),
}


class Target(NamedTuple):
    """A parser, and good inputs of it. `parse` returns, or raises MapperError; anything else is a finding."""

    parse: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]


def execute(target: Target, data: bytes) -> bool:
    """Whether `data` was read; False where it was refused. What a refusal says must be one line."""
    try:
        target.parse(data)
    except MapperError as error:
        text = str(error)
        assert text and "\n" not in text, repr(text)
        assert len(text) < 2_000, f"{len(text)} characters"
        return False
    return True


def _file(name: str) -> Callable[[bytes], None]:
    """The whole way of one file: its table, its names, and the numbers of its first tensors."""

    def parse(data: bytes) -> None:
        shard = read_table(io.BytesIO(data), len(data), name)
        checkpoint = joined([shard], name, None)
        for key in list(checkpoint.tensors)[:LOOKED_AT]:
            if key in shard.tensors:
                _check(shard, key, data)

    return parse


def _check(shard: Shard, key: str, data: bytes) -> None:
    """A tensor lies within the file, and is of the shape and type that the table says."""
    info = shard.tensors[key]
    needed = int(info.size * DTYPE_BYTES[info.dtype])
    if key in shard.decoded:
        if needed <= SMALL:
            tensor = shard.decoded[key](memoryview(bytearray(data)))
            pairs = info.dtype == "F4"
            assert tuple(tensor.shape) == ((*info.shape[:-1], info.shape[-1] // 2) if pairs else info.shape)
            assert tensor.dtype == torch_dtype(info.dtype, key)
        return
    if key not in shard.offsets:  # in a file beside this one
        return
    strides = shard.strides.get(key)
    if strides is not None and info.size:
        reach = sum((extent - 1) * step for extent, step in zip(info.shape, strides, strict=True)) + 1
        needed = int(reach * DTYPE_BYTES[info.dtype])
    assert 0 <= shard.offsets[key] <= shard.offsets[key] + needed <= len(data) or not info.size
    if needed <= SMALL and strides is None and info.dtype != "F4" and not shard.offsets[key] % 16:
        assert plain(memoryview(bytearray(data)), info, shard.offsets[key]).shape == info.shape


def _header(data: bytes) -> None:
    """The header of a safetensors file without its length, which changed bytes would rarely fit."""
    safetensors._table(data, "a.safetensors", 8 + len(data) + 44)


def _pickle(data: bytes) -> None:
    """A pickle without its archive, whose checksum changed bytes would never fit."""
    value, _, made, foreign = pickles.interpret(data, "a.bin")
    take_tensors(value, made, Shard("a.bin", "torch", {}, foreign=foreign))


def _index(data: bytes) -> None:
    for file in sharded.shard_names(documents.parse(data, "index.json"), "index.json"):
        assert not file.startswith("/") and ".." not in file.split("/")


def _config(data: bytes) -> None:
    documents.check_config(documents.parse(data, "config.json"), "config.json")


def _manifest(data: bytes) -> None:
    manifest.from_document(documents.parse(data, "a.json"), "a.json")


def _document(data: bytes) -> None:
    """What mapper writes beside tensors."""
    document = documents.parse(data, "mapper.json")
    saved.check_document(document, "mapper.json")
    table = {name: safetensors.TensorInfo((8,), "U8") for name in ("w", "v", "__aux__.x")}
    checkpoint = Checkpoint("a", "safetensors", table, read=dict.fromkeys)
    saved.apply(checkpoint, document)


def _zip(**options: Any) -> bytes:
    held = io.BytesIO()
    torch.save({"state_dict": TORCH, "epoch": 3, "lr": [0.1]}, held, **options)
    return held.getvalue()


def _pickled() -> list[bytes]:
    """The pickle of a file of torch, taken out of its archive."""
    import zipfile

    with zipfile.ZipFile(io.BytesIO(_zip())) as archive:
        return [archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))]


def _arrays(save: Callable[..., None], *arguments: Any, **arrays: Any) -> bytes:
    held = io.BytesIO()
    save(held, *arguments, **arrays)
    return held.getvalue()


def _json(*values: Any) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


def _onnx() -> list[bytes]:
    return [
        model(initialiser("a", [2], 1, held(9, bytes(8))), initialiser("b", [2], 7, held(7, b"\x01\xff\x02"))),
        model(initialiser("a", [2], 1, beside("data.bin", offset=4, length=8)), initialiser("c", [1, 2], 10, held(5, b"\x01\x80\x02"))),
    ]  # fmt: skip


def _flax() -> list[bytes]:
    tree = {"a": {"kernel": np.ones((2, 3), np.float32), "bias": np.ones(3)}, "step": [1, "x", 2.5]}
    return [packed(tree), packed({"params": {"Dense_0": {"kernel": np.ones((1, 2, 3, 4), np.float16)}}})]


def _gguf() -> list[bytes]:
    blocks = np.arange(34 * 4, dtype=np.uint8).reshape(4, 34)
    settings = {
        "general.architecture": "llama",
        "llama.attention.head_count": 2,
        "x": [1.5, 2.0],
        "y": "text",
    }
    plain_ones = {"blk.0.attn_q.weight": np.ones((4, 4)), "output.weight": np.ones(4, np.float32)}
    return [
        gguf_bytes(settings, plain_ones),
        gguf_bytes(settings, {"blk.0.attn_q.weight": blocks}, {"blk.0.attn_q.weight": 8}),
    ]


def _tables() -> list[bytes]:
    """Safetensors headers."""
    tensors = {"a": torch.ones(2, 3), "b.c": torch.ones(5, dtype=torch.int32)}
    whole = save(tensors, {"format": "pt"})
    return [whole[8 : 8 + struct.unpack("<Q", whole[:8])[0]]]


def _saved() -> list[bytes]:
    document = {
        "format": "mapper",
        "version": [1, 0],
        "tied": {"u": "w"},
        "absent": ["x"],
        "files": ["model.safetensors"],
    }
    architecture = {"kind": "generated", "model": {"origin": {"config": {"table": [["a", 1]]}}}}
    return _json(
        {**document, "raw": {"w": {"dtype": "complex32", "shape": [2]}}}, {**document, "architecture": architecture}
    )  # fmt: skip


TARGETS: dict[str, Target] = {
    "safetensors": Target(_file("a.safetensors"), lambda: [save(TORCH | {"b": torch.ones(3)} | {"a.bias": torch.ones(2)})]),
    "safetensors-header": Target(_header, _tables),
    "torch-zip": Target(_file("a.bin"), lambda: [_zip()]),
    "torch-legacy": Target(_file("a.pt"), lambda: [_zip(_use_new_zipfile_serialization=False)]),
    "pickle": Target(_pickle, _pickled),
    "npz": Target(_file("a.npz"), lambda: [_arrays(np.savez, **ARRAYS), _arrays(np.savez_compressed, **ARRAYS)]),
    "pickled-arrays": Target(_file("a.pkl"), lambda: [pickle.dumps(ARRAYS, protocol=protocol) for protocol in (2, 4, 5)]),
    "npy": Target(_file("a.npy"), lambda: [_arrays(np.save, array) for array in ARRAYS.values()]),
    "gguf": Target(_file("a.gguf"), _gguf),
    "onnx": Target(_file("a.onnx"), _onnx),
    "flax": Target(_file("a.msgpack"), _flax),
    "manifest": Target(_manifest, lambda: _json({"tensors": {"a.b": [2, 3], "c": {"shape": [4], "dtype": "F16"}}, "config": BERT})),
    "index": Target(_index, lambda: _json({"metadata": {}, "weight_map": {"a": "x.safetensors", "b": "y/z.safetensors"}})),
    "config": Target(_config, lambda: _json(BERT, {"a": [{"b": {"c": [1, "é"]}}]})),
    "document": Target(_document, _saved),
}  # fmt: skip


@lru_cache
def seeds(name: str) -> tuple[bytes, ...]:
    """The good inputs of a target, each of which it reads."""
    found = tuple(TARGETS[name].seeds())
    for data in found:
        TARGETS[name].parse(data)
    return found


def words() -> list[bytes]:
    """What means something to one parser or another."""
    numbers = [0, 1, 2, 127, 128, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**48, 2**62, 2**63, 2**64 - 1]
    packed_numbers = [struct.pack(form, min(number, 2 ** (8 * size) - 1)) for number in numbers for form, size in
                      (("<H", 2), ("<I", 4), (">I", 4), ("<Q", 8), (">Q", 8))]  # fmt: skip
    texts = [str(number).encode() for number in numbers] + [
        b"-1",
        b"1e9",
        b"NaN",
        b"null",
        b"true",
        b"[]",
        b"{}",
        b'""',
        b"\\ud800",
    ]
    names = [
        name.encode() for name in (*manifest.DTYPE_NAMES, *DTYPE_BYTES, "__metadata__", "..", "/", "data.pkl")
    ]
    kinds = [b"'<f8'", b"'|O'", b"'>c16'", b"'<U4'", b"'|V2'", b"'<f1'", b"True", b"(2, 3)", b"()"]
    pickled = [
        b"(",
        b"}",
        b"]",
        b"R",
        b"\x81",
        b"Q",
        b"q\x00",
        b"h\x00",
        b"0",
        b"2",
        b"1",
        b"u",
        b"s",
        b"e",
        b"\x85",
        b"\x86",
        b"\x87",
        b"b",
    ]
    return [*packed_numbers, *texts, *names, *kinds, *pickled, b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06"]  # fmt: skip
