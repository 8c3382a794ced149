"""Checkpoints of libraries that nest their arrays by slashes or tables, under torch's names and in its arrangement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import repeat
from operator import contains
from typing import TYPE_CHECKING, Any

from mapper.checkpoint import NAMES_UNDONE, UNDONE, TensorInfo
from mapper.errors import FormatError, listed, shorten
from mapper.rulebook.trees import SLASH
from mapper.sources.array_lists import in_lists, with_recurrent
from mapper.sources.shards import Shard, check_name

if TYPE_CHECKING:
    import torch

    from mapper.rulebook.trees import Tree


_DIGITS = "0123456789"
_BIAS, _WEIGHT = ".bias", ".weight"  # the former some store as a row, or as a column


def name_as_torch(shard: Shard) -> None:
    """Give the tensors of a tree torch's names; those of no known library keep theirs, as one flat name.

    Parameters of the whole may stand beside modules, which have folders.
    """
    from mapper.rulebook.trees import trees  # here: most names have folders, and are not asked

    shapes = {key: info.shape for key, info in shard.tensors.items()}
    for tree in trees():
        if shard.container in tree.containers:
            split = _split(tree, shapes)
            is_tree = any(len(words) > 1 for words in split.values()) and _fits(tree, split.values())
            if is_tree and not _taken(shard, tree, split):
                _rename(shard, tree, split)
                return


def _split(tree: Tree, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, list[str]]:
    """The words of the names that may be a tree's; of a file of unnamed arrays those that their order gives them."""
    if tree.listed or tree.in_turn:
        return in_lists(tree, shapes)
    keys = shapes if tree.is_nested else [key for key in shapes if "." not in key]
    if tree.is_whole and len(keys) < len(shapes):
        return {}
    split = {key: words_of(tree, key) for key in keys}
    return with_recurrent(tree, split, shapes) if tree.recurrent else split


def example_names(tree: Tree, example: Mapping[str, Any]) -> dict[str, str]:
    """What the names of an example become; `shapes` of it are those of arrays that their order alone names."""
    shapes = {name: tuple(example.get("shapes", {}).get(name, ())) for name in example.get("names", {})}
    return {name: torch_name(tree, words) for name, words in _split(tree, shapes).items()}


def _taken(shard: Shard, tree: Tree, split: dict[str, list[str]]) -> bool:
    """Whether a module beside the tree has one of its names."""
    beside = shard.tensors.keys() - split.keys()
    return any(torch_name(tree, words) in beside for words in split.values())


def has_flat(shard: Shard) -> bool:
    """Whether some name has no folder, or none has a last word."""
    is_numbered = all(key[-1:].isdecimal() for key in shard.tensors)
    return is_numbered or not all(map(contains, shard.tensors, repeat(".")))


def words_of(tree: Tree, key: str) -> list[str]:
    """The words of a name: between slashes, or a module's and the longest last word that is known; of `W1` its module's number first."""
    if tree.is_nested:
        words = key.removesuffix(tree.suffix).split(tree.separator)
        return [word for word in words if word not in tree.dropped]
    letter = key.rstrip(_DIGITS)
    if letter.removesuffix(tree.separator) in tree.lettered and letter != key:
        word = letter.removesuffix(tree.separator)
        return [tree.lettered[word] + key[len(letter) :], word]
    ends = [last for last in tree.last if key.endswith(tree.separator + last)]
    if not ends:
        return [key]
    last = max(ends, key=len)
    return [key[: -len(last) - len(tree.separator)], last]


def _rename(shard: Shard, tree: Tree, split: dict[str, list[str]]) -> None:
    """Give the tensors the names that torch has for those of a library."""
    before, shard.tensors = shard.tensors, {}
    left, biases = [], _biases(tree, before, split)
    for key, info in before.items():
        if key not in split:
            shard.tensors[key] = info
            continue
        words = split[key]
        if _why_left(tree, words):
            left.append(key)
            continue
        new = torch_name(tree, words)
        check_name(new, shard.name)
        if new in shard.tensors:
            raise FormatError(f"{shard.name}: two tensors become {shorten(new)} of the model")
        is_last = words[-1] in tree.channels_last or _shows_last(info.shape, biases.get(new))
        is_vector = len(info.shape) == 1 and words[-1] in tree.lettered and new.endswith(_WEIGHT)
        _move(
            shard,
            key,
            new,
            info,
            is_last,
            is_vector and key not in shard.decoded and key not in shard.strides,
        )
        if words[-1] in tree.zeros:
            _add_zeros(shard, new, ".".join([new.rpartition(".")[0], tree.zeros[words[-1]]]))
    if left:
        why = _why_left(tree, split[left[0]])
        shard.notes.append(f"{shard.name}: {len(left)} tensors were left out, {why}: {listed(left)}")
    shard.notes.append((UNDONE if tree.channels_last else NAMES_UNDONE).format(tree.name))


