"""A diffusion U-Net and transformers under diffusers' names, against the same models written here with torch alone."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mapper
from tests.parity.harness import TOLERANCE, randomise
from tests.parity.test_convolutional_names import parts
from tests.parity.test_diffusers_names import MapAttention

GROUPS, HEADS, SIZE = 4, 2, 16
TEXT = torch.randn((2, 5, 12), generator=torch.Generator().manual_seed(2))


def sinusoids(steps: Tensor, size: int) -> Tensor:
    angles = steps[:, None] * torch.exp(torch.arange(size // 2) * (-math.log(10000.0) / (size // 2)))
    return torch.cat((angles.cos(), angles.sin()), dim=-1)


def two(name: str, size: int, out: int) -> Any:
    return parts(linear_1=nn.Linear(size, out), linear_2=nn.Linear(out, out))


def through(maps: Any, x: Tensor) -> Tensor:
    return maps.linear_2(F.silu(maps.linear_1(x)))


def attended(q: Tensor, k: Tensor, v: Tensor, heads: int = HEADS) -> Tensor:
    q, k, v = (each.unflatten(2, (heads, -1)).transpose(1, 2) for each in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class Attention(nn.Module):
    def __init__(self, size: int, source: int, heads: int):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(size, size, bias=False)
        self.to_k, self.to_v = nn.Linear(source, size, bias=False), nn.Linear(source, size, bias=False)
        self.to_out = nn.ModuleList([nn.Linear(size, size)])

    def forward(self, x: Tensor, source: Tensor) -> Tensor:
        return self.to_out[0](attended(self.to_q(x), self.to_k(source), self.to_v(source), self.heads))


class PlaceLayer(nn.Module):
    def __init__(self, size: int, heads: int):
        super().__init__()
        self.attn1, self.attn2 = Attention(size, size, heads), Attention(size, 12, heads)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(size) for _ in range(3))
        net = nn.ModuleDict({"0": parts(proj=nn.Linear(size, 8 * size)), "2": nn.Linear(4 * size, size)})
        self.ff = parts(net=net)

    def forward(self, y: Tensor) -> Tensor:
        y = y + self.attn1(self.norm1(y), self.norm1(y))
        y = y + self.attn2(self.norm2(y), TEXT)
        up, gate = self.ff.net["0"].proj(self.norm3(y)).chunk(2, dim=-1)
        return y + self.ff.net["2"](up * F.gelu(gate))


class Reader(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, size, eps=1e-6)
        self.proj_in, self.proj_out = nn.Conv2d(size, size, 1), nn.Conv2d(size, size, 1)
        self.transformer_blocks = nn.ModuleList([PlaceLayer(size, HEADS)])

    def forward(self, x: Tensor) -> Tensor:
        y = self.transformer_blocks[0](self.proj_in(self.norm(x)).flatten(2).transpose(1, 2))
        return x + self.proj_out(y.transpose(1, 2).reshape(x.shape))


class RowReader(nn.Module):
    """As those of Stable Diffusion XL: linear maps around several layers, heads of one width."""

    def __init__(self, size: int):
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, size, eps=1e-6)
        self.proj_in, self.proj_out = nn.Linear(size, size), nn.Linear(size, size)
        self.transformer_blocks = nn.ModuleList(PlaceLayer(size, size // 4) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.proj_in(self.norm(x).flatten(2).transpose(1, 2))
        for layer in self.transformer_blocks:
            y = layer(y)
        return x + self.proj_out(y).transpose(1, 2).reshape(x.shape)


class Resnet(nn.Module):
    def __init__(self, size: int, out: int):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(GROUPS, size, eps=1e-5), nn.GroupNorm(GROUPS, out, eps=1e-5)
        self.conv1, self.conv2 = nn.Conv2d(size, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.time_emb_proj = nn.Linear(32, out)
        if size != out:
            self.conv_shortcut = nn.Conv2d(size, out, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time_emb_proj(F.silu(time))[:, :, None, None]
        return self.conv2(F.silu(self.norm2(y))) + (self.conv_shortcut(x) if hasattr(self, "conv_shortcut") else x)  # fmt: skip


class UNet(nn.Module):
    def __init__(self, reader: type[nn.Module] = Reader) -> None:
        super().__init__()
        self.time_embedding = two("", 8, 32)
        self.conv_in, self.conv_out = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)
        down = parts(resnets=nn.ModuleList([Resnet(8, 8)]), attentions=nn.ModuleList([reader(8)]))
        down.add_module("downsamplers", nn.ModuleList([parts(conv=nn.Conv2d(8, 8, 3, 2, 1))]))
        self.down_blocks = nn.ModuleList([down, parts(resnets=nn.ModuleList([Resnet(8, 16)]))])
        middle = nn.ModuleList([Resnet(16, 16), Resnet(16, 16)])
        self.mid_block = parts(resnets=middle, attentions=nn.ModuleList([reader(16)]))
        first = parts(resnets=nn.ModuleList([Resnet(32, 16), Resnet(24, 16)]))
        first.add_module("upsamplers", nn.ModuleList([parts(conv=nn.Conv2d(16, 16, 3, padding=1))]))
        last = parts(resnets=nn.ModuleList([Resnet(24, 8), Resnet(16, 8)]), attentions=nn.ModuleList([reader(8), reader(8)]))  # fmt: skip
        self.up_blocks, self.conv_norm_out = nn.ModuleList([first, last]), nn.GroupNorm(GROUPS, 8, eps=1e-5)

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        return self.denoised(x, through(self.time_embedding, sinusoids(steps, 8)))

    def denoised(self, x: Tensor, time: Tensor) -> Tensor:
        x = self.conv_in(x)
        down, low = self.down_blocks
        kept = [x, down.attentions[0](down.resnets[0](x, time))]
        kept.append(down.downsamplers[0].conv(kept[-1]))
        kept.append(low.resnets[0](kept[-1], time))
        x = self.mid_block.attentions[0](self.mid_block.resnets[0](kept[-1], time))
        x = self.mid_block.resnets[1](x, time)
        first, last = self.up_blocks
        for layer in first.resnets:
            x = layer(torch.cat((x, kept.pop()), dim=1), time)
        x = first.upsamplers[0].conv(F.interpolate(x, scale_factor=2))
        for layer, reader in zip(last.resnets, last.attentions, strict=True):
            x = reader(layer(torch.cat((x, kept.pop()), dim=1), time))
        return self.conv_out(F.silu(self.conv_norm_out(x)))


class LargeUNet(UNet):
    """With a vector of a text, and sizes of the image."""

    def __init__(self) -> None:
        super().__init__(RowReader)
        self.add_embedding = two("", 6 + 2 * 4, 32)

    def forward(self, x: Tensor, steps: Tensor, text: Tensor, sizes: Tensor) -> Tensor:  # type: ignore[override]
        time = through(self.time_embedding, sinusoids(steps, 8))
        of_sizes = sinusoids(sizes.flatten(), 4).reshape(len(sizes), -1)
        return self.denoised(x, time + through(self.add_embedding, torch.cat((text, of_sizes), dim=1)))


def compared(
    folder: Path, model: nn.Module, config: dict[str, Any], wanted: Tensor, **inputs: Tensor
) -> None:
    torch.save(model.state_dict(), folder / "diffusion_pytorch_model.bin")
    (folder / "config.json").write_text(json.dumps(config))
    report = mapper.inspect(folder).architecture
    assert report.reading == "unverified", (report.findings, report.missing)
    assert not report.unmapped + report.findings
    with torch.no_grad():
        got = mapper.build(folder)(**inputs).sample
    assert float((got - wanted).abs().max() / wanted.std()) <= TOLERANCE


def test_a_unet_takes_noise_from_a_map_as_a_text_says(tmp_path: Path) -> None:
    model = randomise(UNet().eval())
    image = torch.randn((2, 3, 8, 12), generator=torch.Generator().manual_seed(1))
    steps = torch.tensor([3.0, 500.0])
    config = {"_class_name": "UNet2DConditionModel", "norm_num_groups": GROUPS, "attention_head_dim": HEADS, "norm_eps": 1e-5, "flip_sin_to_cos": True, "freq_shift": 0, "cross_attention_dim": 12, "act_fn": "silu"}  # fmt: skip
    with torch.no_grad():
        wanted = model(image, steps)
    compared(tmp_path, model, config, wanted, sample=image, timestep=steps, encoder_hidden_states=TEXT)


CONDITIONED = {"_class_name": "UNet2DConditionModel", "norm_num_groups": GROUPS, "attention_head_dim": HEADS, "norm_eps": 1e-5, "flip_sin_to_cos": True, "freq_shift": 0, "cross_attention_dim": 12, "act_fn": "silu"}  # fmt: skip


def test_a_unet_projects_the_states_of_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = UNet()
    model.encoder_hid_proj = nn.Linear(7, TEXT.shape[-1])
    randomise(model.eval())
    generator = torch.Generator().manual_seed(1)
    image, text = torch.randn((2, 3, 8, 12), generator=generator), torch.randn((2, 5, 7), generator=generator)
    steps = torch.tensor([3.0, 500.0])
    with torch.no_grad():
        monkeypatch.setattr("tests.parity.test_denoising_names.TEXT", model.encoder_hid_proj(text))
        wanted = model(image, steps)
    config = {**CONDITIONED, "encoder_hid_dim": 7, "encoder_hid_dim_type": "text_proj"}
    compared(tmp_path, model, config, wanted, sample=image, timestep=steps, encoder_hidden_states=text)


class StraightUNet(UNet):
    """With nothing between the coarsest map and the stages that make it finer."""

    def __init__(self) -> None:
        super().__init__()
        del self.mid_block
        self.conv_in, self.conv_out = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 3, 5, padding=2)

    def denoised(self, x: Tensor, time: Tensor) -> Tensor:
        nothing = nn.Module()
        nothing.resnets, nothing.attentions = [lambda y, _: y] * 2, [lambda y: y]
        self.__dict__["mid_block"] = nothing
        return super().denoised(x, time)


def test_a_unet_without_a_middle(tmp_path: Path) -> None:
    model = randomise(StraightUNet().eval())
    image = torch.randn((2, 3, 8, 12), generator=torch.Generator().manual_seed(1))
    steps = torch.tensor([3.0, 500.0])
    with torch.no_grad():
        wanted = model(image, steps)
    config = {**CONDITIONED, "mid_block_type": None, "conv_in_kernel": 1, "conv_out_kernel": 5}
    compared(tmp_path, model, config, wanted, sample=image, timestep=steps, encoder_hidden_states=TEXT)


def test_a_larger_unet_reads_sizes_and_has_heads_of_one_width(tmp_path: Path) -> None:
    model = randomise(LargeUNet().eval())
    generator = torch.Generator().manual_seed(1)
    image, text = torch.randn((2, 3, 8, 12), generator=generator), torch.randn((2, 6), generator=generator)
    steps, sizes = torch.tensor([3.0, 500.0]), torch.tensor([[8.0, 12.0], [16.0, 9.0]])
    config = {"_class_name": "UNet2DConditionModel", "norm_num_groups": GROUPS, "attention_head_dim": [2, 4], "block_out_channels": [8, 16], "addition_time_embed_dim": 4, "cross_attention_dim": 12}  # fmt: skip
    with torch.no_grad():
        wanted = model(image, steps, text, sizes)
    compared(tmp_path, model, config, wanted, sample=image, timestep=steps, encoder_hidden_states=TEXT, text_embeds=text, time_ids=sizes)  # fmt: skip


class Joint(nn.Module):
    """A layer of Stable Diffusion 3; the last only reads the text."""

    def __init__(self, is_last: bool, is_twice: bool = False):
        super().__init__()
        self.is_last, self.is_twice = is_last, is_twice
        names = ["to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj"]
        maps: dict[str, nn.Module] = {name: nn.Linear(SIZE, SIZE) for name in names}
        maps["to_out"] = nn.ModuleList([nn.Linear(SIZE, SIZE)])
        self.norm1 = parts(linear=nn.Linear(SIZE, (9 if is_twice else 6) * SIZE))
        if is_twice:  # the image also sees itself alone
            own: dict[str, nn.Module] = {name: nn.Linear(SIZE, SIZE) for name in names[:3]}
            self.attn2 = parts(**own, to_out=nn.ModuleList([nn.Linear(SIZE, SIZE)]))
        self.norm1_context = parts(linear=nn.Linear(SIZE, (2 if is_last else 6) * SIZE))
        self.ff = self.network()
        if not is_last:
            maps["to_add_out"] = nn.Linear(SIZE, SIZE)
            self.ff_context = self.network()
        self.attn = parts(**maps)

    def network(self) -> nn.Module:
        return parts(net=nn.ModuleDict({"0": parts(proj=nn.Linear(SIZE, 24)), "2": nn.Linear(24, SIZE)}))

    def forward(self, x: Tensor, words: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        says = self.norm1.linear(F.silu(time))[:, None].chunk(9 if self.is_twice else 6, dim=2)
        of_text = self.norm1_context.linear(F.silu(time))[:, None].chunk(2 if self.is_last else 6, dim=2)
        shift, scale = of_text[::-1] if self.is_last else of_text[:2]
        maps, count = self.attn, words.shape[1]
        y, z = normal(x) * (1 + says[1]) + says[0], normal(words) * (1 + scale) + shift
        q, k, v = (torch.cat((add(z), own(y)), dim=1) for add, own in ((maps.add_q_proj, maps.to_q), (maps.add_k_proj, maps.to_k), (maps.add_v_proj, maps.to_v)))  # fmt: skip
        both = attended(q, k, v)
        if self.is_twice:
            own, z = self.attn2, normal(x) * (1 + says[7]) + says[6]
            x = x + says[8] * own.to_out[0](attended(own.to_q(z), own.to_k(z), own.to_v(z)))
        x = x + says[2] * maps.to_out[0](both[:, count:])
        x = x + says[5] * self.feed(self.ff, normal(x) * (1 + says[4]) + says[3])
        if not self.is_last:
            words = words + of_text[2] * maps.to_add_out(both[:, :count])
            words = words + of_text[5] * self.feed(
                self.ff_context, normal(words) * (1 + of_text[4]) + of_text[3]
            )
        return x, words

    def feed(self, network: Any, x: Tensor) -> Tensor:
        return network.net["2"](F.gelu(network.net["0"].proj(x), approximate="tanh"))


def normal(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=1e-6)


class JointPatches(nn.Module):
    def __init__(self, is_twice: bool = False) -> None:
        super().__init__()
        self.pos_embed = parts(proj=nn.Conv2d(4, SIZE, 2, 2))
        self.pos_embed.register_buffer("pos_embed", torch.randn(1, 36, SIZE))
        self.context_embedder, self.proj_out = nn.Linear(12, SIZE), nn.Linear(SIZE, 12)
        self.time_text_embed = parts(timestep_embedder=two("", 8, SIZE), text_embedder=two("", 10, SIZE))
        self.norm_out = parts(linear=nn.Linear(SIZE, 2 * SIZE))
        self.transformer_blocks = nn.ModuleList([Joint(False, is_twice), Joint(True)])

    def forward(self, x: Tensor, text: Tensor, pooled: Tensor, steps: Tensor) -> Tensor:
        table = self.pos_embed.pos_embed.unflatten(1, (6, 6))[:, 1:5, 1:5].flatten(1, 2)
        x = self.pos_embed.proj(x).flatten(2).transpose(1, 2) + table
        time = through(self.time_text_embed.timestep_embedder, sinusoids(steps, 8))
        time = time + through(self.time_text_embed.text_embedder, pooled)
        words = self.context_embedder(text)
        for layer in self.transformer_blocks:
            x, words = layer(x, words, time)
        scale, shift = self.norm_out.linear(F.silu(time))[:, None].chunk(2, dim=2)
        x = self.proj_out(normal(x) * (1 + scale) + shift)
        rows = x.unflatten(2, (4, 3)).transpose(2, 3).flatten(2).transpose(1, 2)
        return F.fold(rows, (8, 8), 2, stride=2)


@pytest.mark.parametrize("is_twice", [False, True])
def test_layers_over_an_image_and_a_text_in_one_row(tmp_path: Path, is_twice: bool) -> None:
    model = randomise(JointPatches(is_twice).eval())
    generator = torch.Generator().manual_seed(1)
    image, pooled = torch.randn((2, 4, 8, 8), generator=generator), torch.randn((2, 10), generator=generator)
    steps = torch.tensor([3.0, 500.0])
    config = {"_class_name": "SD3Transformer2DModel", "num_attention_heads": HEADS, "attention_head_dim": SIZE // HEADS, "sample_size": 8, "patch_size": 2}  # fmt: skip
    with torch.no_grad():
        wanted = model(image, TEXT, pooled, steps)
    compared(tmp_path, model, config, wanted, hidden_states=image, encoder_hidden_states=TEXT, pooled_projections=pooled, timestep=steps)  # fmt: skip


class Behind(nn.Conv2d):
    """A step with a row and a column of zeros behind the map alone."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.pad(x, (0, 1, 0, 1)))


