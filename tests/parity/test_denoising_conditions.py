"""What diffusion models under diffusers' names know beside a step and a text, against the same models with torch alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mapper
from tests.parity.harness import TOLERANCE, randomise
from tests.parity.test_convolutional_names import parts
from tests.parity.test_denoising_names import TEXT as WORDS
from tests.parity.test_denoising_names import LargeUNet, attended, compared, sinusoids, through, two
from tests.parity.test_denoising_patches import (
    GENERATOR,
    HEADS,
    SIZE,
    STEPS,
    TEXT,
    Frames,
    LinearPatches,
    NormedAttention,
    Reading,
    RectifiedAttention,
    modulated,
)

IMAGE = torch.randn((2, 6, 7), generator=GENERATOR)
GUIDANCE = torch.tensor([4.0, 0.5])
EMBEDDERS = {"timestep_embedder": SIZE, "resolution_embedder": SIZE // 3, "aspect_ratio_embedder": SIZE // 3}


class Guide(LargeUNet):
    """A ControlNet of Stable Diffusion XL: the coarser half of a U-Net, and an image of twice its size."""

    def __init__(self) -> None:
        super().__init__()
        del self.up_blocks, self.conv_norm_out, self.conv_out
        self.controlnet_cond_embedding = parts(
            conv_in=nn.Conv2d(3, 4, 3, padding=1),
            blocks=nn.ModuleList([nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 6, 3, 2, 1)]),
            conv_out=nn.Conv2d(6, 8, 3, padding=1),
        )
        self.controlnet_down_blocks = nn.ModuleList(nn.Conv2d(size, size, 1) for size in (8, 8, 8, 16))
        self.controlnet_mid_block = nn.Conv2d(16, 16, 1)

    def states(self, x: Tensor, time: Tensor, image: Tensor) -> list[Tensor]:
        guide: Any = self.controlnet_cond_embedding
        image = F.silu(guide.conv_in(image))
        for convolution in guide.blocks:
            image = F.silu(convolution(image))
        kept = [self.conv_in(x) + guide.conv_out(image)]
        down, low = self.down_blocks
        kept.append(down.attentions[0](down.resnets[0](kept[-1], time)))
        kept.append(down.downsamplers[0].conv(kept[-1]))
        kept.append(low.resnets[0](kept[-1], time))
        x = self.mid_block.attentions[0](self.mid_block.resnets[0](kept[-1], time))
        last = self.controlnet_mid_block(self.mid_block.resnets[1](x, time))
        return [*(each(state) for each, state in zip(self.controlnet_down_blocks, kept, strict=True)), last]


def test_a_guide_of_a_unet_knows_sizes(tmp_path: Path) -> None:
    model = randomise(Guide().eval())
    x, image = (
        torch.randn((2, 3, 8, 12), generator=GENERATOR),
        torch.randn((2, 3, 16, 24), generator=GENERATOR),
    )
    pooled, sizes = torch.randn((2, 6), generator=GENERATOR), torch.tensor([[8.0, 12.0], [16.0, 9.0]])
    config = {"_class_name": "ControlNetModel", "norm_num_groups": 4, "attention_head_dim": [2, 4], "block_out_channels": [8, 16], "addition_embed_type": "text_time", "addition_time_embed_dim": 4, "cross_attention_dim": 12}  # fmt: skip
    torch.save(model.state_dict(), tmp_path / "diffusion_pytorch_model.bin")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with torch.no_grad():
        joined = torch.cat((pooled, sinusoids(sizes.flatten(), 4).reshape(2, -1)), dim=1)
        time = through(model.time_embedding, sinusoids(STEPS, 8)) + through(model.add_embedding, joined)
        wanted = model.states(x, time, image)
        made = mapper.build(tmp_path)(sample=x, controlnet_cond=image, timestep=STEPS, encoder_hidden_states=WORDS, text_embeds=pooled, time_ids=sizes, conditioning_scale=torch.ones(2))  # fmt: skip
    got = [*made.down_block_res_samples, made.mid_block_res_sample]
    for one, other in zip(got, wanted, strict=True):
        assert float((one - other).abs().max() / other.std()) <= TOLERANCE
    del model.add_embedding
    torch.save(model.state_dict(), tmp_path / "diffusion_pytorch_model.bin")
    assert any("add_embedding" in str(each) for each in mapper.inspect(tmp_path).architecture.findings)


class NormedRectified(RectifiedAttention):
    """Queries and keys normalised over all heads."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_q, self.norm_k = nn.RMSNorm(SIZE, eps=1e-5), nn.RMSNorm(SIZE, eps=1e-5)

    def forward(self, x: Tensor) -> Tensor:
        q, k = (
            F.relu(each).unflatten(2, (HEADS, -1)).transpose(1, 2)
            for each in (self.norm_q(self.to_q(x)), self.norm_k(self.to_k(x)))
        )
        shares, v = q @ k.mT, self.to_v(x).unflatten(2, (HEADS, -1)).transpose(1, 2)
        return self.to_out[0]((shares @ v / shares.sum(dim=-1, keepdim=True)).transpose(1, 2).flatten(2))


