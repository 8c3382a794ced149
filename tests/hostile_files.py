"""Files that are not what they claim to be, indices that contradict their shards, manifests, and `--set`."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile import GOOD, Case, bert, container, noise, spoilt, write

Make = Callable[[Path], "Path | str"]


def file(name: str, data: bytes, config: bool = True) -> Make:
    """One file beside a good config."""

    def make(folder: Path) -> Path:
        if config:
            (folder / "config.json").write_text(json.dumps(bert()[1]))
        (folder / name).write_bytes(data)
        return folder / name

    return make


def header(entries: dict[str, Any] | bytes, data: bytes = bytes(8)) -> bytes:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(shape: Any, start: Any, end: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


GOOD_FILE = container(bert()[0])
WEIGHTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "of seven bytes": (b"1234567", "7 bytes"),
    "cut in its header": (GOOD_FILE[:100], "download it again"),
    "cut in its data": (GOOD_FILE[:-100], "download it again"),
    "with bytes behind": (GOOD_FILE + b"x" * 10, "follow the last tensor"),
    "of zeros": (bytes(4096), "model.safetensors"),
    "of ones": (b"\xff" * 4096, "header"),
    "an HTML page": (b"<!DOCTYPE html><html>404</html>", "web page"),
    "an LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "git-lfs"),
    "a server's error": (b'{"error": "Repository not found"}', "error message"),
    "text": (b"hello world, this is no checkpoint at all", "model.safetensors"),
    "with a huge header said": (struct.pack("<Q", 2**62) + b"{}" + bytes(99), "header"),
    "whose header is a list": (header(b"[1, 2, 3]"), "header"),
    "whose header is no JSON": (header(b'{"a": nope}'), "not JSON"),
    "whose header is deep": (header(b'{"a":' * 5000 + b"1" + b"}" * 5000), "deep"),
    "with a name twice": (header(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}'), "more than once"),
    "of an unknown dtype": (header({"a": entry([2], 0, 8, "F13")}), "F13"),
    "of a dtype that is a list": (header({"a": entry([2], 0, 8, ["F32"])}), "F32"),
    "of a shape below zero": (header({"a": entry([-2], 0, 8)}), "shape"),
    "of a shape of text": (header({"a": entry("22", 0, 8)}), "shape"),
    "of a shape of floats": (header({"a": entry([2.0], 0, 8)}), "2.0"),
    "of a shape beyond all bounds": (header({"a": entry([2**60, 2**60], 0, 8)}), "dimension"),
    "of a rank beyond all bounds": (header({"a": entry([1] * 50 + [2], 0, 8)}), "dimensions"),
    "of a shape that does not fill its span": (header({"a": entry([3], 0, 8)}), "needs 12"),
    "of overlapping tensors": (header({"a": entry([2], 0, 8), "b": entry([1], 4, 8)}), "overlap"),
    "with a gap": (header({"a": entry([1], 4, 8)}), "belong to no tensor"),
    "with offsets turned": (header({"a": entry([2], 8, 0)}), "model.safetensors"),
    "with offsets below zero": (header({"a": entry([2], -8, 0)}), "data_offsets"),
    "with offsets of text": (header({"a": entry([2], "0", "8")}), "data_offsets"),
    "with an entry of null": (header({"a": None}), "described by"),
    "without an entry": (header({}, b""), "no tensors"),
    "of metadata alone": (header({"__metadata__": {"format": "pt"}}, b""), "no tensors"),
    "of metadata that is a list": (header({"__metadata__": [1]}), "__metadata__"),
    "with a surrogate in a name": (header(b'{"\\ud800": {"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'), "surrogate"),
}  # fmt: skip


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch pwned",)


def torch_zip(content: bytes, more: dict[str, bytes] | None = None) -> bytes:
    import io

    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/version", "3")
        for name, data in (more or {}).items():
            archive.writestr(name, data)
    return held.getvalue()


def zip_bomb() -> bytes:
    """A data.pkl that unpacks to a gigabyte."""
    import io

    held = io.BytesIO()
    with (
        zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("archive/data.pkl", "w") as inside,
    ):
        for _ in range(64):
            inside.write(bytes(2**20))
    data = bytearray(held.getvalue())
    at = data.index(b"PK\x01\x02") + 24
    data[at : at + 4] = struct.pack("<I", 2**30)
    return bytes(data)


PICKLES: dict[str, tuple[bytes, str]] = {
    "calls os.system": (pickle.dumps(Bomb()), "pytorch_model.bin"),
    "calls os.system in a zip": (torch_zip(pickle.dumps({"a": Bomb()}, protocol=2)), "pytorch_model.bin"),
    "calls eval in a zip": (torch_zip(b"\x80\x02cbuiltins\neval\nX\x01\x00\x00\x001\x85R."), "pytorch_model.bin"),
    "is cut short in a zip": (torch_zip(pickle.dumps({"a": 1}, protocol=2)[:-3]), "pytorch_model.bin"),
    "is a list in a zip": (torch_zip(pickle.dumps([1, 2], protocol=2)), "pytorch_model.bin"),
    "holds no tensors": (torch_zip(pickle.dumps({"a": 1}, protocol=2)), "pytorch_model.bin"),
    "is a zip of nothing": (b"PK\x03\x04" + bytes(100), "pytorch_model.bin"),
    "unpacks to a gigabyte": (zip_bomb(), "pytorch_model.bin"),
    "nests 100,000 lists": (torch_zip(b"\x80\x02" + b"(" * 100_000 + b"l" * 100_000 + b"."), "pytorch_model.bin"),
    "is text": (b"import os; os.system('touch pwned')", "pytorch_model.bin"),
    "is compressed": (zlib.compress(b"x" * 100), "pytorch_model.bin"),
}  # fmt: skip


def sharded(table: Any, shards: dict[str, bytes], index: bytes | None = None) -> Make:
    def make(folder: Path) -> Path:
        for name, data in shards.items():
            (folder / name).write_bytes(data)
        document = index if index is not None else json.dumps({"weight_map": table}).encode()
        (folder / "model.safetensors.index.json").write_bytes(document)
        return folder

    return make


ONE = container({"a": noise(2)})
SHARDS: dict[str, tuple[Make, str]] = {
    "a shard is missing": (sharded({"a": "x.safetensors", "b": "y.safetensors"}, {"x.safetensors": ONE}), "y.safetensors"),
    "points to the root": (sharded({"a": "/etc/passwd"}, {}), "no file beside"),
    "points above": (sharded({"a": "../x.safetensors"}, {}), "no file beside"),
    "lists what no shard has": (sharded({"a": "x.safetensors", "b": "x.safetensors"}, {"x.safetensors": ONE}), "'b'"),
    "shards that share a name": (sharded({"a": "x.safetensors", "b": "y.safetensors"}, {"x.safetensors": ONE, "y.safetensors": container({"a": noise(2), "b": noise(2)})}), "'a'"),
    "is a list": (sharded(None, {}, b"[]"), "array"),
    "has no map": (sharded(None, {}, b"{}"), "weight_map"),
    "has a map of lists": (sharded({"a": ["x.safetensors"]}, {"x.safetensors": ONE}), "x.safetensors"),
    "has a map that is text": (sharded("x", {}), "weight_map"),
    "is empty": (sharded(None, {}, b""), "empty"),
    "lists a name twice": (sharded(None, {"x.safetensors": ONE}, b'{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}'), "more than once"),
}  # fmt: skip

MANIFESTS: dict[str, tuple[bytes, str]] = {
    "of nothing": (b"{}", "tensors"),
    "of an empty table": (b'{"tensors": {}}', "tensors"),
    "of a list": (b'{"tensors": [1]}', "tensors"),
    "of a name twice": (b'{"tensors": {"a": [2], "a": [3]}}', "more than once"),
    "of a shape that is text": (b'{"tensors": {"a": "2"}}', "'a'"),
    "of a shape of null": (b'{"tensors": {"a": null}}', "'a'"),
    "of a shape below zero": (b'{"tensors": {"a": [-1]}}', "'a'"),
    "of a dtype unknown": (b'{"tensors": {"a": {"shape": [1], "dtype": "F99"}}}', "F99"),
    "of a config that is text": (b'{"tensors": {"a": [1]}, "config": "x"}', "config"),
    "cut short": (b'{"tensors": {"a": [1', "not JSON"),
}  # fmt: skip


def directory(folder: Path) -> Path:
    (folder / "model.safetensors").mkdir()
    return folder


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "model.safetensors")
    return folder


def loop(folder: Path) -> Path:
    (folder / "model.safetensors").symlink_to("model.safetensors")
    return folder


def config_directory(folder: Path) -> Path:
    (write(folder / "x", bert()[0]) / "config.json").mkdir()
    return folder / "x"


def config_pipe(folder: Path) -> Path:
    os.mkfifo(write(folder / "x", bert()[0]) / "config.json")
    return folder / "x"


def hidden_name(folder: Path) -> Path:
    return write(folder / 'a"""\nimport os\n"b', *bert())


