"""Compare every family with its reference, and write generated/: sources, the parity record, the index page.

    python tools/validate.py                 # all of it, some minutes
    python tools/validate.py --sources       # sources and index alone, from the record that is there

The record is what the parity tests (`tests/parity`, which need transformers) find, class by class.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mapper import __version__  # noqa: E402
from mapper.architecture import Architecture  # noqa: E402
from mapper.catalogue import find  # noqa: E402
from mapper.checkpoint import Checkpoint  # noqa: E402
from mapper.emission import emit  # noqa: E402
from mapper.inference import infer  # noqa: E402
from mapper.rulebook.examples import header, is_near_miss  # noqa: E402
from mapper.rulebook.families import Example, Family  # noqa: E402
from mapper.rulebook.rulebook import Rulebook  # noqa: E402

GENERATED = ROOT / "generated"
RECORD = GENERATED / "parity.json"
MODELS: dict[str, str] = yaml.safe_load((ROOT / "tools" / "models.yaml").read_text())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sources", action="store_true", help="write sources and index, compare nothing")
    arguments = parser.parse_args()
    families = [family for family in Rulebook().families if family.model_types]
    record = (
        json.loads(RECORD.read_text()) if RECORD.exists() else {"versions": {}, "families": {}, "tracing": {}}
    )
    if not arguments.sources:
        record = {"versions": versions(), "families": compare(), "tracing": {}}
        record["tracing"] = {family.name: trace_family(family) for family in families}
        write(RECORD, json.dumps(record, indent=1) + "\n")
    rows = [write_source(family, record) for family in families]
    write(GENERATED / "README.md", index(rows, record))
    return 0


def versions() -> dict[str, str]:
    import torch
    import transformers

    return {
        "mapper": __version__, "python": platform.python_version(), "torch": torch.__version__.partition("+")[0],
        "transformers": transformers.__version__,
    }  # fmt: skip


def compare() -> dict[str, dict[str, dict[str, float]]]:
    """Runs the parity tests; for every family, model type and class the largest difference of any output."""
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "compared.jsonl"
        command = [sys.executable, "-m", "pytest", "-q", "tests/parity", "-p", "no:cacheprovider"]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, "MAPPER_PARITY_RECORD": str(lines)})
        if done.returncode:
            raise SystemExit("the parity tests fail: nothing is recorded")
        found: dict[str, dict[str, dict[str, float]]] = {}
        for line in map(json.loads, lines.read_text().splitlines()):
            types = found.setdefault(line["family"], {}).setdefault(line["model_type"], {})
            types[line["class"]] = max(line["worst"], types.get(line["class"], 0.0))
    return {
        family: {kind: dict(sorted(classes.items())) for kind, classes in sorted(types.items())}
        for family, types in sorted(found.items())
    }


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


def source_of(family: Family) -> Checkpoint:
    """The checkpoint that stands for a family: an entry of the catalogue, or its first example, labelled tiny."""
    if family.name in MODELS:
        found = find(MODELS[family.name])
        if found is None:
            raise SystemExit(f"tools/models.yaml: {MODELS[family.name]} is not in the catalogue")
        return found
    example = first_example(family)
    checkpoint = header(example)
    checkpoint.source = f"{family.name}, tiny"
    checkpoint.notes = [f"tiny: the header is the example {example.name!r} of {family.file}"]
    return checkpoint


def read_family(family: Family) -> Architecture:
    return infer(source_of(family), Rulebook())


def write_source(family: Family, record: dict[str, Any]) -> dict[str, Any]:
    architecture = read_family(family)
    text = emit(architecture)
    write(GENERATED / f"{family.name}.py", text)
    worst = [value for types in record["families"].get(family.name, {}).values() for value in types.values()]
    return {
        "family": family.name, "types": ", ".join(family.model_types), "model": architecture.checkpoint.source,
        "reading": architecture.reading, "tensors": len(architecture.checkpoint.tensors),
        "mapped": len(architecture.checkpoint.tensors) - len(architecture.unmapped),
        "lines": text.count("\n"), "compared": len(worst), "worst": max(worst, default=None),
        "defaults": sum(fact.evidence == "default" for fact in architecture.facts),
        "traces": traces(record["tracing"].get(family.name)),
        "made": made(architecture.checkpoint) if family.name in MODELS else "tiny",
    }  # fmt: skip


def made(checkpoint: Checkpoint) -> str:
    """Where a header of the catalogue is from: reconstructed, or read by tools/refresh_catalogue.py."""
    return "header of the hub" if "read from the hub" in checkpoint.notes[0] else "reconstructed header"


def traces(failed: dict[str, str] | None) -> str:
    """What of export, compile, gradient step and subclass fails; `not run` where the record has nothing."""
    if failed is None:
        return "not run"
    return ", ".join(f"not {name}" for name in failed) or "all"


def index(rows: list[dict[str, Any]], record: dict[str, Any]) -> str:
    """The page that lists what stands beside it."""
    used = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    head = [
        "# Generated sources",
        "",
        "One file for each family that `mapper` vouches for, written by `python tools/validate.py` and never edited by hand.",
        "The model is read from a header of the bundled catalogue, which is reconstructed (its README says how), or, where",
        "the catalogue has none, from the first example of the family's rule file, labelled tiny. The difference is the",
        "largest of any output, as a share of max(1, largest value), between the model that `mapper` builds and the reference",
        "implementation, over the classes that the parity tests compare: tiny random weights, with padding on either side, odd",
        f"lengths, one row. Compared with {used}; `parity.json` has every figure.",
        "",
        "| family | model types | source | read from | reading | tensors mapped | facts by default | lines | classes compared | largest difference | export, compile, train, subclass |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    body = [
        f"| {row['family']} | {row['types']} | [{row['family']}.py]({row['family']}.py) | {row['model']} ({row['made']}) "
        f"| {row['reading']} | {row['mapped']} of {row['tensors']} | {row['defaults']} | {row['lines']} | {row['compared']} "
        f"| {'-' if row['worst'] is None else format(row['worst'], '.1e')} | {row['traces']} |"
        for row in rows
    ]
    causes = [
        f"- {family}, {name}: {cause}"
        for family, found in record["tracing"].items()
        for name, cause in found.items()
    ]
    notes = ["", "Checks that fail, by cause:", "", *(causes or ["- none on record"])]
    return "\n".join([*head, *body, *notes]) + "\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")


if __name__ == "__main__":
    sys.exit(main())
