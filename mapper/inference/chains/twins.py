"""One network that reads two inputs (a Siamese network): nothing stored shows that there are two, so it is told, not asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mapper.inference.chains.order import Link

if TYPE_CHECKING:
    from mapper.inference.chains.answers import Answers
    from mapper.inference.chains.between import Between

TWINS, OTHER = "chain.paired", "inputs_2"
_MET = {  # what a layer reads of both
    "difference": "(x.chunk(2)[0] - x.chunk(2)[1]).abs()",
    "product": "x.chunk(2)[0] * x.chunk(2)[1]",
    "concatenated": "torch.cat(x.chunk(2), dim=-1)",
}


class Twins:
    """Both inputs pass as one batch, until a layer reads what both have given, or the end."""

    def __init__(self, answers: Answers):
        self.answers = answers
        self.are_apart = False  # now

    @staticmethod
    def are_told(answers: Answers) -> bool:
        return any(item.name == TWINS for item in answers.facts.given)

    def enter(self, between: Between) -> None:
        if self.are_told(self.answers):
            between.say(f"torch.cat((x, {OTHER}))")
            value = self.answers.told(TWINS)
            if value not in ("", "apart"):
                raise self.answers.refuse(
                    between.links[0].element.leaf, TWINS, value, f"apart, or at a layer {', '.join(_MET)}"
                )
            self.are_apart = True

    def meet(self, between: Between, link: Link) -> None:
        """What one layer reads of both inputs."""
        value = self.answers.told_at(link.element.leaf, TWINS) if self.are_apart else ""
        if value and value not in _MET:
            raise self.answers.refuse(link.element.leaf, TWINS, value, f"possible here: {', '.join(_MET)}")
        if value:
            between.say(_MET[value])
            self.are_apart = False
