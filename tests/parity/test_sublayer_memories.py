"""Memory tokens, talking heads, a norm of one gain and a tied head under the names of x-transformers, against plain torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mapper
from tests.parity.harness import TOLERANCE, randomise
from tests.parity.test_sublayer_names import HEADS, SIZE, WORDS, FeedForward, Norm


class OneGain(nn.Module):
    """A norm with one gain for all channels, less one."""

    def __init__(self) -> None:
        super().__init__()
        self.g = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1) * SIZE**0.5 * (self.g + 1)


class Attention(nn.Module):
    """Heads whose scores are mixed (`pre`, which are added, or instead of them) and whose weights are (`post`)."""

    def __init__(self, mixes: str, is_causal: bool) -> None:
        super().__init__()
        self.is_causal, self.is_added = is_causal, "replaced" not in mixes
        for name in ("to_q", "to_k", "to_v", "to_out"):
            self.add_module(name, nn.Linear(SIZE, SIZE, bias=False))
        self.attend = nn.Module()
        for place in ("pre", "post"):
            mix = nn.Conv2d(HEADS, HEADS, 1, bias=False) if place in mixes else None
            self.attend.register_module(f"{place}_softmax_talking_heads", mix)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        q, k, v = (
            read(x).unflatten(2, (HEADS, -1)).transpose(1, 2) for read in (self.to_q, self.to_k, self.to_v)
        )
        scores = q @ k.mT / (SIZE // HEADS) ** 0.5
        if (mix := self.attend.pre_softmax_talking_heads) is not None:
            scores = scores + mix(scores) if self.is_added else mix(scores)
        weights = scores.masked_fill(~seen, -torch.inf).softmax(dim=-1)
        if (mix := self.attend.post_softmax_talking_heads) is not None:
            weights = mix(weights)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2))


class Text(nn.Module):
    def __init__(
        self,
        is_causal: bool = True,
        mixes: str = "",
        norm: type[nn.Module] = Norm,
        memories: int = 0,
        is_tied: bool = False,
    ) -> None:
        super().__init__()
        self.is_causal = is_causal
        self.token_emb, self.pos_emb, self.attn_layers = nn.Module(), nn.Module(), nn.Module()
        self.token_emb.emb, self.pos_emb.emb = nn.Embedding(WORDS, SIZE), nn.Embedding(16, SIZE)
        self.memory_tokens = nn.Parameter(torch.randn(memories, SIZE)) if memories else None
        layers = nn.ModuleList()
        for kind in "afaf":
            inner = Attention(mixes, is_causal) if kind == "a" else FeedForward()
            layers.append(nn.ModuleList((nn.ModuleList((norm(),)), inner)))
        self.attn_layers.layers, self.attn_layers.final_norm = layers, norm()
        self.to_logits = None if is_tied else nn.Linear(SIZE, WORDS, bias=False)

    def forward(self, ids: Tensor, real: Tensor) -> Tensor:
        x = self.token_emb.emb(ids) + self.pos_emb.emb.weight[: ids.shape[1]] * SIZE**-0.5
        if self.memory_tokens is not None:
            x = torch.cat((self.memory_tokens.expand(len(x), -1, -1), x), dim=1)
            real = F.pad(real, (len(self.memory_tokens), 0), value=True)
        seen = real[:, None, None]
        if self.is_causal:
            seen = seen & torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        for (before,), inner in self.attn_layers.layers:
            x = x + (inner(before(x), seen) if isinstance(inner, Attention) else inner(before(x)))
        x = self.attn_layers.final_norm(x)[:, -ids.shape[1] :]
        if self.to_logits is None:
            return F.linear(x, self.token_emb.emb.weight) * SIZE**-0.5
        return self.to_logits(x)


CAUSAL: dict[str, Any] = {"task": "causal_lm", "alibi": False}
BOTH_SIDES: dict[str, Any] = {"task": "masked_lm"}
CASES: dict[str, tuple[Text, dict[str, Any]]] = {
    "memory tokens": (Text(memories=3), CAUSAL),
    "memory tokens that see both sides": (Text(False, memories=5), BOTH_SIDES),
    "scores mixed": (Text(mixes="pre"), {**CAUSAL, "attention.talking_heads": "added"}),
    "scores replaced": (Text(mixes="pre replaced"), {**CAUSAL, "attention.talking_heads": "replaced"}),
    "weights mixed": (Text(mixes="post"), CAUSAL),
    "both mixed": (Text(False, "pre post"), {**BOTH_SIDES, "attention.talking_heads": "added"}),
    "one gain": (Text(norm=OneGain), CAUSAL),
    "one gain, memory tokens, weights mixed": (Text(False, "post", OneGain, 2), BOTH_SIDES),
    "a tied head that fills in words": (Text(False, is_tied=True), BOTH_SIDES),
}


@pytest.mark.parametrize("name", CASES)
def test_a_text(name: str, tmp_path: Path) -> None:
    model, told = CASES[name]
    torch.save(randomise(model.eval()).state_dict(), tmp_path / "model.pth")
    asked = {
        "attention.heads": HEADS,
        "attention.norms": "none",
        "attention.plain": True,
        "feed_forward.activation": "gelu",
        "norm.offset": True,
    }
    built = mapper.build(tmp_path / "model.pth", hints={**asked, **told})
    ids = torch.randint(1, WORDS, (2, 7), generator=torch.Generator().manual_seed(1))
    real = torch.ones(2, 7, dtype=torch.bool)
    real[1, 5:] = False
    with torch.no_grad():
        wanted = model(ids, real)[real]
        gap = (built(input_ids=ids, attention_mask=real.long()).logits[real] - wanted).abs().max()
    assert float(gap / wanted.std()) <= TOLERANCE


def test_how_scores_are_mixed_is_asked(tmp_path: Path) -> None:
    torch.save(randomise(Text(mixes="pre").eval()).state_dict(), tmp_path / "model.pth")
    told = {**CAUSAL, "attention.heads": HEADS}
    questions = mapper.inspect(tmp_path / "model.pth", hints=told).architecture.questions
    assert "attention.talking_heads" in {question.fact for question in questions}
