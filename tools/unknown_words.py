"""What modules are read as whose names mean nothing: each word of a checkpoint's modules is replaced by one that no rule knows.

    python tools/unknown_words.py CHECKPOINTS            # every checkpoint of a folder, as tools/score.py has them
        --only bert t5                                   # these of them
        --most 6                                         # so many words of each

A word is replaced wherever it ends the name of a module, and the type by one that nobody lists. "right": all these
modules have the role that their own names give them; "open": some have none, and the reading is a skeleton; "wrong":
some have another, which must not be. What is asked for is counted beside.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from renamed import SCALED, UNHEARD  # noqa: E402

from mapper.architecture import Architecture, Leaf  # noqa: E402
from mapper.checkpoint import Checkpoint  # noqa: E402
from mapper.errors import MapperError  # noqa: E402
from mapper.inference.infer import infer  # noqa: E402
from mapper.rulebook.rulebook import Rulebook  # noqa: E402
from mapper.sources import open_source  # noqa: E402

NOTHING = "zorp"
OUTCOMES = ("right", "open", "refused", "wrong")
Roles = dict[str, tuple[str, ...]]  # of each tensor: the words of its block and its role


def words(architecture: Architecture) -> list[str]:
    """The last words of modules in a folder that have a role, each once."""
    leaves = [leaf for leaf in architecture.leaves if leaf.role and len(leaf.place) > 1]
    return list(dict.fromkeys(word for leaf in leaves if isinstance(word := leaf.place[-1], str)))


def without(checkpoint: Checkpoint, architecture: Architecture, word: str) -> tuple[Checkpoint, set[str]]:
    """The checkpoint in which modules are no longer called so, and the tensors that this is about."""
    places = {path for leaf in architecture.leaves if leaf.place[-1] == word for path in leaf.place.expand()}
    names = {name: _renamed(name, places) for name in checkpoint.tensors}
    tensors = {names[name]: info for name, info in checkpoint.tensors.items()}
    config = {**(checkpoint.config or {}), "model_type": UNHEARD}
    changed = {name for old, name in names.items() if old != name}
    return replace(checkpoint, tensors=tensors, config=config), changed


def _renamed(name: str, places: set[str]) -> str:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        if ".".join(parts[:end]) in places:
            return ".".join([*parts[: end - 1], NOTHING, *parts[end:]])
    return name


def roles(architecture: Architecture) -> Roles:
    return {
        key: (*(role for role, _ in leaf.block), leaf.kind, leaf.role or "")
        for leaf in architecture.leaves
        for key in Leaf.keys(leaf)
    }


def fared(path: Path, rulebook: Rulebook, most: int) -> Iterator[tuple[str, str, str]]:
    """What becomes of each word of a checkpoint, and why."""
    checkpoint = open_source(str(path), purpose="headers")
    known = infer(checkpoint, rulebook)
    truth = roles(known)
    for word in words(known)[:most]:
        renamed, changed = without(checkpoint, known, word)
        try:
            made = infer(renamed, rulebook)
        except MapperError as error:
            yield word, "refused", str(error)
            continue
        yield word, *_judged(made, truth, changed, word)


def _judged(made: Architecture, truth: Roles, changed: set[str], word: str) -> tuple[str, str]:
    found = roles(made)
    pairs = {key: (truth[key.replace(NOTHING, word)], found.get(key, ("",))) for key in changed}
    wrong = {
        f"{key}: {a[-2:]} read as {b[-2:]}"
        for key, (a, b) in pairs.items()
        if b[-1] and _plain(a) != _plain(b)
    }
    asked = f"{len(made.questions)} asked"
    if wrong:
        return ("open" if made.reading == "skeleton" else "wrong"), f"{asked}; {min(wrong)}"
    if all(b[-1] for _, b in pairs.values()):
        return "right", asked
    return "open" if made.reading == "skeleton" else "wrong", f"{asked}; {next(iter(made.missing), '')}"


def _plain(role: tuple[str, ...]) -> tuple[str, str]:
    """Kind and role; which of two kinds of norms one is, is asked for."""
    return "Norm" if role[-2] in SCALED else role[-2], role[-1]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", type=Path, help="a folder of checkpoints")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these checkpoints alone")
    parser.add_argument("--most", type=int, default=99, metavar="N", help="words of each checkpoint")
    arguments = parser.parse_args()
    from score import cases

    rulebook, count = Rulebook(), Counter[str]()
    for path, _ in cases(arguments.checkpoints):
        if not arguments.only or path.name in arguments.only:
            for word, kind, why in fared(path, rulebook, arguments.most):
                count[kind] += 1
                print(f"{path.name} {word}: {kind} ({' '.join(why.split())[:300]})", flush=True)
    print(", ".join(f"{count[kind]} {kind}" for kind in OUTCOMES))
    return 1 if count["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
