"""The end of a network from images to images: channels become pixels, and the input is joined to what is as large."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from mapper.architecture import Leaf
from mapper.inference.chains.links import MAPS, START, Link

if TYPE_CHECKING:
    from mapper.inference.chains.between import Between

_INPUT = "inputs"
_ALL = "all"  # of the factors: the one that leaves as many channels as the input has
_NEAREST, _MODES = "nearest", ("bilinear", "bicubic")  # how the input is made larger
_SHUFFLES = range(2, 9)  # factors by which images are made larger


def is_image_to_image(links: Sequence[Link]) -> bool:
    """Whether every layer gives maps."""
    return all(link.before.form in (START, MAPS) and link.after.form == MAPS for link in links)


def restore(between: Between, last: Link) -> None:
    """Channels to pixels, and the input joined to what has its channels."""
    first, leaf, width = between.links[0].element, last.element.leaf, last.after.width
    factor = next((r for r in _SHUFFLES if width == first.inputs * r * r and last.after.axes == 2), 1)
    if factor > 1:
        text = between.answers.find(leaf, "chain.shuffle", among=(str(factor), "1"))
        if text is None:
            return
        factor = factor if text in (str(factor), _ALL) else 1
        width = width // factor**2
        between.say(f"F.pixel_shuffle(x, {factor})" if factor > 1 else "x")
    if width == first.inputs:
        _skip(between, leaf, factor * prod(link.shuffle or 1 for link in between.links))


def _skip(between: Between, leaf: Leaf, factor: int) -> None:
    """What of the input, made as large, is joined to the output."""
    value = between.answers.find(leaf, "chain.skip", among=("none", "added", "subtracted"))
    if value is None or value == "none":
        return
    word, _, mode = value.partition("_")
    if word not in between.tables["skip"] or mode not in ("", *_MODES):
        allowed = ", ".join((*between.tables["skip"], *(f"added_{mode}" for mode in _MODES)))
        raise between.answers.refuse(leaf, "chain.skip", value, f"allowed: {allowed}")
    base = (
        f'F.interpolate(inputs, scale_factor={factor}, mode="{mode or _NEAREST}")' if factor > 1 else _INPUT
    )
    between.say(between.tables["skip"][word].replace(_INPUT, base))
