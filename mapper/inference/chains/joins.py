"""Maps of an earlier layer beside those of the last one, as the decoder of a U-Net reads them (paper 1505.04597), or added to them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from mapper.errors import HintError
from mapper.inference.chains.elements import CONVOLUTION, Element
from mapper.inference.chains.links import MAPS, Link, open_ends

if TYPE_CHECKING:
    from mapper.inference.chains.answers import Answers
    from mapper.inference.chains.between import Between

FACT = "chain.joined"
_READ = re.compile(r"\bkept_(\d+)\b")
_CUT = "_cropped"  # of the earlier maps their middle, as large as the later ones (1505.04597)
ADDED, _NONE = "added", "none"
ORDERS = {"earlier_first": "torch.cat(({kept}, x), dim=1)", "later_first": "torch.cat((x, {kept}), dim=1)"}


@dataclass
class Kept:
    """The maps of each layer by how much smaller than the input they are, and which of them are read again."""

    links: Sequence[Link]
    scale: Fraction | None = Fraction(1)  # of what passes now; None where an answer is not known
    ends: dict[int, tuple[Fraction | None, int, int]] = field(
        default_factory=dict
    )  # with the lines that come next
    read: list[int] = field(default_factory=list)  # the ends that are joined, in this order

    def grow(self, factor: Fraction | None) -> None:
        """Another layer makes maps so much smaller."""
        self.scale = None if self.scale is None or factor is None else self.scale * factor

    def end(self, at: int, line: int, shown: int) -> None:
        """What a layer gives with its norm and activation stands in `x` at this line, and at that of what a reader sees."""
        self.ends[at] = (self.scale, line, shown)

    def before_join(self, at: int) -> tuple[str, str] | None:
        """That nothing stands between a layer that makes maps larger and one that reads earlier maps beside them."""
        is_larger = self.links[at].element.is_transposed and at + 1 < len(self.links)
        joins = is_larger and self.links[at + 1].joined and not self.links[at + 1].element.is_transposed
        return ("none", "larger maps, before they are joined") if joins else None

    def join(self, at: int, answers: Answers) -> str | None:
        """The statement that puts kept maps beside x before this layer; None where nobody says on which side."""
        link = self.links[at]
        fitting = self._fitting(at, link.joined)
        # Each convolution leaves fewer places: earlier maps are larger.
        is_cut = answers.told("chain.padding") == "0"
        cut = tuple(f"{one}{_CUT}" for one in ORDERS)
        among = cut if is_cut else tuple(ORDERS)
        order = answers.find(link.element.leaf, FACT, among=among)
        if not fitting:
            why = f"no {link.joined} channels of an earlier layer are as large as what {link.element.name} reads"
            raise HintError(
                f"{why}: other answers about strides and poolings are needed", fact="chain.pooling"
            )
        self.read.append(fitting[0])
        if order is None:
            return None
        plain = order.removesuffix(_CUT)
        if plain not in ORDERS:
            raise answers.refuse(link.element.leaf, FACT, order, f"allowed: {', '.join((*ORDERS, *cut))}")
        kept = f"kept_{len(self.read)}"
        if plain != order:
            kept += "".join(
                f".narrow({axis}, ({kept}.shape[{axis}] - x.shape[{axis}]) // 2, x.shape[{axis}])"
                for axis in range(2, 2 + link.before.axes)
            )
        return ORDERS[plain].format(kept=kept)

    def add(self, at: int, answers: Answers) -> tuple[str, str]:
        """The sum of x and kept maps before this layer, and the activation behind it: asked where maps have become larger (1707.03718).

        In a list of layers that are called one after the other no sum has a place, nor around a row that all passes.
        """
        link, before = self.links[at], self._larger(at)
        fitting = self._fitting(at, link.before.width) if before is not None else []
        fitting = [end for end in fitting if all(each.after.form == MAPS for each in self.links[end:at])]
        if not fitting or before is None or before.leaf.place[:-1] == link.element.leaf.place[:-1] != ():
            return "", ""
        value = answers.find(link.element.leaf, FACT, among=(_NONE, ADDED))
        word, _, activation = (value or _NONE).partition("+")
        if word not in (_NONE, ADDED):
            raise answers.refuse(
                link.element.leaf, FACT, str(value), f"allowed: {_NONE}, {ADDED}, {ADDED}+relu"
            )
        if word == _NONE:
            return "", ""
        self.read.append(fitting[0])
        return f"x + kept_{len(self.read)}", activation

    def _larger(self, at: int) -> Element | None:
        """The layer that makes maps larger, where a convolution comes right behind it."""
        mains = [link.element for link in self.links[:at] if link.element.is_main]
        is_map = self.links[at].element.group == CONVOLUTION and self.links[at].before.form == MAPS
        return mains[-1] if is_map and mains and mains[-1].is_transposed else None

    def _fitting(self, at: int, width: int) -> list[int]:
        """The ends of the way down with so many channels, the last first; where all sizes are known those as large as x."""
        limit = min(self.read, default=at - 1)  # what stands right before this layer is x itself
        fitting = [
            end
            for end in open_ends(self.links[:at])
            if end < limit and end in self.ends and self.links[end].after.width == width
        ]
        known = [end for end in fitting if self.ends[end][0] is not None]
        if self.scale is not None and len(known) == len(fitting):
            fitting = [end for end in known if self.ends[end][0] == self.scale]
        return fitting

    def lines(self, lines: list[str], is_shown: bool = False) -> list[str]:
        """The statements, with what is kept named where it is made, by number in the order of the layers."""
        place = 2 if is_shown else 1
        ends = sorted(self.read)
        named = {self.ends[end][place]: f"kept_{number} = x" for number, end in enumerate(ends, 1)}
        numbers = {str(number): ends.index(end) + 1 for number, end in enumerate(self.read, 1)}
        found: list[str] = []
        for at, line in enumerate(lines):
            found += [named[at]] if at in named else []
            found.append(_READ.sub(lambda name: f"kept_{numbers[name[1]]}", line))
        return found


def add_kept(between: Between, at: int) -> None:
    """Adds maps of the way down to larger ones, where that was said."""
    total, activation = between.kept.add(at, between.answers)
    between.say(total or "x")
    text = between.activated(activation) if activation else "x"
    if not text:
        leaf, value = between.links[at].element.leaf, f"{ADDED}+{activation}"
        raise between.answers.refuse(leaf, FACT, value, "no activation behind the sum")
    between.say(text)
