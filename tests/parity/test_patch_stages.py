"""Vision transformers whose patches go through stages, frames or convolutions first, against the same written here with torch alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mapper
from tests.parity.harness import TOLERANCE, randomise

SIZE, HEADS, LABELS = 32, 4, 5


def compared(
    model: nn.Module, images: Tensor, folder: Path, told: dict[str, Any], asked: frozenset[str] = frozenset()
) -> None:
    """Saves the weights alone, looks that these facts are asked, and compares the answers when told."""
    randomise(model.eval())
    torch.save(model.state_dict(), folder / "model.pth")
    questions = {question.fact for question in mapper.inspect(folder / "model.pth").architecture.questions}
    assert asked <= questions, questions
    built = mapper.build(folder / "model.pth", hints=told)
    with torch.no_grad():
        wanted = model(images)
        assert float((built(pixel_values=images).logits - wanted).abs().max() / wanted.std()) <= TOLERANCE


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def heads(x: Tensor, count: int = HEADS) -> Tensor:
    return x.unflatten(2, (count, -1)).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self, size: int, inner: int):
        super().__init__()
        self.norm, self.to_qkv = nn.LayerNorm(size), nn.Linear(size, 3 * inner, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner, size))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = map(heads, self.to_qkv(self.norm(x)).chunk(3, dim=-1))
        return self.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(size), nn.Linear(size, 48), nn.GELU(), nn.Identity(), nn.Linear(48, size)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Layers(nn.Module):
    def __init__(self, size: int, depth: int, inner: int = SIZE, has_norm: bool = False):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList((Attention(size, inner), FeedForward(size))) for _ in range(depth)
        )
        if has_norm:
            self.norm = nn.LayerNorm(size)

    def forward(self, x: Tensor) -> Tensor:
        for mix, widen in self.layers:
            x = x + mix(x)
            x = x + widen(x)
        return self.norm(x) if hasattr(self, "norm") else x


class Pool(nn.Module):
    """A map of the class token, and a depthwise and a pointwise convolution of the square that the patches are."""

    def __init__(self) -> None:
        super().__init__()
        self.cls_ff, self.downsample = nn.Linear(SIZE, 2 * SIZE), nn.Module()
        self.downsample.net = nn.Sequential(
            nn.Conv2d(SIZE, 2 * SIZE, 3, stride=2, padding=1, groups=SIZE), nn.Conv2d(2 * SIZE, 2 * SIZE, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        side = round((x.shape[1] - 1) ** 0.5)
        places = self.downsample.net(x[:, 1:].mT.unflatten(2, (side, side)))
        return torch.cat((self.cls_ff(x[:, :1]), places.flatten(2).mT), dim=1)


class Pooled(nn.Module):
    """Overlapping patches and a class token through layers, over fewer patches in the second run."""

    def __init__(self) -> None:
        super().__init__()
        self.to_patch_embedding = nn.Sequential(nn.Identity(), nn.Identity(), nn.Linear(3 * 16, SIZE))
        self.pos_embedding = nn.Parameter(torch.zeros(1, 50, SIZE))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, SIZE))
        self.layers = nn.Sequential(Layers(SIZE, 1), Pool(), Layers(2 * SIZE, 2))
        self.mlp_head = nn.Sequential(nn.LayerNorm(2 * SIZE), nn.Linear(2 * SIZE, LABELS))

    def forward(self, image: Tensor) -> Tensor:
        x = self.to_patch_embedding(F.unfold(image, 4, stride=2).mT)
        x = torch.cat((self.cls_token.expand(len(x), -1, -1), x), dim=1)
        return self.mlp_head(self.layers(x + self.pos_embedding[:, : x.shape[1]])[:, 0])


def test_a_class_token_beside_a_map_that_becomes_coarser(tmp_path: Path) -> None:
    compared(
        Pooled(), drawn(2, 3, 16, 16), tmp_path, {"attention.heads": HEADS}, frozenset({"attention.heads"})
    )


class Video(nn.Module):
    """The patches of each frame through layers, then one vector of each frame through others."""

    def __init__(self, has_tokens: bool):
        super().__init__()
        self.has_tokens, patch = has_tokens, 3 * 2 * 16
        self.to_patch_embedding = nn.Sequential(
            nn.Identity(), nn.LayerNorm(patch), nn.Linear(patch, SIZE), nn.LayerNorm(SIZE)
        )
        self.pos_embedding = nn.Parameter(torch.zeros(1, 3, 6, SIZE))
        if has_tokens:
            self.spatial_cls_token = nn.Parameter(torch.zeros(1, 1, SIZE))
            self.temporal_cls_token = nn.Parameter(torch.zeros(1, 1, SIZE))
        self.spatial_transformer = Layers(SIZE, 2, has_norm=True)
        self.temporal_transformer = Layers(SIZE, 1, has_norm=True)
        self.mlp_head = nn.Linear(SIZE, LABELS)

    def reduced(self, x: Tensor, layers: nn.Module, token: str) -> Tensor:
        if self.has_tokens:
            x = torch.cat((getattr(self, token).expand(len(x), -1, -1), x), dim=1)
        x = layers(x)
        return x[:, 0] if self.has_tokens else x.mean(1)

    def forward(self, video: Tensor) -> Tensor:
        x = video.unflatten(4, (-1, 4)).unflatten(3, (-1, 4)).unflatten(2, (-1, 2))
        x = self.to_patch_embedding(x.permute(0, 2, 4, 6, 3, 5, 7, 1).flatten(4)).flatten(2, 3)
        frames = x.shape[1]
        x = (x + self.pos_embedding[:, :frames]).flatten(0, 1)
        x = self.reduced(x, self.spatial_transformer, "spatial_cls_token").unflatten(0, (-1, frames))
        return self.mlp_head(self.reduced(x, self.temporal_transformer, "temporal_cls_token"))


def test_layers_over_each_frame_then_over_time(tmp_path: Path) -> None:
    told = {"attention.heads": HEADS, "patch_frames": 2, "patch_size": 4}
    for at, has_tokens in enumerate((True, False)):
        folder = tmp_path / str(at)
        folder.mkdir()
        compared(Video(has_tokens), drawn(2, 3, 4, 8, 12), folder, told, frozenset({"patch_size"}))


class GammaBeta(nn.Module):
    """A layer norm whose shift is a buffer."""

    def __init__(self, size: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(size))
        self.register_buffer("beta", torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.gamma, self.beta)


class OfHeads(nn.Module):
    """Vectors of one length, with a row of weights for each head."""

    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(HEADS, 1, SIZE // HEADS))

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1) * (SIZE // HEADS) ** 0.5 * self.gamma


class NormedAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.q_norm, self.k_norm = GammaBeta(SIZE), OfHeads(), OfHeads()
        self.to_q, self.to_kv = (nn.Linear(SIZE, wide, bias=False) for wide in (SIZE, 2 * SIZE))
        self.to_out = nn.Sequential(nn.Linear(SIZE, SIZE, bias=False))

    def forward(self, x: Tensor, source: Tensor | None = None) -> Tensor:
        x = self.norm(x)
        k, v = self.to_kv(x if source is None else source).chunk(2, dim=-1)
        q, k, v = self.q_norm(heads(self.to_q(x))), self.k_norm(heads(k)), heads(v)
        y = (q @ k.mT).softmax(-1) @ v
        return self.to_out(y.transpose(1, 2).flatten(2))


class ByAxis(nn.Module):
    """Positions by row and by column, norms of each head, and a learned query at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.to_patch_embedding = nn.Sequential(GammaBeta(48), nn.Linear(48, SIZE), GammaBeta(SIZE))
        self.pos_embed_height, self.pos_embed_width = (
            nn.Parameter(torch.zeros(count, SIZE)) for count in (3, 4)
        )
        self.transformer = nn.Module()
        self.transformer.layers = nn.ModuleList(
            nn.ModuleList(
                (
                    NormedAttention(),
                    nn.Sequential(
                        GammaBeta(SIZE), nn.Linear(SIZE, 48), nn.GELU(), nn.Identity(), nn.Linear(48, SIZE)
                    ),
                )
            )
            for _ in range(2)
        )
        self.transformer.norm = GammaBeta(SIZE)
        self.attn_pool_queries, self.attn_pool = nn.Parameter(torch.zeros(SIZE)), NormedAttention()
        self.mlp_head = nn.Sequential(GammaBeta(SIZE), nn.Linear(SIZE, LABELS, bias=False))

    def forward(self, image: Tensor) -> Tensor:
        x = image.unflatten(3, (-1, 4)).unflatten(2, (-1, 4)).permute(0, 2, 4, 1, 3, 5).flatten(3)
        x = self.to_patch_embedding(x)
        x = x + self.pos_embed_height[: x.shape[1], None] + self.pos_embed_width[: x.shape[2]]
        x = x.flatten(1, 2)
        for mix, widen in self.transformer.layers:
            x = x + mix(x)
            x = x + widen(x)
        x = self.transformer.norm(x)
        query = self.attn_pool_queries.expand(len(x), 1, -1)
        return self.mlp_head((query + self.attn_pool(query, x))[:, 0])


