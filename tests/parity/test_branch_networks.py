"""Networks whose convolutions have branches that training adds up, under the names of timm, against plain torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

import mapper
from tests.parity.harness import TOLERANCE
from tests.parity.plain import Plain

Activation = Callable[[Tensor], Tensor]


def gated(net: Plain, x: Tensor, at: str, size: int) -> Tensor:
    """Squeeze-and-excitation of maps."""
    y = F.relu(net.conv(x.mean(dim=(2, 3), keepdim=True), f"{at}.fc1", size, 1, bias=True))
    return x * torch.sigmoid(net.conv(y, f"{at}.fc2", x.shape[1], 1, bias=True))


class Branches:
    """A convolution as the sum of several, of one of single places and of the input, each with a batch norm."""

    def __init__(self, net: Plain, count: int, act: Activation):
        self.net, self.count, self.act = net, count, act

    def __call__(
        self,
        x: Tensor,
        at: str,
        size: int,
        kernel: int,
        stride: int = 1,
        is_depthwise: bool = False,
        gate: str = "",
        is_active: bool = True,
        has_small: bool = True,
    ) -> Tensor:
        net, groups = self.net, x.shape[1] if is_depthwise else 1
        y = torch.zeros(())
        for index in range(self.count):
            name = f"{at}.conv_kxk.{index}"
            y = y + net.batch_norm(
                net.conv(x, f"{name}.conv", size, kernel, stride, groups=groups), f"{name}.bn"
            )
        if kernel > 1 and has_small:
            name = f"{at}.conv_scale"
            y = y + net.batch_norm(net.conv(x, f"{name}.conv", size, 1, stride, groups=groups), f"{name}.bn")
        if size == x.shape[1] and stride == 1:
            y = y + net.batch_norm(x, f"{at}.identity")
        y = gated(net, y, f"{at}.{gate}", 4) if gate else y
        return self.act(y) if is_active else y


def mobileone(net: Plain, x: Tensor, gate: str = "") -> Tensor:
    block = Branches(net, 2, F.relu)
    x = block(x, "stem", 6, 3, 2)
    for stage, size in enumerate((8, 12)):
        for index in range(4):
            at, is_depthwise = f"stages.{stage}.{index}", index % 2 == 0
            if is_depthwise:
                x = block(x, at, x.shape[1], 3, 2 if index == 0 else 1, is_depthwise=True, gate=gate)
            else:
                x = block(x, at, size, 1, gate=gate)
    return net.linear(x.mean(dim=(2, 3)), "head.fc", 5)


def fastvit(
    net: Plain, x: Tensor, *, is_large: bool, has_small: bool = True, has_head: bool = True
) -> Tensor:
    """The published network; the larger ones have an activation behind the large kernels of their steps."""
    block = Branches(net, 1, F.gelu)

    def mixed(x: Tensor, at: str) -> Tensor:
        size = x.shape[1]
        y = block(x, f"{at}.token_mixer.mixer", size, 3, is_depthwise=True, is_active=False)
        y = y - net.batch_norm(x, f"{at}.token_mixer.norm.identity")
        return x + net.tensor(f"{at}.token_mixer.layer_scale.gamma", size, 1, 1, middle=1.0) * y

    def attended(x: Tensor, at: str) -> Tensor:
        size = x.shape[1]
        y = net.batch_norm(x, f"{at}.norm") if has_small else normed(x, f"{at}.norm")
        rows = y.flatten(2).mT
        q, k, v = net.linear(rows, f"{at}.token_mixer.qkv", 3 * size, bias=False).chunk(3, dim=-1)
        q, k, v = (one.unflatten(-1, (-1, 32)).transpose(1, 2) for one in (q, k, v))
        rows = ((q @ k.mT * 32**-0.5).softmax(dim=-1) @ v).transpose(1, 2).flatten(2)
        y = net.linear(rows, f"{at}.token_mixer.proj", size).mT.reshape(x.shape)
        return x + net.tensor(f"{at}.layer_scale_1.gamma", size, 1, 1, middle=1.0) * y

    def normed(x: Tensor, at: str) -> Tensor:
        return net.layer_norm(x.permute(0, 2, 3, 1), at, 1e-5).permute(0, 3, 1, 2)

    def fed(x: Tensor, at: str, scale: str) -> Tensor:
        size = x.shape[1]
        y = net.batch_norm(net.conv(x, f"{at}.mlp.conv.conv", size, 7, groups=size), f"{at}.mlp.conv.bn")
        y = F.gelu(net.conv(y, f"{at}.mlp.fc1", 3 * size, 1, bias=True))
        y = net.conv(y, f"{at}.mlp.fc2", size, 1, bias=True)
        return x + net.tensor(f"{at}.{scale}.gamma", size, 1, 1, middle=1.0) * y

    def halved(x: Tensor, at: str, gate: bool) -> Tensor:
        size, groups = 2 * x.shape[1], x.shape[1]
        y = net.batch_norm(
            net.conv(x, f"{at}.0.large_conv.conv", size, 7, 2, groups=groups), f"{at}.0.large_conv.bn"
        )
        y = y + net.batch_norm(
            net.conv(x, f"{at}.0.small_conv.conv", size, 3, 2, groups=groups), f"{at}.0.small_conv.bn"
        )
        y = gated(net, y, f"{at}.0.se", 4) if gate else y
        y = F.gelu(y) if is_large else y
        return block(y, f"{at}.1", size, 1)

    x = block(x, "stem.0", 16, 3, 2, has_small=has_small)
    x = block(x, "stem.1", 16, 3, 2, is_depthwise=True, has_small=has_small)
    x = block(x, "stem.2", 16, 1)
    for stage in range(3):
        at = f"stages.{stage}"
        if stage:
            x = halved(x, f"{at}.downsample.proj", gate=is_large and has_small and stage == 2)
        is_last = is_large and stage == 2
        if is_last:
            name, size = f"{at}.pos_emb.pos_enc", x.shape[1]
            x = x + net.conv(x, name, size, 7, groups=size, bias=True)
        for index in range(2):
            one = f"{at}.blocks.{index}"
            x = attended(x, one) if is_last else mixed(x, one)
            x = fed(x, one, "layer_scale_2" if is_last else "layer_scale")
    x = block(x, "final_conv", 2 * x.shape[1], 3, is_depthwise=True, gate="se")
    y = x.mean(dim=(2, 3))
    return net.linear(y, "head.fc", 5) if has_head else y


CASES: dict[str, Callable[[Plain, Tensor], Tensor]] = {
    "mobileone": mobileone,
    "mobileone_gated": lambda net, x: mobileone(net, x, "attn"),
    "fastvit": lambda net, x: fastvit(net, x, is_large=False),
    "fastvit_large": lambda net, x: fastvit(net, x, is_large=True),
    "fastvit_of_layer_norms": lambda net, x: fastvit(net, x, is_large=True, has_small=False),
    "fastvit_without_a_head": lambda net, x: fastvit(net, x, is_large=True, has_head=False),
}


@pytest.mark.parametrize("name", CASES)
def test_a_network_of_branches_gives_what_it_gives_in_plain_torch(name: str, tmp_path: Path) -> None:
    net = Plain()
    image = torch.randn((2, 3, 64, 64), generator=torch.Generator().manual_seed(1))
    wanted = CASES[name](net, image)
    save_file({key: value.contiguous() for key, value in net.state.items()}, tmp_path / "model.safetensors")
    read = mapper.inspect(tmp_path).architecture
    assert read.reading == "unverified", (read.findings, read.missing)
    assert not read.unmapped
    with torch.no_grad():
        made = mapper.build(tmp_path)(image)
    found = next(value for value in vars(made).values() if value.shape == wanted.shape)
    assert float((found - wanted).abs().max() / wanted.std()) <= TOLERANCE