def two_weight_files(folder: Path) -> Path:
    for name in ("a.safetensors", "b.safetensors"):
        (folder / name).write_bytes(ONE)
    return folder


SPECIAL: dict[str, tuple[Make, str]] = {
    "weights are a directory": (directory, "directory"),
    "weights are a pipe": (pipe, "not a regular file"),
    "weights link to themselves": (loop, "cannot be opened"),
    "config is a directory": (config_directory, "config.json"),
    "config is a pipe": (config_pipe, "config.json"),
    "folder is empty": (lambda folder: folder, "no weights"),
    "file is not there": (lambda folder: folder / "nothing.safetensors", "no such file"),
    "name is empty": (lambda folder: "", "no such file"),
    "name has a null byte": (lambda folder: "./a\0b", "no such file"),
    "name is of 5,000 characters": (lambda folder: "./" + "a" * 5000, "aaaa"),
    "name is an option": (lambda folder: "--nosuch", "--nosuch"),
    "package is not there": (lambda folder: "package:no_such_package_at_all", "no_such_package_at_all"),
    "package is code": (lambda folder: "package:os;import sys", "package"),
    "two weight files of no standard name": (two_weight_files, "none is called"),
}


def _set(name: str, error: str, *pairs: str, **more: Any) -> Case:
    arguments = tuple(word for pair in pairs for word in ("--set", pair))
    return spoilt(f"--set {name}", "bert", arguments=arguments, error=error, **more)


