"""One network that reads two inputs (a Siamese network): nothing stored shows that there are two, so it is told, not asked.

Where a linear layer reads twice what the one before gives, or three or four times that, it reads both: that is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mapper.inference.chains.elements import LINEAR, Element
from mapper.inference.chains.links import Link
from mapper.inference.leaf_shapes import weight_shape

if TYPE_CHECKING:
    from mapper.inference.chains.answers import Answers
    from mapper.inference.chains.between import Between

TWINS, OTHER = "chain.paired", "inputs_2"
_APART = "apart"
_BOTH = {"one": "x.chunk(2)[0]", "other": "x.chunk(2)[1]"}
_OF_PARTS = {2: "concatenated", 3: "with_difference", 4: "with_difference_and_product"}


def shared(elements: Sequence[Element]) -> Iterator[list[Element]]:
    """The layers, one of them as it reads what one of both inputs leaves: where no layer gives all that it reads."""
    given = {element.outputs for element in elements if element.is_main}
    sizes = Counter((element.inputs, element.outputs) for element in elements if element.group == LINEAR)
    for at, element in enumerate(elements):
        is_alone = sizes[element.inputs, element.outputs] == 1  # others of its sizes may read what it does
        if element.group == LINEAR and element.inputs not in given and is_alone:
            for parts in _OF_PARTS:
                width, left = divmod(element.inputs, parts)
                if not left and width in given and at:
                    yield [*elements[:at], replace(element, inputs=width), *elements[at + 1 :]]


def ask_shared(links: Sequence[Link], answers: Answers) -> None:
    """What a layer reads of both inputs, where it reads more than the layer before gives of each."""
    for element in (link.element for link in links if link.element.group == LINEAR):
        parts = max(weight_shape(element.leaf)[not element.leaf.is_transposed] // max(element.inputs, 1), 1)
        if parts > 1:
            answers.find(element.leaf, TWINS, among=(_OF_PARTS[parts],))


class Twins:
    """Both inputs pass as one batch, until a layer reads what both have given, or the end."""

    def __init__(self, answers: Answers):
        self.answers = answers
        self.are_apart = False  # now
        self.ends_in = ""  # what is computed of both at the end
        self._outputs = 0  # how many others there were before both became one batch

    @staticmethod
    def are_told(answers: Answers) -> bool:
        return any(item.name == TWINS for item in answers.facts.hints.given)

    def enter(self, between: Between) -> None:
        if self.are_told(self.answers):
            between.say(f"torch.cat((x, {OTHER}))")
            told = self.answers.told(TWINS)
            self.ends_in = "" if told == _APART else told
            if self.ends_in not in ("", *between.tables["paired"]):
                known = ", ".join(between.tables["paired"])
                raise self.answers.refuse(
                    between.links[0].element.leaf, TWINS, self.ends_in, f"{_APART}, or {known}"
                )
            self.are_apart, self._outputs = True, len(between.outputs)

    def end(self, between: Between) -> bool:
        """What is computed of what both inputs leave at the end; whether nothing is, and each is an output."""
        if not self.are_apart:
            return False
        if self.ends_in:
            between.say(between.tables["paired"][self.ends_in].format(**_BOTH))
        self.are_apart = False
        self._part(between)
        return not self.ends_in

    def _part(self, between: Between) -> None:
        """Parts the other outputs, each of both inputs in one batch."""
        for name in between.outputs[self._outputs :]:
            other = f"{name}_of_{OTHER}"
            between.add(f"{other} = {name}.chunk(2)[1]")
            between.add(f"{name} = {name}.chunk(2)[0]")
            between.outputs.append(other)

    def meet(self, between: Between, link: Link) -> None:
        """What one layer reads of both inputs."""
        value = self.answers.told_at(link.element.leaf, TWINS) if self.are_apart else ""
        met = between.tables["paired"]
        if value and value not in met:
            raise self.answers.refuse(link.element.leaf, TWINS, value, f"possible here: {', '.join(met)}")
        if value:
            between.say(met[value].format(**_BOTH))
            self.are_apart = False
            self._part(between)
