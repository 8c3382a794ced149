"""A pooling by its word: `max_3_2` is over three places, every two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from mapper.inference.chains.elements import CONVOLUTION
from mapper.inference.chains.extents import Window, numbers, written
from mapper.inference.chains.links import MAPS

if TYPE_CHECKING:
    from mapper.inference.chains.between import Between
    from mapper.inference.chains.links import Link

WINDOW = "{window}"  # in what is said of some places
CUT = "{cut}"  # in what leaves the first places of each axis
CEILED = "_ceil"  # of a pooling whose last window may reach beyond the maps
GLOBAL = ("global_max", "global_mean")  # of all places, at each of them (1612.00593)
LARGER = ("upsample", "bilinear", "aligned")  # words that make maps larger
_LINEAR = ("", "linear", "bilinear", "trilinear")  # what torch calls it over so many axes


@dataclass(frozen=True)
class Pooling:
    """What it computes, and what it makes of each axis."""

    expression: str
    windows: tuple[Window, ...]
    is_larger: bool  # whether it makes maps larger, or leaves as many places as are said
    factor: int  # along the first axis that it changes


def pooling_of(
    value: str, kernels: Sequence[tuple[int, ...]], axes: int, table: Mapping[str, str]
) -> Pooling | None:
    """The pooling that a word says; None for none that is known. `kernels` are those of all convolutions."""
    # Over all places, at each of them.
    if value in table and WINDOW not in table[value] and CUT not in table[value]:
        return Pooling(table[value].format(axes=axes), (), False, 1)
    is_ceiled = value.endswith(CEILED)
    word, *sizes = value.removesuffix(CEILED).split("_")
    found = [numbers(size, axes) for size in sizes]
    if word not in table or not 1 <= len(found) <= 3 or None in found:
        return None
    flat = [size or () for size in found]
    if CUT in table[word]:
        text = table[word].format(cut=", ".join(f":{size}" for size in flat[0]))
        return Pooling(text, (), True, 1) if len(flat) == 1 else None
    kernel, stride, padding = (*flat, *([flat[0], (0,) * axes][len(flat) - 1 :]))
    if "x" not in sizes[0]:  # maps of one column have nothing to pool along it
        kernel, stride = (_narrow(each, kernels) for each in (kernel, stride))
    window = [written(kernel)]
    window += [f"stride={written(stride)}"] if stride != kernel else []
    window += [f"padding={written(padding)}"] if any(padding) else []
    window += ["ceil_mode=True"] if is_ceiled else []
    windows = tuple(
        Window(k, s, p, p, is_ceiled=is_ceiled) for k, s, p in zip(kernel, stride, padding, strict=True)
    )
    text = table[word].format(axes=axes, window=", ".join(window), linear=_LINEAR[axes])
    return Pooling(text, windows, word in LARGER, max(kernel if word in LARGER else stride))


def pooled(between: Between, link: Link, value: str, fact: str = "chain.pooling") -> None:
    """The statement of a pooling that was answered for a layer. Raises HintError for a word that is none."""
    kernels = [each.element.kernel for each in between.links if each.element.group == CONVOLUTION]
    found = pooling_of(value, kernels, link.after.axes, between.tables["pooling"])
    if found is None:
        table = between.tables["pooling"].items()
        known = ", ".join(f"{name}_2" if WINDOW in text or CUT in text else name for name, text in table)
        allowed = f"allowed: none, {known}, max_3_2, max_2x1 and the like"
        raise between.answers.refuse(link.element.leaf, fact, value, allowed)
    between.say(found.expression)
    between.kept.grow(Fraction(1, found.factor) if found.is_larger else Fraction(found.factor))
    if found.is_larger:
        between.windows = None
    elif found.windows:
        between.add_windows(list(found.windows))


def fill(between: Between, link: Link) -> None:
    """Maps that are smaller than a published code has them before a convolution are made as large, which others are not asked about."""
    if link.before.form != MAPS or link.element.group != CONVOLUTION:
        return
    if least := between.answers.published(link.element.leaf, "chain.least"):
        axes = link.before.axes
        sides = ", ".join(f"max(x.shape[{2 + axis}], {int(least)})" for axis in range(axes))
        between.say(f"F.adaptive_avg_pool{axes}d(x, ({sides}))")


def _narrow(sizes: tuple[int, ...], kernels: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """One place along the axes that no kernel reaches along."""
    flat = [all(kernel[axis : axis + 1] == (1,) for kernel in kernels) for axis in range(len(sizes))]
    return tuple(1 if is_flat and not all(flat) else size for size, is_flat in zip(sizes, flat, strict=True))
