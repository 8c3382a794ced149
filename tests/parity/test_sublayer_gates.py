"""Gates, sinks and norms inside of the sub-layers of x-transformers, against the same networks written here with torch alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mapper
from tests.parity.test_sublayer_names import HEADS, SIZE, FeedForward, Norm
from tests.parity.test_sublayer_options import Attention, Layers, Text, causal, ids, near, saved

OFFSETS = dict.fromkeys(
    (f"{norm}:norm.offset" for norm in ("final_norm", "norm_attention", "norm_feed_forward")), True
)


class Scaled(Norm):
    """A layer norm that scales by gamma alone."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (x.shape[-1],)) * self.gamma


class Gated(Attention):
    """Attention whose heads, or channels, have a gate."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.gate = name
        gates = nn.Linear(SIZE, HEADS) if name == "to_v_head_gate" else nn.Linear(SIZE, SIZE, bias=False)
        self.add_module(name, gates)

    def forward(self, x: Tensor, source: Tensor, mask: Tensor | None) -> Tensor:
        split = [
            read(x).unflatten(2, (HEADS, -1)).transpose(1, 2) for read in (self.to_q, self.to_k, self.to_v)
        ]
        y = F.scaled_dot_product_attention(*split, attn_mask=mask).transpose(1, 2)
        gates = torch.sigmoid(getattr(self, self.gate)(x)).unflatten(2, (HEADS, -1))
        return self.to_out((y * gates).flatten(2))


class Sinks(Attention):
    """Attention in which each head has a learned score without a value."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.Module()
        self.attend.head_attn_sink = nn.Parameter(torch.zeros(HEADS))

    def forward(self, x: Tensor, source: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = (
            read(x).unflatten(2, (HEADS, -1)).transpose(1, 2) for read in (self.to_q, self.to_k, self.to_v)
        )
        scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~causal(), -torch.inf)
        sinks = self.attend.head_attn_sink.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        shares = torch.cat((sinks, scores), dim=-1).softmax(-1)[..., 1:]
        return self.to_out((shares @ v).transpose(1, 2).flatten(2))


class Between(FeedForward):
    """A norm behind the activation."""

    def __init__(self) -> None:
        super().__init__()
        up, drop, down = self.ff
        self.ff = nn.Sequential(up, Scaled(96), drop, down)


class Normed(Text):
    """Embeddings with a norm of their own."""

    def __init__(self, layers: Layers) -> None:
        super().__init__(layers)
        self.post_emb_norm = Scaled(SIZE)

    def forward(self, ids: Tensor, mask: Tensor, **given: Tensor) -> Tensor:
        x = self.token_emb.emb(ids) + self.pos_emb.emb.weight[: ids.shape[1]] * SIZE**-0.5
        return self.to_logits(self.attn_layers(self.post_emb_norm(x), mask))


def text(kind: type[Text] = Text, **parts: nn.Module) -> Text:
    """A text of two layers, some sub-layers of which are others."""
    layers = Layers("afaf")
    for at, part in ((at, parts[kind]) for at, kind in enumerate("afaf") if kind in parts):
        layers.layers[at][1] = part
    return kind(layers)


@torch.no_grad()
@pytest.mark.parametrize(
    ("model", "told"),
    [
        (text(a=Gated("to_v_gate")), {"norm.offset": True}),
        (text(a=Gated("to_v_head_gate")), {"norm.offset": True}),
        (text(a=Sinks()), {"norm.offset": True}),
        (text(f=Between()), OFFSETS),
        (text(Normed), OFFSETS),
    ],
    ids=[
        "gates of channels",
        "gates of heads",
        "sinks",
        "a norm in the feed-forward network",
        "a norm of embeddings",
    ],
)
def test_what_stands_inside(model: nn.Module, told: dict[str, Any], tmp_path: Path) -> None:
    hints = {"task": "causal_lm", "attention.plain": True, "attention.norms": "none", "attention.heads": HEADS, "feed_forward.activation": "gelu", **told}  # fmt: skip
    built = mapper.build(saved(model, tmp_path), hints={"alibi": False, **hints})
    assert near(built(input_ids=ids()).logits, model(ids(), causal()))