def _biases(tree: Tree, tensors: Mapping[str, TensorInfo], split: Mapping[str, list[str]]) -> dict[str, int]:
    """How long the bias beside each weight is, where biases show how maps are stored."""
    if not tree.is_shown:
        return {}
    named = {torch_name(tree, words): tensors[key].shape for key, words in split.items()}
    return {
        name.removesuffix(_BIAS) + _WEIGHT: math.prod(shape)
        for name, shape in named.items()
        if name.endswith(_BIAS)
    }


def _shows_last(shape: tuple[int, ...], bias: int | None) -> bool:
    """Whether the bias of a convolution is as long as the last axis of its kernel, and not as the first."""
    return bias is not None and len(shape) > 2 and shape[-1] == bias != shape[0]


def _why_left(tree: Tree, words: list[str]) -> str:
    """Why no model has a tensor, by its last word or the folder of all of its kind; "" where one may."""
    return tree.left.get(words[-1], "") or tree.left.get(f"{words[0]}{SLASH}", "")


def _fits(tree: Tree, names: Iterable[list[str]]) -> bool:
    """Whether every last word is one of this library, and one of them tells it from a tree of anything."""
    last = {words[-1] for words in names if not _why_left(tree, words)}
    return bool(last & set(tree.telling)) and all(
        word in tree.last or word.endswith(tree.bare or ("\0",)) for word in last
    )


def torch_name(tree: Tree, words: list[str]) -> str:
    """The words of one name as torch's name."""
    for first in tree.first:
        if tuple(words[: len(first)]) == first and len(words) > len(first):
            words = words[len(first) :]
            break
    *path, last = words
    if last in tree.last:
        path.append(tree.last[last])
    else:
        path += [last, "weight"] if last.endswith(tree.bare or ("\0",)) else [last]
    return ".".join(part for word in path for part in _numbered(tree, word))


def _numbered(tree: Tree, word: str) -> list[str]:
    stem, _, number = word.rpartition("_")
    return [stem, number] if stem in tree.numbered and number.isdecimal() and number.isascii() else [word]


def _add_zeros(shard: Shard, beside: str, name: str) -> None:
    """Enter what torch's own layer has beside a tensor, and adds to it: nought."""
    info = shard.tensors[beside]
    shard.tensors[name], shard.offsets[name] = info, 0

    def nought(_: memoryview) -> torch.Tensor:
        import torch

        from mapper.sources.storage import torch_dtype

        return torch.zeros(info.shape, dtype=torch_dtype(info.dtype, name))

    shard.decoded[name] = nought


def _move(
    shard: Shard, key: str, new: str, info: TensorInfo, channels_last: bool, is_vector: bool = False
) -> None:
    """Enter a tensor under its new name, its axes as torch has them; a vector that is a map to one number as a row."""
    shape, dtype = info
    offset, strides, decode = (
        shard.offsets.pop(key, 0),
        shard.strides.pop(key, None),
        shard.decoded.pop(key, None),
    )
    shard.offsets[new] = offset
    if strides is not None:
        shard.strides[new] = strides
    if decode is not None:
        shard.decoded[new] = decode
    if key in shard.packed:
        shard.packed[new] = shard.packed.pop(key)
    shard.tensors[new] = info
    if is_vector:
        shard.tensors[new] = TensorInfo((1, *shape), dtype)
        return
    is_row = new.endswith(_BIAS) and len(shape) == 2 and min(shape) == 1
    if len(shape) < 2 or not (channels_last or is_row):
        return

    def moved(data: memoryview) -> torch.Tensor:
        from mapper.sources.storage import plain

        tensor = decode(data) if decode is not None else plain(data, info, offset, strides)
        return tensor.flatten() if is_row else tensor.permute(-1, -2, *range(len(shape) - 2)).contiguous()

    shard.strides.pop(new, None)
    moved_shape = (max(shape),) if is_row else (shape[-1], shape[-2], *shape[:-2])
    shard.tensors[new] = TensorInfo(moved_shape, dtype)
    shard.decoded[new] = moved
