"""Networks for faces, for patches, for distances between images and for larger images under the names of their libraries, in plain torch."""

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

Outputs = dict[str, Tensor]
SIDE = {"mtcnn_proposals": 24, "mtcnn_refinement": 24, "mtcnn_output": 48, "facenet": 96}
PATCHES = {"hardnet", "sosnet", "tfeat"}  # of 32 x 32 places and one channel


def slope(net: Plain, x: Tensor, name: str) -> Tensor:
    return F.prelu(x, net.tensor(f"{name}.weight", x.shape[1]))


def valid(net: Plain, x: Tensor, name: str, size: int, kernel: int, stride: int = 1) -> Tensor:
    return net.conv(x, name, size, kernel, stride, 0, bias=True)


def proposals(net: Plain, x: Tensor, *_: Tensor) -> Outputs:
    x = F.max_pool2d(slope(net, valid(net, x, "conv1", 4, 3), "prelu1"), 2, 2, ceil_mode=True)
    for index, size in ((2, 5), (3, 6)):
        x = slope(net, valid(net, x, f"conv{index}", size, 3), f"prelu{index}")
    return {
        "probabilities": valid(net, x, "conv4_1", 2, 1).softmax(1),
        "pred_boxes": valid(net, x, "conv4_2", 4, 1),
    }


def refinement(kernels: tuple[int, ...]) -> Callable[..., Outputs]:
    def forward(net: Plain, x: Tensor, *_: Tensor) -> Outputs:
        for index, kernel in enumerate(kernels, 1):
            x = slope(net, valid(net, x, f"conv{index}", 3 + index, kernel), f"prelu{index}")
            if index < len(kernels):
                window = 3 if index < 3 else 2
                x = F.max_pool2d(x, window, 2, ceil_mode=True)
        count = len(kernels) + 1
        x = slope(net, net.linear(x.permute(0, 3, 2, 1).flatten(1), f"dense{count}", 9), f"prelu{count}")
        out = {
            "probabilities": net.linear(x, f"dense{count + 1}_1", 2).softmax(1),
            "pred_boxes": net.linear(x, f"dense{count + 1}_2", 4),
        }
        return {**out, "points": net.linear(x, "dense6_3", 10)} if count == 5 else out

    return forward


