"""facebook/esm2_t33_650M_UR50D: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family esm).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
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

# Words of the checkpoint's names that cannot be attributes, and what stands for them here.
RENAMED = {
    "*": "unnamed",
}


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    vocab_size: int = 33  # shape: esm.embeddings.word_embeddings.weight [33, 1280]
    hidden_size: int = 1280  # shape: esm.encoder.emb_layer_norm_after.weight [1280]
    mask_id: int = 32  # config: mask_token_id
    norm_eps: float = 1e-5  # config: layer_norm_eps
    # shape and config: esm.encoder.layer.{0..32}.attention.self.query.weight [1280, 1280] = heads * head_dim
    head_dim: int = 64
    heads: int = 20  # config: num_attention_heads
    intermediate_size: int = 5120  # shape: esm.encoder.layer.{0..32}.intermediate.dense.weight [5120, 1280]
    layers: int = 33  # name: esm.encoder.layer.*
    rotary_base: float = 10000.0  # default: rope_theta, left out: the default of esm


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


class LayerNormGammaBeta(nn.Module):
    """LayerNorm whose weight is stored as gamma and its bias as beta. (..., W) -> (..., W)"""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.eps = eps
        self.gamma = nn.Parameter(torch.empty(size))
        self.beta = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.gamma.shape, self.gamma, self.beta, self.eps)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates channel i with channel i + D / 2. x (B, H, T, D), cos and sin (B, 1, T, D / 2)"""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def rotary_frequencies(positions: Tensor, rotary_dim: int, base: float) -> Tensor:
    """Angle per position of each pair of channels. -> (R / 2,) on the device of positions"""
    index = torch.arange(0, rotary_dim, 2, device=positions.device)
    return 1.0 / base ** (index.float() / rotary_dim)


