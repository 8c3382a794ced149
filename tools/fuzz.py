"""Changed bytes into every parser of files: anything but an answer or a one-line refusal is a finding.

    python tools/fuzz.py                              # every target, a minute each
    python tools/fuzz.py gguf onnx --seconds 3600     # some of them
    python tools/fuzz.py pickle --guided              # by coverage, with atheris (pip install atheris)
    nice -n 19 python tools/fuzz.py --seconds 600 --record fuzz.json   # adds to the figures in fuzz.json

A finding is: another exception than MapperError, a refusal of several lines, a tensor outside its file, more than a
second of processor time, or more than a gigabyte of memory above that before (the system refuses it, as MemoryError).
Inputs of findings are kept in `--keep`, one file each, to become tests. Exit code 1 if there are any.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import subprocess
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

SECONDS = 1.0  # of processor time for one input
MEMORY = 2**30  # bytes above those in use before
MOST_BYTES = 4_096  # of an input: the parsers' work is to grow with its size, and small ones are many
KEPT = 400  # inputs of a target that were read and are changed further
PIECE = 500  # inputs between two looks at the clock


@dataclass
class Figures:
    """What was reached for one target."""

    executions: int = 0
    read: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    memory: int = 0  # bytes that were added at most
    findings: int = 0


class Mutator:
    """Inputs made from good ones by a few changes each; what was read is changed further."""

    def __init__(self, seeds: list[bytes], words: list[bytes], source: random.Random):
        self.pool, self.words, self.random = list(seeds), words, source
        self.first = len(seeds)
        self.changes = (
            self.flip,
            self.byte,
            self.word,
            self.insert,
            self.cut,
            self.double,
            self.splice,
            self.add,
        )

    def next(self) -> bytes:
        data = bytearray(self.random.choice(self.pool))
        for _ in range(1 + int(self.random.expovariate(0.7))):
            if data:
                self.random.choice(self.changes)(data)
        return bytes(data[:MOST_BYTES])

    def keep(self, data: bytes) -> None:
        if len(self.pool) < KEPT:
            self.pool.append(data)
        else:
            self.pool[self.random.randrange(self.first, KEPT)] = data

    def at(self, data: bytearray) -> int:
        return int(self.random.random() * len(data))

    def flip(self, data: bytearray) -> None:
        data[self.at(data)] ^= 1 << self.random.randrange(8)

    def byte(self, data: bytearray) -> None:
        data[self.at(data)] = self.random.randrange(256)

    def add(self, data: bytearray) -> None:
        at = self.at(data)
        data[at] = (data[at] + self.random.choice((-1, 1))) % 256

    def word(self, data: bytearray) -> None:
        at, word = self.at(data), self.random.choice(self.words)
        data[at : at + len(word)] = word

    def insert(self, data: bytearray) -> None:
        at = self.at(data)
        data[at:at] = self.random.choice(self.words)

    def cut(self, data: bytearray) -> None:
        at = self.at(data)
        del data[at : at + 1 + int(self.random.expovariate(0.1))]

    def double(self, data: bytearray) -> None:
        at = self.at(data)
        data[at:at] = data[at : at + 1 + int(self.random.expovariate(0.05))] * self.random.choice(
            (1, 1, 2, 40)
        )

    def splice(self, data: bytearray) -> None:
        other = self.random.choice(self.pool)
        at, from_ = self.at(data), self.random.randrange(len(other) + 1)
        data[at:] = other[from_:]


def fuzz(name: str, seconds: float, seed: int, keep: Path) -> Figures:
    """Change inputs of one target for so long."""
    from tests.fuzzing import TARGETS, execute, seeds, words

    target, figures = TARGETS[name], Figures()
    mutator = Mutator(list(seeds(name)), words(), random.Random(seed))
    _limit_memory()
    before, start = _peak(), time.monotonic()
    while time.monotonic() - start < seconds:
        for _ in range(PIECE):
            data = mutator.next()
            begun = time.process_time()
            try:
                if execute(target, data):
                    figures.read += 1
                    mutator.keep(data)
            except Exception as error:
                _note(name, data, error, keep, figures)
            spent = time.process_time() - begun
            figures.slowest = max(figures.slowest, spent)
            if spent > SECONDS:
                _note(name, data, TimeoutError(f"{spent:.1f} s"), keep, figures)
        figures.executions += PIECE
    figures.seconds = time.monotonic() - start
    figures.memory = _peak() - before
    return figures


def _limit_memory() -> None:
    """Let the system refuse more than a gigabyte beyond what is in use now."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        pages = int(statm.read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, resource.RLIM_INFINITY))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _note(name: str, data: bytes, error: Exception, keep: Path, figures: Figures) -> None:
    """Keep the input of a finding, under its place in the code: one of each place is enough."""
    figures.findings += 1
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f"{last[0].filename}:{last[0].lineno}" if last else "time"
    mark = hashlib.sha256(f"{type(error).__name__} {where}".encode()).hexdigest()[:8]
    path = keep / f"{name}-{type(error).__name__}-{mark}"
    if not path.exists():
        keep.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        print(f"{name}: {type(error).__name__}: {error} at {where}; kept as {path}", flush=True)


