"""Loading, looking at, saving and comparing weights beside torch and safetensors; `tools/bench.py` prints the rows.

Each measurement is a process of its own: `python tools/bench_weights.py CASE SIDE FOLDER NOTE` does one and writes
seconds and megabytes to NOTE. The megabytes are of anonymous memory, beyond what was there before: pages of a mapped
file come and go as the system likes.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from timing import ROOT, Line, alone, in_turns, memory, run_python, seconds

if TYPE_CHECKING:
    from torch import nn

WIDTH, BLOCKS = 2048, 30  # 1.0 billion parameters, 2.0 GB in bfloat16
LARGEST = 2 * 4 * WIDTH * WIDTH / 1e6  # megabytes of its largest tensor
MODULES = 10_000
SAMPLES = 0.005  # seconds between two looks at the memory
HEADERS = 100_000


# ----------------------------------------------------------------------------------------------------------- rows
def weights(folder: Path, repeat: int) -> Iterator[Line]:
    """`tree`, `load_weights` and `save` of a billion parameters; ratios against a peer in the same turns."""
    note = folder / "weights.json"
    run_python(__file__, "write", "-", str(folder), str(note))

    def measure(case: str) -> tuple[list[list[float]], list[list[float]]]:
        def side(name: str) -> list[float]:
            run_python(__file__, case, name, str(folder), str(note))
            found: list[float] = json.loads(note.read_text())
            return found

        ours, theirs = in_turns(repeat, lambda: side("mapper"), lambda: side("peer"))
        return _columns(ours), _columns(theirs)

    ours, theirs = measure("tree")
    yield seconds("`tree` of 1.0 billion parameters; `state_dict()`", ours[0], theirs[0], None)
    yield memory("peak memory of that `tree`", ours[1], theirs[1], None)
    ours, _ = measure("modules")
    each = 1000 * median(ours[0]) / (MODULES / 1000)
    what = "`tree` of 10,000 modules, a thousand of them"
    yield Line(what, f"{each:.1f} ms", limit=10, measured=each, unit="ms")
    ours, theirs = measure("module")
    yield seconds("strict `load_weights` of 2.0 GB from a module; a loop of `copy_`", ours[0], theirs[0], 1.1)
    yield memory("peak memory of that `load_weights`", ours[1], theirs[1], None)
    ours, theirs = measure("file")
    what = "strict `load_weights` of 2.0 GB from a file; `safetensors.torch.load_model`"
    yield seconds(what, ours[0], theirs[0], 1.15)
    yield memory("peak memory of the load from a file; its peer", ours[1], theirs[1], None)
    yield memory("peak memory of the load from a file; the largest tensor", ours[1], [LARGEST], 1.0)
    ours, theirs = measure("save")
    yield seconds("`save` of 2.0 GB; `safetensors.torch.save_model` and fsync", ours[0], theirs[0], 1.1)
    yield memory("peak memory of that `save`", ours[1], theirs[1], None)


def comparing(folder: Path, repeat: int) -> Iterator[Line]:
    """`mapper diff` of two headers of 100,000 tensors, as a whole process."""
    one, other = (_header(folder / f"compared-{dtype}.safetensors", dtype) for dtype in ("F32", "I32"))
    commands = {
        "--json": (str(one), str(other), "--json"),
        "of equal ones": (str(one), str(one)),
        "with both architectures": (str(one), str(other)),
    }
    sides = [lambda given=given: run_python("-m", "mapper", "diff", *given) for given in commands.values()]
    for name, times in zip(commands, in_turns(repeat, *sides), strict=True):
        yield alone(f"`mapper diff` of two headers of 100,000 tensors {name}", times)


def _columns(rows: list[list[float]]) -> list[list[float]]:
    return [list(column) for column in zip(*rows, strict=True)]


# ------------------------------------------------------------------------------------------------- one measurement
def main(case: str, side: str, folder: str, note: str) -> None:
    """One case in this process; what it takes goes to `note` as JSON."""
    sys.path.insert(0, str(ROOT))
    import torch

    torch.set_grad_enabled(False)
    work = CASES[case](side, Path(folder))
    if work is None:
        return
    with _anonymous_memory() as peak:
        start = time.perf_counter()
        kept = work()
        elapsed = time.perf_counter() - start
    del kept
    Path(note).write_text(json.dumps([elapsed, peak[0]]))


@contextmanager
def _anonymous_memory() -> Iterator[list[float]]:
    """The most that was added to this process's anonymous memory inside, in megabytes; Linux alone tells it."""
    before, peak, done = _anonymous(), [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(SAMPLES):
            peak[0] = max(peak[0], _anonymous() - before)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield peak
    finally:
        peak[0] = max(peak[0], _anonymous() - before)
        done.set()
        watching.join()


def _anonymous() -> float:
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            found = [line.split()[1] for line in status if line.startswith("RssAnon")]
    except OSError:
        return 0.0
    return int(found[0]) / 1000 if found else 0.0


def _stack(blocks: int, width: int, value: float) -> nn.Module:
    """Blocks of two linear maps and a norm, every number the same: initialising them would take longer than loading."""
    import torch
    from torch import nn

    with torch.device("meta"):
        model = nn.Sequential(
            *(
                nn.Sequential(
                    nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
                )
                for _ in range(blocks)
            )
        ).bfloat16()
    model = model.to_empty(device="cpu")
    for tensor in model.state_dict().values():
        tensor.fill_(value)
    return model


def _large(value: float) -> nn.Module:
    return _stack(BLOCKS, WIDTH, value)


def _write(side: str, folder: Path) -> None:
    from safetensors.torch import save_model

    if not (folder / "stack.safetensors").exists():
        save_model(_large(1.0), str(folder / "stack.safetensors"))


def _tree(side: str, folder: Path) -> Callable[[], Any]:
    import mapper

    model = _large(1.0)
    warm = _stack(1, 8, 0.0)
    look = mapper.tree if side == "mapper" else lambda model: model.state_dict()
    look(warm)  # imports are not what is measured
    return lambda: look(model)


def _modules(side: str, folder: Path) -> Callable[[], Any]:
    import mapper

    model = _stack(MODULES // 5, 1, 0.0)
    mapper.tree(model)
    return lambda: mapper.tree(model)


def _module(side: str, folder: Path) -> Callable[[], Any]:
    import mapper

    model, other = _large(0.0), _large(1.0)
    mapper.load_weights(_stack(1, 8, 0.0), _stack(1, 8, 1.0))
    return (lambda: mapper.load_weights(model, other)) if side == "mapper" else lambda: _copy(model, other)


def _copy(model: nn.Module, other: nn.Module) -> None:
    theirs = other.state_dict()
    for name, tensor in model.state_dict().items():
        tensor.copy_(theirs[name])


def _file(side: str, folder: Path) -> Callable[[], Any]:
    from safetensors.torch import load_model, save_model

    import mapper

    model, file, small = _large(0.0), str(folder / "stack.safetensors"), str(folder / "small.safetensors")
    load = mapper.load_weights if side == "mapper" else load_model
    save_model(_stack(1, 8, 0.0), small)
    load(_stack(1, 8, 1.0), small)
    return lambda: load(model, file)


def _save(side: str, folder: Path) -> Callable[[], Any]:
    model = _large(1.0)
    file = folder / f"saved-by-{side}.safetensors"
    save = _save_and_sync if side == "peer" else _save_ours
    save(file, model)  # the first one reads the memory in, imports, and leaves the disk busy
    file.unlink()
    os.sync()
    return lambda: save(file, model)


def _save_ours(path: Path, model: nn.Module) -> None:
    import mapper

    mapper.save(path, model)


def _save_and_sync(path: Path, model: nn.Module) -> None:
    from safetensors.torch import save_model

    save_model(model, str(path))
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _header(path: Path, dtype: str) -> Path:
    """A mixture of experts with one tensor of four bytes an expert, written once."""
    if not path.exists():
        header = {
            f"model.layers.{at // 2000}.mlp.experts.{at % 2000}.up_proj.weight": {
                "dtype": dtype,
                "shape": [1, 1],
                "data_offsets": [4 * at, 4 * at + 4],
            }
            for at in range(HEADERS)
        }
        text = json.dumps(header).encode()
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + 4 * HEADERS)
    return path


CASES: dict[str, Callable[[str, Path], Callable[[], Any] | None]] = {
    "write": _write,
    "tree": _tree,
    "modules": _modules,
    "module": _module,
    "file": _file,
    "save": _save,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
