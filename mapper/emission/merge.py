"""Classes that differ in little are one: in a child that their forward never mentions, or in a size that one has fixed."""

from __future__ import annotations

import re

from mapper.emission.drafts import CLOSE, OPEN, Argument, ClassText, Draft

_MARK = re.compile(f"{OPEN}(\\d+){CLOSE}")


def merge_fixed(groups: list[list[Draft]]) -> list[list[Draft]]:
    """Groups of equal drafts, those joined of which one has a number where the other has a size: a stride of 1, say."""
    merged: list[list[Draft]] = []
    for group in groups:
        into = next((other for other in merged if _fixes_one(other[0], group[0])), None)
        if into is None:
            merged.append(list(group))
        else:
            into += group
    return merged


def _fixes_one(one: Draft, other: Draft) -> bool:
    is_run = bool(one.methods) or one.base == "nn.Sequential"
    if not is_run or one.text() != other.text() or one.needs_config != other.needs_config:
        return False
    unlike = [
        pair for pair in zip(one.arguments, other.arguments, strict=True) if pair[0].form() != pair[1].form()
    ]
    return len(unlike) == 1 and all(
        first.hint == second.hint and first.is_plain() and second.is_plain() for first, second in unlike
    )


def merge_options(groups: list[list[Draft]]) -> list[list[Draft]]:
    """Groups of equal drafts, those joined whose longer one has all lines of the shorter ones and the same methods."""
    merged: list[list[Draft]] = []
    for group in sorted(groups, key=lambda group: -len(group[0].lines)):
        into = next((other for other in merged if _includes(other[0], group[0])), None)
        if into is None:
            merged.append(group)
        else:
            _join(into, group)
    return merged


def _plain(draft: Draft, row: str) -> str:
    """A line with what its arguments are, not which numbers they have in this draft."""
    return _MARK.sub(lambda match: f"<{draft.arguments[int(match[1])].form()}>", row)


def _rows(draft: Draft) -> list[str]:
    return [_plain(draft, row) for row in draft.lines]


def _includes(longer: Draft, shorter: Draft) -> bool:
    if (
        longer.base != shorter.base
        or longer.base != "nn.Module"
        or longer.methods != shorter.methods
        or not longer.methods
    ):
        return False
    if [_plain(longer, row) for row in longer.attributes.values()] != [
        _plain(shorter, row) for row in shorter.attributes.values()
    ]:
        return False
    rows = iter(_rows(longer))
    return all(row in rows for row in _rows(shorter))  # in order: `in` moves the iterator on


def _join(into: list[Draft], group: list[Draft]) -> None:
    """Give the shorter drafts the numbering of the longer one, and both a switch for every line that only it has."""
    model = into[0]
    present = set(_rows(group[0]))
    options = {
        row: _child(row)
        for row in model.lines
        if _plain(model, row) not in present and row not in model.options
    }
    for draft in into:
        for row, name in options.items():
            draft.options[row] = draft.place(Argument(f"has_{name}", True))
    for draft in group:
        aligned = _aligned(model, draft)
        draft.lines, draft.attributes, draft.arguments = model.lines, model.attributes, aligned
        draft.options = dict(model.options)
        _switch_off(draft, set(options), present, model)
    into += group


def _child(row: str) -> str:
    """What a line sets: a buffer is registered by its name."""
    name = row.removeprefix("self.").removeprefix('register_buffer("')
    return re.split(r"[\" ]", name, maxsplit=1)[0]


def _aligned(model: Draft, draft: Draft) -> list[Argument]:
    """The draft's arguments in the model's order; where it has none, the model's, which its switch leaves unread."""
    own: dict[str, list[Argument]] = {}
    for row in (*draft.attributes.values(), *draft.lines):
        own[_plain(draft, row)] = [draft.arguments[int(number)] for number in _MARK.findall(row)]
    aligned = list(model.arguments)
    for row in (*model.attributes.values(), *model.lines):
        for number, argument in zip(_MARK.findall(row), own.get(_plain(model, row), []), strict=False):
            aligned[int(number)] = argument
    return aligned


def _switch_off(draft: Draft, absent: set[str], present: set[str], model: Draft) -> None:
    for row, mark in draft.options.items():
        number = int(_MARK.findall(mark)[0])
        there = row not in absent and _plain(model, row) in present
        draft.arguments[number] = Argument(draft.arguments[number].hint, there)


def is_same(one: ClassText, other: ClassText) -> bool:
    """Whether two finished classes have the same text: sizes that two facts know may be one field in the end."""
    first, second = one.drafts[0], other.drafts[0]
    return (
        first.text() == second.text()
        and first.options == second.options
        and (one.resolved, one.locals, one.takes_config) == (other.resolved, other.locals, other.takes_config)
        and [*one.parameters] == [*other.parameters]
    )


def join(into: ClassText, other: ClassText) -> ClassText:
    """The first class, of which those of the other are instances, too."""
    into.drafts += other.drafts
    for name, values in other.parameters.items():
        into.parameters[name] = into.parameters[name] + values
    return into
