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
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import mapper  # noqa: E402
from mapper._api import describe  # noqa: E402
from mapper.architecture import Question  # noqa: E402
from mapper.errors import HintError, MapperError  # noqa: E402
from tools import foreign  # noqa: E402
from tools.drawn import (  # noqa: E402
    chains,
    conformers,
    decoders,
    encoder_decoders,
    encoders,
    hybrids,
    pairs,
    readers,
    speech,
    vision,
)

KINDS: dict[str, ModuleType] = {  # each has draw(seed), truth(draw) and write(draw, folder, seed)
    "chains": chains,  # and classes(draw), the class of each module
    "conformers": conformers,
    "decoders": decoders,
    "encoders": encoders,
    "encoder_decoders": encoder_decoders,
    "hybrids": hybrids,
    "speech": speech,
    "vision": vision,
    "pairs": pairs,
    "readers": readers,
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
        try:
            architecture = describe(str(folder), hints=hints)
        except HintError as error:  # another answer has taken the question away
            idle = next(
                (name for name in hints if "says nothing" in str(error) and f'"{name}"' in str(error)), None
            )
            if idle is None:
                raise
            del hints[idle], known[idle]
            continue
        more = dict[str, Any]()
        for item in architecture.questions:
            more |= told(known, item)
        if more.keys() <= hints.keys():
            return hints, list(architecture.missing)
        hints |= more


def told(known: dict[str, Any], item: Question) -> dict[str, Any]:
    """What answers a question: what is known of its part or of all, or of each layer that lacks it (`conv1:chain.stride`)."""
    for name in (item.name, item.fact):
        if name in known:
            return {item.name: known[name]}
    names = (f"{place}:{item.fact}" for place in item.places)
    return {name: known[name] for name in names if name in known}


def fares(kind: ModuleType, one: Any, folder: Path, seed: int) -> tuple[str, str]:
    """How a draw is read, and why no better."""
    inputs, wanted = kind.write(one, folder, seed)
    try:
        hints, missing = answered(kind, one, folder)
        if missing:
            is_asked = bool(describe(str(folder), hints=hints).questions)
            return (OPEN if is_asked else SKELETON), missing[0]
        with torch.no_grad():
            given = foreign.called(mapper.build(str(folder), hints=hints), inputs)
    except MapperError as error:
        return REFUSED, str(error)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        return WRONG, f"raises {type(error).__name__}: {str(error).splitlines()[0]}"
    answers = f", told {hints}" if hints else ""
    for name, value in wanted.items():
        found = getattr(given, name, None)
        near = foreign.tensors(given) if kind is chains else [] if found is None else [found]
        apart = distance(near, value)
        if not apart <= TOLERANCE:  # no number is not equal
            return WRONG, f"{name}: {apart:.2g} of the largest apart{answers}"
    return (TOLD if hints else EQUAL), ""


def distance(near: Sequence[torch.Tensor], value: torch.Tensor) -> float:
    """How far the nearest output of its shape is from a value, as a share of its largest number.

    Outputs of networks that nobody names have no names that are known.
    """
    known = value.isfinite()  # what stands at paddings is nobody's matter
    apart = [float((one - value)[known].abs().max()) for one in near if one.shape == value.shape]
    return min(apart, default=math.inf) / max(1.0, float(value[known].abs().max()))


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
    right: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as aside:
        for seed in arguments.only or range(arguments.seed, arguments.seed + arguments.count):
            one = kind.draw(seed)
            folder = (arguments.keep or Path(aside)) / str(seed)
            how, why = fares(kind, one, folder, seed)
            counted[how] += 1
            if hasattr(kind, "classes"):
                yield from scored(folder, kind.classes(one), right)
            if how not in (EQUAL, TOLD):
                yield f"{seed}: {how}: {why}\n    {unusual(one)}"
    yield ", ".join(f"{count} {how}" for how, count in counted.most_common())
    for part in ("leaves", "blocks"):
        if right[f"all {part}"]:
            yield f"{part}: {right[part]} of {right[f'all {part}']} of the right kind"


def scored(folder: Path, classes: dict[str, str], right: Counter[str]) -> Iterator[str]:
    """Counts the leaves and blocks of the right kind; each of a wrong one."""
    architecture = describe(str(folder))
    for part, found in (("leaves", foreign.leaves), ("blocks", foreign.blocks)):
        for is_right, text in found(architecture, classes, ""):
            right[part] += is_right
            right[f"all {part}"] += 1
            if not is_right:
                yield f"    {part}: {text}"


def unusual(one: Any) -> dict[str, Any]:
    """What is otherwise than in the plainest draw of its kind, of its parts, too."""
    plain = type(one)()
    pairs = ((item.name, getattr(one, item.name), getattr(plain, item.name)) for item in fields(one))
    return {
        name: unusual(value) if is_dataclass(value) else value
        for name, value, usual in pairs
        if value != usual
    }


if __name__ == "__main__":
    for line in main():
        print(line, flush=True)