class PlainUNet(UNet):
    """Without a text, with a vector for each class, and one head for all channels (DDPM)."""

    def __init__(self) -> None:
        super().__init__(MapAttention)
        self.down_blocks[0].downsamplers[0].conv = Behind(8, 8, 3, 2)
        self.class_embedding = nn.Embedding(5, 32)
        for module in self.modules():
            if isinstance(module, nn.GroupNorm):
                module.eps = 1e-3

    def forward(self, x: Tensor, steps: Tensor, classes: Tensor) -> Tensor:  # type: ignore[override]
        angles = steps[:, None] * torch.exp(torch.arange(4) * (-math.log(10000.0) / 3))
        time = through(self.time_embedding, torch.cat((angles.sin(), angles.cos()), dim=-1))
        return self.denoised(x, time + self.class_embedding(classes))


PLAIN = {"_class_name": "UNet2DModel", "norm_num_groups": GROUPS, "attention_head_dim": None, "norm_eps": 1e-3, "flip_sin_to_cos": False, "freq_shift": 1, "downsample_padding": 0, "num_class_embeds": 5}  # fmt: skip


def test_a_unet_without_a_text_has_one_head_and_zeros_behind_its_maps(tmp_path: Path) -> None:
    model = randomise(PlainUNet().eval())
    image = torch.randn((2, 3, 8, 12), generator=torch.Generator().manual_seed(1))
    steps, classes = torch.tensor([3.0, 500.0]), torch.tensor([4, 1])
    with torch.no_grad():
        wanted = model(image, steps, classes)
    compared(tmp_path, model, PLAIN, wanted, sample=image, timestep=steps, class_labels=classes)