GIVEN = [
    _set("without a value", "FACT=VALUE", "attention.heads"),
    _set("with an empty value", "FACT=VALUE", "attention.heads="),
    _set("of an unknown fact", "no fact", "nosuch.fact=1"),
    _set("of a fact misspelled", "attention.heads", "attention.head=4"),
    _set("of a text for a number", "attention.heads", "attention.heads=four"),
    _set("of a negative number", "attention.heads", "attention.heads=-4"),
    _set("of a number that does not divide", "attention.heads", "attention.heads=5"),
    _set("against the shapes", "hidden_size", "hidden_size=32"),
    _set("of two values", "given twice", "attention.heads=4", "attention.heads=2"),
    _set("for a part that is not there", "no part", "nowhere:attention.heads=4"),
    _set("of code", "__import__", "feed_forward.activation=__import__('os').system('touch pwned')"),
    _set("of deep JSON", "attention.heads", "attention.heads=" + "[" * 5000),
    _set("of NaN", "norm.eps", "norm.eps=NaN"),
    _set("of an unknown task", "task", "task=nosuch"),
    spoilt(
        "--set what the config says too",
        "bert",
        arguments=("--set", "attention.heads=4"),
        reading="unverified",
        same="bert",
    ),
]

CASES: list[Case] = [
    *(Case(f"a safetensors file {name}", file("model.safetensors", data), error=error) for name, (data, error) in WEIGHTS.items()),
    *(Case(f"a torch file that {name}", file("pytorch_model.bin", data), error=error) for name, (data, error) in PICKLES.items()),
    *(Case(f"an index that {name}", make, error=error) for name, (make, error) in SHARDS.items()),
    *(Case(f"a manifest {name}", file("manifest.json", data, config=False), error=error) for name, (data, error) in MANIFESTS.items()),
    *(Case(name, make, error=error) for name, (make, error) in SPECIAL.items()),
    *GIVEN,
    Case("a folder of a hostile name", hidden_name, reading="exact", same="bert"),
    spoilt("the good one", "bert", reading="exact", same="bert"),
    *(spoilt(f"the good {name}", name, reading="exact", same=name) for name in GOOD),
]  # fmt: skip
