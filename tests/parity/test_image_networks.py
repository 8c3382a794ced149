"""Networks for images under the names of timm and torchvision, against the same networks in plain torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

import mapper
from tests.parity.harness import TOLERANCE
from tests.parity.plain import Plain


def in_heads(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def attended(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    q, k, v = in_heads(q, heads), in_heads(k, heads), in_heads(v, heads)
    weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(dim=-1)
    return (weights @ v).transpose(1, 2).flatten(2)


def gmlp(net: Plain, x: Tensor) -> Tensor:
    x = net.patches(x, "stem.proj", 12, 8)
    for index in range(2):
        at = f"blocks.{index}"
        y = F.gelu(net.linear(net.layer_norm(x, f"{at}.norm"), f"{at}.mlp_channels.fc1", 40))
        u, v = y.chunk(2, dim=-1)
        v = net.layer_norm(v, f"{at}.mlp_channels.gate.norm", 1e-5)
        v = net.linear(v.mT, f"{at}.mlp_channels.gate.proj", v.shape[1]).mT
        x = x + net.linear(u * v, f"{at}.mlp_channels.fc2", 12)
    return net.linear(net.layer_norm(x, "norm").mean(dim=1), "head", 5)


def resmlp(net: Plain, x: Tensor) -> Tensor:
    def affine(x: Tensor, name: str) -> Tensor:
        alpha, beta = (net.tensor(f"{name}.{part}", 1, 1, x.shape[-1], middle=0.5) for part in ("alpha", "beta"))  # fmt: skip
        return x * alpha + beta

    x = net.patches(x, "stem.proj", 12, 8)
    for index in range(2):
        at = f"blocks.{index}"
        y = net.linear(affine(x, f"{at}.norm1").mT, f"{at}.linear_tokens", x.shape[1]).mT
        x = x + net.tensor(f"{at}.ls1", 12, middle=1.0) * y
        y = net.mlp(affine(x, f"{at}.norm2"), f"{at}.mlp_channels", 20)
        x = x + net.tensor(f"{at}.ls2", 12, middle=1.0) * y
    return net.linear(affine(x, "norm").mean(dim=1), "head", 5)


def repvgg(net: Plain, x: Tensor) -> Tensor:
    def layer(x: Tensor, at: str, size: int, stride: int) -> Tensor:
        y = net.batch_norm(net.conv(x, f"{at}.conv_kxk.conv", size, 3, stride), f"{at}.conv_kxk.bn")
        y = y + net.batch_norm(net.conv(x, f"{at}.conv_1x1.conv", size, 1, stride), f"{at}.conv_1x1.bn")
        if size == x.shape[1] and stride == 1:
            y = y + net.batch_norm(x, f"{at}.identity")
        return F.relu(y)

    x = layer(x, "stem", 6, 2)
    for stage, size in enumerate((8, 8, 12)):  # layers of equal shapes, some of which make steps
        for index in range(2):
            x = layer(x, f"stages.{stage}.{index}", size, 2 if index == 0 else 1)
    return net.linear(x.mean(dim=(2, 3)), "head.fc", 5)


def cait(net: Plain, x: Tensor) -> Tensor:
    heads, size = 3, 12
    x = net.patches(x, "patch_embed.proj", size, 8)
    x = x + net.tensor("pos_embed", 1, x.shape[1], size)
    for index in range(2):
        at = f"blocks.{index}"
        q, k, v = net.linear(net.layer_norm(x, f"{at}.norm1"), f"{at}.attn.qkv", 3 * size).chunk(3, dim=-1)
        scores = (in_heads(q, heads) @ in_heads(k, heads).mT * (size // heads) ** -0.5).permute(0, 2, 3, 1)
        weights = net.linear(scores, f"{at}.attn.proj_l", heads).softmax(dim=2)
        weights = net.linear(weights, f"{at}.attn.proj_w", heads).permute(0, 3, 1, 2)
        y = net.linear((weights @ in_heads(v, heads)).transpose(1, 2).flatten(2), f"{at}.attn.proj", size)
        x = x + net.tensor(f"{at}.gamma_1", size, middle=1.0) * y
        y = net.mlp(net.layer_norm(x, f"{at}.norm2"), f"{at}.mlp", 20)
        x = x + net.tensor(f"{at}.gamma_2", size, middle=1.0) * y
    token = net.tensor("cls_token", 1, 1, size).expand(x.shape[0], -1, -1)
    for index in range(2):
        at = f"blocks_token_only.{index}"
        rows = net.layer_norm(torch.cat((token, x), dim=1), f"{at}.norm1")
        q, k, v = (net.linear(rows, f"{at}.attn.{part}", size) for part in "qkv")
        y = net.linear(attended(q[:, :1], k, v, heads), f"{at}.attn.proj", size)
        token = token + net.tensor(f"{at}.gamma_1", size, middle=1.0) * y
        y = net.mlp(net.layer_norm(token, f"{at}.norm2"), f"{at}.mlp", 20)
        token = token + net.tensor(f"{at}.gamma_2", size, middle=1.0) * y
    x = net.layer_norm(torch.cat((token, x), dim=1), "norm")
    return net.linear(x[:, 0], "head", 5)


def fourier(height: int, width: int, size: int) -> Tensor:
    """Sines and cosines of the row, then of the column, as a map (2 * size, height, width)."""
    period = 10000 ** (2 * (torch.arange(size) // 2) / size)
    down = (torch.arange(1, height + 1) / (height + 1e-6) * 2 * torch.pi)[:, None] / period
    across = (torch.arange(1, width + 1) / (width + 1e-6) * 2 * torch.pi)[:, None] / period
    down, across = (torch.stack((part[:, 0::2].sin(), part[:, 1::2].cos()), 2).flatten(1) for part in (down, across))  # fmt: skip
    rows, columns = down[:, None].expand(-1, width, -1), across[None].expand(height, -1, -1)
    return torch.cat((rows, columns), dim=2).permute(2, 0, 1)


def xcit(all_normed: bool) -> Callable[[Plain, Tensor], Tensor]:
    def forward(net: Plain, x: Tensor) -> Tensor:
        heads, size = 4, 12
        for index, width in enumerate((4, 8, size)):
            x = F.gelu(x) if index else x
            at = f"patch_embed.proj.{2 * index}"
            x = net.batch_norm(net.conv(x, f"{at}.0", width, 3, 2), f"{at}.1")
        height, wide = x.shape[2:]
        waves = fourier(height, wide, 32)[None]
        x = x + net.conv(waves, "pos_embed.token_projection", size, 1, bias=True)
        x = x.flatten(2).mT
        for index in range(2):
            at = f"blocks.{index}"
            rows = net.layer_norm(x, f"{at}.norm1")
            q, k, v = net.linear(rows, f"{at}.attn.qkv", 3 * size).chunk(3, dim=-1)
            q, k, v = (in_heads(part, heads).mT for part in (q, k, v))  # (B, heads, channels, places)
            scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT
            scores = scores * net.tensor(f"{at}.attn.temperature", heads, 1, 1, middle=1.0)
            y = (scores.softmax(dim=-1) @ v).permute(0, 3, 1, 2).flatten(2)
            x = x + net.tensor(f"{at}.gamma1", size, middle=1.0) * net.linear(y, f"{at}.attn.proj", size)
            y = net.layer_norm(x, f"{at}.norm3").mT.unflatten(2, (height, wide))
            y = net.conv(y, f"{at}.local_mp.conv1", size, 3, groups=size, bias=True)
            y = net.batch_norm(F.gelu(y), f"{at}.local_mp.bn")
            y = net.conv(y, f"{at}.local_mp.conv2", size, 3, groups=size, bias=True).flatten(2).mT
            x = x + net.tensor(f"{at}.gamma3", size, middle=1.0) * y
            y = net.mlp(net.layer_norm(x, f"{at}.norm2"), f"{at}.mlp", 20)
            x = x + net.tensor(f"{at}.gamma2", size, middle=1.0) * y
        x = torch.cat((net.tensor("cls_token", 1, 1, size).expand(x.shape[0], -1, -1), x), dim=1)
        for index in range(2):
            at = f"cls_attn_blocks.{index}"
            rows = net.layer_norm(x, f"{at}.norm1")
            q, k, v = (net.linear(rows, f"{at}.attn.{part}", size) for part in "qkv")
            token = net.linear(attended(q[:, :1], k, v, heads), f"{at}.attn.proj", size)
            x = x + net.tensor(f"{at}.gamma1", size, middle=1.0) * torch.cat((token, rows[:, 1:]), dim=1)
            normed = net.layer_norm(x, f"{at}.norm2")
            x = normed if all_normed else torch.cat((normed[:, :1], x[:, 1:]), dim=1)
            token = net.tensor(f"{at}.gamma2", size, middle=1.0) * net.mlp(x[:, :1], f"{at}.mlp", 20)
            x = x + torch.cat((token, x[:, 1:]), dim=1)
        return net.linear(net.layer_norm(x, "norm")[:, 0], "head", 5)

    return forward


def pvt_v2(linear: bool) -> Callable[[Plain, Tensor], Tensor]:
    def forward(net: Plain, x: Tensor) -> Tensor:
        for stage, (size, heads, ratio) in enumerate(((8, 1, 4), (16, 2, 2), (20, 5, 2), (32, 8, 1))):
            at = f"stages.{stage}.downsample" if stage else "patch_embed"
            x = net.conv(x, f"{at}.proj", size, 3 if stage else 7, 2 if stage else 4, bias=True)
            height, width = x.shape[2:]
            x = net.layer_norm(x.flatten(2).mT, f"{at}.norm", 1e-5)
            for index in range(2):
                at = f"stages.{stage}.blocks.{index}"
                rows = net.layer_norm(x, f"{at}.norm1")
                source, grid = rows, rows.mT.unflatten(2, (height, width))
                if linear:
                    grid = net.conv(F.adaptive_avg_pool2d(grid, 7), f"{at}.attn.sr", size, 1, bias=True)
                    source = F.gelu(net.layer_norm(grid.flatten(2).mT, f"{at}.attn.norm", 1e-5))
                elif ratio > 1:
                    grid = net.conv(grid, f"{at}.attn.sr", size, ratio, ratio, 0, bias=True)
                    source = net.layer_norm(grid.flatten(2).mT, f"{at}.attn.norm", 1e-5)
                q = net.linear(rows, f"{at}.attn.q", size)
                k, v = net.linear(source, f"{at}.attn.kv", 2 * size).chunk(2, dim=-1)
                x = x + net.linear(attended(q, k, v, heads), f"{at}.attn.proj", size)
                y = net.linear(net.layer_norm(x, f"{at}.norm2"), f"{at}.mlp.fc1", 2 * size)
                y = F.relu(y) if linear else y
                y = y.mT.unflatten(2, (height, width))
                y = net.conv(y, f"{at}.mlp.dwconv", 2 * size, 3, groups=2 * size, bias=True)
                x = x + net.linear(F.gelu(y.flatten(2).mT), f"{at}.mlp.fc2", size)
            x = net.layer_norm(x, f"stages.{stage}.norm").mT.unflatten(2, (height, width))
        return net.linear(x.mean(dim=(2, 3)), "head", 5)

    return forward


def poolformer(net: Plain, x: Tensor) -> Tensor:
    def group_norm(x: Tensor, name: str) -> Tensor:
        weight, bias = (
            net.tensor(f"{name}.weight", x.shape[1], middle=1.0),
            net.tensor(f"{name}.bias", x.shape[1]),
        )
        return F.group_norm(x, 1, weight, bias, 1e-5)

    x = net.conv(x, "stem.conv", 8, 7, 4, 2, bias=True)
    for stage, size in enumerate((8, 12, 16, 20)):
        x = net.conv(x, f"stages.{stage}.downsample.conv", size, 3, 2, bias=True) if stage else x
        for index in range(2):
            at = f"stages.{stage}.blocks.{index}"
            y = group_norm(x, f"{at}.norm1")
            y = F.avg_pool2d(y, 3, 1, 1, count_include_pad=False) - y
            x = x + net.tensor(f"{at}.layer_scale1.scale", size, middle=1.0)[:, None, None] * y
            y = F.gelu(net.conv(group_norm(x, f"{at}.norm2"), f"{at}.mlp.fc1", 2 * size, 1, bias=True))
            y = net.conv(y, f"{at}.mlp.fc2", size, 1, bias=True)
            x = x + net.tensor(f"{at}.layer_scale2.scale", size, middle=1.0)[:, None, None] * y
    return net.linear(net.layer_norm(x.mean(dim=(2, 3)), "head.norm"), "head.fc", 5)


def gated_resnet_d(gate: str) -> Callable[[Plain, Tensor], Tensor]:
    """ResNet-D whose bottlenecks end in a gate: of two convolutions (se), or of one over neighbouring channels (eca)."""

    def gated(net: Plain, y: Tensor, at: str) -> Tensor:
        mean = y.mean(dim=(2, 3), keepdim=True)
        if gate == "se":
            mean = F.relu(net.conv(mean, f"{at}.se.fc1", 4, 1, bias=True))
            return y * net.conv(mean, f"{at}.se.fc2", y.shape[1], 1, bias=True).sigmoid()
        weight = net.tensor(f"{at}.se.conv.weight", 1, 1, 3, scale=1.0)
        return y * F.conv1d(mean[..., 0].mT, weight, padding=1).sigmoid().mT[..., None]

    def forward(net: Plain, x: Tensor) -> Tensor:
        x = F.relu(net.batch_norm(net.conv(x, "conv1.0", 4, 3, 2), "conv1.1"))
        x = F.relu(net.batch_norm(net.conv(x, "conv1.3", 4, 3), "conv1.4"))
        x = F.max_pool2d(F.relu(net.batch_norm(net.conv(x, "conv1.6", 8, 3), "bn1")), 3, 2, 1)
        for stage, size in enumerate((4, 6, 8, 10), start=1):
            for index in range(2):
                at, stride = f"layer{stage}.{index}", 2 if stage > 1 and index == 0 else 1
                y = F.relu(net.batch_norm(net.conv(x, f"{at}.conv1", size, 1), f"{at}.bn1"))
                y = F.relu(net.batch_norm(net.conv(y, f"{at}.conv2", size, 3, stride), f"{at}.bn2"))
                y = gated(net, net.batch_norm(net.conv(y, f"{at}.conv3", 4 * size, 1), f"{at}.bn3"), at)
                if index == 0:
                    x = F.avg_pool2d(x, 2, ceil_mode=True) if stride == 2 else x
                    x = net.batch_norm(net.conv(x, f"{at}.downsample.1", 4 * size, 1), f"{at}.downsample.2")
                x = F.relu(x + y)
        return net.linear(x.mean(dim=(2, 3)), "fc", 5)

    return forward


def efficientnet(
    act: Callable[[Tensor], Tensor], eps: float, same: bool
) -> Callable[[Plain, Tensor], Tensor]:
    def strided(
        net: Plain, x: Tensor, name: str, size: int, kernel: int, stride: int, groups: int = 1
    ) -> Tensor:
        if not same:
            return net.conv(x, name, size, kernel, stride, groups=groups)
        pad = [max(kernel - stride - (-side % -stride), 0) for side in (x.shape[3], x.shape[2])]
        x = F.pad(x, (pad[0] // 2, pad[0] - pad[0] // 2, pad[1] // 2, pad[1] - pad[1] // 2))
        return net.conv(x, name, size, kernel, stride, 0, groups)

    def forward(net: Plain, x: Tensor) -> Tensor:
        first = act(net.batch_norm(strided(net, x, "conv_stem", 8, 3, 2), "bn1", eps))
        x = act(net.batch_norm(strided(net, first, "blocks.0.0.conv_dw", 8, 3, 1, 8), "blocks.0.0.bn1", eps))
        x = first + net.batch_norm(net.conv(x, "blocks.0.0.conv_pw", 8, 1), "blocks.0.0.bn2", eps)
        for stage, stride in enumerate(
            (2, 2, 2), start=1
        ):  # layers of equal shapes, some of which make steps
            for index in range(2):
                at, step = f"blocks.{stage}.{index}", stride if index == 0 else 1
                y = act(net.batch_norm(net.conv(x, f"{at}.conv_pw", 16, 1), f"{at}.bn1", eps))
                y = act(net.batch_norm(strided(net, y, f"{at}.conv_dw", 16, 5, step, 16), f"{at}.bn2", eps))
                y = net.batch_norm(net.conv(y, f"{at}.conv_pwl", 8, 1), f"{at}.bn3", eps)
                x = y if step == 2 else x + y
        x = act(net.batch_norm(net.conv(x, "conv_head", 12, 1), "bn2", eps))
        return net.linear(x.mean(dim=(2, 3)), "classifier", 5)

    return forward


def siglip(net: Plain, x: Tensor) -> Tensor:
    heads, size, act = 3, 12, lambda y: F.gelu(y, approximate="tanh")
    x = net.patches(x, "patch_embed.proj", size, 8)
    x = x + net.tensor("pos_embed", 1, x.shape[1], size)
    for index in range(2):
        at = f"blocks.{index}"
        q, k, v = net.linear(net.layer_norm(x, f"{at}.norm1"), f"{at}.attn.qkv", 3 * size).chunk(3, dim=-1)
        x = x + net.linear(attended(q, k, v, heads), f"{at}.attn.proj", size)
        x = x + net.mlp(net.layer_norm(x, f"{at}.norm2"), f"{at}.mlp", 20, act)
    x = net.layer_norm(x, "norm")
    probe = net.tensor("attn_pool.latent", 1, 1, size).expand(x.shape[0], -1, -1)
    k, v = net.linear(x, "attn_pool.kv", 2 * size).chunk(2, dim=-1)
    y = net.linear(attended(net.linear(probe, "attn_pool.q", size), k, v, heads), "attn_pool.proj", size)
    y = y + net.mlp(net.layer_norm(y, "attn_pool.norm"), "attn_pool.mlp", 20, act)
    return net.linear(y[:, 0], "head", 5)


def vgg(net: Plain, x: Tensor) -> Tensor:
    for index, last in (
        (0, True),
        (3, True),
        (6, False),
        (8, True),
        (11, False),
        (13, True),
        (16, False),
        (18, True),
    ):
        x = F.relu(net.conv(x, f"features.{index}", 4, 3, bias=True))
        x = F.max_pool2d(x, 2) if last else x
    x = F.adaptive_avg_pool2d(x, [max(side, 7) for side in x.shape[2:]])  # of images under 224 pixels
    x = F.relu(net.conv(x, "pre_logits.fc1", 12, 7, padding=0, bias=True))
    x = F.relu(net.conv(x, "pre_logits.fc2", 12, 1, bias=True))
    return net.linear(x.mean(dim=(2, 3)), "head.fc", 5)


def mobilenet_hybrid(net: Plain, x: Tensor) -> Tensor:
    def normed(
        x: Tensor, at: str, size: int, kernel: int = 1, stride: int = 1, is_depthwise: bool = False
    ) -> Tensor:
        groups = x.shape[1] if is_depthwise else 1
        return net.batch_norm(net.conv(x, f"{at}.conv", size, kernel, stride, groups=groups), f"{at}.bn")

    def scaled(y: Tensor, at: str) -> Tensor:
        return y * net.tensor(f"{at}.layer_scale.gamma", y.shape[1]).view(-1, 1, 1)

    def bottleneck(x: Tensor, at: str, size: int, stride: int) -> Tensor:
        y = normed(x, f"{at}.dw_start", x.shape[1], 3, is_depthwise=True)
        y = F.relu(normed(y, f"{at}.pw_exp", 3 * size))
        y = F.relu(normed(y, f"{at}.dw_mid", 3 * size, 5, stride, is_depthwise=True))
        y = scaled(normed(y, f"{at}.pw_proj", size), at)
        return x + y if stride == 1 else y

    def attention(x: Tensor, at: str, heads: int, size: int, is_reduced: bool) -> Tensor:
        y, width = net.batch_norm(x, f"{at}.norm"), x.shape[1]
        read = {}
        for part in ("key", "value"):
            read[part] = y
            if is_reduced:
                y_down = net.conv(y, f"{at}.attn.{part}.down_conv", width, 3, 2, groups=width)
                read[part] = net.batch_norm(y_down, f"{at}.attn.{part}.norm")
            read[part] = net.conv(read[part], f"{at}.attn.{part}.proj", size, 1).flatten(2).mT
        q = net.conv(y, f"{at}.attn.query.proj", heads * size, 1).flatten(2).mT
        several = [read[part].repeat(1, 1, heads) for part in ("key", "value")]
        seen = attended(q, *several, heads).mT.unflatten(2, x.shape[2:])
        return x + scaled(net.conv(seen, f"{at}.attn.output.proj", width, 1), at)

    x = F.relu(net.batch_norm(net.conv(x, "conv_stem", 8, 3, 2), "bn1"))
    for index, size in enumerate((8, 12)):
        x = F.relu(net.batch_norm(net.conv(x, f"blocks.{index}.0.conv", size, 3, 2), f"blocks.{index}.0.bn1"))
    x = bottleneck(x, "blocks.2.0", 16, 2)
    x = attention(x, "blocks.2.1", 4, 6, True)
    x = bottleneck(x, "blocks.3.0", 20, 2)
    x = attention(x, "blocks.3.1", 4, 6, False)
    x = bottleneck(x, "blocks.3.2", 20, 1)
    x = F.relu(net.batch_norm(net.conv(x, "blocks.4.0.conv", 24, 1), "blocks.4.0.bn1"))
    x = F.relu(net.batch_norm(net.conv(x.mean(dim=(2, 3), keepdim=True), "conv_head", 28, 1), "norm_head"))
    return net.linear(x.flatten(1), "classifier", 5)


def mnasnet(net: Plain, x: Tensor) -> Tensor:
    def normed(
        x: Tensor, at: str, number: int, size: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> Tensor:
        return net.batch_norm(net.conv(x, f"{at}{number}", size, kernel, stride, groups=groups), f"{at}{number + 1}")  # fmt: skip

    x = F.relu(normed(x, "layers.", 0, 8, 3, 2))
    x = normed(F.relu(normed(x, "layers.", 3, 8, 3, groups=8)), "layers.", 6, 4, 1)
    widths = {8: (3, 6, 3, 2), 9: (3, 7, 5, 2), 10: (3, 8, 5, 2), 11: (2, 10, 3, 1), 12: (4, 12, 5, 2), 13: (1, 14, 3, 1)}  # fmt: skip
    for stack, (count, size, kernel, stride) in widths.items():
        for index in range(count):
            at, inner = f"layers.{stack}.{index}.layers.", 3 * x.shape[1]
            y = F.relu(normed(x, at, 0, inner, 1))
            y = F.relu(normed(y, at, 3, inner, kernel, stride if index == 0 else 1, inner))
            y = normed(y, at, 6, size, 1)
            x = x + y if index else y
    x = F.relu(normed(x, "layers.", 14, 16, 1))
    return net.linear(x.mean(dim=(2, 3)), "classifier.1", 5)


def googlenet(net: Plain, x: Tensor) -> Tensor:
    def basic(x: Tensor, at: str, size: int, kernel: int, stride: int = 1) -> Tensor:
        return F.relu(net.batch_norm(net.conv(x, f"{at}.conv", size, kernel, stride), f"{at}.bn", 1e-3))

    x = F.max_pool2d(basic(x, "conv1", 8, 7, 2), 3, 2, ceil_mode=True)
    x = F.max_pool2d(basic(basic(x, "conv2", 8, 1), "conv3", 12, 3), 3, 2, ceil_mode=True)
    for part in ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
        at = f"inception{part}"
        branches = [
            basic(x, f"{at}.branch1", 6, 1),
            basic(basic(x, f"{at}.branch2.0", 4, 1), f"{at}.branch2.1", 7, 3),
            basic(basic(x, f"{at}.branch3.0", 3, 1), f"{at}.branch3.1", 5, 3),
            basic(F.max_pool2d(x, 3, 1, 1), f"{at}.branch4.1", 4, 1),
        ]
        if part in ("4a", "4d"):  # heads that training alone reads
            aside = f"aux{1 if part == '4a' else 2}"
            y = basic(torch.cat(branches, dim=1), f"{aside}.conv", 6, 1).mean(dim=(2, 3))
            net.linear(F.relu(net.linear(y, f"{aside}.fc1", 10)), f"{aside}.fc2", 5)
        x = torch.cat(branches, dim=1)
        if part == "3b":
            x = F.max_pool2d(x, 3, 2, ceil_mode=True)
        if part == "4e":
            x = F.max_pool2d(x, 2, 2, ceil_mode=True)
    return net.linear(x.mean(dim=(2, 3)), "fc", 5)


Case = tuple[Callable[[Plain, Tensor], Tensor], int, dict[str, Any], dict[str, Any]]
TINYNET = {"architecture": "tinynet_a", "num_classes": 5}
TF_NET = {"architecture": "tf_efficientnet_b0", "num_classes": 5, "global_pool": "avg"}
PLAIN: dict[str, Any] = {"activation": "relu", "embedding.activation": "relu"}
CASES: dict[str, Case] = {  # a forward, the side of its image, timm's config beside it, what is told
    "gmlp": (gmlp, 32, {}, {}),
    "resmlp": (resmlp, 32, {}, {}),
    "repvgg": (repvgg, 64, {"architecture": "repvgg_a0", "global_pool": "avg"}, {}),
    "cait": (cait, 32, {}, {}),
    "xcit": (xcit(True), 32, {}, {"layer.all_normed": True}),
    "xcit_nano": (xcit(False), 40, {"architecture": "xcit_nano_12_p8_224"}, {}),
    "pvt_v2": (pvt_v2(False), 64, {}, {}),
    "pvt_v2_linear": (pvt_v2(True), 64, {}, {}),
    "poolformer": (poolformer, 64, {"architecture": "poolformer_s12", "global_pool": "avg"}, {}),
    "seresnet_d": (gated_resnet_d("se"), 64, {}, {}),
    "ecaresnet_d": (gated_resnet_d("eca"), 64, {}, {}),
    "efficientnet": (efficientnet(F.silu, 1e-5, False), 63, TINYNET, {}),
    "tf_efficientnet": (efficientnet(F.silu, 1e-3, True), 63, TF_NET, {}),
    "mnasnet_of_timm": (efficientnet(F.relu, 1e-3, True), 64, {}, {**PLAIN, "padding": "same", "norm.eps": 1e-3}),
    "siglip": (siglip, 32, {"architecture": "vit_base_patch32_siglip_256", "model_args": {"num_heads": 3}}, {}),
    "vgg": (vgg, 224, {"architecture": "vgg11", "num_classes": 5}, {}),
    "mobilenet_hybrid": (mobilenet_hybrid, 64, {"architecture": "mobilenetv4_hybrid_medium", "num_classes": 5}, {}),
    "small_vgg": (vgg, 64, {"architecture": "vgg11", "num_classes": 5}, {}),
    "mnasnet": (mnasnet, 64, {}, {}),
    "googlenet": (googlenet, 64, {}, {}),
}  # fmt: skip


def written(name: str, folder: Path) -> tuple[Tensor, Tensor]:
    """A checkpoint of a case; an image, and what the plain network gives for it."""
    forward, side, config, _ = CASES[name]
    net = Plain()
    image = torch.randn((2, 3, side, side), generator=torch.Generator().manual_seed(1))
    wanted = forward(net, image)
    save_file({key: value.contiguous() for key, value in net.state.items()}, folder / "model.safetensors")
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return image, wanted


@pytest.mark.parametrize("name", CASES)
def test_a_network_gives_what_it_gives_in_plain_torch(name: str, tmp_path: Path) -> None:
    image, wanted = written(name, tmp_path)
    hints = CASES[name][3]
    read = mapper.inspect(tmp_path, hints=hints).architecture
    assert read.reading == "unverified", (read.findings, read.missing)
    assert not read.unmapped
    with torch.no_grad():
        made = mapper.build(tmp_path, hints=hints)(image)
    found = made.logits if hasattr(made, "logits") else next(value for value in vars(made).values() if value.shape == wanted.shape)  # fmt: skip
    assert float((found - wanted).abs().max() / wanted.std()) <= TOLERANCE


ASKED = {
    "mnasnet_of_timm": {"activation", "embedding.activation", "padding", "norm.eps"},
    "xcit": {"layer.all_normed"},
}


@pytest.mark.parametrize("name", ASKED)
def test_what_neither_names_nor_shapes_show_is_asked(name: str, tmp_path: Path) -> None:
    written(name, tmp_path)
    asked = {question.fact for question in mapper.inspect(tmp_path).architecture.questions}
    assert asked == ASKED[name]


def test_a_network_that_smooths_its_steps_is_no_plain_resnet(tmp_path: Path) -> None:
    net = Plain()
    gated_resnet_d("se")(net, torch.randn(1, 3, 64, 64))
    save_file({key: value.contiguous() for key, value in net.state.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "seresnetblur50d", "num_classes": 5}))
    read = mapper.inspect(tmp_path).architecture
    assert "binomial" in {fact.value for fact in read.facts if fact.name == "layer.smoothing"}
