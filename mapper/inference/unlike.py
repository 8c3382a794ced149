"""What elements of a list lack that others of it have: roles, sub-layers, parts of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mapper.architecture import Block, Leaf, Place
from mapper.errors import listed
from mapper.inference.scopes import Scope
from mapper.rulebook.pages import EMPTY


def lacking_roles(scope: Scope, every: Iterable[Scope], varies: Sequence[str] = ()) -> list[str]:
    """A line for what an element of a list has not, and another element with a flow has, but for roles that only some have."""
    for other in every:
        if (
            other is not scope
            and other.words == scope.words
            and other.block.flow
            and other.parent is not None
        ):
            for role, value in other.block.roles.items():
                if role not in (*scope.block.roles, *varies) and _has_leaves(
                    value
                ):  # parts of a flow have none
                    place, home = _first_leaf(value), other.block.home
                    lost = scope.block.home.child(*place[len(home) :]) if place.within(home) else role
                    return [f"{lost} is missing: '{home}' has {place}"]
    return []


def differing_roles(every: Iterable[Scope], varies: Iterable[str]) -> list[str]:
    """A line for roles that one element of a list has and another, with the same flow, has not."""
    seen: dict[tuple[object, ...], Scope] = {}
    found: dict[str, None] = {}
    for scope in every:
        if scope.block.flow is None or not any(outer.block.indices is not None for outer in scope.up()):
            continue
        first = seen.setdefault((scope.words, scope.block.flow), scope)
        for role in set(first.block.roles) ^ set(scope.block.roles):
            if role not in varies:
                has, lacks = (first, scope) if role in first.block.roles else (scope, first)
                found[f"{role} stands at '{has.block.home}' and not at '{lacks.block.home}'"] = None
    return sorted(found)


def lacking_sublayers(every: Iterable[Scope], varies: Iterable[str]) -> Iterator[str]:
    """A line for what fills a slot in one element of a list and nothing does in another that has nothing instead."""
    seen: dict[tuple[object, ...], Scope] = {}
    for scope in every:
        if scope.block.indices is None or not scope.block.slots:
            continue
        first = seen.setdefault((scope.words, scope.topic), scope)
        ours, theirs = _filled(scope), _filled(first)
        for slot in dict.fromkeys((*theirs, *ours)):
            has, lacks = (first, scope) if slot in theirs else (scope, first)
            if (slot in theirs) is not (slot in ours) and _lacks(lacks, has, {*varies}):
                step = (theirs if slot in theirs else ours)[slot]
                yield f"{step} stands at '{has.block.home}' and not at '{lacks.block.home}'"


def lesser_parts(every: Iterable[Scope], varies: Iterable[str]) -> Iterator[str]:
    """A line for a block of one layer that has less than that of another, and a flow for just that: a gate of a feed-forward, say."""
    seen: dict[tuple[object, ...], list[Scope]] = {}
    for scope in every:
        is_inside = any(outer.block.indices is not None for outer in scope.up())
        is_layer = scope.block.indices is not None and scope.topic in ("layer", "stage")
        if scope.block.flow is None or is_layer or not is_inside:
            continue
        others = seen.setdefault(scope.words, [])
        for other in (one for one in others if one.block.flow != scope.block.flow):
            less, more = sorted((scope, other), key=lambda one: len(one.block.roles))
            lost = more.block.roles.keys() - less.block.roles.keys()
            if lost and not lost & {*varies} and less.block.roles.keys() < more.block.roles.keys():
                yield f"{listed(sorted(lost))} stands at '{more.block.home}' and not at '{less.block.home}'"
        if all(scope.block.flow != other.block.flow for other in others):
            others.append(scope)


def _lacks(scope: Scope, other: Scope, varies: set[str]) -> bool:
    """Whether an element has less than another, and not parts of another kind: experts for a feed-forward, say."""
    more = other.block.roles.keys() - scope.block.roles.keys()
    return bool(more) and not more & varies and not scope.block.roles.keys() - other.block.roles.keys()


def _filled(scope: Scope) -> dict[str, str]:
    """The slots of a block's flow that are not left out, each with its step."""
    # A row may leave a slot out for its own reason, with a step such as `empty_attention`.
    return {item.slot: item.step for item in scope.block.slots if not item.step.startswith(EMPTY)}


def _has_leaves(value: Leaf | Block | list[Block] | list[Leaf]) -> bool:
    item = value[0] if isinstance(value, list) else value
    return isinstance(item, Leaf) or next(item.leaves(), None) is not None


def _first_leaf(value: Leaf | Block | list[Block] | list[Leaf]) -> Place:
    item = value[0] if isinstance(value, list) else value
    return next(item.leaves()).place if isinstance(item, Block) else item.place
