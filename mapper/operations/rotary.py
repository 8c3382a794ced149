"""Rotary positions (paper 2104.09864): frequencies, tables, and the rotation of queries and keys.

Frequencies are float32 of (R / 2,), R the rotated part of a head; tables are (B, 1, T, R / 2) in the dtype of
x, as each angle serves two channels. Scaling variants follow `rope_parameters` in config.json.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def rotary_frequencies(positions: Tensor, rotary_dim: int, base: float) -> Tensor:
    """Angle per position of each pair of channels. -> (R / 2,) on the device of positions"""
    index = torch.arange(0, rotary_dim, 2, device=positions.device)
    return 1.0 / base ** (index.float() / rotary_dim)


def rotary_frequencies_dynamic(
    positions: Tensor, rotary_dim: int, base: float, factor: float, max_positions: int
) -> Tensor:
    """Frequencies whose base grows with a sequence longer than max_positions (type dynamic). -> (R / 2,)"""
    length = (positions.max() + 1).clamp(min=max_positions)
    growth = (factor * length / max_positions - (factor - 1)) ** (rotary_dim / (rotary_dim - 2))
    index = torch.arange(0, rotary_dim, 2, device=positions.device)
    return 1.0 / (base * growth) ** (index.float() / rotary_dim)


def rotary_frequencies_llama3(
    positions: Tensor,
    rotary_dim: int,
    base: float,
    factor: float,
    low_factor: float,
    high_factor: float,
    original_positions: int,
) -> Tensor:
    """Frequencies with long waves slowed by `factor` and a ramp between (rope type llama3). -> (R / 2,)"""
    fast = rotary_frequencies(positions, rotary_dim, base)
    turns = original_positions * fast / (2 * math.pi)  # of each wave over the original context
    if high_factor <= low_factor:  # no ramp
        return torch.where(turns < low_factor, fast / factor, fast)
    ramp = ((turns - low_factor) / (high_factor - low_factor)).clamp(0, 1)
    return (1 - ramp) * fast / factor + ramp * fast


def rotary_frequencies_yarn(
    positions: Tensor,
    rotary_dim: int,
    base: float,
    factor: float,
    original_positions: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> Tensor:
    """Frequencies slowed by `factor` where a wave makes few turns (yarn, paper 2309.00071). -> (R / 2,)"""
    fast = rotary_frequencies(positions, rotary_dim, base)
    # the channel that makes n turns over the original context is per_log * log(context / (2 pi n))
    per_log = rotary_dim / (2 * math.log(base))
    low = per_log * math.log(original_positions / (beta_fast * 2 * math.pi))
    high = per_log * math.log(original_positions / (beta_slow * 2 * math.pi))
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary_dim - 1)
    index = torch.arange(rotary_dim // 2, dtype=torch.float32, device=positions.device)
    slow = ((index - low) / max(high - low, 0.001)).clamp(0, 1)
    return fast / factor * slow + fast * (1 - slow)


def rotary_frequencies_longrope(
    positions: Tensor,
    rotary_dim: int,
    base: float,
    short_factors: tuple[float, ...],
    long_factors: tuple[float, ...],
    original_positions: int,
) -> Tensor:
    """Frequencies divided by short_factors up to original_positions, by long_factors beyond (2402.13753)."""
    short = torch.tensor(short_factors, dtype=torch.float32, device=positions.device)
    long = torch.tensor(long_factors, dtype=torch.float32, device=positions.device)
    factors = torch.where(positions.max() + 1 > original_positions, long, short)
    return rotary_frequencies(positions, rotary_dim, base) / factors


def rotary_tables(x: Tensor, positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every angle, in the dtype of x. positions (B, T) -> two (B, 1, T, R / 2)"""
    angles = positions[:, None, :, None].float() * frequencies
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def rotary_tables_scaled(
    x: Tensor, positions: Tensor, frequencies: Tensor, factor: float
) -> tuple[Tensor, Tensor]:
    """rotary_tables times an attention factor (yarn, longrope). positions (B, T) -> two (B, 1, T, R / 2)"""
    angles = positions[:, None, :, None].float() * frequencies
    return (angles.cos() * factor).to(x.dtype), (angles.sin() * factor).to(x.dtype)


def section_axes(sections: tuple[int, ...]) -> list[int]:
    """Which axis of a position each angle takes: the first `sections[0]` angles the first axis, and so on."""
    return [axis for axis, count in enumerate(sections) for _ in range(count)]


def interleaved_axes(sections: tuple[int, ...]) -> list[int]:
    """Which axis each angle takes: in turn as long as an axis has angles left, the first axis behind that."""
    turns = enumerate(index % len(sections) for index in range(sum(sections)))
    return [axis if index < len(sections) * sections[axis] else 0 for index, axis in turns]


def rotary_tables_axes(
    x: Tensor, positions: Tensor, frequencies: Tensor, axes: list[int]
) -> tuple[Tensor, Tensor]:
    """rotary_tables of positions with three axes, by the axis of each angle.

    positions (3, B, T), or (B, T) where all axes are alike -> two (B, 1, T, R / 2)
    """
    if positions.ndim == 2:
        return rotary_tables(x, positions, frequencies)
    index = torch.tensor(axes, device=x.device)
    angles = positions[index].permute(1, 2, 0)[:, None].float() * frequencies
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates channel i with channel i + D / 2. x (B, H, T, D), cos and sin (B, 1, T, D / 2)"""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def apply_rotary_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates channel 2 i with channel 2 i + 1. x (B, H, T, D), cos and sin (B, 1, T, D / 2)"""
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)


def apply_rotary_partial(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the first R channels, halves paired, and keeps the rest. cos and sin (B, 1, T, R / 2)"""
    size = 2 * cos.shape[-1]
    return torch.cat((apply_rotary(x[..., :size], cos, sin), x[..., size:]), dim=-1)


def apply_rotary_partial_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the first R channels, neighbours paired, and keeps the rest. cos and sin (B, 1, T, R / 2)"""
    size = 2 * cos.shape[-1]
    return torch.cat((apply_rotary_interleaved(x[..., :size], cos, sin), x[..., size:]), dim=-1)
