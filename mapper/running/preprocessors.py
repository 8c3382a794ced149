"""The settings of a preprocessor: those in its file, and what its class has where the file is silent."""

from __future__ import annotations

from typing import Any

from mapper.errors import SourceError, shorten
from mapper.running.session import Session
from mapper.running.tables import rows, table
from mapper.running.uses import described, public_inputs

FILE, JOINT = "preprocessor_config.json", "processor_config.json"
_NAMES = ("image_processor_type", "feature_extractor_type")
_SIZES, _CROP, _CENTRE = ("size", "crop_size"), "crop_mode", "center"
_PARTS = {"images": "image_processor", "sounds": "feature_extractor"}  # of the file of several processors


def settings_of(session: Session, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings for "images" or "sounds", and the row of that table for the class. Raises SourceError.

    A class that no row has, and what no file says, is an error: how an input is prepared is never guessed.
    """
    joint = session.beside.json(JOINT).get(_PARTS[kind])
    said = session.beside.json(FILE) or (joint if isinstance(joint, dict) else {})
    said = said or _of_config(session, kind)
    if not said:
        raise SourceError(
            f"{session.source}: no {FILE} stands beside the weights, so nothing says how {kind} become "
            f"{described(public_inputs(session.architecture))}; put it there"
        )
    name = next((said[key] for key in _NAMES if isinstance(said.get(key), str)), None)
    row = _row(session, kind, name)
    if row is None:
        known = ", ".join(word for item in rows(kind, session.folders) for word in item["classes"])
        raise SourceError(
            f"{session.source}: {FILE} is for {shorten(str(name))}, which is not known; known are {known}"
        )
    return {
        **table(kind, session.folders)["common"],
        **row["defaults"],
        **{key: value for key, value in said.items() if value is not None},
    }, row


def _of_config(session: Session, kind: str) -> dict[str, Any]:
    """The settings that a config itself has, by the row that names their field; none where no row does. Raises SourceError."""
    for row in rows(kind, session.folders):
        said = session.config.get(row.get("config", ""))
        if isinstance(said, dict):
            return {_NAMES[0]: row["classes"][0], **_renamed(session, said, row["names"])}
    return {}


def _renamed(session: Session, said: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Settings under the names that others have for them; a size [channels, height, width] as one edge."""
    found = {ours: said[theirs] for ours, theirs in names.items() if said.get(theirs) is not None}
    sides = {side for key in _SIZES if isinstance(found.get(key), list) for side in found[key][-2:]}
    if len(sides) != 1 or said.get(_CROP, _CENTRE) != _CENTRE:
        raise SourceError(
            f"{session.source}: its config prepares pictures in a way that is not known (sides {sorted(sides)}, "
            f"{_CROP} {said.get(_CROP)}); put {FILE} beside the weights"
        )
    return {**found, **dict.fromkeys(_SIZES, sides.pop())}


def _row(session: Session, kind: str, name: Any) -> dict[str, Any] | None:
    if not isinstance(name, str):
        return None
    suffixes = table(kind, session.folders)["suffixes"]
    word = next((name.removesuffix(suffix) for suffix in suffixes if name.endswith(suffix)), name)
    return next((row for row in rows(kind, session.folders) if word in row["classes"]), None)
