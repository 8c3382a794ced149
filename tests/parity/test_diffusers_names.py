"""Models of images under diffusers' names, against the same models written here with torch alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mapper
from tests.parity.harness import TOLERANCE, randomise
from tests.parity.test_convolutional_names import parts

GROUPS = 4


def norm(size: int) -> nn.GroupNorm:
    return nn.GroupNorm(GROUPS, size, eps=1e-6)


class Resnet(nn.Module):
    def __init__(self, size: int, out: int):
        super().__init__()
        self.norm1, self.conv1 = norm(size), nn.Conv2d(size, out, 3, padding=1)
        self.norm2, self.conv2 = norm(out), nn.Conv2d(out, out, 3, padding=1)
        if size != out:
            self.conv_shortcut = nn.Conv2d(size, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))
        return y + (self.conv_shortcut(x) if hasattr(self, "conv_shortcut") else x)


class MapAttention(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.group_norm = norm(size)
        self.to_q, self.to_k, self.to_v = (nn.Linear(size, size) for _ in range(3))
        self.to_out = nn.ModuleList([nn.Linear(size, size)])

    def forward(self, x: Tensor) -> Tensor:
        rows = self.group_norm(x).flatten(2).transpose(1, 2)
        y = F.scaled_dot_product_attention(self.to_q(rows), self.to_k(rows), self.to_v(rows))
        return x + self.to_out[0](y).transpose(1, 2).reshape(x.shape)


class Half(nn.Module):
    """An encoder, or a decoder where the sizes fall; stages of the size `attended` have attention after each layer."""

    def __init__(self, channels: int, sizes: list[int], out: int, is_encoder: bool, attended: int | None):
        super().__init__()
        self.is_encoder, middle = is_encoder, max(sizes)
        self.conv_in = nn.Conv2d(channels, sizes[0], 3, padding=1)
        blocks, size, count = nn.ModuleList(), sizes[0], 1 if is_encoder else 2
        for index, each in enumerate(sizes):
            layers = [Resnet(size if not at else each, each) for at in range(count)]
            block = parts(resnets=nn.ModuleList(layers))
            if each == attended:
                block.add_module("attentions", nn.ModuleList(MapAttention(each) for _ in layers))
            if index < len(sizes) - 1:
                step = parts(conv=nn.Conv2d(each, each, 3, 2 if is_encoder else 1, 0 if is_encoder else 1))
                block.add_module("downsamplers" if is_encoder else "upsamplers", nn.ModuleList([step]))
            blocks.append(block)
            size = each
        self.add_module("down_blocks" if is_encoder else "up_blocks", blocks)
        units = nn.ModuleList([Resnet(middle, middle), Resnet(middle, middle)])
        self.mid_block = parts(resnets=units, attentions=nn.ModuleList([MapAttention(middle)]))
        self.conv_norm_out, self.conv_out = norm(sizes[-1]), nn.Conv2d(sizes[-1], out, 3, padding=1)

    def middle(self, x: Tensor) -> Tensor:
        first, second = self.mid_block.resnets
        return second(self.mid_block.attentions[0](first(x)))

    def blocks(self, x: Tensor) -> Tensor:
        for block in self.down_blocks if self.is_encoder else self.up_blocks:
            for at, layer in enumerate(block.resnets):
                x = layer(x)
                if hasattr(block, "attentions"):
                    x = block.attentions[at](x)
            if hasattr(block, "downsamplers"):
                x = block.downsamplers[0].conv(F.pad(x, (0, 1, 0, 1)))
            if hasattr(block, "upsamplers"):
                x = block.upsamplers[0].conv(F.interpolate(x, scale_factor=2))
        return x

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_in(x)
        x = self.middle(self.blocks(x)) if self.is_encoder else self.blocks(self.middle(x))
        return self.conv_out(F.silu(self.conv_norm_out(x)))


class Autoencoder(nn.Module):
    def __init__(self, attended: int | None = None) -> None:
        super().__init__()
        self.encoder = Half(3, [8, 12, 16], 4, is_encoder=True, attended=attended)
        self.decoder = Half(2, [16, 12, 8], 3, is_encoder=False, attended=attended)
        self.quant_conv, self.post_quant_conv = nn.Conv2d(4, 4, 1), nn.Conv2d(2, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        mean = self.quant_conv(self.encoder(image)).chunk(2, dim=1)[0]
        return self.decoder(self.post_quant_conv(mean))


@pytest.mark.parametrize(
    "attended", [None, 12, 16], ids=["in the middle alone", "in a stage", "in the coarsest stage"]
)
def test_an_autoencoder_gives_an_image_from_the_mean_of_its_latents(
    attended: int | None, tmp_path: Path
) -> None:
    model = randomise(Autoencoder(attended).eval())
    torch.save(model.state_dict(), tmp_path / "diffusion_pytorch_model.bin")
    config = {
        "_class_name": "AutoencoderKL",
        "norm_num_groups": GROUPS,
        "act_fn": "silu",
        "latent_channels": 2,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    report = mapper.inspect(tmp_path).architecture
    assert report.reading == "unverified", (report.findings, report.missing)
    assert not report.unmapped + report.findings
    image = torch.randn((2, 3, 16, 24), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted, got = model(image), mapper.build(tmp_path)(pixel_values=image).sample
    assert float((got - wanted).abs().max() / wanted.std()) <= TOLERANCE
