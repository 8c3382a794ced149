"""Compare every family with its reference, and write generated/: sources, the parity record, the index page.

    python tools/validate.py                 # all of it, some minutes
    python tools/validate.py --sources       # sources and index alone, from the record that is there

The record is what the parity tests (`tests/parity`, which need transformers) find, class by class. The test command
leaves out those whose steps others take, too (`tests/parity/left_out.txt`, written here).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mapper import __version__  # noqa: E402
from mapper.architecture import Architecture, Fact  # noqa: E402
from mapper.catalogue import find, names  # noqa: E402
from mapper.checkpoint import Checkpoint  # noqa: E402
from mapper.emission import emit  # noqa: E402
from mapper.errors import MapperError  # noqa: E402
from mapper.inference import infer  # noqa: E402
from mapper.rulebook.examples import Example, header, is_near_miss  # noqa: E402
from mapper.rulebook.families import Family  # noqa: E402
from mapper.rulebook.rulebook import Rulebook  # noqa: E402

GENERATED = ROOT / "generated"
PICTURES = {
    "an encoder": "distilbert",
    "a decoder": "llama",
    "encoder and decoder": "t5",
    "two towers": "clip",
    "a mixture of experts": "experts",
    "stages and windows": "swin",
}  # what it is of -> its file in docs/pictures
RECORD = GENERATED / "parity.json"
LEFT_OUT = ROOT / "tests" / "parity" / "left_out.txt"
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sources", action="store_true", help="write sources and index, compare nothing")
    arguments = parser.parse_args()
    rulebook = Rulebook()
    record = (
        json.loads(RECORD.read_text()) if RECORD.exists() else {"versions": {}, "types": {}, "tracing": {}}
    )
    models = {name: read(name, rulebook) for name in names()}
    if not arguments.sources:
        lines = compare()
        record = {"versions": versions(), "types": differences(lines), "tracing": {}}
        listed = (word for family in rulebook.families for word in family.model_types)
        if lacking := [word for word in listed if not record["types"].get(word)]:
            raise SystemExit(
                f"nothing is recorded: no parity test ran for {', '.join(lacking)} (timm's need timm)"
            )
        shown = {models[name].family for name in representatives(models).values()}
        families = [family for family in rulebook.families if family.name in shown]
        record["tracing"] = {family.name: trace_family(family) for family in families}
        write(RECORD, json.dumps(record, indent=1) + "\n")
        write(LEFT_OUT, "".join(f"{test}\n" for test in spare(lines)))
    rows = [describe(name, architecture, record) for name, architecture in models.items()]
    for stem, name in representatives(models).items():
        write(GENERATED / f"{stem}.py", emit(models[name]))
    for path in GENERATED.glob("*.py"):
        if path.stem not in representatives(models):
            path.unlink()
    write(GENERATED / "README.md", index(rows, representatives(models), record))
    return 0


def read(name: str, rulebook: Rulebook) -> Architecture | str:
    """The reading of a model of the catalogue, or why there is none."""
    checkpoint = find(name)
    if checkpoint is None:
        raise SystemExit(f"{name} is not in the catalogue")
    try:
        return infer(checkpoint, rulebook)
    except MapperError as error:
        return str(error)


def representatives(models: dict[str, Architecture | str]) -> dict[str, str]:
    """File name -> the model shown: of each class that the catalogue's configs name, the smallest that reads."""
    found: dict[str, str] = {}
    for name, architecture in sorted(models.items(), key=lambda item: (size_of(item[1]), item[0])):
        if not isinstance(architecture, str) and runs(architecture):
            found.setdefault(stem_of(architecture.checkpoint), name)
    return dict(sorted(found.items()))


def runs(architecture: Architecture) -> bool:
    """Whether there is source with a forward."""
    return architecture.reading != "skeleton" and not architecture.missing


def size_of(architecture: Architecture | str) -> int:
    return 0 if isinstance(architecture, str) else architecture.checkpoint.parameters


