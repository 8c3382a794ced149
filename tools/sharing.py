"""What is shared: flows and operations by the number of model types that use them, families by the types they list.

    python tools/sharing.py                   # of the examples in rules/families and of the catalogue
    python tools/sharing.py CHECKPOINTS       # of the checkpoints in a folder's folders, too
    python tools/sharing.py --names           # and which flows and operations serve one type alone

Only complete readings count: a skeleton uses nothing yet.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mapper.architecture import Architecture  # noqa: E402
from mapper.catalogue import find, names  # noqa: E402
from mapper.checkpoint import Checkpoint  # noqa: E402
from mapper.emission import emit  # noqa: E402
from mapper.errors import MapperError  # noqa: E402
from mapper.inference import infer  # noqa: E402
from mapper.operations.registry import operation_names  # noqa: E402
from mapper.rulebook.examples import header, is_near_miss  # noqa: E402
from mapper.rulebook.rulebook import Rulebook  # noqa: E402
from mapper.sources import open_source  # noqa: E402

Users = dict[str, set[str]]  # flow or operation -> the model types that use it
_DEFINED = re.compile(r"^(?:def|class) (\w+)", flags=re.MULTILINE)


def checkpoints(rulebook: Rulebook, folder: Path | None) -> Iterator[Checkpoint]:
    """Every header that is at hand."""
    for family in rulebook.families:
        yield from (header(example) for example in family.examples if not is_near_miss(example))
    yield from (checkpoint for name in names() if (checkpoint := find(name)))
    for path in sorted(folder.iterdir()) if folder else ():
        if (path / "config.json").exists():
            yield open_source(str(path), purpose="headers")


def users(rulebook: Rulebook, folder: Path | None) -> tuple[Users, Users]:
    """Flows and operations, each with its types."""
    flows: Users = defaultdict(set)
    operations: Users = defaultdict(set)
    for checkpoint in checkpoints(rulebook, folder):
        try:
            architecture = infer(checkpoint, rulebook)
            if architecture.reading == "skeleton":
                continue
            source = emit(architecture)
        except MapperError:
            continue
        model_type = str((checkpoint.config or {}).get("model_type", architecture.family))
        for name in used_flows(architecture):
            flows[name].add(model_type)
        for name in set(operation_names()) & set(_DEFINED.findall(source)):
            operations[name].add(model_type)
    return flows, operations


def used_flows(architecture: Architecture) -> set[str]:
    blocks = (architecture.root, *architecture.root.blocks())
    return {block.flow for block in blocks if block.flow}


def row(what: str, every: set[str], used: Users) -> str:
    single = [name for name in every if len(used.get(name, ())) == 1]
    idle = [name for name in every if not used.get(name)]
    return f"| {what} | {len(every)} | {len(every) - len(single) - len(idle)} | {len(single)} | {len(idle)} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", type=Path, nargs="?", help="a folder of checkpoints")
    parser.add_argument("--names", action="store_true", help="name what serves one type, or none")
    arguments = parser.parse_args()
    rulebook = Rulebook()
    flows, operations = users(rulebook, arguments.checkpoints)
    types = {name for family in rulebook.families for name in family.model_types}
    timm = [family for family in rulebook.families if family.name.startswith("timm")]
    listed = {name for family in timm for name in family.model_types}
    files = {family.file for family in rulebook.families}
    print(
        f"{len(files)} files of families, with {len(rulebook.families) - len(files)} variants in them, ",
        end="",
    )
    print(f"list {len(types)} model types, ", end="")
    print(f"{len(timm)} of them {len(listed)} networks of timm\n")
    print("| | all | serve two types and more | one | none seen |\n| --- | --- | --- | --- | --- |")
    print(row("flows", set(rulebook.flows), flows))
    print(row("operations", set(operation_names()), operations))
    if arguments.names:
        for what, every, used in (
            ("flow", set(rulebook.flows), flows),
            ("operation", set(operation_names()), operations),
        ):
            for name in sorted(every, key=lambda name: sorted(used.get(name, ()))):
                if len(used.get(name, ())) < 2:
                    print(f"{what} {name}: {', '.join(used.get(name, ())) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
