"""A sound as a model takes it: the steps that `rules/running/sounds.yaml` has for its class, with the settings' values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapper.errors import FormatError
from mapper.running.spectra import Numbers, mels, power, window

Settings = dict[str, Any]
_TINY = 1e-7  # beside a variance, as the published extractors have it
_MOST = 10**8  # numbers of one input
_NO_VALUES = ("step", "if", "when")  # keys of a step that it is not given


def prepared(samples: NDArray[np.float32], settings: Settings, row: Settings) -> dict[str, NDArray[Any]]:
    """The inputs of a model by their names, each without a batch. samples (N,)

    Raises FormatError for settings that mean nothing.
    """
    x: Numbers = samples.astype(np.float64)
    more: dict[str, NDArray[Any]] = {}
    try:
        for step in row["steps"]:
            if not _is_done(step, settings):
                continue
            said = {key: valued(value, settings) for key, value in step.items() if key not in _NO_VALUES}
            x = STEPS[step["step"]](x, rate=int(settings["sampling_rate"]), more=more, **said)
            if x.size > _MOST or not x.size:
                raise ValueError(f"{x.size:,} numbers come of it")
    except (KeyError, TypeError, ValueError, ZeroDivisionError, MemoryError) as error:
        raise FormatError(
            f"the settings of the feature extractor do not fit together or the sound: {error!r}"
        ) from error
    return {row["gives"]: x.astype(np.float32), **more}


def _is_done(step: Settings, settings: Settings) -> bool:
    """Whether the settings want a step: one of theirs is true, or all have the values that it is for."""
    has_values = all(settings[key] == value for key, value in step.get("when", {}).items())
    return has_values and ("if" not in step or bool(settings[step["if"]]))


def valued(value: Any, settings: Settings) -> Any:
    """A value of a step, or the setting that it names."""
    return settings[value[1:]] if isinstance(value, str) and value.startswith("$") else value


def _standardise(x: Numbers, *, spread: int, **_: Any) -> Numbers:
    """Mean 0 and variance 1 along the time; `spread` is what is taken from the count."""
    return (x - x.mean(0)) / np.sqrt(x.var(0, ddof=spread) + _TINY)


def _fill(x: Numbers, *, seconds: float, rate: int, **_: Any) -> Numbers:
    """Silence up to a length, and nothing beyond it."""
    length = int(seconds * rate)
    if not 0 < length <= _MOST:
        raise ValueError(f"{length:,} samples are asked for")
    return np.pad(x[:length], (0, max(0, length - len(x))))


def _repeat(x: Numbers, *, seconds: float, rate: int, **_: Any) -> Numbers:
    """As often as it goes whole into a length."""
    length = int(seconds * rate)
    if not 0 < length <= _MOST:
        raise ValueError(f"{length:,} samples are asked for")
    return np.tile(x, max(1, length // len(x)))


def _copies(x: Numbers, *, count: int, **_: Any) -> Numbers:
    """The same as so many channels."""
    return np.stack([x] * count)


def _flag(x: Numbers, *, name: str, more: dict[str, NDArray[Any]], **_: Any) -> Numbers:
    """An input beside it that is true."""
    more[name] = np.ones(1, np.bool_)
    return x


def _scale(x: Numbers, *, by: float, **_: Any) -> Numbers:
    return x * by


def _spectrum(
    x: Numbers,
    *,
    window: str,
    frame: int,
    transform: int,
    hop: int,
    centred: bool,
    emphasis: float | None = None,
    **_: Any,
) -> Numbers:
    if not (0 < frame <= transform <= 2**16 and hop > 0):
        raise ValueError(f"frames of {frame} samples, {hop} apart, in transforms of {transform}")
    return power(x, _window(window, frame), transform, hop, centred, emphasis)


_window = window  # whose name a step's field has


def _mels(
    x: Numbers,
    *,
    count: int,
    lowest: float,
    highest: float | None,
    scale: str,
    norm: bool,
    rate: int,
    **_: Any,
) -> Numbers:
    if not 0 < count <= 4096:
        raise ValueError(f"{count} bands are asked for")
    return x @ mels(x.shape[1], rate, count, lowest, highest, scale, norm)


def _log(x: Numbers, *, base: Any, floor: float, **_: Any) -> Numbers:
    return np.log(np.maximum(x, floor)) / (1 if base == "e" else math.log(base))


def _drop_last(x: Numbers, **_: Any) -> Numbers:
    return x[:-1]


def _floor(x: Numbers, *, below: float, **_: Any) -> Numbers:
    """Nothing lower than so much below the highest."""
    return np.maximum(x, x.max() - below)


def _shift(x: Numbers, *, by: float, over: float, **_: Any) -> Numbers:
    return (x + by) / over


def _normalise(x: Numbers, *, mean: float, std: float, times: float, **_: Any) -> Numbers:
    return (x - mean) / (std * times)


def _rows(x: Numbers, *, count: int, **_: Any) -> Numbers:
    """So many frames: zeros behind, or the first ones."""
    if not 0 < count * x.shape[1] <= _MOST:
        raise ValueError(f"{count:,} frames are asked for")
    return np.pad(x[:count], ((0, max(0, count - len(x))), (0, 0)))


def _stack(x: Numbers, *, count: int, more: dict[str, NDArray[Any]], **_: Any) -> Numbers:
    """So many frames side by side; the last place is masked where zeros fill it."""
    lacks = -len(x) % count
    wide = np.pad(x, ((0, lacks), (0, 0))).reshape(-1, count * x.shape[1])
    more["attention_mask"] = np.ones(len(wide), np.int64)
    more["attention_mask"][len(wide) - bool(lacks) :] = 0
    return wide


def _turn(x: Numbers, **_: Any) -> Numbers:
    return x.T


STEPS: dict[str, Callable[..., Numbers]] = {
    "standardise": _standardise,
    "fill": _fill,
    "repeat": _repeat,
    "copies": _copies,
    "flag": _flag,
    "scale": _scale,
    "spectrum": _spectrum,
    "mels": _mels,
    "log": _log,
    "drop_last": _drop_last,
    "floor": _floor,
    "shift": _shift,
    "normalise": _normalise,
    "rows": _rows,
    "stack": _stack,
    "turn": _turn,
}