def test_a_unet_without_a_text_is_asked_for_what_no_config_says(tmp_path: Path) -> None:
    torch.save(PlainUNet().state_dict(), tmp_path / "diffusion_pytorch_model.bin")
    asked = {question.fact for question in mapper.inspect(tmp_path).architecture.questions}
    assert asked >= {"unet.padding", "timestep.cosine_first", "timestep.shift", "norm.groups", "norm.eps"}


class ScaledResnet(Resnet):
    """The timestep scales and shifts the second norm (2105.05233)."""

    def __init__(self, size: int, out: int):
        super().__init__(size, out)
        self.time_emb_proj = nn.Linear(32, 2 * out)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        scale, shift = self.time_emb_proj(F.silu(time))[:, :, None, None].chunk(2, dim=1)
        y = self.norm2(self.conv1(F.silu(self.norm1(x)))) * (1 + scale) + shift
        return self.conv2(F.silu(y)) + (self.conv_shortcut(x) if hasattr(self, "conv_shortcut") else x)


class ScaledUNet(PlainUNet):
    """With such layers, and no norm before the attention in its middle."""

    def __init__(self) -> None:
        super().__init__()
        for part in (*self.down_blocks, self.mid_block, *self.up_blocks):
            made = [ScaledResnet(each.conv1.in_channels, each.conv1.out_channels) for each in part.resnets]
            part.resnets = nn.ModuleList(made)
        self.mid_block.attentions[0].group_norm = nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.GroupNorm):
                module.eps = 1e-3


