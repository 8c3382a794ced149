"""Diffusion models under the names of their first releases, against the same models written here with torch alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mapper
from mapper.errors import ArchitectureError, MapperError
from tests.parity.harness import TOLERANCE, randomise
from tests.parity.test_convolutional_names import parts
from tests.parity.test_denoising_names import (
    GROUPS,
    HEADS,
    TEXT,
    JointPatches,
    LargeUNet,
    UNet,
    normal,
    sinusoids,
)
from tests.parity.test_diffusers_names import Autoencoder

Tensors = dict[str, Tensor]
SIZE, HEAD = 16, 8
AXES = [2, 2, 4]
RESNET = {"norm1": "in_layers.0", "conv1": "in_layers.2", "time_emb_proj": "emb_layers.1", "norm2": "out_layers.0", "conv2": "out_layers.3", "conv_shortcut": "skip_connection"}  # fmt: skip
RESNETS = {
    "down_blocks.0.resnets.0": "input_blocks.1.0",
    "down_blocks.1.resnets.0": "input_blocks.3.0",
    "mid_block.resnets.0": "middle_block.0",
    "mid_block.resnets.1": "middle_block.2",
    "up_blocks.0.resnets.0": "output_blocks.0.0",
    "up_blocks.0.resnets.1": "output_blocks.1.0",
    "up_blocks.1.resnets.0": "output_blocks.2.0",
    "up_blocks.1.resnets.1": "output_blocks.3.0",
}
UNET = {
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "add_embedding.linear_1": "label_emb.0.0",
    "add_embedding.linear_2": "label_emb.0.2",
    "conv_in": "input_blocks.0.0",
    "down_blocks.0.attentions.0": "input_blocks.1.1",
    "down_blocks.0.downsamplers.0.conv": "input_blocks.2.0.op",
    "mid_block.attentions.0": "middle_block.1",
    "up_blocks.0.upsamplers.0.conv": "output_blocks.1.1.conv",
    "up_blocks.1.attentions.0": "output_blocks.2.1",
    "up_blocks.1.attentions.1": "output_blocks.3.1",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
    **{f"{its}.{part}": f"{first}.{at}" for its, first in RESNETS.items() for part, at in RESNET.items()},
}
HALF = {
    "conv_in": "conv_in",
    "mid_block.resnets.0": "mid.block_1",
    "mid_block.resnets.1": "mid.block_2",
    "mid_block.attentions.0.group_norm": "mid.attn_1.norm",
    "mid_block.attentions.0.to_q": "mid.attn_1.q",
    "mid_block.attentions.0.to_k": "mid.attn_1.k",
    "mid_block.attentions.0.to_v": "mid.attn_1.v",
    "mid_block.attentions.0.to_out.0": "mid.attn_1.proj_out",
    "conv_norm_out": "norm_out",
    "conv_out": "conv_out",
}
AUTOENCODER = {
    "quant_conv": "quant_conv",
    "post_quant_conv": "post_quant_conv",
    "quantize.embedding": "quantize.embedding",
    **{f"{half}.{its}": f"{half}.{first}" for half in ("encoder", "decoder") for its, first in HALF.items()},
    **{f"encoder.down_blocks.{at}.resnets": f"encoder.down.{at}.block" for at in range(3)},
    **{f"encoder.down_blocks.{at}.downsamplers.0": f"encoder.down.{at}.downsample" for at in range(3)},
    **{f"decoder.up_blocks.{at}.resnets": f"decoder.up.{2 - at}.block" for at in range(3)},  # finest first
    **{f"decoder.up_blocks.{at}.upsamplers.0": f"decoder.up.{2 - at}.upsample" for at in range(3)},
}


JOINT = {
    "attn.to_out.0": "x_block.attn.proj",
    "attn.to_add_out": "context_block.attn.proj",
    "norm1.linear": "x_block.adaLN_modulation.1",
    "norm1_context.linear": "context_block.adaLN_modulation.1",
    "ff.net.0.proj": "x_block.mlp.fc1",
    "ff.net.2": "x_block.mlp.fc2",
    "ff_context.net.0.proj": "context_block.mlp.fc1",
    "ff_context.net.2": "context_block.mlp.fc2",
    "attn2.to_out.0": "x_block.attn2.proj",
    **{f"{at}.to_{part}": f"x_block.{at}.{part}" for at in ("attn", "attn2") for part in "qkv"},
    **{f"attn.add_{part}_proj": f"context_block.attn.{part}" for part in "qkv"},
}
PATCHES = {
    "pos_embed.proj": "x_embedder.proj",
    "context_embedder": "context_embedder",
    "proj_out": "final_layer.linear",
    "norm_out.linear": "final_layer.adaLN_modulation.1",
    "time_text_embed.timestep_embedder.linear_1": "t_embedder.mlp.0",
    "time_text_embed.timestep_embedder.linear_2": "t_embedder.mlp.2",
    "time_text_embed.text_embedder.linear_1": "y_embedder.mlp.0",
    "time_text_embed.text_embedder.linear_2": "y_embedder.mlp.2",
    **{f"transformer_blocks.{n}.{its}": f"joint_blocks.{n}.{first}" for n in (0, 1) for its, first in JOINT.items()},
}  # fmt: skip


def renamed(tensors: Tensors, table: Mapping[str, str], prefix: str = "") -> Tensors:
    """Each tensor under its first name; a name that the table lacks is an error."""
    found = {}
    for name, tensor in tensors.items():
        (its,) = (each for each in table if name.startswith(f"{each}."))
        found[prefix + table[its] + name.removeprefix(its)] = tensor
    assert len(found) == len(tensors)
    return found


def compared(folder: Path, tensors: Tensors, hints: dict[str, Any], wanted: Tensor, **inputs: Tensor) -> None:
    torch.save(tensors, folder / "model.bin")
    report = mapper.inspect(folder / "model.bin", hints=hints).architecture
    assert report.reading == "unverified", (report.findings, report.missing)
    assert not report.unmapped + report.findings + report.questions
    model = mapper.build(folder / "model.bin", hints=hints)
    with torch.no_grad():
        got = model(**inputs).sample
    assert float((got - wanted).abs().max() / wanted.std()) <= TOLERANCE


@pytest.mark.parametrize("prefix", ["", "model.diffusion_model."])
def test_a_unet_of_the_first_release_takes_noise_from_a_map(tmp_path: Path, prefix: str) -> None:
    model = randomise(UNet().eval())
    image = torch.randn((2, 3, 8, 12), generator=torch.Generator().manual_seed(1))
    steps = torch.tensor([3.0, 500.0])
    with torch.no_grad():
        wanted = model(image, steps)
    tensors = renamed(model.state_dict(), UNET, prefix)
    hints = {"norm.groups": GROUPS, "unet.heads": HEADS}
    compared(tmp_path, tensors, hints, wanted, sample=image, timestep=steps, encoder_hidden_states=TEXT)


def test_a_larger_unet_reads_sizes_and_has_heads_of_one_width(tmp_path: Path) -> None:
    model = randomise(LargeUNet().eval())
    generator = torch.Generator().manual_seed(1)
    image, text = torch.randn((2, 3, 8, 12), generator=generator), torch.randn((2, 6), generator=generator)
    steps, sizes = torch.tensor([3.0, 500.0]), torch.tensor([[8.0, 12.0], [16.0, 9.0]])
    with torch.no_grad():
        wanted = model(image, steps, text, sizes)
    tensors = renamed(model.state_dict(), UNET)
    hints = {"norm.groups": GROUPS, "unet.head_width": 4, "size_embedding.width": 4}
    compared(tmp_path, tensors, hints, wanted, sample=image, timestep=steps, encoder_hidden_states=TEXT, text_embeds=text, time_ids=sizes)  # fmt: skip


def first_autoencoder(model: nn.Module, prefix: str = "") -> Tensors:
    """Its weights as first released: attention by convolutions."""
    tensors = renamed(model.state_dict(), AUTOENCODER, prefix)
    maps = (".q.weight", ".k.weight", ".v.weight", ".proj_out.weight")
    return {
        name: each[:, :, None, None].clone() if name.endswith(maps) else each
        for name, each in tensors.items()
    }


@pytest.mark.parametrize("prefix", ["", "first_stage_model."])
def test_an_autoencoder_of_the_first_release_gives_an_image(tmp_path: Path, prefix: str) -> None:
    model = randomise(Autoencoder().eval())
    image = torch.randn((2, 3, 16, 24), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = model(image)
    tensors = first_autoencoder(model, prefix)
    compared(tmp_path, tensors, {"norm.groups": GROUPS}, wanted, pixel_values=image)


class Quantized(Autoencoder):
    """Its latents are the nearest of eleven codes."""

    def __init__(self) -> None:
        super().__init__()
        self.quantize, self.post_quant_conv = parts(embedding=nn.Embedding(11, 4)), nn.Conv2d(4, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        x = self.quant_conv(self.encoder(image)).permute(0, 2, 3, 1)
        codes = self.quantize.embedding.weight
        nearest = codes[(x[..., None, :] - codes).pow(2).sum(-1).argmin(-1)]
        return self.decoder(self.post_quant_conv(nearest.permute(0, 3, 1, 2)))


def test_an_autoencoder_with_codes_of_the_first_release(tmp_path: Path) -> None:
    model = randomise(Quantized().eval())
    image = torch.randn((2, 3, 16, 24), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = model(image)
    tensors = first_autoencoder(model)
    compared(tmp_path, tensors, {"norm.groups": GROUPS}, wanted, pixel_values=image)


def test_groups_that_nothing_shows_are_asked_for(tmp_path: Path) -> None:
    torch.save(first_autoencoder(Autoencoder()), tmp_path / "model.bin")
    questions = mapper.inspect(tmp_path / "model.bin").architecture.questions
    assert {question.fact for question in questions} == {"norm.groups"}
    assert all({1, 2, 4, 8} <= {*question.candidates} for question in questions)
    with pytest.raises(ArchitectureError, match=r"norm\.groups"):
        mapper.build(tmp_path / "model.bin")


def fused(tensors: Tensors) -> Tensors:
    """With one map for queries, keys and values."""
    found = dict(tensors)
    for name in [name for name in tensors if ".q." in name]:
        of_one = [found.pop(name.replace(".q.", f".{part}.")) for part in "qkv"]
        found[name.replace(".q.", ".qkv.")] = torch.cat(of_one)
    return found


@pytest.mark.parametrize("is_twice", [False, True])
def test_a_text_and_an_image_in_one_row_under_first_names(tmp_path: Path, is_twice: bool) -> None:
    model = randomise(JointPatches(is_twice).eval())
    generator = torch.Generator().manual_seed(1)
    image, pooled = torch.randn((2, 4, 8, 8), generator=generator), torch.randn((2, 10), generator=generator)
    steps = torch.tensor([3.0, 500.0])
    with torch.no_grad():
        wanted = model(image, TEXT, pooled, steps)
    state = model.state_dict()
    table = state.pop("pos_embed.pos_embed")
    tensors = fused(renamed(state, PATCHES)) | {"pos_embed": table}
    for name in ("final_layer", "joint_blocks.1.context_block"):  # shifts come first
        for part in ("weight", "bias"):
            key = f"{name}.adaLN_modulation.1.{part}"
            tensors[key] = torch.cat(tensors[key].chunk(2)[::-1])
    hints = {"attention.heads": HEADS, "image.size": 8}
    compared(tmp_path, tensors, hints, wanted, hidden_states=image, encoder_hidden_states=TEXT, pooled_projections=pooled, timestep=steps)  # fmt: skip


def test_a_layer_that_is_missing_in_any_list_is_missed(tmp_path: Path) -> None:
    unet, flux = renamed(UNet().state_dict(), UNET), Flux(True).state_dict()
    for state, lost in ((unet, "output_blocks.1"), (flux, "double_blocks.0"), (flux, "single_blocks.0")):
        torch.save(
            {name: each for name, each in state.items() if f"{lost}." not in name}, tmp_path / "model.bin"
        )
        with pytest.raises(MapperError, match=f"{lost} is missing: the list goes on"):
            mapper.inspect(tmp_path / "model.bin")


class RowNorm(nn.Module):
    """RMSNorm, whose weight is called scale."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(HEAD))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale


