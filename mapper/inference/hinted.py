"""A reading with what the user said: each hint must go with the checkpoint, and something in the model must rest on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from mapper.architecture import Architecture
from mapper.errors import ArchitectureError, HintError, listed, shorten
from mapper.rulebook.facts import TYPE
from mapper.words import close_to

Hints = Mapping[str, Any]
Read = Callable[[Hints], Architecture]
Better = Callable[[Hints, Architecture], Architecture]  # of hints without one, and what was read with it

_NAMED = 6  # facts that are read instead
_LAYERS = "chain."  # facts of networks of layers that no family knows
_WHOLE = "*"  # where a fact of a whole list is said to be read


def read_with_hints(hints: Hints, read: Read, better: Better) -> Architecture:
    """The reading with the hints. Raises HintError for one that costs the family or the flows, or that nothing reads.

    `better` reads the same, but no further than to see that it is no better.
    A hint is what a user says of a checkpoint, and may be wrong: what contradicts it is never held against a family.
    """
    try:
        told = read(hints)
    except ArchitectureError as error:
        _refuse_costly(hints, lambda said, _: read(said), None, error.in_command())
        raise
    is_poor = told.reading == "skeleton" or told.family is None
    asked = _asked(read, hints) if is_poor or told.unheard else {}
    if is_poor:
        answers = {key for key, value in hints.items() if _is_among(value, asked.get(key))} | _of_layers(
            hints, told
        )
        why = next(iter([*told.missing, *told.findings]), "no flow fits")
        _refuse_costly(hints, better, told, why, answers)
    for source, key in told.unheard.items():
        if key in asked or _is_known(told, key, hints[key]):  # another answer has settled it, or it is known
            continue
        try:
            without = read(_but(hints, key))
        except (ArchitectureError, HintError):
            continue  # without it nothing is read: it says something
        if _gist(without) == _gist(told):
            if told.reading != "skeleton":
                raise HintError(f"{source} says nothing here: {_unread(key, told)}", **_named(key))
            told.findings.append(f"{source} is read by nothing, as long as no flow fits")
    return told


def _asked(read: Read, hints: Hints) -> dict[str, Sequence[Any]]:
    """What is asked of whoever says nothing, and then of whoever answers that, until nothing more is; and its answers.

    By both names that a place has: `decoder:rotary` and `model.decoder:rotary`.
    """
    asked: dict[str, Sequence[Any]] = {}
    before = -1
    with suppress(ArchitectureError, HintError):
        while len(asked) != before and not asked.keys() >= hints.keys():
            before = len(asked)
            said = {name: value for name, value in hints.items() if name in asked}
            for question in read(said).questions:
                for name in (question.name, f"{question.at}:{question.fact}"):
                    asked.setdefault(name, question.candidates)
    return asked


def _refuse_costly(
    hints: Hints,
    read: Callable[..., Architecture],
    told: Architecture | None,
    why: str,
    answers: Collection[str] = (),
) -> None:
    """HintError for the first hint without which the checkpoint reads better, unless it is an answer to what is asked.

    To try one takes as long as a reading: those that are known to be `answers` are left out.
    """
    for key in (key for key in hints if key not in answers):
        try:
            without = read(_but(hints, key), told)
        except (ArchitectureError, HintError):
            continue
        if _is_worse(told, without) and not (told and _answers(without, key, hints[key])):
            better = f"family {shorten(without.family)}" if without.family else f"{without.reading}"
            raise HintError(
                f"--set {key}={shorten(str(hints[key]))[1:-1]} does not go with this checkpoint: {why}; without it: {better}",
                **_named(key),
            )


def _of_layers(hints: Hints, told: Architecture) -> set[str]:
    """Hints that a network of layers alone has a use for: none of them costs a family, as it is read where none fits."""
    if told.reading == "skeleton":
        return set()
    unheard = set(told.unheard.values())
    return {key for key in hints if key.rpartition(":")[2].startswith(_LAYERS) and key not in unheard}


def _answers(architecture: Architecture, key: str, value: Any) -> bool:
    """Whether a hint is one of the answers to something that is asked."""
    among = [question.candidates for question in architecture.questions if question.name == key]
    return any(_is_among(value, values) for values in among)


def _is_known(architecture: Architecture, key: str, value: Any) -> bool:
    """Whether a network without a family has what a hint says at every place that it is for."""
    at, _, name = key.rpartition(":")
    near = (fact for fact in architecture.facts if fact.name == name)
    facts = [fact for fact in near if _is_within(at, fact.at) or _is_within(fact.at, at)]
    is_said = all(_is_among(value, [_text(fact.value)]) for fact in facts)
    return architecture.family is None and bool(facts) and is_said


def _is_within(at: str, place: str) -> bool:
    """Whether a place is another one or below it; "" and "*" are everywhere."""
    return place in ("", "*") or f"{at}.".startswith(f"{place}.")


def _is_among(value: Any, candidates: Sequence[Any] | None) -> bool:
    """Whether a value is one of the answers to a question, any where it has none; None: nothing is asked."""
    if candidates is None:
        return False
    return not candidates or value in candidates or str(value) in map(_text, candidates)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _named(key: str) -> dict[str, str]:
    """The fields of an error about a hint."""
    at, _, name = key.rpartition(":")
    return {"fact": name, "at": at}


def _is_worse(told: Architecture | None, without: Architecture) -> bool:
    """Whether a reading is no model where there is one without a hint, or else lacks the family."""
    if told is None:
        return True
    is_model, was_model = told.reading != "skeleton", without.reading != "skeleton"
    if is_model != was_model:
        return was_model
    return told.family is None and without.family is not None


def _but(hints: Hints, key: str) -> Hints:
    return {name: value for name, value in hints.items() if name != key}


def _gist(architecture: Architecture) -> object:
    """What a reading comes to: flows, facts, inputs, what is missing, and what speaks against it."""
    flows = [
        (str(block.home), block.role, block.flow)
        for block in (architecture.root, *architecture.root.blocks())
    ]
    facts = [(fact.name, fact.at, repr(fact.value)) for fact in architecture.facts]
    doubts = (architecture.missing, architecture.findings)
    return architecture.family, flows, facts, architecture.inputs, doubts


def _unread(key: str, told: Architecture) -> str:
    """Why a hint says nothing, and which facts the model reads instead."""
    at, _, name = key.rpartition(":")
    read = [fact.at for fact in told.facts if fact.name == name]
    places = [at for at in (*read, *(one.at for one in told.questions if one.name == name)) if at != _WHOLE]
    if read or places:
        where = f"{shorten(at)} does not read {name}" if at else f"no part takes {name} from it"
        others = f"that is read at {listed(list(dict.fromkeys(places)), 3)}" if places else "other parts do"
        return f"{where}: {others}"
    if name == TYPE:
        return "it is read as that type already"
    names = list(dict.fromkeys(fact.name for fact in told.facts))
    topic = [other for other in names if other.partition(".")[0] == name.partition(".")[0]]
    near = list(dict.fromkeys([*close_to(name, names, 3), *topic])) or names
    return f"nothing in this model reads {name}; it reads {', '.join(near[:_NAMED])}"