def stem_of(checkpoint: Checkpoint) -> str:
    """`distilbert_for_masked_lm` for DistilBertForMaskedLM of the type distilbert; timm's names stay."""
    config = checkpoint.config or {}
    kind = str(config.get("model_type", "")).replace("-", "_")
    name = (config.get("architectures") or [config.get("architecture", f"{kind}_model")])[0]
    letters = kind.replace("_", "")
    if letters and name.lower().startswith(letters):
        name = f"{kind}{name[len(letters) :]}"
    return _CAPITAL.sub("_", name).lower()


def versions() -> dict[str, str]:
    import torch
    import transformers

    return {
        "mapper": __version__, "python": platform.python_version(), "torch": torch.__version__.partition("+")[0],
        "transformers": transformers.__version__,
    }  # fmt: skip


def compare() -> list[dict[str, Any]]:
    """Runs the parity tests, all of them; the lines that they write of what they compare (`tests/parity/harness.py`)."""
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "compared.jsonl"
        command = [sys.executable, "-m", "pytest", "-q", "tests/parity", "-p", "no:cacheprovider"]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, "MAPPER_PARITY_RECORD": str(lines)})
        if done.returncode:
            raise SystemExit("the parity tests fail: nothing is recorded")
        return [json.loads(line) for line in lines.read_text().splitlines()]


