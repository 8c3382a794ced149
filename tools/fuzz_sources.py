"""Changed bytes through every reader of containers, for as long as you like: `python tools/fuzz_sources.py --seconds 600`.

Each run changes a few bytes of a small good file, or cuts or repeats a stretch of it, and reads its header; what a header
promises is then read too. Anything but a MapperError ends the run and leaves the file beside it. With `--atheris` (pip
install atheris) the same targets are driven by coverage.
"""

from __future__ import annotations

import argparse
import io
import random
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mapper.errors import MapperError  # noqa: E402
from mapper.sources.directory import read_table  # noqa: E402
from mapper.sources.shards import joined  # noqa: E402
from tests.property.test_container_fuzz import SAMPLES  # noqa: E402

SLOW = 1.0  # seconds, of one file of some hundred bytes


def read_one(name: str, data: bytes) -> None:
    """The table of a file in memory, and every tensor that is not simply a stretch of it."""
    try:
        shard = read_table(io.BytesIO(data), len(data), name)
        if (shard.contents is None and not shard.beside) or shard.contents is not None:
            joined([shard], name, None)
        for decode in shard.decoded.values():
            decode(memoryview(data))
    except MapperError as error:
        assert "\n" not in str(error)


def changed(data: bytes, draw: random.Random) -> bytes:
    """A few bytes of `data` otherwise; sometimes a stretch of it left out, or twice."""
    found = bytearray(data)
    for _ in range(draw.randint(1, 5)):
        at = draw.randrange(len(found))
        kind = draw.random()
        if kind < 0.7:
            found[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
        elif kind < 0.85:
            del found[at : at + draw.randint(1, 9)]
        else:
            found[at:at] = found[at : at + draw.randint(1, 9)]
        if not found:
            return b""
    return bytes(found)


def run(seconds: float, seed: int, names: list[str]) -> int:
    draw, end = random.Random(seed), time.monotonic() + seconds
    count, slowest, start = 0, 0.0, time.monotonic()
    while time.monotonic() < end:
        for name in names:
            data = changed(SAMPLES[name], draw)
            began = time.monotonic()
            try:
                read_one(name, data)
            except BaseException:
                Path(f"fuzz-{name}").write_bytes(data)
                print(f"{name}: after {count:,} runs; the file is fuzz-{name}")
                raise
            took = time.monotonic() - began
            if took > max(slowest, SLOW):
                Path(f"slow-{name}").write_bytes(data)
            slowest, count = max(slowest, took), count + 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    spent = time.monotonic() - start
    print(
        f"{count:,} runs in {spent:,.0f} s, the slowest {slowest * 1000:.0f} ms, memory at most {peak:,.0f} MB"
    )
    return int(slowest > SLOW)


def by_coverage(names: list[str]) -> None:
    import atheris  # type: ignore[import-not-found,unused-ignore]

    def one(data: bytes) -> None:
        if data:
            read_one(names[data[0] % len(names)], data[1:])

    target: Callable[[bytes], None] = one
    atheris.instrument_all()
    atheris.Setup([sys.argv[0]], target)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", choices=list(SAMPLES), default=list(SAMPLES))
    parser.add_argument("--atheris", action="store_true")
    options = parser.parse_args()
    if options.atheris:
        by_coverage(options.only)
        return 0
    return run(options.seconds, options.seed, options.only)


if __name__ == "__main__":
    sys.exit(main())
