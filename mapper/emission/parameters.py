"""The parameters of a class as a person would have them: one for what is always equal, and no longer than they need be."""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile

from mapper.emission.drafts import Argument, ClassText, fact_of
from mapper.emission.identifiers import is_attribute

_APART = frozenset({"config", "index"})  # names that a constructor has for something else


_WIDTHS = (
    "channels",
    "features",
    "input_size",
    "inner_size",
    "hidden_size",
    "output_size",
)  # how such names end


def tidy(done: ClassText) -> None:
    """Joins, derives and shortens the parameters of a finished class in place."""
    _join(done)
    _join_widths(done)
    _derive_padding(done)
    _shorten(done)


def _join(done: ClassText) -> None:
    """`in_channels` and `out_channels` that agree wherever the class is used are `channels`."""
    joined: dict[str, str] = {}  # parameter -> the one it becomes
    for group in _alike(done):
        name = _common(group)
        if name and (name in group or name not in done.parameters):
            joined |= dict.fromkeys(group, name)
    _rename(done, joined)


def _join_widths(done: ClassText) -> None:
    """A width that goes from one part to the next has one name: that of the fact, or the shortest."""
    groups: dict[str, list[str]] = {}
    for name, arguments in done.parameters.items():
        if name.endswith(_WIDTHS):
            groups.setdefault(repr(_values(arguments)), []).append(name)
    joined: dict[str, str] = {}
    for group in groups.values():
        best = min(group, key=lambda name: (fact_of(done.parameters[name]) is None, len(name)))
        joined |= dict.fromkeys(group, best)
    _rename(done, joined)


def _rename(done: ClassText, names: dict[str, str]) -> None:
    """Parameters under other names, several under one: the values of that which has it already, if one does."""
    if not names:
        return
    kept: dict[str, list[Argument]] = {}
    for name, values in done.parameters.items():
        new = names.get(name, name)
        kept.setdefault(new, done.parameters.get(new, values))
    done.parameters = kept
    whole = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, names))})\b(?!=)")
    done.resolved = [whole.sub(lambda found: names[found[1]], text) for text in done.resolved]


def _alike(done: ClassText) -> list[list[str]]:
    """Parameters that no fact names, of which the last words and all values are the same."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, arguments in done.parameters.items():
        if fact_of(arguments) is None:
            groups.setdefault((name.rpartition("_")[2], repr(_values(arguments))), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _common(names: list[str]) -> str:
    """The words at the beginning and at the end that names share: `sr_in_channels`, `sr_out_channels` -> `sr_channels`."""
    words = [name.split("_") for name in names]
    least = min(len(parts) for parts in words)
    last = _shared([parts[::-1] for parts in words], least)[::-1]
    first = _shared(words, least - len(last))
    return "_".join(dropwhile(str.isdigit, [*first, *last]))


def _shared(words: list[list[str]], least: int) -> list[str]:
    columns = list(zip(*words, strict=False))[:least]
    return [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]


def _derive_padding(done: ClassText) -> None:
    """A padding that keeps the length is written as half of the kernel, as the flows declare it."""
    for name in [name for name in done.parameters if name.rpartition("_")[2] == "padding"]:
        kernel = next((other for other in done.parameters if _is_half(done, name, other)), None)
        if kernel is not None:
            del done.parameters[name]
            done.resolved = [f"{kernel} // 2" if text == name else text for text in done.resolved]


def _is_half(done: ClassText, padding: str, kernel: str) -> bool:
    stem = kernel.removesuffix("kernel_size")
    if stem == kernel or not padding.startswith(stem):
        return False
    sizes, halves = _values(done.parameters[kernel]), _values(done.parameters[padding])
    return all(isinstance(size, int) and size // 2 == half for size, half in zip(sizes, halves, strict=True))


def _shorten(done: ClassText) -> None:
    """`patches_stride` is `stride` in a class whose parameters are all for its `patches`."""
    names = list(done.parameters)
    if len(names) < 2:
        return
    first = "_".join(_shared([name.split("_") for name in names], min(name.count("_") for name in names)))
    if all(fact_of(arguments) for arguments in done.parameters.values()) and first not in _roles(done):
        return
    short = {name: name.removeprefix(f"{first}_") for name in names}
    if not first or not all(is_attribute(word) and word not in _APART for word in short.values()):
        return
    _rename(done, short)
    done.is_short = True


def _roles(done: ClassText) -> set[str]:
    """What the class stands for: `patches`."""
    return {draft.folder.block.role for draft in done.drafts if draft.folder.block}


def _values(arguments: list[Argument]) -> list[object]:
    return [argument.value for argument in arguments]
