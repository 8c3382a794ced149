"""Options of x-transformers and vit-pytorch that change what a sub-layer reads, against the same networks written here with torch alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mapper
from tests.parity.harness import TOLERANCE, randomise
from tests.parity.test_sublayer_names import HEADS, SIZE, WORDS, FeedForward, Norm

HEAD, NARROW, LABELS = SIZE // HEADS, 24, 5
TOLD: dict[str, Any] = {
    "norm.offset": True,
    "feed_forward.activation": "gelu",
    "attention.plain": True,
}


class Rows(nn.Module):
    """An RMS norm of each head with a row of weights of its own, less one."""

    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.zeros(HEADS, 1, HEAD))

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1) * HEAD**0.5 * (self.gamma + 1)


class Attention(nn.Module):
    """Attention of x to what is given; `norms` of its queries and keys, a `factor` of each head, or a `slope`."""

    def __init__(self, has_norms: bool = False, has_factors: bool = False) -> None:
        super().__init__()
        for name in ("to_q", "to_k", "to_v", "to_out"):
            self.add_module(name, nn.Linear(SIZE, SIZE, bias=False))
        if has_norms:
            self.q_rmsnorm, self.k_rmsnorm = Rows(), Rows()
        if has_factors:
            self.head_scale_params = nn.Parameter(torch.ones(1, HEADS, 1, 1))

    def forward(self, x: Tensor, source: Tensor, mask: Tensor | None) -> Tensor:
        split = [
            read(y).unflatten(2, (HEADS, -1)).transpose(1, 2)
            for read, y in ((self.to_q, x), (self.to_k, source), (self.to_v, source))
        ]
        q, k, v = split
        if hasattr(self, "q_rmsnorm"):
            q, k = self.q_rmsnorm(q), self.k_rmsnorm(k)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        if hasattr(self, "head_scale_params"):
            y = y * self.head_scale_params
        return self.to_out(y.transpose(1, 2).flatten(2))


class Layers(nn.Module):
    """Sub-layers in `order`: a attends to x, c to the source, f widens."""

    def __init__(self, order: str, **options: bool) -> None:
        super().__init__()
        self.order, self.final_norm = order, Norm()
        inner = (FeedForward() if kind == "f" else Attention(**options) for kind in order)
        self.layers = nn.ModuleList(nn.ModuleList((nn.ModuleList((Norm(),)), one)) for one in inner)

    def forward(
        self, x: Tensor, mask: Tensor | None, source: Tensor | None = None, seen: Tensor | None = None
    ) -> Tensor:
        for kind, ((norm,), inner) in zip(self.order, self.layers, strict=True):
            y = norm(x)
            x = x + (
                inner(y, y, mask) if kind == "a" else inner(y, source, seen) if kind == "c" else inner(y)
            )
        return self.final_norm(x)


class Text(nn.Module):
    """Words and their positions in vectors of a width, projected to that of the layers where it is another."""

    def __init__(self, layers: Layers, width: int = SIZE) -> None:
        super().__init__()
        self.token_emb, self.pos_emb, self.attn_layers = nn.Module(), nn.Module(), layers
        self.token_emb.emb, self.pos_emb.emb = nn.Embedding(WORDS, width), nn.Embedding(16, width)
        self.project_emb = nn.Linear(width, SIZE) if width != SIZE else nn.Identity()
        self.to_logits = nn.Linear(SIZE, WORDS, bias=False)

    def forward(self, ids: Tensor, mask: Tensor, **given: Tensor) -> Tensor:
        places = self.pos_emb.emb.weight[: ids.shape[1]]
        x = self.project_emb(self.token_emb.emb(ids) + places * places.shape[1] ** -0.5)
        return self.to_logits(self.attn_layers(x, mask, **given))


def ids() -> Tensor:
    return torch.randint(1, WORDS, (2, 7), generator=torch.Generator().manual_seed(1))


def causal() -> Tensor:
    return torch.ones(7, 7, dtype=torch.bool).tril()


def near(made: Tensor, wanted: Tensor) -> bool:
    return float((made - wanted).abs().max() / wanted.std()) <= TOLERANCE


def saved(model: nn.Module, folder: Path) -> Path:
    torch.save(randomise(model.eval()).state_dict(), folder / "model.pth")
    return folder / "model.pth"


@torch.no_grad()
@pytest.mark.parametrize(
    ("model", "told"),
    [
        (Text(Layers("afaf"), NARROW), {"attention.heads": HEADS, "attention.norms": "none"}),
        (Text(Layers("afaf", has_norms=True)), {}),
        (Text(Layers("afaf", has_factors=True)), {"attention.norms": "none"}),
    ],
    ids=["narrow embeddings", "a norm of each head", "a factor of each head"],
)
def test_decoder(model: nn.Module, told: dict[str, Any], tmp_path: Path) -> None:
    hints = {"task": "causal_lm", "alibi": False, **TOLD, **told}
    built = mapper.build(saved(model, tmp_path), hints=hints)
    assert near(built(input_ids=ids()).logits, model(ids(), causal()))


def slopes(biased: int) -> Tensor:
    """Of the first heads, none of the others (heads, 1, 1)."""
    made = [2.0 ** (-8 * (head + 1) / biased) for head in range(biased)]
    return torch.tensor([*made, *[0.0] * (HEADS - biased)])[:, None, None]


@pytest.mark.parametrize("biased", [HEADS, HEADS // 2])
@torch.no_grad()
def test_bias_by_distance_to_both_sides(tmp_path: Path, biased: int) -> None:
    model = Text(Layers("afaf"))
    hints = {"task": "masked_lm", "alibi": True, "attention.heads": HEADS, "attention.norms": "none", **TOLD}
    with pytest.raises(mapper.MapperError, match=r"alibi\.heads"):  # which nothing stores
        mapper.build(saved(model, tmp_path), hints=hints)
    built = mapper.build(saved(model, tmp_path), hints={**hints, "alibi.heads": biased})
    places = torch.arange(7)
    bias = -slopes(biased) * (places - places[:, None]).abs()
    seen = torch.ones(2, 7, dtype=torch.bool)
    seen[0, 5:] = False
    wanted = model(ids(), bias[None].masked_fill(~seen[:, None, None], -1e30))
    made = built(input_ids=ids(), attention_mask=seen.long()).logits
    assert near(made[seen], wanted[seen])


@torch.no_grad()
def test_bias_by_distance_to_the_past_on_the_first_heads(tmp_path: Path) -> None:
    model = Text(Layers("afaf"))
    hints = {"task": "causal_lm", "alibi": True, "alibi.heads": 1, "attention.heads": HEADS}
    built = mapper.build(saved(model, tmp_path), hints={**hints, "attention.norms": "none", **TOLD})
    places = torch.arange(7)
    bias = -slopes(1) * (places - places[:, None]).abs()
    assert near(built(input_ids=ids()).logits, model(ids(), bias[None].masked_fill(~causal(), -1e30)))


def buckets(apart: Tensor, count: int, farthest: int) -> Tensor:
    """Of how far back a key is: half of them exact, the others by its logarithm (1910.10683)."""
    exact = count // 2
    far = exact + ((apart.clamp(min=1) / exact).log() / math.log(farthest / exact) * (count - exact)).long()
    return torch.where(apart < exact, apart, far.clamp(max=count - 1))


@torch.no_grad()
def test_one_relative_bias_for_all_layers_of_a_decoder(tmp_path: Path) -> None:
    model = Text(Layers("afaf"))
    model.attn_layers.rel_pos = nn.Module()
    model.attn_layers.rel_pos.relative_attention_bias = nn.Embedding(32, HEADS)
    del model.pos_emb
    hints = {"task": "causal_lm", "attention.heads": HEADS, "attention.norms": "none", **TOLD}
    built = mapper.build(saved(model, tmp_path), hints=hints)
    words = torch.randint(1, WORDS, (2, 40), generator=torch.Generator().manual_seed(1))
    places = torch.arange(40)
    table = model.attn_layers.rel_pos.relative_attention_bias
    bias = table(buckets((places[:, None] - places).clamp(min=0), 32, 128)).permute(2, 0, 1)
    mask = (bias * HEAD**0.5)[None].masked_fill(~torch.ones(40, 40, dtype=torch.bool).tril(), -1e30)
    wanted = model.to_logits(model.attn_layers(model.token_emb.emb(words), mask))
    assert near(built(input_ids=words).logits, wanted)


def test_options_that_store_nothing_are_asked_for(tmp_path: Path) -> None:
    path = saved(Text(Layers("afaf")), tmp_path)
    hints = {"task": "causal_lm", "alibi": False, "attention.heads": HEADS, "attention.norms": "none", **TOLD}
    with pytest.raises(mapper.MapperError, match="store nothing"):
        mapper.build(path, hints={key: value for key, value in hints.items() if key != "attention.plain"})
    assert mapper.build(path, hints=hints)(input_ids=ids()).logits.shape[1] == 7
    assert mapper.inspect(path, hints={**hints, "attention.plain": False}).architecture.reading == "skeleton"


@torch.no_grad()
def test_every_third_layer_reads_an_encoder(tmp_path: Path) -> None:
    model = Text(Layers("acfacf"))
    path = saved(model, tmp_path)
    hints = {"task": "causal_lm", "alibi": False, "attention.heads": HEADS, "attention.norms": "none", **TOLD}
    asked = mapper.inspect(path, hints=hints).architecture
    assert asked.reading == "skeleton"  # its names are those of self-attention
    assert [question.fact for question in asked.questions] == ["decoder.cross_attends"]
    built = mapper.build(path, hints={**hints, "decoder.cross_attends": True})
    source = torch.randn(2, 5, SIZE, generator=torch.Generator().manual_seed(2))
    seen = torch.ones(2, 5, dtype=torch.bool)
    seen[1, 3:] = False
    made = built(input_ids=ids(), encoder_hidden_states=source, encoder_attention_mask=seen.long())
    assert near(made.logits, model(ids(), causal(), source=source, seen=seen[:, None, None]))


class Vectors(nn.Module):
    """Given vectors, projected before their positions and behind the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.project_in = nn.Linear(NARROW, SIZE, bias=False)
        self.pos_emb, self.attn_layers = nn.Module(), Layers("afaf")
        self.pos_emb.emb, self.project_out = nn.Embedding(16, SIZE), nn.Linear(SIZE, 9, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.project_in(x) + self.pos_emb.emb.weight[: x.shape[1]] * SIZE**-0.5
        return self.project_out(self.attn_layers(x, None))


@torch.no_grad()
def test_vectors_of_another_size(tmp_path: Path) -> None:
    model = Vectors()
    hints = {"attention.causal": False, "attention.heads": HEADS, "attention.norms": "none", **TOLD}
    built = mapper.build(saved(model, tmp_path), hints=hints)
    x = torch.randn(2, 7, NARROW, generator=torch.Generator().manual_seed(1))
    assert near(built(embedded=x).last_hidden_state, model(x))


class Patches(nn.Module):
    """Patches with a norm behind them, a class token, keys and values in one map."""

    def __init__(self) -> None:
        super().__init__()
        self.to_patch_embedding = nn.Sequential(nn.Identity(), nn.Linear(48, SIZE), nn.LayerNorm(SIZE))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, SIZE))
        self.pos_embedding = nn.Parameter(torch.zeros(1, 7, SIZE))
        self.transformer = nn.Module()
        self.transformer.layers = nn.ModuleList(nn.ModuleList((Paired(), Wider())) for _ in range(2))
        self.mlp_head = nn.Sequential(nn.LayerNorm(SIZE), nn.Linear(SIZE, LABELS))

    def forward(self, image: Tensor) -> Tensor:
        x = image.unflatten(3, (-1, 4)).unflatten(2, (-1, 4)).permute(0, 2, 4, 3, 5, 1)
        x = self.to_patch_embedding(x.flatten(3).flatten(1, 2))
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1) + self.pos_embedding
        for mix, widen in self.transformer.layers:
            x = x + mix(x)
            x = x + widen(x)
        return self.mlp_head(x[:, 0])


class Paired(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.to_q = nn.LayerNorm(SIZE), nn.Linear(SIZE, SIZE, bias=False)
        self.to_kv = nn.Linear(SIZE, 2 * SIZE, bias=False)
        self.to_out = nn.Sequential(nn.Linear(SIZE, SIZE))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        parts = (self.to_q(x), *self.to_kv(x).chunk(2, dim=-1))
        q, k, v = (part.unflatten(2, (HEADS, -1)).transpose(1, 2) for part in parts)
        return self.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Wider(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(SIZE), nn.Linear(SIZE, 96), nn.GELU(), nn.Identity(), nn.Linear(96, SIZE)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


@torch.no_grad()
def test_patches_with_a_norm_behind(tmp_path: Path) -> None:
    model = Patches()
    built = mapper.build(saved(model, tmp_path), hints={"attention.heads": HEADS, "head.pooling": "first"})
    image = torch.randn((2, 3, 8, 12), generator=torch.Generator().manual_seed(1))
    assert near(built(pixel_values=image).logits, model(image))
