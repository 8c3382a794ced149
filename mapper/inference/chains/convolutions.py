"""What no shape shows of a convolution in a chain: stride, padding, dilation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from mapper.inference.chains.answers import Answers, Evidence
from mapper.inference.chains.combined import HALVES
from mapper.inference.chains.elements import CONVOLUTION, Element
from mapper.inference.chains.extents import Window, numbers, written
from mapper.inference.chains.links import Link
from mapper.inference.chains.reducing import keep_halves
from mapper.inference.chains.residuals import is_of

if TYPE_CHECKING:
    from mapper.inference.chains.between import Between

_MODES = ("_reflect", "_replicate", "_circular")  # what stands around maps, where it is not zeros
_TURNED = re.compile(r"(reflect|replicate|circular)_(\w+)")  # said the other way round
_POINT = ("1", "a kernel of one place")
_NONE = ("0", "a kernel of one place")
_PLAIN = ("1", "most convolutions")
CHANNEL = "{channel}"  # in what halves features as well as channels
BESIDE = "as large as the maps that it is put beside"


@dataclass
class Setting:
    """Arguments of a convolution, what is padded before it, and the window it is along each axis."""

    arguments: dict[str, str] = field(default_factory=dict)
    padded: str = ""  # as torch pads: the last axis first, and with what
    windows: list[Window] = field(default_factory=list)  # empty where something is asked for

    @property
    def steps(self) -> tuple[int, ...]:
        """Its stride along each axis; none where something is asked for."""
        return tuple(window.stride for window in self.windows)


def setting(
    link: Link, answers: Answers, steps: str = "", is_even: bool = False, is_alike: bool = False
) -> Setting:
    """The setting of one convolution. Raises HintError for an answer that it cannot have.

    `steps` is the stride that it has for others to add up, where it is beside them; `is_even`: beside it is one that
    leaves maps as large as they are, `is_alike`: one of the same sizes, which reads places farther apart, maybe.
    """
    element = link.element
    if element.group != CONVOLUTION:
        return Setting()
    usual = (steps, "the stride of what it is added to") if steps else ("1", BESIDE) if is_even else None
    padding = ("half", BESIDE) if is_even else None
    if element.is_transposed:
        found = _transposed(element, answers)
    else:
        found = _forward(element, answers, usual, padding, is_alike)
    if link.groups > 1:
        found.arguments["groups"] = str(link.groups)
    return found


def halved(between: Between, link: Link) -> Link:
    """A convolution with what halves the channels before it; as it is where it reads all of them, or each by itself."""
    fact, element = "chain.halved", link.element
    table = dict(between.tables["halved"])
    if link.groups != 2 or element.inputs == 1 or element.is_transposed:
        return link
    if element.group != CONVOLUTION:
        table = {word: text for word, text in table.items() if CHANNEL in text}
    value = between.answers.find(element.leaf, fact, among=tuple(table))
    if value is None:
        return link
    if value not in table:
        raise between.answers.refuse(element.leaf, fact, value, f"possible here: {', '.join(table)}")
    axis = 1 if element.group == CONVOLUTION else -1
    if value == HALVES[0]:
        keep_halves(between, axis)
    else:
        between.say(table[value].format(channel=axis))
    return link if table[value] == "x" else replace(link, groups=1)


def shuffled(between: Between, link: Link) -> Link:
    """A convolution with what makes places of the channels before it; as it is where it reads all of them.

    Where it may read them in groups as well, that is asked.
    """
    if not link.shuffle:
        return link
    element, factor = link.element, link.shuffle
    may_group = element.outputs % factor**2 == 0
    why = f"{element.name} reads {element.inputs} of {link.before.width} channels"
    usual = None if may_group else (str(factor), why)
    value = between.answers.find(element.leaf, "chain.shuffle", usual=usual, among=(str(factor), "1"))
    if value is None:
        return link
    if value not in (str(factor), "1", "all") or (value == "1" and not may_group):
        raise between.answers.refuse(element.leaf, "chain.shuffle", value, f"possible here: {factor}")
    if value == "1":
        return replace(link, groups=factor**2)
    between.windows = None
    between.kept.grow(Fraction(1, factor))
    between.say(f"F.pixel_shuffle(x, {factor})")
    return link


def _sizes(answers: Answers, element: Element, fact: str, text: str) -> tuple[int, ...]:
    found = numbers(text, len(element.kernel))
    if found is None:
        more = ", half, same, causal, or 1_reflect" if fact == "chain.padding" else ""
        raise answers.refuse(element.leaf, fact, text, f"not a number, nor one for each axis as in 2x1{more}")
    return found


def along(steps: Sequence[tuple[int, ...]], axes: int) -> str:
    """The stride of convolutions one after the other, those without one left out."""
    whole = [1] * axes
    for each in steps:
        whole = [one * other for one, other in zip(whole, each, strict=False)] if each else whole
    return "x".join(map(str, whole))


def _forward(
    element: Element,
    answers: Answers,
    usual: Evidence | None = None,
    padding: Evidence | None = None,
    is_alike: bool = False,
) -> Setting:
    is_point = set(element.kernel) == {1}
    leaf = element.leaf
    stride_text = answers.find(leaf, "chain.stride", usual=usual or (_POINT if is_point else None))
    padding_text = answers.find(leaf, "chain.padding", usual=_NONE if is_point else padding)
    is_dilated = is_alike or any(is_of(part, answers.words.dilated) for part in leaf.place)
    is_dilated = (is_dilated or padding_text == "causal") and not is_point  # as in a TCN (1803.01271)
    dilation_text = answers.find(leaf, "chain.dilation", default=None if is_dilated else _PLAIN)
    dilation = _sizes(answers, element, "chain.dilation", dilation_text or "1")
    if stride_text is None or padding_text is None or dilation_text is None:
        return Setting()
    steps = _sizes(answers, element, "chain.stride", stride_text)
    is_one = "x" not in stride_text and not is_point  # one number: of the axes along which the kernel reaches
    stride = tuple(
        1 if extent == 1 and is_one else step for extent, step in zip(element.kernel, steps, strict=True)
    )
    padding_text = _TURNED.sub(r"\2_\1", padding_text)
    mode = padding_text.rpartition("_")[2] if padding_text.endswith(_MODES) else ""
    pads = _padding(answers, element, padding_text.removesuffix(f"_{mode}"), stride, dilation)
    return _written(element, stride, dilation, pads, mode)


def _written(
    element: Element,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    pads: Sequence[tuple[int, int]],
    mode: str,
) -> Setting:
    """The arguments that differ from torch's own, and the padding that no argument says."""
    windows = [
        Window(*each) for each in zip(element.kernel, stride, *zip(*pads, strict=True), dilation, strict=True)
    ]
    is_even = all(before == after for before, after in pads) and not mode
    arguments = {"stride": written(stride), "dilation": written(dilation)}
    if is_even:
        arguments["padding"] = written(tuple(before for before, _ in pads))
    sides = ", ".join(f"{before}, {after}" for before, after in reversed(pads))
    padded = "" if is_even else f"({sides})" + (f', mode="{mode}"' if mode else "")
    return Setting(
        {name: text for name, text in arguments.items() if text != ("0" if name == "padding" else "1")},
        padded,
        windows,
    )


