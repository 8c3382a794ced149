"""Images and texts in one row under diffusers' names, against the same models written here with torch alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.parity.harness import randomise
from tests.parity.test_convolutional_names import parts
from tests.parity.test_denoising_names import attended, compared, normal, sinusoids, through, two
from tests.parity.test_denoising_patches import GENERATOR, HEADS, SIZE, TEXT

AXES = (4, 2, 6)  # of a head's channels
STEPS = torch.tensor([0.25, 0.9])


def angles(places: Tensor) -> Tensor:
    """The angles of each axis's pairs of channels. (T, 3) -> (T, SIZE / HEADS / 2)"""
    turns = [10000.0 ** (-torch.arange(0, size, 2) / size) for size in AXES]
    return torch.cat([places[:, axis, None] * each for axis, each in enumerate(turns)], dim=1)


def turned(x: Tensor, by: Tensor) -> Tensor:
    """Neighbouring channels as a number of the plane, turned. x (B, T, heads, W)"""
    pairs = torch.view_as_complex(x.unflatten(3, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(by), by)[:, None]).flatten(2)


class BothAttention(nn.Module):
    """Of a text and an image in one row, with norms of each head's queries and keys."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"):
            self.add_module(name, nn.Linear(SIZE, SIZE))
        for name in ("norm_q", "norm_k", "norm_added_q", "norm_added_k"):
            self.add_module(name, nn.RMSNorm(SIZE // HEADS, eps=1e-6))
        self.to_out = nn.ModuleList([nn.Linear(SIZE, SIZE)])

    def row(
        self, of_text: Any, of_image: Any, norms: tuple[Any, Any] | None, x: Tensor, words: Tensor
    ) -> Tensor:
        both = [of_text(words).unflatten(2, (HEADS, -1)), of_image(x).unflatten(2, (HEADS, -1))]
        if norms:
            both = [norm(each) for norm, each in zip(norms, both, strict=True)]
        return torch.cat(both, dim=1)

    def forward(self, x: Tensor, words: Tensor, by: Tensor) -> tuple[Tensor, Tensor]:
        q = self.row(self.add_q_proj, self.to_q, (self.norm_added_q, self.norm_q), x, words)
        k = self.row(self.add_k_proj, self.to_k, (self.norm_added_k, self.norm_k), x, words)
        v = self.row(self.add_v_proj, self.to_v, None, x, words).flatten(2)
        y = attended(turned(q, by), turned(k, by), v)
        count = words.shape[1]
        return self.to_out[0](y[:, count:]), self.to_add_out(y[:, :count])


def network() -> nn.Module:
    return parts(net=nn.ModuleDict({"0": parts(proj=nn.Linear(SIZE, 40)), "2": nn.Linear(40, SIZE)}))


def fed(maps: Any, x: Tensor) -> Tensor:
    return maps.net["2"](F.gelu(maps.net["0"].proj(x), approximate="tanh"))


class BothLayer(nn.Module):
    def __init__(self, names: dict[str, str]) -> None:
        super().__init__()
        self.attn = BothAttention()
        maps = [nn.Linear(SIZE, 6 * SIZE), nn.Linear(SIZE, 6 * SIZE), network(), network()]
        self.found = list(zip(names.values(), maps, strict=True))
        for name, each in self.found:
            folder, _, last = name.partition(".")
            self.add_module(folder, parts(**{last: each}) if last else each)

    def forward(self, x: Tensor, words: Tensor, time: Tensor, by: Tensor) -> tuple[Tensor, Tensor]:
        says, text_says, feed, text_feed = (each for _, each in self.found)
        one = says(F.silu(time))[:, None].chunk(6, dim=2)
        other = text_says(F.silu(time))[:, None].chunk(6, dim=2)
        y, z = self.attn(normal(x) * (1 + one[1]) + one[0], normal(words) * (1 + other[1]) + other[0], by)
        x, words = x + one[2] * y, words + other[2] * z
        x = x + one[5] * fed(feed, normal(x) * (1 + one[4]) + one[3])
        return x, words + other[5] * fed(text_feed, normal(words) * (1 + other[4]) + other[3])


class RowLayer(nn.Module):
    """Attention and a feed-forward network side by side."""

    def __init__(self) -> None:
        super().__init__()
        norms = {name: nn.RMSNorm(SIZE // HEADS, eps=1e-6) for name in ("norm_q", "norm_k")}
        self.attn = parts(**{f"to_{each}": nn.Linear(SIZE, SIZE) for each in "qkv"}, **norms)
        self.norm = parts(linear=nn.Linear(SIZE, 3 * SIZE))
        self.proj_mlp, self.proj_out = nn.Linear(SIZE, 40), nn.Linear(SIZE + 40, SIZE)

    def forward(self, x: Tensor, time: Tensor, by: Tensor) -> Tensor:
        shift, scale, gate = self.norm.linear(F.silu(time))[:, None].chunk(3, dim=2)
        y, maps = normal(x) * (1 + scale) + shift, self.attn
        q, k = maps.to_q(y).unflatten(2, (HEADS, -1)), maps.to_k(y).unflatten(2, (HEADS, -1))
        read = attended(turned(maps.norm_q(q), by), turned(maps.norm_k(k), by), maps.to_v(y))
        return x + gate * self.proj_out(
            torch.cat((read, F.gelu(self.proj_mlp(y), approximate="tanh")), dim=2)
        )


FLUX = {"one": "norm1.linear", "other": "norm1_context.linear", "feed": "ff", "text_feed": "ff_context"}
QWEN = {"one": "img_mod.1", "other": "txt_mod.1", "feed": "img_mlp", "text_feed": "txt_mlp"}


class Rows(nn.Module):
    """LongCat-Image: Flux without a vector of the text."""

    def __init__(self) -> None:
        super().__init__()
        self.x_embedder, self.context_embedder = nn.Linear(6, SIZE), nn.Linear(10, SIZE)
        self.time_embed = parts(timestep_embedder=two("", 8, SIZE))
        self.transformer_blocks = nn.ModuleList(BothLayer(FLUX) for _ in range(2))
        self.single_transformer_blocks = nn.ModuleList(RowLayer() for _ in range(2))
        self.norm_out, self.proj_out = parts(linear=nn.Linear(SIZE, 2 * SIZE)), nn.Linear(SIZE, 6)

    def first(self, latents: Tensor) -> tuple[Tensor, Tensor, Any]:
        return self.x_embedder(latents), self.context_embedder(TEXT), self.time_embed

    def forward(self, latents: Tensor, places: Tensor) -> Tensor:
        (x, words, given), by = self.first(latents), angles(places)
        time = through(given.timestep_embedder, sinusoids(1000 * STEPS, 8))
        for layer in self.transformer_blocks:
            x, words = layer(x, words, time, by)
        row = torch.cat((words, x), dim=1)
        for layer in self.single_transformer_blocks:
            row = layer(row, time, by)
        scale, shift = self.norm_out.linear(F.silu(time))[:, None].chunk(2, dim=2)
        return self.proj_out(normal(row[:, words.shape[1] :]) * (1 + scale) + shift)


class CentredRows(Rows):
    """Qwen-Image: a norm of the text, and no layers over one row."""

    def __init__(self) -> None:
        super().__init__()
        self.img_in, self.txt_in, self.time_text_embed = (
            self.x_embedder,
            self.context_embedder,
            self.time_embed,
        )
        del self.x_embedder, self.context_embedder, self.time_embed
        self.txt_norm = nn.RMSNorm(10, eps=1e-6)
        self.transformer_blocks = nn.ModuleList(BothLayer(QWEN) for _ in range(2))
        self.single_transformer_blocks = nn.ModuleList()

    def first(self, latents: Tensor) -> tuple[Tensor, Tensor, Any]:
        return self.img_in(latents), self.txt_in(self.txt_norm(TEXT)), self.time_text_embed


CONFIG = {"num_attention_heads": HEADS, "attention_head_dim": SIZE // HEADS, "axes_dims_rope": list(AXES)}


def test_rows_of_a_text_and_an_image_without_a_vector_of_the_text(tmp_path: Path) -> None:
    model, latents = randomise(Rows().eval()), torch.randn((2, 6, 6), generator=GENERATOR)
    grid = torch.cartesian_prod(torch.zeros(1), torch.arange(2.0), torch.arange(3.0))
    config = {"_class_name": "LongCatImageTransformer2DModel", "patch_size": 1, **CONFIG}
    words = torch.arange(5.0)[:, None] * torch.tensor([0.0, 1.0, 2.0])
    with torch.no_grad():
        wanted = model(latents, torch.cat((words, grid)))
    compared(tmp_path, model, config, wanted, hidden_states=latents, timestep=STEPS, encoder_hidden_states=TEXT, img_ids=grid, txt_ids=words)  # fmt: skip


@pytest.mark.parametrize("shapes", [[(1, 3, 4)], [(1, 3, 5), (2, 2, 4)]], ids=["an image", "two"])
def test_places_are_counted_from_the_middle_of_each_image(
    shapes: list[tuple[int, ...]], tmp_path: Path
) -> None:
    places, latents = [], []
    for index, (frames, rows, columns) in enumerate(shapes):
        across = torch.arange(columns) - (columns - columns // 2)
        down = torch.arange(rows) - (rows - rows // 2)
        places.append(torch.cartesian_prod(index + torch.arange(frames), down, across))
        latents.append(torch.randn((2, frames * rows * columns, 6), generator=GENERATOR))
    after = max(max(rows // 2, columns // 2) for _, rows, columns in shapes)
    words = (after + torch.arange(5))[:, None].expand(5, 3)
    model, row = randomise(CentredRows().eval()), torch.cat(latents, dim=1)
    config = {
        "_class_name": "QwenImageTransformer2DModel",
        "patch_size": 2,
        "guidance_embeds": False,
        **CONFIG,
    }
    with torch.no_grad():
        wanted = model(row, torch.cat((words, *places)))
    compared(tmp_path, model, config, wanted, hidden_states=row, timestep=STEPS, encoder_hidden_states=TEXT, img_shapes=torch.tensor(shapes))  # fmt: skip
