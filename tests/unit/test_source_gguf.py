"""GGUF files: the same model as from safetensors, and what is refused."""

from __future__ import annotations

import struct
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
from mapper.errors import FormatError, MapperError, MissingSourceError, SourceError
from mapper.sources import ggml, open_source
from mapper.sources.gguf import shortest
from tests.gguf_files import gguf_bytes, pairs, text

HEADS, KEYS = 4, 2
LAYER = {
    "attn_norm": ("input_layernorm", (32,)),
    "attn_q": ("self_attn.q_proj", (32, 32)),
    "attn_k": ("self_attn.k_proj", (16, 32)),
    "attn_v": ("self_attn.v_proj", (16, 32)),
    "attn_output": ("self_attn.o_proj", (32, 32)),
    "ffn_norm": ("post_attention_layernorm", (32,)),
    "ffn_gate": ("mlp.gate_proj", (64, 32)),
    "ffn_up": ("mlp.up_proj", (64, 32)),
    "ffn_down": ("mlp.down_proj", (32, 64)),
}
METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.embedding_length": 32,
    "llama.feed_forward_length": 64,
    "llama.context_length": 128,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KEYS,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.tokens": [f"w{number}" for number in range(48)],
    "tokenizer.ggml.eos_token_id": 2,
}
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEYS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}


def llama() -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, torch.Tensor]]:
    """A tiny llama as a GGUF file has it, and as its own library does."""
    noise = np.random.default_rng(0)
    names = {"token_embd": ("model.embed_tokens", (48, 32)), "output_norm": ("model.norm", (32,))}
    for at in range(2):
        names |= {
            f"blk.{at}.{key}": (f"model.layers.{at}.{name}", shape) for key, (name, shape) in LAYER.items()
        }
    theirs, own = {}, {}
    for key, (name, shape) in names.items():
        array = noise.standard_normal(shape).astype(np.float32)
        own[f"{name}.weight"] = torch.from_numpy(array)
        heads = {"attn_q": HEADS, "attn_k": KEYS}.get(key.rpartition(".")[2])
        theirs[f"{key}.weight"] = pairs(array, heads) if heads else array
    return theirs, own


def written(path: Path, metadata: dict[str, Any], tensors: dict[str, Any], **options: Any) -> Path:
    path.write_bytes(gguf_bytes(metadata, tensors, **options))
    return path


def opened(path: Path) -> tuple[Checkpoint, dict[str, torch.Tensor]]:
    checkpoint = open_source(path, purpose="weights")
    assert checkpoint.read is not None
    return checkpoint, checkpoint.read(list(checkpoint.tensors))


def refusal(path: Path, kind: type[MapperError] = FormatError) -> str:
    with pytest.raises(kind) as caught:
        opened(path)
    assert str(caught.value).startswith(path.name) and "\n" not in str(caught.value)
    return str(caught.value)


def test_names_and_the_order_of_rotary_rows_are_undone(tmp_path: Path) -> None:
    theirs, own = llama()
    checkpoint, read = opened(written(tmp_path / "x.gguf", METADATA, theirs))
    assert read.keys() == own.keys()
    assert all(torch.equal(read[name], own[name]) for name in own)
    assert checkpoint.container == "gguf"
    assert checkpoint.notes == ["names and arrangement of gguf undone (llama)"]


def test_the_metadata_is_the_config(tmp_path: Path) -> None:
    config = opened(written(tmp_path / "x.gguf", METADATA, llama()[0]))[0].config
    assert config is not None
    assert {key: config.get(key) for key in CONFIG} == CONFIG
    assert (config["vocab_size"], config["eos_token_id"]) == (48, 2)


