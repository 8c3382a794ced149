"""Compare every family with its reference, and write generated/: sources, the parity record, the index page.

    python tools/validate.py                 # all of it, some minutes
    python tools/validate.py --only bert,t5  # these families; the record of the others is kept
    python tools/validate.py --sources       # sources and index alone, from the record that is there

Parity needs transformers. Each family's own examples give the configurations; each class that transformers has for
the type is compared with plain inputs, padding on either side and one row (`mapper.verify`).
"""

from __future__ import annotations

import argparse
import json
import platform
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
from mapper.errors import MapperError  # noqa: E402
from mapper.inference import infer  # noqa: E402
from mapper.rulebook.examples import header, is_near_miss  # noqa: E402
from mapper.rulebook.families import Example, Family  # noqa: E402
from mapper.rulebook.rulebook import Rulebook  # noqa: E402
from mapper.sources import open_source  # noqa: E402

GENERATED = ROOT / "generated"
RECORD = GENERATED / "parity.json"
MODELS: dict[str, str] = yaml.safe_load((ROOT / "tools" / "models.yaml").read_text())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="families, separated by commas")
    parser.add_argument("--sources", action="store_true", help="write sources and index, compare nothing")
    arguments = parser.parse_args()
    families = [family for family in Rulebook().families if family.model_types]
    chosen = [family for family in families if not arguments.only or family.name in arguments.only.split(",")]
    record = (
        json.loads(RECORD.read_text()) if RECORD.exists() else {"versions": {}, "families": {}, "tracing": {}}
    )
    if not arguments.sources:
        for family in chosen:
            record["families"][family.name] = compare_family(family)
            record["tracing"][family.name] = trace_family(family)
        record["versions"] = versions()
        for part in ("families", "tracing"):
            record[part] = {
                family.name: record[part][family.name] for family in families if family.name in record[part]
            }
        write(RECORD, json.dumps(record, indent=1) + "\n")
    rows = [write_source(family, record) for family in families]
    write(GENERATED / "README.md", index(rows, record))
    return 1 if any(value is None for family in record["families"].values() for value in flat(family)) else 0


def versions() -> dict[str, str]:
    import torch
    import transformers

    return {
        "mapper": __version__, "python": platform.python_version(), "torch": torch.__version__.partition("+")[0],
        "transformers": transformers.__version__,
    }  # fmt: skip


def flat(record: dict[str, Any]) -> list[float | None]:
    return [value for types in record.values() for value in types.values() if not isinstance(value, str)]


def compare_family(family: Family) -> dict[str, dict[str, Any]]:
    """For every model type and class the largest difference of any output; text says why there is none."""
    from references import classes, complete_example

    found: dict[str, dict[str, Any]] = {}
    for model_type in family.model_types:
        example = complete_example(family, model_type)
        found[model_type] = {}
        if example is None:
            print(f"{family.name}: no complete example of {model_type}")
            continue
        for name in classes(model_type):
            found[model_type][name] = compare_class(example.config or {}, name)
            print(f"{family.name:16} {name:44} {found[model_type][name]}", flush=True)
    return found


def compare_class(config: dict[str, Any], name: str) -> float | str:
    import torch
    from references import write_reference

    from mapper._verify import verify

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        try:
            write_reference(config, name, Path(folder))
        except Exception as error:
            return f"no reference: {' '.join(f'{type(error).__name__}: {error}'.split())[:120]}"
        try:
            reading = infer(open_source(folder, purpose="headers"), Rulebook()).reading
            result = verify(folder, against="transformers")
        except MapperError as error:
            return f"not compared: {str(error)[:160]}"
        if reading != "exact":
            return f"not exact: {reading}"
        return max((item.value for item in result.outputs), default=float("nan"))


def trace_family(family: Family) -> dict[str, str]:
    """Which of export, compile, gradient step and subclass fail on the family's first example, each with its cause."""
    import torch
    from tracing import failures

    from mapper._build import build_architecture
    from mapper._trial import input_cases

    architecture = infer(header(first_example(family)), Rulebook())
    model = build_architecture(architecture)
    generator = torch.Generator().manual_seed(0)
    made = {
        key: torch.randn(value.shape, generator=generator) * 0.1
        if value.is_floating_point()
        else torch.zeros_like(value, device="cpu")
        for key, value in model.state_dict().items()
    }
    model.load_state_dict(made, assign=True)
    cases = dict(input_cases(architecture, model))
    inputs = cases.get("right padding", cases["plain"])
    found = failures(model, inputs, {name: spec["shape"] for name, spec in architecture.inputs.items()})
    print(f"{family.name:16} {found or 'exports, compiles, trains, subclasses'}", flush=True)
    return found


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
    worst = [value for value in flat(record["families"].get(family.name, {})) if isinstance(value, float)]
    return {
        "family": family.name, "types": ", ".join(family.model_types), "model": architecture.checkpoint.source,
        "reading": architecture.reading, "tensors": len(architecture.checkpoint.tensors),
        "mapped": len(architecture.checkpoint.tensors) - len(architecture.unmapped),
        "lines": text.count("\n"), "compared": len(worst), "worst": max(worst, default=None),
        "defaults": sum(fact.evidence == "default" for fact in architecture.facts),
        "traces": ", ".join(f"not {name}" for name in record["tracing"].get(family.name, {})) or "all",
        "made": "tiny" if family.name not in MODELS else "reconstructed header",
    }  # fmt: skip


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
        "implementation, over every class that the reference has for the type: tiny random weights, plain inputs, padding on",
        f"either side, one row. Compared with {used}; `parity.json` has every figure.",
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
    left_out = [
        f"- {name}: {text}" for types in record["families"].values() for made in types.values()
        for name, text in made.items() if isinstance(text, str)
    ]  # fmt: skip
    notes = ["", "Checks that fail, by cause:", "", *(causes or ["- none"])]
    notes += [
        "",
        "Classes that the reference has and `mapper` does not vouch for yet:",
        "",
        *(left_out or ["- none"]),
    ]
    return "\n".join([*head, *body, *notes]) + "\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")


if __name__ == "__main__":
    sys.exit(main())