def differences(lines: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """For every model type and class the largest difference of any output."""
    found: dict[str, dict[str, float]] = {}
    for line in (line for line in lines if "worst" in line):
        classes = found.setdefault(line["model_type"], {})
        classes[line["class"]] = max(line["worst"], classes.get(line["class"], 0.0))
    return {kind: dict(sorted(classes.items())) for kind, classes in sorted(found.items())}


def spare(lines: list[dict[str, Any]]) -> list[str]:
    """The tests without which every step is still compared: those with the most steps that are not yet are kept."""
    steps: dict[str, set[str]] = {}
    for line in (line for line in lines if "steps" in line):
        steps.setdefault(line["test"], set()).update(line["steps"])
    rest = dict(sorted(steps.items()))
    missing = set().union(*rest.values())
    while missing:
        kept = max(rest, key=lambda test: len(rest[test] & missing))
        missing -= rest.pop(kept)
    return list(rest)


def trace_family(family: Family) -> dict[str, str]:
    """Which of export, compile, gradient step and subclass fail on the family's first example, each with its cause."""
    import torch
    from tracing import failures

    from mapper._build import build_architecture
    from mapper._trial import input_cases

    architecture = infer(header(first_example(family)), Rulebook())
    model = build_architecture(architecture)
    generator = torch.Generator().manual_seed(0)
    made = {key: _random(key, value, generator) for key, value in model.state_dict().items()}
    model.load_state_dict(made, assign=True)
    cases = dict(input_cases(architecture, model))
    inputs = cases.get("right padding", cases["plain"])
    found = failures(model, inputs, {name: spec["shape"] for name, spec in architecture.inputs.items()})
    print(f"{family.name:16} {found or 'exports, compiles, trains, subclasses'}", flush=True)
    return found


def _random(key: str, like: Any, generator: Any) -> Any:
    import torch

    if not like.is_floating_point():
        return torch.zeros_like(like, device="cpu")
    noise = torch.randn(like.shape, generator=generator) * 0.1
    return noise.abs() + 0.1 if key.endswith("running_var") else noise


def first_example(family: Family) -> Example:
    return next(example for example in family.examples if not is_near_miss(example))


def describe(name: str, architecture: Architecture | str, record: dict[str, Any]) -> dict[str, Any]:
    """A row of the page."""
    if isinstance(architecture, str):
        return {"model": name, "reading": "refused", "why": architecture}
    checkpoint = architecture.checkpoint
    worst = compared(architecture, record)
    return {
        "model": name, "stem": stem_of(checkpoint), "family": architecture.family or "-",
        "reading": architecture.reading, "why": "; ".join([*architecture.missing, *architecture.findings][:1]),
        "tensors": len(checkpoint.tensors), "mapped": len(checkpoint.tensors) - len(architecture.unmapped),
        "lines": emit(architecture).count("\n") if runs(architecture) else None, "worst": max(worst, default=None),
        "defaults": ", ".join(dict.fromkeys(f.name for f in architecture.facts if is_assumed(f))) or "-",
        "traces": traces(record["tracing"].get(architecture.family)), "made": evidence(checkpoint),
    }  # fmt: skip


def is_assumed(fact: Fact) -> bool:
    """Whether a default says that something is there; that it is not (none, false, a factor of 1) is hardly news."""
    is_there = fact.value is True or fact.value not in (None, False, 0, 1)
    return fact.evidence == "default" and is_there


def compared(architecture: Architecture, record: dict[str, Any]) -> list[float]:
    """Differences of the tiny models of the same class, or else of all of the same model type."""
    config = architecture.checkpoint.config or {}
    classes = record["types"].get(config.get("model_type", config.get("architecture")), {})
    own = [classes[name] for name in config.get("architectures") or () if name in classes]
    return own or list(classes.values())


def evidence(checkpoint: Checkpoint) -> str:
    """What the catalogue knows the config from; every header in it is reconstructed."""
    told = next((note for note in checkpoint.notes if note.startswith("evidence for its config: ")), "")
    return told.removeprefix("evidence for its config: ").partition(" (")[0] or "-"


def traces(failed: dict[str, str] | None) -> str:
    """What of export, compile, gradient step and subclass fails; `not run` where the record has nothing."""
    if failed is None:
        return "not run"
    return ", ".join(f"not {name}" for name in failed) or "all"


def picture(name: str) -> str:
    """A small picture that leads to itself."""
    path = f"../docs/pictures/{name}.svg"
    return f'[<img src="{path}" height="240" alt="{name}">]({path})'


def index(rows: list[dict[str, Any]], files: dict[str, str], record: dict[str, Any]) -> str:
    """The page: every model of the catalogue, and the file of each class beside it."""
    used = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    exact = sum(row["reading"] == "exact" for row in rows)
    head = [
        "# Generated sources",
        "",
        f"The {len(rows)} models of the bundled catalogue, {exact} of them read exactly, and for each of their classes that is read",
        f"the source of the smallest ({len(files)} files), written by `python tools/validate.py` and never edited by hand.",
        "",
        "No header here is real: names, shapes and types are reconstructed (the catalogue's page says how). What is known of a",
        "config: `repository` was read in a public repository, `transformers-default` are the defaults of the published class,",
        "`recalled` is from general knowledge, checked by the count of parameters. No weights of these models were read.",
        "",
        "The difference is the largest of any output, as a share of max(1, largest value), between tiny models of the same class",
        "with random weights as `mapper` builds them and as the reference implementation does: with padding on either side, odd",
        f"lengths, one row. Compared with {used}; `parity.json` has every figure of every model type.",
        "",
        f"| {' | '.join(PICTURES)} |",
        f"| {' | '.join('---' for _ in PICTURES)} |",
        f"| {' | '.join(map(picture, PICTURES.values()))} |",
        "",
        "`mapper inspect MODEL --html FILE` draws any of these.",
        "",
        "| model | source | family | reading | tensors mapped | rests on a default | lines | largest difference | config | export, compile, train, subclass |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    causes = [
        f"- {family}, {name}: {cause}"
        for family, found in record["tracing"].items()
        for name, cause in found.items()
    ]
    open_ends = [
        f"- {row['model']}, {row['reading']}: {row['why']}" for row in rows if row["reading"] != "exact"
    ]
    notes = ["", "Not read exactly, with the first reason:", "", *(open_ends or ["- none"])]
    notes += ["", "Checks that fail, by cause:", "", *(causes or ["- none on record"])]
    return "\n".join([*head, *(row_text(row, files) for row in rows), *notes]) + "\n"


def row_text(row: dict[str, Any], files: dict[str, str]) -> str:
    if "stem" not in row:
        return f"| {row['model']} | - | - | {row['reading']} | - | - | - | - | - | - |"
    file = f"[{row['stem']}.py]({row['stem']}.py)" if row["stem"] in files else "-"
    worst = "-" if row["worst"] is None else format(row["worst"], ".1e")
    return (
        f"| {row['model']} | {file} | {row['family']} | {row['reading']} | {row['mapped']} of {row['tensors']} "
        f"| {row['defaults']} | {row['lines'] or '-'} | {worst} | {row['made']} | {row['traces']} |"
    )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")


if __name__ == "__main__":
    sys.exit(main())