def test_the_model_is_the_one_of_a_safetensors_file(tmp_path: Path) -> None:
    theirs, own = llama()
    written(tmp_path / "x.gguf", METADATA, theirs)
    save_file(own, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(__import__("json").dumps(CONFIG))
    one, other = mapper.build(tmp_path / "x.gguf"), mapper.build(tmp_path / "model.safetensors")
    ids = torch.tensor([[1, 2, 3, 40]])
    assert torch.equal(one(input_ids=ids).logits, other(input_ids=ids).logits)
    assert mapper.inspect(tmp_path / "x.gguf").architecture.reading == "exact"


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_are_read(version: int, tmp_path: Path) -> None:
    assert len(opened(written(tmp_path / "x.gguf", METADATA, llama()[0], version=version))[1]) == 20


def test_parts_of_a_model_are_one(tmp_path: Path) -> None:
    theirs, own = llama()
    names = list(theirs)
    first, second = {**METADATA, "split.count": 2}, {"split.no": 1, "split.count": 2}
    for at, (metadata, part) in enumerate([(first, names[:5]), (second, names[5:])]):
        path = tmp_path / f"m-0000{at + 1}-of-00002.gguf"
        written(path, metadata, {name: theirs[name] for name in part})
    for source in (tmp_path, tmp_path / "m-00001-of-00002.gguf", tmp_path / "m-00002-of-00002.gguf"):
        read = opened(source)[1]
        assert read.keys() == own.keys() and all(torch.equal(read[name], own[name]) for name in own)
    (tmp_path / "m-00002-of-00002.gguf").rename(tmp_path / "second.gguf")
    with pytest.raises(MissingSourceError, match="1 of 2 shards are missing"):
        opened(tmp_path / "m-00001-of-00002.gguf")
    assert "its name is not one of parts" in refusal(tmp_path / "second.gguf", SourceError)


def test_several_types_are_given_as_one_that_holds_all(tmp_path: Path) -> None:
    theirs, own = llama()
    halves = {key: value.astype(np.float16) if value.ndim == 2 else value for key, value in theirs.items()}
    checkpoint, read = opened(written(tmp_path / "x.gguf", METADATA, halves))
    assert {info.dtype for info in checkpoint.tensors.values()} == {"F32"}
    assert torch.equal(read["model.norm.weight"], own["model.norm.weight"])
    assert torch.equal(read["model.embed_tokens.weight"], own["model.embed_tokens.weight"].half().float())
    assert checkpoint.notes[0].startswith("F16 is given as F32")
    del halves["output_norm.weight"]
    alone = {key: value for key, value in halves.items() if value.ndim == 2}
    assert (
        opened(written(tmp_path / "y.gguf", METADATA, alone))[1]["model.embed_tokens.weight"].dtype
        is torch.half
    )


def test_experts_are_taken_apart(tmp_path: Path) -> None:
    stack = np.arange(3 * 4 * 32, dtype=np.float32).reshape(3, 4, 32)
    metadata = {"general.architecture": "llama", "llama.attention.head_count": 1}
    checkpoint, read = opened(written(tmp_path / "x.gguf", metadata, {"blk.1.ffn_gate_exps.weight": stack}))
    assert list(read) == [
        f"model.layers.1.block_sparse_moe.experts.{number}.w1.weight" for number in range(3)
    ]
    assert all(np.array_equal(tensor, stack[at]) for at, tensor in enumerate(read.values()))
    assert checkpoint.config is not None and checkpoint.config["model_type"] == "mixtral"


def test_the_angles_of_later_llamas_are_found_in_their_divisors(tmp_path: Path) -> None:
    def divisors(factor: float) -> np.ndarray[Any, Any]:
        from transformers import LlamaConfig
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        rope = {"rope_type": "llama3", "rope_theta": 5e5, "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}  # fmt: skip
        config = LlamaConfig(hidden_size=256, num_attention_heads=2, head_dim=128, rope_parameters=rope)
        angles = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")[0]
        plain = 1.0 / (5e5 ** (torch.arange(0, 128, 2) / 128))
        return (plain / angles).numpy().astype(np.float32)

    pytest.importorskip("transformers")
    metadata = {**METADATA, "llama.rope.freq_base": 500000.0}
    tensors = {**llama()[0], "rope_freqs.weight": divisors(32.0)}
    checkpoint, _ = opened(written(tmp_path / "x.gguf", metadata, tensors))
    assert checkpoint.config is not None
    assert checkpoint.config["rope_scaling"]["factor"] == 32 and "rope_freqs.weight" not in checkpoint.tensors
    tensors["rope_freqs.weight"] = np.linspace(1, 32, 64, dtype=np.float32)
    assert "that no known setting gives" in refusal(
        written(tmp_path / "y.gguf", metadata, tensors), SourceError
    )


def test_an_unknown_architecture_keeps_its_names_and_says_so(tmp_path: Path) -> None:
    checkpoint, _ = opened(
        written(tmp_path / "x.gguf", {"general.architecture": "tale"}, {"a.b": np.ones(2)})
    )
    assert list(checkpoint.tensors) == ["a.b"] and checkpoint.config is None
    assert checkpoint.notes == ["no naming knows the architecture 'tale': names are those in the file"]
    checkpoint, _ = opened(written(tmp_path / "y.gguf", METADATA, {"tale.weight": np.ones(2)}))
    assert "names that the naming 'llama' does not have stay as they are: 'tale.weight'" in checkpoint.notes


@pytest.mark.parametrize("kind", [number for number, kind in ggml.TYPES.items() if not kind.dtype])
def test_blocks_are_dequantised(kind: int, tmp_path: Path) -> None:
    package = pytest.importorskip("gguf")
    blocks = np.random.default_rng(kind).integers(0, 255, (6, ggml.TYPES[kind].bytes), np.uint8)
    checkpoint, read = opened(written(tmp_path / "x.gguf", METADATA, {"token_embd.weight": blocks}, kinds={"token_embd.weight": kind}))  # fmt: skip
    with np.errstate(all="ignore"):
        expected = package.quants.dequantize(blocks, package.GGMLQuantizationType(kind))
    found = read["model.embed_tokens.weight"].numpy()
    assert found.shape == checkpoint.tensors["model.embed_tokens.weight"].shape == (6, ggml.TYPES[kind].block)
    assert np.array_equal(found, expected, equal_nan=True)
    assert ggml.TYPES[kind].name in checkpoint.notes[0]


@pytest.mark.parametrize("rows", [1, ggml.ROW, ggml.ROW + 1, 16 * ggml.ROW, 17 * ggml.ROW + 5])
def test_any_number_of_blocks_is_dequantised(rows: int, tmp_path: Path) -> None:
    package = pytest.importorskip("gguf")
    blocks = np.random.default_rng(0).integers(0, 60, (rows, 20), np.uint8)
    path = written(tmp_path / "x.gguf", METADATA, {"output.weight": blocks}, kinds={"output.weight": 3})
    expected = package.quants.dequantize(blocks.reshape(1, -1), package.GGMLQuantizationType.Q4_1)
    assert np.array_equal(opened(path)[1]["lm_head.weight"].numpy().reshape(-1), expected[0], equal_nan=True)


def test_quantised_weights_are_close_to_what_they_were(tmp_path: Path) -> None:
    package = pytest.importorskip("gguf")
    values = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    blocks = package.quants.quantize(pairs(values, HEADS), package.GGMLQuantizationType.Q8_0)
    name = "blk.0.attn_q.weight"
    read = opened(written(tmp_path / "x.gguf", METADATA, {name: blocks}, kinds={name: 8}))[1]
    assert np.abs(read["model.layers.0.self_attn.q_proj.weight"].numpy() - values).max() < 0.02


def test_without_the_package_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf")
    path = written(tmp_path / "x.gguf", METADATA, {"output.weight": np.zeros((2, 18), np.uint8)}, kinds={"output.weight": 2})  # fmt: skip
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert list(open_source(path, purpose="headers").tensors) == ["lm_head.weight"]
    assert "pip install 'checkpoint-mapper[gguf]'" in refusal(path, SourceError)


def test_floats_are_the_shortest_that_are_stored_so() -> None:
    for value in (1e-5, 1e-6, 0.1, 10000.0, 1.0, 3.0e38, 0.0, -2.5):
        assert shortest(struct.unpack("<f", struct.pack("<f", value))[0]) == pytest.approx(value, rel=1e-7)
    assert shortest(9.999999747378752e-06) == 1e-05 and shortest(float("inf")) == float("inf")


def head(tensors: int = 0, entries: int = 0, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries) + rest


def tensor(shape: list[int], kind: int = 0, start: int = 0, name: str = "a") -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, start)


REFUSED = {
    "cut after its magic": (b"GGUF", "ends within its header, at byte 4"),
    "of version 1": (head(version=1), "version 1 of GGUF, read are 2 and 3"),
    "of a big-endian machine": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "of too many tensors": (head(2**60), "tensors, at most 2,000,000"),
    "of too much metadata": (head(0, 2**60), "entries of metadata, at most"),
    "with a long text": (head(0, 1, struct.pack("<Q", 2**40)), "a text of 1,099,511,627,776 bytes"),
    "with a key twice": (head(0, 2, (text("a") + struct.pack("<IB", 0, 1)) * 2), "'a' stands twice"),
    "with an unknown kind": (head(0, 1, text("a") + struct.pack("<I", 99)), "'a' in its metadata is of type 99"),
    "with lists in lists": (head(0, 1, text("a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 50), "at depth"),
    "with a huge list": (head(0, 1, text("a") + struct.pack("<IIQ", 9, 8, 2**50)), "items of lists"),
    "with a list beyond its end": (head(0, 1, text("a") + struct.pack("<IIQ", 9, 0, 2**50)), "ends within"),
    "with an odd alignment": (head(0, 1, text("general.alignment") + struct.pack("<II", 4, 7)), "'general.alignment' is '7'"),
    "of an unknown type": (head(1, 0, tensor([1], 77)), "the type 77 of GGML"),
    "of many dimensions": (head(1, 0, text("a") + struct.pack("<I", 2**31)), "dimensions"),
    "of broken blocks": (head(1, 0, tensor([33], 2)), "no multiple of the 32 numbers of a block of Q4_0"),
    "with a tensor beyond its end": (head(1, 0, tensor([100])) + bytes(64), "but the file has"),
    "with a start between": (head(1, 0, tensor([1], 0, 3)) + bytes(64), "no multiple of 32"),
    "with a name twice": (head(2, 0, tensor([1]) * 2) + bytes(64), "two tensors have the name 'a'"),
    "without tensors": (head(), "no tensors in it"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_damaged_file_is_refused(case: str, tmp_path: Path) -> None:
    data, expected = REFUSED[case]
    (tmp_path / "x.gguf").write_bytes(data)
    assert expected in refusal(tmp_path / "x.gguf")


def test_a_cut_file_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    data = gguf_bytes(METADATA, {"a.weight": np.ones(8, np.float32)})
    for end in range(0, len(data), 7):
        (tmp_path / "x.gguf").write_bytes(data[:end])
        refusal(tmp_path / "x.gguf")


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"llama.attention.head_count": 5}, "which 5 heads do not divide"),
        ({"llama.attention.head_count": 0}, "'llama.attention.head_count' is '0'"),
        ({"llama.attention.head_count": "x"}, "'llama.attention.head_count' is 'x'"),
        ({}, "'llama.attention.head_count' is missing"),
    ],
)
def test_rows_that_the_metadata_cannot_arrange_are_refused(
    metadata: Any, expected: str, tmp_path: Path
) -> None:
    metadata = {"general.architecture": "llama", **metadata}
    path = written(tmp_path / "x.gguf", metadata, {"blk.0.attn_q.weight": np.ones((32, 32), np.float32)})
    assert expected in refusal(path)


def test_an_adapter_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "x.gguf", {**METADATA, "general.type": "adapter"}, {"a": np.ones(2)})
    assert "a GGUF file of the type 'adapter', not of a whole model" in refusal(path, SourceError)


def test_headers_need_neither_torch_nor_numpy_nor_the_package(tmp_path: Path) -> None:
    written(tmp_path / "x.gguf", METADATA, llama()[0])
    program = (
        "import sys; from mapper.sources import open_source; open_source(sys.argv[1], purpose='headers');"
        "assert not {'torch', 'numpy', 'gguf'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "x.gguf")], check=True)
    assert limits.GGUF_TEXT_BYTES < limits.HEADER_BYTES
