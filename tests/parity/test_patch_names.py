"""Vision transformers under the names of vit-pytorch, and gMLP under those of g-mlp-pytorch, against the same networks written here with torch alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mapper
from tests.parity.harness import TOLERANCE, check_by_names, randomise

SIZE, HEADS, LABELS = 64, 4, 5


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(SIZE)
        self.to_qkv, self.to_out = nn.Linear(SIZE, 192, bias=False), nn.Linear(SIZE, SIZE, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.to_qkv(self.norm(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        return self.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(SIZE), nn.Linear(SIZE, 96), nn.GELU(), nn.Linear(96, SIZE))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Plain(nn.Module):
    """Patches with sinusoidal positions, layers, the mean of all patches."""

    def __init__(
        self, patch: int, cut: Callable[[Tensor], Tensor], positions: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.cut, self.positions = cut, positions
        self.to_patch_embedding = nn.Sequential(
            nn.Identity(), nn.LayerNorm(patch), nn.Linear(patch, SIZE), nn.LayerNorm(SIZE)
        )
        self.transformer = nn.Module()
        self.transformer.layers = nn.ModuleList(nn.ModuleList((Attention(), FeedForward())) for _ in range(2))
        self.transformer.norm = nn.LayerNorm(SIZE)
        self.linear_head = nn.Linear(SIZE, LABELS)

    def forward(self, x: Tensor) -> Tensor:
        x = self.to_patch_embedding(self.cut(x))
        x = x.flatten(1, -2) + self.positions(x)
        for mix, widen in self.transformer.layers:
            x = x + mix(x)
            x = x + widen(x)
        return self.linear_head(self.transformer.norm(x).mean(1))


def waves(index: Tensor, parts: int) -> Tensor:
    """Sines and cosines of one axis, which has so many of the channels."""
    angles = index.flatten()[:, None] * 10000.0 ** -(torch.arange(parts) / (parts - 1))
    return torch.cat((angles.sin(), angles.cos()), dim=1)


def of_times(x: Tensor) -> Tensor:
    return waves(torch.arange(x.shape[1]), SIZE // 2)


def of_frames(x: Tensor) -> Tensor:
    places = torch.meshgrid(*(torch.arange(side) for side in x.shape[1:4]), indexing="ij")
    return F.pad(torch.cat([waves(axis, SIZE // 6) for axis in reversed(places)], dim=1), (0, SIZE % 6))


def times(x: Tensor) -> Tensor:
    """Patches of eight times."""
    return x.unflatten(2, (-1, 8)).permute(0, 2, 3, 1).flatten(2)


def frames(x: Tensor) -> Tensor:
    """Patches of two frames of four by four pixels."""
    x = x.unflatten(4, (-1, 4)).unflatten(3, (-1, 4)).unflatten(2, (-1, 2))
    return x.permute(0, 2, 4, 6, 3, 5, 7, 1).flatten(4)


@pytest.mark.parametrize(
    ("model", "shape", "told"),
    [
        (Plain(24, times, of_times), (2, 3, 40), {"image.patch_channels": "series"}),
        (Plain(96, frames, of_frames), (2, 3, 6, 8, 12), {"image.patch_channels": "frames", "patch_size": 4}),
    ],
    ids=["series", "frames"],
)
def test_patches_of_a_series_or_a_video(
    model: nn.Module, shape: tuple[int, ...], told: dict[str, Any], tmp_path: Path
) -> None:
    randomise(model.eval())
    torch.save(model.state_dict(), tmp_path / "model.pth")
    questions = mapper.inspect(tmp_path / "model.pth").architecture.questions
    assert "image.patch_channels" in {
        question.fact for question in questions
    }  # the library's names are the same
    built = mapper.build(tmp_path / "model.pth", hints={"attention.heads": HEADS, **told})
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = model(x)
        assert float((built(pixel_values=x).logits - wanted).abs().max() / wanted.std()) <= TOLERANCE


class Merged(nn.Module):
    """Patches of an image, of which queries read a few tokens after the first of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.to_patch_embedding = nn.Sequential(
            nn.Identity(), nn.LayerNorm(48), nn.Linear(48, SIZE), nn.LayerNorm(SIZE)
        )
        self.pos_embedding = nn.Parameter(torch.zeros(1, 10, SIZE))
        self.transformer, merger = nn.Module(), nn.Module()
        self.transformer.layers = nn.ModuleList(nn.ModuleList((Attention(), FeedForward())) for _ in range(3))
        merger.norm, merger.queries = nn.LayerNorm(SIZE), nn.Parameter(torch.zeros(4, SIZE))
        self.transformer.norm, self.transformer.patch_merger = nn.LayerNorm(SIZE), merger
        self.mlp_head = nn.Sequential(nn.Identity(), nn.Linear(SIZE, LABELS))

    def forward(self, image: Tensor) -> Tensor:
        x = (
            image.unflatten(3, (-1, 4))
            .unflatten(2, (-1, 4))
            .permute(0, 2, 4, 3, 5, 1)
            .flatten(3)
            .flatten(1, 2)
        )
        x = self.to_patch_embedding(x) + self.pos_embedding[:, : x.shape[1]]
        for index, (mix, widen) in enumerate(self.transformer.layers):
            x = x + mix(x)
            x = x + widen(x)
            if index == 1:
                y = self.transformer.patch_merger.norm(x)
                x = (self.transformer.patch_merger.queries @ y.mT / SIZE**0.5).softmax(-1) @ y
        return self.mlp_head(self.transformer.norm(x).mean(1))