class NormedReading(Reading):
    def __init__(self) -> None:
        super().__init__()
        self.norm_q, self.norm_k = nn.RMSNorm(SIZE, eps=1e-5), nn.RMSNorm(SIZE, eps=1e-5)

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        q, k = self.norm_q(self.to_q(x)), self.norm_k(self.to_k(words))
        return self.to_out[0](attended(q, k, self.to_v(words), 3))


class NormedPatches(LinearPatches):
    """SANA 1.5."""

    def __init__(self) -> None:
        super().__init__()
        for layer in self.transformer_blocks:
            layer.attn1, layer.attn2 = NormedRectified(), NormedReading()


class GuidedPatches(NormedPatches):
    """SANA-Sprint: the embeddings of a step and of a guidance together."""

    def __init__(self) -> None:
        super().__init__()
        self.time_embed = parts(
            timestep_embedder=two("", 8, SIZE),
            guidance_embedder=two("", 8, SIZE),
            linear=nn.Linear(SIZE, 6 * SIZE),
        )

    def time(self) -> Tensor:
        given: Any = self.time_embed
        step = through(given.timestep_embedder, sinusoids(STEPS, 8))
        return step + through(given.guidance_embedder, sinusoids(GUIDANCE, 8))


@pytest.mark.parametrize("is_guided", [False, True])
def test_linear_attention_with_norms_follows_a_guidance(is_guided: bool, tmp_path: Path) -> None:
    model = randomise((GuidedPatches() if is_guided else NormedPatches()).eval())
    image = torch.randn((2, 3, 4, 8), generator=GENERATOR)
    config = {"_class_name": "SanaTransformer2DModel", "num_attention_heads": HEADS, "num_cross_attention_heads": 3, "attention_head_dim": 12, "cross_attention_head_dim": 8, "norm_eps": 1e-6, "interpolation_scale": None, "patch_size": 2, "sample_size": 8, "qk_norm": "rms_norm_across_heads", "guidance_embeds": is_guided}  # fmt: skip
    inputs = {"guidance": GUIDANCE} if is_guided else {}
    with torch.no_grad():
        wanted = model(image)
    compared(tmp_path, model, config, wanted, hidden_states=image, timestep=STEPS, encoder_hidden_states=TEXT, **inputs)  # fmt: skip


