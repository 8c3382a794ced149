"""`mapper list`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import click

from mapper._cached import CachedModel, each_cached_model, repository_names
from mapper.cli.options import Command
from mapper.cli.output import paint, say, working
from mapper.report.heading import STYLE
from mapper.report.style import Paint
from mapper.report.wording import counted, in_bytes, printable, rounded
from mapper.sources.hub_cache import cache_folder

NAME_WIDTH = 60  # characters of the longest name that the columns make room for
COLUMNS = (
    ("family", 18),
    ("reading", 10),
    ("parameters", 13),
    ("size", 9),
    ("revision", 14),
    ("last used", 0),
)
_DAY = 86_400


@click.command(
    name="list",
    cls=Command,
    examples="""
    mapper list
    mapper list --json > models.json
    """,
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def list_models(as_json: bool) -> None:
    """List the models in the hub's cache and what each is. Reads headers only.

    A model that cannot be read has a line that says why. The cache is where HF_HUB_CACHE, HF_HOME or the hub's own
    client says; last used is what the file system remembers.
    """
    if as_json:
        with working("reading"):
            models = [model.as_dict() for model in each_cached_model()]
        click.echo(json.dumps({"cache": os.fspath(cache_folder()), "models": models}, indent=1))
        return
    for line in _lines(paint()):
        say(line)


def _lines(show: Paint) -> Iterator[str]:
    """The table, each line as soon as its model is read."""
    names = repository_names()
    if not names:
        yield f"no models in {printable(os.fspath(cache_folder()))}"
        return
    width = max(5, *(min(len(name), NAME_WIDTH) for name in names))
    yield show("faint", _row("model", width, [title for title, _ in COLUMNS]))
    count, sizes = 0, 0
    for model in each_cached_model():
        count, sizes = count + 1, sizes + model.bytes
        yield _line(model, width, show)
    yield f"{counted(count, 'model')}, {in_bytes(sizes)} in {printable(os.fspath(cache_folder()))}"


def _line(model: CachedModel, width: int, show: Paint) -> str:
    name = printable(model.name)
    if model.problem is not None:
        return f"{name:<{width}}  {show('bad', 'unreadable')}: {printable(model.problem, limit=300)}"
    cells = [
        printable(model.family or model.what or "-", limit=COLUMNS[0][1]),
        model.reading or "-",
        rounded(model.parameters or 0),
        in_bytes(model.bytes),
        _revision(model),
        ago(time.time() - model.last_used),
    ]
    return _row(name, width, cells, show, STYLE.get(model.reading or "", "name"))


def _row(name: str, width: int, cells: list[str], show: Paint | None = None, style: str = "") -> str:
    padded = [f"{cell:<{room}}" for cell, (_, room) in zip(cells, COLUMNS, strict=True)]
    if show is not None:
        padded[1] = show(style, cells[1]) + " " * (len(padded[1]) - len(cells[1]))
        name = show("name", name) + " " * (width - len(name))
    return "  ".join([f"{name:<{width}}", *padded]).rstrip()


def _revision(model: CachedModel) -> str:
    return printable(", ".join(model.revisions), limit=40) if model.revisions else model.commit[:12]


def ago(seconds: float) -> str:
    """`now`, `5 min ago`, `3 h ago`, `12 days ago`; a date where it is longer."""
    if seconds < 60:
        return "now"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min ago"
    if seconds < _DAY:
        return f"{seconds // 3600:.0f} h ago"
    if seconds < 60 * _DAY:
        days = int(seconds // _DAY)
        return f"{days} day{'s' if days > 1 else ''} ago"
    return time.strftime("%Y-%m-%d", time.localtime(time.time() - seconds))
