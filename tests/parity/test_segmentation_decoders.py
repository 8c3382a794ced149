"""Decoders of segmentation-models-pytorch around a small ResNet, against the same networks in plain torch.

No config is beside them: names and shapes tell which decoder it is, its paper and the library's code the rest.
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

WIDTHS = (4, 6, 8, 10)  # of the encoder's stages


def convolved(net: Plain, x: Tensor, name: str, size: int, kernel: int, dilation: int = 1) -> Tensor:
    """A convolution, its norm and ReLU, as `name.0` and `name.1`."""
    return F.relu(net.batch_norm(dilated(net, x, f"{name}.0", size, kernel, dilation), f"{name}.1"))


def dilated(
    net: Plain, x: Tensor, name: str, size: int, kernel: int, dilation: int, groups: int = 1
) -> Tensor:
    weight = net.tensor(f"{name}.weight", size, x.shape[1] // groups, kernel, kernel)
    return F.conv2d(x, weight, None, 1, dilation * (kernel // 2), dilation, groups)


def encoder(net: Plain, x: Tensor, dilations: tuple[int, ...] = (1, 1, 1, 1)) -> list[Tensor]:
    """A ResNet of one layer in each stage, of which those behind a dilated one make no steps: five maps."""
    x = F.relu(net.batch_norm(net.conv(x, "encoder.conv1", 4, 7, 2), "encoder.bn1"))
    maps = [x]
    x = F.max_pool2d(x, 3, 2, 1)
    for stage, (width, dilation) in enumerate(zip(WIDTHS, dilations, strict=True)):
        for index in range(2):
            at = f"encoder.layer{stage + 1}.{index}"
            steps = stage > 0 and index == 0
            stride = 2 if steps and dilation == 1 else 1
            y = dilated(net, x, f"{at}.conv1", width, 3, dilation)[:, :, ::stride, ::stride]
            y = F.relu(net.batch_norm(y, f"{at}.bn1"))
            y = net.batch_norm(dilated(net, y, f"{at}.conv2", width, 3, dilation), f"{at}.bn2")
            if steps:
                x = net.batch_norm(net.conv(x, f"{at}.downsample.0", width, 1, stride), f"{at}.downsample.1")
            x = F.relu(x + y)
        maps.append(x)
    return maps


def doubled(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="nearest")


def gates(net: Plain, x: Tensor, names: tuple[str, str]) -> Tensor:
    mean = net.conv(x.mean((2, 3), keepdim=True), names[0], 2, 1, bias=True)
    return torch.sigmoid(net.conv(F.relu(mean), names[1], x.shape[1], 1, bias=True))


def both_gates(net: Plain, x: Tensor, at: str) -> Tensor:
    places = torch.sigmoid(net.conv(x, f"{at}.attention.sSE.0", 1, 1, bias=True))
    return x * gates(net, x, (f"{at}.attention.cSE.1", f"{at}.attention.cSE.3")) + x * places


def joined(net: Plain, x: Tensor, map: Tensor | None, at: str, size: int, gated: bool = False) -> Tensor:
    x = doubled(x)
    if map is not None:
        x = torch.cat((x, map), 1)
        x = both_gates(net, x, f"{at}.attention1") if gated else x
    elif gated:  # stored, and never read
        both_gates(net, x, f"{at}.attention1")
    x = convolved(net, convolved(net, x, f"{at}.conv1", size, 3), f"{at}.conv2", size, 3)
    return both_gates(net, x, f"{at}.attention2") if gated else x


def unet(gated: bool) -> Callable[[Plain, Tensor], Tensor]:
    def forward(net: Plain, image: Tensor) -> Tensor:
        *finer, x = encoder(net, image)
        for index, map in enumerate([*finer[::-1], None]):
            x = joined(net, x, map, f"decoder.blocks.{index}", 12 - 2 * index, gated)
        return x

    return forward


def nested(net: Plain, image: Tensor) -> Tensor:
    maps = encoder(net, image)[::-1]
    nodes: dict[tuple[int, int], Tensor] = {}
    for length in range(4):
        for start in range(4 - length):
            end = start + length
            x = nodes[start, end - 1] if length else maps[start]
            others = [nodes[at, end] for at in range(start + 1, end + 1)]
            size = 12 - 2 * end if start == 0 else maps[end + 1].shape[1]
            map = torch.cat([*others, maps[end + 1]], 1)
            nodes[start, end] = joined(net, x, map, f"decoder.blocks.x_{start}_{end}", size)
    return joined(net, nodes[0, 3], None, "decoder.blocks.x_0_4", 4)


def linknet(net: Plain, image: Tensor) -> Tensor:
    *finer, x = encoder(net, image)
    for index, map in enumerate([*finer[::-1], None]):
        at = f"decoder.blocks.{index}.block"
        x = convolved(net, x, f"{at}.0", 5, 1)
        weight, bias = net.tensor(f"{at}.1.0.weight", 5, 5, 4, 4), net.tensor(f"{at}.1.0.bias", 5)
        x = F.relu(net.batch_norm(F.conv_transpose2d(x, weight, bias, 2, 1), f"{at}.1.1"))
        x = convolved(net, x, f"{at}.2", 7 if map is None else map.shape[1], 1)
        x = x if map is None else x + map
    return x


def manet(net: Plain, image: Tensor) -> Tensor:
    *finer, x = encoder(net, image)
    top, center = (net.conv(x, f"decoder.center.{part}_conv", 3, 1, bias=True) for part in ("top", "center"))
    bottom = net.conv(x, "decoder.center.bottom_conv", x.shape[1], 3, bias=True)
    scores = torch.einsum("bcp,bcq->bpq", center.flatten(2), top.flatten(2))
    scores = scores.flatten(1).softmax(1).view_as(scores)
    read = torch.einsum("bpq,bcq->bpc", scores, bottom.flatten(2)).reshape(x.shape)
    x = net.conv(x + read, "decoder.center.out_conv", x.shape[1], 3, bias=True)
    for index, map in enumerate(finer[::-1]):
        at, size = f"decoder.blocks.{index}", map.shape[1]
        x = convolved(net, convolved(net, x, f"{at}.hl_conv.0", x.shape[1], 3), f"{at}.hl_conv.1", size, 1)
        x = doubled(x)
        own = gates(net, x, (f"{at}.SE_hl.1", f"{at}.SE_hl.3"))
        x = torch.cat((x * (own + gates(net, map, (f"{at}.SE_ll.1", f"{at}.SE_ll.3"))), map), 1)
        x = convolved(
            net, convolved(net, x, f"{at}.conv1", 12 - 2 * index, 3), f"{at}.conv2", 12 - 2 * index, 3
        )
    return joined(net, x, None, "decoder.blocks.4", 4)


def pyramid(net: Plain, image: Tensor) -> Tensor:
    finest, fine, coarse, coarsest = encoder(net, image)[1:]
    levels = [net.conv(coarsest, "decoder.p5", 6, 1, bias=True)]
    for level, map in ((4, coarse), (3, fine), (2, finest)):
        levels.append(doubled(levels[-1]) + net.conv(map, f"decoder.p{level}.skip_conv", 6, 1, bias=True))
    total = torch.zeros(())
    for index, x in enumerate(levels):
        for step in range(max(1, 3 - index)):
            at = f"decoder.seg_blocks.{index}.block.{step}.block"
            x = net.conv(x, f"{at}.0", 32, 3)
            weight, bias = net.tensor(f"{at}.1.weight", 32, middle=1.0), net.tensor(f"{at}.1.bias", 32)
            x = F.relu(F.group_norm(x, 32, weight, bias))
            if index < 3:
                x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True)
        total = total + x
    return total


def pooled(net: Plain, image: Tensor) -> Tensor:
    x = encoder(net, image)[2]
    parts, size = [], tuple(x.shape[2:])
    for index, places in enumerate((1, 2, 3, 6)):
        y, at = F.adaptive_avg_pool2d(x, places), f"decoder.psp.blocks.{index}.pool.1"
        y = convolved(net, y, at, 3, 1) if index else F.relu(net.conv(y, f"{at}.0", 3, 1, bias=True))
        parts.append(F.interpolate(y, size=size, mode="bilinear", align_corners=True))
    encoder(net, image)
    return convolved(net, torch.cat([*parts, x], 1), "decoder.conv", 9, 1)


def separable(net: Plain, x: Tensor, name: str, size: int, dilation: int = 1) -> Tensor:
    x = dilated(net, x, f"{name}.0", x.shape[1], 3, dilation, x.shape[1])
    return dilated(net, x, f"{name}.1", size, 1, 1)


def at_rates(net: Plain, x: Tensor, name: str, is_separable: bool) -> Tensor:
    parts = [convolved(net, x, f"{name}.convs.0", 7, 1)]
    for index, rate in enumerate((12, 24, 36), 1):
        at = f"{name}.convs.{index}"
        y = separable(net, x, f"{at}.0", 7, rate) if is_separable else dilated(net, x, f"{at}.0", 7, 3, rate)
        parts.append(F.relu(net.batch_norm(y, f"{at}.1")))
    mean = net.conv(x.mean((2, 3), keepdim=True), f"{name}.convs.4.1", 7, 1)
    parts.append(F.relu(net.batch_norm(mean, f"{name}.convs.4.2")).expand(-1, -1, *x.shape[2:]))
    return convolved(net, torch.cat(parts, 1), f"{name}.project", 7, 1)


def deeplab(net: Plain, image: Tensor) -> Tensor:
    x = at_rates(net, encoder(net, image, (1, 1, 2, 4))[-1], "decoder.aspp", is_separable=False)
    return F.relu(net.batch_norm(net.conv(x, "decoder.conv", 7, 3), "decoder.bn"))


def deeplab_joined(net: Plain, image: Tensor) -> Tensor:
    maps = encoder(net, image, (1, 1, 1, 2))
    x = at_rates(net, maps[-1], "decoder.aspp.0", is_separable=True)
    x = F.relu(net.batch_norm(separable(net, x, "decoder.aspp.1", 7), "decoder.aspp.2"))
    fine = convolved(net, maps[1], "decoder.block1", 5, 1)
    x = F.interpolate(x, scale_factor=4, mode="bilinear", align_corners=True)
    x = separable(net, torch.cat((x, fine), 1), "decoder.block2.0", 7)
    return F.relu(net.batch_norm(x, "decoder.block2.1"))


def projected(net: Plain, image: Tensor) -> Tensor:
    levels, size = [], [side // 4 for side in image.shape[2:]]
    for at, map in enumerate(encoder(net, image)[::-1]):
        level = net.linear(map.permute(0, 2, 3, 1), f"decoder.mlp_stage.{at}.linear", 6).permute(0, 3, 1, 2)
        levels.append(F.interpolate(level, size=size, mode="bilinear"))
    return convolved(net, torch.cat(levels, 1), "decoder.fuse_stage", 6, 1)


def unified(net: Plain, image: Tensor) -> Tensor:
    maps = []
    for at, map in enumerate(encoder(net, image)[1:]):
        maps.append(
            net.layer_norm(map.permute(0, 2, 3, 1), f"decoder.feature_norms.{at}").permute(0, 3, 1, 2)
        )
    coarsest = maps.pop()
    parts, size = [coarsest], coarsest.shape[2:]
    for at, places in enumerate((1, 2, 3, 6)):
        y = convolved(net, F.adaptive_avg_pool2d(coarsest, places), f"decoder.psp.blocks.{at}.1", 5, 1)
        parts.append(F.interpolate(y, size=size, mode="bilinear"))
    x = convolved(net, torch.cat(parts, 1), "decoder.psp.out_conv", 5, 3)
    levels = [x]
    for at, map in enumerate(maps[::-1]):
        map = convolved(net, map, f"decoder.fpn_lateral_blocks.{at}.conv_norm_relu", 5, 1)
        x = F.interpolate(x, size=map.shape[2:], mode="bilinear") + map
        levels.append(convolved(net, x, f"decoder.fpn_conv_blocks.{at}", 5, 3))
    levels = [F.interpolate(level, size=x.shape[2:], mode="bilinear") for level in levels[::-1]]
    return convolved(net, torch.cat(levels, 1), "decoder.fusion_block", 5, 3)


DECODERS = {
    "unet": unet(gated=False),
    "unet_gated": unet(gated=True),
    "nested_unet": nested,
    "linknet": linknet,
    "manet": manet,
    "fpn": pyramid,
    "pspnet": pooled,
    "segformer": projected,
    "upernet": unified,
    "deeplab": deeplab,
    "deeplab_plus": deeplab_joined,
}


def logits(net: Plain, forward: Callable[[Plain, Tensor], Tensor], image: Tensor) -> Tensor:
    x = net.conv(forward(net, image), "segmentation_head.0", 3, 3, bias=True)
    return F.interpolate(x, size=image.shape[2:], mode="bilinear", align_corners=True)


def compare(forward: Callable[[Plain, Tensor], Tensor], path: Path) -> None:
    """Asserts that a network is read without a doubt, and gives what it gives in plain torch.

    In doubles: small differences grow in single ones.
    """
    image = torch.randn((2, 3, 64, 96), generator=torch.Generator().manual_seed(1))
    net = Plain()
    logits(net, forward, image)  # draws the weights
    save_file({key: value.contiguous() for key, value in net.state.items()}, path)
    read = mapper.inspect(path).architecture
    assert read.reading == "unverified", (read.findings, read.missing)
    assert not read.unmapped + read.findings
    net.state = {key: value.double() for key, value in net.state.items()}
    with torch.no_grad():
        out = mapper.build(path).double()(pixel_values=image.double()).logits
    wanted = logits(net, forward, image.double())
    assert float((out - wanted).abs().max() / wanted.std()) <= 1e-9


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_of_the_maps_of_an_encoder(name: str, tmp_path: Path) -> None:
    compare(DECODERS[name], tmp_path / "model.safetensors")
