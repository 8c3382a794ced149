"""Diffusion transformers over patches under diffusers' names, against the same models written here with torch alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.parity.harness import randomise
from tests.parity.test_convolutional_names import parts
from tests.parity.test_denoising_names import attended, compared, sinusoids, through, two

SIZE, HEADS, STEPS = 24, 2, torch.tensor([3.0, 500.0])
GENERATOR = torch.Generator().manual_seed(5)
TEXT = torch.randn((2, 5, 10), generator=GENERATOR)


def modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift


def turned(x: Tensor, angles: Tensor) -> Tensor:
    """Heads whose neighbouring channels are numbers of the plane, turned. x (B, T, W), angles (T, W / heads / 2)"""
    pairs = torch.view_as_complex(x.unflatten(2, (HEADS, -1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)[:, None]).flatten(2)


class NormedAttention(nn.Module):
    """Queries and keys normalised over all heads."""

    def __init__(self) -> None:
        super().__init__()
        self.to_q, self.to_k, self.to_v = (nn.Linear(SIZE, SIZE) for _ in range(3))
        self.norm_q, self.norm_k = nn.RMSNorm(SIZE, eps=1e-6), nn.RMSNorm(SIZE, eps=1e-6)
        self.to_out = nn.ModuleList([nn.Linear(SIZE, SIZE)])

    def forward(self, x: Tensor, source: Tensor, angles: Tensor | None = None) -> Tensor:
        q, k = self.norm_q(self.to_q(x)), self.norm_k(self.to_k(source))
        if angles is not None:
            q, k = turned(q, angles), turned(k, angles)
        return self.to_out[0](attended(q, k, self.to_v(source)))


class FrameLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn1, self.attn2 = NormedAttention(), NormedAttention()
        self.norm2 = nn.LayerNorm(SIZE, eps=1e-6)
        self.ffn = parts(net=nn.ModuleDict({"0": parts(proj=nn.Linear(SIZE, 40)), "2": nn.Linear(40, SIZE)}))
        self.scale_shift_table = nn.Parameter(torch.zeros(1, 6, SIZE))

    def forward(
        self, x: Tensor, words: Tensor, shared: Tensor, angles: Tensor, image: Tensor | None
    ) -> Tensor:
        first, last = (self.scale_shift_table + shared).split(3, dim=1)
        y = modulated(x, first[:, :1], first[:, 1:2])
        x = x + first[:, 2:] * self.attn1(y, y, angles)
        x = x + (
            self.attn2(self.norm2(x), words)
            if image is None
            else self.attn2(self.norm2(x), words, image=image)
        )
        y = self.ffn.net["0"].proj(modulated(x, last[:, :1], last[:, 1:2]))
        return x + last[:, 2:] * self.ffn.net["2"](F.gelu(y, approximate="tanh"))


class Frames(nn.Module):
    """Wan: patches of 1 x 2 x 2 of a video, a third of each head's channels turned by each coordinate."""

    def __init__(self) -> None:
        super().__init__()
        self.patch_embedding = nn.Conv3d(3, SIZE, (1, 2, 2), (1, 2, 2))
        self.condition_embedder = parts(
            time_embedder=two("", 8, SIZE),
            text_embedder=two("", 10, SIZE),
            time_proj=nn.Linear(SIZE, 6 * SIZE),
        )
        self.blocks = nn.ModuleList(FrameLayer() for _ in range(2))
        self.proj_out = nn.Linear(SIZE, 2 * 2 * 5)
        self.scale_shift_table = nn.Parameter(torch.zeros(1, 2, SIZE))

    def beside(self) -> Tensor | None:
        """Hidden states of an image that layers read beside the text."""
        return None

    def forward(self, video: Tensor) -> Tensor:
        given: Any = self.condition_embedder
        maps = given.text_embedder
        words = maps.linear_2(F.gelu(maps.linear_1(TEXT), approximate="tanh"))
        time = through(given.time_embedder, sinusoids(STEPS, 8))
        shared = given.time_proj(F.silu(time)).unflatten(1, (6, SIZE))
        x = self.patch_embedding(video)
        frames, rows, columns = x.shape[2:]
        waves = 10000.0 ** -(torch.arange(2) / 2)
        places = torch.cartesian_prod(*(torch.arange(count) for count in (frames, rows, columns)))
        angles = (places[:, :, None] * waves).flatten(1)
        x = x.flatten(2).mT
        for layer in self.blocks:
            x = layer(x, words, shared, angles, self.beside())
        shift, scale = (self.scale_shift_table + time[:, None]).chunk(2, dim=1)
        x = (
            self.proj_out(modulated(x, shift, scale))
            .unflatten(2, (2, 2, 5))
            .unflatten(1, (frames, rows, columns))
        )
        return x.permute(0, 6, 1, 2, 4, 3, 5).reshape(2, 5, frames, 2 * rows, 2 * columns)


