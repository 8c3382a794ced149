"""Each model type of a folder of checkpoints as if nobody had ever met it: what is equal, wrong, asked, not built."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from renamed import Truth, truth_of
from striking import Struck
from usage import FACT, FIELD, ROW, Key, Recorder, fields_of

from mapper._api import _read as read_checkpoint
from mapper.architecture import Architecture, Question
from mapper.errors import MapperError
from mapper.inference import infer
from mapper.rulebook.declared import FLOW
from mapper.rulebook.rulebook import Rulebook
from mapper.sources import open_source

Hints = dict[str, Any]
Case = tuple[Path, str]  # a checkpoint and its model type
EQUAL, WRONG, ASKED, SKELETON, REFUSED = OUTCOMES = (
    "equal",
    "built and wrong",
    "asked",
    "skeleton",
    "refused",
)
_WORST_FIRST = (WRONG, REFUSED, SKELETON, ASKED, EQUAL)
Listed = tuple[Architecture, Truth]  # a complete reading with its row, and its facts
_ROUNDS = 6  # of questions and answers: what is answered may raise others
OFFSET = "norm.offset"  # a fact that a listed reading has as the form of its norms
GATE_LAST = "feed_forward.gate_last"  # a fact that a listed reading has as the roles of two maps


@dataclass(frozen=True)
class Fared:
    """One checkpoint without what serves its type alone."""

    score: Any  # score.Score
    answers: Hints = field(default_factory=dict)  # what the listed reading says to the questions
    told: Any = None  # the score with these answers; None where nothing was asked, or nobody knows

    @property
    def outcome(self) -> str:
        """What is not built, and is built with the answers, is asked for them."""
        alone = outcome(self.score)
        return ASKED if self.told is not None and outcome(self.told) in (EQUAL, WRONG) else alone

    def document(self) -> dict[str, Any]:
        return {
            "name": self.score.name,
            "outcome": self.outcome,
            "reading": self.score.reading,
            "trouble": self.score.trouble,
            "missing": list(self.score.missing),
            "answers": self.answers,
            "told": None if self.told is None else outcome(self.told),
            "told_trouble": None if self.told is None else self.told.trouble,
        }


@dataclass(frozen=True)
class Left:
    """One type: what was taken out of the rules for it, and how its checkpoints fared then."""

    model_type: str
    taken: tuple[str, ...]
    cases: tuple[Fared, ...]

    @property
    def outcome(self) -> str:
        """The worst of its checkpoints."""
        return min((case.outcome for case in self.cases), key=_WORST_FIRST.index)

    @property
    def is_right_when_told(self) -> bool:
        """Whether answers are all that its checkpoints lack."""
        every = [EQUAL if case.told is None else outcome(case.told) for case in self.cases]
        return self.outcome == ASKED and set(every) == {EQUAL} and any(case.told for case in self.cases)

    def document(self) -> dict[str, Any]:
        cases = [case.document() for case in self.cases]
        return {"type": self.model_type, "outcome": self.outcome, "taken": list(self.taken), "cases": cases}


def outcome(item: Any) -> str:
    """One of OUTCOMES for a score; what is built and stumbles over its inputs is wrong."""
    if item.reading in ("exact", "unverified"):
        return WRONG if item.trouble else EQUAL
    return ASKED if item.is_asked else item.reading


def tally(found: Sequence[Left]) -> str:
    """How many types fared how, and how much of what was built is right."""
    count = Counter(left.outcome for left in found)
    built = count[EQUAL] + count[WRONG]
    told = sum(left.is_right_when_told for left in found)
    more = {ASKED: f" ({told} equal when told)"}
    rows = [f"{count[name]} {name}{more.get(name, '')}" for name in OUTCOMES]
    share = f" ({count[EQUAL] / built:.0%})" if built else ""
    return (
        f"left out, of {len(found)} types: {', '.join(rows)}; of {built} built, {count[EQUAL]} right{share}"
    )


def leave_one_out(
    cases: Sequence[Case], score: Callable[..., Any], only: set[str], rulebook: Rulebook | None = None
) -> Iterator[Left]:
    """Each type, in order; `only` some, if any are named."""
    rulebook = rulebook or Rulebook()
    recorder, known = recorded(cases, rulebook)
    by_type: dict[str, list[Path]] = defaultdict(list)
    for path, model_type in cases:
        by_type[model_type].append(path)
    for model_type in sorted(only & by_type.keys() if only else by_type):
        taken = recorder.alone(model_type) | {(ROW, model_type)}
        struck = Struck(rulebook, taken)
        with struck.in_force():
            fared = tuple(
                _fared(path, model_type, score, struck, known.get(path)) for path in by_type[model_type]
            )
        yield Left(model_type, tuple(sorted(map(recorder.label, taken))), fared)


def _fared(
    path: Path, model_type: str, score: Callable[..., Any], rules: Rulebook, known: Listed | None
) -> Fared:
    """A checkpoint as these rules read it, and where that asks, as they read it with the answers that are known."""
    first = score(path, model_type, lambda path: read(path, rules))
    answers = _answers(path, rules, known) if known and outcome(first) in (ASKED, SKELETON, REFUSED) else {}
    told = score(path, model_type, lambda path: read(path, rules, answers)) if answers else None
    return Fared(first, answers, told)


def _answers(path: Path, rules: Rulebook, known: Listed) -> Hints:
    """What a listed reading says to all that is asked, one round after another; {} where something stays open.

    An answer may show that another question has no place, as that of another flow: what has no answer is asked again.
    """
    answers: Hints = {}
    try:
        for _ in range(_ROUNDS):
            questions = read(path, rules, answers).questions
            if not questions:
                return answers
            more: Hints = {}
            for question in questions:
                with suppress(LookupError):
                    more |= _said(known, question)
            if all(name in answers and answers[name] == value for name, value in more.items()):
                return {}
            answers |= more
    except MapperError:
        return {}
    return {}


def _said(known: Listed, question: Question) -> Hints:
    """The answer to a question: from what the listed reading says, or would say of what it had no need to read. Raises LookupError."""
    architecture, truth = known
    if question.fact == FLOW and (flows := _flows(architecture, question)):
        return flows
    try:
        return {question.name: answer(architecture, question)}
    except LookupError:
        found = truth.answers(question)
        if not found:
            raise
        return found


def _flows(known: Architecture, question: Question) -> Hints:
    """The flow of each block that is asked about, one where they have the same; {} where they have none of these."""
    flows = {block.home: block.flow for block in known.root.blocks() if block.flow in question.candidates}
    there = {block.home: flows[block.home] for block in question.blocks if block.home in flows}
    if len(set(there.values())) == 1:
        return {question.name: next(iter(there.values()))}
    return {f"{home}:{FLOW}": flow for home, flow in there.items()}


def answer(known: Architecture, question: Question) -> Any:
    """What a reading says of a fact where it is asked for. Raises LookupError."""
    facts = [fact for fact in known.facts if fact.name == question.fact]
    there = [fact.value for fact in facts if fact.at == question.at] or [fact.value for fact in facts]
    if not there and question.fact == OFFSET:
        there = [any(leaf.form == "offset" for leaf in known.leaves)]
    if question.fact == FLOW:
        there = [one.flow for one in known.root.blocks() if one.flow in question.candidates]
    if question.fact == GATE_LAST and (gates := _roles_in_order(known)):
        there = [order == ["up", "gate"] for order in gates]
    if (
        len(question.blocks) > 1
    ):  # one value of all of them, or one for each: that is for who knows where each stands
        there += [fact.value for fact in facts]
    if not there or any(value != there[0] for value in there):
        raise LookupError(question.name)
    return there[0]


def _roles_in_order(known: Architecture) -> list[list[str]]:
    """Of each feed-forward network with a gate beside `up`: these roles, as the maps stand in the checkpoint."""
    orders: dict[Any, list[str]] = defaultdict(list)
    for leaf in known.leaves:
        if leaf.role in ("gate", "up") and leaf.block:
            orders[leaf.block].append(leaf.role)
    return [order for order in orders.values() if len(order) == 2]


def read(path: Path, rulebook: Rulebook, hints: Hints | None = None) -> Architecture:
    return read_checkpoint(open_source(str(path), purpose="weights"), hints or None, rulebook, True)


def recorded(cases: Sequence[Case], rulebook: Rulebook) -> tuple[Recorder, dict[Path, Listed]]:
    """What the readings of all cases take from the rules, and would take of what is for unlisted types; the complete ones."""
    known: dict[Path, Listed] = {}
    recorder = Recorder(rulebook)
    conventions = _conventions(rulebook)
    rowless: dict[str, Struck] = {}
    for path, model_type in cases:
        checkpoint = open_source(str(path), purpose="headers")
        try:
            with recorder.reading() as taken:
                architecture, truth = truth_of(checkpoint, rulebook)
        except MapperError:
            continue
        if architecture.reading != "skeleton":
            recorder.note(model_type, architecture, taken)
            known[path] = architecture, truth
        struck = rowless.setdefault(model_type, Struck(rulebook, {(ROW, model_type)}))
        try:
            with struck.in_force(), recorder.reading() as taken:
                infer(checkpoint, struck)
        except MapperError:
            pass  # what it took until then counts
        for key in taken & conventions:
            recorder.users[key].add(model_type)
    return recorder, known


def _conventions(rulebook: Rulebook) -> set[Key]:
    """The keys of what holds for unlisted types alone."""
    rules = [rule for rules in rulebook.config_vocabulary.unlisted.values() for rule in rules]
    fields = {(FIELD, id(rule), name) for rule in rules for name in fields_of(rule)}
    return fields | {(FACT, id(rule)) for rule in rules}
