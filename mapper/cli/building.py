"""`mapper build`: load the model, run it once, show or keep it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mapper.cli import options
from mapper.cli.options import Command
from mapper.cli.output import paint, working
from mapper.errors import ArchitectureError, HintError, shorten
from mapper.report.text import as_text, first_line
from mapper.report.words import in_bytes, printable

if TYPE_CHECKING:
    import torch
    from torch import nn

    from mapper.architecture import Architecture

DTYPES = ("float32", "float16", "bfloat16", "float64")


@click.command(
    cls=Command,
    examples="""
    mapper build distilbert-base-uncased
    mapper build distilbert-base-uncased --out distilbert
    mapper build ./llama --dtype bfloat16 --device cuda
    """,
)
@options.source
@click.option("--out", metavar="DIR", help="Save model.py, the weights and the architecture in a folder.")
@click.option("--dtype", type=click.Choice(DTYPES), help="Cast the weights; as stored when left out.")
@click.option(
    "--device", default="cpu", show_default=True, metavar="DEVICE", help="Such as cuda, cuda:1 or mps."
)
@options.facts
@options.rule_folders
@options.without
@options.revision
@options.quiet
def build(
    source: str,
    out: str | None,
    dtype: str | None,
    device: str,
    hints: dict[str, str],
    rules: tuple[str, ...],
    without: tuple[str, ...],
    revision: str | None,
    quiet: bool,
) -> None:
    """Load the model with its weights and run it once on made-up inputs; with --out, keep it in a folder."""
    from mapper._api import check_weights, describe

    with working("reading"):
        architecture = describe(
            source, hints, purpose="weights", revision=revision, rules=rules, families=not without
        )
    check_weights(architecture)
    if not quiet:
        show = paint()
        click.echo(as_text(architecture, show) if out else first_line(architecture, show))
    model, lines = _try(architecture, dtype, device)
    lines += _keep(model, architecture, out) if out else _how_to_keep(source, dtype)
    if not quiet:
        click.echo("\n".join(["", *lines] if out else lines))


def _try(architecture: Architecture, dtype: str | None, device: str) -> tuple[nn.Module, list[str]]:
    """Build, run once, and say what came out and how long it took."""
    with working("loading torch"):
        import torch

        from mapper._build import build_architecture
        from mapper._trial import made_up_inputs, not_finite, shapes
    _check_device(device)
    start = time.perf_counter()
    with working("loading weights"):
        model = build_architecture(architecture, dtype=torch_dtype(dtype), device=device)
    lines = [f"loaded in {time.perf_counter() - start:.2f} s on {device}"]
    if architecture.reading == "skeleton":
        lines += [f"  {printable(text, limit=400)}" for text in architecture.missing]
        return model, [*lines, "not run: a skeleton has no forward"]
    inputs = made_up_inputs(architecture, model)
    start = time.perf_counter()
    with working("running once"), torch.inference_mode():
        try:
            outputs = model(**inputs)
        except Exception as error:  # whatever stops a model that a file describes, the file is at fault
            raise ArchitectureError(
                f"{architecture.checkpoint.source}: the forward fails on made-up inputs ({type(error).__name__}: {error}); "
                f"{_advice(architecture)}"
            ) from error
    given = ", ".join(text for name, value in inputs.items() for text in shapes(value, name))
    return model, [
        *lines,
        f"ran in {time.perf_counter() - start:.2f} s on {given}:",
        *(f"  {text}" for text in shapes(outputs)),
        *(printable(text, limit=400) for text in not_finite(outputs, model)),
    ]


def _advice(architecture: Architecture) -> str:
    """What may be wrong with a model that cannot run: weights of two types, if there are any."""
    of_types = [finding for finding in architecture.findings if "of several types" in finding]
    return of_types[0] if of_types else "mapper inspect shows on what evidence the model rests"


def torch_dtype(name: str | None) -> torch.dtype | None:
    import torch

    found: torch.dtype | None = getattr(torch, name) if name else None
    return found


def _check_device(device: str) -> None:
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise HintError(f"--device {shorten(device)} is not to be had here: {reason}") from None


def _keep(model: nn.Module, architecture: Architecture, out: str) -> list[str]:
    from mapper._build import keep

    with working(f"writing {out}"):
        keep(out, model, architecture)
    place = Path(out)
    written = sorted(place.iterdir()) if place.is_dir() else [place]
    sizes = ", ".join(f"{path.name} ({in_bytes(path.stat().st_size)})" for path in written)
    return [
        f"wrote {out}: {sizes}",
        f"load it: import mapper; model, _ = mapper.load({out!r})",
        *(['or in that folder: from model import load; model = load(".")'] if place.is_dir() else []),
    ]


def _how_to_keep(source: str, dtype: str | None) -> list[str]:
    cast = f" --dtype {dtype}" if dtype else ""
    return [
        f"keep it: mapper build {source}{cast} --out DIR",
        f'or in Python: import mapper; model = mapper.build("{source}")',
    ]
