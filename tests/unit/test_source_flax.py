"""Trees of arrays: Flax's files, slashes in npz archives; the same model as from torch's names."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import mapper
from mapper import limits
from mapper.checkpoint import Checkpoint
from mapper.errors import FormatError
from mapper.rulebook.trees import trees
from mapper.sources import open_source
from mapper.sources.trees import example_names
from tests.checkpoints import BERT, bert_shapes
from tests.flax_files import packed


def opened(path: Path) -> tuple[Checkpoint, dict[str, torch.Tensor]]:
    checkpoint = open_source(path, purpose="weights")
    assert checkpoint.read is not None
    return checkpoint, checkpoint.read(list(checkpoint.tensors))


def refusal(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(FormatError) as caught:
        opened(path)
    assert str(caught.value).startswith(path.name) and "\n" not in str(caught.value)
    return str(caught.value)


def flax_file(path: Path, tree: dict[str, Any]) -> Path:
    path.write_bytes(packed(tree))
    return path


def bert() -> dict[str, torch.Tensor]:
    made = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=made) for name, shape in bert_shapes().items()}


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = name.split("/")
        inner = tree
        for word in path:
            inner = inner.setdefault(word, {})
        inner[last] = value
    return tree


def as_flax(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The same model as transformers' Flax classes save it."""
    flat = {}
    for name, tensor in tensors.items():
        path, _, last = name.rpartition(".")
        if last == "weight":
            last = (
                "embedding"
                if "embeddings." in path and tensor.dim() > 1
                else "kernel"
                if tensor.dim() > 1
                else "scale"
            )
        array = tensor.numpy()
        flat[f"{path}.{last}".replace(".", "/")] = (
            np.ascontiguousarray(array.T) if last == "kernel" else array
        )
    return nested(flat)


