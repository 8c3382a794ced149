"""One layer behind another: whether sizes allow it, and what passes between the two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mapper.inference.chains.elements import (
    CONVOLUTION,
    EMBEDDING,
    FORK,
    LINEAR,
    NORM,
    RECURRENT,
    SLOPES,
    Element,
    Fork,
    Scale,
)
from mapper.inference.leaf_shapes import weight_shape

START, MAPS, ROWS = "start", "maps", "rows"
_FACTORS = (2, 3, 4)  # of which images are made larger at once
_CHANNELS = 8  # of maps that are made of a row, at least: an image has fewer


@dataclass(frozen=True)
class Data:
    """What passes between two layers."""

    form: str  # START, MAPS (batch, channels, extents ...) or ROWS (batch, maybe positions, features)
    width: int = 0  # channels or features
    axes: int = 0  # extents behind the channels
    is_sequence: bool = False  # of ROWS: whether there surely is an axis of positions
    is_single: bool = False  # of ROWS: whether there surely is none
    is_table: bool = False  # of ROWS: whether an embedding gives them
    is_recurrent: bool = False  # of ROWS: whether a recurrent layer does
    is_widened: bool = False  # of ROWS: whether the layer that gives them reads fewer features
    shuffle: int = 0  # of MAPS: by which factor channels may become places, as the layer that gives them is wider; 0: none


@dataclass(frozen=True)
class Link:
    """One layer in its place."""

    element: Element
    before: Data
    after: Data
    groups: int = 1
    is_flattened: bool = False  # of a convolution over all that maps have in one row
    places: int = 1  # extents of maps that one row has: 9 of 576 features from 64 channels
    joined: int = 0  # channels of an earlier layer that it reads beside those of the last one
    shuffle: int = 0  # by which factor channels become places before it (1609.05158); 0: not at all
    arms: tuple[tuple[Link, ...], ...] = ()  # of a fork
    role: str = ""  # in its block, once it is known


def follow(before: Data, element: Element, is_grouped: bool = True) -> Link | None:
    """The layer in a chain that gives `before`; None where it cannot stand there.

    Without `is_grouped` a convolution reads all channels, or each by itself.
    """
    if before.form == START and before.width not in (0, element.inputs):
        return None  # behind a norm of the input
    link = _LINKS[element.group](before, element)
    is_shown = is_grouped or element.is_transposed  # by its bias
    return link if link is None or is_shown or link.groups in (1, before.width) else None


def _embedding(before: Data, element: Element) -> Link | None:
    if before.form != START:
        return None
    return Link(element, before, Data(ROWS, element.outputs, is_sequence=True, is_table=True))


def _linear(before: Data, element: Element) -> Link | None:
    is_widened = element.outputs > element.inputs
    after = Data(
        ROWS,
        element.outputs,
        is_sequence=before.is_sequence,
        is_single=before.is_single,
        is_widened=is_widened,
    )
    if before.form == START or (before.form == ROWS and before.width == element.inputs):
        return Link(element, before, after)
    if before.form == MAPS and element.inputs % before.width == 0:
        return Link(element, before, after, places=element.inputs // before.width)
    if before.form == ROWS and before.width == 2 * element.inputs > 2 and not before.is_sequence:
        return Link(element, before, after, groups=2)  # one half: a mean, with a spread in the other
    # So many words in one row.
    if (before.is_recurrent or before.is_table) and element.inputs % before.width == 0:
        return Link(element, before, replace(after, is_sequence=False), places=element.inputs // before.width)
    return None


def _recurrent(before: Data, element: Element) -> Link | None:
    after = Data(ROWS, element.outputs, is_sequence=True, is_recurrent=True)
    if before.form == START or (before.form == ROWS and before.width == element.inputs):
        return Link(element, before, after)
    if before.form == MAPS and before.axes in (1, 2) and element.inputs % before.width == 0:
        places = element.inputs // before.width
        return Link(element, before, after, places=places) if before.axes == 2 or places == 1 else None
    return None


def _convolution(before: Data, element: Element) -> Link | None:
    axes = len(element.kernel)
    if before.form == ROWS and not before.is_sequence:
        places = element.places_in(before.width)
        is_made = before.is_widened and element.inputs >= _CHANNELS
        is_row = axes == 2 or (axes == 1 and element.is_transposed and is_made)  # of waves (1802.04208)
        fits = is_row and (places > 0 if element.is_transposed else places > 1 and is_made)
        return Link(element, before, Data(MAPS, element.outputs, axes), places=places) if fits else None
    if before.form == ROWS and axes != 1:
        is_image = (axes, element.inputs, element.kernel[-1]) == (
            2,
            1,
            before.width,
        )  # of positions and features
        return Link(element, before, Data(MAPS, element.outputs, axes)) if is_image else None
    if before.form == MAPS and before.axes != axes:
        return None
    if before.form == START:
        return Link(element, before, Data(MAPS, element.outputs, axes))
    if before.form == MAPS and element.inputs == element.outputs == axes == 1 < before.width:
        return Link(element, before, Data(ROWS, 1), is_flattened=True)
    if before.shuffle and before.width == element.inputs * before.shuffle**2 and not element.is_transposed:
        return Link(
            element,
            before,
            Data(MAPS, element.outputs, axes, shuffle=shuffle_of(element)),
            shuffle=before.shuffle,
        )
    groups = _groups(before.width, element)
    after = Data(MAPS, element.outputs, axes, shuffle=shuffle_of(element) if groups == 1 else 0)
    return Link(element, before, after, groups) if groups else None


def shuffle_of(element: Element) -> int:
    """By which factor the channels that a layer adds may become places: 2 where they are four times as many; 0 for none."""
    is_plain = len(element.kernel) == 2 and not element.is_transposed and element.inputs >= _CHANNELS
    return next((r for r in _FACTORS if is_plain and element.outputs == element.inputs * r * r), 0)


def _groups(width: int, element: Element) -> int:
    """In how many groups a convolution reads its channels; 0 where it cannot read so many."""
    if element.inputs == width:
        return _transposed_groups(element) if element.is_transposed else 1
    is_divided = not element.is_transposed and width % element.inputs == 0
    groups = width // element.inputs
    return groups if is_divided and element.outputs % max(groups, 1) == 0 else 0


def _transposed_groups(element: Element) -> int:
    """In how many groups a transposed convolution gives its channels: its weight has those of one group, its bias all."""
    count, left = divmod(element.outputs, max(weight_shape(element.leaf)[1], 1))
    return count if count and not left and element.inputs % count == 0 else 1


def _fork(before: Data, element: Element) -> Link | None:
    """Each arm reads the same maps, and all give maps."""
    if isinstance(element, Scale):
        return _scale(before, element)
    arms: list[tuple[Link, ...]] = []
    for arm in element.arms if isinstance(element, Fork) else ():
        links: list[Link] = []
        for layer in arm:
            link = follow(links[-1].after if links else before, layer, is_grouped=False)
            if link is None or link.after.form != MAPS:
                return None
            links.append(link)
        arms.append(tuple(links))
    widths = sum(arm[-1].after.width for arm in arms)
    return Link(element, before, Data(MAPS, widths, len(element.kernel)), arms=tuple(arms)) if arms else None


def _scale(before: Data, element: Scale) -> Link | None:
    """The one arm reads the mean of each channel, and gives as many numbers."""
    if before.form != MAPS or before.width != element.inputs:
        return None
    first = follow(replace(before, shuffle=0), element.arms[0][0], is_grouped=False)
    last = follow(first.after, element.arms[0][1], is_grouped=False) if first else None
    return Link(element, before, before, arms=((first, last),)) if first and last else None


def _beside(before: Data, element: Element) -> Link | None:
    """A norm, or slopes, as wide as what passes."""
    if before.form == START and element.group == NORM:
        return Link(element, before, Data(START, element.outputs))
    if before.form == START:
        return None
    rows = weight_shape(element.leaf)
    if len(rows) > 1:  # a norm of channels and positions
        fits = before.form == MAPS and before.width == rows[0] and before.axes == len(rows) - 1
        return Link(element, before, before) if fits else None
    places = element.places_in(before.width) if before.is_widened and not before.is_sequence else 0
    if element.leaf.kind == "BatchNorm" and places > 1 and element.inputs >= _CHANNELS:
        return Link(element, before, Data(MAPS, element.outputs, 2), places=places)
    is_one = element.group == SLOPES and element.outputs == 1
    return Link(element, before, before) if before.width == element.outputs or is_one else None


_LINKS = {
    EMBEDDING: _embedding,
    LINEAR: _linear,
    RECURRENT: _recurrent,
    CONVOLUTION: _convolution,
    FORK: _fork,
    NORM: _beside,
    SLOPES: _beside,
}


def joining(links: Sequence[Link], element: Element, is_interpolated: bool = False) -> Link | None:
    """A convolution that reads as many channels as the last layer gives and an earlier one gave; None for any other.

    Only right behind a layer that makes maps larger: there alone are maps of an earlier size again. Where none does,
    something without tensors may, and stands before any layer (`is_interpolated`). The layer may make them larger itself (1611.07004).
    """
    if not links or element.group != CONVOLUTION:
        return None
    before = links[-1].after
    last = next((link.element for link in reversed(links) if link.element.is_main), element)
    if (
        not (last.is_transposed or (is_interpolated and not element.is_transposed))
        or before.form != MAPS
        or before.axes != len(element.kernel)
    ):
        return None
    width = element.inputs - before.width
    if width not in {links[at].after.width for at in open_ends(links)}:
        return None
    return Link(element, before, Data(MAPS, element.outputs, before.axes), joined=width)


def open_ends(links: Sequence[Link]) -> list[int]:
    """The layers of the way down whose maps may be read again, the last first: each join takes one before those so far."""
    down = next((at for at, link in enumerate(links) if link.element.is_transposed), len(links))
    ends = [
        at
        for at in range(down)
        if links[at].after.form == MAPS and (at + 1 == len(links) or links[at + 1].element.is_main)
    ]
    return ends[::-1]