def test_queries_between_layers(tmp_path: Path) -> None:
    model = randomise(Merged().eval())
    torch.save(model.state_dict(), tmp_path / "model.pth")
    built = mapper.build(tmp_path / "model.pth", hints={"attention.heads": HEADS, "layers.before": 2})
    image = torch.randn((2, 3, 12, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = model(image)
        assert float((built(pixel_values=image).logits - wanted).abs().max() / wanted.std()) <= TOLERANCE


class Gate(nn.Module):
    """Half of the channels, normed and mixed over the tokens, with weights for each of two heads."""

    def __init__(self, tokens: int, is_causal: bool) -> None:
        super().__init__()
        self.is_causal, self.norm = is_causal, nn.LayerNorm(48)
        self.weight, self.bias = (
            nn.Parameter(torch.zeros(2, tokens, tokens)),
            nn.Parameter(torch.zeros(2, tokens)),
        )

    def forward(self, x: Tensor) -> Tensor:
        kept, x = x.chunk(2, dim=-1)
        count = x.shape[1]
        weight = self.weight[:, :count, :count].tril() if self.is_causal else self.weight
        x = self.norm(x).unflatten(2, (2, -1))
        return kept * (torch.einsum("bnhd,hmn->bmhd", x, weight) + self.bias[:, :count].T[..., None]).flatten(
            2
        )


class GatedLayer(nn.Module):
    def __init__(self, tokens: int, is_causal: bool, wrappers: int) -> None:
        super().__init__()
        inner: nn.Module = nn.Module()
        inner.proj_in, inner.sgu = nn.Sequential(nn.Linear(SIZE, 96), nn.GELU()), Gate(tokens, is_causal)
        inner.proj_out = nn.Linear(48, SIZE)
        self.inner = [inner]  # once among the modules, behind its wrappers
        for _ in range(wrappers):
            wrapper = nn.Module()
            wrapper.fn = inner
            inner = wrapper
        self.fn = inner
        self.fn.norm = nn.LayerNorm(SIZE)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.inner[0]
        return x + inner.proj_out(inner.sgu(inner.proj_in(self.fn.norm(x))))


class Gated(nn.Module):
    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        self.to_embed = nn.Embedding(99, SIZE)
        self.layers = nn.Sequential(*(GatedLayer(8, is_causal, 2) for _ in range(2)))
        self.to_logits = nn.Sequential(nn.LayerNorm(SIZE), nn.Linear(SIZE, 99))

    def forward(self, ids: Tensor) -> Tensor:
        return self.to_logits(self.layers(self.to_embed(ids)))


@pytest.mark.parametrize(("is_causal", "length"), [(True, 8), (True, 5), (False, 8)])
def test_gates_over_tokens(is_causal: bool, length: int, tmp_path: Path) -> None:
    model = randomise(Gated(is_causal).eval())
    torch.save(model.state_dict(), tmp_path / "model.pth")
    told = {"task": "masked_lm", "layer.shifted": False, "feed_forward.causal": is_causal}
    built = mapper.build(tmp_path / "model.pth", hints=told)
    ids = torch.randint(1, 99, (2, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = model(ids)
        assert float((built(input_ids=ids).logits - wanted).abs().max() / wanted.std()) <= TOLERANCE


class GatedPatches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.to_patch_embed = nn.Sequential(nn.Identity(), nn.Linear(48, SIZE))
        self.layers = nn.Sequential(*(GatedLayer(6, False, 1) for _ in range(2)))
        self.to_logits = nn.Sequential(nn.LayerNorm(SIZE), nn.Identity(), nn.Linear(SIZE, LABELS))

    def forward(self, image: Tensor) -> Tensor:
        x = (
            image.unflatten(3, (-1, 4))
            .unflatten(2, (-1, 4))
            .permute(0, 2, 4, 1, 3, 5)
            .flatten(3)
            .flatten(1, 2)
        )
        x = self.to_logits[0](self.layers(self.to_patch_embed(x)))
        return self.to_logits[2](x.mean(1))


def test_gates_over_patches(tmp_path: Path) -> None:
    check_by_names(
        GatedPatches(), tmp_path, torch.randn((2, 3, 8, 12), generator=torch.Generator().manual_seed(1))
    )