def as_tensorflow(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The same model as google-research/bert names it."""
    flat = {}
    for name, tensor in tensors.items():
        path, _, last = name.rpartition(".")
        array = tensor.numpy()
        if "LayerNorm" in path:
            last = {"weight": "gamma", "bias": "beta"}[last]
        elif last == "weight" and path.endswith("_embeddings"):
            flat[path.replace(".", "/")] = array
            continue
        elif last == "weight":
            last, array = "kernel", np.ascontiguousarray(array.T)
        flat[f"{path}.{last}".replace("layer.", "layer_").replace(".", "/")] = array
    return flat


@pytest.mark.parametrize("kind", ["flax", "tensorflow", "slashes"])
def test_the_model_is_the_one_of_a_safetensors_file(kind: str, tmp_path: Path) -> None:
    tensors = bert()
    for folder in ("theirs", "ours"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(json.dumps(BERT))
    save_file(tensors, tmp_path / "ours" / "model.safetensors")
    if kind == "flax":
        flax_file(tmp_path / "theirs" / "flax_model.msgpack", as_flax(tensors))
    elif kind == "tensorflow":
        np.savez(tmp_path / "theirs" / "model.npz", adam_m=np.ones(1), **as_tensorflow(tensors))
    else:
        words = {"/".join(path): value for path, value in leaves(as_flax(tensors))}
        np.savez_compressed(tmp_path / "theirs" / "model.npz", **words)
    checkpoint, read = opened(tmp_path / "theirs")
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)
    one, other = mapper.build(tmp_path / "theirs"), mapper.build(tmp_path / "ours")
    ids = torch.tensor([[1, 2, 3, 40]])
    assert torch.equal(one(input_ids=ids).last_hidden_state, other(input_ids=ids).last_hidden_state)
    assert any(note.startswith("names and arrangement of") for note in checkpoint.notes)


def leaves(tree: Any, path: tuple[str, ...] = ()) -> Any:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


@pytest.mark.parametrize("tree", trees(), ids=lambda tree: tree.name)
def test_the_examples_of_a_rule_file_are_as_it_says(tree: Any) -> None:
    assert tree.examples
    for example in tree.examples:
        assert example_names(tree, example) == example["names"]


def test_kernels_of_convolutions_are_turned(tmp_path: Path) -> None:
    convolution = torch.nn.Conv2d(3, 5, (2, 4))
    kernel = convolution.weight.detach().permute(2, 3, 1, 0).contiguous().numpy()
    _, read = opened(flax_file(tmp_path / "x.msgpack", {"params": {"conv": {"kernel": kernel}}}))
    assert torch.equal(read["conv.weight"], convolution.weight)


def test_every_type_of_array_and_what_stands_beside_them(tmp_path: Path) -> None:
    types = pytest.importorskip("ml_dtypes")
    tree = {
        "a": {"kernel": np.ones((2, 3), np.float16), "bias": np.array([1.5]).astype(types.bfloat16)},
        "scale": np.float32(2.5),
        "step": 7, "names": ["x", None, {"y": 1.5}], "raw": b"x" * 300, "long" * 20: True, "n": -5, "none": {},
    }  # fmt: skip
    _, read = opened(flax_file(tmp_path / "x.msgpack", tree))
    assert {name: (list(tensor.shape), tensor.dtype) for name, tensor in read.items()} == {
        "a.weight": ([3, 2], torch.float16),
        "a.bias": ([1], torch.bfloat16),
        "weight": ([], torch.float32),
    }
    assert read["a.bias"].item() == 1.5


def test_what_flax_writes_is_read(tmp_path: Path) -> None:
    flax = pytest.importorskip("flax.serialization")
    tree = {"layer": {"kernel": np.arange(6.0).reshape(2, 3), "bias": np.ones(3)}, "step": 3}
    (tmp_path / "x.msgpack").write_bytes(flax.msgpack_serialize(tree))
    _, read = opened(tmp_path / "x.msgpack")
    assert torch.equal(read["layer.weight"], torch.arange(6.0).view(2, 3).double().t())


def test_trees_of_anything_else_keep_their_names(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "x.npz", **{"a/bias": np.ones(2), "a/other": np.ones((2, 3)), "kernel": np.ones((2, 3))}
    )
    checkpoint, read = opened(tmp_path / "x.npz")
    assert list(read) == ["a/bias", "a/other", "kernel"] and read["kernel"].shape == (2, 3)
    assert checkpoint.notes == []
    np.savez(tmp_path / "y.npz", kernel=np.ones((2, 3)))
    assert opened(tmp_path / "y.npz")[1]["kernel"].shape == (2, 3)


WHOLE = packed({"a": np.ones(2, np.float32)})
REFUSED = {
    "nothing": (b"", "empty"),
    "a list": (packed([1]), "a list where a table of arrays is needed"),
    "more behind": (WHOLE + b"x", "1 bytes after the table"),
    "an unknown byte": (b"\x81\xa1a\xc1", "the byte 0xc1, which MessagePack does not have"),
    "a number for a name": (b"\x81\x01\x01", "where a name is needed"),
    "a huge table": (b"\xdf\xff\xff\xff\xff", "the file ends after 5 bytes"),
    "a huge text": (b"\x81\xdb\xff\xff\xff\xff", "a text of size 4,294,967,295"),
    "a huge value": (b"\x81\xa1a\xc6\xff\xff\xff\xff", "the file ends after"),
    "deep tables": (b"\x81\xa1a" * 100 + b"\xc0", "nested more than 64 levels"),
    "an unknown type": (WHOLE.replace(b"float32", b"float99"), "of the type 'float99', which no tensor has"),
    "another shape": (WHOLE.replace(b"\xdc\x00\x01\x02", b"\xdc\x00\x01\x03"), "has 8 bytes where F32 [3] needs 12"),
    "a shape of texts": (WHOLE.replace(b"\xdc\x00\x01\x02", b"\xdc\x00\x01\xa0"), "has the shape"),
    "an array in chunks": (packed({"a": {"__msgpack_chunked_array__": True}}), "'a' is in chunks"),
    "no arrays": (packed({"step": 1}), "no tensors in it"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_damaged_file_is_refused(case: str, tmp_path: Path) -> None:
    data, expected = REFUSED[case]
    assert expected in refusal(tmp_path / "x.msgpack", data)


def test_a_cut_file_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    data = packed(as_flax({"layer.weight": torch.ones(2, 3), "layer.bias": torch.ones(2)}))
    for end in range(len(data)):
        refusal(tmp_path / "x.msgpack", data[:end])


def test_the_number_of_items_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MSGPACK_ITEMS", 10)
    assert "more than 10 items" in refusal(tmp_path / "x.msgpack", packed({"a": [1] * 20}))


def test_two_tensors_cannot_get_one_name(tmp_path: Path) -> None:
    tree = {"a": {"kernel": np.ones((2, 2)), "scale": np.ones(2)}}
    assert "two tensors become 'a.weight' of the model" in refusal(tmp_path / "x.msgpack", packed(tree))


def test_headers_need_neither_torch_nor_numpy(tmp_path: Path) -> None:
    flax_file(tmp_path / "x.msgpack", as_flax(bert()))
    program = (
        "import sys; from mapper.sources import open_source; open_source(sys.argv[1], purpose='headers');"
        "assert not {'torch', 'numpy', 'msgpack'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "x.msgpack")], check=True)


def test_the_state_of_an_optimizer_beside_a_model_is_left(tmp_path: Path) -> None:
    params = {"Dense_0": {"kernel": np.ones((3, 4), np.float32), "bias": np.ones(4, np.float32)}}
    state = {"0": {"count": np.array(2, np.int32), "mu": params}, "1": {}}
    (tmp_path / "state.msgpack").write_bytes(packed({"step": 2, "params": params, "opt_state": state}))
    found = open_source(tmp_path / "state.msgpack", purpose="headers")
    assert {name: info.shape for name, info in found.tensors.items()} == {
        "Dense_0.weight": (4, 3),
        "Dense_0.bias": (4,),
    }
    assert any("3 tensors were left out, the state of an optimizer" in note for note in found.notes)
