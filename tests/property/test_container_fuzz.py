"""Changed bytes in a file of any container: an error that names it, or a table; never another exception."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from mapper.errors import MapperError
from mapper.sources import open_source
from tests.flax_files import packed
from tests.gguf_files import gguf_bytes
from tests.onnx_files import beside, held, initialiser, model

ARRAYS = {
    "a": np.arange(6.0).reshape(2, 3),
    "b": np.ones(2, ">i2"),
    "c": np.asfortranarray(np.ones((2, 2), "f4")),
}


def written(save: Callable[..., None], *arguments: object, **arrays: object) -> bytes:
    held = io.BytesIO()
    save(held, *arguments, **arrays)
    return held.getvalue()


SAMPLES = {
    "stored.npz": written(np.savez, **ARRAYS),
    "deflated.npz": written(np.savez_compressed, **ARRAYS),
    "model.safetensors": save({"a": torch.ones(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)}, {"x": "y"}),
    "zip.pt": written(
        lambda held: torch.save({"model": {"a": torch.ones(2, 3), "b": torch.ones(2).half()}}, held)
    ),
    "legacy.pt": written(
        lambda held: torch.save({"a": torch.ones(2, 3)}, held, _use_new_zipfile_serialization=False)
    ),
    "array.npy": written(np.save, ARRAYS["c"]),
    "model.onnx": model(
        initialiser("a", [2], 1, held(9, bytes(8))), initialiser("b", [2], 7, held(7, b"\x01\xff\x02"))
    ),
    "beside.onnx": model(initialiser("a", [2], 1, beside("model.onnx", offset=4, length=8))),
    "flax.msgpack": packed(
        {"a": {"kernel": np.ones((2, 3), np.float32), "bias": np.ones(3)}, "step": [1, "x", 2.5]}
    ),
    "plain.gguf": gguf_bytes(
        {"general.architecture": "llama", "llama.attention.head_count": 2, "x": [1.5, 2.0], "y": "text"},
        {"blk.0.attn_q.weight": np.ones((4, 4)), "output.weight": np.ones(4, np.float32)},
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
@given(
    changes=st.lists(st.tuples(st.integers(0, 2**32), st.integers(0, 255)), min_size=1, max_size=6),
    cut=st.integers(0, 40),
)
@settings(max_examples=150)
def test_changed_bytes_give_an_error_or_a_table(
    name: str, changes: list[tuple[int, int]], cut: int, tmp_path: Path
) -> None:
    data = bytearray(SAMPLES[name])
    for at, value in changes:
        data[at % len(data)] = value
    (tmp_path / name).write_bytes(data[: len(data) - cut] if cut > 20 else data)
    try:
        checkpoint = open_source(tmp_path / name, purpose="weights")
        assert checkpoint.read is not None
        checkpoint.read(list(checkpoint.tensors))
    except MapperError as error:
        assert "\n" not in str(error)
