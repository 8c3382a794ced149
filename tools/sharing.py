"""How much there is of rules and operations, and what of it serves one model type alone.

    python tools/sharing.py                   # of the examples in rules/families and of the catalogue
    python tools/sharing.py CHECKPOINTS ...   # of the checkpoints in these folders' folders, too
    python tools/sharing.py --names           # and which flows, steps and operations serve one type alone
    python tools/sharing.py CHECKPOINTS OTHERS --before CHECKOUT  # and what the first folder's types cost: of all
                                              # that they take, what an older checkout of the rules has not

Only complete readings count: a skeleton uses nothing yet. What a checkpoint asks for is answered, each question by
the middle one of what could be: its flows serve its type whatever the answer. Lines are those of rule files apart from their examples and
from empty ones; an operation renames torch where it is one call of torch, or none, with what it was given
and no formula.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from usage import row_steps, units, used_units  # noqa: E402

from mapper.architecture import Architecture  # noqa: E402
from mapper.catalogue import find, names  # noqa: E402
from mapper.checkpoint import Checkpoint  # noqa: E402
from mapper.emission import emit  # noqa: E402
from mapper.errors import MapperError  # noqa: E402
from mapper.inference import infer  # noqa: E402
from mapper.operations.registry import operation_names, operation_source  # noqa: E402
from mapper.rulebook.examples import header, is_near_miss  # noqa: E402
from mapper.rulebook.rulebook import Rulebook  # noqa: E402
from mapper.rulebook.strict import load_yaml  # noqa: E402
from mapper.sources import open_source  # noqa: E402

Users = dict[str, set[str]]  # flow, step or operation -> the model types that use it
LONG = 40  # lines of a family's file
_ROUNDS = 6  # of questions and answers: an answer may raise others
_APART = ("family", "source", "examples")  # keys of a family's file that say nothing about a checkpoint
_DEFINED = re.compile(r"^(?:def|class) (\w+)", flags=re.MULTILINE)
_PLAIN = (
    ast.Name,
    ast.Constant,
    ast.Attribute,
    ast.Subscript,
    ast.UnaryOp,
    ast.Tuple,
    ast.keyword,
    ast.Load,
    ast.USub,
)


_NAMES_OF = """
import json, sharing
rulebook = sharing.Rulebook()
every = sharing.written(rulebook), sharing.steps(rulebook), sharing.operation_names()
print(json.dumps([sorted(names) for names in every]))
"""  # run in an older checkout, which has these functions


def checkpoints(rulebook: Rulebook, folders: list[Path]) -> Iterator[Checkpoint]:
    """Every header that is at hand."""
    for family in rulebook.families:
        yield from (header(example) for example in family.examples if not is_near_miss(example))
    yield from (checkpoint for name in names() if (checkpoint := find(name)))
    for path in (path for folder in folders for path in stored(folder)):
        yield open_source(str(path), purpose="headers")


def stored(folder: Path) -> list[Path]:
    """The folders of checkpoints in a folder."""
    return [path for path in sorted(folder.iterdir()) if (path / "config.json").exists()]


def users(rulebook: Rulebook, folders: list[Path]) -> tuple[Users, Users]:
    """Flows with their steps, and operations, each with its types."""
    rows = row_steps(rulebook)
    flows: Users = defaultdict(set)
    operations: Users = defaultdict(set)
    for checkpoint in checkpoints(rulebook, folders):
        try:
            architecture = answered(checkpoint, rulebook)
            if architecture.reading == "skeleton":
                continue
            source = emit(architecture)
        except MapperError:
            continue
        model_type = str((checkpoint.config or {}).get("model_type", architecture.family))
        for name in used_units(architecture):
            flows[rows.get(name, name)].add(model_type)
        for name in set(operation_names()) & set(_DEFINED.findall(source)):
            operations[name].add(model_type)
    return flows, operations


def answered(checkpoint: Checkpoint, rulebook: Rulebook) -> Architecture:
    """A checkpoint as it is read when it has been answered what it asks for. Raises MapperError."""
    answers: dict[str, Any] = {}
    for _ in range(_ROUNDS):
        architecture = infer(checkpoint, rulebook, hints=answers)
        if not architecture.questions:
            break
        answers |= {question.name: middle(question.candidates) for question in architecture.questions}
    return architecture


def middle(candidates: tuple[Any, ...]) -> Any:
    """The middle one of what an answer could be: of numbers of heads neither one nor all; 1 where it may be any number."""
    return candidates[len(candidates) // 2] if candidates else 1


def serving_one(every: set[str], used: Users) -> set[str]:
    return {name for name in every if len(used.get(name, ())) == 1}


def written(rulebook: Rulebook) -> set[str]:
    """The flows that are written out, of each topic."""
    return {unit for name in rulebook.flows for unit in units(name)}


def steps(rulebook: Rulebook) -> set[str]:
    """The steps that a flow is named for: all but those that leave a slot empty, and the usual ones.

    One that stands around several slots is written once, and counts once.
    """
    rows = row_steps(rulebook)
    pages = (page for topic in rulebook.flows.spines for page in rulebook.flows.pages(topic))
    every = (step for page in pages for step in page.steps if not step.is_unnamed)
    return {rows.get(step.name, step.name) for step in every}


def row(what: str, every: set[str], used: Users) -> str:
    single = serving_one(every, used)
    idle = [name for name in every if not used.get(name)]
    return f"| {what} | {len(every)} | {len(every) - len(single) - len(idle)} | {len(single)} | {len(idle)} |"


def renames_torch(source: str) -> bool:
    """Whether an operation is one call, or none, with what it was given: torch has it under another name."""
    node = ast.parse(source).body[0]
    if not isinstance(node, ast.FunctionDef):
        return False
    body = [
        item
        for item in node.body
        if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))
    ]
    if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        return False
    value = body[0].value
    given = [*value.args, *value.keywords, value.func] if isinstance(value, ast.Call) else [value]
    called = operation_names() if isinstance(value, ast.Call) else ()
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in called:
        return False
    every = [part for item in given for part in ast.walk(item)]
    has_formula = any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in every)
    return not has_formula and all(isinstance(part, _PLAIN) for part in every)


def own_lines(path: Path) -> int:
    """Lines of a rule file that say something, apart from its examples."""
    count, is_example = 0, False
    for line in path.read_text(encoding="utf-8").splitlines():
        if line[:1].isalpha():
            is_example = line.startswith("examples:")
        count += bool(line.strip()) and not is_example
    return count


def figures(rulebook: Rulebook, flows: Users, operations: Users) -> Iterator[tuple[str, str]]:
    """What there is of each, and how much."""
    files = {kind: [document.path for document in rulebook.documents(kind)] for kind in ("flows", "families")}
    lines = {kind: list(map(own_lines, paths)) for kind, paths in files.items()}
    keys = {key for path in files["families"] for key in load_yaml(path).data} - set(_APART)
    renamed = [name for name in operation_names() if renames_torch(operation_source(name))]
    yield "files of flows", str(len(files["flows"]))
    yield "lines of flows and families", f"{sum(lines['flows']) + sum(lines['families']):,}"
    for what, every in (("flows", written(rulebook)), ("steps", steps(rulebook))):
        yield f"{what}; that serve one type", f"{len(every)}; {len(serving_one(every, flows))}"
    one = len(serving_one(set(operation_names()), operations))
    yield (
        "operations; that serve one type; that rename torch",
        f"{len(operation_names())}; {one}; {len(renamed)}",
    )
    over = sum(count > LONG for count in lines["families"])
    yield "files of families", str(len(files["families"]))
    yield (
        f"lines of the longest; files over {LONG}; top-level keys",
        f"{max(lines['families'])}; {over}; {len(keys)}",
    )


def listing(rulebook: Rulebook) -> str:
    """How many types are listed by how many families."""
    types = {name for family in rulebook.families for name in family.model_types}
    timm = [family for family in rulebook.families if family.name.startswith("timm")]
    listed = {name for family in timm for name in family.model_types}
    return (
        f"{len(rulebook.families)} files of families list {len(types)} model types, "
        f"{len(timm)} of them {len(listed)} networks of timm"
    )


def names_in(checkout: Path) -> list[set[str]]:
    """The flows, steps and operations of another checkout's rules."""
    paths = os.pathsep.join(map(str, (checkout, checkout / "tools")))
    command = [sys.executable, "-c", _NAMES_OF]
    printed = subprocess.run(
        command, cwd=checkout, env=os.environ | {"PYTHONPATH": paths}, check=True, capture_output=True
    ).stdout
    return [set(names) for names in json.loads(printed)]