def guided(name: str, seconds: float, keep: Path) -> None:
    """The same by coverage, with atheris, which ends the process."""
    import atheris

    with atheris.instrument_imports(include=["mapper"]):
        from tests.fuzzing import TARGETS, execute, seeds

    corpus = keep / f"{name}-corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for data in seeds(name):
        (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    options = [
        f"-max_total_time={int(seconds)}",
        "-timeout=2",
        "-rss_limit_mb=2048",
        f"-max_len={MOST_BYTES}",
    ]
    atheris.Setup(
        [sys.argv[0], *options, f"-artifact_prefix={keep}/{name}-", str(corpus)],
        lambda data: execute(TARGETS[name], data) and None,
    )
    atheris.Fuzz()


def add(record: Path, name: str, figures: Figures) -> None:
    """Add what was reached to the figures of earlier runs."""
    table = json.loads(record.read_text()) if record.exists() else {}
    old = Figures(**table.get(name, {}))
    new = {key: (max if key in ("slowest", "memory") else lambda *both: sum(both))(getattr(old, key), value)
           for key, value in asdict(figures).items()}  # fmt: skip
    table[name] = new
    record.write_text(json.dumps(table, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help="as tests/fuzzing.py names them; all when left out"
    )
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=None, help="for the same inputs again; else the time")
    parser.add_argument("--keep", type=Path, default=Path("findings"), help="folder for inputs of findings")
    parser.add_argument("--record", type=Path, help="JSON file that the figures are added to")
    parser.add_argument("--guided", action="store_true", help="one target by coverage, with atheris")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)  # in this process
    given = parser.parse_args()
    if given.guided:  # before anything of mapper is imported: it is instrumented on the way in
        guided(given.targets[0], given.seconds, given.keep)
    from tests.fuzzing import TARGETS

    names = given.targets or list(TARGETS)
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        parser.error(f"no target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    if given.alone:
        seed = time.time_ns() if given.seed is None else given.seed
        figures = fuzz(names[0], given.seconds, seed, given.keep)
        print(f"{names[0]}: {figures.executions:,} inputs, {figures.read:,} of them read, in {figures.seconds:.0f} s; "
              f"slowest {figures.slowest:.3f} s, memory +{figures.memory / 1e6:.0f} MB, {figures.findings} findings", flush=True)  # fmt: skip
        if given.record:
            add(given.record, names[0], figures)
        return bool(figures.findings)
    failed = 0
    for name in names:  # a process each: memory that one target took does not count for the next
        options = [word for key in ("seconds", "seed", "keep", "record") if (value := getattr(given, key)) is not None
                   for word in (f"--{key}", str(value))]  # fmt: skip
        failed |= subprocess.run([sys.executable, __file__, name, *options, "--alone"]).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
