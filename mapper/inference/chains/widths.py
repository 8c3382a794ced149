"""How wide the inputs of a network are that stand in expressions beside what its layers give."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mapper.errors import HintError
from mapper.inference.chains.combined import Reader
from mapper.inference.chains.elements import EMBEDDING
from mapper.inference.chains.links import START, Data
from mapper.inference.chains.nodes import Node
from mapper.inference.chains.texts import names_in
from mapper.inference.chains.value import NoReadingError, Value

if TYPE_CHECKING:
    from mapper.inference.chains.woven import Weaving

TAKES = "chain.inputs"
SIDES = re.compile(r"[\w.]+( *& *[\w.]+)+")  # names side by side


def measure(weaving: Weaving, reads: Mapping[str, str]) -> None:
    """Widths of inputs that stand beside others: what these leave of what a layer reads, where one alone is unknown."""
    sides = {name: re.split(r" *& *", text) for name, text in reads.items() if SIDES.fullmatch(text)}
    widths, is_new = weaving.sources.inputs, True
    while is_new:
        is_new = False
        for name, texts in sides.items():
            unknown = [text for text in texts if text not in widths and not weaving.is_own(text)]
            if len(unknown) == 1 and (left := _rest(weaving, name, texts)) > 0:
                widths[unknown[0]], is_new = left, True


def _rest(weaving: Weaving, name: str, texts: Sequence[str]) -> int:
    """How much of what a layer reads is left by what stands beside and has a width."""
    known = [weaving.by_name[text].gives.width for text in texts if text in weaving.by_name]
    known += [weaving.bare[text].data.width for text in texts if text in weaving.bare]
    known += [weaving.sources.inputs.get(text, 0) for text in texts]
    return weaving.by_name[name].first.inputs - sum(known)


def refuse_unknown(weaving: Weaving, text: str, node: Node) -> None:
    """Raises HintError where several inputs stand side by side of which nothing shows how wide each is."""
    unknown = [name for name in dict.fromkeys(names_in(text)) if not weaving.is_own(name)]
    unknown = [name for name in unknown if not weaving.sources.inputs.get(name)]
    if len(unknown) > 1 and node.first.group != EMBEDDING and SIDES.fullmatch(text):
        said = ", ".join(f"{name}:N" for name in unknown)
        raise HintError(
            f"{node.name} reads {node.first.inputs} features of {' and '.join(unknown)}, and nothing shows how"
            f" many of each: say --set '{TAKES}={said}'",
            fact=TAKES,
        )


def left_for(weaving: Weaving, text: str, node: Node, name: str, names: Mapping[str, Value]) -> int:
    """The width of an input that stands beside others: what they leave of what a layer reads."""
    given = [
        _width(weaving, text, {**names, name: Value(name, Data(START, width), (name,))}) for width in (1, 2)
    ]
    each = given[1] - given[0]
    width = max((node.first.inputs - given[0]) // each + 1, 1) if each > 0 else 1
    weaving.sources.inputs[name] = width
    return width


def _width(weaving: Weaving, text: str, names: Mapping[str, Value]) -> int:
    """How wide what an expression gives is; 0 where it gives nothing."""
    widths = weaving.sources.inputs
    others = {each: Value(each, Data(START, widths.get(each, 0)), (each,)) for each in names_in(text)}
    try:
        return Reader(text, others | dict(names), weaving.function).read().data.width
    except NoReadingError:
        return 0
