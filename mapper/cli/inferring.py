"""`mapper infer`: what a reading asks, answered from the weights and from how the model behaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mapper.cli import options
from mapper.cli.options import Command
from mapper.cli.output import paint, say, working
from mapper.report.chain import value_text
from mapper.report.heading import first_line
from mapper.report.questions import asked
from mapper.report.wording import printable

if TYPE_CHECKING:
    from mapper.architecture import Architecture


@click.command(
    cls=Command,
    examples="""
    mapper infer model.safetensors
    mapper infer model.safetensors --remember
    mapper infer model.safetensors --set norm.eps=1e-5
    """,
)
@options.source
@click.option("--remember", is_flag=True, help="Keep the answers beside the weights: FILE.facts.json.")
@options.facts
@options.rule_folders
@options.without
@options.revision
@options.follow_links
def infer(
    source: str,
    remember: bool,
    hints: dict[str, str],
    rules: tuple[str, ...],
    without: tuple[str, ...],
    revision: str | None,
    follow_links: bool,
) -> None:
    """Answer what no name, shape or config shows from the weights themselves, and say how sure each answer is.

    What they do not show for sure stays a question. With what they answer a reading is never called exact.
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
    say("\n".join([first_line(architecture, paint()), *_answers(architecture), *_open(architecture)]))
    if remember:
        from mapper.evidence.remembered import remember as keep

        say(f"kept in {keep(architecture)}")


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


def _open(architecture: Architecture) -> list[str]:
    """What is still to be answered."""
    if not architecture.questions:
        return []
    return ["", "to be answered", *(f"  {line}" for line in asked(architecture.questions))]