def norms() -> nn.Module:
    return parts(query_norm=RowNorm(), key_norm=RowNorm())


def through(maps: Any, x: Tensor) -> Tensor:
    return maps.out_layer(F.silu(maps.in_layer(x)))


def two(size: int) -> nn.Module:
    return parts(in_layer=nn.Linear(size, SIZE), out_layer=nn.Linear(SIZE, SIZE))


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(SIZE, 24), nn.GELU(approximate="tanh"), nn.Linear(24, SIZE))


def heads(qkv: Tensor, norm: Any) -> tuple[Tensor, ...]:
    q, k, v = (each.unflatten(2, (-1, HEAD)).transpose(1, 2) for each in qkv.chunk(3, dim=2))
    return norm.query_norm(q), norm.key_norm(k), v


def turned(x: Tensor, places: Tensor) -> Tensor:
    """Pairs of neighbours turned by the angles of their axis, as complex numbers."""
    steps = [torch.arange(0, size, 2, dtype=torch.float64) / size for size in AXES]
    angles = torch.cat([places[:, at, None] / 10000.0**step for at, step in enumerate(steps)], dim=1)
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2).float()


def attended(q: Tensor, k: Tensor, v: Tensor, places: Tensor) -> Tensor:
    scores = turned(q, places) @ turned(k, places).mT / math.sqrt(HEAD)
    return (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)


