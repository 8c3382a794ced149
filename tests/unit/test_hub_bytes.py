"""How much of a remote model is fetched to say what it is: its config, and headers, in as few requests."""

from __future__ import annotations

import io
import json
import struct

import pytest

import mapper
from mapper.checkpoint import Checkpoint
from mapper.sources import open_source
from tests.hub import Hub, Serve, safetensors

BLOCK = 4_096


def header_bytes(content: bytes) -> int:
    return 8 + int.from_bytes(content[:8], "little")


def requests(hub: Hub, suffix: str) -> int:
    return sum(request.path.startswith("/cdn/") and request.path.endswith(suffix) for request in hub.log)


def fetched(hub: Hub) -> int:
    """The bytes of all files; what describes the repository is no file."""
    return sum(request.sent for request in hub.log if not request.path.startswith("/api/"))


BERT = {
    "embeddings.word_embeddings.weight": [3052, 76],
    "embeddings.position_embeddings.weight": [512, 76],
    "embeddings.token_type_embeddings.weight": [2, 76],
    "embeddings.LayerNorm.weight": [76],
    "embeddings.LayerNorm.bias": [76],
    **{
        f"encoder.layer.{layer}.{name}.{kind}": shape if kind == "weight" else shape[:1]
        for layer in range(12)
        for name, shape in {
            "attention.self.query": [76, 76],
            "attention.self.key": [76, 76],
            "attention.self.value": [76, 76],
            "attention.output.dense": [76, 76],
            "attention.output.LayerNorm": [76],
            "intermediate.dense": [304, 76],
            "output.dense": [76, 304],
            "output.LayerNorm": [76],
        }.items()
        for kind in ("weight", "bias")
    },
    "pooler.dense.weight": [76, 76],
    "pooler.dense.bias": [76],
}
BERT_CONFIG = {
    "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 76, "num_hidden_layers": 12,
    "num_attention_heads": 4, "intermediate_size": 304, "vocab_size": 3052, "max_position_embeddings": 512,
    "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
}  # fmt: skip


def test_one_file_is_one_range_of_its_start(serve: Serve) -> None:
    weights, config = safetensors(BERT), json.dumps(BERT_CONFIG).encode()
    others = {
        "pytorch_model.bin": b"x" * 9_000,
        "tokenizer.json": b"x" * 9_000,
        "flax_model.msgpack": b"x" * 9_000,
    }
    hub = serve({"org/bert": {"config.json": config, "model.safetensors": weights, **others}})
    report = mapper.inspect("org/bert")
    assert report.architecture.family == "bert" and report.architecture.reading == "exact"
    assert fetched(hub) == 2**16 + len(config) < len(weights) // 20
    assert requests(hub, ".safetensors") == 1


def llama_shards(layers: int, shards: int) -> dict[str, bytes]:
    """The index and the headers of a Llama of 70 billion parameters; of its weights, none but their length."""
    width, inner, narrow, words = 8192, 28672, 1024, 128256
    shapes: dict[str, list[int]] = {"model.embed_tokens.weight": [words, width]}
    for layer in range(layers):
        path = f"model.layers.{layer}"
        shapes |= {
            f"{path}.input_layernorm.weight": [width],
            f"{path}.mlp.down_proj.weight": [width, inner],
            f"{path}.mlp.gate_proj.weight": [inner, width],
            f"{path}.mlp.up_proj.weight": [inner, width],
            f"{path}.post_attention_layernorm.weight": [width],
            f"{path}.self_attn.k_proj.weight": [narrow, width],
            f"{path}.self_attn.o_proj.weight": [width, width],
            f"{path}.self_attn.q_proj.weight": [width, width],
            f"{path}.self_attn.v_proj.weight": [narrow, width],
        }
    shapes |= {"model.norm.weight": [width], "lm_head.weight": [words, width]}
    keys = list(shapes)
    table, files = {}, {}
    for number in range(shards):
        name = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        header, at = {}, 0
        for key in keys[number * len(keys) // shards : (number + 1) * len(keys) // shards]:
            size = 2 * shapes[key][0] * (shapes[key][1] if shapes[key][1:] else 1)
            header[key] = {"dtype": "BF16", "shape": shapes[key], "data_offsets": [at, at + size]}
            at += size
            table[key] = name
        text = json.dumps(header, separators=(",", ":")).encode()
        files[name] = Sparse(struct.pack("<Q", len(text)) + text, 8 + len(text) + at)
    return {"model.safetensors.index.json": json.dumps({"weight_map": table}).encode(), **files}


class Sparse(bytes):
    """Bytes that go on with zeros up to `length`, which are not kept."""

    length: int

    def __new__(cls, start: bytes, length: int) -> Sparse:
        made = super().__new__(cls, start)
        made.length = length
        return made

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, at: slice) -> bytes:  # type: ignore[override]
        start, end, _ = at.indices(self.length)
        kept = bytes.__getitem__(self, slice(start, end))
        return kept + bytes(end - start - len(kept))


