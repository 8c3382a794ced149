"""Answers from the weights: the statistic that the rules declare for a fact, read, and believed from a margin on.

A rule says under `weights:` of a fact in the vocabulary: `statistic`; `leaves`, what the statistic calls a leaf and which
role it has in a block of the kind `of` (no kind: each leaf that is asked about itself); `known`, facts of the block that
it needs, and `shared`: such a fact and another, by whose answer the rows of the first leaf are shared (or `stored`: see `mapper.evidence.stored`); `least`, the score from which on anything is said; `margin`, by how much the best value must beat the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from mapper.architecture import Architecture, Block, Leaf, Question
from mapper.evidence.answering import with_found
from mapper.evidence.found import Found
from mapper.evidence.statistics import INPUTS, STATISTICS, Sample, Scores
from mapper.evidence.stored import from_stored
from mapper.rulebook.values import shown

if TYPE_CHECKING:
    from mapper.checkpoint import Checkpoint

ROUNDS = 4  # an answer may raise questions that the weights answer, too
CONVENTIONS = ("name", "rule", "default")  # evidence of a fact that weights may overrule
WORK = 5e10  # multiplications for one question, at most: so many instances of a block are sampled
FEWEST, MOST = 2, 12  # instances, however large or small they are: from so many on a statistic gains little


def with_weights(architecture: Architecture) -> Architecture:
    """The reading with all that the weights answer; what they do not answer stays a question."""
    for _ in range(ROUNDS):
        better = with_found(architecture, from_weights(architecture))
        if better is architecture:
            break
        architecture = better
    return architecture


def from_weights(architecture: Architecture) -> dict[str, Found]:
    """What the weights answer of the questions of a reading, by their names; nothing of a manifest, which has none."""
    checkpoint = architecture.checkpoint
    if checkpoint.read is None or (not architecture.questions and architecture.reading == "exact"):
        return {}
    answers: dict[str, Found] = {}
    for question in architecture.questions:
        found = answer(question, architecture, answers)
        answers.update({question.name: found} if found else {})
    late = (
        [question for question in architecture.questions if question.name not in answers] if answers else []
    )
    for question in late:  # what an answer to another question makes known
        found = answer(question, architecture, answers)
        answers.update({question.name: found} if found else {})
    return answers | _against_conventions(architecture) | from_stored(architecture)


def _against_conventions(architecture: Architecture) -> dict[str, Found]:
    """What the weights say for sure against what only goes with names (`overrules` of a rule: the kind of leaf that shows it)."""
    found: dict[str, Found] = {}
    if architecture.reading == "exact":
        return found
    vocabulary = architecture.rulebook.config_vocabulary.facts
    for name in {fact.name for fact in architecture.facts}:
        declared = next(
            (rule.weights for rule in vocabulary.get(name, ()) if "overrules" in rule.weights), None
        )
        taken = [fact for fact in architecture.facts if fact.name == name]
        if declared is None or any(fact.evidence not in CONVENTIONS for fact in taken):
            continue
        kind = declared["overrules"]
        leaves = [leaf for leaf in architecture.leaves if leaf.kind == kind and "weight" in leaf.tensors]
        samples = [sample for leaf in leaves for sample in read_samples({"": leaf}, architecture.checkpoint)]
        scores = STATISTICS[declared["statistic"]](samples, (True, False), {}) if samples else {}
        said = decide(scores, declared["least"], declared["margin"])
        if said and all(fact.value != said.value for fact in taken):
            found[name] = said
    return found


def answer(
    question: Question, architecture: Architecture, answers: Mapping[str, Found] = MappingProxyType({})
) -> Found | None:
    """What the weights say of one fact; None where no statistic is declared, or where it says nothing for sure.

    `answers` are those that were found of other questions of this reading.
    """
    rules = architecture.rulebook.config_vocabulary.facts.get(question.fact, ())
    declared = next((rule.weights for rule in rules if rule.weights), None)
    if declared is None or "statistic" not in declared or not question.candidates:
        return None
    known: dict[str, Any] = {}
    samples: list[Sample] = []
    for block, leaves in asked_leaves(question, declared):
        known |= {name: block.facts[name].value for name in declared.get("known", ()) if name in block.facts}
        known = _shared(declared, leaves, answers) | known
        if not known.keys() >= {*declared.get("known", ())}:
            continue  # no statistic says anything without
        samples += read_samples(leaves, architecture.checkpoint)
    if not samples:
        return None
    scores = STATISTICS[declared["statistic"]](samples, question.candidates, known)
    return decide(scores, declared["least"], declared["margin"])


def _shared(
    declared: Mapping[str, Any], leaves: Mapping[str, Leaf], answers: Mapping[str, Found]
) -> dict[str, int]:
    """Facts that answers to other questions make known: rows of the first leaf, shared by so many."""
    rows = next((leaf.tensors["weight"].shape[leaf.is_transposed] for leaf in leaves.values()), 0)
    counts = {
        name: answers[fact].value for name, fact in declared.get("shared", {}).items() if fact in answers
    }
    return {
        name: rows // count for name, count in counts.items() if isinstance(count, int) and rows % count == 0
    }


def decide(scores: Scores, least: float, margin: float) -> Found | None:
    """The value that some scores are sure of and none contradicts; None where there is none.

    `least` is the score from which on anything is said, `margin` how many times that of another value makes sure.
    """
    speaking = [found for found in scores.values() if len(found) > 1 and max(found.values()) >= least]
    ranked = [sorted(found.items(), key=lambda item: -item[1]) for found in speaking]
    sure = [(best, other) for best, other, *_ in ranked if best[1] >= margin * other[1]]
    if not sure:
        return None
    (value, score), (other, next_best) = max(sure, key=lambda pair: pair[0][1] / max(pair[1][1], 1.0))
    if any(_contradicts(found, value, margin) for found in speaking):
        return None
    return Found(value, "weights", f"{score:.3g} against {next_best:.3g} for {shown(other)}")


def _contradicts(found: Mapping[Any, float], value: Any, margin: float) -> bool:
    """Whether scores are sure that it is another value."""
    own = found.get(value, 0.0)
    return any(score > own and score >= margin * own for score in found.values())


def asked_leaves(question: Question, declared: Mapping[str, Any]) -> Iterator[tuple[Block, dict[str, Leaf]]]:
    """The blocks that a question is about, each with the leaves that a statistic wants; those that lack one are left out."""
    for block in question.blocks:
        if "of" not in declared:
            yield from ((block, {"": leaf}) for leaf in block.leaves() if "weight" in leaf.tensors)
            continue
        for inner in (block, *block.blocks()):
            if inner.kind == declared["of"] and (leaves := _leaves(inner, declared)):
                yield inner, leaves


def _leaves(block: Block, declared: Mapping[str, Any]) -> dict[str, Leaf]:
    """By what the statistic calls them; {} where one lacks that is not optional."""
    wanted: Mapping[str, str] = declared["leaves"]
    found = {name: block.roles.get(role) for name, role in wanted.items()}
    leaves = {
        name: leaf for name, leaf in found.items() if isinstance(leaf, Leaf) and "weight" in leaf.tensors
    }
    return leaves if {*wanted} - {*declared.get("optional", ())} <= {*leaves} else {}


def read_samples(leaves: Mapping[str, Leaf], checkpoint: Checkpoint) -> list[Sample]:
    """The weights of instances of a block, evenly over its depth, as [outputs, inputs]; at most so many as WORK allows."""
    assert checkpoint.read is not None
    paths = {name: [f"{path}.weight" for path in leaf.place.expand()] for name, leaf in leaves.items()}
    count = min(map(len, paths.values()))
    work = sum(_work(leaf.tensors["weight"].shape) for leaf in leaves.values())
    most = min(count, MOST, max(FEWEST, int(WORK / max(work, 1))))
    samples: list[Sample] = []
    for at in np.linspace(0, count - 1, most).round().astype(int):
        read = checkpoint.read([keys[at] for keys in paths.values()])
        sample = {name: read[keys[at]].float().numpy() for name, keys in paths.items()}
        samples.append(
            {name: rows.T if leaves[name].is_transposed else rows for name, rows in sample.items()}
        )
    return samples


def _work(shape: Sequence[int]) -> float:
    """Multiplications for the products of a weight's rows with each other."""
    return float(max(shape)) ** 2 * min(*shape, INPUTS)