class SizedLayer(nn.Module):
    """A layer of PixArt."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("attn1", "attn2"):
            maps = {f"to_{each}": nn.Linear(SIZE, SIZE) for each in "qkv"}
            self.add_module(name, parts(**maps, to_out=nn.ModuleList([nn.Linear(SIZE, SIZE)])))
        self.ff = parts(net=nn.ModuleDict({"0": parts(proj=nn.Linear(SIZE, 40)), "2": nn.Linear(40, SIZE)}))
        self.scale_shift_table = nn.Parameter(torch.zeros(6, SIZE))

    def read(self, maps: Any, x: Tensor, source: Tensor) -> Tensor:
        return maps.to_out[0](attended(maps.to_q(x), maps.to_k(source), maps.to_v(source)))

    def forward(self, x: Tensor, words: Tensor, shared: Tensor) -> Tensor:
        first, last = (self.scale_shift_table + shared).split(3, dim=1)
        y = modulated(x, first[:, :1], first[:, 1:2])
        x = x + first[:, 2:] * self.read(self.attn1, y, y)
        x = x + self.read(self.attn2, x, words)
        y = self.ff.net["0"].proj(modulated(x, last[:, :1], last[:, 1:2]))
        return x + last[:, 2:] * self.ff.net["2"](F.gelu(y, approximate="tanh"))


class SizedPatches(nn.Module):
    """PixArt-alpha of 1024 places: a third of the conditions by each side and by their ratio."""

    def __init__(self) -> None:
        super().__init__()
        self.pos_embed = parts(proj=nn.Conv2d(3, SIZE, 2, 2))
        embedders = {name: two("", 8, size) for name, size in EMBEDDERS.items()}
        self.adaln_single = parts(emb=parts(**embedders), linear=nn.Linear(SIZE, 6 * SIZE))
        self.caption_projection = two("", 10, SIZE)
        self.transformer_blocks = nn.ModuleList(SizedLayer() for _ in range(2))
        self.proj_out = nn.Linear(SIZE, 2 * 2 * 5)
        self.scale_shift_table = nn.Parameter(torch.zeros(2, SIZE))

    def forward(self, image: Tensor, sides: Tensor, ratio: Tensor) -> Tensor:
        maps, given = self.caption_projection, self.adaln_single.emb
        words = maps.linear_2(F.gelu(maps.linear_1(TEXT), approximate="tanh"))
        of_sides = [through(given.resolution_embedder, sinusoids(each, 8)) for each in sides.T]
        of_ratio = through(given.aspect_ratio_embedder, sinusoids(ratio[:, 0], 8))
        time = through(given.timestep_embedder, sinusoids(STEPS, 8)) + torch.cat((*of_sides, of_ratio), dim=1)
        shared = self.adaln_single.linear(F.silu(time)).unflatten(1, (6, SIZE))
        x = self.pos_embed.proj(image)
        rows, columns = x.shape[2:]
        across = sinusoids_of(torch.arange(columns) * (4 / columns)).repeat(rows, 1)
        down = sinusoids_of(torch.arange(rows) * (4 / rows)).repeat_interleave(columns, dim=0)
        x = x.flatten(2).mT + torch.cat((across, down), dim=1)
        for layer in self.transformer_blocks:
            x = layer(x, words, shared)
        shift, scale = (self.scale_shift_table + time[:, None]).chunk(2, dim=1)
        x = self.proj_out(modulated(x, shift, scale)).unflatten(2, (2, 2, 5)).unflatten(1, (rows, columns))
        return x.permute(0, 5, 1, 3, 2, 4).reshape(2, 5, 2 * rows, 2 * columns)


def sinusoids_of(places: Tensor) -> Tensor:
    """Sines, then cosines, in half of the channels. (T) -> (T, SIZE / 2)"""
    angles = places[:, None] * 10000.0 ** (-torch.arange(SIZE // 4) / (SIZE // 4))
    return torch.cat((angles.sin(), angles.cos()), dim=1)


def test_patches_know_the_resolution_and_the_aspect_ratio(tmp_path: Path) -> None:
    model = randomise(SizedPatches().eval())
    image = torch.randn((2, 3, 4, 8), generator=GENERATOR)
    sides, ratio = torch.tensor([[32.0, 64.0], [48.0, 40.0]]), torch.tensor([[0.5], [1.2]])
    config = {"_class_name": "PixArtTransformer2DModel", "num_attention_heads": HEADS, "attention_head_dim": 12, "patch_size": 2, "sample_size": 8, "use_additional_conditions": True}  # fmt: skip
    with torch.no_grad():
        wanted = model(image, sides, ratio)
    compared(tmp_path, model, config, wanted, hidden_states=image, timestep=STEPS, encoder_hidden_states=TEXT, resolution=sides, aspect_ratio=ratio)  # fmt: skip


class TwoSources(NormedAttention):
    """To a text, and to an image with keys and values of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.add_k_proj, self.add_v_proj = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)
        self.norm_added_k = nn.RMSNorm(SIZE, eps=1e-6)

    def forward(self, x: Tensor, source: Tensor, image: Tensor) -> Tensor:  # type: ignore[override]
        q = self.norm_q(self.to_q(x))
        y = attended(q, self.norm_k(self.to_k(source)), self.to_v(source))
        return self.to_out[0](
            y + attended(q, self.norm_added_k(self.add_k_proj(image)), self.add_v_proj(image))
        )


class ImageFrames(Frames):
    """Wan from an image to a video."""

    def __init__(self) -> None:
        super().__init__()
        for layer in self.blocks:
            layer.attn2 = TwoSources()
        net = nn.ModuleDict({"0": parts(proj=nn.Linear(7, 9)), "2": nn.Linear(9, SIZE)})
        self.condition_embedder.image_embedder = parts(
            norm1=nn.LayerNorm(7, eps=1e-5), ff=parts(net=net), norm2=nn.LayerNorm(SIZE, eps=1e-5)
        )

    def beside(self) -> Tensor:
        maps: Any = self.condition_embedder.image_embedder
        return maps.norm2(maps.ff.net["2"](F.gelu(maps.ff.net["0"].proj(maps.norm1(IMAGE)))))


def test_a_video_is_denoised_from_an_image(tmp_path: Path) -> None:
    model = randomise(ImageFrames().eval())
    video = torch.randn((2, 3, 3, 4, 8), generator=GENERATOR)
    config = {"_class_name": "WanTransformer3DModel", "num_attention_heads": HEADS, "attention_head_dim": 12, "eps": 1e-6, "cross_attn_norm": True, "patch_size": [1, 2, 2], "qk_norm": "rms_norm_across_heads", "image_dim": 7, "added_kv_proj_dim": SIZE}  # fmt: skip
    with torch.no_grad():
        wanted = model(video)
    compared(tmp_path, model, config, wanted, hidden_states=video, timestep=STEPS, encoder_hidden_states=TEXT, encoder_hidden_states_image=IMAGE)  # fmt: skip
