"""Decoders of known pieces in combinations that nobody published: what an unlisted type fares.

    python tools/combinations.py                    # a hundred of them
    python tools/combinations.py --count 20 --seed 7
        --only 3 18                                 # these draws
        --keep FOLDER                               # the checkpoints, to look at with `mapper inspect`

Each draw has norms, their places, projections, biases, positions, masks, gates, experts and factors of its own, names of
one of four schemes, and a config as the model hub's classes write it, with a model_type that nobody lists. What it computes
is written in tools/decoders.py, apart from all rules. It is read with nothing said, then with each question answered in truth: "wrong" must
be none in either column, and a skeleton says that pieces which are known do not compose.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import mapper  # noqa: E402
from mapper._api import describe  # noqa: E402
from mapper.errors import MapperError  # noqa: E402
from tools.decoders import Draw, draw, truth, write  # noqa: E402

TOLERANCE = 1e-4  # of the largest logit, or of 1 where that is less
EQUAL, TOLD, OPEN, SKELETON, WRONG, REFUSED = (
    "equal",
    "equal when told",
    "asked",
    "skeleton",
    "wrong",
    "refused",
)


def answered(one: Draw, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """All that was asked and answered, and what is lacking then."""
    known, hints = truth(one), dict[str, Any]()
    while True:
        architecture = describe(str(folder), hints=hints)
        more = {item.name: known[item.fact] for item in architecture.questions if item.fact in known}
        if more.keys() <= hints.keys():
            return hints, list(architecture.missing)
        hints |= more


def fares(one: Draw, folder: Path, seed: int) -> tuple[str, str]:
    """How a draw is read, and why no better."""
    ids, wanted = write(one, folder, seed)
    try:
        hints, missing = answered(one, folder)
        if missing:
            is_asked = bool(describe(str(folder), hints=hints).questions)
            return (OPEN if is_asked else SKELETON), missing[0]
        with torch.no_grad():
            given = mapper.build(str(folder), hints=hints)(ids).logits
    except MapperError as error:
        return REFUSED, str(error)
    apart = float((given - wanted).abs().max()) / max(1.0, float(wanted.abs().max()))
    if apart > TOLERANCE:
        return WRONG, f"{apart:.2g} of the largest apart{f', told {hints}' if hints else ''}"
    return (TOLD if hints else EQUAL), ""


def main() -> Iterator[str]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100, metavar="N", help="how many (100)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first draw (0)")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="these draws")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where to leave the checkpoints")
    arguments = parser.parse_args()
    counted: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as aside:
        for seed in arguments.only or range(arguments.seed, arguments.seed + arguments.count):
            one = draw(seed)
            how, why = fares(one, (arguments.keep or Path(aside)) / str(seed), seed)
            counted[how] += 1
            if how not in (EQUAL, TOLD):
                yield f"{seed}: {how}: {why}\n    {one.unusual()}"
    yield ", ".join(f"{count} {how}" for how, count in counted.most_common())


if __name__ == "__main__":
    for line in main():
        print(line, flush=True)