def unit(net: Plain, x: Tensor, name: str, size: int, kernel: tuple[int, int] = (1, 1), stride: int = 1, is_padded: bool = True) -> Tensor:  # fmt: skip
    weight = net.tensor(f"{name}.conv.weight", size, x.shape[1], *kernel)
    padding = (kernel[0] // 2, kernel[1] // 2) if is_padded else 0
    return F.relu(net.batch_norm(F.conv2d(x, weight, None, stride, padding), f"{name}.bn", 1e-3))


def faces(net: Plain, x: Tensor, *_: Tensor) -> Outputs:
    def branch(x: Tensor, at: str, rows: list[tuple[int, tuple[int, int]]]) -> Tensor:
        for index, (size, kernel) in enumerate(rows):
            x = unit(net, x, f"{at}.{index}", size, kernel)
        return x

    def added(x: Tensor, at: str, parts: list[Tensor], scale: float) -> Tensor:
        return x + scale * net.conv(torch.cat(parts, 1), f"{at}.conv2d", x.shape[1], 1, bias=True)

    three, one = (3, 3), (1, 1)
    x = unit(net, x, "conv2d_1a", 4, three, 2, is_padded=False)
    x = unit(net, x, "conv2d_2a", 5, three, is_padded=False)
    x = F.max_pool2d(unit(net, x, "conv2d_2b", 6, three), 3, 2)
    x = unit(net, unit(net, x, "conv2d_3b", 7), "conv2d_4a", 8, three, is_padded=False)
    x = unit(net, x, "conv2d_4b", 9, three, 2, is_padded=False)
    for index in range(2):
        at = f"repeat_1.{index}"
        parts = [unit(net, x, f"{at}.branch0", 3), branch(x, f"{at}.branch1", [(3, one), (4, three)])]
        parts.append(branch(x, f"{at}.branch2", [(3, one), (4, three), (5, three)]))
        x = F.relu(added(x, at, parts, 0.17))
    y = branch(x, "mixed_6a.branch1", [(3, one), (4, three)])
    y = unit(net, y, "mixed_6a.branch1.2", 5, three, 2, is_padded=False)
    first = unit(net, x, "mixed_6a.branch0", 6, three, 2, is_padded=False)
    x = torch.cat((first, y, F.max_pool2d(x, 3, 2)), 1)
    for index in range(2):
        at = f"repeat_2.{index}"
        y = branch(x, f"{at}.branch1", [(3, one), (4, (1, 7)), (5, (7, 1))])
        x = F.relu(added(x, at, [unit(net, x, f"{at}.branch0", 3), y], 0.1))
    ends = []
    for index, rows in enumerate(([(3, one)], [(4, one)], [(3, one), (4, three)])):
        y = branch(x, f"mixed_7a.branch{index}", rows)
        ends.append(unit(net, y, f"mixed_7a.branch{index}.{len(rows)}", 5, three, 2, is_padded=False))
    x = torch.cat((*ends, F.max_pool2d(x, 3, 2)), 1)
    for at in ("repeat_3.0", "repeat_3.1", "block8"):
        y = branch(x, f"{at}.branch1", [(3, one), (4, (1, 3)), (5, (3, 1))])
        y = added(x, at, [unit(net, x, f"{at}.branch0", 3), y], 1.0 if at == "block8" else 0.2)
        x = y if at == "block8" else F.relu(y)
    x = net.batch_norm(net.linear(x.mean((2, 3)), "last_linear", 12, bias=False), "last_bn", 1e-3)
    return {"image_embeds": F.normalize(x, dim=1), "logits": net.linear(x, "logits", 7)}


def distance(places: list[tuple[int, ...]], is_alex: bool) -> Callable[..., Outputs]:
    def features(net: Plain, x: Tensor) -> list[Tensor]:
        found = []
        for part, numbers in enumerate(places):
            pools = part in (1, 2) if is_alex else part > 0
            x = F.max_pool2d(x, 3 if is_alex else 2, 2) if pools else x
            for number in numbers:
                at, size = f"net.slice{part + 1}.{number}", 4 + part
                kernel, stride, padding = {0: (11, 4, 2), 3: (5, 1, 2)}.get(number, (3, 1, 1)) if is_alex else (3, 1, 1)  # fmt: skip
                x = F.relu(net.conv(x, at, size, kernel, stride, padding, bias=True))
            found.append(x)
        return found

    def forward(net: Plain, one: Tensor, other: Tensor) -> Outputs:
        shift = net.tensor("scaling_layer.shift", 1, 3, 1, 1)
        scale = net.tensor("scaling_layer.scale", 1, 3, 1, 1, middle=0.5)
        total = torch.zeros(())
        both = (features(net, (x - shift) / scale) for x in (one, other))
        for index, (x, y) in enumerate(zip(*both, strict=True)):
            x, y = (z / (z.square().sum(1, keepdim=True).sqrt() + 1e-10) for z in (x, y))
            name = f"lin{index}.model.1"
            net.state[f"lins.{index}.model.1.weight"] = net.tensor(f"{name}.weight", 1, x.shape[1], 1, 1)
            total = total + net.conv((x - y) ** 2, name, 1, 1).mean((2, 3), keepdim=True)
        return {"distance": total}

    return forward


def compact(net: Plain, x: Tensor, *_: Tensor) -> Outputs:
    y = x
    for index in range(0, 6, 2):
        y = slope(net, net.conv(y, f"body.{index}", 8, 3, bias=True), f"body.{index + 1}")
    y = F.pixel_shuffle(net.conv(y, "body.6", 12, 3, bias=True), 2)
    return {"output": y + F.interpolate(x, scale_factor=2, mode="nearest")}


def bare_norm(net: Plain, x: Tensor, name: str) -> Tensor:
    """A batch norm without weights."""
    size = x.shape[1]
    if f"{name}.running_var" not in net.state:
        net.state[f"{name}.running_var"] = torch.rand(size, generator=net.generator) + 0.5
        net.state[f"{name}.num_batches_tracked"] = torch.tensor(1)
    return F.batch_norm(x, net.tensor(f"{name}.running_mean", size), net.state[f"{name}.running_var"])


def descriptor(folder: str, first: int) -> Callable[..., Outputs]:
    def forward(net: Plain, x: Tensor, *_: Tensor) -> Outputs:
        x = x[:, :1]
        mean, over = x.mean((1, 2, 3), keepdim=True), {"dim": (1, 2, 3), "keepdim": True}
        if first:
            x = (x - mean) / (x.var(**over, correction=0) + 1e-5).sqrt()
        else:
            x = (x - mean) / (x.std(**over) + 1e-6)
        for index, number in enumerate((0, 3, 6, 9, 12, 15)):
            at, stride = f"{folder}.{first + number}", 2 if index in (2, 4) else 1
            x = net.conv(x, at, 4 + index, 3, stride)
            x = F.relu(bare_norm(net, x, f"{folder}.{first + number + 1}"))
        x = net.conv(x, f"{folder}.{first + 19}", 10, 8, padding=0)
        return {"image_embeds": F.normalize(bare_norm(net, x, f"{folder}.{first + 20}").flatten(1), dim=1)}

    return forward


def shallow_descriptor(net: Plain, x: Tensor, *_: Tensor) -> Outputs:
    x = F.instance_norm(x[:, :1])
    x = F.max_pool2d(torch.tanh(valid(net, x, "features.1", 4, 7)), 2)
    x = torch.tanh(valid(net, x, "features.4", 5, 6))
    return {"image_embeds": torch.tanh(net.linear(x.flatten(1), "descr.0", 9))}


ALEX, VGG = [(0,), (3,), (6,), (8,), (10,)], [(0, 2), (5, 7), (10, 12, 14), (17, 19, 21), (24, 26, 28)]
NETWORKS: dict[str, Callable[..., Outputs]] = {
    "mtcnn_proposals": proposals,
    "mtcnn_refinement": refinement((3, 3, 2)),
    "mtcnn_output": refinement((3, 3, 3, 2)),
    "facenet": faces,
    "lpips_alexnet": distance(ALEX, is_alex=True),
    "lpips_vgg": distance(VGG, is_alex=False),
    "compact": compact,
    "hardnet": descriptor("features", 0),
    "sosnet": descriptor("layers", 1),
    "tfeat": shallow_descriptor,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_that_names_alone_tell(name: str, tmp_path: Path) -> None:
    side = 32 if name in PATCHES else SIDE.get(name, 64)
    generator = torch.Generator().manual_seed(1)
    images = [torch.randn((2, 3, side, side), generator=generator) for _ in range(2)]
    images = [image[:, :1] if name in PATCHES else image for image in images]
    net = Plain()
    NETWORKS[name](net, *images)  # draws the weights
    save_file({key: value.clone() for key, value in net.state.items()}, tmp_path / "model.safetensors")
    read = mapper.inspect(tmp_path / "model.safetensors").architecture
    assert read.reading == "unverified", (read.findings, read.missing)
    assert not read.questions + read.findings
    net.state = {key: value.double() for key, value in net.state.items()}
    images = [image.double() for image in images]
    with torch.no_grad():
        made = mapper.build(tmp_path / "model.safetensors").double()(
            *images[: 2 if name.startswith("lpips") else 1]
        )
    for key, wanted in NETWORKS[name](net, *images).items():
        out = made if isinstance(made, Tensor) else getattr(made, key)
        assert float((out - wanted).abs().max() / wanted.std()) <= 1e-9, key
