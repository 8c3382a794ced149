"""Images as rows of places: which of them are real, and where they stand."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def unmasked_positions(x: Tensor, pixel_mask: Tensor | None) -> Tensor:
    """Which places of a map hold pixels. x (B, C, Y, X), pixel_mask (B, rows, columns) -> (B, Y, X)"""
    if pixel_mask is None:
        return torch.ones_like(x[:, 0], dtype=torch.bool)
    return F.interpolate(pixel_mask[None].float(), size=x.shape[-2:])[0].bool()


def masked_sinusoids(
    x: Tensor, seen: Tensor, temperature: float, temperature_across: float | None = None
) -> Tensor:
    """Sines and cosines of where a place stands among the real rows and columns (paper 2005.12872).

    x (B, C, Y, X), seen (B, Y, X) -> (B, Y * X, C): rows first, then columns
    """
    size = x.shape[1] // 2
    down, across = seen.cumsum(1, dtype=torch.float32), seen.cumsum(2, dtype=torch.float32)
    down = down / (down[:, -1:] + 1e-6) * 2 * math.pi
    across = across / (across[:, :, -1:] + 1e-6) * 2 * math.pi
    index = torch.arange(size // 2, dtype=torch.float32, device=x.device)
    share = 2 * index / size
    temperature_across = temperature_across or temperature
    angles = torch.stack(  # (B, Y, X, 2, size / 2)
        (down[..., None] / temperature**share, across[..., None] / temperature_across**share), dim=-2
    )
    waves = torch.stack((angles.sin(), angles.cos()), dim=-1)
    return waves.flatten(3).flatten(1, 2).to(x.dtype)


def point_sinusoids(points: Tensor, size: int, temperature: float) -> Tensor:
    """Waves of points (..., 2) as x, y between 0 and 1 (paper 2108.06152) -> (..., 2 * size): y first"""
    index = torch.arange(size // 2, dtype=torch.float32, device=points.device)
    angles = points.flip(-1)[..., None] * 2 * math.pi / temperature ** (2 * index / size)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-3).to(points.dtype)


def box_sinusoids(boxes: Tensor, size: int, temperature: float) -> Tensor:
    """Waves of boxes (..., 4): x, y, width, height in 0 to 1 (2201.12329) -> (..., 4 * size): y first"""
    sides = point_sinusoids(boxes[..., 2:].flip(-1), size, temperature)
    return torch.cat((point_sinusoids(boxes[..., :2], size, temperature), sides), dim=-1)


def inverse_sigmoid(shares: Tensor, least: float = 1e-5) -> Tensor:
    """What sigmoid makes the shares of, no further out than those of least and 1 - least. Any shape"""
    return torch.log(shares.clamp(min=least) / (1 - shares).clamp(min=least))


def refine_boxes(x: Tensor, boxes: Tensor, maps: tuple[Tensor, ...]) -> Tensor:
    """Boxes (..., 4) moved by what three linear maps, weights and biases in turn, read off x (..., W)."""
    x = F.relu(F.linear(F.relu(F.linear(x, maps[0], maps[1])), maps[2], maps[3]))
    return (F.linear(x, maps[4], maps[5]) + inverse_sigmoid(boxes)).sigmoid()


def side_distances(boxes: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """How far rows of a map are from top and bottom of boxes, columns from the sides: signed, as logarithms.

    boxes (B, Q, 4): centre and size in 0 to 1, x (B, C, Y, X) -> (B, Q, Y, 2), (B, Q, X, 2)
    """
    middle, half = boxes[..., :2], boxes[..., 2:] / 2
    sides = torch.stack((middle - half, middle + half), dim=-1)  # (B, Q, 2, 2): of x, then of y
    found = []
    for axis, count in ((1, x.shape[2]), (0, x.shape[3])):
        places = torch.arange(count, device=boxes.device, dtype=boxes.dtype) / count
        apart = 8 * (places[:, None] - sides[:, :, None, axis])
        found.append(apart.sign() * (apart.abs() + 1).log2() / 3)
    return found[0], found[1]
