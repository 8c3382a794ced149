"""The samples of a .wav file, and sound at the rate that a model hears."""

from __future__ import annotations

import math
import wave
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.errors import FormatError, shorten
from mapper.sources.files import base_name, open_regular

SECONDS = 3_600  # of a sound
_BYTES = 2**31  # of a file
_ZEROS = 16  # crossings of the resampling filter on each side
Samples = NDArray[np.float32]


def heard(given: Any, rate: int) -> tuple[Samples, str]:
    """Samples between -1 and 1 at a rate, of a path or of samples with their rate; and what was done to them.

    Several channels are one: their mean. Raises FormatError.
    """
    if isinstance(given, (str, Path)):
        samples, own = read_wav(given)
    elif isinstance(given, tuple) and len(given) == 2:
        samples, own = np.asarray(given[0], np.float32), int(given[1])
    else:
        raise FormatError(
            f"a sound is the path of a .wav file, or samples with their rate, not {type(given).__name__}"
        )
    if samples.ndim != 1 or not len(samples) or own < 1:
        raise FormatError("a sound is one row of samples, at least one, and their rate a second")
    if not np.isfinite(samples).all():
        raise FormatError("the sound has samples that are no numbers")
    if own == rate:
        return samples, ""
    return resampled(
        samples, own, rate
    ), f"the sound has {own:,} samples a second and was resampled to {rate:,}, which the model hears"


def read_wav(path: str | Path) -> tuple[Samples, int]:
    """The samples of a file of 8, 16, 24 or 32 bits, and how many there are a second."""
    name = base_name(path)
    file, size = open_regular(path)
    with file:
        if size > _BYTES:
            raise FormatError(f"{name} has {size:,} bytes, at most {_BYTES:,} are read; cut it")
        try:
            with wave.open(file) as sound:
                width, channels, rate, frames = (
                    sound.getsampwidth(),
                    sound.getnchannels(),
                    sound.getframerate(),
                    sound.getnframes(),
                )
                if not 0 < rate <= 10**6 or frames > rate * SECONDS:
                    raise FormatError(
                        f"{name}: {frames:,} frames, {rate:,} a second; at most {SECONDS:,} seconds are read; cut it"
                    )
                data = sound.readframes(frames)
        except (wave.Error, EOFError, ValueError, OverflowError) as error:
            raise FormatError(
                f"{name} is no .wav file of whole numbers: {shorten(str(error) or 'it ends early')}"
            ) from error
    if not data:
        raise FormatError(f"{name} holds no sound")
    if len(data) < frames * width * channels:
        has = len(data) // (width * channels)
        raise FormatError(f"{name} ends early: {has:,} of its {frames:,} frames are there; download it again")
    return _numbers(data, width).reshape(-1, channels).mean(1).astype(np.float32), rate


def _numbers(data: bytes, width: int) -> Samples:
    """Whole numbers of `width` bytes as shares of the largest: https://www.mmsp.ece.mcgill.ca/Documents/AudioFormats/WAVE/WAVE.html"""
    if width == 1:  # without a sign
        return np.asarray((np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128, np.float32)
    if width == 3:
        parts = np.zeros((len(data) // 3, 4), np.uint8)
        parts[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return (parts.view("<i4")[:, 0] / 2**31).astype(np.float32)
    return np.asarray(np.frombuffer(data, f"<i{width}") / 2 ** (8 * width - 1), np.float32)


def resampled(samples: Samples, rate: int, wanted: int) -> Samples:
    """The sound at another rate: a sinc under a Hann window, cut at the lower of the two limits (Smith, Digital Audio Resampling)."""
    common = math.gcd(rate, wanted)
    up, down = wanted // common, rate // common
    cut = min(1.0, wanted / rate)
    reach = math.ceil(_ZEROS / cut)
    length = math.ceil(len(samples) * up / down)
    padded = np.pad(samples.astype(np.float64), (reach, reach + down))
    out = np.empty(length)
    for phase in range(min(up, length)):  # every `up`-th sample lies equally between its neighbours
        places = np.arange(phase, length, up, dtype=np.int64) * down
        whole, part = places // up, (places[0] % up) / up
        offsets = np.arange(-reach, reach + 1)
        at = (offsets - part) * cut
        filter_ = cut * np.sinc(at) * np.where(np.abs(at) < _ZEROS, np.cos(np.pi * at / (2 * _ZEROS)) ** 2, 0)
        total = np.zeros(len(places))
        for offset, weight in zip(offsets, filter_, strict=True):
            total += weight * padded[np.minimum(whole + reach + offset, len(padded) - 1)]
        out[phase::up] = total
    return out.astype(np.float32)
