"""google/tapas-base-finetuned-sqa: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family tapas).
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

    vocab_size: int = 30522  # shape: tapas.embeddings.word_embeddings.weight [30522, 768]
    hidden_size: int = 768  # shape: output_weights [768]
    positions: int = 1024  # shape: tapas.embeddings.position_embeddings.weight [1024, 768]
    norm_eps: float = 1e-12  # config: layer_norm_eps
    heads: int = 12  # config: num_attention_heads
    # shape and config: tapas.encoder.layer.{0..11}.attention.self.query.weight [768, 768] = heads * head_dim
    head_dim: int = 64
    intermediate_size: int = 3072  # shape: tapas.encoder.layer.{0..11}.intermediate.dense.weight [3072, 768]
    layers: int = 12  # name: tapas.encoder.layer.*
    table_temperature: float = 1.0  # config: temperature
    table_rows: int = 64  # config: max_num_rows
    table_columns: int = 32  # config: max_num_columns


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor
    pooler_output: Tensor


torch.export.register_dataclass(Output)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


def positions_in_order(x: Tensor) -> Tensor:
    """0, 1, 2, ... for every position of x. x (B, T, ...) -> (1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None]


def cell_average(x: Tensor, cells: Tensor, count: int) -> Tensor:
    """Means over the tokens of each of `count` cells, 0 where there are none.

    x and cells (B, T) -> (B, count)
    """
    means = torch.zeros(x.shape[0], count, dtype=torch.float32, device=x.device)
    return means.scatter_reduce(1, cells, x.float(), "mean", include_self=False).to(x.dtype)


def select_cells(
    x: Tensor,
    of_columns: Tensor,
    types: Tensor,
    attention_mask: Tensor | None,
    sides: list[int],
    may_be_empty: bool,
) -> Tensor:
    """Each token's mean over its cell, far below 0 but for cells of the best column (TAPAS).

    x and of_columns (B, T), what speaks for a token and for its column; types (B, T, 7), in which
    1 is the column and 2 the row, from 1 on; sides of the largest table, rows first -> (B, T)
    """
    rows, columns = sides
    real = torch.ones_like(x) if attention_mask is None else attention_mask.to(x.dtype)
    cells = types[..., 2].clamp(max=rows - 1) * columns + types[..., 1].clamp(max=columns - 1)
    real = cell_average(real, cells, rows * columns).unflatten(1, sides)
    speaks = cell_average(of_columns, cells, rows * columns).unflatten(1, sides) * real
    there = real.sum(1)
    scores = speaks.sum(1) / (there + 1e-10)
    number = torch.arange(columns, device=x.device)
    scores = scores + -10000.0 * ((there < 0.5) & (number != 0)).to(x.dtype)
    if not may_be_empty:
        scores = scores + -10000.0 * (number == 0).to(x.dtype)
    chosen = (number == scores.argmax(-1, keepdim=True)) & (number != 0)
    kept = (real * chosen[:, None].to(x.dtype)).flatten(1)
    return (cell_average(x, cells, rows * columns) + -10000.0 * (1.0 - kept)).gather(1, cells)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Embeddings(nn.Module):
    """tapas.embeddings: token embeddings with segment, column, row and ranks of each token of a table, and
    learned position embeddings, position ids counted anew in each cell and a norm.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.positions = config.positions
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.token_type_embeddings_0 = nn.Embedding(3, config.hidden_size)
        self.token_type_embeddings_1 = nn.Embedding(256, config.hidden_size)
        self.token_type_embeddings_2 = nn.Embedding(256, config.hidden_size)
        self.token_type_embeddings_3 = nn.Embedding(2, config.hidden_size)
        self.token_type_embeddings_4 = nn.Embedding(256, config.hidden_size)
        self.token_type_embeddings_5 = nn.Embedding(256, config.hidden_size)
        self.token_type_embeddings_6 = nn.Embedding(10, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.positions, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        types = token_type_ids
        if types is None:
            types = torch.zeros_like(input_ids)[..., None].expand(-1, -1, 7)
        x = (
            self.word_embeddings(input_ids)
            + self.token_type_embeddings_0(types[..., 0])
            + self.token_type_embeddings_1(types[..., 1])
            + self.token_type_embeddings_2(types[..., 2])
            + self.token_type_embeddings_3(types[..., 3])
        )
        x = (
            x
            + self.token_type_embeddings_4(types[..., 4])
            + self.token_type_embeddings_5(types[..., 5])
            + self.token_type_embeddings_6(types[..., 6])
        )
        same_row = types[:, None, :, 2] == types[..., 2, None]
        same_cell = same_row & (types[:, None, :, 1] == types[..., 1, None])
        places = positions_in_order(x) - same_cell.long().argmax(-1)
        if position_ids is None:
            position_ids = places.clamp(max=self.positions - 1)
        return self.LayerNorm(x + self.position_embeddings(position_ids))


class Attention(nn.Module):
    """tapas.encoder.layer.*.attention: self-attention with an attention mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.self: Any = nn.ModuleDict(
            {
                "query": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "key": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "value": nn.Linear(config.hidden_size, config.heads * config.head_dim),
            }
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.heads * config.head_dim, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.self.query(x), self.head_dim)
        k = split_heads(self.self.key(x), self.head_dim)
        v = split_heads(self.self.value(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.output.dense(merge_heads(y))


class Pooler(nn.Module):
    """tapas.pooler: pooler with a linear layer and an activation over the first token."""

    def __init__(self, config: Config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.dense(x[:, 0]))


class Layer(nn.Module):
    """tapas.encoder.layer.*: a layer with attention, post-norm and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.attention = Attention(config)
        self.intermediate: Any = nn.ModuleDict(
            {"dense": nn.Linear(config.hidden_size, config.intermediate_size)}
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.intermediate_size, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.attention.output.LayerNorm(x + self.attention(x, mask))
        return self.output.LayerNorm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.gelu(self.intermediate.dense(x)))


class Encoder(nn.Module):
    """tapas: a stack of layers with a padding mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layer": nn.ModuleList(Layer(config) for _ in range(config.layers))}
        )
        self.pooler = Pooler(config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
    ) -> Tensor:
        x = self.embeddings(input_ids, token_type_ids, position_ids)
        mask = padding_mask(attention_mask)
        for layer in self.encoder.layer:
            x = layer(x, mask)
        return x


class Model(nn.Module):
    """The model with a pooler and a head that chooses cells of one column."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.table_temperature = config.table_temperature
        self.table_rows = config.table_rows
        self.table_columns = config.table_columns
        self.tapas = Encoder(config)
        self.output_weights = nn.Parameter(torch.zeros(config.hidden_size))
        self.output_bias = nn.Parameter(torch.zeros(()))
        self.column_output_weights = nn.Parameter(torch.zeros(config.hidden_size))
        self.column_output_bias = nn.Parameter(torch.zeros(()))

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), attention_mask (batch, length), token_type_ids (batch, length, 7),
        position_ids (batch, length)
        """
        x = self.tapas(input_ids, attention_mask, token_type_ids, position_ids)
        pooler_output = self.tapas.pooler(x)
        types = token_type_ids
        if types is None:
            types = torch.zeros_like(input_ids)[..., None].expand(-1, -1, 7)
        logits = select_cells(
            (x @ self.output_weights + self.output_bias) / self.table_temperature,
            x @ self.column_output_weights + self.column_output_bias,
            types,
            attention_mask,
            [self.table_rows, self.table_columns],
            False,
        )
        return Output(logits=logits, last_hidden_state=x, pooler_output=pooler_output)


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
# {"config": {"add_cross_attention": false, "allow_empty_column_selection": false, "architectures":
# ["TapasForQuestionAnswering"], "hidden_act": "gelu", "hidden_size": 768, "intermediate_size": 3072,
# "layer_norm_eps": 1e-12, "max_num_columns": 32, "max_num_rows": 64, "max_position_embeddings": 1024,
# "model_type": "tapas", "num_aggregation_labels": 0, "num_attention_heads": 12, "num_hidden_layers": 12,
# "reset_position_index_per_cell": true, "select_one_column": true, "temperature": 1.0, "vocab_size": 30522},
# "notes": ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from
# the hub", "evidence for its config: transformers-default"]}
# sha256 of all above: 7c43b5b26f36f00b
