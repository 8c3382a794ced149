"""Texts under the names of x-transformers, whose layers are sub-layers, against the same networks written here with torch alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mapper
from tests.parity.harness import TOLERANCE, randomise

SIZE, HEADS, WORDS = 64, 4, 99


class Norm(nn.Module):
    """A layer norm that scales by 1 + gamma."""

    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.zeros(SIZE))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (SIZE,)) * (1 + self.gamma)


class Length(nn.Module):
    """What stores nothing: a vector of the length of all its channels."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1) * SIZE**0.5


class Attention(nn.Module):
    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        self.is_causal = is_causal
        for name in ("to_q", "to_k", "to_v", "to_out"):
            self.add_module(name, nn.Linear(SIZE, SIZE, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            read(x).unflatten(2, (HEADS, -1)).transpose(1, 2) for read in (self.to_q, self.to_k, self.to_v)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return self.to_out(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ff = nn.Sequential(
            nn.Sequential(nn.Linear(SIZE, 96), nn.GELU()), nn.Dropout(0), nn.Linear(96, SIZE)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.ff(x)


class Half(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fn = FeedForward()

    def forward(self, x: Tensor) -> Tensor:
        return self.fn(x) / 2


class Text(nn.Module):
    """Sub-layers with norms `before` them, `after` them and `behind` their sums; in `order`: a, f, or h, half an f."""

    def __init__(
        self, order: str, before: type | None, after: type | None, behind: type | None, is_causal: bool
    ) -> None:
        super().__init__()
        self.token_emb, self.pos_emb, self.attn_layers = nn.Module(), nn.Module(), nn.Module()
        self.token_emb.emb, self.pos_emb.emb = nn.Embedding(WORDS, SIZE), nn.Embedding(16, SIZE)
        layers = nn.ModuleList()
        for kind in order:
            inner = Attention(is_causal) if kind == "a" else Half() if kind == "h" else FeedForward()
            norms = nn.ModuleList(norm() if norm else nn.Identity() for norm in (before, after, behind))
            layers.append(nn.ModuleList((norms, inner)))
        self.attn_layers.layers, self.attn_layers.final_norm = layers, before() if before else nn.Identity()
        self.to_logits = nn.Linear(SIZE, WORDS, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token_emb.emb(ids) + self.pos_emb.emb.weight[: ids.shape[1]] * SIZE**-0.5
        for (before, after, behind), inner in self.attn_layers.layers:
            x = behind(x + after(inner(before(x))))
        return self.to_logits(self.attn_layers.final_norm(x))


CAUSAL: dict[str, Any] = {"task": "causal_lm", "alibi": False, "norm.offset": True}
CASES = {
    "before": (Text("afaf", Norm, None, None, True), CAUSAL),
    "before and after": (Text("afaf", Norm, Norm, None, True), CAUSAL),
    "behind sums": (Text("afaf", None, None, Norm, False), {"task": "masked_lm", "norm.offset": True}),
    "halves": (
        Text("hahhah", Norm, None, None, False),
        {"task": "masked_lm", "norm.offset": True},
    ),
    "norms that store nothing": (
        Text("afaf", Length, None, None, True),
        {"task": "causal_lm", "alibi": False},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_norms_of_sub_layers(name: str, tmp_path: Path) -> None:
    model, told = CASES[name]
    torch.save(randomise(model.eval()).state_dict(), tmp_path / "model.pth")
    asked = {
        "attention.heads": HEADS,
        "attention.norms": "none",
        "feed_forward.activation": "gelu",
        "attention.plain": True,
    }
    built = mapper.build(tmp_path / "model.pth", hints={**asked, **told})
    ids = torch.randint(1, WORDS, (2, 7), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = model(ids)
        assert float((built(input_ids=ids).logits - wanted).abs().max() / wanted.std()) <= TOLERANCE
