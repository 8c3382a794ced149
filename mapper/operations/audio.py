"""Spectrograms as images (HTS-AT, paper 2202.00874), and which frames are real."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mapper.operations.rotary import apply_rotary_partial_interleaved


def fold_spectrogram(x: Tensor, side: int, bands: int) -> Tensor:
    """A spectrogram as a square image: parts of its time, one below the other; a short one is stretched.

    x (B, C, T, bands) -> (B, C, side, side)
    """
    folds = side // bands
    if x.shape[2] < folds * side:
        x = F.interpolate(x, (folds * side, bands), mode="bicubic", align_corners=True)
    return x.unflatten(2, (folds, side)).transpose(3, 4).flatten(2, 3)


def unpadded_frames(x: Tensor, mask: Tensor | None, halvings: int, joined: int) -> Tensor:
    """The vectors of all sounds in one row, without padding. x (B, T, W), mask (B, frames) -> (N, W)

    `halvings` convolutions of stride 2 and then the joining of each `joined` neighbours made x of the frames.
    """
    if mask is None:
        return x.flatten(0, 1)
    counts = halved(mask.sum(dim=-1), halvings) // joined
    return x[torch.arange(x.shape[1], device=x.device) < counts[:, None]]


def halved(lengths: Tensor, halvings: int) -> Tensor:
    """What so many convolutions of stride 2 leave of lengths. Any shape"""
    for _ in range(halvings):
        lengths = (lengths - 1) // 2 + 1
    return lengths


def sound_windows(input_ids: Tensor, place_id: int, counts: Tensor) -> Tensor:
    """Which part of its sound each row of frames is, where a long sound is read in several rows, in order.

    input_ids (B, T) has a run of place_id for each sound, counts (N,) are the vectors of each row -> (N,)
    """
    edges = F.pad((input_ids == place_id).long(), (1, 1)).diff(dim=1)
    lengths = torch.where(edges == -1)[1] - torch.where(edges == 1)[1]
    owner = torch.searchsorted(lengths.cumsum(0), counts.cumsum(0) - counts, right=True)
    first = torch.searchsorted(owner, torch.arange(len(lengths), device=owner.device))
    return torch.arange(len(counts), device=owner.device) - first[owner]


def apply_rotary_by_time(x: Tensor, windows: Tensor, seconds: float, base: float, share: float) -> Tensor:
    """Turns a share of x (N, T, W) by the time of each vector, `seconds` after the one before it.

    The angles of the first half of that share also grow with the part of its sound that a row is, windows
    (N,), those of the second half with the place in the row, both over `base` (MusicFlamingo).
    """
    size = int(x.shape[-1] * share)
    places = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)
    rates = 1.0 / base ** (torch.arange(0, size, 2, device=x.device, dtype=torch.float32) / size)
    rows = (windows[:, None] / base * rates)[:, None].expand(-1, len(places), -1)
    columns = (places / base * (2 * torch.pi))[:, None] * rates
    angles = torch.cat((rows, columns.expand_as(rows)), dim=-1)
    times = windows[:, None] * len(places) * seconds + places * seconds
    angles = angles * (-times * (2 * torch.pi))[:, :, None]
    return apply_rotary_partial_interleaved(x.double(), angles.cos().double(), angles.sin().double()).to(
        x.dtype
    )


def segment_mask(x: Tensor, mask: Tensor | None, halvings: int) -> Tensor:
    """Which vectors of each piece are real, behind so many convolutions of stride 2.

    x (B, P, T, W), mask (B, frames) -> (B, P, T)
    """
    if mask is None:
        return torch.ones(x.shape[:3], dtype=torch.bool, device=x.device)
    lengths = halved(mask.unflatten(1, (x.shape[1], -1)).sum(dim=-1), halvings)
    return torch.arange(x.shape[2], device=x.device) < lengths[..., None]


def same_stretch_mask(seen: Tensor, pieces: int) -> Tensor:
    """Shows each of the real vectors those of its own stretch: `pieces` of the longest, from a sound's start.

    seen (B, P, T) -> (1, 1, N, N)
    """
    real = seen.flatten(1)
    size = (seen.sum(dim=-1).max() * pieces).clamp(min=1)
    first = torch.arange(len(real), device=real.device)[:, None] * real.shape[1]
    stretch = (first + (real.cumsum(dim=1) - 1) // size)[real]
    return (stretch[:, None] == stretch)[None, None]


def split_into_blocks(x: Tensor, size: int) -> Tensor:
    """Blocks of `size` frames, the last filled up with zeros. x (B, T, W) -> (B * N, size, W)"""
    return F.pad(x, (0, 0, 0, -x.shape[1] % size)).unflatten(1, (-1, size)).flatten(0, 1)


def block_mask_keys(x: Tensor, frames: Tensor | None, size: int) -> Tensor | None:
    """Hides the keys of each block that are padding, or were filled up. x (B, T, W) -> (B * N, 1, 1, size)"""
    missing = -x.shape[1] % size
    if frames is None and missing == 0:
        return None
    real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if frames is None else frames != 0
    return F.pad(real, (0, missing)).unflatten(1, (-1, size)).flatten(0, 1)[:, None, None]


def drop_shared(x: Tensor, rate: float) -> Tensor:
    """Zeros by chance at all times, not in training alone, in the same places of each row (paper 1712.05884).

    x (B, T, C) -> (B, T, C)
    """
    kept = torch.bernoulli(x[0], p=rate)
    return torch.where(kept == 1, x, 0) / (1 - rate)


def frames_after(x: Tensor, frames: Tensor | None) -> Tensor | None:
    """Which frames behind a layer are real, one of two where it gives half as many.

    x (B, T, W), frames (B, ...)
    """
    if frames is None or frames.shape[1] == x.shape[1]:
        return frames
    return (frames[:, : 2 * x.shape[1]].unflatten(1, (-1, 2)) != 0).all(dim=2)


def unpadded_vectors(x: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """The vectors that a mask shows, of all sounds in one row. x (B, T, W), mask (B, T) -> (N, W)"""
    if x is None:
        return None
    return x.flatten(0, 1) if mask is None else x[mask.bool()]


def norm_bands(x: Tensor, mask: Tensor | None) -> Tensor:
    """Each band of a spectrogram at mean 0 and variance 1 over its real frames, padding 0.

    x (B, T, bands), mask (B, T)
    """
    real = torch.ones_like(x[..., :1]) if mask is None else (mask != 0).unsqueeze(-1).to(x.dtype)
    count = real.sum(dim=1, keepdim=True)
    centred = (x - (x * real).sum(dim=1, keepdim=True) / count.clamp(min=1)) * real
    deviation = (centred.square().sum(dim=1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    return centred / (deviation + 1e-5)


def norm_sounds(x: Tensor, frames: Tensor | None, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Each sound at mean 0 and variance 1 over its real frames and all channels; padding becomes 0.

    x (B, T, W)
    """
    real = torch.ones_like(x[..., :1]) if frames is None else frames.unsqueeze(-1).to(x.dtype)
    count = real.sum(dim=1, keepdim=True) * x.shape[-1]
    centred = x - (x * real).sum(dim=(1, 2), keepdim=True) / count
    variance = (centred.square() * real).sum(dim=(1, 2), keepdim=True) / count
    return (centred * torch.rsqrt(variance + eps) * weight + bias) * real
