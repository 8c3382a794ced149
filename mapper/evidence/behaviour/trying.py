"""Which answers to the questions of a reading make the model speak best: fact by fact, until no other answer is better.

All questions have some answer while one is asked; an answer that is better takes its place at once. At the end a fact is
settled only if every other value that could be tried is worse beyond doubt; all else stays a question.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from mapper._build import build_architecture
from mapper.architecture import Architecture, Question
from mapper.emission import emit
from mapper.errors import ArchitectureError, HintError, MapperError, SourceError
from mapper.evidence.behaviour.passage import PASSAGE
from mapper.evidence.behaviour.voices import Voice, hear, voice_of
from mapper.evidence.found import Found
from mapper.inference.infer import infer
from mapper.rulebook.values import shown

SECONDS = 100.0  # for all candidates together
BYTES = 8e9  # of a model in 32-bit floats, at most
SURE = 4.0  # standard deviations between the parts of two candidates
STEP = 0.005  # by which a mean must be lower for an answer to take the other's place
LONG_STEP = 0.2  # of a number, which is not settled: all else would be tried again
ROUNDS = 8  # answers may raise questions
OPEN = ("number", "positive", "amount", "share")  # facts of these types could have any other value

Answers = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """What came of one value of one fact, all other answers as they were at the end."""

    fact: str
    value: Any
    parts: torch.Tensor | None = field(default=None, repr=False)  # None: it could not be tried
    why: str = ""  # it could not
    is_impossible: bool = False  # the checkpoint contradicts it
    is_asking: bool = False  # it raises a question without candidates

    @property
    def score(self) -> float | None:
        """The mean of all parts."""
        return None if self.parts is None else float(self.parts.mean())


@dataclass
class Tried:
    """What trying found."""

    what: str = ""  # how models were judged; "" where they cannot be
    trials: dict[str, list[Trial]] = field(default_factory=dict)  # by fact, the best first
    found: dict[str, Found] = field(default_factory=dict)
    is_whole: bool = True  # whether there was time for all


class _Unknown(Exception):
    """Something is asked that has no candidates."""


def attempt(
    architecture: Architecture,
    text: str = PASSAGE,
    seconds: float = SECONDS,
    tell: Callable[[str, float], None] = lambda what, part: None,
) -> Tried:
    """Try all answers to the questions of a reading. `tell` is told the fact at hand, and the share of the time that is gone.

    Raises SourceError for what is too large to be tried.
    """
    if architecture.checkpoint.read is None or not architecture.questions:
        return Tried()
    size = 4 * architecture.checkpoint.parameters
    if size > BYTES:
        raise SourceError(
            f"{architecture.checkpoint.source}: {size / 1e9:.0f} GB in 32-bit floats, at most {BYTES / 1e9:.0f} are tried"
        )
    return _Search(architecture, text, seconds, tell).run()


class _Search:
    """Answers so far, and what was heard with each set of them."""

    def __init__(
        self, architecture: Architecture, text: str, seconds: float, tell: Callable[[str, float], None]
    ):
        checkpoint = architecture.checkpoint
        self.first = replace(architecture, checkpoint=replace(checkpoint, read=_kept(checkpoint.read)))
        self.text, self.tell = text, tell
        self.start, self.seconds = time.monotonic(), seconds
        self.voice: Voice | None = None
        self.heard: dict[str, Trial] = {}  # by all answers
        self.by_text: dict[
            str, torch.Tensor
        ] = {}  # parts by source: several answers may come to the same model
        self.read_already: dict[str, Architecture] = {}  # by all answers
        self.questions: dict[str, Question] = {}  # that are asked with the best answers so far

    def run(self) -> Tried:
        """Every question with all of its candidates, until a whole round changes nothing."""
        try:
            answers = self.complete({})
        except (_Unknown, MapperError):
            return Tried()
        answers, is_whole = self.improved(answers)
        if self.voice is None:
            return Tried()
        questions = self.questions
        trials = {
            name: self.trials(name, question, answers, only_heard=not is_whole)
            for name, question in questions.items()
        }
        is_sense = (
            min((row.score for rows in trials.values() for row in rows if row.score is not None), default=1e9)
            < self.voice.most
        )
        found = {
            name: self.settled(rows, questions[name]) if is_sense else None for name, rows in trials.items()
        }
        sure = {name: item for name, item in found.items() if item}
        return Tried(self.voice.what, trials, sure, is_whole)

    def improved(self, answers: Answers) -> tuple[Answers, bool]:
        """The answers of which none can be bettered alone, and whether there was time to see that."""
        unchanged, at = 0, 0
        while True:
            names = [name for name, question in self.questions.items() if len(self.values(question)) > 1]
            if unchanged >= len(names):
                return answers, True
            name = names[at % len(names)]
            at += 1
            rows = self.trials(name, self.questions[name], answers)
            if self.voice is None or self.is_late():
                return answers, False
            own = next(row for row in rows if row.value == answers[name])
            best = rows[0]
            unchanged += 1
            step = LONG_STEP if self.is_open(self.questions[name]) else STEP
            if best.score is not None and (own.score is None or best.score < own.score - step):
                answers, unchanged = self.complete({**answers, name: best.value}), 0

    def is_late(self) -> bool:
        return time.monotonic() - self.start > self.seconds

    def values(self, question: Question) -> list[Any]:
        """What is tried of a fact: what could be, and what its rule names."""
        rules = self.first.rulebook.config_vocabulary.facts.get(question.fact, ())
        more = next((rule.tried for rule in rules if rule.tried), ())
        return list({json.dumps(value): value for value in (*question.candidates, *more)}.values())

    def trials(
        self, name: str, question: Question, answers: Answers, only_heard: bool = False
    ) -> list[Trial]:
        """All values of a fact, the best first, then those that could not be tried."""
        rows = [self.trial(name, value, answers, only_heard) for value in self.values(question)]
        return sorted(_in_common(rows), key=lambda row: float("inf") if row.score is None else row.score)

    def trial(self, name: str, value: Any, answers: Answers, only_heard: bool) -> Trial:
        """One value of a fact, heard once for the same other answers."""
        said = {**answers, name: value}
        key = json.dumps(said, sort_keys=True)
        if key not in self.heard:
            if only_heard or self.is_late():
                return Trial(name, value, why="no time was left")
            self.tell(name, (time.monotonic() - self.start) / self.seconds)
            self.heard[key] = self.first_heard(name, value, said)
        return replace(self.heard[key], fact=name, value=value)

    def first_heard(self, name: str, value: Any, said: Answers) -> Trial:
        """With the other answers; where these do not go with the value, with others that do: all that follow, or a flag turned."""
        first = self.listen(name, value, said, self.questions)
        if first.parts is not None or first.is_asking or self.voice is None:
            return first
        flags = [
            other
            for other, answer in said.items()
            if isinstance(answer, bool) and other != name and _last(other) == _last(name)
        ]
        turned: list[tuple[Answers, Mapping[str, Question]]] = [(said, {})]
        turned += [({**said, other: not said[other]}, self.questions) for other in flags]
        others = (self.listen(name, value, answers, questions) for answers, questions in turned)
        return next((trial for trial in others if trial.parts is not None), first)

    def listen(self, name: str, value: Any, said: Answers, questions: Mapping[str, Question]) -> Trial:
        """Build the model of these answers and hear it."""
        try:
            architecture, _, _ = self.reading(said, questions, name)
            self.voice = self.voice or voice_of(architecture, self.text)
            if self.voice is None:
                return Trial(name, value, why="nothing that it gives can be judged")
            text = emit(architecture)
            if text not in self.by_text:
                model = build_architecture(architecture, torch.float32, text=text)
                self.by_text[text] = hear(self.voice, model)
            return Trial(name, value, self.by_text[text])
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
            new = {
                name: self.answer(question, answers) for name, question in asked.items() if name not in said
            }
            said |= new
            architecture = self.read(said)
            fresh = {item.name: item for item in architecture.questions if item.name not in said}
            if not fresh:
                if architecture.missing:
                    raise ArchitectureError(architecture.missing[0])
                return architecture, said, asked
            asked |= fresh
        raise _Unknown("one answer raises the next question")

    def answer(self, question: Question, answers: Answers) -> Any:
        """What is said of a question."""
        values = self.values(question)
        if question.name in answers and answers[question.name] in values:
            return answers[question.name]
        if not values:
            raise _Unknown(str(question))
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

    def settled(self, rows: list[Trial], question: Question) -> Found | None:
        """The best value, if all others that could be are worse beyond doubt, and all could be tried."""
        assert self.voice is not None
        others = [row for row in rows[1:] if not row.is_impossible]
        best = rows[0]
        if (
            self.is_open(question)
            or best.parts is None
            or not others
            or any(row.parts is None for row in others)
        ):
            return None
        if not all(_is_better(best, row, self.voice.least) for row in others):
            return None
        next_best = others[0]
        return Found(
            best.value,
            "behaviour",
            f"{self.voice.what} {best.score:.3g} against {next_best.score:.3g} for {shown(next_best.value)}",
        )


def _last(name: str) -> str:
    """What a fact is called without its block: `rotary` of a tower is that of its attention, too."""
    return name.rpartition(".")[2].rpartition(":")[2]


def _in_common(rows: list[Trial]) -> list[Trial]:
    """The trials with those parts alone that all that were heard have been asked."""
    heard = [row.parts for row in rows if row.parts is not None]
    if not heard:
        return rows
    common = torch.stack(heard).isfinite().all(0)
    return [row if row.parts is None else replace(row, parts=row.parts[common]) for row in rows]


def _is_better(best: Trial, other: Trial, least: float) -> bool:
    """Whether a trial is better than another beyond doubt: by so much in the mean, and part by part."""
    if best.parts is None or other.parts is None:
        return other.parts is None and best.parts is not None
    apart = other.parts - best.parts
    mean, error = float(apart.mean()), float(apart.std()) / len(apart) ** 0.5
    return mean >= least and mean >= SURE * error


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