def rotary_tables(x: Tensor, positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every angle, in the dtype of x. positions (B, T) -> two (B, 1, T, R / 2)"""
    angles = positions[:, None, :, None].float() * frequencies
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def token_dropout(x: Tensor, input_ids: Tensor, attention_mask: Tensor | None, mask_id: int) -> Tensor:
    """Sets masked tokens to zero and scales the rest, for a training that masks 0.15 * 0.8 of them (ESM).

    x (B, T, W), input_ids (B, T), attention_mask (B, T) or None -> (B, T, W)
    """
    masked = input_ids == mask_id
    length = input_ids.shape[1] if attention_mask is None else attention_mask.sum(-1)
    share = masked.sum(-1).float() / length
    return (x.masked_fill(masked[..., None], 0.0) * (1 - 0.15 * 0.8) / (1 - share)[:, None, None]).to(x.dtype)


def zero_padding(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Sets padded positions to zero. x (B, T, C), attention_mask (B, T) or None -> (B, T, C)"""
    return x if attention_mask is None else x * (attention_mask != 0).unsqueeze(-1).to(x.dtype)


class Embeddings(nn.Module):
    """esm.embeddings: token embeddings with token dropout, rescaled and zeros for padding."""

    def __init__(self, config: Config):
        super().__init__()
        self.mask_id = config.mask_id
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        # unused: the positions 0, 1, 2 and so on, counted by the forward itself
        self.register_buffer("position_ids", torch.zeros(1, 1026, dtype=torch.int64))
        # unused: rotary embeddings are used instead
        self.position_embeddings = nn.Embedding(1026, config.hidden_size)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        x = self.word_embeddings(input_ids)
        return zero_padding(token_dropout(x, input_ids, attention_mask, self.mask_id), attention_mask)


class LmHead(nn.Module):
    """lm_head: language modeling head with a linear layer, an activation and a norm and the tied token
    embeddings and a bias.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x: Tensor, embedding_weight: Tensor) -> Tensor:
        x = self.layer_norm(F.gelu(self.dense(x)))
        return F.linear(x, embedding_weight, self.bias)


class RotaryEmbeddings(nn.Module):
    """esm.encoder.layer.*.attention.self.rotary_embeddings: holds what the module around it computes with."""

    def __init__(self, config: Config):
        super().__init__()
        # unused: computed from the rotary base
        self.register_buffer("inv_freq", torch.zeros(config.head_dim // 2))


class Attention(nn.Module):
    """esm.encoder.layer.*.attention: self-attention with rotary embeddings and an attention mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.LayerNorm = LayerNormGammaBeta(config.hidden_size, config.norm_eps)
        self.self: Any = nn.ModuleDict(
            {
                "query": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "key": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "value": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "rotary_embeddings": RotaryEmbeddings(config),
            }
        )
        self.output: Any = nn.ModuleDict(
            {"dense": nn.Linear(config.heads * config.head_dim, config.hidden_size)}
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.self.query(x), self.head_dim)
        k = split_heads(self.self.key(x), self.head_dim)
        v = split_heads(self.self.value(x), self.head_dim)
        q = apply_rotary(q, cos, sin)
        k = apply_rotary(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.output.dense(merge_heads(y))


class Layer(nn.Module):
    """esm.encoder.layer.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.attention = Attention(config)
        self.LayerNorm = LayerNormGammaBeta(config.hidden_size, config.norm_eps)
        self.intermediate: Any = nn.ModuleDict(
            {"dense": nn.Linear(config.hidden_size, config.intermediate_size)}
        )
        self.output: Any = nn.ModuleDict({"dense": nn.Linear(config.intermediate_size, config.hidden_size)})

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.attention(self.attention.LayerNorm(x), cos, sin, mask)
        return x + self.feed_forward(self.LayerNorm(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.gelu(self.intermediate.dense(x)))


class Encoder(nn.Module):
    """esm: a stack of layers with a padding mask, rotary embeddings and a final norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.layers = config.layers
        self.rotary_dim = config.head_dim
        self.rotary_base = config.rotary_base
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {
                "layer": nn.ModuleDict(
                    {
                        **{str(index): Layer(config) for index in range(config.layers)},
                        "unnamed": nn.ModuleDict(
                            {
                                "attention": nn.ModuleDict(
                                    {"self": nn.ModuleDict({"rotary_embeddings": RotaryEmbeddings(config)})}
                                )
                            }
                        ),
                    }
                ),
                "emb_layer_norm_after": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )
        # unused: reads the weights of attention, which no forward but that of contacts gives
        self.contact_head = nn.ModuleDict({"regression": nn.Linear(660, 1)})

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.embeddings(input_ids, attention_mask)
        mask = padding_mask(attention_mask)
        cos, sin = self.rotary(x, position_indices(x, position_ids))
        for layer in list(self.encoder.layer.values())[: self.layers]:
            x = layer(x, cos, sin, mask)
        return self.encoder.emb_layer_norm_after(x)

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_tables(x, positions, rotary_frequencies(positions, self.rotary_dim, self.rotary_base))


class Model(nn.Module):
    """The model with a masked language modeling head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.esm = Encoder(config)
        self.lm_head = LmHead(config)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), position_ids (batch, length)"""
        x = self.esm(input_ids, attention_mask, position_ids)
        embedding_weight = self.esm.embeddings.word_embeddings.weight
        logits = self.lm_head(x, embedding_weight)
        return Output(logits=logits, last_hidden_state=x)


def _renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        ".".join(RENAMED.get(word, word) for word in name.split(".")): tensor
        for name, tensor in tensors.items()
    }


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
    model.load_state_dict(_renamed(tensors), strict=True, assign=True)
    return model.eval()


# What this was read from besides the weights. While the file is as it was written, `mapper.save` stores the
# architecture of its models by it; once you have edited it, their weights alone.
# {"config": {"architectures": ["EsmForMaskedLM"], "emb_layer_norm_before": false, "hidden_size": 1280,
# "intermediate_size": 5120, "layer_norm_eps": 1e-05, "mask_token_id": 32, "model_type": "esm",
# "num_attention_heads": 20, "num_hidden_layers": 33, "position_embedding_type": "rotary", "token_dropout":
# true, "vocab_size": 33}, "notes": ["header from the bundled catalogue (reconstructed with transformers
# 5.23.0 from config), not from the hub", "evidence for its config: recalled"]}
# sha256 of all above: 00fcc7425e2e52da
