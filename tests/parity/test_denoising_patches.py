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

    def forward(self, x: Tensor, words: Tensor, shared: Tensor, angles: Tensor) -> Tensor:
        first, last = (self.scale_shift_table + shared).split(3, dim=1)
        y = modulated(x, first[:, :1], first[:, 1:2])
        x = x + first[:, 2:] * self.attn1(y, y, angles)
        x = x + self.attn2(self.norm2(x), words)
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
            x = layer(x, words, shared, angles)
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