def _padding(
    answers: Answers, element: Element, text: str, stride: tuple[int, ...], dilation: tuple[int, ...]
) -> list[tuple[int, int]]:
    """Padding before and after, along each axis.

    `half` is what is written as kernel // 2. `same` is as TensorFlow has it, of inputs that the stride divides: the output is as
    long as the input divided by the stride, and the odd one of the padding stands after it.
    """
    reaches = [step * (extent - 1) for extent, step in zip(element.kernel, dilation, strict=True)]
    if text == "half":
        return [((reach + 1) // 2, (reach + 1) // 2) for reach in reaches]
    if text == "same":
        totals = [max(reach + 1 - step, 0) for reach, step in zip(reaches, stride, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    if text == "causal":
        return [(reach, 0) for reach in reaches]
    return [(count, count) for count in _sizes(answers, element, "chain.padding", text)]


def _transposed(element: Element, answers: Answers) -> Setting:
    leaf = element.leaf
    stride_text = answers.find(leaf, "chain.up_stride")
    padding_text = answers.find(leaf, "chain.up_padding")
    more_text = answers.find(leaf, "chain.output_padding", default=("0", "what torch has"))
    if stride_text is None or padding_text is None:
        return Setting()
    stride = _sizes(answers, element, "chain.up_stride", stride_text)
    more = _sizes(answers, element, "chain.output_padding", more_text or "0")
    if padding_text == "exact":
        lacking = [extent - step for extent, step in zip(element.kernel, stride, strict=True)]
        pads = tuple(max((over + 1) // 2, 0) for over in lacking)
        more = tuple(2 * pad - over for pad, over in zip(pads, lacking, strict=True))
    else:
        pads = _sizes(answers, element, "chain.up_padding", padding_text)
    windows = [
        Window(extent, step, pad, pad, 1, True, over)
        for extent, step, pad, over in zip(element.kernel, stride, pads, more, strict=True)
    ]
    plain = {"stride": "1", "padding": "0", "output_padding": "0"}
    arguments = {"stride": written(stride), "padding": written(pads), "output_padding": written(more)}
    return Setting({name: text for name, text in arguments.items() if text != plain[name]}, "", windows)
