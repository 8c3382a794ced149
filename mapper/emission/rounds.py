"""Children that come again and again in one order, as a loop over what each round has: a unit, and what halves behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mapper.emission.classes import Drafts
from mapper.emission.drafts import Argument, Draft
from mapper.emission.module_tree import Folder
from mapper.emission.paths import is_number
from mapper.emission.rolled import same_argument
from mapper.emission.settings import INDEX

_FEWEST = 3  # rounds that make a loop
_MOST = 4  # children of one round
_PLACE, _UNIT = "place", "unit"  # what the loop calls the number of a child, and the child
Given = dict[str, Argument]


@dataclass(frozen=True)
class Rounds:
    """Where in a row the same classes come again, so many numbers behind."""

    start: int
    period: int
    count: int
    step: int  # from the number of a child to that of its like in the next round

    def of_slot(self, slot: int) -> range:
        """Where the children stand that have one place in each round."""
        return range(self.start + slot, self.end, self.period)

    @property
    def end(self) -> int:
        return self.start + self.period * self.count


def rounds_of(kinds: Sequence[object], numbers: Sequence[int | None]) -> Rounds | None:
    """The most children in a row that are rounds of several each; None where they are few. Of kind None nothing is known."""
    found = [
        rounds
        for period in range(2, _MOST + 1)
        for start in range(len(kinds) - period * _FEWEST + 1)
        if len({*kinds[start : start + period]}) > 1
        and (rounds := _from(kinds, numbers, start, period)).count >= _FEWEST
    ]
    return max(found, key=lambda rounds: (rounds.end - rounds.start, -rounds.period), default=None)


def _from(kinds: Sequence[object], numbers: Sequence[int | None], start: int, period: int) -> Rounds:
    """The rounds that begin at a place, of which one is none."""
    first, second = numbers[start], numbers[start + period]
    step = 0 if first is None or second is None else second - first
    count = 1
    while step and start + (count + 1) * period <= len(kinds):
        places = range(start + count * period, start + (count + 1) * period)
        if not all(_is_like(kinds, numbers, at, at - period, step) for at in places):
            break
        count += 1
    return Rounds(start, period, count, step)


def _is_like(kinds: Sequence[object], numbers: Sequence[int | None], at: int, before: int, step: int) -> bool:
    one, other = numbers[before], numbers[at]
    is_known = kinds[at] is not None and one is not None and other is not None
    return is_known and kinds[at] == kinds[before] and other - one == step  # type: ignore[operator]


@dataclass(eq=False)
class InRounds(Drafts):
    """Writes children of a dict that come in rounds as one loop."""

    def in_rounds(self, draft: Draft, folder: Folder) -> tuple[Rounds, str] | None:
        """Which children are rounds, and the loop that makes them; None where there are none."""
        children = [*folder.children.values()]
        kinds = [self.of_folder.get(id(child)) for child in children]
        numbers = [*map(_number, folder.children)]
        rounds = rounds_of(kinds, numbers)
        if rounds is None:
            return None
        before, loop = len(draft.arguments), dict[str, tuple[str, list[Argument]]]()
        units = []
        first = numbers[rounds.start] or 0
        for slot in range(rounds.period):
            places = rounds.of_slot(slot)
            own = [child for at in places if isinstance(child := children[at], Folder)]
            given = self.in_loop_over(draft, folder, [self.arguments(child) for child in own], loop)
            if given is None:
                del draft.arguments[before:]
                return None
            behind = (numbers[places[0]] or 0) - first
            call = self.call(draft, own[0], self.arguments(own[0]), given)
            units.append(f"({INDEX}{f' + {behind}' if behind else ''}, {call})")
        draft.loops.update({INDEX, _PLACE, _UNIT, *loop})
        columns = {INDEX: f"range({first}, {first + rounds.step * rounds.count}, {rounds.step})"}
        columns |= {name: text for name, (text, _) in loop.items()}
        return rounds, _loop(units, columns)

    def in_loop_over(
        self, draft: Draft, folder: Folder, order: list[Given], loop: dict[str, tuple[str, list[Argument]]]
    ) -> dict[str, str] | None:
        """What the loop calls each parameter in which rounds differ; None where sizes would become numbers."""
        given: dict[str, str] = {}
        for name in order[0]:
            rows = [own[name] for own in order]
            if all(same_argument(row, rows[0]) for row in rows):
                continue
            known = (word for word, (_, other) in loop.items() if all(map(_is_same, rows, other)))
            words = (word for word in (*_words(rows), name, f"{name}_{len(loop)}") if word not in loop)
            word = next(known, None) or next(words)
            if word not in loop:
                loop[word] = self.each(draft, folder, word, rows), rows
                is_number = draft.arguments[-1].expression is None
                if is_number and any(row.expression is not None for row in rows):
                    return None
            given[name] = word
        return given


def _number(key: str | tuple[int, ...]) -> int | None:
    """The number that a child is called by; None of a name, and of several that are alike."""
    if isinstance(key, str):
        return int(key) if is_number(key) else None
    return key[0] if len(key) == 1 else None


def _is_same(one: Argument, other: Argument) -> bool:
    """Whether two arguments are one size, whatever their classes call it, or one number."""
    facts = [[*map(id, argument.symbols.values())] for argument in (one, other)]
    is_plain = one.is_plain() and other.is_plain() and bool(facts[0])
    return facts[0] == facts[1] if is_plain else same_argument(one, other)


def _words(rows: list[Argument]) -> list[str]:
    """What a size is called by itself: `inner_channels` of a list of them; not where it may be what is read or given."""
    fact = next(iter(rows[0].symbols.values()), None)
    word = "" if fact is None else fact.name.rpartition(".")[2]
    return [] if word in ("", "channels") else [word]


def _loop(units: list[str], columns: dict[str, str]) -> str:
    names, rows = ", ".join(columns), ", ".join(columns.values())
    each = f"{names} in zip({rows}, strict=True)" if len(columns) > 1 else f"{names} in {rows}"
    return f"**{{str({_PLACE}): {_UNIT} for {each} for {_PLACE}, {_UNIT} in ({', '.join(units)})}}"
