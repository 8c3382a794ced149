"""Square matrices of linear layers, of which no shape shows whether they are stored [in, out]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mapper.architecture import Block, Leaf
from mapper.checkpoint import NAMES_UNDONE
from mapper.inference.leaf_shapes import weight_shape
from mapper.inference.scopes import Scope, words_at

if TYPE_CHECKING:
    from mapper.inference.chains.answers import Answers

FACT = "chain.layout"
_FORM, _EITHER = "transposed", "either"  # the latter of what is asked about
_OUT, _IN = "out_in", "in_out"  # x @ W.T, and x @ W
_START, _, _END = NAMES_UNDONE.partition("{}")


def is_free(notes: Iterable[str]) -> bool:
    """Whether the names of a file are those of programs without modules, which store maps as they like."""
    return any(note.startswith(_START) and note.endswith(_END) for note in notes)


def as_the_others(
    leaves: Sequence[Leaf], hints: Mapping[str, Any] | None, notes: Iterable[str]
) -> list[Leaf]:
    """The leaves, square linear layers stored as all others of the file whose biases show it, else as was told."""
    linear = [leaf for leaf in leaves if leaf.kind == "Linear" and len(weight_shape(leaf)) == 2]
    told = [leaf for leaf in linear if "bias" in leaf.tensors and not _is_square(leaf)]
    form = _FORM if told and all(leaf.is_transposed for leaf in told) else ""
    is_open = is_free(notes) and all(map(_is_square, linear))
    square = {id(leaf) for leaf in linear if (form or is_open) and _is_square(leaf)}
    return [
        replace(leaf, form=_told(leaf, hints or {}) if is_open else form) if id(leaf) in square else leaf
        for leaf in leaves
    ]


def _told(leaf: Leaf, hints: Mapping[str, Any]) -> str:
    """The form that was told of a layer, by what says most of its path, or of all."""
    scope = Scope(Block("other", "", leaf.place), None, (), None)
    parted = (str(key).rpartition(":") for key in hints)
    places = [at for at, _, fact in parted if at and fact == FACT and scope.matches(at)]
    at = max(places, key=lambda at: len(words_at(at)), default="")
    key = f"{at}:{FACT}" if at else FACT
    return {_IN: _FORM, _OUT: ""}.get(str(hints.get(key)), _EITHER)


def ask_stored(leaves: Iterable[Leaf], answers: Answers) -> None:
    """Asks how square matrices are stored where nothing shows it. Raises HintError for another word, and for one that is not so."""
    for leaf in (leaf for leaf in leaves if leaf.kind == "Linear"):
        is_open = leaf.form == _EITHER
        value = answers.find(leaf, FACT, among=(_OUT, _IN)) if is_open else answers.published(leaf, FACT)
        if value and value not in (_OUT, _IN):
            raise answers.refuse(leaf, FACT, value, f"allowed: {_OUT}, {_IN}")
        if value and is_open:  # it came too late to be read so
            raise answers.refuse(leaf, FACT, value, f"say it of {leaf.place} by this name, or of all")
        if value and (value == _IN) != leaf.is_transposed:
            raise answers.refuse(leaf, FACT, value, "its sizes, or those of others, show the other one")


def _is_square(leaf: Leaf) -> bool:
    return len(set(weight_shape(leaf))) == 1
