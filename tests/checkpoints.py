"""Small checkpoints that tests write."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

BERT = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 99,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}


def bert_shapes() -> dict[str, list[int]]:
    """Names and shapes of a BERT of two layers with its pooler."""
    shapes = {
        "embeddings.word_embeddings.weight": [99, 8],
        "embeddings.position_embeddings.weight": [32, 8],
        "embeddings.token_type_embeddings.weight": [2, 8],
        "embeddings.LayerNorm": [8],
        "pooler.dense": [8, 8],
    }
    for at in range(2):
        layer = f"encoder.layer.{at}"
        shapes |= {f"{layer}.attention.self.{word}": [8, 8] for word in ("query", "key", "value")}
        shapes |= {f"{layer}.attention.output.dense": [8, 8], f"{layer}.attention.output.LayerNorm": [8]}
        shapes |= {
            f"{layer}.intermediate.dense": [16, 8],
            f"{layer}.output.dense": [8, 16],
            f"{layer}.output.LayerNorm": [8],
        }
    whole = {name: shape for name, shape in shapes.items() if name.endswith(".weight")}
    for name in shapes.keys() - whole.keys():
        whole |= {f"{name}.weight": shapes[name], f"{name}.bias": shapes[name][:1]}
    return dict(sorted(whole.items()))


def write_bert(folder: Path) -> Path:
    """The BERT of `bert_shapes` with random weights."""
    folder.mkdir()
    generator = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(shape, generator=generator) * 0.1 for name, shape in bert_shapes().items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(BERT))
    return folder


def write_manifest(path: Path) -> Path:
    """The same as a manifest, without weights."""
    tensors = {name: {"shape": shape, "dtype": "F32"} for name, shape in bert_shapes().items()}
    path.write_text(json.dumps({"tensors": tensors, "config": BERT}))
    return path
