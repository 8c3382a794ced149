"""Norms that store one row of scales, which may take the mean away or not: nothing shows it in a decoder that somebody wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mapper
from tests.parity.harness import TOLERANCE, randomise

SIZE, HEADS, WORDS = 24, 4, 50
TOLD = {
    "attention.heads": HEADS, "feed_forward.activation": "gelu", "norm.placement": "pre", "norm.eps": 1e-5,
    "attention.causal": True, "task": "causal_lm",
}  # fmt: skip


class Norm(nn.Module):
    def __init__(self, word: str, has_mean: bool):
        super().__init__()
        self.word, self.has_mean = word, has_mean
        self.register_parameter(word, nn.Parameter(torch.ones(SIZE)))

    def forward(self, x: Tensor) -> Tensor:
        norm = F.rms_norm if self.has_mean else F.layer_norm
        return norm(x, (SIZE,), getattr(self, self.word), eps=1e-5)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(SIZE, SIZE, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            read(x).unflatten(2, (HEADS, -1)).transpose(1, 2) for read in (self.query, self.key, self.value)
        )
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, word: str, has_mean: bool):
        super().__init__()
        self.ln1, self.ln2, self.attention = Norm(word, has_mean), Norm(word, has_mean), Attention()
        self.mlp = nn.Sequential(nn.Linear(SIZE, 40, bias=False), nn.GELU(), nn.Linear(40, SIZE, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Decoder(nn.Module):
    def __init__(self, word: str, has_mean: bool):
        super().__init__()
        self.token_embedding, self.position_embedding = nn.Embedding(WORDS, SIZE), nn.Embedding(12, SIZE)
        self.layers = nn.ModuleList(Layer(word, has_mean) for _ in range(2))
        self.ln_f, self.lm_head = Norm(word, has_mean), nn.Linear(SIZE, WORDS, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token_embedding(ids) + self.position_embedding.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.ln_f(x))


@torch.no_grad()
@pytest.mark.parametrize("has_mean", [True, False], ids=["keeps the mean", "takes it away"])
@pytest.mark.parametrize("word", ["weight", "gamma", "g", "scale"])
def test_which_norm_a_row_of_scales_is_of_is_asked(word: str, has_mean: bool, tmp_path: Path) -> None:
    model = randomise(Decoder(word, has_mean).eval())
    torch.save(model.state_dict(), tmp_path / "model.pth")
    questions = mapper.inspect(tmp_path / "model.pth", hints=TOLD).architecture.questions
    assert [question.fact for question in questions] == ["norm.kind"]
    built = mapper.build(
        tmp_path / "model.pth", hints={**TOLD, "norm.kind": "RMSNorm" if has_mean else "LayerNorm"}
    )
    ids = torch.randint(0, WORDS, (2, 7), generator=torch.Generator().manual_seed(1))
    made, wanted = built(input_ids=ids).logits, model(ids)
    assert float((made - wanted).abs().max() / wanted.std()) <= TOLERANCE
