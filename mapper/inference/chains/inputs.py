"""What is done with the input of a chain before its first layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mapper.inference.chains.answers import Answers
from mapper.inference.chains.elements import CONVOLUTION, LINEAR
from mapper.inference.chains.links import START, Link

if TYPE_CHECKING:
    from mapper.inference.chains.between import Between

_FACT = "chain.input"
_BYTES, LAST = "bytes", "channels_last"  # pixels from 0 to 255, which the network itself divides
_TAKES, _INPUT = "chain.inputs", "inputs"
_FLAT = ("flatten", "numbers: what stands before the first layer has no tensors, and most of that flattens")


def read_input(between: Between, link: Link) -> None:
    """Pixels become numbers up to 1, and maps features, where that is told or numbers show it."""
    element, told = link.element, between.answers.told(_FACT)
    if element.group == CONVOLUTION and told == _BYTES:
        between.say("x / 255.0")
    elif element.group == CONVOLUTION and told == LAST:
        between.say("x.movedim(-1, 1)")
    elif element.group == LINEAR:
        shown = _FLAT if element.leaf.place[-1:] == ((1,),) else None
        if shown or between.answers.told(_FACT):
            among = ("flatten", "none")
            value = between.answers.find(element.leaf, _FACT, default=shown, among=among)
            if value not in among:
                raise between.answers.refuse(element.leaf, _FACT, str(value), f"allowed: {', '.join(among)}")
            between.say("x.flatten(1)" if value == "flatten" else "x")


def grouped_first(links: Sequence[Link], answers: Answers) -> list[Link]:
    """The layers, the first with as many groups as channels where it was said that each is read by itself (1610.02357).

    Asked where a convolution of one place comes right behind one of one channel: such pairs are often one layer.
    """
    first, *rest = links
    element, behind = first.element, next((link.element for link in rest[:1]), None)
    is_one = (
        first.before.form == START and element.group == CONVOLUTION and element.inputs == 1 < element.outputs
    )
    is_pair = (
        behind is not None
        and behind.group == CONVOLUTION
        and set(behind.kernel) == {1} != set(element.kernel)
    )
    if not (is_one and is_pair) or element.is_transposed or "bias" in element.leaf.tensors:
        return list(links)
    among = (f"{_INPUT}:1", f"{_INPUT}:{element.outputs}")
    value = answers.find(element.leaf, _TAKES, among=among)
    if value not in (None, *among):
        raise answers.refuse(element.leaf, _TAKES, str(value), f"possible here: {', '.join(among)}")
    return [replace(first, groups=element.outputs), *rest] if value == among[1] else list(links)


def read_samples(between: Between, link: Link) -> None:
    """Samples become maps where all kernels are one place wide."""
    kernels = [other.element.kernel for other in between.links if other.element.group == CONVOLUTION]
    is_flat = link.element.inputs == 1 and all(kernel[1:] == (1,) for kernel in kernels)
    if not is_flat or between.has_frames:
        return
    shown = ("samples", "all kernels are one place wide")
    if between.answers.find(link.element.leaf, _FACT, default=shown, among=("samples", "maps")) == "samples":
        between.is_sampled = True
        between.say("x.unsqueeze(1).unsqueeze(3)")
