"""Position numbers (B or 1, T), fixed position tables, and learned tables fitted to another image size."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def positions_in_order(x: Tensor) -> Tensor:
    """0, 1, 2, ... for every position of x. x (B, T, ...) -> (1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None]


def positions_of_ids(input_ids: Tensor, padding_id: int) -> Tensor:
    """Counts real tokens from padding_id + 1; padding gets padding_id (RoBERTa).

    input_ids (B, T) -> (B, T)
    """
    real = (input_ids != padding_id).long()
    return real.cumsum(dim=1) * real + padding_id


def positions_of_mask(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Counts real positions from 0; padding gets 0.

    x (B, T, ...), attention_mask (B, T) or None -> (B or 1, T)
    """
    if attention_mask is None:
        return torch.arange(x.shape[1], device=x.device)[None]
    real = (attention_mask != 0).long()
    return (real.cumsum(dim=1) - 1) * real


def sinusoids(x: Tensor, positions: Tensor, size: int, cosine_first: bool = False, shift: int = 1) -> Tensor:
    """All sines, then all cosines, or cosines first. (...) -> (..., size)

    The frequencies fall from 1 to 1 / 10000, which they reach where `shift` is 1 (fairseq); where it is 0
    they are 10000 ** (-2 i / size) (paper 1706.03762).
    """
    half = size // 2
    index = torch.arange(half, dtype=torch.float32, device=positions.device)
    angles = positions[..., None].float() * torch.exp(index * (-math.log(10000.0) / (half - shift)))
    halves = (angles.cos(), angles.sin()) if cosine_first else (angles.sin(), angles.cos())
    return F.pad(torch.cat(halves, dim=-1), (0, size % 2)).to(x.dtype)


def sinusoids_interleaved(x: Tensor, positions: Tensor, size: int) -> Tensor:
    """Sine and cosine in turn, frequencies 10000 ** (-2 i / size) (paper 1706.03762).

    (B, T) -> (B, T, size)
    """
    index = torch.arange(0, size, 2, dtype=torch.float32, device=positions.device)
    angles = positions[..., None].float() * torch.exp(index * (-math.log(10000.0) / size))
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2).to(x.dtype)


def resize_positions(table: Tensor, kept: int, height: int, width: int, antialias: bool = False) -> Tensor:
    """Fits a square table of patch positions to a grid of height x width by bicubic interpolation.

    table (..., kept + N * N, W), the first `kept` rows (class token) stay -> (1, kept + height * width, W).
    Where the size is the same the values are, too: the branch that would skip it stops a dynamic export.
    A table of another number of rows belongs to the one image size it was trained on, and stays as it is.
    """
    table = table.reshape(-1, table.shape[-1])
    side = math.isqrt(table.shape[0] - kept)
    if side * side != table.shape[0] - kept:
        return table[None]
    grid = table[kept:].unflatten(0, (side, side)).permute(2, 0, 1)[None].float()
    grid = F.interpolate(grid, (height, width), mode="bicubic", align_corners=False, antialias=antialias)
    return torch.cat((table[:kept], grid[0].to(table.dtype).flatten(1).t()))[None]


def stretch_positions(table: Tensor, kept: int, height: int, width: int) -> Tensor:
    """Fits a square table of patch positions to a grid by bilinear interpolation, corner on corner.

    table (..., kept + N * N, W), the first `kept` rows stay -> (1, kept + height * width, W)
    """
    table = table.reshape(-1, table.shape[-1])
    side = math.isqrt(table.shape[0] - kept)
    grid = table[kept:].unflatten(0, (side, side)).permute(2, 0, 1)[None]
    grid = F.interpolate(grid, (height, width), mode="bilinear", align_corners=True)
    return torch.cat((table[:kept], grid[0].flatten(1).t()))[None]


def nearest_positions(table: Tensor, height: int, width: int) -> Tensor:
    """Each place of a grid has the nearest of a square table; one of as many places has its rows in order.

    table (1, N * N, W) -> (1, height * width, W)
    """
    if table.shape[1] == height * width:
        return table
    side = math.isqrt(table.shape[1])
    grid = table.transpose(1, 2).unflatten(2, (side, side))
    return F.interpolate(grid, (height, width), mode="nearest").flatten(2).transpose(1, 2)


def cut_positions(table: Tensor, height: int, width: int) -> Tensor:
    """The first positions, a class token's and those of a grid; of a larger image, all fitted to it.

    table (..., 1 + N * N, W) -> (1, 1 + height * width, W)
    """
    if 1 + height * width <= table.shape[-2]:
        return table.reshape(1, -1, table.shape[-1])[:, : 1 + height * width]
    return resize_positions(table, 1, height, width)


def crop_positions(table: Tensor, height: int, width: int) -> Tensor:
    """Positions that a grid covers of a square of its longer side, fitted by bilinear interpolation.

    table (..., N * N, W) -> (1, height * width, W)
    """
    side, longer = math.isqrt(table.shape[-2]), max(height, width)
    grid = table.reshape(1, side, side, -1).permute(0, 3, 1, 2).float()
    grid = F.interpolate(grid, (longer, longer), mode="bilinear", align_corners=False).to(table.dtype)
    return grid[:, :, :height, :width].flatten(2).transpose(1, 2)


def resize_between(
    table: Tensor, before: int, after: int, sides: tuple[int, int], pixels: Tensor, size: int
) -> Tensor:
    """Fits positions of patches, which stand between others, to another image by bicubic interpolation.

    table (..., before + patches + after, W) for an image of sides (Y, X), pixels (B, C, y, x), size the side
    of a patch -> (..., before + y // size * (x // size) + after, W)
    """
    rows = table.flatten(0, -3)
    patches = rows[:, before : rows.shape[1] - after].transpose(1, 2)
    patches = patches.unflatten(2, (sides[0] // size, sides[1] // size))
    grid = (pixels.shape[2] // size, pixels.shape[3] // size)
    patches = F.interpolate(patches, size=grid, mode="bicubic", align_corners=False)
    patches = patches.flatten(2).transpose(1, 2)
    rows = torch.cat((rows[:, :before], patches, rows[:, rows.shape[1] - after :]), dim=1)
    return rows.unflatten(0, table.shape[:-2])


def tile_positions(table: Tensor, height: int, width: int) -> Tensor:
    """A square table of patch positions laid beside itself. table (1, N * N, W) -> (1, height, width, W)"""
    side = math.isqrt(table.shape[1])
    rows, columns = torch.arange(height, device=table.device), torch.arange(width, device=table.device)
    return table[:, (rows[:, None] % side) * side + columns % side]


def image_sinusoids(x: Tensor, height: int, width: int, reaches_last: bool = False) -> Tensor:
    """Sines and cosines by column, then by row, for the patches of an image. x (B, T, W) -> (1, T, W)

    Wavelengths grow to 10,000 times the first, which the last has only where it `reaches_last`.
    """
    quarter = x.shape[-1] // 4
    steps = quarter - 1 if reaches_last else quarter
    omega = 10000.0 ** -(torch.arange(quarter, dtype=torch.float64, device=x.device) / steps)
    index = torch.arange(height * width, device=x.device)[:, None]
    across, down = index % width * omega, index // width * omega
    return torch.cat((across.sin(), across.cos(), down.sin(), down.cos()), dim=-1)[None].to(x.dtype)


def video_sinusoids(x: Tensor, height: int, width: int) -> Tensor:
    """Sines and cosines by column, by row, by frame, for the patches of a video. x (B, T, W) -> (1, T, W)

    Wavelengths grow to 10,000 times the first; channels that no axis has are zero.
    """
    sixth = x.shape[-1] // 6
    omega = 10000.0 ** -(torch.arange(sixth, dtype=torch.float64, device=x.device) / (sixth - 1))
    index = torch.arange(x.shape[1], device=x.device)[:, None]
    angles = (index % width * omega, index // width % height * omega, index // (width * height) * omega)
    waves = torch.cat([wave for angle in angles for wave in (angle.sin(), angle.cos())], dim=-1)
    return F.pad(waves, (0, x.shape[-1] - 6 * sixth))[None].to(x.dtype)


def decoder_ids(
    decoder_input_ids: Tensor | None, input_ids: Tensor, start_id: int, padding_id: int
) -> Tensor:
    """The caller's ids for a decoder, or those of the encoder one place later, as in denoising (BART).

    start_id comes first; -100, which labels have, is padding. (B, S), (B, T) -> (B, S or T)
    """
    if decoder_input_ids is not None:
        return decoder_input_ids
    shifted = F.pad(input_ids[:, :-1], (1, 0), value=start_id)
    return shifted.masked_fill(shifted == -100, padding_id)
