"""Which fields of a generated Config cannot be edited alone: a size that still stands somewhere else as a number.

    python tools/editing.py                 # the source of each family's first example, run on the CPU
    python tools/editing.py llama resnet    # of these families
    python tools/editing.py --generated     # the files of generated/, on the meta device: minutes
    python tools/editing.py --checkpoints FOLDER --sample 25  # of checkpoints that score.py reads, so many of them

Each whole number of a Config, or list of them, is made larger in turn, and a fresh model is made and run. What raises is told
with the statement that did. Where a field is the size of an input, the input goes with it. Some sizes depend on
others whatever the source says (a number of positions is a square of patches); what then has no larger value is told, too.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from mapper._build import NothingDrawn  # noqa: E402
from mapper._trial import OTHER_EXTENTS, made_up_of  # noqa: E402
from mapper.architecture import Architecture  # noqa: E402
from mapper.emission import emit  # noqa: E402
from mapper.errors import MapperError  # noqa: E402
from mapper.inference import infer  # noqa: E402
from mapper.rulebook.examples import header, is_near_miss  # noqa: E402
from mapper.rulebook.families import Family  # noqa: E402
from mapper.rulebook.rulebook import Rulebook  # noqa: E402


@dataclass(frozen=True)
class Broken:
    """A field that has no larger value with which the model runs."""

    field: str
    value: Any
    why: str  # the error of the first value that was tried, and the statement that raised it


class Source:
    """A generated source as a module, and inputs with which its model runs."""

    def __init__(self, name: str, architecture: Architecture, device: str = "cpu"):
        self.architecture, self.device, self.text = architecture, device, emit(architecture)
        self.module = ModuleType(f"edited_{name}")
        sys.modules[self.module.__name__] = self.module  # where a dataclass looks its annotations up
        exec(compile(self.text, self.module.__name__, "exec"), self.module.__dict__)
        self.config = getattr(self.module, "Config", lambda: None)()
        self.inputs: dict[str, Tensor] = {}

    def runs(self) -> bool:
        """Whether it runs as it is, with inputs that are then kept."""
        model = self.made(self.config)
        wanted = [name for name, spec in self.architecture.inputs.items() if not spec.get("optional")]
        for sizes in OTHER_EXTENTS:
            self.inputs = made_up_of(self.architecture, model, wanted, sizes)
            try:
                self.run(self.config, self.inputs)
            except Exception:  # a model that does not run as it is tells nothing
                continue
            return True
        return False

    def made(self, config: Any) -> torch.nn.Module:
        with torch.device("meta"), NothingDrawn():
            model: torch.nn.Module = self.module.Model() if config is None else self.module.Model(config)
        if self.device != "meta":
            model.to_empty(device=self.device)
            for tensor in model.state_dict().values():
                tensor.fill_(0.01) if tensor.is_floating_point() else tensor.zero_()
        return model.eval()

    @torch.no_grad()
    def run(self, config: Any, inputs: Mapping[str, Tensor]) -> None:
        self.made(config)(**inputs)

    def fields(self) -> list[str]:
        """The fields that are whole numbers, or lists of them."""
        return [item.name for item in fields(self.config) if _is_whole(getattr(self.config, item.name))]

    def broken(self) -> Iterator[Broken]:
        """The fields that cannot be edited alone."""
        for name in self.fields():
            value = getattr(self.config, name)
            why = [self.error(name, value, larger) for larger in _larger(value)]
            if all(why):
                yield Broken(name, value, why[0])

    def error(self, name: str, value: Any, larger: Any) -> str:
        """What is raised with another value, with the inputs as they are and then of that size; "" for nothing."""
        config, told = replace(self.config, **{name: larger}), ""
        for inputs in self.resized(value, larger):
            try:
                self.run(config, inputs)
            except Exception as error:  # whatever a model raises is what is told
                told = told or self.told(error)
            else:
                return ""
        return told

    def resized(self, value: Any, larger: Any) -> Iterator[dict[str, Tensor]]:
        """The inputs as they are, then with those extents that are as large as the field, but for the batch's, larger.

        At last, where a pixel is one of many numbers in a row, with extents that the field, or its square, divides.
        """
        yield self.inputs
        if not isinstance(value, int):
            return
        yield self.with_extents(lambda size: larger if size == value else size)
        for power in (1, 2):
            yield self.with_extents(partial(_scaled, value=value**power, larger=larger**power))

    def with_extents(self, other: Callable[[int], int]) -> dict[str, Tensor]:
        """The inputs with other extents behind the first, but for those of ids and places."""
        made = {}
        for name, tensor in self.inputs.items():
            shape = [other(size) if at else size for at, size in enumerate(tensor.shape)]
            is_same = shape == list(tensor.shape) or not tensor.is_floating_point()
            made[name] = tensor if is_same else tensor.new_zeros(shape)
        return made

    def told(self, error: Exception) -> str:
        """An error in a line, with the last statement of the source that it went through."""
        frames = traceback.extract_tb(error.__traceback__)
        numbers = [frame.lineno or 1 for frame in frames if frame.filename == self.module.__name__]
        row = self.text.splitlines()[numbers[-1] - 1].strip() if numbers else ""
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:100]}  ({row[:90]})"


def _is_whole(value: Any) -> bool:
    values = value if isinstance(value, tuple) else (value,)
    return bool(values) and all(type(item) is int for item in values)


def _scaled(size: int, value: int, larger: int) -> int:
    """A size that is so many times a value, as many times a larger one."""
    return size // value * larger if size % value == 0 else size


def _larger(value: Any) -> list[Any]:
    """Larger values, of which one may do: doubled, one step more (a kernel stays odd), so many patches more."""
    if isinstance(value, tuple):
        return [tuple(made) for made in zip(*map(_larger, value), strict=True)]
    made = (2 * value, value + 2, 4 * value, 4 * (value - 1) + 1, 4 * (value - 2) + 2)
    return [item if item > value else 2 * value for item in made]


def example(family: Family, rulebook: Rulebook) -> Architecture | None:
    """The reading of the first example of a family from which source with a forward is written."""
    shown = next((item for item in family.examples if not is_near_miss(item)), None)
    try:
        read = infer(header(shown), rulebook) if shown is not None else None
    except MapperError:
        return None
    return None if read is None or read.reading == "skeleton" or read.missing else read


def generated(rulebook: Rulebook) -> Iterator[tuple[str, Architecture]]:
    """The reading of the model of each file of generated/."""
    import validate

    for path in sorted((ROOT / "generated").glob("*.py")):
        name = path.read_text(encoding="utf-8").removeprefix('"""').partition(":")[0]
        yield path.stem, validate.read(name, rulebook)