def test_a_unet_whose_steps_scale_its_norms(tmp_path: Path) -> None:
    model = randomise(ScaledUNet().eval())
    image = torch.randn((2, 3, 8, 12), generator=torch.Generator().manual_seed(1))
    steps, classes = torch.tensor([3.0, 500.0]), torch.tensor([4, 1])
    with torch.no_grad():
        wanted = model(image, steps, classes)
    config = {**PLAIN, "resnet_time_scale_shift": "scale_shift"}
    compared(tmp_path, model, config, wanted, sample=image, timestep=steps, class_labels=classes)


class Resized(Resnet):
    """A layer over means of four places, or over each place four times."""

    def __init__(self, size: int, is_finer: bool):
        super().__init__(size, size)
        self.is_finer = is_finer

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        x, y = (
            F.interpolate(each, scale_factor=2) if self.is_finer else F.avg_pool2d(each, 2)
            for each in (x, F.silu(self.norm1(x)))
        )
        y = self.conv1(y) + self.time_emb_proj(F.silu(time))[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(y)))


class ResizedUNet(PlainUNet):
    """With layers, and no convolutions, that change the size of a map."""

    def __init__(self) -> None:
        super().__init__()
        self.down_blocks[0].downsamplers[0] = Resized(8, is_finer=False)
        self.up_blocks[0].upsamplers[0] = Resized(16, is_finer=True)
        for module in self.modules():
            if isinstance(module, nn.GroupNorm):
                module.eps = 1e-3

    def denoised(self, x: Tensor, time: Tensor) -> Tensor:
        x = self.conv_in(x)
        (down, low), (first, last) = self.down_blocks, self.up_blocks
        kept = [x, down.attentions[0](down.resnets[0](x, time))]
        kept.append(down.downsamplers[0](kept[-1], time))
        kept.append(low.resnets[0](kept[-1], time))
        x = self.mid_block.attentions[0](self.mid_block.resnets[0](kept[-1], time))
        x = self.mid_block.resnets[1](x, time)
        for layer in first.resnets:
            x = layer(torch.cat((x, kept.pop()), dim=1), time)
        x = first.upsamplers[0](x, time)
        for layer, reader in zip(last.resnets, last.attentions, strict=True):
            x = reader(layer(torch.cat((x, kept.pop()), dim=1), time))
        return self.conv_out(F.silu(self.conv_norm_out(x)))


def test_a_unet_whose_layers_change_the_size(tmp_path: Path) -> None:
    model = randomise(ResizedUNet().eval())
    image = torch.randn((2, 3, 8, 12), generator=torch.Generator().manual_seed(1))
    steps, classes = torch.tensor([3.0, 500.0]), torch.tensor([4, 1])
    with torch.no_grad():
        wanted = model(image, steps, classes)
    config = {**PLAIN, "downsample_type": "resnet", "upsample_type": "resnet"}
    compared(tmp_path, model, config, wanted, sample=image, timestep=steps, class_labels=classes)