def added(now: set[str], before: set[str], used: Users, types: set[str]) -> tuple[set[str], set[str]]:
    """What some of these types take and older rules have not, and what of it one of them takes and no other type."""
    new = {name for name in now - before if used.get(name, set()) & types}
    return new, {name for name in new if len(used[name]) == 1}


def cost(rulebook: Rulebook, flows: Users, operations: Users, folder: Path, checkout: Path) -> Iterator[str]:
    """Lines on what the types of a folder take of rules that an older checkout has not."""
    read = (json.loads((path / "config.json").read_text()) for path in stored(folder))
    types = {str(config.get("model_type")) for config in read}
    now = (written(rulebook), flows), (steps(rulebook), flows), (set(operation_names()), operations)
    rows = row_steps(rulebook)
    older = ({rows.get(name, name) for name in names} for names in names_in(checkout))
    for what, (every, used), before in zip(("flows", "steps", "operations"), now, older, strict=True):
        new, single = added(every, before, used, types)
        yield f"{what} that {len(types)} types take and older rules have not: {len(new)}; {len(single)} serve one type"
        yield from (f"  {what[:-1]} {name}: {', '.join(sorted(used[name]))}" for name in sorted(single))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", type=Path, nargs="*", help="folders of checkpoints")
    parser.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="count what the first folder's types cost since then"
    )
    parser.add_argument("--names", action="store_true", help="name what serves one type, or none")
    arguments = parser.parse_args()
    if arguments.before and not arguments.checkpoints:
        parser.error("--before goes with the folder whose types are counted")
    rulebook = Rulebook()
    flows, operations = users(rulebook, arguments.checkpoints)
    print(f"{listing(rulebook)}\n")
    print("| | all | serve two types and more | one | none seen |\n| --- | --- | --- | --- | --- |")
    print(row("flows that are written out", written(rulebook), flows))
    print(row("steps", steps(rulebook), flows))
    print(row("operations", set(operation_names()), operations))
    print("\n| | now |\n| --- | --- |")
    for what, count in figures(rulebook, flows, operations):
        print(f"| {what} | {count} |")
    if arguments.before:
        print("\n".join(cost(rulebook, flows, operations, arguments.checkpoints[0], arguments.before)))
    if arguments.names:
        name_all(written(rulebook) | steps(rulebook), flows, operations)
    return 0


def name_all(every: set[str], flows: Users, operations: Users) -> None:
    """Print what serves one type or none, and what renames torch."""
    for what, known, used in (("flow", every, flows), ("operation", set(operation_names()), operations)):
        for name in sorted(known, key=lambda name: sorted(used.get(name, ()))):
            if len(used.get(name, ())) < 2:
                print(f"{what} {name}: {', '.join(used.get(name, ())) or 'none'}")
    for name in operation_names():
        if renames_torch(operation_source(name)):
            print(f"operation {name}: renames torch")


if __name__ == "__main__":
    sys.exit(main())
