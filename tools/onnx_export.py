"""How many checkpoints of a folder export to ONNX and compute the same in onnxruntime, and why the others do not.

    python tools/onnx_export.py /data/zoo                        # every case
    python tools/onnx_export.py /data/zoo --every 7 --opset 24   # each seventh
    python tools/onnx_export.py /data/zoo bert llama --back      # these, and whether the same source is read back
    python tools/onnx_export.py /data/zoo --also /data/zoo2 --sample 40 --seed 3 --but /tmp/seen.txt   # forty others

A line for each case, then the count of each cause. Exit code 3 where one computed something else.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import re
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import onnxruntime  # noqa: F401  # here, so that a process of each case need not
import onnxscript  # noqa: F401
import torch.export  # noqa: F401

import mapper
from mapper.errors import DifferenceError, MapperError
from mapper.sources import open_source

EQUAL, DIFFERENT, REFUSED, FAILED = "equal", "DIFFERENT", "refused", "FAILED"
HEADER = re.compile(r'^"""[^\n]*|^# sha256 of all above.*', re.MULTILINE)


def main() -> int:
    arguments = _arguments()
    counts: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    kept: Counter[bool] = Counter()  # tensors of the checkpoints by whether their names are in the file
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen(arguments):
            start = time.perf_counter()
            word, cause, names = alone(case, Path(folder), arguments)
            counts[word] += 1
            kept += names
            causes[f"{word}: {general(cause)}"] += word != EQUAL
            seconds = time.perf_counter() - start
            print(f"{case.name:32} {word:9} {seconds:5.1f} s  {cause}", flush=True)
    print("\n" + ", ".join(f"{word} {count}" for word, count in counts.most_common()))
    print(f"names of tensors kept: {kept[True]} of {kept.total()}")
    for cause, count in (+causes).most_common():
        print(f"{count:4}  {cause}")
    return 3 if counts[DIFFERENT] else 0


def alone(case: Path, folder: Path, arguments: argparse.Namespace) -> tuple[str, str, Counter[bool]]:
    """One case in a process of its own: a trace that is cut short leaves torch in a state that other cases fail in."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=_answered, args=(case, folder, arguments, theirs))
    process.start()
    theirs.close()
    try:
        found = ours.recv() if ours.poll(arguments.limit) else None
    except EOFError:
        found = (FAILED, "its process ended", Counter())
    process.kill()
    process.join()
    return found or (REFUSED, f"{case.name}: takes more than {arguments.limit} s", Counter())


def _answered(case: Path, folder: Path, arguments: argparse.Namespace, answer: Connection) -> None:
    file = folder / "model.onnx"
    word, cause = tried(case, file, arguments)
    answer.send((word, cause, names_kept(case, file) if word == EQUAL else Counter()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--opset", type=int, default=20)
    parser.add_argument("--every", type=int, default=1, metavar="K", help="each K-th case")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="from the N-th on")
    parser.add_argument("--also", type=Path, action="append", default=[], metavar="FOLDER", help="more cases")
    parser.add_argument("--sample", type=int, metavar="N", help="so many of them, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--but",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="an earlier output: none of its cases",
    )
    parser.add_argument("--limit", type=int, default=90, metavar="SECONDS", help="for one case")
    parser.add_argument("--back", action="store_true", help="also compare the source that is read back")
    return parser.parse_args()


def chosen(arguments: argparse.Namespace) -> list[Path]:
    """The cases that are named, or of all of the folders each K-th, or a sample of those that no line of a file begins with."""
    if arguments.cases:
        return [arguments.folder / name for name in arguments.cases]
    folders = [arguments.folder, *arguments.also]
    every = [
        path for folder in folders for path in sorted(folder.iterdir()) if (path / "config.json").exists()
    ]
    cases = every[arguments.first :: arguments.every]
    if arguments.sample is None:
        return cases
    seen = {
        line.split()[0] for file in arguments.but for line in file.read_text().splitlines() if line.strip()
    }
    left = [case for case in cases if case.name not in seen]
    return sorted(random.Random(arguments.seed).sample(left, min(arguments.sample, len(left))))


def tried(case: Path, file: Path, arguments: argparse.Namespace) -> tuple[str, str]:
    """What became of one case, and why; of one that is equal, what is to be known of it."""
    try:
        done = mapper.export(case, file, opset=arguments.opset, overwrite=True)
        notes = [*done.notes, *(done.verification.notes if done.verification else [])]
        if arguments.back and not same_source(case, file):
            return DIFFERENT, "another source is read back"
        return EQUAL, "; ".join(notes)
    except DifferenceError as error:
        return DIFFERENT, str(error)
    except MapperError as error:
        return REFUSED, str(error)
    except Exception as error:  # whatever it is, the next case is tried
        return FAILED, " ".join(f"{type(error).__name__}: {error}".split())[:300]


def same_source(case: Path, file: Path) -> bool:
    """Whether an exported file gives the source of what it was exported from, but for the name in its header."""
    texts = [HEADER.sub("", mapper.generate(source)) for source in (case, file)]
    return texts[0] == texts[1]


def names_kept(case: Path, file: Path) -> Counter[bool]:
    """How many tensors of a checkpoint are in an exported file under their names, and how many are not."""
    written = open_source(file, purpose="headers").tensors
    return Counter(name in written for name in open_source(case, purpose="headers").tensors)


def general(cause: str) -> str:
    """A cause without what is of one case alone: names before the first colon, and numbers."""
    text = cause.partition(": ")[2] or cause
    return re.sub(r"\d+", "N", re.sub(r"\b[su]\d+\b", "s", text))[:140]


if __name__ == "__main__":
    sys.exit(main())