def stored(folder: Path, sample: int | None, only: list[str]) -> Iterator[tuple[str, Architecture]]:
    """The reading of checkpoints of a folder: all, those that are named, or so many, the same ones each time."""
    from score import cases

    from mapper._api import describe

    paths = [path for path, _ in cases(folder) if not only or path.name in only]
    drawn = random.Random(0).sample(paths, min(sample or len(paths), len(paths)))
    for path in sorted(drawn):
        try:
            read = describe(path, purpose="weights")
        except MapperError:
            continue
        if read.reading != "skeleton" and not read.missing:
            yield path.name, read


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("only", nargs="*", help="families, or files of generated/")
    parser.add_argument(
        "--generated", action="store_true", help="the files of generated/, on the meta device"
    )
    parser.add_argument("--checkpoints", type=Path, metavar="FOLDER", help="checkpoints of a folder")
    parser.add_argument("--sample", type=int, metavar="N", help="so many of them")
    arguments = parser.parse_args()
    rulebook = Rulebook()
    if arguments.checkpoints is not None:
        read = stored(arguments.checkpoints, arguments.sample, arguments.only)
    elif arguments.generated:
        read = generated(rulebook)
    else:
        chosen = [item for item in rulebook.families if not arguments.only or item.name in arguments.only]
        read = ((item.name, found) for item in chosen if (found := example(item, rulebook)))
    counts = [0, 0, 0]
    for name, architecture in read:
        if arguments.only and name not in arguments.only:
            continue
        try:
            source = Source(name, architecture, "meta" if arguments.generated else "cpu")
        except MapperError as error:
            print(f"{name}: {error}", flush=True)
            continue
        if source.config is None or not source.runs():
            print(f"{name}: does not run here as it is", flush=True)
            continue
        broken = list(source.broken())
        for item in broken:
            print(f"{name}: {item.field} = {item.value}: {item.why}", flush=True)
        counts = [counts[0] + len(broken), counts[1] + len(source.fields()), counts[2] + bool(broken)]
    print(f"{counts[0]} of {counts[1]} fields, in {counts[2]} sources")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
