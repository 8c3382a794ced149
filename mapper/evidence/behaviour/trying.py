"""Which answers to the questions of a reading make the model speak best: fact by fact, until no other answer is better.

All questions have some answer while one is asked; an answer that is better takes its place at once. At the end a fact is
settled only if every other value that could be tried is worse beyond doubt; where values do the same, the first is taken
as a default that says so; all else stays a question.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations, islice
from typing import Any

import torch

from mapper._build import build_architecture
from mapper.architecture import Architecture, Question
from mapper.emission import emit
from mapper.emission.origin import without_origin
from mapper.errors import ArchitectureError, HintError, MapperError
from mapper.evidence.behaviour.settling import (
    LIKELY,
    Trial,
    by_default,
    in_common,
    is_better,
    is_hopeless,
    is_near,
    ranked,
    settled,
)
from mapper.evidence.behaviour.voices import Judge, Voice, hear, voice_of
from mapper.evidence.found import Found
from mapper.flows import arithmetic
from mapper.inference.computed import sources
from mapper.inference.infer import infer
from mapper.rulebook.facts import FactRule

STEP = 0.005  # by which a mean must be lower for an answer to take the other's place
LONG_STEP = 0.2  # of a number, which is not settled: all else would be tried again
ROUNDS = 8  # answers may raise questions
JOINT = 24  # of them, one or two answers at once to what a value raises
LOOSE = 10.0  # times as much must other values be worse, where another fact may be wrong
TURNS = 3  # a longer text may lead to other answers, with which all is tried again
STARTS, CHANGES, OTHERS = (
    40,
    2,
    3,
)  # sets of answers to begin with; in each, answers that are not the first; of so many
UNKNOWN = 6  # of the first ones, that raise a question without candidates
OPEN = ("number", "positive", "amount", "share")  # facts of these types could have any other value

Answers = dict[str, Any]


@dataclass
class Tried:
    """What trying found."""

    what: str = ""  # how models were judged; "" where they cannot be
    trials: dict[str, list[Trial]] = field(default_factory=dict)  # by fact, the best first
    found: dict[str, Found] = field(default_factory=dict)
    is_whole: bool = True  # whether there was time for all
    is_sense: bool = False  # whether some reading is better than who knows how often each word is


class _Unknown(Exception):
    """Something is asked that has no candidates."""


def search(
    architecture: Architecture, text: str, seconds: float, tell: Callable[[str, float], None], device: str
) -> Tried:
    """What comes of all answers to the questions of a reading, judged as the first of them have its task."""
    return _Search(architecture, text, seconds, tell, device).run()


class _Search:
    """Answers so far, and what was heard with each set of them."""

    def __init__(
        self,
        architecture: Architecture,
        text: str,
        seconds: float,
        tell: Callable[[str, float], None],
        device: str,
    ):
        checkpoint = architecture.checkpoint
        self.first = replace(architecture, checkpoint=replace(checkpoint, read=_kept(checkpoint.read)))
        self.text, self.tell, self.device = text, tell, device
        self.start, self.seconds = time.monotonic(), seconds
        self.voice: Voice | None = None
        self.heard: dict[str, Trial] = {}  # by all answers
        self.by_text: dict[str, torch.Tensor] = {}  # by source: several answers may come to the same model
        self.by_further: dict[tuple[str, int], torch.Tensor] = {}  # the same of parts of a longer text
        self.built_of: dict[str, Architecture] = {}  # by source
        self.read_already: dict[str, Architecture] = {}  # by all answers
        self.questions: dict[str, Question] = {}  # that are asked with the best answers so far

    def run(self) -> Tried:
        """Every question with all of its candidates, until a whole round changes nothing."""
        answers = self.possible()
        if answers is None:
            return Tried()
        answers, is_whole = self.improved(answers)
        if self.voice is None:
            return Tried()
        trials, is_whole = self.nearer(answers, is_whole)
        questions = self.questions
        is_sense = (
            min((row.score for rows in trials.values() for row in rows if row.score is not None), default=1e9)
            < self.voice.most
        )
        found = {
            name: self.result(rows, questions[name], _is_loose(name, trials)) if is_sense else None
            for name, rows in trials.items()
        }
        sure = {name: item for name, item in found.items() if item}
        return Tried(self.voice.what, trials, sure, is_whole, is_sense)

    def possible(self) -> Answers | None:
        """Answers that go together: the first of each question, or with as few others as can be; None where none do."""
        others = [
            (question.name, value)
            for question in self.first.questions
            for value in self.values(question)[1:OTHERS]
        ]
        changes = (dict(some) for count in range(CHANGES + 1) for some in combinations(others, count))
        unknown = 0
        for answers in islice(changes, STARTS):
            try:
                return self.complete(answers)
            except _Unknown:
                unknown += 1
                if unknown > UNKNOWN:  # other answers lead no further
                    return None
            except MapperError:
                continue
        return None

    def improved(self, answers: Answers) -> tuple[Answers, bool]:
        """The answers of which none can be bettered alone, and whether there was time to see that."""
        unchanged, at = 0, 0
        while True:
            names = [name for name, question in self.questions.items() if len(self.values(question)) > 1]
            if unchanged >= len(names):
                better = self.together(answers)
                if better is None:
                    return answers, not self.is_late()
                answers, unchanged = better, 0
                continue
            name = names[at % len(names)]
            at += 1
            rows = self.trials(name, self.questions[name], answers)
            if self.voice is None or self.is_late():
                return answers, False
            own = next(row for row in rows if row.value == answers[name])
            best = rows[0]
            unchanged += 1
            is_slow = self.is_open(self.questions[name]) and not self.is_senseless(own)
            step = LONG_STEP if is_slow else STEP
            if self.is_worth(best, own, step) and (better := self.changed(answers, name, best.value)):
                answers, unchanged = better, 0

    def changed(self, answers: Answers, name: str, value: Any) -> Answers | None:
        """The answers with another one; None where the others must be others then."""
        try:
            return self.complete({**answers, name: value})
        except (_Unknown, MapperError):
            return None

    def nearer(self, answers: Answers, is_whole: bool) -> tuple[dict[str, list[Trial]], bool]:
        """All values of all facts, those that are near each other by a longer text, too; which may lead to other answers."""
        for turns_left in reversed(range(TURNS)):
            trials = {
                name: self.trials(name, question, answers, only_heard=not is_whole)
                for name, question in self.questions.items()
            }
            better: Answers | None = None
            near = [name for name, rows in trials.items() if is_whole and self.is_told_by_more(name, rows)]
            for name in near:
                trials[name] = rows = self.compared(name, trials[name])
                own = next(row for row in rows if row.value == answers[name])
                if turns_left and is_better(rows[0], own, STEP, LIKELY):
                    better = self.changed(answers, name, rows[0].value)
                if better is not None:  # which may ask other questions: all are heard again
                    break
            if better is None:
                break
            answers, is_whole = self.improved(better)
        return trials, is_whole

    def is_told_by_more(self, name: str, rows: Sequence[Trial]) -> bool:
        """Whether a longer text may tell these values apart."""
        return len(rows) > 1 and not self.is_open(self.questions[name])

    def compared(self, name: str, rows: list[Trial]) -> list[Trial]:
        """Values of a fact, the best first, where those that the text did not tell apart have read more and more of another."""
        assert self.voice is not None
        heard: dict[str, list[torch.Tensor]] = {}
        left = [row for row in rows if row.parts is not None]
        for at, judge in enumerate(self.voice.further):
            left = [row for row in left if not is_better(left[0], row, self.voice.least)]
            others = [row for row in left if row.source != left[0].source]
            if self.is_late() or all(is_hopeless(left[0], row, self.voice.least) for row in others):
                break
            self.tell(name, (time.monotonic() - self.start) / self.seconds)
            for row in left:
                if len(heard.setdefault(row.source, [])) <= at:
                    heard[row.source] += [self.hear_more(row.source, at, judge)]
            read = torch.stack([torch.cat(heard[row.source]) for row in left])
            read[:, ~read.isfinite().all(0)] = torch.nan  # what one was not asked
            left = ranked([replace(row, further=parts) for row, parts in zip(left, read, strict=True)])
            by_value = {json.dumps(row.value): row for row in left}
            rows = [by_value.get(json.dumps(row.value), row) for row in rows]
        return ranked(rows)

    def hear_more(self, source: str, at: int, judge: Judge) -> torch.Tensor:
        """What a model says of a part of a longer text, a number for each row."""
        assert self.voice is not None
        if (source, at) not in self.by_further:
            model = build_architecture(self.built_of[source], torch.float32, self.device)
            self.by_further[source, at] = hear(self.voice, model, judge)
        return self.by_further[source, at]

    def together(self, answers: Answers) -> Answers | None:
        """Better answers, where a value raises questions of its own, whose first answers may hide that it is right."""
        if self.voice is None:
            return None
        own = self.listen("", None, answers, self.questions)
        for name, question in list(self.questions.items()):
            for value in self.values(question):
                plain = self.trial(name, value, answers, only_heard=False)
                if not is_near(own, plain):
                    continue
                tried = [
                    (self.listen(name, value, said, asked), said)
                    for said, asked in self.joint(name, value, answers)
                    if not self.is_late()
                ]
                heard = [pair for pair in tried if pair[0].score is not None]
                best, said = min(heard, key=lambda pair: pair[0].score or 0.0, default=(None, answers))
                if best is not None and self.is_worth(best, own, STEP):
                    return self.changed(said, name, value)
        return None

    def joint(
        self, name: str, value: Any, answers: Answers
    ) -> Iterator[tuple[Answers, Mapping[str, Question]]]:
        """Answers with another value and one or two answers to what it raises; none where it raises nothing."""
        try:
            _, said, questions = self.reading({**answers, name: value}, {}, name)
        except (_Unknown, MapperError):
            return
        fresh = [other for other in questions if other not in self.questions]
        others = [
            (other, one) for other in fresh for one in self.values(questions[other]) if one != said[other]
        ]
        some = (dict(pairs) for count in (1, 2) for pairs in combinations(others, count))
        yield from (({**said, **changes}, questions) for changes in islice(some, JOINT))

    def is_worth(self, best: Trial, own: Trial, step: float) -> bool:
        """Whether an answer takes the other's place: likely better, or better at all while the model makes no sense yet."""
        assert self.voice is not None
        if best.score is None or own.score is None:
            return best.score is not None
        if best.score > self.voice.most:
            return best.score < own.score - step
        return is_better(best, own, step, LIKELY)

    def is_senseless(self, row: Trial) -> bool:
        """Whether a model is no better than who knows how often each word is in the text."""
        assert self.voice is not None
        return row.score is None or row.score > self.voice.most

    def is_late(self) -> bool:
        return time.monotonic() - self.start > self.seconds

    def values(self, question: Question) -> list[Any]:
        """What is tried of a fact: what could be, and what its rule names."""
        rules = self.first.rulebook.config_vocabulary.facts.get(question.fact, ())
        rule = next((rule for rule in rules if rule.tried), None)
        more = _worked_out(rule, self.first) if rule else ()
        return list({json.dumps(value): value for value in (*question.candidates, *more)}.values())

    def trials(
        self, name: str, question: Question, answers: Answers, only_heard: bool = False
    ) -> list[Trial]:
        """All values of a fact, the best first, then those that could not be tried."""
        rows = [self.trial(name, value, answers, only_heard) for value in self.values(question)]
        return ranked(in_common(rows))

    def trial(self, name: str, value: Any, answers: Answers, only_heard: bool) -> Trial:
        """One value of a fact, heard once for the same other answers."""
        said = {**answers, name: value}
        key = json.dumps(said, sort_keys=True)
        if key not in self.heard:
            if only_heard or self.is_late():
                return Trial(name, value, why="no time was left", is_late=True)
            self.tell(name, (time.monotonic() - self.start) / self.seconds)
            self.heard[key] = self.first_heard(name, value, said)
        return replace(self.heard[key], fact=name, value=value)

    def first_heard(self, name: str, value: Any, said: Answers) -> Trial:
        """With the other answers; where these do not go with the value, with others that do.

        Those are all that follow, and what is near.
        """
        first = self.listen(name, value, said, self.questions)
        if first.parts is not None or first.is_asking or self.voice is None:
            return first
        turned: list[tuple[Answers, Mapping[str, Question]]] = [(said, {})]
        turned += [({**said, other: answer}, self.questions) for other, answer in self.near(name, said)]
        others = (self.listen(name, value, answers, questions) for answers, questions in turned)
        return next((trial for trial in others if trial.parts is not None), first)

    def near(self, name: str, said: Answers) -> Iterator[tuple[str, Any]]:
        """Other answers to what goes with a fact: a flag of its name turned, and facts that one is calculated from the other."""
        for other, answer in said.items():
            if other == name or other not in self.questions:
                continue
            if isinstance(answer, bool) and _last(other) == _last(name):
                yield other, not answer
            elif self.is_calculated(name, other) or self.is_calculated(other, name):
                values = self.values(self.questions[other])
                yield from ((other, value) for value in values if value != answer)

    def is_calculated(self, name: str, other: str) -> bool:
        """Whether a fact may be calculated from another."""
        rules = self.first.rulebook.config_vocabulary.facts.get(_fact(name), ())
        return any(_fact(other) in sources(rule) for rule in rules)

    def listen(self, name: str, value: Any, said: Answers, questions: Mapping[str, Question]) -> Trial:
        """Build the model of these answers and hear it."""
        try:
            architecture, _, _ = self.reading(said, questions, name)
            self.voice = self.voice or voice_of(architecture, self.text)
            if self.voice is None:
                return Trial(name, value, why="nothing that it gives can be judged")
            text = emit(architecture)
            source = hashlib.sha256(without_origin(text).encode()).hexdigest()
            if source not in self.by_text:
                model = build_architecture(architecture, torch.float32, self.device, text=text)
                self.by_text[source] = hear(self.voice, model)
                self.built_of[source] = architecture
            return Trial(name, value, self.by_text[source], source)
        except _Unknown as error:
            return Trial(name, value, why=str(error), is_asking=True)
        except (ArchitectureError, HintError) as error:
            return Trial(name, value, why=error.in_command(), is_impossible=True)
        except Exception as error:  # whatever stops a model of a wrong reading, it is no answer
            return Trial(name, value, why=f"{type(error).__name__}: {error}")

    def complete(self, answers: Answers) -> Answers:
        """An answer to every question, those given where they are possible; notes the questions."""
        _, said, self.questions = self.reading(answers, {})
        return said

    def reading(
        self, answers: Answers, questions: Mapping[str, Question], kept: str = ""
    ) -> tuple[Architecture, Answers, dict[str, Question]]:
        """The architecture with these answers, and what it asks; others are the first that is possible.

        `questions` are those that are asked with much the same answers, `kept` is said whatever could be. Raises _Unknown,
        MapperError.
        """
        asked = {question.name: question for question in self.first.questions} | dict(questions)
        said: Answers = {}
        for _ in range(ROUNDS):
            said |= {name: self.answer(asked[name], answers) for name in self.first_of(asked, said, kept)}
            architecture = self.read(said)
            fresh = {item.name: item for item in architecture.questions if item.name not in said}
            if not fresh:
                if architecture.missing:
                    raise ArchitectureError(architecture.missing[0])
                return architecture, said, {name: item for name, item in asked.items() if name in said}
            if not any(map(self.values, fresh.values())):  # no other answer has settled it
                raise _Unknown(str(next(iter(fresh.values()))))
            asked |= fresh
            asked = {name: item for name, item in asked.items() if name in said or name in fresh}
        raise _Unknown("one answer raises the next question")

    def first_of(self, asked: Mapping[str, Question], said: Answers, kept: str) -> list[str]:
        """What is answered now: what is calculated from another question waits, as an answer to that may answer it."""
        left = [name for name, question in asked.items() if name not in said and self.values(question)]
        return [
            name
            for name in left
            if name == kept or not any(self.is_calculated(name, other) for other in left if other != name)
        ] or left

    def answer(self, question: Question, answers: Answers) -> Any:
        """What is said of a question."""
        values = self.values(question)
        if question.name in answers and answers[question.name] in values:
            return answers[question.name]
        return values[0]

    def read(self, said: Mapping[str, Any]) -> Architecture:
        """The reading with these answers; each is made once."""
        key = json.dumps(said, sort_keys=True)
        if key not in self.read_already:
            origin = self.first.origin
            hints = {name: Found(value, "behaviour", "tried").as_hint() for name, value in said.items()}
            self.read_already[key] = infer(
                self.first.checkpoint,
                self.first.rulebook,
                hints=origin.hints,
                use_families=origin.families,
                found=hints,
            )
        return self.read_already[key]

    def is_open(self, question: Question) -> bool:
        """Whether a fact could have any other value than those that are tried, or is none that behaviour tells."""
        rules = self.first.rulebook.config_vocabulary.facts.get(question.fact, ())
        return any(rule.type in OPEN or rule.untold for rule in rules)

    def is_untold(self, question: Question) -> bool:
        """Whether it is none that behaviour tells."""
        rules = self.first.rulebook.config_vocabulary.facts.get(question.fact, ())
        return any(rule.untold for rule in rules)

    def result(self, rows: list[Trial], question: Question, is_loose: bool) -> Found | None:
        """A value that is right beyond doubt, or one by default, where nothing tells it from others.

        Where all else may be wrong (`is_loose`) more is beyond doubt.
        """
        assert self.voice is not None
        sure = None if self.is_open(question) else settled(rows, self.voice, LOOSE if is_loose else 1.0)
        return sure or by_default(rows, self.values(question), self.voice, self.is_untold(question))


