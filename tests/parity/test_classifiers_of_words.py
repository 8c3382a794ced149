"""Encoders of words that somebody wrote, with classes, under usual short names, against the networks written here with torch alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import mapper
from tests.parity.harness import TOLERANCE, randomise
from tests.parity.test_rows_of_scales import HEADS, SIZE, WORDS, Attention

TOLD = {
    "attention.heads": HEADS, "feed_forward.activation": "gelu", "norm.placement": "pre", "norm.eps": 1e-5,
    "attention.causal": False, "task": "sequence_classification", "head.pooling": "mean",
}  # fmt: skip


class Seeing(Attention):
    """Attention to both sides."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            read(x).unflatten(2, (HEADS, -1)).transpose(1, 2) for read in (self.query, self.key, self.value)
        )
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln1, self.ln2, self.attention = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE), Seeing()
        self.mlp = nn.Sequential(nn.Linear(SIZE, 40), nn.GELU(), nn.Linear(40, SIZE))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Classifier(nn.Module):
    def __init__(self, words: str, positions: str, head: str):
        super().__init__()
        self.called = words, positions, head
        self.add_module(words, nn.Embedding(WORDS, SIZE))
        self.add_module(positions, nn.Embedding(12, SIZE))
        self.layers, self.norm = nn.ModuleList(Layer() for _ in range(2)), nn.LayerNorm(SIZE)
        self.add_module(head, nn.Linear(SIZE, 3))

    def forward(self, ids: Tensor) -> Tensor:
        words, positions, head = map(self.get_submodule, self.called)
        x = words(ids) + positions.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return head(self.norm(x).mean(1))


@torch.no_grad()
@pytest.mark.parametrize(
    "called",
    [("embedding", "pos", "classifier"), ("embedding", "pos_embedding", "fc"), ("emb", "position_embedding", "fc_out")],
    ids="-".join,
)  # fmt: skip
def test_words_with_positions_and_classes(called: tuple[str, str, str], tmp_path: Path) -> None:
    model = randomise(Classifier(*called).eval())
    torch.save(model.state_dict(), tmp_path / "model.pth")
    built = mapper.build(tmp_path / "model.pth", hints=TOLD)
    ids = torch.randint(0, WORDS, (2, 7), generator=torch.Generator().manual_seed(1))
    made, wanted = built(input_ids=ids).logits, model(ids)
    assert float((made - wanted).abs().max() / wanted.std()) <= TOLERANCE
