"""A checkpoint's header written short, as examples have it: `layers.{0..1}.{q,k}_proj.weight: [64, 64]`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mapper.architecture import Leaf

Words = tuple[str, ...]
Row = tuple[Words, tuple[int, ...]]  # words of a name with brace lists, shape


def short_header(leaves: Iterable[Leaf]) -> dict[str, list[int]]:
    """Patterns with brace lists and their shapes; what `examples.expand` makes of them is the header again."""
    rows = list(_rows(leaves))
    longest = max((len(words) for words, _ in rows), default=0)
    for at in range(1, longest + 1):  # from the end: weight and bias first, then q, k and v
        rows = _merged(rows, at)
    return {".".join(words): list(shape) for words, shape in rows}


def _rows(leaves: Iterable[Leaf]) -> Iterator[Row]:
    for leaf in leaves:
        path = tuple(part if isinstance(part, str) else _braces(list(map(str, part))) for part in leaf.place)
        for name, info in leaf.tensors.items():
            yield (*path, name) if name else path, tuple(info.shape)


def _merged(rows: Sequence[Row], at: int) -> list[Row]:
    """Rows of one shape that differ in the word `at` from the end alone become one."""
    groups: dict[tuple[Words, Words, tuple[int, ...]], list[str]] = {}
    for words, shape in rows:
        position = len(words) - at
        if position < 0:
            groups[(words, (), shape)] = []
        else:
            groups.setdefault((words[:position], words[position + 1 :], shape), []).append(words[position])
    merged: list[Row] = []
    for (before, after, shape), choices in groups.items():
        if not choices:
            merged.append((before, shape))
        elif any("{" in word for word in choices):
            merged += [((*before, word, *after), shape) for word in choices]
        else:
            merged.append(((*before, _braces(choices), *after), shape))
    return merged


def _braces(words: list[str]) -> str:
    """`{q,k}_proj` for q_proj and k_proj, `{0..3}` for four numbers in a row."""
    if len(words) == 1:
        return words[0]
    if all(word.isdigit() for word in words):
        numbers = sorted(map(int, words))
        if numbers == list(range(numbers[0], numbers[-1] + 1)):
            return f"{{{numbers[0]}..{numbers[-1]}}}"
        return f"{{{','.join(map(str, numbers))}}}"
    end = _shared([word[::-1] for word in words])[::-1]
    start = _shared([word[: len(word) - len(end)] for word in words])
    inner = [word[len(start) : len(word) - len(end)] for word in words]
    return f"{start}{{{','.join(inner)}}}{end}"


def _shared(words: Sequence[str]) -> str:
    """What all words start with, up to an underscore, or to numbers: `q_proj` and `query` share nothing."""
    count = next((at for at, letters in enumerate(zip(*words, strict=False)) if len(set(letters)) > 1), None)
    prefix = words[0][: min(map(len, words)) if count is None else count]
    if all(word[len(prefix) :].isdigit() for word in words):
        return prefix
    return prefix[: prefix.rfind("_") + 1]
