"""What a checkpoint of a listed type asks under a type that no family lists, and what answers in truth make of it.

    python tools/renamed.py CHECKPOINTS                # every checkpoint of a folder, as tools/score.py has them
        --only bert t5                                 # these of them
        --towers                                       # the types of towers are renamed, too
        --words 1                                      # parts and maps have other usual words, drawn by this number

Each is read with nothing said, then with every question answered as its own type answers. What is built is run, and its
outputs are compared with those that are stored: "wrong" must be none, in either column.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from other_words import drawn, reworded  # noqa: E402

import mapper  # noqa: E402
from mapper.architecture import Architecture, Place, Question  # noqa: E402
from mapper.checkpoint import Checkpoint  # noqa: E402
from mapper.inference import outline  # noqa: E402
from mapper.inference.case import Case  # noqa: E402
from mapper.inference.facts import Facts  # noqa: E402
from mapper.inference.fields import IDLE  # noqa: E402
from mapper.inference.infer import infer  # noqa: E402
from mapper.inference.scopes import Scope, every_place  # noqa: E402
from mapper.inference.twins import KIND, OFFSET  # noqa: E402
from mapper.naming.vocabulary import Vocabulary  # noqa: E402
from mapper.rulebook.rulebook import Rulebook  # noqa: E402

UNHEARD = "unheard_of"
SCALED = ("RMSNorm", "LayerNorm")
ROUNDS = 6  # of questions: answers may raise others


@dataclass
class Truth:
    """The facts of a checkpoint as its listed type has them."""

    facts: Facts
    root: Scope

    def answers(self, question: Question) -> dict[str, Any]:
        """What `hints` say to a question; one for each place where the values differ, none where nobody knows."""
        name = question.fact
        if name in (OFFSET, KIND):
            return self._leaves(question)
        if name == IDLE:
            return self._idle(question)
        if said := self._at_places(question):
            return said
        used = [scope for scope, fact, _ in self.facts.used.values() if fact == name]
        inside = [scope for scope in used if _is_in(scope, question.part)]
        inside = inside or [
            scope for scope in (self.root, *self.root.below()) if _is_in(scope, question.part)
        ]
        found = [(scope, self.facts.get(scope, name)) for scope in inside]
        values = {repr(known.value): known.value for _, known in found if known and not known.problem}
        if not values and None in question.candidates:
            values = {"": None}
        if len(values) == 1:
            return {question.name: next(iter(values.values()))}
        said = {
            scope.block.home: known.value
            for scope, known in found
            if known and not known.problem and scope.block.home
        }
        return {f"{home}:{name}": value for home, value in said.items() if not _is_said_above(home, said)}

    def _idle(self, question: Question) -> dict[str, Any]:
        """The fields of which the listed type's family says that they change nothing: of those that it reads nobody can say so."""
        config, ignored = self.facts.config, self.facts.families.ignored()
        names = (name for listed in question.candidates for name in listed.split(","))
        idle = [name for name in names if config.is_idle(name, ignored)]
        return {question.name: ",".join(idle)} if idle else {}

    def _at_places(self, question: Question) -> dict[str, Any]:
        """The same, of what the listed reading has where the question is, or in a module there; {} unless it has that everywhere."""
        used = [scope for scope, fact, _ in self.facts.used.values() if fact == question.fact]
        said: dict[Place, Any] = {}
        for home in filter(None, (block.home for block in question.blocks)):
            there = [scope for scope in used if _is_at(scope.block.home, home)]
            found = [known for scope in there if (known := self.facts.get(scope, question.fact))]
            if len({repr(known.value) for known in found if not known.problem}) != 1:
                return {}
            said[home] = found[0].value
        if len(set(map(repr, said.values()))) == 1:
            return {question.name: next(iter(said.values()))}
        return {f"{home}:{question.fact}": value for home, value in said.items()}

    def _leaves(self, question: Question) -> dict[str, Any]:
        """Whether norms scale by 1 + weight, or which norms they are."""
        inside = [scope for scope in every_place(self.root) if _is_in(scope, question.part)]
        leaves = [leaf for scope in inside for leaf in scope.block.leaves() if leaf.kind in SCALED]
        said = {leaf.kind if question.fact == KIND else leaf.form == "offset" for leaf in leaves}
        return {question.name: said.pop()} if len(said) == 1 else {}


def _is_said_above(home: Place, said: dict[Place, Any]) -> bool:
    """Whether a place around this one has the same value."""
    return any(home != other and home.within(other) and said[home] == said[other] for other in said)


def _is_at(home: Place, place: Place) -> bool:
    """Whether a folded path stands for a folder that another stands for, or for a module in it."""
    return 0 <= len(home) - len(place) <= 1 and all(
        a == b or (isinstance(a, tuple) and isinstance(b, tuple) and not set(a).isdisjoint(b))
        for a, b in zip(home, place, strict=False)
    )


def _is_in(scope: Scope, part: str) -> bool:
    return not part or scope.matches(part) or (scope.tower is not None and scope.tower.block.role == part)


@dataclass
class Renamed:
    """One checkpoint under another type, each reading as it is and with answers."""

    listed: Architecture
    first: Architecture
    told: Architecture | None = None  # with answers
    hints: dict[str, Any] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)  # what nobody could answer
    error: str = ""


