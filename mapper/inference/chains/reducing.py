"""Maps to features, positions or one half of them, and rows to maps."""

from __future__ import annotations

from itertools import pairwise
from math import isqrt
from typing import TYPE_CHECKING

from mapper.inference.chains.combined import HALVES
from mapper.inference.chains.elements import CONVOLUTION, RECURRENT
from mapper.inference.chains.extents import inputs_for, numbers, through
from mapper.inference.chains.links import MAPS
from mapper.inference.chains.pooling import pooled

if TYPE_CHECKING:
    from mapper.inference.chains.between import Between
    from mapper.inference.chains.links import Link

LARGER = "upsample_2"
_EARLIER = 2  # layers before one, at least, and places of each channel


def keep_halves(between: Between, axis: int) -> None:
    """One half of what passes goes on; both are outputs, as a mean and a spread are."""
    number = sum(name.startswith(HALVES[0]) for name in between.outputs) + 1
    names = [name if number == 1 else f"{name}_{number}" for name in HALVES]
    for at, name in enumerate(names):
        between.add(f"{name} = {between.name}.chunk(2, dim={axis})[{at}]")
    between.outputs += names
    between.name = names[0]


def in_steps(between: Between, link: Link) -> None:
    """Maps as a sequence that a recurrent layer reads: along which of two axes it goes is asked."""
    if link.before.axes == 1:
        between.say("x.transpose(1, 2)")
    else:
        leaf, fact, is_as_wide = (
            link.element.leaf,
            "chain.reduction",
            link.before.width == link.element.inputs,
        )
        among = ("columns", "rows", *(("columns_mean", "rows_mean") if is_as_wide else ()))
        value = between.answers.find(leaf, fact, among=among)
        if value not in (None, *among):
            raise between.answers.refuse(leaf, fact, str(value), f"possible here: {', '.join(among)}")
        between.say(between.tables["reduction"][value] if value else "x")
    between.windows = None


def unfold(between: Between, link: Link) -> None:
    """A row to maps, which a plain convolution may read once they are made larger."""
    element, side = link.element, isqrt(link.places)
    between.written.has_single_rows = True
    axes = len(element.kernel) or 2
    sides = f"{side}, {side}" if axes > 1 else link.places
    between.say(f"x.unflatten(1, ({element.inputs}, {sides}))")
    if element.group == CONVOLUTION and not element.is_transposed:
        fact = "chain.pooling_before"
        value = between.answers.find(element.leaf, fact, among=("none", LARGER))
        if value not in (None, "none"):
            pooled(between, link, value, fact)


def reduce(between: Between, link: Link) -> None:
    """Maps to features."""
    element, axes = link.element, link.before.axes
    _ask_earlier(between, link)
    side = isqrt(link.places)
    is_square = axes == 1 or side**2 == link.places
    among = ["mean", "max", "flatten", *(["positions", "last", "first"] if axes == 1 else [])]
    if link.places > 1:
        words = ("flatten", "adaptive") if is_square else ("flatten",)
        among = [word for word in between.tables["reduction"] if word.startswith(words)]
        among += ["mean_std"] if (axes, link.places) == (1, 2) else []
        among += ["mean_std_of_last"] if axes == 2 and link.places % 2 == 0 else []
        among += ["columns"] if axes == 2 and _is_before_recurrent(between, link) else []
    value = between.answers.find(element.leaf, "chain.reduction", among=tuple(among))
    if value is None:
        return
    if value not in among:
        raise between.answers.refuse(
            element.leaf, "chain.reduction", value, f"possible here: {', '.join(among)}"
        )
    sides = str(link.places) if axes == 1 else f"({side}, {side})"
    between.say(between.tables["reduction"][value].format(axes=axes, sides=sides))
    between.is_sequence = value in ("positions", "columns")
    if value.startswith("flatten"):
        _add_up(between, link)
    between.windows = None


def _ask_earlier(between: Between, link: Link) -> None:
    """Asks what a linear layer reads that is as wide as the maps that the convolution before it reads: that one may be an output of its own."""
    mains = [one for one in between.links if one.element.is_main]
    at = next((at for at, one in enumerate(mains) if one is link), 0)
    if at < _EARLIER or link.places < _EARLIER:
        return
    before = mains[at - 1]
    if before.before.form == MAPS and before.before.width == link.element.inputs and not before.joined:
        among = (before.element.name, mains[at - 2].element.name)
        between.answers.find(link.element.leaf, "chain.reads", among=among)


def _add_up(between: Between, link: Link) -> None:
    """Whether some input leaves as many places as a layer reads of each channel."""
    if not between.windows or any(None in windows for windows in between.windows):
        return
    name = link.element.name
    said = f"{name} reads {link.element.inputs} = {link.before.width} channels of {link.places} places"
    between.written.is_checked = True
    told = between.answers.told("chain.input_size")
    sizes = numbers(told, len(between.windows)) if told else inputs_for(between.windows, link.places)
    if sizes is None:
        between.written.problems.append(f"{said}, and no size of the input leaves so many with these answers")
        return
    left = [through(windows, size) for windows, size in zip(between.windows, sizes, strict=True)]
    count = 1
    for extent in left:
        count *= extent
    if count != link.places:
        text = " x ".join(map(str, left))
        between.written.problems.append(f"{said}, and an input of {told} leaves {text}")
    elif not told:
        between.written.input_size = "x".join(map(str, sizes))


def _is_before_recurrent(between: Between, link: Link) -> bool:
    """Whether the next layer is recurrent: it reads maps column by column, as lines of text are."""
    return any(one is link and other.element.group == RECURRENT for one, other in pairwise(between.links))
