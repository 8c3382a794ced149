"""Change fields of configs, and ask whether what mapper calls exact is still equal to the reference.

    OMP_NUM_THREADS=1 python -m tools.config_fuzz CASES [--only bert,gpt2] [--seed 7] [--fields 8] [--minutes 30]
        [--kind present,absent] [--field hidden_act] [--pairs [--mixed]] [--stray '{"alibi": true}'] [--keep DIR] [--json OUT]

CASES has a folder for each checkpoint: config.json, model.safetensors, and inputs.safetensors with
outputs.safetensors of the reference. Of each whose reading is exact and equal, fields of the config are changed one
at a time (`--pairs`: two at once, `--mixed`: both); the reference class is made from the changed file with the same weights and saved
with that file word for word; both run on the stored inputs, plain and padded on the right and on the left.

A trial is a row: case, field, kind, old, new, reading, findings, result, effect, diff, output, error.
  kind    present    a field of config.json          default  a field of the class that config.json leaves out
          absent     the field left out              alias    the field under the class's other name
          legacy     what the class reads from older files    rope  another variant of the rotary positions
          unknown    a field that the class has not
  result  equal | wrong | raises (built, and its forward raised) | refused (MapperError) | skeleton
          crash (any other exception, or no answer) | reference (the reference refuses: no trial)
  effect  yes, no: the reference's outputs differ from those without the change; shape: other tensors are there
A `wrong` reading is rounding where it is equal in float64, or off by no more than the reference itself is when its
weights change by one part in ten million; where it is equal to the reference with its other attention (sdpa; eager is
compared first), the reference's two ways to attend differ. Rounds go through all cases with --fields fields each until
--minutes are over, one round without. Exit code 3 where an exact reading is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import multiprocessing
import random
import re
import tempfile
import time
import warnings
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

from transformers.utils.logging import disable_progress_bar

import mapper
from mapper.errors import MapperError
from tools.config_fuzz.fields import Change, changes, pairs, strays
from tools.config_fuzz.reference import TOLERANCE, Case
from tools.config_fuzz.trial import Row, TooLong, trial, unchanged, within

EXACT = "exact"


def found_changes(case: Any, base: Any, arguments: argparse.Namespace) -> list[Change]:
    """The changes of a case that the arguments ask for, in an order that the seed decides."""
    rng = random.Random(f"{arguments.seed}/{case.name}")
    if arguments.stray:
        return strays(case.raw, base.config, json.loads(arguments.stray))
    found = changes(case.raw, base.config, case.ids, rng)
    if arguments.field:
        found = [change for change in found if re.search(arguments.field, change.field)]
    if arguments.kind:
        found = [change for change in found if change.kind in arguments.kind.split(",")]
    if not arguments.pairs:
        return found
    both = pairs(found, rng)
    if not arguments.mixed:
        return both
    return [change for two in zip_longest(both, found) for change in two if change is not None]


def case_rows(case: Case, first: int, arguments: argparse.Namespace) -> tuple[list[Row], str]:
    """The rows of the next fields of a case, and why there are no more; "" where there are."""
    with tempfile.TemporaryDirectory() as temporary, within(90):
        base = unchanged(case, Path(temporary))
    if isinstance(base, str):
        return [], base
    found = found_changes(case, base, arguments)
    rows = []
    for change in found[first : first + arguments.fields]:
        for option in change.options[: arguments.values]:
            try:
                with within(arguments.timeout):
                    rows.append(trial(case, base, change, option, arguments.keep))
            except TooLong:
                told = {"case": case.name, "field": change.field, "kind": change.kind, "new": option[1]}
                rows.append({**told, "result": "crash", "reading": "none", "error": "took too long"})
    return rows, "" if first + arguments.fields < len(found) else "all tried"


def in_child(case: Case, first: int, arguments: argparse.Namespace) -> tuple[list[Row], str]:
    """The same in a process of its own, whose memory goes back; what this one has imported and read is there already."""
    reader, writer = multiprocessing.Pipe(duplex=False)

    def work() -> None:
        try:
            writer.send(case_rows(case, first, arguments))
        except Exception as error:
            writer.send(([], f"{type(error).__name__}: {error}"[:200]))

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    told = ([], "no answer")
    if reader.poll(120 + arguments.timeout * arguments.fields * arguments.values):
        told = reader.recv()
    else:
        child.kill()
    child.join()
    return told


def warmed(folder: Path) -> Case:
    """A case, the code of its class imported, and rules, flows and operations that it needs read: once for all children."""
    case = Case(folder)
    with contextlib.suppress(MapperError):
        mapper.generate(folder)
    gc.collect()
    gc.freeze()
    return case


def is_wrong(row: Row) -> bool:
    """An exact reading whose outputs differ, in float64 too, and from each attention of the reference."""
    return (
        row.get("reading") == EXACT and row["result"] == "wrong" and not (is_rounded(row) or is_disputed(row))
    )


def is_rounded(row: Row) -> bool:
    """Whether doubles agree, or float32's rounding alone moves the reference as far: some compute in float32 throughout."""
    exactly, own = row.get("in float64"), row.get("moved")
    return (isinstance(exactly, float) and exactly <= 1e-5) or (isinstance(own, float) and row["diff"] <= own)


