"""Runs the ONNX backend suite on imported graphs, and compares with the list of those that pass.

    python tools/onnx_suite.py                    # all core cases; fails where one of the list does not pass any more
    python tools/onnx_suite.py --write            # writes the list anew
    python tools/onnx_suite.py --match resize -v  # some, with the reason of each that does not pass

A core case has plain tensors as inputs and outputs (whole numbers, truth values, floats of 16 bits and more, no texts), nodes
of ONNX's own domain alone, and the same result each time. Each is imported as `mapper build` imports it: read, written as
source, compiled, run. One that the import or the run refuses says why; one that gives
another result is WRONG, unless by the last digits alone.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from mapper.errors import MapperError
from mapper.graphs.reading import read_model
from mapper.graphs.straight.building import build_straight
from mapper.graphs.straight.source import write_model

LIST = Path(__file__).resolve().parent.parent / "tests" / "onnx_suite.txt"
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")  # "real" has downloads
PLAIN = frozenset(
    {*range(1, 8), *range(9, 14), 16}
)  # types of elements: floats from 16 bits on, whole numbers from 8 on, bool
RANDOM = frozenset({
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
})  # fmt: skip


class Case(NamedTuple):
    """One case of the suite."""

    name: str
    model: Any
    sets: list[tuple[list[Any], list[Any]]]  # inputs and outputs, as arrays
    rtol: float
    atol: float


def all_cases(skipped: Counter[str]) -> Iterator[Case]:
    """The core cases by name; why others are none is counted in `skipped`."""
    for kind in KINDS:
        yield from _core(load_model_tests(kind=kind), skipped)


def cases_of(modules: tuple[str, ...]) -> Iterator[Case]:
    """The core cases of some modules of the suite: all of them take seconds to make."""
    node = importlib.import_module("onnx.backend.test.case.node")
    for module in modules:
        before = len(node._NodeTestCases)
        importlib.import_module(f"onnx.backend.test.case.node.{module}")
        yield from _core(node._NodeTestCases[before:], Counter())


def _core(tests: list[Any], skipped: Counter[str]) -> Iterator[Case]:
    for test in tests:
        model = test.model if test.model is not None else onnx.load(f"{test.model_dir}/model.onnx")
        reason = _not_core(model, test.name)
        if reason:
            skipped[reason] += 1
            continue
        sets = test.data_sets if test.data_sets is not None else _stored(Path(test.model_dir))
        yield Case(test.name, model, sets, test.rtol, test.atol)


def _not_core(model: Any, name: str) -> str:
    values = [*model.graph.input, *model.graph.output]
    if any(value.type.WhichOneof("value") != "tensor_type" for value in values):
        return "sequences or optional values"
    if any(value.type.tensor_type.elem_type not in PLAIN for value in values):
        return "texts, or numbers of 8 bits of float and narrower"
    nodes = list(_nodes(model.graph))
    if any(node.domain not in ("", "ai.onnx") for node in nodes):
        return "other domains"
    if any(node.op_type in RANDOM for node in nodes) or "training_dropout" in name:
        return "random"
    return ""


def _nodes(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _stored(folder: Path) -> list[tuple[list[Any], list[Any]]]:
    """Inputs and outputs that lie beside the model."""

    def arrays(part: Path, word: str) -> list[Any]:
        files = sorted(part.glob(f"{word}_*.pb"), key=lambda path: int(path.stem.rpartition("_")[2]))
        return [numpy_helper.to_array(onnx.load_tensor(str(path))) for path in files]

    return [
        (arrays(part, "input"), arrays(part, "output")) for part in sorted(folder.glob("test_data_set_*"))
    ]


def run_case(case: Case, folder: Path) -> str:
    """ "" for one that passes; else why not, `WRONG` first where the result is another."""
    path = folder / "model.onnx"
    onnx.save(case.model, str(path))
    try:
        model = read_model(path)
        straight = write_model(model)
        built = build_straight(straight, case.name)
    except MapperError as error:
        return f"refused: {error}"
    keywords = list(straight.inputs.values())
    names = [value.name for value in case.model.graph.output]
    for given, wanted in case.sets:
        tensors = [_tensor(array) for array in given]
        try:
            with torch.no_grad():
                found = built(**dict(zip(keywords, tensors, strict=False)))
        except Exception as error:
            return f"fails: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        for name, expected in zip(names, wanted, strict=False):
            if why := _differs(found[name], expected, case):
                return "rounds otherwise" if why == "rounding" else f"WRONG: {name}: {why}"
    return ""


def _tensor(array: Any) -> torch.Tensor:
    array = numpy_helper.to_array(array) if isinstance(array, onnx.TensorProto) else array
    array = np.ascontiguousarray(array) if np.ndim(array) else np.asarray(array)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def _differs(found: Any, wanted: Any, case: Case) -> str:
    expected = _tensor(wanted)
    if not isinstance(found, torch.Tensor):
        return f"{type(found).__name__}, no tensor"
    if found.dtype != expected.dtype or tuple(found.shape) != tuple(expected.shape):
        return f"{found.dtype} {list(found.shape)}, not {expected.dtype} {list(expected.shape)}"
    left, right = found.detach(), expected
    if left.dtype in (torch.uint16, torch.uint32, torch.uint64, torch.bool):
        return "" if torch.equal(left, right) else "other numbers"
    try:  # the suite's own comparison, with its tolerances
        torch.testing.assert_close(left, right, rtol=case.rtol, atol=case.atol, equal_nan=True)
    except AssertionError as error:
        return "rounding" if _is_rounding(left, right) else " ".join(str(error).split())[:160]
    return ""


def _is_rounding(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether no number is further off than four steps of the type at the largest: another order of the same sums."""
    if not found.is_floating_point():
        return False
    left, right = found.double(), wanted.double()
    return bool((left - right).abs().max() <= 4 * torch.finfo(found.dtype).eps * right.abs().max())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the list of those that pass")
    parser.add_argument("--match", default="", help="only cases with this in their names")
    parser.add_argument("-v", "--verbose", action="store_true", help="say why each does not pass")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    skipped: Counter[str] = Counter()
    results: dict[str, str] = {}
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for case in all_cases(skipped):
            if options.match in case.name:
                results[case.name] = run_case(case, Path(folder))
    return _report(results, skipped, time.perf_counter() - start, options)


def _report(
    results: dict[str, str], skipped: Counter[str], seconds: float, options: argparse.Namespace
) -> int:
    passed = sorted(name for name, why in results.items() if not why)
    kinds = Counter(why.partition(":")[0] for why in results.values() if why)
    if options.verbose:
        for name, why in results.items():
            if why:
                print(f"{name}: {why}")
    others = ", ".join(f"{count} {why}" for why, count in skipped.most_common())
    print(f"{len(passed)} of {len(results)} core cases pass in {seconds:.0f} s; not core: {others}")
    print(", ".join(f"{count} {word}" for word, count in kinds.most_common()) or "all of them")
    if options.write:
        LIST.write_text("".join(f"{name}\n" for name in passed), encoding="utf-8")
        return 0
    lost = [
        name
        for name in LIST.read_text(encoding="utf-8").split()
        if results.get(name, "gone" if not options.match else "")
    ]
    for name in lost:
        print(f"passed once: {name}: {results.get(name, 'no such case')}", file=sys.stderr)
    return 1 if lost or kinds["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
