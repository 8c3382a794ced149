"""`mapper inspect --values`: the weights are read, with a bar on the terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from mapper.cli.output import columns, paint, working

if TYPE_CHECKING:
    from mapper.architecture import Architecture
    from mapper.values.result import Values


def measured(architecture: Architecture) -> dict[str, Values]:
    """The values of a model, or of each of several by its name; one model is under ""."""
    parts = architecture.parts or {"": architecture}
    return {name: _measured(name, part) for name, part in parts.items()}


def _measured(name: str, part: Architecture) -> Values:
    from mapper.values import measure  # numpy: only now

    at = 0.0

    def tell(done: float) -> None:
        nonlocal at
        at = done

    with working(f"reading values{f' of {name}' if name else ''}", lambda: at):
        return measure(part, tell)


def show_values(found: dict[str, Values], *, short: bool) -> None:
    """The text of each model's values, after an empty line; `short`: only what is wrong."""
    from mapper.report.values import values_text

    for name, values in found.items():
        click.echo(f"\n{name}" if name else "")
        click.echo(values_text(values, paint(), columns(), short=short))


def with_values(document: str, found: dict[str, Values]) -> str:
    """The JSON document of a report with the field `values`; of several models, each has its own."""
    made = json.loads(document)
    if "" in found:
        made["values"] = found[""].as_data()
    for part in made["parts"]:
        if part["part"] in found:
            part["report"]["values"] = found[part["part"]].as_data()
    return json.dumps(made, allow_nan=False) + "\n"
