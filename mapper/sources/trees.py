"""Checkpoints of libraries that nest their arrays by slashes or tables, under torch's names and in its arrangement."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from operator import contains
from typing import TYPE_CHECKING

from mapper.checkpoint import TensorInfo
from mapper.errors import FormatError, listed, shorten
from mapper.rulebook.trees import SLASH
from mapper.sources.shards import Shard, check_name

if TYPE_CHECKING:
    import torch

    from mapper.rulebook.trees import Tree


_DIGITS = "0123456789"
_BIAS = ".bias"  # which some store as a row, or as a column


def name_as_torch(shard: Shard) -> None:
    """Give the tensors of a tree torch's names; those of no known library keep theirs, as one flat name.

    Parameters of the whole may stand beside modules, which have folders.
    """
    from mapper.rulebook.trees import trees  # here: most names have folders, and are not asked

    flat = [key for key in shard.tensors if "." not in key]
    for tree in trees():
        if shard.container in tree.containers:
            split = {key: words_of(tree, key) for key in (shard.tensors if tree.is_nested else flat)}
            is_tree = any(len(words) > 1 for words in split.values()) and _fits(tree, split.values())
            if is_tree and not _taken(shard, tree, split):
                _rename(shard, tree, split)
                return


def _taken(shard: Shard, tree: Tree, split: dict[str, list[str]]) -> bool:
    """Whether a module beside the tree has one of its names."""
    return any(torch_name(tree, words) in shard.tensors.keys() - split.keys() for words in split.values())


def has_flat(shard: Shard) -> bool:
    """Whether some name has no folder."""
    return not all(map(contains, shard.tensors, repeat(".")))


def words_of(tree: Tree, key: str) -> list[str]:
    """The words of a name: between slashes, or a module's and the longest last word that is known; of `W1` its module's number first."""
    if tree.is_nested:
        return key.split(tree.separator)
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
    left = []
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
        _move(shard, key, new, info, words[-1] in tree.channels_last)
    if left:
        why = _why_left(tree, split[left[0]])
        shard.notes.append(f"{shard.name}: {len(left)} tensors were left out, {why}: {listed(left)}")
    shard.notes.append(f"names and arrangement of {tree.name} undone")


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


def _move(shard: Shard, key: str, new: str, info: TensorInfo, channels_last: bool) -> None:
    """Enter a tensor under its new name, its axes as torch has them."""
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
    is_row = new.endswith(_BIAS) and len(shape) == 2 and min(shape) == 1
    if len(shape) < 2 or not (channels_last or is_row):
        return

    def moved(data: memoryview) -> torch.Tensor:
        from mapper.sources.storage import plain

        tensor = decode(data) if decode is not None else plain(data, info, offset)
        return tensor.flatten() if is_row else tensor.permute(-1, -2, *range(len(shape) - 2)).contiguous()

    moved_shape = (max(shape),) if is_row else (shape[-1], shape[-2], *shape[:-2])
    shard.tensors[new] = TensorInfo(moved_shape, dtype)
    shard.decoded[new] = moved
