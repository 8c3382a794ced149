"""How many checkpoints with stored inputs and outputs are read, and how many of these give the outputs.

    python tools/score.py CHECKPOINTS                  # as mapper reads them
    python tools/score.py CHECKPOINTS --twice          # and again by the vocabulary and the flows alone
    python tools/score.py CHECKPOINTS --leave-one-out  # each type as if nobody had ever met it
        --only bert t5                                 # these types; the others still count as users of rules
        --json FILE                                    # what was taken out for each type, and what was lacking
    python tools/score.py CHECKPOINTS --device cuda    # the models there; 32-bit floats, no TF32

A folder counts that has config.json, model.safetensors, inputs.safetensors and outputs.safetensors. Outputs are equal
within 1e-4 of the largest value, or of 1 where that is less.

--leave-one-out reads each type without its row, and without whatever flow, step, word, fact or field of a config no
other type of CHECKPOINTS takes: the estimate of how an architecture fares that no family lists. "Asked" is what only
answers are lacking to; it is read again with those that the listed reading knows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from leaving import Left, leave_one_out, tally  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

import mapper  # noqa: E402
from mapper._api import describe  # noqa: E402
from mapper._build import build_architecture  # noqa: E402
from mapper.architecture import Architecture  # noqa: E402

TOLERANCE = 1e-4
READINGS = ("exact", "unverified", "skeleton", "refused")


class Score(NamedTuple):
    """One checkpoint: what it was read as, and why its outputs are others; None where they are equal."""

    name: str
    model_type: str
    reading: str
    trouble: str | None
    is_asked: bool = False  # only answers are lacking: --set would make a model of it
    missing: tuple[str, ...] = ()  # all that a skeleton lacks


def cases(folder: Path) -> Iterator[tuple[Path, str]]:
    """Each checkpoint of a folder with its model type."""
    for path in sorted(folder.iterdir()):
        if (path / "outputs.safetensors").exists():
            yield path, str(json.loads((path / "config.json").read_text()).get("model_type"))


def score(path: Path, model_type: str, read: Callable[[Path], Architecture], device: str = "cpu") -> Score:
    """The reading of one checkpoint, and what is wrong with its outputs."""
    made_of = partial(Score, path.name, model_type)
    try:
        architecture = read(path)
    except mapper.MapperError as error:
        return made_of("refused", str(error))
    missing = tuple(architecture.missing)
    lacks = bool(missing) and set(missing) <= set(map(str, architecture.questions)), missing
    if architecture.reading == "skeleton":
        return made_of("skeleton", "; ".join(missing[:2]) or "no flow", *lacks)
    try:
        model = build_architecture(architecture, device=device)
    except mapper.MapperError as error:
        return made_of("refused", str(error), *lacks)
    inputs, wanted = (load_file(path / f"{name}.safetensors", device) for name in ("inputs", "outputs"))
    torch.manual_seed(0)
    try:
        with torch.no_grad():
            made = model(**inputs)
    except Exception as error:  # a model may stumble over anything: that is what is asked
        return made_of(architecture.reading, f"{type(error).__name__}: {error}")
    return made_of(architecture.reading, next(differences(made, wanted), None))


def differences(made: Any, wanted: dict[str, torch.Tensor]) -> Iterator[str]:
    """A line for each stored output that the model's is not."""
    for name, value in wanted.items():
        head, _, at = name.partition(".")
        got = getattr(made, head, None)
        if at and got is not None:
            got = got[int(at)] if int(at) < len(got) else None
        shape = tuple(got.shape) if isinstance(got, torch.Tensor) else None if got is None else "several"
        if shape != tuple(value.shape):
            yield f"{name} is {shape}, not {tuple(value.shape)}"
        elif not (got - value).abs().max() <= TOLERANCE * value.abs().max().clamp(min=1):
            yield f"{name} is off by {float((got - value).abs().max()):.1e}"


def table(title: str, found: list[Score]) -> str:
    """Checkpoints and equal ones by reading, and the model types that are equal throughout."""
    every, equal = Counter(item.reading for item in found), Counter(i.reading for i in found if not i.trouble)
    types = {item.model_type for item in found}
    lacking = {item.model_type for item in found if item.trouble}
    rows = [f"{name}: {every[name]}, {equal[name]} equal" for name in READINGS if every[name]]
    return f"{title}: {'; '.join(rows)}; {len(types - lacking)} of {len(types)} model types equal"


def report(found: Iterable[Score], said: Callable[[Score], str] = lambda item: item.reading) -> None:
    for item in found:
        if item.trouble:
            print(f"{item.name}: {said(item)}: {' '.join(item.trouble.split())[:200]}")


def as_read(folder: Path, families: bool, device: str) -> int:
    """Print the scores of a folder; how many are exact and wrong."""
    read = partial(describe, purpose="weights", families=families)
    found = [score(path, model_type, read, device) for path, model_type in cases(folder)]
    report(found)
    print(table("with families" if families else "without families", found))
    return sum(item.reading == "exact" and item.trouble is not None for item in found)


def left_out(folder: Path, only: list[str], file: Path | None) -> None:
    """Print the scores of each type of a folder without what serves it alone."""
    found: list[Left] = []
    for left in leave_one_out(list(cases(folder)), score, set(only)):
        for case in left.cases:
            report([case.score], lambda _, case=case: case.outcome)  # type: ignore[misc]
        found.append(left)
    print(tally(found))
    if file:
        file.write_text(json.dumps([left.document() for left in found], indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", type=Path, help="a folder of checkpoints")
    parser.add_argument("--twice", action="store_true", help="without families, too")
    parser.add_argument("--leave-one-out", action="store_true", help="each type without what serves it alone")
    parser.add_argument("--only", nargs="+", default=[], metavar="TYPE", help="leave out these types alone")
    parser.add_argument("--device", default="cpu", help="where the models run, such as cuda")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write what was left out, and what was lacking"
    )
    arguments = parser.parse_args()
    if (arguments.only or arguments.json) and not arguments.leave_one_out:
        parser.error("--only and --json go with --leave-one-out")
    if arguments.leave_one_out:
        left_out(arguments.checkpoints, arguments.only, arguments.json)
        return 0
    torch.backends.cudnn.allow_tf32 = False  # ten bits of a number are no comparison
    wrong = sum(
        as_read(arguments.checkpoints, way, arguments.device)
        for way in ((True, False) if arguments.twice else (True,))
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
