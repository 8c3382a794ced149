"""How a model is used: which row of `rules/running/uses.yaml` its task and its inputs fit."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mapper.errors import SourceError
from mapper.running.tables import Folders, rows

if TYPE_CHECKING:
    from mapper.architecture import Architecture
    from mapper.running.beside import Beside

TABLE = "uses"
_HELD = ("cache", "index", "state")  # kinds of inputs that a caller passes back, and no user gives


@dataclass(frozen=True)
class Use:
    """What is done with an input."""

    use: str  # "continue", "label": a function of `mapper.running.entry`
    reads: str  # "text", "image" or "sound"
    task: tuple[str, ...]
    takes: tuple[str, ...]  # inputs of the forward that are made
    lacks: tuple[str, ...] = ()
    independent: str = ""  # a tensor of those that score each pair by itself
    beside: str = ""  # a file that stands beside the weights of those that are used so
    block: str = ""  # a role that a block of the model has

    def fits(
        self, task: Any, inputs: Mapping[str, Mapping[str, Any]], files: Container[str], roles: Container[str]
    ) -> bool:
        """Whether a model for `task` can be given all that it needs, and has what this use wants of it."""
        needed = {name for name, said in inputs.items() if not said.get("optional")}
        is_whole = needed <= {*self.takes} and {*self.takes} <= inputs.keys()
        is_meant = (not self.beside or self.beside in files) and (not self.block or self.block in roles)
        return task in self.task and is_whole and is_meant and not inputs.keys() & {*self.lacks}


def uses(folders: Folders = ()) -> list[Use]:
    """The table, in its order."""
    return [
        Use(
            row["use"],
            row["reads"],
            tuple(row["task"]),
            tuple(row["takes"]),
            tuple(row.get("lacks", ())),
            row.get("independent", ""),
            row.get("beside", ""),
            row.get("block", ""),
        )
        for row in rows(TABLE, folders)
    ]


def use_of(architecture: Architecture, beside: Beside) -> Use:
    """The use of a model with the files beside it. Raises SourceError, which says what the model takes, where there is none."""
    inputs = public_inputs(architecture)
    task = task_of(architecture)
    roles = {*architecture.root.roles}
    for use in uses(beside.folders):
        if use.fits(task, inputs, beside.names, roles):
            return use
    raise SourceError(f"{architecture.checkpoint.source}: {_no_use(architecture, inputs, task)}")


def _no_use(architecture: Architecture, inputs: Mapping[str, Mapping[str, Any]], task: Any) -> str:
    """Why a model answers no text, picture or sound, and what a user can do."""
    if inputs:
        what = f"models for {task}" if task else "models whose task is unknown"
        return (
            f"cannot be run on a text, a picture or a sound: {what} that take {described(inputs)} have no such use; "
            "mapper.build gives the model for other inputs"
        )
    if architecture.questions:
        return f"what it takes is known once all that mapper inspect asks is answered; first: {architecture.questions[0]}"
    return "cannot be run on an input: nothing says what it takes; see mapper inspect"


def task_of(architecture: Architecture) -> Any:
    """The value of the fact `task`; None where it is unknown."""
    return next((fact.value for fact in architecture.facts if fact.name == "task"), None)


def public_inputs(architecture: Architecture) -> dict[str, dict[str, Any]]:
    """The inputs that a user may give."""
    return {name: said for name, said in architecture.inputs.items() if said.get("kind") not in _HELD}


def described(inputs: Mapping[str, Mapping[str, Any]]) -> str:
    """`input_ids [batch, length], pixel_values [batch, channels, height, width]`: those that are needed, or all."""
    needed = {name: said for name, said in inputs.items() if not said.get("optional")} or inputs
    return ", ".join(f"{name} [{', '.join(map(str, said['shape']))}]" for name, said in needed.items())