def moved(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return normal(x) * (1 + scale) + shift


class DoubleBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for side in ("img", "txt"):
            maps = {"qkv": nn.Linear(SIZE, 3 * SIZE), "norm": norms(), "proj": nn.Linear(SIZE, SIZE)}
            self.add_module(f"{side}_mod", parts(lin=nn.Linear(SIZE, 6 * SIZE)))
            self.add_module(f"{side}_attn", parts(**maps))
            self.add_module(f"{side}_mlp", network())

    def forward(self, x: Tensor, text: Tensor, time: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        image_says = self.img_mod.lin(F.silu(time))[:, None].chunk(6, dim=2)
        text_says = self.txt_mod.lin(F.silu(time))[:, None].chunk(6, dim=2)
        rows = (
            heads(self.txt_attn.qkv(moved(text, *text_says[:2])), self.txt_attn.norm),
            heads(self.img_attn.qkv(moved(x, *image_says[:2])), self.img_attn.norm),
        )
        y = attended(*(torch.cat(pair, dim=2) for pair in zip(*rows, strict=True)), places)
        x = x + image_says[2] * self.img_attn.proj(y[:, text.shape[1] :])
        text = text + text_says[2] * self.txt_attn.proj(y[:, : text.shape[1]])
        x = x + image_says[5] * self.img_mlp(moved(x, *image_says[3:5]))
        return x, text + text_says[5] * self.txt_mlp(moved(text, *text_says[3:5]))


class SingleBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(SIZE, 3 * SIZE + 24), nn.Linear(SIZE + 24, SIZE)
        self.modulation, self.norm = parts(lin=nn.Linear(SIZE, 3 * SIZE)), norms()

    def forward(self, x: Tensor, time: Tensor, places: Tensor) -> Tensor:
        shift, scale, gate = self.modulation.lin(F.silu(time))[:, None].chunk(3, dim=2)
        qkv, up = self.linear1(moved(x, shift, scale)).split((3 * SIZE, 24), dim=2)
        y = torch.cat((attended(*heads(qkv, self.norm), places), F.gelu(up, approximate="tanh")), dim=2)
        return x + gate * self.linear2(y)


class Flux(nn.Module):
    def __init__(self, is_guided: bool):
        super().__init__()
        self.img_in, self.txt_in = nn.Linear(6, SIZE), nn.Linear(12, SIZE)
        self.time_in, self.vector_in, self.guidance_in = two(256), two(10), two(256) if is_guided else None
        self.double_blocks = nn.ModuleList(DoubleBlock() for _ in range(2))
        self.single_blocks = nn.ModuleList(SingleBlock() for _ in range(2))
        modulation = nn.Sequential(nn.SiLU(), nn.Linear(SIZE, 2 * SIZE))
        self.final_layer = parts(linear=nn.Linear(SIZE, 6), adaLN_modulation=modulation)

    def forward(self, x: Tensor, pooled: Tensor, step: Tensor, guidance: Tensor, places: Tensor) -> Tensor:
        time = through(self.time_in, sinusoids(1000 * step, 256)) + through(self.vector_in, pooled)
        if self.guidance_in is not None:
            time = time + through(self.guidance_in, sinusoids(1000 * guidance, 256))
        x, text = self.img_in(x), self.txt_in(TEXT)
        for block in self.double_blocks:
            x, text = block(x, text, time, places)
        x = torch.cat((text, x), dim=1)
        for block in self.single_blocks:
            x = block(x, time, places)
        shift, scale = self.final_layer.adaLN_modulation(time)[:, None].chunk(2, dim=2)
        return self.final_layer.linear(moved(x[:, TEXT.shape[1] :], shift, scale))


@pytest.mark.parametrize(("is_guided", "prefix"), [(True, ""), (False, "model.diffusion_model.")])
def test_flux_of_the_first_release_with_and_without_guidance(
    tmp_path: Path, is_guided: bool, prefix: str
) -> None:
    model = randomise(Flux(is_guided).eval())
    generator = torch.Generator().manual_seed(1)
    image, pooled = torch.randn((2, 6, 6), generator=generator), torch.randn((2, 10), generator=generator)
    step, guidance = torch.tensor([0.3, 0.9]), torch.tensor([3.5, 1.0])
    at = torch.tensor([[0.0, row, column] for row in range(2) for column in range(3)])
    with torch.no_grad():
        wanted = model(image, pooled, step, guidance, torch.cat((torch.zeros(5, 3), at)))
    tensors = {prefix + name: each for name, each in model.state_dict().items()}
    inputs = {"hidden_states": image, "encoder_hidden_states": TEXT, "pooled_projections": pooled, "timestep": step, "img_ids": at, "txt_ids": torch.zeros(5, 3)}  # fmt: skip
    inputs |= {"guidance": guidance} if is_guided else {}
    compared(tmp_path, tensors, {"rotary.sizes": AXES}, wanted, **inputs)


def test_the_axes_of_rotary_embeddings_are_asked_for(tmp_path: Path) -> None:
    torch.save(Flux(True).state_dict(), tmp_path / "model.bin")
    with pytest.raises(ArchitectureError, match=r"rotary\.sizes is unknown"):
        mapper.build(tmp_path / "model.bin")
