"""google/fnet-base: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family fnet).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: transformers-default
No dropout is written: training mode computes the same; `mapper generate --train` writes it.

Load the weights with `load(path)`; the attributes are the names in the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    vocab_size: int = 32000  # shape: cls.predictions.bias [32000]
    hidden_size: int = 768  # shape: cls.seq_relationship.weight [2, 768]
    segments: int = 4  # shape: fnet.embeddings.token_type_embeddings.weight [4, 768]
    positions: int = 512  # shape: fnet.embeddings.position_embeddings.weight [512, 768]
    norm_eps: float = 1e-12  # config: layer_norm_eps
    intermediate_size: int = 3072  # shape: fnet.encoder.layer.{0..11}.intermediate.dense.weight [3072, 768]
    layers: int = 12  # name: fnet.encoder.layer.*


@dataclass
class Output:
    """What the model returns."""

    prediction_logits: Tensor
    seq_relationship_logits: Tensor
    last_hidden_state: Tensor
    pooler_output: Tensor


torch.export.register_dataclass(Output)


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def segment_ids(input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
    """The caller's segments, or the first segment everywhere. (B, T)"""
    return torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids


class Embeddings(nn.Module):
    """fnet.embeddings: token embeddings with token types, learned position embeddings, a norm and a
    projection to the hidden size.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.segments, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.positions, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.projection = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.word_embeddings(input_ids)
        x = x + self.token_type_embeddings(segment_ids(input_ids, token_type_ids))
        x = x + self.position_embeddings(position_indices(input_ids, position_ids))
        return self.projection(self.LayerNorm(x))


class Layer(nn.Module):
    """fnet.encoder.layer.*: a layer with a Fourier transform in place of attention, post-norm and a
    feed-forward network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.fourier: Any = nn.ModuleDict(
            {"output": nn.ModuleDict({"LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps)})}
        )
        self.intermediate: Any = nn.ModuleDict(
            {"dense": nn.Linear(config.hidden_size, config.intermediate_size)}
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.intermediate_size, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.fft.fftn(x.float(), dim=(1, 2)).real.to(x.dtype)
        x = x + y
        x = self.fourier.output.LayerNorm(x)
        return self.output.LayerNorm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.gelu(self.intermediate.dense(x), approximate="tanh"))


class LmHead(nn.Module):
    """cls.predictions: language modeling head with a linear layer, an activation and a norm and the tied
    token embeddings and a bias.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.transform: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.hidden_size, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x: Tensor, embedding_weight: Tensor) -> Tensor:
        x = self.transform.LayerNorm(F.gelu(self.transform.dense(x), approximate="tanh"))
        return F.linear(x, embedding_weight, self.bias)


class Pooler(nn.Module):
    """fnet.pooler: pooler with a linear layer and an activation over the first token."""

    def __init__(self, config: Config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.dense(x[:, 0]))


class Encoder(nn.Module):
    """fnet: a stack of layers."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layer": nn.ModuleList(Layer(config) for _ in range(config.layers))}
        )
        self.pooler = Pooler(config)

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.embeddings(input_ids, token_type_ids, position_ids)
        for layer in self.encoder.layer:
            x = layer(x)
        return x


class Model(nn.Module):
    """The model with a pooler and a masked language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.fnet = Encoder(config)
        self.cls: Any = nn.ModuleDict(
            {"seq_relationship": nn.Linear(config.hidden_size, 2), "predictions": LmHead(config)}
        )

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Output:
        """input_ids (batch, length), token_type_ids (batch, length), position_ids (batch, length)"""
        x = self.fnet(input_ids, token_type_ids, position_ids)
        pooler_output = self.fnet.pooler(x)
        relation = self.cls.seq_relationship(pooler_output)
        embedding_weight = self.fnet.embeddings.word_embeddings.weight
        return Output(
            prediction_logits=self.cls.predictions(x, embedding_weight),
            seq_relationship_logits=relation,
            last_hidden_state=x,
            pooler_output=pooler_output,
        )


def load(path: str | Path, config: Config = Config()) -> Model:
    """The model with the weights of a .safetensors file or of a directory of them, ready to evaluate."""
    from safetensors.torch import load_file

    files = [Path(path)] if Path(path).is_file() else sorted(Path(path).glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"no .safetensors file in {path}")
    tensors = {
        name: tensor
        for file in files
        for name, tensor in load_file(file).items()
        if not name.startswith("__aux__.")  # what is saved beside a model, for training to go on
    }
    with torch.device("meta"):
        model = Model(config)
    model.load_state_dict(tensors, strict=True, assign=True)
    return model.eval()


# What this was read from besides the weights. While the file is as it was written, `mapper.save` stores the
# architecture of its models by it; once you have edited it, their weights alone.
# {"config": {"architectures": ["FNetForPreTraining"], "hidden_act": "gelu_new", "hidden_size": 768,
# "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "fnet",
# "num_hidden_layers": 12, "tie_word_embeddings": true, "type_vocab_size": 4, "vocab_size": 32000}, "notes":
# ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub",
# "evidence for its config: transformers-default"]}
# sha256 of all above: dc1d361aab35e133
