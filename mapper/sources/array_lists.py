"""Names for arrays that stand in lists, as `weights.0` and `biases.0` or all in turn, and for those of recurrent layers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mapper.rulebook.trees import Tree

Shapes = Mapping[str, tuple[int, ...]]
_NUMBERED = re.compile(r"(.*?)[._/]?(\d{1,6})")
_LAYER, _NORM = "layer", "norm"  # no lists of torch, whose numbers count what has no tensors too
_OF_NORM = ("norm.weight", "norm.bias", "norm.running_mean", "norm.running_var")
_AFTER = {  # how many vectors of one length stand behind a map -> what they are; of two none can say it
    0: (),
    1: ("bias",),
    3: ("bias", *_OF_NORM[:2]),
    4: _OF_NORM,
    5: ("bias", *_OF_NORM),
}


def in_lists(tree: Tree, shapes: Shapes) -> dict[str, list[str]]:
    """The words of each name; nothing where some name is no list's of this library."""
    found = {key: match for key in shapes if (match := _NUMBERED.fullmatch(key))}
    lists = {match[1] for match in found.values()}
    if len(found) < len(shapes) or not shapes:
        return {}
    if tree.listed and lists <= set(tree.listed):
        return {key: [f"{_LAYER}{int(match[2]) + 1}", match[1]] for key, match in found.items()}
    main = lists - set(tree.beside)
    if len(main) != 1 or not main <= set(tree.in_turn):
        return {}
    numbers = sorted((int(match[2]), key) for key, match in found.items() if match[1] in main)
    named = _in_turn([key for _, key in numbers], shapes)
    beside = {
        name: [
            key for _, key in sorted((int(match[2]), key) for key, match in found.items() if match[1] == name)
        ]
        for name in lists - main
    }
    return _with_beside(tree, named, beside)


def _in_turn(keys: list[str], shapes: Shapes) -> dict[str, list[str]]:
    """Arrays in turn: each of two axes or more is a layer's weight, the vectors behind it are its bias and a norm's."""
    groups: list[list[str]] = []
    for key in keys:
        if groups and _is_vector(shapes[key], shapes[groups[-1][0]]):
            groups[-1].append(key)
        else:
            groups.append([key])
    named = {}
    for number, (first, *rest) in enumerate(groups):
        lengths = {math.prod(shapes[key]) for key in rest}
        if len(shapes[first]) < 2 or len(rest) not in _AFTER or len(lengths) > 1:
            return {}
        for key, word in zip((first, *rest), ("weight", *_AFTER[len(rest)]), strict=True):
            is_norm, last = word in _OF_NORM, word.rpartition(".")[2]
            named[key] = [f"{_NORM if is_norm else _LAYER}{number + 1}", last]
    return named


def _is_vector(shape: tuple[int, ...], weight: tuple[int, ...]) -> bool:
    """Whether it is no layer's weight: one axis, or a row or column as long as what the weight gives."""
    return len(shape) == 1 or (
        len(shape) == 2 and 1 in shape and max(shape) in (weight[0], weight[-1]) and 1 not in weight
    )


def _with_beside(
    tree: Tree, named: dict[str, list[str]], beside: dict[str, list[str]]
) -> dict[str, list[str]]:
    """The same with what stands in lists of its own for each norm; nothing where they are not as many."""
    norms = [words[:-1] for words in named.values() if words[0].startswith(_NORM) and words[-1] == "weight"]
    for name, keys in beside.items():
        words = tree.beside[name]
        if len(keys) != len(norms) * len(words):
            return {}
        for at, key in enumerate(keys):
            named[key] = [*norms[at // len(words)], words[at % len(words)]]
    return named


def with_recurrent(tree: Tree, split: dict[str, list[str]], shapes: Shapes) -> dict[str, list[str]]:
    """The words, those of recurrent layers as torch has them: both directions are one layer there.

    Nothing where a layer has three gates: their order is another, and so is what a reset gate stands before.
    """
    layers: dict[tuple[str, ...], dict[str, str]] = {}
    for key, words in split.items():
        layers.setdefault(tuple(words[:-1]), {})[words[-1]] = key
    kernel, inner = list(tree.recurrent)[:2]
    found = dict(split)
    for path, own in layers.items():
        if inner not in own:
            continue
        shape = shapes[own[inner]]
        if kernel not in own or len(shape) != 2 or shape[1] == 3 * shape[0]:
            return {}
        cut, end = _side(tree, path)
        found |= {own[last]: [*cut, tree.recurrent[last] + end] for last in own if last in tree.recurrent}
    return found


def _side(tree: Tree, path: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """The path of a layer of both directions, and the ending of what is read in this one."""
    for at, word in enumerate(path):
        for start, end in tree.sides.items():
            if word.startswith(start) and at:
                return path[:at], end
    return path, ""
