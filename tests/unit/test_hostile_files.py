"""Files made to take time, memory, or what lies elsewhere: each refused for what it does."""

from __future__ import annotations

import io
import os
import pickle
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from mapper import limits
from mapper.errors import FormatError, MapperError, SourceError
from mapper.sources import files, open_source
from tests.fuzzing import TARGETS

SECONDS = 1.0  # of processor time


def laughs(bottom: Any, times: int = 10, depth: int = 40) -> Any:
    """Lists that hold one other many times: few bytes, and more entries than anybody could look at."""
    for _ in range(depth):
        bottom = [bottom] * times
    return bottom


def refused(parse: Callable[[], object], said: str) -> None:
    start = time.process_time()
    with pytest.raises(MapperError, match=said):
        parse()
    assert time.process_time() - start < SECONDS


def torch_file(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def test_one_tensor_under_endlessly_many_names(tmp_path: Path) -> None:
    data = torch_file({"a": laughs(torch.ones(2))})
    refused(
        lambda: TARGETS["torch-zip"].parse(data),
        f"more names than .* at most {limits.PICKLE_NAMES:,} are read",
    )


def test_tables_without_a_tensor_take_no_time(tmp_path: Path) -> None:
    start = time.process_time()
    TARGETS["torch-zip"].parse(torch_file({"a": laughs(3), "weight": torch.ones(2)}))
    assert time.process_time() - start < SECONDS


def test_tables_that_hold_themselves_take_no_time() -> None:
    empty: list[Any] = []
    empty += [empty] * 10
    start = time.process_time()
    TARGETS["torch-zip"].parse(torch_file({"a": empty, "weight": torch.ones(2)}))
    assert time.process_time() - start < SECONDS
    full: list[Any] = [torch.ones(2)]
    full += [full] * 10
    refused(lambda: TARGETS["torch-zip"].parse(torch_file({"a": full})), "levels deep|more names")


def test_a_tensor_may_have_several_names() -> None:
    shared = {"w": torch.ones(2)}
    file = io.BytesIO(torch_file({"a": shared, "b": [shared, shared]}))
    with zipfile.ZipFile(file) as archive:
        assert len([name for name in archive.namelist() if "/data/" in name]) == 1
    TARGETS["torch-zip"].parse(file.getvalue())


def test_a_legacy_file_whose_version_is_endless() -> None:
    magic = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
    data = magic + b"".join(pickle.dumps(value, protocol=2) for value in (laughs(1), {}, {}, []))
    refused(lambda: TARGETS["torch-legacy"].parse(data), r"unknown layout \(a list\)")


def test_an_archive_whose_records_overlap() -> None:
    """Many records that all unpack the same compressed piece: a megabyte that becomes a thousand gigabytes."""
    file = io.BytesIO()
    np.savez_compressed(file, a=np.zeros(10**6))
    data = bytearray(file.getvalue())
    at = data.rindex(b"PK\x01\x02")
    end = data.rindex(b"PK\x05\x06")
    entry = data[at:end]
    copies = [entry.replace(b"a.npy", b"%c.npy" % (98 + number)) for number in range(20)]
    data[end:end] = b"".join(copies)
    end = data.rindex(b"PK\x05\x06")
    data[end + 8 : end + 16] = (21).to_bytes(2, "little") * 2 + (21 * len(entry)).to_bytes(4, "little")
    refused(lambda: TARGETS["npz"].parse(bytes(data)), "overlap")


def test_a_directory_of_an_archive_is_not_read_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    np.savez(file, **{f"array{at}": np.ones(1) for at in range(20)})
    monkeypatch.setattr(limits, "HEADER_BYTES", 1000)
    refused(lambda: TARGETS["npz"].parse(file.getvalue()), "a directory of .* at most 1,000 are read")


@pytest.mark.parametrize("name", ["model.safetensors", "model-00001-of-00001.safetensors", "config.json"])
def test_a_link_out_of_the_directory_is_not_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret.json").write_text("{}")
    save_file({"a": torch.ones(2)}, tmp_path / "secret.safetensors")
    save_file({"a": torch.ones(2)}, tmp_path / "in" / "model.safetensors")
    if name != "config.json":
        (tmp_path / "in" / "model.safetensors").unlink()
    (tmp_path / "in" / name).symlink_to(f"../secret{Path(name).suffix}")
    refused(lambda: open_source(tmp_path / "in", purpose="headers"), "is a link out of its directory")


def test_a_link_within_the_directory_and_to_the_directory_are_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    save_file({"a": torch.ones(2)}, tmp_path / "in" / "weights")
    (tmp_path / "in" / "model.safetensors").symlink_to("weights")
    (tmp_path / "out").symlink_to("in")
    assert list(open_source(tmp_path / "out", purpose="headers").tensors) == ["a"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_that_takes_the_place_of_a_file_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "good").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    status = os.stat(tmp_path / "good")
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", lambda path: status)
        with pytest.raises(SourceError, match="not a regular file any more"):
            files.open_regular(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "config.json", "model.npz"])
def test_devices_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises((SourceError, FormatError)):
        open_source(tmp_path / name, purpose="headers")