def test_a_video_in_patches_is_denoised_as_a_text_says(tmp_path: Path) -> None:
    model = randomise(Frames().eval())
    video = torch.randn((2, 3, 3, 4, 8), generator=GENERATOR)
    config = {"_class_name": "WanTransformer3DModel", "num_attention_heads": HEADS, "attention_head_dim": 12, "eps": 1e-6, "cross_attn_norm": True, "patch_size": [1, 2, 2], "qk_norm": "rms_norm_across_heads"}  # fmt: skip
    with torch.no_grad():
        wanted = model(video)
    compared(tmp_path, model, config, wanted, hidden_states=video, timestep=STEPS, encoder_hidden_states=TEXT)


class RectifiedAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.to_q, self.to_k, self.to_v = (nn.Linear(SIZE, SIZE, bias=False) for _ in range(3))
        self.to_out = nn.ModuleList([nn.Linear(SIZE, SIZE)])

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            maps(x).unflatten(2, (HEADS, -1)).transpose(1, 2) for maps in (self.to_q, self.to_k, self.to_v)
        )
        shares = F.relu(q) @ F.relu(k).mT
        return self.to_out[0]((shares @ v / shares.sum(dim=-1, keepdim=True)).transpose(1, 2).flatten(2))


class Reading(nn.Module):
    """Attention over a text with other heads."""

    def __init__(self) -> None:
        super().__init__()
        self.to_q, self.to_k, self.to_v = (nn.Linear(SIZE, SIZE) for _ in range(3))
        self.to_out = nn.ModuleList([nn.Linear(SIZE, SIZE)])

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        return self.to_out[0](attended(self.to_q(x), self.to_k(words), self.to_v(words), 3))


class GatedMapLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn1, self.attn2 = RectifiedAttention(), Reading()
        self.ff = parts(
            conv_inverted=nn.Conv2d(SIZE, 40, 1),
            conv_depth=nn.Conv2d(40, 40, 3, padding=1, groups=40),
            conv_point=nn.Conv2d(20, SIZE, 1, bias=False),
        )
        self.scale_shift_table = nn.Parameter(torch.zeros(6, SIZE))

    def forward(self, x: Tensor, words: Tensor, shared: Tensor, rows: int) -> Tensor:
        first, last = (self.scale_shift_table + shared).split(3, dim=1)
        x = x + first[:, 2:] * self.attn1(modulated(x, first[:, :1], first[:, 1:2]))
        x = x + self.attn2(x, words)
        y = modulated(x, last[:, :1], last[:, 1:2]).mT.unflatten(2, (rows, -1))
        up, gate = self.ff.conv_depth(F.silu(self.ff.conv_inverted(y))).chunk(2, dim=1)
        return x + last[:, 2:] * self.ff.conv_point(up * F.silu(gate)).flatten(2).mT


class LinearPatches(nn.Module):
    """Sana: no positions but those that convolutions tell apart, and a norm of the text."""

    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = parts(proj=nn.Conv2d(3, SIZE, 2, 2))
        self.time_embed = parts(
            emb=parts(timestep_embedder=two("", 8, SIZE)), linear=nn.Linear(SIZE, 6 * SIZE)
        )
        self.caption_projection, self.caption_norm = two("", 10, SIZE), nn.RMSNorm(SIZE, eps=1e-5)
        self.transformer_blocks = nn.ModuleList(GatedMapLayer() for _ in range(2))
        self.proj_out = nn.Linear(SIZE, 2 * 2 * 5)
        self.scale_shift_table = nn.Parameter(torch.zeros(2, SIZE))

    def time(self) -> Tensor:
        given: Any = self.time_embed
        return through(given.emb.timestep_embedder, sinusoids(STEPS, 8))

    def forward(self, image: Tensor) -> Tensor:
        given: Any = self.time_embed
        maps: Any = self.caption_projection
        words = self.caption_norm(maps.linear_2(F.gelu(maps.linear_1(TEXT), approximate="tanh")))
        time = self.time()
        shared = given.linear(F.silu(time)).unflatten(1, (6, SIZE))
        x = self.patch_embed.proj(image)
        rows, columns = x.shape[2:]
        x = x.flatten(2).mT
        for layer in self.transformer_blocks:
            x = layer(x, words, shared, rows)
        shift, scale = (self.scale_shift_table + time[:, None]).chunk(2, dim=1)
        x = self.proj_out(modulated(x, shift, scale)).unflatten(2, (2, 2, 5)).unflatten(1, (rows, columns))
        return x.permute(0, 5, 1, 3, 2, 4).reshape(2, 5, 2 * rows, 2 * columns)


def test_an_image_is_denoised_by_linear_attention_and_gated_maps(tmp_path: Path) -> None:
    model = randomise(LinearPatches().eval())
    image = torch.randn((2, 3, 4, 8), generator=GENERATOR)
    config = {"_class_name": "SanaTransformer2DModel", "num_attention_heads": HEADS, "num_cross_attention_heads": 3, "attention_head_dim": 12, "cross_attention_head_dim": 8, "norm_eps": 1e-6, "interpolation_scale": None, "patch_size": 2, "sample_size": 8}  # fmt: skip
    with torch.no_grad():
        wanted = model(image)
    compared(tmp_path, model, config, wanted, hidden_states=image, timestep=STEPS, encoder_hidden_states=TEXT)
