"""Square matrices of linear layers, of which no shape shows whether they are stored [in, out]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mapper.architecture import Leaf
from mapper.checkpoint import NAMES_UNDONE
from mapper.inference.leaf_shapes import weight_shape

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
    if is_free(notes) and all(map(_is_square, linear)):
        form = {_IN: _FORM, _OUT: ""}.get(str((hints or {}).get(FACT)), _EITHER)
    square = {id(leaf) for leaf in linear if form and _is_square(leaf)}
    return [replace(leaf, form=form) if id(leaf) in square else leaf for leaf in leaves]


def ask_stored(leaves: Iterable[Leaf], answers: Answers) -> None:
    """Asks how square matrices are stored where nothing shows it. Raises HintError for another word."""
    for leaf in leaves:
        if leaf.kind == "Linear" and (leaf.form == _EITHER or answers.told(FACT)):
            value = answers.find(leaf, FACT, among=(_OUT, _IN))
            if value not in (None, _OUT, _IN):
                raise answers.refuse(leaf, FACT, str(value), f"allowed: {_OUT}, {_IN}")


def _is_square(leaf: Leaf) -> bool:
    return len(set(weight_shape(leaf))) == 1
