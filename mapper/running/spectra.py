"""Spectra of sounds, and the bands in which they are heard."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def window(name: str, length: int) -> Numbers:
    """The weights of the samples of a frame. Raises KeyError for a name that is none."""
    symmetric = np.hanning(length)
    return {
        "hann": np.hanning(length + 1)[:-1],  # of a period
        "hann_symmetric": symmetric,
        "povey": symmetric**0.85,  # Kaldi's own
    }[name]


def power(
    samples: Numbers, weights: Numbers, transform: int, hop: int, centred: bool, emphasis: float | None = None
) -> Numbers:
    """The power of each frequency in each frame. samples (N,), weights (L,) -> (frames, transform // 2 + 1)

    `centred` mirrors the ends, so that frames stand about their middles. `emphasis` takes the mean and that share of the
    sample before from each, as Kaldi does.
    """
    length = len(weights)
    if centred:
        samples = np.pad(samples, length // 2, mode="reflect")
    if len(samples) < length:
        samples = np.pad(samples, (0, length - len(samples)))
    frames = np.lib.stride_tricks.sliding_window_view(samples, length)[::hop]
    if emphasis is not None:
        frames = frames - frames.mean(1, keepdims=True)
        before = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
        frames = frames - emphasis * before
    return np.abs(np.fft.rfft(frames * weights, n=transform)) ** 2


def mels(
    bins: int, rate: int, count: int, lowest: float, highest: float | None, scale: str, norm: bool
) -> Numbers:
    """Triangular bands, as wide as ears tell tones apart. -> (bins, count)

    The scale "slaney" is linear up to 1 kHz and its triangles are so in hertz; "htk" is logarithmic, and "kaldi" the same with
    triangles in mels. `norm` gives bands the same area (Slaney, Auditory Toolbox). Raises KeyError for another scale.
    """
    to_mels, to_hertz = _SCALES[scale]
    ends = to_mels(np.array([lowest, rate // 2 if highest is None else highest], np.float64))
    edges = np.linspace(ends[0], ends[1], count + 2)
    at = np.linspace(0, rate / 2, bins)
    if to_hertz is None:
        hertz, at = edges, to_mels(at)
    else:
        hertz = to_hertz(edges)
    rising = (at[:, None] - hertz[:-2]) / np.diff(hertz)[:-1]
    falling = (hertz[2:] - at[:, None]) / np.diff(hertz)[1:]
    bands = np.maximum(0, np.minimum(rising, falling))
    return bands * (2 / (hertz[2:] - hertz[:-2])) if norm else bands


def _slaney(hertz: Numbers) -> Numbers:
    """3 mels for each 200 Hz up to 1 kHz, then 27 for each factor of 6.4."""
    above = 15 + np.log(np.maximum(hertz, 1000) / 1000) * 27 / np.log(6.4)
    return np.where(hertz < 1000, hertz * 3 / 200, above)


def _slaney_hertz(tones: Numbers) -> Numbers:
    """The other way round."""
    above = 1000 * np.exp((np.maximum(tones, 15) - 15) * np.log(6.4) / 27)
    return np.where(tones < 15, tones * 200 / 3, above)


def _kaldi(hertz: Numbers) -> Numbers:
    return 1127 * np.log(1 + hertz / 700)


def _kaldi_hertz(tones: Numbers) -> Numbers:
    """The other way round."""
    return 700 * (np.exp(tones / 1127) - 1)


_Scale = Callable[[Numbers], Numbers]
_SCALES: dict[str, tuple[_Scale, _Scale | None]] = {
    "slaney": (_slaney, _slaney_hertz),
    "htk": (_kaldi, _kaldi_hertz),
    "kaldi": (_kaldi, None),
}
