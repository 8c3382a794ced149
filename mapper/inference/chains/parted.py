"""Words of expressions that take some channels of several, or lay out anew what there is: `channels_0_16(conv)`, `unshuffled_2(inputs)`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from mapper.inference.chains.links import MAPS, ROWS, START, Data

if TYPE_CHECKING:
    from mapper.inference.chains.value import Value

_SOME = re.compile(r"channels_(\d{1,5})_(\d{1,5})")  # from the first on, as far as the second
_COUNTED = re.compile(r"(unshuffled|maps|anchors|smoothed)_(\d{1,4})")
_PLACES = 2  # axes of an image
Laid = tuple[str, Data]


def of_parts(word: str, inner: Value, tight: str) -> Laid | None:
    """What a word takes of a value, or how it lays it out; None for any other word."""
    if some := _SOME.fullmatch(word):
        return _some_channels(inner.data, tight, int(some[1]), int(some[2]))
    if counted := _COUNTED.fullmatch(word):
        return _COUNTS[counted[1]](inner.data, tight, int(counted[2]))
    return _PLAIN[word](inner.data, tight) if word in _PLAIN else None


def _some_channels(data: Data, tight: str, first: int, last: int) -> Laid | None:
    if not first < last or (data.width and last > data.width):
        return None
    axis = _axis(data)
    return f"{tight}.narrow({axis}, {first}, {last - first})", replace(data, width=last - first)


def _unshuffled(data: Data, tight: str, factor: int) -> Laid | None:
    """Places as channels (1710.04026): of an input, too, which is then an image."""
    if data.form == ROWS or factor < 1 or (data.form == MAPS and data.axes != _PLACES):
        return None
    width = data.width * factor**2
    return f"F.pixel_unshuffle({tight}, {factor})", Data(MAPS, width, _PLACES)


def _maps_of_rows(data: Data, tight: str, channels: int) -> Laid | None:
    """A sequence whose features are channels of several places each, the other way than `rows`."""
    if not data.is_sequence or channels < 1 or data.width % channels:
        return None
    return f"{tight}.unflatten(-1, ({channels}, -1)).transpose(1, 2)", Data(MAPS, channels, _PLACES)


def _anchors(data: Data, tight: str, count: int) -> Laid | None:
    """Maps as a row of so many numbers for each anchor at each place (1512.02325)."""
    if data.form != MAPS or count < 1 or data.width % count:
        return None
    return f"{tight}.movedim(1, -1).flatten(1).unflatten(1, (-1, {count}))", Data(
        ROWS, count, is_sequence=True
    )


def _smoothed(data: Data, tight: str, size: int) -> Laid | None:
    """A row of times as the mean of so many around each (2205.13504)."""
    if data.form == MAPS or size % 2 == 0:
        return None
    text = f"moving_average({tight}.flatten(0, -2).unsqueeze(-1), {size}).view_as({tight})"
    return text, data


def _channel_max(data: Data, tight: str) -> Laid:
    return f"{tight}.amax(dim={_axis(data)}, keepdim=True)", replace(data, width=1)


def _channel_mean(data: Data, tight: str) -> Laid:
    return f"{tight}.mean(dim={_axis(data)}, keepdim=True)", replace(data, width=1)


def _shares(data: Data, tight: str) -> Laid:
    return f"F.softmax({tight}, dim={_axis(data)})", data


def _channels_last(data: Data, tight: str) -> Laid | None:
    """Maps with their channels behind their places: of several axes no sequence that a recurrent layer reads."""
    if data.form != MAPS:
        return None
    return f"{tight}.movedim(1, -1)", Data(ROWS, data.width, data.axes, is_sequence=True)


def _image(data: Data, tight: str) -> Laid | None:
    """Positions and their features as a map of one channel."""
    is_row = data.form == ROWS and not data.is_single
    return (f"{tight}.unsqueeze(1)", Data(MAPS, 1, _PLACES)) if is_row else None


def _summed(data: Data, tight: str) -> Laid | None:
    """Both directions of a recurrent layer as one (1512.02595)."""
    if not data.is_sequence or data.width % 2:
        return None
    return f"{tight}.unflatten(-1, (2, -1)).sum(dim=-2)", replace(data, width=data.width // 2)


def _axis(data: Data) -> int:
    """The axis of channels or features; of an input that nothing says more of the second, as an image has it."""
    return 1 if data.form in (MAPS, START) else -1


_COUNTS = {"unshuffled": _unshuffled, "maps": _maps_of_rows, "anchors": _anchors, "smoothed": _smoothed}
_PLAIN = {
    "channel_max": _channel_max,
    "softmax_of_channels": _shares,
    "channel_mean": _channel_mean,
    "channels_last": _channels_last,
    "image": _image,
    "summed_directions": _summed,
}
