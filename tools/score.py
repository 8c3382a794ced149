"""How many checkpoints with stored inputs and outputs are read, and how many of these give the outputs.

    python tools/score.py CHECKPOINTS              # as mapper reads them
    python tools/score.py CHECKPOINTS --twice      # and again by the vocabulary and the flows alone, without families

A folder counts that has config.json, model.safetensors, inputs.safetensors and outputs.safetensors. Outputs are equal
within 1e-4 of the largest value, or of 1 where that is less.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

import mapper  # noqa: E402
from mapper._api import describe  # noqa: E402
from mapper._build import build_architecture  # noqa: E402

TOLERANCE = 1e-4
READINGS = ("exact", "unverified", "skeleton", "refused")


class Score(NamedTuple):
    """One checkpoint: what it was read as, and why its outputs are others; None where they are equal."""

    name: str
    model_type: str
    reading: str
    trouble: str | None


def scores(folder: Path, families: bool) -> Iterator[Score]:
    for path in sorted(folder.iterdir()):
        if (path / "outputs.safetensors").exists():
            model_type = str(json.loads((path / "config.json").read_text()).get("model_type"))
            reading, trouble = score(path, families)
            yield Score(path.name, model_type, reading, trouble)


def score(path: Path, families: bool) -> tuple[str, str | None]:
    """The reading of one checkpoint, and what is wrong with its outputs."""
    try:
        architecture = describe(path, purpose="weights", families=families)
        if architecture.reading == "skeleton":
            return "skeleton", "; ".join(architecture.missing[:2]) or "no flow"
        model = build_architecture(architecture)
    except mapper.MapperError as error:
        return "refused", str(error)
    inputs, wanted = (load_file(path / f"{name}.safetensors") for name in ("inputs", "outputs"))
    torch.manual_seed(0)
    try:
        with torch.no_grad():
            made = model(**inputs)
    except Exception as error:  # a model may stumble over anything: that is what is asked
        return architecture.reading, f"{type(error).__name__}: {error}"
    return architecture.reading, next(differences(made, wanted), None)


def differences(made: Any, wanted: dict[str, torch.Tensor]) -> Iterator[str]:
    """A line for each stored output that the model's is not."""
    for name, value in wanted.items():
        head, _, at = name.partition(".")
        got = getattr(made, head, None)
        got = got[int(at)] if at and got is not None else got
        if got is None or got.shape != value.shape:
            yield f"{name} is {None if got is None else tuple(got.shape)}, not {tuple(value.shape)}"
        elif not (got - value).abs().max() <= TOLERANCE * value.abs().max().clamp(min=1):
            yield f"{name} is off by {float((got - value).abs().max()):.1e}"


def table(title: str, found: list[Score]) -> str:
    """Checkpoints and equal ones by reading, and the model types that are equal throughout."""
    every, equal = Counter(item.reading for item in found), Counter(i.reading for i in found if not i.trouble)
    types = {item.model_type for item in found}
    lacking = {item.model_type for item in found if item.trouble}
    rows = [f"{name}: {every[name]}, {equal[name]} equal" for name in READINGS if every[name]]
    return f"{title}: {'; '.join(rows)}; {len(types - lacking)} of {len(types)} model types equal"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", type=Path, help="a folder of checkpoints")
    parser.add_argument("--twice", action="store_true", help="without families, too")
    arguments = parser.parse_args()
    wrong = 0
    for families in (True, False) if arguments.twice else (True,):
        found = list(scores(arguments.checkpoints, families))
        for item in found:
            if item.trouble:
                print(f"{item.name}: {item.reading}: {' '.join(item.trouble.split())[:200]}")
        print(table("with families" if families else "without families", found))
        wrong += sum(item.reading == "exact" and item.trouble is not None for item in found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