def is_disputed(row: Row) -> bool:
    """Whether the reference, whose two ways to attend differ here, is equal in one of them."""
    other = row.get("in sdpa")
    return isinstance(other, float) and other <= TOLERANCE


def summary(rows: Iterable[Row]) -> dict[str, int]:
    """How many rows there are of each kind."""
    trials = [row for row in rows if row["result"] != "reference"]
    exact = [row for row in trials if row.get("reading") == EXACT]
    reached = [row for row in trials if row.get("effect") in ("yes", "shape")]
    counts = {
        "trials": len(trials),
        "that reach the outputs": len(reached),
        "exact and equal": sum(row["result"] == "equal" for row in exact),
        "of these, with effect": sum(row["result"] == "equal" and row["effect"] != "no" for row in exact),
        "exact and WRONG": sum(map(is_wrong, exact)),
        "exact, wrong by rounding": sum(row["result"] == "wrong" and is_rounded(row) for row in exact),
        "exact, equal to one of two": sum(
            row["result"] == "wrong" and is_disputed(row) and not is_rounded(row) for row in exact
        ),
        "exact, forward raises": sum(row["result"] == "raises" for row in exact),
        "exact, build refused": sum(row["result"] == "refused" for row in exact),
    }
    for result in ("equal", "wrong", "raises", "refused"):
        other = (row for row in trials if row.get("reading") == "unverified")
        counts[f"unverified, {result}"] = sum(row["result"] == result for row in other)
    counts |= {name: sum(row["result"] == name for row in trials) for name in ("skeleton", "crash")}
    return counts | {"refused": sum(row.get("reading") == "refused" for row in trials)}


def line(row: Row) -> str:
    old, new = (json.dumps(row.get(key), default=str)[:60] for key in ("old", "new"))
    told = row.get("diff", row.get("error", ""))
    return f"{row['result'].upper()} {row['case']} {row['field']}: {old} -> {new} ({row['kind']}) {row.get('output', '')} {told}"


def run(arguments: argparse.Namespace) -> list[Row]:
    """Rounds over the cases until the minutes are over."""
    folders = sorted(path.parent for path in arguments.cases.glob("*/outputs.safetensors"))
    if arguments.only:
        folders = [folder for folder in folders if folder.name in arguments.only.split(",")]
    random.Random(arguments.seed).shuffle(folders)
    until = time.time() + 60 * (arguments.minutes or 0)
    rows: list[Row] = []
    first = arguments.first
    cases: dict[Path, Case] = {}
    while folders and (not rows or time.time() < until):
        for folder in list(folders):
            if arguments.minutes and time.time() > until:
                break
            if folder not in cases:
                cases[folder] = warmed(folder)
            made, ended = in_child(cases[folder], first, arguments)
            rows += made
            if ended:
                folders.remove(folder)
            print(f"{folder.name}: {len(made)} rows {ended}", flush=True)
            for row in made:
                if (
                    is_wrong(row)
                    or row["result"] == "crash"
                    or (row["result"], row.get("reading")) == ("raises", EXACT)
                ):
                    print(f"  {line(row)}", flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps({"summary": summary(rows), "rows": rows}, default=str))
        first += arguments.fields
        if not arguments.minutes:
            break
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", type=Path)
    parser.add_argument("--only", help="names of cases, with commas")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--fields", type=int, default=8, help="fields of each case in a round")
    parser.add_argument("--first", type=int, default=0, help="begin with this field of each case's order")
    parser.add_argument("--values", type=int, default=1, help="values of each field")
    parser.add_argument("--kind", help="only these kinds, with commas")
    parser.add_argument("--field", help="only fields whose dotted name this finds (a regular expression)")
    parser.add_argument("--pairs", action="store_true", help="two fields at once")
    parser.add_argument("--mixed", action="store_true", help="with --pairs, each other trial of one field")
    parser.add_argument(
        "--stray", help="a JSON object of fields to put where no class has them, instead of all else"
    )
    parser.add_argument("--minutes", type=float, help="go round until these are over")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for a trial")
    parser.add_argument(
        "--keep", type=Path, help="a folder for checkpoints of exact readings that are wrong or raise"
    )
    parser.add_argument("--json", type=Path, help="a file for all rows")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    disable_progress_bar()
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
    rows = run(arguments)
    for name, count in summary(rows).items():
        print(f"{name:32} {count}")
    return 3 if any(map(is_wrong, rows)) else 0


if __name__ == "__main__":
    raise SystemExit(main())