def _is_loose(name: str, trials: Mapping[str, Sequence[Trial]]) -> bool:
    """Whether another fact has a value that nobody could try: what is best with a wrong one need not be right."""
    return any(row.is_asking for other, rows in trials.items() if other != name for row in rows)


def _worked_out(rule: FactRule, architecture: Architecture) -> Iterator[Any]:
    """What a rule names to be tried; of a number a text is arithmetic over sizes of the model, left out where one is unknown."""
    sizes = {fact.name: fact.value for fact in architecture.facts if type(fact.value) is int}
    for value in rule.tried:
        if rule.type not in OPEN or not isinstance(value, str):
            yield value
            continue
        with suppress(KeyError, ValueError):
            yield arithmetic.evaluate(arithmetic.parse_rule(value, rule.file, rule.line), sizes)


def _fact(name: str) -> str:
    """What a fact is called everywhere."""
    return name.rpartition(":")[2]


def _last(name: str) -> str:
    """What a fact is called without its block: `rotary` of a tower is that of its attention, too."""
    return name.rpartition(".")[2].rpartition(":")[2]


def _kept(read: Any) -> Callable[[Iterable[str]], dict[str, torch.Tensor]]:
    """A way to read tensors that reads each once: all candidates have the same."""
    kept: dict[str, torch.Tensor] = {}

    def by_name(names: Iterable[str]) -> dict[str, torch.Tensor]:
        names = list(names)
        if lacking := [name for name in names if name not in kept]:
            kept.update({name: _wide(tensor) for name, tensor in read(lacking).items()})
        return {name: kept[name] for name in names}

    return by_name


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor
