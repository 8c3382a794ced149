"""Encoders of segmentation-models-pytorch beneath a U-Net, against the same networks in plain torch.

A map of half the image's size is there or, where an encoder begins with patches, has no channels. Of dense layers a map stands before each step.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

import mapper
from tests.parity.test_image_networks import Plain
from tests.parity.test_segmentation_decoders import compare, encoder, joined, logits


def last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)


def first(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


def mix_layer(net: Plain, x: Tensor, at: str, heads: int, step: int) -> Tensor:
    """Attention to a reduced map, and a feed-forward with a depthwise convolution inside; x (B, H, W, C)."""
    batch, rows, columns, size = x.shape
    y = net.layer_norm(x, f"{at}.norm1")
    read = y
    if step > 1:
        read = last(net.conv(first(y), f"{at}.attn.sr", size, step, step, padding=0, bias=True))
        read = net.layer_norm(read, f"{at}.attn.norm", 1e-5)
    split = lambda z: z.reshape(batch, -1, heads, size // heads).transpose(1, 2)  # noqa: E731
    key, value = net.linear(read, f"{at}.attn.kv", 2 * size).chunk(2, dim=-1)
    query = net.linear(y, f"{at}.attn.q", size)
    y = F.scaled_dot_product_attention(split(query), split(key), split(value)).transpose(1, 2)
    x = x + net.linear(y.reshape(batch, rows, columns, size), f"{at}.attn.proj", size)
    y = net.linear(net.layer_norm(x, f"{at}.norm2"), f"{at}.mlp.fc1", 2 * size)
    y = last(net.conv(first(y), f"{at}.mlp.dwconv.dwconv", 2 * size, 3, groups=2 * size, bias=True))
    return x + net.linear(F.gelu(y), f"{at}.mlp.fc2", size)


def mix_transformer(net: Plain, x: Tensor) -> list[Tensor]:
    maps = [x[:, :0, ::2, ::2]]
    for stage, (size, heads, step) in enumerate(((8, 1, 8), (16, 2, 4), (40, 5, 2), (64, 8, 1)), 1):
        kernel, stride = (7, 4) if stage == 1 else (3, 2)
        x = last(net.conv(x, f"encoder.patch_embed{stage}.proj", size, kernel, stride, bias=True))
        x = net.layer_norm(x, f"encoder.patch_embed{stage}.norm", 1e-5)
        for index in range(2):
            x = mix_layer(net, x, f"encoder.block{stage}.{index}", heads, step)
        x = first(net.layer_norm(x, f"encoder.norm{stage}"))
        maps.append(x)
    return maps


def convnext(net: Plain, x: Tensor) -> list[Tensor]:
    maps = [x[:, :0, ::2, ::2]]
    x = net.conv(x, "encoder.model.stem_0", 4, 4, 4, padding=0, bias=True)
    x = first(net.layer_norm(last(x), "encoder.model.stem_1"))
    for stage, size in enumerate((4, 6, 8, 10)):
        at = f"encoder.model.stages_{stage}"
        if stage:
            x = first(net.layer_norm(last(x), f"{at}.downsample.0"))
            x = net.conv(x, f"{at}.downsample.1", size, 2, 2, padding=0, bias=True)
        for index in range(2):
            block = f"{at}.blocks.{index}"
            y = net.conv(x, f"{block}.conv_dw", size, 7, groups=size, bias=True)
            y = first(net.mlp(net.layer_norm(last(y), f"{block}.norm"), f"{block}.mlp", 3 * size))
            x = x + y * net.tensor(f"{block}.gamma", size)[:, None, None]
        maps.append(x)
    return maps


def dense(net: Plain, x: Tensor) -> list[Tensor]:
    at = "encoder.features"
    x = F.relu(net.batch_norm(net.conv(x, f"{at}.conv0", 6, 7, 2), f"{at}.norm0"))
    maps = [x]
    x = F.max_pool2d(x, 3, 2, 1)
    for block in range(1, 5):
        for layer in (1, 2):
            name = f"{at}.denseblock{block}.denselayer{layer}"
            y = net.conv(F.relu(net.batch_norm(x, f"{name}.norm1")), f"{name}.conv1", 8, 1)
            y = net.conv(F.relu(net.batch_norm(y, f"{name}.norm2")), f"{name}.conv2", 4, 3)
            x = torch.cat((x, y), dim=1)
        if block < 4:
            x = F.relu(net.batch_norm(x, f"{at}.transition{block}.norm"))
            maps.append(x)
            x = F.avg_pool2d(net.conv(x, f"{at}.transition{block}.conv", x.shape[1] // 2, 1), 2)
    return [*maps, net.batch_norm(x, f"{at}.norm5")]


COUNTS = ((1, 1, 2, 2, 2), (2, 2, 2, 2, 2), (2, 2, 3, 3, 3), (2, 2, 4, 4, 4))  # of convolutions of each size


def convolutions(counts: tuple[int, ...], is_normed: bool) -> Callable[[Plain, Tensor], Tensor]:
    """Convolutions in one list, in which activations and poolings have numbers too; a norm behind each (VGG)."""

    def forward(net: Plain, x: Tensor) -> Tensor:
        at, maps = 0, []
        for count, size in zip(counts, (4, 6, 8, 10, 10), strict=True):
            for _ in range(count):
                x = net.conv(x, f"encoder.features.{at}", size, 3, bias=True)
                x = F.relu(net.batch_norm(x, f"encoder.features.{at + 1}") if is_normed else x)
                at += 3 if is_normed else 2
            maps.append(x)
            x, at = F.max_pool2d(x, 2), at + 1
        *finer, _ = [*maps[1:], x]
        for index in (0, 1):
            x = F.relu(
                net.batch_norm(net.conv(x, f"decoder.center.{index}.0", 10, 3), f"decoder.center.{index}.1")
            )
        for index, map in enumerate([*finer[::-1], None]):
            x = joined(net, x, map, f"decoder.blocks.{index}", 12 - 2 * index)
        return x

    return forward


def unet(maps_of: Callable[[Plain, Tensor], list[Tensor]]) -> Callable[[Plain, Tensor], Tensor]:
    def forward(net: Plain, image: Tensor) -> Tensor:
        *finer, x = maps_of(net, image)
        for index, map in enumerate([*finer[::-1], None]):
            x = joined(net, x, map, f"decoder.blocks.{index}", 12 - 2 * index)
        return x

    return forward


@pytest.mark.parametrize("maps_of", [mix_transformer, convnext, dense])
def test_maps_of_an_encoder(maps_of: Callable[[Plain, Tensor], list[Tensor]], tmp_path: Path) -> None:
    compare(unet(maps_of), tmp_path / "model.safetensors")


@pytest.mark.parametrize("is_normed", [False, True])
@pytest.mark.parametrize("counts", COUNTS, ids=map(sum, COUNTS))
def test_convolutions_that_a_list_numbers(counts: tuple[int, ...], is_normed: bool, tmp_path: Path) -> None:
    compare(convolutions(counts, is_normed), tmp_path / "model.safetensors")


def test_labels_of_the_whole_image_are_read_from_the_coarsest_map_of_the_decoder(tmp_path: Path) -> None:
    """Of an encoder with more stages than the decoder reads."""
    net, image = Plain(), torch.randn((2, 3, 64, 96), generator=torch.Generator().manual_seed(1))

    def forward(net: Plain, image: Tensor) -> Tensor:
        maps = encoder(net, image)[:3]
        x = joined(net, maps[2], maps[1], "decoder.blocks.0", 8)
        x = joined(net, x, maps[0], "decoder.blocks.1", 6)
        net.linear(maps[2].mean((2, 3)), "classification_head.3", 5)
        return joined(net, x, None, "decoder.blocks.2", 4)

    wanted = logits(net, forward, image)
    save_file({key: value.contiguous() for key, value in net.state.items()}, tmp_path / "model.safetensors")
    with torch.no_grad():
        out = mapper.build(tmp_path / "model.safetensors")(pixel_values=image)
    labels = net.linear(encoder(net, image)[2].mean((2, 3)), "classification_head.3", 5)
    assert torch.allclose(out.logits, wanted, atol=1e-4, rtol=1e-3)
    assert torch.allclose(out.image_logits, labels, atol=1e-5, rtol=1e-4)
