"""Networks of known pieces in combinations that nobody published: what an unlisted type fares.

    python tools/combinations.py decoders           # a hundred of them
    python tools/combinations.py decoders --count 20 --seed 7
        --only 3 18                                 # these draws
        --keep FOLDER                               # the checkpoints, to look at with `mapper inspect`

Each draw has norms, their places, projections, biases, positions, masks, gates and factors of its own, names of one of
several schemes, and a config as the model hub's classes write it, with a model_type that nobody lists. What it computes is
written in tools/drawn, a file for each kind of network, apart from all rules. It is read with nothing said, then with each
question answered in truth: "wrong" must be none in either column, and a skeleton says that known pieces do not compose.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import mapper  # noqa: E402
from mapper._api import describe  # noqa: E402
from mapper.errors import MapperError  # noqa: E402
from tools.drawn import conformers, decoders, hybrids, speech  # noqa: E402

KINDS: dict[str, ModuleType] = {  # each has draw(seed), truth(draw) and write(draw, folder, seed)
    "decoders": decoders,
    "hybrids": hybrids,
    "speech": speech,
    "conformers": conformers,
}
TOLERANCE = 1e-4  # of the largest value of an output, or of 1 where that is less
EQUAL, TOLD, OPEN, SKELETON, WRONG, REFUSED = (
    "equal",
    "equal when told",
    "asked",
    "skeleton",
    "wrong",
    "refused",
)


def answered(kind: ModuleType, one: Any, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """All that was asked and answered, and what is lacking then."""
    known, hints = kind.truth(one), dict[str, Any]()
    while True:
        architecture = describe(str(folder), hints=hints)
        more = {item.name: known[item.fact] for item in architecture.questions if item.fact in known}
        if more.keys() <= hints.keys():
            return hints, list(architecture.missing)
        hints |= more


def fares(kind: ModuleType, one: Any, folder: Path, seed: int) -> tuple[str, str]:
    """How a draw is read, and why no better."""
    inputs, wanted = kind.write(one, folder, seed)
    try:
        hints, missing = answered(kind, one, folder)
        if missing:
            is_asked = bool(describe(str(folder), hints=hints).questions)
            return (OPEN if is_asked else SKELETON), missing[0]
        with torch.no_grad():
            given = mapper.build(str(folder), hints=hints)(**inputs)
    except MapperError as error:
        return REFUSED, str(error)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        return WRONG, f"raises {str(error).splitlines()[0]}"
    for name, value in wanted.items():
        apart = float((getattr(given, name) - value).abs().max()) / max(1.0, float(value.abs().max()))
        if apart > TOLERANCE:
            return WRONG, f"{name}: {apart:.2g} of the largest apart{f', told {hints}' if hints else ''}"
    return (TOLD if hints else EQUAL), ""


def main() -> Iterator[str]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=KINDS, help="which networks")
    parser.add_argument("--count", type=int, default=100, metavar="N", help="how many (100)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first draw (0)")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="these draws")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where to leave the checkpoints")
    arguments = parser.parse_args()
    kind = KINDS[arguments.kind]
    counted: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as aside:
        for seed in arguments.only or range(arguments.seed, arguments.seed + arguments.count):
            one = kind.draw(seed)
            how, why = fares(kind, one, (arguments.keep or Path(aside)) / str(seed), seed)
            counted[how] += 1
            if how not in (EQUAL, TOLD):
                yield f"{seed}: {how}: {why}\n    {unusual(one)}"
    yield ", ".join(f"{count} {how}" for how, count in counted.most_common())


def unusual(one: Any) -> dict[str, Any]:
    """What is otherwise than in the plainest draw of its kind."""
    plain = type(one)()
    names = (item.name for item in fields(one))
    return {name: getattr(one, name) for name in names if getattr(one, name) != getattr(plain, name)}


if __name__ == "__main__":
    for line in main():
        print(line, flush=True)
