"""What is computed from the last layer of a chain: words that may stand one after the other, as relu+softmax."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

from mapper.inference.chains.extents import numbers
from mapper.inference.chains.links import MAPS, ROWS, Link
from mapper.inference.chains.pooling import pooling_of
from mapper.inference.chains.residuals import is_of

if TYPE_CHECKING:
    from mapper.inference.chains.between import Between

SIZES = "{sizes}"  # in an expression of the vocabulary
_SKIP, _MASKED = "chain.skip", "multiplied"
_AMONG = ("none", "sigmoid", "softmax", "tanh", "normalised", "relu_normalised")


def give(between: Between, last: Link) -> None:
    """The statements behind a layer that no other reads. Raises HintError for a word that is none."""
    leaf = last.element.leaf
    among = (*_AMONG, *(["mean"] if last.after.form == MAPS else []))
    value = between.answers.find(leaf, "chain.output", among=among)
    for word in value.split("+") if value is not None else ():
        text = _expression(between, word, last)
        if not text:
            known = f"{', '.join(between.tables['output'])}, an activation, a pooling as max_2"
            raise between.answers.refuse(
                leaf, "chain.output", str(value), f"allowed: {known}, and several as relu+softmax"
            )
        between.say(text)


def mask(between: Between, last: Link) -> None:
    """The input as far as a mask lets it through, where what is called one is as wide as the input."""
    leaf, answers, first = last.element.leaf, between.answers, between.links[0].element
    is_called = any(is_of(part, answers.words.masking) for part in leaf.place)
    is_told = answers.told(_SKIP) == _MASKED
    if not (is_called or is_told) or last.after.width != first.inputs or last.after.form == MAPS:
        return
    value = answers.find(leaf, _SKIP, among=("none", _MASKED))
    if value not in (None, "none", _MASKED):
        raise answers.refuse(leaf, _SKIP, str(value), f"allowed: none, {_MASKED}")
    if value == _MASKED:
        between.say(between.tables["skip"][_MASKED])


def _expression(between: Between, word: str, last: Link) -> str:
    """The expression of a word; "" where there is none."""
    tables, axes = between.tables, last.after.axes if last.after.form == MAPS else 0
    if word in tables["output"] and SIZES not in tables["output"][word]:
        return tables["output"][word].format(channel=1 if axes else -1)
    if shaped := _shaped(word, last, tables["output"]):
        return shaped
    found = pooling_of(word, [last.element.kernel], axes, tables["pooling"]) if axes else None
    return found.expression if found else between.activated(word)


def _shaped(word: str, last: Link, table: Mapping[str, str]) -> str:
    """A row as what the word has the sizes of, as `maps_3x32x32`; "" where it has as many numbers as they say not."""
    name, _, text = word.partition("_")
    sizes = numbers(text, text.count("x") + 1) if SIZES in table.get(name, "") else None
    is_whole = sizes is not None and last.after.form == ROWS and prod(sizes) == last.after.width
    return table[name].format(sizes=", ".join(map(str, sizes))) if sizes and is_whole else ""