def test_positions_by_row_and_column_and_a_row_of_weights_for_each_head(tmp_path: Path) -> None:
    compared(ByAxis(), drawn(2, 3, 8, 16), tmp_path, {})


class CompactLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pre_norm, self.norm1, self.self_attn = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE), nn.Module()
        self.self_attn.qkv = nn.Linear(SIZE, 3 * SIZE, bias=False)
        self.self_attn.proj = nn.Linear(SIZE, SIZE)
        self.linear1, self.linear2 = nn.Linear(SIZE, 48), nn.Linear(48, SIZE)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = map(heads, self.self_attn.qkv(self.pre_norm(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.self_attn.proj(y))
        return x + self.linear2(F.gelu(self.linear1(x)))


class Compact(nn.Module):
    """Convolutions with max pooling, layers, and a mean with weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.tokenizer, self.classifier = nn.Module(), nn.Module()
        self.tokenizer.conv_layers = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv2d(read, SIZE, 3, padding=1, bias=False), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
                )
                for read in (3, SIZE)
            )
        )
        self.classifier.positional_emb = nn.Parameter(torch.zeros(1, 12, SIZE))
        self.classifier.blocks = nn.ModuleList(CompactLayer() for _ in range(2))
        self.classifier.norm, self.classifier.attention_pool = nn.LayerNorm(SIZE), nn.Linear(SIZE, 1)
        self.classifier.fc = nn.Linear(SIZE, LABELS)

    def forward(self, image: Tensor) -> Tensor:
        x = self.tokenizer.conv_layers(image).flatten(2).mT + self.classifier.positional_emb
        for layer in self.classifier.blocks:
            x = layer(x)
        x = self.classifier.norm(x)
        return self.classifier.fc((self.classifier.attention_pool(x).softmax(1) * x).sum(1))


def test_convolutions_before_layers_and_a_weighted_mean_behind(tmp_path: Path) -> None:
    told = {"attention.heads": HEADS, "embedding.stride": 1}
    compared(
        Compact(), drawn(2, 3, 12, 16), tmp_path, told, frozenset({"attention.heads", "embedding.stride"})
    )
