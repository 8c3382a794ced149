"""The parameters of a class as a person would have them: one for what is always equal, and no longer than they need be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import dropwhile, groupby, takewhile

from mapper.emission.drafts import Argument, ClassText, fact_of
from mapper.emission.identifiers import is_attribute
from mapper.emission.stages import WIDTHS, Written

_SHORT = 2  # spaces in a sum of two
_APART = frozenset(  # names that a constructor has for something else
    {"config", "index", "self", "nn", "torch", "F", "math", "range", "zip", "super", "with_unused"}
)


_PADDINGS = ("padding", "pad_size")
_WIDTHS = (*WIDTHS, "inner_size", "reduced_size")
_EXTENT = re.compile(r"_size\d+(_\d+)?$")  # `alpha_size1`
_DIRECTED = re.compile(r"(^|_)(?:in|out)_(channels|features)$")  # both in one are `channels`


def tidy(done: ClassText) -> None:
    """Joins, derives and shortens the parameters of a finished class in place."""
    _join(done)
    _join_widths(done)
    _undirect(done)
    _derive_padding(done)
    _shorten(done)
    _say_once(done)
    _name_repeated(done)
    _name_sums(done)


def written(classes: list[ClassText]) -> Iterator[Written]:
    """Every argument of every constructor."""
    for done in classes:
        for at, text in enumerate(done.resolved):
            for draft in done.drafts:
                argument = draft.arguments[at]
                facts = tuple(fact.name for fact in argument.symbols.values())
                yield Written(text, argument.hint, facts, draft.folder.tower)


def _join(done: ClassText) -> None:
    """`in_channels` and `out_channels` that agree wherever the class is used are `channels`."""
    joined: dict[str, str] = {}  # parameter -> the one it becomes
    for group in _alike(done):
        name = _common(group)
        is_free = name in group or name not in {*done.parameters, *joined.values()}
        if is_free and _is_name(name):
            joined |= dict.fromkeys(group, name)
    _rename(done, joined)


def _join_widths(done: ClassText) -> None:
    """A width that goes from one part to the next has one name: that of the fact, or the shortest."""
    groups: dict[str, list[str]] = {}
    for name, arguments in done.parameters.items():
        if name.endswith(_WIDTHS) or _is_bare(name, arguments):
            groups.setdefault(repr(_values(arguments)), []).append(name)
    joined: dict[str, str] = {}
    for group in groups.values():
        best = min(
            group,
            key=lambda name: (not name.endswith(_WIDTHS), fact_of(done.parameters[name]) is None, len(name)),
        )
        is_alone = len(group) > 1 and not any(map(_DIRECTED.search, done.parameters.keys() - {*group}))
        joined |= dict.fromkeys(group, _DIRECTED.sub(r"\1\2", best) if is_alone else best)
    _rename(done, joined)


def _undirect(done: ClassText) -> None:
    """`in_channels` that are what goes out, too, are `channels`."""
    arguments = done.drafts[0].arguments if done.drafts else []
    for name in [name for name in done.parameters if _DIRECTED.search(name)]:
        hints = [a.hint for text, a in zip(done.resolved, arguments, strict=False) if text == name]
        ways = {"in" if "in_" in found[0] else "out" for hint in hints if (found := _DIRECTED.search(hint))}
        plain = _DIRECTED.sub(r"\1\2", name)
        if len(ways) > 1 and plain not in done.parameters and _is_name(plain):
            _rename(done, {name: plain})


def is_extent(name: str) -> bool:
    """Whether a parameter is an extent of a tensor by itself."""
    return _EXTENT.search(name) is not None


def _is_bare(name: str, arguments: list[Argument]) -> bool:
    """Whether it is an extent of a tensor by itself, of which no flow says what it is: widths agree by chance only in one."""
    is_open = is_extent(name) and fact_of(arguments) is None
    return is_open and len({repr(argument.value) for argument in arguments}) > 1


def _rename(done: ClassText, names: dict[str, str]) -> bool:
    """Gives parameters other names, several of the same values one; False where that would give others one, too."""
    if not names or _would_clash(done, names):
        return False
    kept: dict[str, list[Argument]] = {}
    for name, values in done.parameters.items():
        new = names.get(name, name)
        keeps = new in done.parameters and names.get(new, new) == new
        kept.setdefault(new, done.parameters[new] if keeps else values)
    done.parameters = kept
    whole = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, names))})\b(?!=)")
    done.resolved = [whole.sub(lambda found: names[found[1]], text) for text in done.resolved]
    return True


def _would_clash(done: ClassText, names: dict[str, str]) -> bool:
    """Whether two parameters of other values would have one name, or one that something else in the class has."""
    values: dict[str, set[str]] = {}
    for name, arguments in done.parameters.items():
        values.setdefault(names.get(name, name), set()).add(repr(_values(arguments)))
    new = set(names.values()) - done.parameters.keys()
    return any(len(held) > 1 for held in values.values()) or bool(new & _loops(done))


def _loops(done: ClassText) -> set[str]:
    """Names that the comprehensions of the constructor bind."""
    return {name for draft in done.drafts for name in draft.loops}


def _is_name(word: str) -> bool:
    return is_attribute(word) and word not in _APART


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
    return "_".join(dropwhile(lambda word: not word or word[0].isdigit(), [*first, *last]))


def _shared(words: list[list[str]], least: int) -> list[str]:
    columns = list(zip(*words, strict=False))[:least]
    return [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]


def _derive_padding(done: ClassText) -> None:
    """A padding that keeps the length is written as half of the kernel, as the flows declare it."""
    for name in [name for name in done.parameters if name.endswith(_PADDINGS)]:
        kernel = next((other for other in done.parameters if _is_half(done, name, other)), None)
        if kernel is not None and all(text == name or not _mentions(text, name) for text in done.resolved):
            del done.parameters[name]
            done.resolved = [f"{kernel} // 2" if text == name else text for text in done.resolved]


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}\b", text) is not None


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
    if not first or not all(map(_is_name, short.values())):
        return
    done.is_short = _rename(done, short)


def _name_repeated(done: ClassText) -> None:
    """A width that the constructor works out more than once has a name there."""
    arguments = done.drafts[0].arguments if done.drafts else []
    texts = [text for text, argument in zip(done.resolved, arguments, strict=False) if argument.local]
    for text in dict.fromkeys(texts):
        names = {
            a.local for other, a in zip(done.resolved, arguments, strict=True) if other == text and a.local
        }
        name = names.pop()
        is_free = name not in {*done.parameters, *done.locals, *_loops(done)}
        if texts.count(text) > 1 and not names and is_free and text.count(" ") == 2:
            done.locals[name] = text
            done.resolved = [name if other == text else other for other in done.resolved]


def _name_sums(done: ClassText) -> None:
    """A sum that several arguments of one module are, as all channels of a depthwise convolution, has a name there."""
    arguments = done.drafts[0].arguments if done.drafts else []
    for text in dict.fromkeys(
        text for text in done.resolved if text.count(" + ") and text.count(" ") > _SHORT
    ):
        hints = [a.hint for other, a in zip(done.resolved, arguments, strict=False) if other == text]
        stems = {hint.partition("_")[0] for hint in hints}
        name = f"{stems.pop()}_channels" if len(stems) == 1 else ""
        is_free = name not in {"", *done.parameters, *done.locals, *_loops(done)}
        if (
            len(hints) > 2
            and is_free
            and _is_name(name)
            and not any(_mentions(text, word) for word in _loops(done))
        ):
            done.locals[name] = text
            done.resolved = [name if other == text else other for other in done.resolved]


def _say_once(done: ClassText) -> None:
    """`layers_layers_in_channels`, of layers in layers, is `layers_in_channels` where that is free."""
    short = {name: "_".join(word for word, _ in groupby(name.split("_"))) for name in done.parameters}
    short = {name: new for name, new in short.items() if new != name}
    if len({*short.values()}) == len(short) and all(map(_is_name, short.values())):
        _rename(done, short)


def _roles(done: ClassText) -> set[str]:
    """What the class stands for: `patches`."""
    return {draft.folder.block.role for draft in done.drafts if draft.folder.block}


def _values(arguments: list[Argument]) -> list[object]:
    return [argument.value for argument in arguments]
