"""A page of two checkpoints side by side, what differs marked in both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mapper.errors import MapperError
from mapper.picture.document import document
from mapper.picture.graph import CHANGED, ONLY
from mapper.picture.page import page
from mapper.report.wording import printable

if TYPE_CHECKING:
    from mapper.weights.comparing.differences import Diff


def compared(diff: Diff) -> str:
    """The page of a comparison. A side that has no reading (a tree of arrays) is in the text alone."""
    sides = [
        document(reading, differs=_differs(diff, side))
        for reading, side in zip(diff.readings, "ab", strict=True)
        if reading is not None and not reading.parts
    ]
    if not sides:
        raise MapperError(
            f"{diff.a} and {diff.b}: neither is a model that can be drawn; --json has what differs"
        )
    return page(sides, printable(f"{diff.a} and {diff.b}", 400), str(diff))


def _differs(diff: Diff, side: str) -> dict[str, str]:
    """Keys of one side -> how they differ."""
    changed = {entry[side].get("path", entry["path"]): CHANGED for entry in diff.changed}
    only = diff.only_a if side == "a" else diff.only_b
    return changed | {entry["path"]: ONLY for entry in only}
