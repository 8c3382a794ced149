"""Whether layers read maps of earlier ones too, by all their sizes: before any order of them is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from mapper.inference.chains.elements import CONVOLUTION, Element


def joins_earlier(elements: Sequence[Element]) -> bool:
    """Whether each layer that makes maps larger has one of its own that reads twice what it gives, and gives as much.

    That is what joins maps of an earlier layer to them (U-Net), even where the sizes fit a chain all the same.
    """
    larger = _widths(element for element in elements if element.is_transposed)
    joining = _widths(filter(_may_join, elements))
    return bool(larger) and all(joining[width] >= count for width, count in larger.items())


def may_interpolate(elements: Sequence[Element]) -> bool:
    """Whether convolutions may read maps of earlier layers beside those that something without tensors made larger.

    Some then read as many channels as two layers give, and give fewer; no layer makes maps larger.
    """
    given = {element.outputs for element in elements if element.is_main}
    wider = (
        element for element in elements if element.inputs > element.outputs and element.inputs not in given
    )
    is_summed = any(element.inputs - width in given for element in wider for width in given)
    groups = {element.group for element in elements if element.is_main}
    return is_summed and groups == {CONVOLUTION} and not any(element.is_transposed for element in elements)


def may_enlarge_joined(elements: Sequence[Element]) -> bool:
    """Whether a layer that makes maps larger reads more channels than any layer gives: maps of an earlier one beside (1611.07004)."""
    given = {element.outputs for element in elements if element.is_main}
    larger = [element for element in elements if element.is_transposed]
    return any(
        element.inputs not in given and any(element.inputs - width in given for width in given)
        for element in larger
    )


def _may_join(element: Element) -> bool:
    is_plain = element.group == CONVOLUTION and not element.is_transposed
    return is_plain and element.inputs == 2 * element.outputs


def _widths(elements: Iterable[Element]) -> Counter[int]:
    return Counter(element.outputs for element in elements)


def must_join(elements: Sequence[Element]) -> set[int]:
    """The layers that surely read an earlier one too: as many of a width as there are layers that make maps larger."""
    larger = _widths(element for element in elements if element.is_transposed)
    joining = _widths(filter(_may_join, elements))
    sure = {width for width, count in larger.items() if joining[width] == count}
    return {id(element) for element in elements if _may_join(element) and element.outputs in sure}
