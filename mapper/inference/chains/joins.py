"""Maps of an earlier layer beside those of the last one, as the decoder of a U-Net reads them (paper 1505.04597)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from mapper.errors import HintError
from mapper.inference.chains.order import Link, open_ends

if TYPE_CHECKING:
    from mapper.inference.chains.answers import Answers

_READ = re.compile(r"\bkept_(\d+)\b")
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
        joins = is_larger and self.links[at + 1].joined
        return ("none", "larger maps, before they are joined") if joins else None

    def join(self, at: int, answers: Answers) -> str | None:
        """The statement that puts kept maps beside x before this layer; None where nobody says on which side."""
        link = self.links[at]
        width, limit = link.joined, min(self.read, default=at)
        fitting = [
            end
            for end in open_ends(self.links[:at])
            if end < limit and end in self.ends and self.links[end].after.width == width
        ]
        known = [end for end in fitting if self.ends[end][0] is not None]
        if self.scale is not None and len(known) == len(fitting):
            fitting = [end for end in known if self.ends[end][0] == self.scale]
        order = answers.find(link.element.leaf, "chain.joined", among=tuple(ORDERS))
        if not fitting:
            why = f"no {width} channels of an earlier layer are as large as what {link.element.name} reads"
            raise HintError(
                f"{why}: other answers about strides and poolings are needed", fact="chain.pooling"
            )
        self.read.append(fitting[0])
        if order is None:
            return None
        if order not in ORDERS:
            raise answers.refuse(link.element.leaf, "chain.joined", order, f"allowed: {', '.join(ORDERS)}")
        return ORDERS[order].format(kept=f"kept_{len(self.read)}")

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
