"""`mapper build`: load the model, run it once, show or keep it."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapper.cli import options
from mapper.cli.options import Command
from mapper.cli.output import columns, paint, say, screen, working
from mapper.errors import ArchitectureError
from mapper.report.heading import first_line
from mapper.report.text import as_text
from mapper.report.wording import in_bytes, printable

if TYPE_CHECKING:
    from torch import nn

    from mapper.architecture import Architecture

# Options that are arguments of `mapper.build` too, and change what is built.
_NO_MODEL = "a skeleton loads and does not run: mapper inspect says what is missing, and what to answer"
_OF_THE_MODEL = (
    "dtype", "device", "hints", "adapter", "merge", "train", "rules", "revision", "follow_links",
)  # fmt: skip
TENSORS = "model.safetensors"
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
@click.option(
    "-o",
    "--out",
    "--output",
    metavar="DIR",
    help="Save model.py, the weights and the architecture in a folder.",
)
@options.overwrite("DIR where mapper wrote it; an edited model.py is kept as model.py.bak")
@click.option("--dtype", type=click.Choice(DTYPES), help="Cast the weights; as stored when left out.")
@options.device
@options.adapter
@options.train
@options.facts
@options.rule_folders
@options.without
@options.revision
@options.follow_links
@options.quiet
def build(
    source: str,
    out: str | None,
    overwrite: bool,
    dtype: str | None,
    device: str,
    train: bool,
    hints: dict[str, str],
    rules: tuple[str, ...],
    without: tuple[str, ...],
    revision: str | None,
    follow_links: bool,
    quiet: bool,
    adapter: str | None,
    merge: bool,
) -> None:
    """Load the model with its weights and run it once on made-up inputs; with --out, keep it in a folder."""
    from mapper._api import describe
    from mapper._kept import check_kept, check_weights
    from mapper.emission.train import told, with_dropout
    from mapper.outputs.written import check_out

    if out:
        check_out(out, overwrite)
    with working("reading"):
        architecture = describe(
            source,
            hints,
            purpose="weights",
            revision=revision,
            rules=rules,
            families=not without,
            follow_links=follow_links,
            adapter=adapter,
            merge=merge,
        )
    check_weights(architecture)
    if out:
        check_kept(architecture, out, overwrite, dtype)
    if not quiet:
        _say(architecture, whole=bool(out))
    if train:
        architecture = with_dropout(architecture)
    model, lines = _try(architecture, dtype, device)
    lines += told(architecture.dropout) if architecture.dropout else []
    lines += _keep(model, architecture, out, dtype, overwrite) if out else _how_to_keep(source)
    if not quiet:
        say("\n".join(["", *lines] if out else lines))


def _say(architecture: Architecture, whole: bool) -> None:
    """The report that `inspect` gives, or its first line."""
    show = paint()
    say(
        as_text(architecture, show, width=columns(), lines=screen())
        if whole
        else first_line(architecture, show)
    )


def _try(architecture: Architecture, dtype: str | None, device: str) -> tuple[nn.Module, list[str]]:
    """Build, run once, and say what came out and how long it took."""
    from mapper.emission import emit

    train = architecture.dropout is not None
    text = emit(architecture, train=train)  # before torch is there: what cannot be built is refused at once
    with working("loading torch"):
        from mapper._build import build_architecture
        from mapper._dtype import as_torch
    options.check_device(device)
    start = time.perf_counter()
    with working("loading weights"):
        model = build_architecture(architecture, as_torch(dtype), device, text=text, train=train)
    lines = [f"loaded in {time.perf_counter() - start:.2f} s on {device}"]
    if architecture.reading == "skeleton":
        lines += [f"  {printable(text, limit=400)}" for text in architecture.missing]
        return model, [*lines, "not run: a skeleton has no forward"]
    return model, lines + _run_once(model, architecture)


def _run_once(model: nn.Module, architecture: Architecture) -> list[str]:
    """Run on made-up inputs, and say what came out. Raises ArchitectureError where a model of the rules fails."""
    import torch

    from mapper._trial import made_up_inputs, not_finite, shapes

    inputs = made_up_inputs(architecture, model)
    start = time.perf_counter()
    with working("running once"), torch.inference_mode():
        try:
            outputs = model(**inputs)
        except Exception as error:  # whatever stops a model that a file describes, the file is at fault
            return [_not_run(architecture, error)]
    given = ", ".join(text for name, value in inputs.items() for text in shapes(value, name))
    return [
        f"ran in {time.perf_counter() - start:.2f} s on {given}:",
        *(f"  {text}" for text in shapes(outputs)),
        *(printable(text, limit=400) for text in not_finite(outputs, model)),
    ]


def _not_run(architecture: Architecture, error: Exception) -> str:
    """Why a model does not run: said of one that takes sizes which no rule says; raised of any other."""
    what = f"{type(error).__name__}: {error}"
    open_to = "the graph leaves open" if architecture.reading == "graph" else "nothing shows"
    if architecture.reading == "graph" or _has_open_sizes(architecture):
        why = printable(what, limit=200)
        return f"not run: made-up inputs of the sizes that {open_to} do not fit ({why})"
    raise ArchitectureError(
        f"{architecture.checkpoint.source}: the forward fails on made-up inputs ({what}); {_advice(architecture)}"
    ) from error


def _has_open_sizes(architecture: Architecture) -> bool:
    """Whether it is a chain of layers for some size of its input that nothing shows, such as the height of a line of text."""
    words = {word for spec in architecture.inputs.values() for word in spec["shape"]} - {"batch"}
    is_told = any(fact.name == "chain.input_size" for fact in architecture.facts)
    return bool(architecture.forward) and not is_told and any(isinstance(word, str) for word in words)


def _advice(architecture: Architecture) -> str:
    """What may be wrong with a model that cannot run: weights of two types, if there are any."""
    of_types = [finding for finding in architecture.findings if "of several types" in finding]
    return of_types[0] if of_types else "mapper inspect shows on what evidence the model rests"


def _keep(
    model: nn.Module, architecture: Architecture, out: str, dtype: str | None, overwrite: bool
) -> list[str]:
    from mapper._dtype import as_torch
    from mapper._kept import keep

    with working(f"writing {out}"):
        written = keep(out, model, architecture, as_torch(dtype), overwrite)
    place = Path(out)
    files = {name: place / name if place.is_dir() else place for name in sorted(written.files)}
    sizes = ", ".join(f"{name} ({in_bytes(path.stat().st_size)})" for name, path in files.items())
    return [
        f"wrote {out}: {sizes}",
        *([f"carried along: {', '.join(written.carried)}"] if written.carried else []),
        *(printable(note, limit=400) for note in written.notes),
        *_how_to_load(out, architecture),
    ]


def _how_to_load(out: str, architecture: Architecture) -> list[str]:
    """How what was written comes back; of a graph the folder's own source alone does it."""
    is_folder = Path(out).is_dir()
    if architecture.graph is not None:
        again = f"load it in that folder: from model import load; model = load({TENSORS!r})"
        return [again] if is_folder else []
    lines = [f"load it: import mapper; model, _ = mapper.load({out!r})"]
    lines += ['or in that folder: from model import load; model = load(".")'] if is_folder else []
    return lines + ([_NO_MODEL] if architecture.reading == "skeleton" else [])


def _how_to_keep(source: str) -> list[str]:
    """The command and the call that keep this very model: with all that was said for it."""
    params = click.get_current_context().params
    said = {name: params[name] for name in _OF_THE_MODEL if params[name] not in (None, False, "cpu", {}, ())}
    said |= {"families": False} if params["without"] else {}
    words = [word for name, value in said.items() for word in _as_option(name, value)]
    keywords = "".join(f", {name}={value!r}" for name, value in said.items())
    return [
        f"keep it: {shlex.join(['mapper', 'build', source, *words])} --out DIR",
        f"or in Python: import mapper; model = mapper.build({json.dumps(source, ensure_ascii=False)}{keywords})",
    ]


def _as_option(name: str, value: Any) -> list[str]:
    """A keyword of `mapper.build` as the words of a command line."""
    if name == "families":
        return ["--without", "families"]
    if name == "hints":
        return [
            word
            for fact, item in value.items()
            for word in ("--set", f"{fact}={item if isinstance(item, str) else json.dumps(item)}")
        ]
    option = f"--{name.replace('_', '-')}"
    if value is True:
        return [option]
    return [word for item in (value if isinstance(value, tuple) else [value]) for word in (option, item)]
