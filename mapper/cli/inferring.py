"""`mapper infer`: what a reading asks, answered from the weights and from how the model behaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mapper._progress import bar, showing
from mapper.cli import options
from mapper.cli.options import Command
from mapper.cli.output import paint, say, working
from mapper.report.chain import value_text
from mapper.report.heading import first_line
from mapper.report.questions import asked
from mapper.report.wording import printable
from mapper.sources.files import base_name, open_regular, reading

if TYPE_CHECKING:
    from mapper.architecture import Architecture


_TEXT_BYTES = 100_000  # of a text; a few hundred words are read
_TOLD = 4  # sentences on what is unknown


@click.command(
    cls=Command,
    examples="""
    mapper infer model.safetensors
    mapper infer model.safetensors --try --remember
    mapper infer model.safetensors --set norm.eps=1e-5
    """,
)
@options.source
@click.option("--try", "is_tried", is_flag=True, help="Build what is left and let each candidate speak.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=100.0,
    show_default=True,
    help="Time for all that is tried.",
)
@click.option(
    "--text", metavar="FILE", help="A plain text for a language model; one of mapper's own when left out."
)
@options.device
@click.option("--remember", is_flag=True, help="Keep the answers beside the weights: FILE.facts.json.")
@options.facts
@options.rule_folders
@options.without
@options.revision
@options.follow_links
def infer(
    source: str,
    is_tried: bool,
    seconds: float,
    text: str | None,
    device: str,
    remember: bool,
    hints: dict[str, str],
    rules: tuple[str, ...],
    without: tuple[str, ...],
    revision: str | None,
    follow_links: bool,
) -> None:
    """Answer what no name, shape or config shows from the weights themselves, and say how sure each answer is.

    With --try, also from behaviour: the loss of a language model on a plain text, the agreement of an image model on
    drawn images that are mirrored and moved. What is not shown for sure stays a question. With what was found a reading
    is never called exact.
    """
    from mapper._api import describe

    with working("reading"):
        architecture = describe(
            source,
            hints,
            purpose="weights",
            revision=revision,
            rules=rules,
            families=not without,
            follow_links=follow_links,
        )
    lines: list[str] = []
    if is_tried:
        architecture, lines = _tried(architecture, seconds, text, device)
    say("\n".join(_report(architecture, lines, is_tried)))
    if remember:
        from mapper.evidence.remembered import remember as keep

        say(f"kept in {keep(architecture)}")


def _report(architecture: Architecture, tried: list[str], is_tried: bool) -> list[str]:
    """What it is, what was found, the table of what was tried, and what is left."""
    answers = _answers(architecture) or _no_answer(architecture, is_tried)
    left = [*_unknown(architecture), *_open(architecture)]
    return [first_line(architecture, paint()), *answers, *tried, *left]


def _tried(
    architecture: Architecture, seconds: float, text: str | None, device: str
) -> tuple[Architecture, list[str]]:
    """The reading with what trying settled, and the table of what was tried."""
    with working("loading torch"):
        from mapper.evidence.behaviour.attempting import attempt
        from mapper.evidence.behaviour.passage import PASSAGE
    from mapper.evidence.answering import with_all_found
    from mapper.evidence.behaviour.table import table

    options.check_device(device)
    words = PASSAGE if text is None else _read(text)
    at: tuple[str, float] = ("", 0.0)

    def tell(what: str, part: float) -> None:
        nonlocal at
        at = what, part

    with showing(lambda: f"trying {at[0]} {bar(at[1])}"):
        tried = attempt(architecture, words, seconds, tell, device)
    return with_all_found(architecture, tried.found), ["", *table(tried)]


def _read(path: str) -> str:
    """The first of a text. Raises SourceError."""
    file, _ = open_regular(path)
    with file, reading(base_name(path)):
        return file.read(_TEXT_BYTES).decode("utf-8", "replace")


def _answers(architecture: Architecture) -> list[str]:
    """A line for each answer that was found: the value, what showed it, and how sure."""
    hints = architecture.origin.hints.items()
    found = [(name, hint) for name, hint in hints if isinstance(hint, dict)]
    named = [f"{printable(name)} = {value_text(hint['value'])}" for name, hint in found]
    wide = max(map(len, named), default=0)
    return [
        f"  {left:{wide}}  {hint['evidence']}: {printable(hint['source'])}"
        for left, (_, hint) in zip(named, found, strict=True)
    ]


def _no_answer(architecture: Architecture, is_tried: bool) -> list[str]:
    """That the weights show nothing of what is asked, or that nothing is asked."""
    if architecture.questions:
        further = "" if is_tried else "; --try builds the model and lets each value speak"
        return [f"  the weights show none of what is asked{further}"]
    return [] if architecture.missing else ["  nothing is asked: names, shapes and config show all of it"]


def _unknown(architecture: Architecture) -> list[str]:
    """What no answer changes: why nothing is made of it."""
    told = set(map(str, architecture.questions))
    texts = [text for text in architecture.missing if text not in told]
    return ["", "unknown", *(f"  {printable(text, limit=400)}" for text in texts[:_TOLD])] if texts else []


def _open(architecture: Architecture) -> list[str]:
    """What is still to be answered."""
    if not architecture.questions:
        return []
    return ["", "to be answered", *(f"  {line}" for line in asked(architecture.questions))]
