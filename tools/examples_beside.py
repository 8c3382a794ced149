"""Move the examples of families' files into files beside them: rules/examples/NAME.yaml for rules/families/NAME.yaml.

    python tools/examples_beside.py                        # of the shipped rules
    python tools/examples_beside.py rules/families/tale.yaml

A family that somebody tries out has its examples in its own file; in the shipped rules they stand beside. What a file
beside has already stays, and the moved ones come behind it.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAMILIES = ROOT / "rules" / "families"
KEY = "examples:"


def split(text: str) -> tuple[str, str]:
    """A family's text without its examples, and the lines of these."""
    own: list[str] = []
    examples: list[str] = []
    is_example = False
    for line in text.splitlines(keepends=True):
        if line.startswith(KEY):
            is_example = True
        elif line[:1].isalpha():
            is_example = False
        if not line.startswith(KEY):
            (examples if is_example else own).append(line)
    return "".join(own), "".join(examples)


def move(file: Path) -> bool:
    """Whether a family's file had examples: they are beside it now."""
    own, examples = split(file.read_text(encoding="utf-8"))
    if not examples:
        return False
    beside = file.parent.parent / "examples" / file.name
    before = beside.read_text(encoding="utf-8") if beside.exists() else f"examples_of: {file.stem}\n{KEY}\n"
    beside.parent.mkdir(exist_ok=True)
    beside.write_text(before + examples, encoding="utf-8")
    file.write_text(own, encoding="utf-8")
    return True


def main() -> None:
    files = [Path(name).resolve() for name in sys.argv[1:]] or sorted(FAMILIES.glob("*.yaml"))
    print(f"{sum(map(move, files))} files of families have their examples beside them now")


if __name__ == "__main__":
    main()
