"""Residual networks for videos under torchvision's names, against the same networks in plain torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

import mapper
from tests.parity.test_image_networks import Plain

Three = tuple[int, int, int]


def conv(net: Plain, x: Tensor, name: str, size: int, kernel: Three, stride: Three = (1, 1, 1)) -> Tensor:
    count = x.shape[1] * kernel[0] * kernel[1] * kernel[2]
    weight = net.tensor(f"{name}.weight", size, x.shape[1], *kernel, scale=count**-0.5)
    return F.conv3d(x, weight, None, stride, tuple(side // 2 for side in kernel))


def unit(net: Plain, x: Tensor, at: str, size: int, time: int, step: int) -> Tensor:
    """A convolution and its norm: over all (time 3), over places alone (1), or over places and then over time (0)."""
    if time:
        y = conv(net, x, f"{at}.0", size, (time, 3, 3), (step if time == 3 else 1, step, step))
    else:
        y = F.relu(net.batch_norm(conv(net, x, f"{at}.0.0", 9, (1, 3, 3), (1, step, step)), f"{at}.0.1"))
        y = conv(net, y, f"{at}.0.3", size, (3, 1, 1), (step, 1, 1))
    return net.batch_norm(y, f"{at}.1")


def logits(net: Plain, x: Tensor, times: tuple[int, ...]) -> Tensor:
    stem = 3 if times[0] else 1
    x = F.relu(net.batch_norm(conv(net, x, "stem.0", 5, (stem, 7, 7), (1, 2, 2)), "stem.1"))
    if not times[0]:
        x = F.relu(net.batch_norm(conv(net, x, "stem.3", 5, (3, 1, 1)), "stem.4"))
    for stage, time in enumerate(times):
        for index in range(2):
            at, size = f"layer{stage + 1}.{index}", 5 + stage
            step = 2 if stage and not index else 1
            y = F.relu(unit(net, x, f"{at}.conv1", size, time, step))
            y = unit(net, y, f"{at}.conv2", size, time, 1)
            if step > 1:
                over_time = 1 if time == 1 else step
                x = conv(net, x, f"{at}.downsample.0", size, (1, 1, 1), (over_time, step, step))
                x = net.batch_norm(x, f"{at}.downsample.1")
            x = F.relu(x + y)
    return net.linear(x.mean((2, 3, 4)), "fc", 4)


def separable_inception(net: Plain, x: Tensor) -> Tensor:
    """Branches whose kernels reach over places, and then over time (1712.04851)."""

    def normed(x: Tensor, at: str, size: int, kernel: Three, stride: Three = (1, 1, 1)) -> Tensor:
        return F.relu(net.batch_norm(conv(net, x, f"{at}.0", size, kernel, stride), f"{at}.1", 1e-3))

    def apart(x: Tensor, at: str, size: int, side: int, step: int = 1) -> Tensor:
        x = normed(x, f"{at}.0", size, (1, side, side), (1, step, step))
        return normed(x, f"{at}.1", size, (side, 1, 1), (step, 1, 1))

    def block(x: Tensor, at: str) -> Tensor:
        pooled = F.max_pool3d(x, 3, 1, 1)
        branches = [
            normed(x, f"{at}.branch0", 6, (1, 1, 1)),
            apart(normed(x, f"{at}.branch1.0", 4, (1, 1, 1)), f"{at}.branch1.1", 7, 3),
            apart(normed(x, f"{at}.branch2.0", 3, (1, 1, 1)), f"{at}.branch2.1", 5, 3),
            normed(pooled, f"{at}.branch3.1", 4, (1, 1, 1)),
        ]
        return torch.cat(branches, dim=1)

    x = F.max_pool3d(apart(x, "features.0", 8, 7, 2), (1, 3, 3), (1, 2, 2), (0, 1, 1))
    x = apart(normed(x, "features.2", 8, (1, 1, 1)), "features.3", 12, 3)
    x = F.max_pool3d(x, (1, 3, 3), (1, 2, 2), (0, 1, 1))
    for number in (5, 6, 8, 9, 10, 11, 12, 14, 15):
        x = block(x, f"features.{number}")
        x = F.max_pool3d(x, 3, 2, 1) if number == 6 else x
        x = F.max_pool3d(x, 2, 2) if number == 12 else x
    x = F.avg_pool3d(x, (2, 7, 7), stride=1)
    net.state.setdefault("classifier.1.bias", torch.randn(4, generator=net.generator))
    x = conv(net, x, "classifier.1", 4, (1, 1, 1)) + net.state["classifier.1.bias"][:, None, None, None]
    return x.mean((2, 3, 4))


@torch.no_grad()
def test_branches_over_places_and_then_over_time_are_read_without_a_question(tmp_path: Path) -> None:
    video = torch.randn((1, 3, 20, 224, 256), generator=torch.Generator().manual_seed(1))
    net = Plain()
    wanted = separable_inception(net, video)
    save_file({key: value.clone() for key, value in net.state.items()}, tmp_path / "model.safetensors")
    made = mapper.build(tmp_path / "model.safetensors")(video).output
    torch.testing.assert_close(made, wanted, atol=1e-5, rtol=1e-4)


KINDS = {"over_all": (3, 3, 3, 3), "places_later": (3, 1, 1, 1), "places_then_time": (0, 0, 0, 0)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_residual_network_for_videos(kind: str, tmp_path: Path) -> None:
    video = torch.randn((2, 3, 5, 32, 48), generator=torch.Generator().manual_seed(1)).double()
    net = Plain()
    logits(net, video.float(), KINDS[kind])  # draws the weights
    save_file({key: value.clone() for key, value in net.state.items()}, tmp_path / "model.safetensors")
    read = mapper.inspect(tmp_path / "model.safetensors").architecture
    assert read.reading == "unverified", (read.findings, read.missing)
    assert not read.questions + read.findings
    net.state = {key: value.double() for key, value in net.state.items()}
    with torch.no_grad():
        out = mapper.build(tmp_path / "model.safetensors").double()(pixel_values=video).logits
    wanted = logits(net, video, KINDS[kind])
    assert float((out - wanted).abs().max() / wanted.std()) <= 1e-9