LLAMA_CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256,
    "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": False,
    "max_position_embeddings": 8192,
}  # fmt: skip


def test_a_shard_is_one_range_of_what_the_index_says_it_needs(serve: Serve) -> None:
    files = llama_shards(80, 30)
    hub = serve({"org/llama": {"config.json": json.dumps(LLAMA_CONFIG).encode(), **files}})
    report = mapper.inspect("org/llama")
    checkpoint: Checkpoint = report.architecture.checkpoint
    assert (len(checkpoint.tensors), report.architecture.family) == (723, "llama")
    assert 70e9 < checkpoint.parameters < 71e9
    shards = [content for name, content in files.items() if name.endswith(".safetensors")]
    assert requests(hub, ".safetensors") == len(shards) == 30
    needed = sum(header_bytes(bytes.__getitem__(shard, slice(8))) for shard in shards)
    assert needed <= hub.sent(".safetensors") <= needed + len(shards) * BLOCK
    assert fetched(hub) < 200_000 < checkpoint.parameters * 2 // 100_000


def test_a_shard_whose_header_says_more_takes_a_second_range(serve: Serve) -> None:
    shapes = {f"layer.{at}.weight": [512, 512] for at in range(30)}
    weights = safetensors(shapes)
    length = int.from_bytes(weights[:8], "little")
    notes = b'{"__metadata__": {"note": "' + b"x" * 20_000 + b'"}, ' + weights[9 : 8 + length]
    longer = struct.pack("<Q", len(notes)) + notes + weights[8 + length :]
    index = json.dumps({"weight_map": dict.fromkeys(shapes, "model-1.safetensors")}).encode()
    hub = serve({"org/long": {"model.safetensors.index.json": index, "model-1.safetensors": longer}})
    assert len(open_source("org/long", purpose="headers").tensors) == 30
    assert requests(hub, ".safetensors") == 2
    assert hub.sent(".safetensors") <= header_bytes(longer) + 2 * 2**14


@pytest.mark.parametrize("count", [4, 2000])
def test_a_torch_file_is_its_start_its_directory_and_its_pickle(serve: Serve, count: int) -> None:
    import torch

    buffer = io.BytesIO()
    torch.save({f"layer.{at}.weight": torch.zeros(4_000_000 // count) for at in range(count)}, buffer)
    hub = serve({"org/torch": {"pytorch_model.bin": buffer.getvalue()}})
    checkpoint = open_source("org/torch", purpose="headers")
    assert (checkpoint.container, len(checkpoint.tensors)) == ("torch", count)
    directory = 150 * count + 100 * count  # what the directory and the pickle take
    assert hub.sent("pytorch_model.bin") <= 2**16 + 2**16 + 2 * directory
    assert requests(hub, ".bin") <= 6