def truth_of(checkpoint: Checkpoint, rulebook: Rulebook) -> tuple[Architecture, Truth]:
    """The reading of a checkpoint as it is, and its facts."""
    kept: list[tuple[Facts, Scope]] = []
    plain = outline.known_facts

    def known_facts(case: Case, root: Scope, vocabulary: Vocabulary) -> Facts:
        kept.append((plain(case, root, vocabulary), root))
        return kept[-1][0]

    outline.known_facts = known_facts
    try:
        architecture = infer(checkpoint, rulebook)
    finally:
        outline.known_facts = plain
    return architecture, Truth(*kept[-1])


def renamed(
    checkpoint: Checkpoint, rulebook: Rulebook, towers: bool = False, words: Mapping[str, str] | None = None
) -> Renamed:
    """A checkpoint under a type that no family lists, with all of its questions answered as its own type answers.

    With `towers` their types are unknown, too; with `words` its modules are called otherwise.
    """
    listed, truth = truth_of(checkpoint, rulebook)
    unlisted = replace(checkpoint, config=_renamed(checkpoint.config or {}, towers))
    unlisted = reworded(unlisted, words) if words else unlisted
    made = Renamed(listed, infer(unlisted, rulebook))
    made.told = now = made.first
    for _ in range(ROUNDS):
        asked = [question for question in now.questions if question.name not in made.hints]
        if not asked:
            break
        made.open = []
        for question in asked:
            said = truth.answers(question)
            made.hints.update(said)
            made.open += [] if said else [str(question)]
        try:
            made.told = now = infer(unlisted, rulebook, hints=made.hints)
        except mapper.MapperError as error:
            made.error = str(error)
            break
    return made


def _renamed(config: dict[str, Any], towers: bool) -> dict[str, Any]:
    """A config that says another type: its own, and with `towers` that of each part that has one."""
    inside = {name: _part(value) for name, value in config.items()} if towers else {}
    return {**config, **inside, "model_type": UNHEARD}


def _part(value: Any) -> Any:
    return _renamed(value, True) if isinstance(value, dict) and "model_type" in value else value


OUTCOMES = ("equal", "wrong", "stumbles", "asked", "refused")


def outcome(path: Path, architecture: Architecture | None, error: str) -> tuple[str, str]:
    """What becomes of a reading, and why: one of OUTCOMES."""
    from score import differences, load_file, torch

    from mapper._build import build_architecture

    if architecture is None or error:
        return "refused", error
    if architecture.questions:
        return "asked", "; ".join(map(str, architecture.questions))
    if architecture.reading == "skeleton":
        return "refused", "; ".join(architecture.missing[:2]) or "no flow"
    try:
        model = build_architecture(architecture)
    except mapper.MapperError as refusal:
        return "refused", "; ".join(architecture.missing[:2]) or str(refusal)
    except Exception as stumble:  # as below: what is read completely is built
        return "stumbles", f"{type(stumble).__name__}: {stumble}"
    inputs, wanted = (load_file(path / f"{name}.safetensors") for name in ("inputs", "outputs"))
    torch.manual_seed(0)
    try:
        with torch.no_grad():
            made = model(**inputs)
    except Exception as stumble:  # a model may stumble over anything: that is what is found out
        return "stumbles", f"{type(stumble).__name__}: {stumble}"
    trouble = next(differences(made, wanted), "")
    return ("wrong" if trouble else "equal"), trouble


def fared(path: Path, rulebook: Rulebook, towers: bool, seed: str = "") -> Iterator[tuple[str, str]]:
    """What becomes of one checkpoint with nothing said, and with answers; with a seed, in other words."""
    from mapper.sources import open_source

    checkpoint = open_source(str(path), purpose="weights")
    words = drawn(checkpoint.tensors, f"{seed} {path.name}") if seed else {}
    try:
        made = renamed(checkpoint, rulebook, towers, words)
    except mapper.MapperError as error:
        yield from [("refused", str(error))] * 2
        return
    first = outcome(path, made.first, "")
    yield first
    if not made.hints:
        yield first
        return
    kind, why = outcome(path, made.told, made.error)
    yield kind, f"{why} (open: {'; '.join(made.open)}; said: {made.hints})" if kind != "equal" else ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", type=Path, help="a folder of checkpoints")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these checkpoints alone")
    parser.add_argument("--towers", action="store_true", help="rename the types of towers, too")
    parser.add_argument("--words", default="", metavar="SEED", help="change usual words for others, too")
    arguments = parser.parse_args()
    from score import cases

    rulebook = Rulebook()
    counted: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for path, _ in cases(arguments.checkpoints):
        if arguments.only and path.name not in arguments.only:
            continue
        for when, count, (kind, why) in zip(
            ("silent", "told"), counted, fared(path, rulebook, arguments.towers, arguments.words), strict=True
        ):
            count[kind] += 1
            print(f"{path.name}: {when}: {kind} {' '.join(why.split())[:600]}", flush=True)
    for when, count in zip(("silent", "told"), counted, strict=True):
        print(f"{when}: " + ", ".join(f"{count[kind]} {kind}" for kind in OUTCOMES))
    return 1 if any(count["wrong"] + count["stumbles"] for count in counted) else 0


if __name__ == "__main__":
    sys.exit(main())
