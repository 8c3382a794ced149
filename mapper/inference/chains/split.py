"""Several heads of a chain, each with an output of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

from mapper.inference.chains.elements import LINEAR, Element
from mapper.inference.chains.links import MAPS, ROWS, Data
from mapper.inference.chains.order import INPUT, Head
from mapper.inference.chains.residuals import is_of

if TYPE_CHECKING:
    from mapper.inference.chains.between import Between


def split(between: Between) -> None:
    """Goes through each head from what the last layer of the chain gives."""
    first = between.heads[0].links[0]
    between.enter(first)
    _flush(between)
    names = _names(between.heads)
    roles = iter(between.roles[len(between.links) :])
    for name, head in zip(names, between.heads, strict=True):
        _head(between, name, head, [next(roles) for _ in head.links])
    combined = _dueling(between, names)
    if combined:
        between.add(f"x = {combined}")
        names = ["output", *names]
    shown = (f"{name}={'x' if name == 'output' else name}" for name in names)
    between.add(f"return output({', '.join(shown)})")


def spread_beside(between: Between, at: int) -> None:
    """What reads what the layer gives that the mean reads too."""
    roles = iter(between.roles[len(between.links) :])
    for head in between.heads:
        own = [next(roles) for _ in head.links]
        if head.at == at < len(between.links) - 1:
            mean = between.links[at + 1]
            names = _names([Head((mean,), at), head])
            between.means[mean.element.name] = head.links[0].element.name
            between.outputs += names
            between.enter(between.links[at + 1])
            between.is_reduced = between.links[at + 1].before.form == MAPS
            _flush(between)
            _head(between, names[1], head, own, is_output=False)


def networks_beside(between: Between) -> None:
    """What other chains make of the same input."""
    roles = iter(between.roles[len(between.links) :])
    others = [head for head in between.heads if head.at == INPUT]
    names = _names([Head(tuple(between.links), 0), *others])[1:]
    for name, head in zip(names, others, strict=True):
        _head(between, name, head, [next(roles) for _ in head.links])
    between.outputs += names


def is_mean(between: Between, at: int) -> tuple[str, str] | None:
    """That nothing stands between a mean and what reads it."""
    if between.is_mean and between.links[at].element is main_at_end(between):
        return "none", "a mean, beside a spread"
    beside = any(0 <= head.at == at - 1 < len(between.links) - 1 for head in between.heads)
    return ("none", "a mean, beside a spread") if beside and between.links[at].element.is_main else None


def main_at_end(between: Between) -> Element:
    """The last layer that is no norm."""
    return [link.element for link in between.links if link.element.is_main][-1]


def name_mean(between: Between, at: int) -> None:
    """A mean is an output too."""
    if not between.is_mean and is_mean(between, at):
        between.add(f"{between.outputs[-2]} = {between.name}")


def _dueling(between: Between, names: Sequence[str]) -> str:
    """A value and what each action is better than the mean of them (1511.06581); "" for any other heads."""
    if len(names) != 2:
        return ""
    words = between.answers.words.advantage
    for head, (own, value), other in zip(
        between.heads, (names, names[::-1]), between.heads[::-1], strict=True
    ):
        leaf, is_value = head.links[-1].element.leaf, other.links[-1].after.width == 1
        if is_value and any(is_of(part, words) for part in leaf.place):
            found = between.answers.find(leaf, "chain.heads", shown=("dueling", f"{own} and a value"))
            if found not in ("dueling", "apart"):
                raise between.answers.refuse(leaf, "chain.heads", str(found), "allowed: dueling, apart")
            return f"{value} + {own} - {own}.mean(dim=-1, keepdim=True)" if found == "dueling" else ""
    return ""


def _flush(between: Between) -> None:
    """What is unknown before the heads is unknown of what they read."""
    between.open(of_layer=True)
    between.answers.trail.clear()


def _head(between: Between, name: str, head: Head, roles: Sequence[str], is_output: bool = True) -> None:
    """The statements of one, in which its own name takes the place of `x` once it is set."""
    first, *rest = head.links
    if (
        first.before.form == MAPS and first.element.group == LINEAR
    ):  # it reads what all heads read, as features
        entered = Data(ROWS, first.element.inputs, is_sequence=between.is_sequence)
        first = replace(
            first, before=entered, after=replace(first.after, is_sequence=between.is_sequence), places=1
        )
    inner = type(between)([first, *rest], roles, between.answers, between.activations)
    inner.windows, inner.name = deepcopy(between.windows), between.name
    inner.is_sequence, inner.has_frames = between.is_sequence, between.has_frames
    inner.through()
    if is_output:
        inner.output(inner.links[-1])
    take(between, inner, name)


def take(between: Between, inner: Between, name: str) -> None:
    """Writes what layers beside the chain compute, under a name of its own for `x`."""
    inner.open(of_layer=True)
    between.answers.trail.clear()
    written = between.written
    written.arguments.update(inner.written.arguments)
    written.problems += inner.written.problems
    written.is_checked |= inner.written.is_checked
    written.has_single_rows |= inner.written.has_single_rows
    written.lines += _renamed(inner.written.lines, name, between.name)
    written.forward += _renamed(inner.written.forward, name, between.name)


def _renamed(lines: Sequence[str], name: str, shared: str) -> Iterator[str]:
    is_set = False
    for line in lines:
        target, _, expression = line.partition(" = ")
        text = re.sub(rf"\b{shared if shared == 'x' else 'x'}\b", name, expression) if is_set else expression
        is_set = is_set or target == "x" or target.startswith("x, ")
        yield f"{re.sub(r'^x(?=$|, )', name, target)} = {text}"


def _names(heads: Sequence[Head]) -> list[str]:
    """What the outputs are called: the word that is the head's own, or a number."""
    for words in (
        [_word(head.links[-1].element.name.rpartition(".")[2]) for head in heads],
        [_word(head.links[-1].element.name.partition(".")[0]) for head in heads],
    ):
        if len(set(words)) == len(words) and all(words):
            return words
    return [f"output_{number}" for number in range(1, len(heads) + 1)]


def _word(text: str) -> str:
    word = text.lower()
    return word if word.isidentifier() else ""
