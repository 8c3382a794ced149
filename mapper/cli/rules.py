"""`mapper rules check | explain | new | list`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mapper.cli import options
from mapper.cli.options import Command, Group
from mapper.cli.output import paint, say, working
from mapper.errors import RuleError
from mapper.report.wording import counted, printable
from mapper.sources.files import MARK
from mapper.words import close_to

if TYPE_CHECKING:
    from mapper.authoring.explain import FamilyExplanation, FlowExplanation, LeafExplanation
    from mapper.checkpoint import Checkpoint
    from mapper.report.style import Paint
    from mapper.rulebook.rulebook import Rulebook

_WIDTH = 48  # of a column; what is longer pushes its own row only


@click.group(
    cls=Group,
    examples="""
    mapper rules check my_family.yaml
    mapper rules explain encoder.layer.0.attention.self.query.weight
    mapper rules new ./checkpoint
    mapper rules list
    """,
)
def rules() -> None:
    """Check, explain, begin and list rule files."""


@rules.command(
    cls=Command,
    examples="""
    mapper rules check
    mapper rules check my_family.yaml
    mapper rules check --rules ./my_rules
    mapper rules check my_family.yaml --rules ./my_rules
    """,
)
@click.argument(
    "files", metavar="[FILE]...", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--no-run", is_flag=True, help="Do not build and run the models of examples; needs no torch.")
@click.option(
    "--anew", is_flag=True, help="Check again what was in order before and rests on nothing that has changed."
)
@options.rule_folders
@options.quiet
def check(files: tuple[Path, ...], no_run: bool, anew: bool, rules: tuple[str, ...], quiet: bool) -> None:
    """Check rule files: schema, flows under all guards, examples, and that their models run. Without FILE, all.

    Of a FILE it also says which other families' examples it would steal. With a FILE, --rules DIR adds what DIR holds.
    """
    from mapper.authoring.check import check_rules
    from mapper.authoring.together import check_all

    with working("checking"):
        found = (
            check_rules(_rulebook(rules), files, run=not no_run, folders=rules)
            if files
            else check_all(rules, not no_run, os.cpu_count() or 1, anew=anew)
        )
    problems = list(
        dict.fromkeys(problem for file in found for problem in file.problems)
    )  # one may stop many files
    for problem in problems:
        say(printable(problem, limit=1_000))
    if problems:
        raise RuleError(f"{counted(len(problems), 'problem')} in {counted(len(found), 'rule file')}")
    if not quiet:
        examples, combinations, runs = (
            sum(getattr(file, of) for file in found) for of in ("examples", "combinations", "runs")
        )
        say(
            f"{counted(len(found), 'rule file')}: {counted(examples, 'example')}, {runs} of them built and run, and "
            f"{counted(combinations, 'combination')} of guards, all as they should be"
        )


@rules.command(
    cls=Command,
    examples="""
    mapper rules explain encoder.layer.0.attention.self.query.weight
    mapper rules explain position.counting
    mapper rules explain ./checkpoint
    mapper rules explain distilbert-base-uncased
    """,
)
@click.argument("subject", metavar="KEY|FACT|SRC")
@options.rule_folders
@options.revision
@options.follow_links
def explain(subject: str, rules: tuple[str, ...], revision: str | None, follow_links: bool) -> None:
    """Say which line of which rule decided, and what lost. A name with a dot that is no file is a KEY.

    Of a FACT, as mapper inspect lists and asks for them, it says what it is, its values, and who states it.
    """
    rulebook, show = _rulebook(rules), paint()
    if subject in rulebook.config_vocabulary.types and not os.path.exists(subject):
        from mapper.authoring.explain import explain_fact

        say("\n".join(printable(line, limit=600) for line in explain_fact(subject, rulebook)))
        return
    if _is_key(subject):
        from mapper.authoring.explain import explain_key

        leaf = explain_key(subject, rulebook)
        lines = list(_leaf_lines([leaf], show))
        near = close_to(subject, rulebook.config_vocabulary.types, alike=0.8)
        if near and leaf.role is None:
            lines.append(f"  no word of it has a role; of facts, did you mean {near[0]!r}?")
        say("\n".join(lines))
        return
    from mapper.authoring.explain import explain_checkpoint

    with working("reading"):
        found = explain_checkpoint(_one_model(subject, rules, revision, follow_links), rulebook)
    parts = [
        _leaf_lines(found.leaves, show),
        _family_lines(found.families, show),
        _flow_lines(found.flows, show),
    ]
    say("\n\n".join("\n".join(part) for part in parts if part))


@rules.command(
    cls=Command,
    examples="""
    mapper rules new ./checkpoint
    mapper rules new ./checkpoint -o my_family.yaml
    """,
)
@click.argument("source", metavar="SRC")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the draft to this file."
)
@options.overwrite("FILE; what it held is kept as FILE.bak")
@options.rule_folders
@options.revision
@options.follow_links
def new(
    source: str,
    output: Path | None,
    overwrite: bool,
    rules: tuple[str, ...],
    revision: str | None,
    follow_links: bool,
) -> None:
    """Write the first draft of a family file from a checkpoint that no family lists. Guesses are marked."""
    from mapper.authoring.draft import draft
    from mapper.outputs.written import check_place, write_source

    if output is not None:
        check_place(output, None, overwrite=overwrite)
    with working("reading"):
        checkpoint = _one_model(source, rules, revision, follow_links)
        text = draft(checkpoint, _rulebook(rules))
    if output is None:
        click.echo(text, nl=False)
        return
    if kept := write_source(output, text, overwrite=overwrite):
        click.echo(printable(kept, limit=400), err=True)
    marked = counted(text.count("# guessed"), "line")
    say(f"{output}: {marked} marked as guessed; settle them, then: mapper rules check {output}")


@rules.command(
    cls=Command,
    name="list",
    examples="""
    mapper rules list
    mapper rules list --rules ./my_rules
    mapper rules list --markdown > CONTENTS.md
    """,
)
@click.option(
    "--markdown", is_flag=True, help="A page with every block and its steps, every fact, role and operation."
)
@options.rule_folders
def list_all(markdown: bool, rules: tuple[str, ...]) -> None:
    """List the rule files in use: families, flows and vocabularies."""
    if markdown:
        from mapper.authoring.contents import contents

        click.echo(contents(_rulebook(rules)), nl=False)
        return
    from mapper.authoring.explain import list_rules

    show = paint()
    for kind, name, file, about in _columns(
        (row.kind, row.name, row.file, row.about) for row in list_rules(_rulebook(rules))
    ):
        say(f"{kind}  {show('role', name)}  {file}  {show('faint', about)}".rstrip())


def _rulebook(folders: Iterable[str]) -> Rulebook:
    from mapper.rulebook.rulebook import Rulebook

    return Rulebook(folders)


def _one_model(source: str, rules: tuple[str, ...], revision: str | None, follow_links: bool) -> Checkpoint:
    """The checkpoint of a source. Raises SourceError for one of several models: each is read by itself."""
    from mapper.sources import open_source
    from mapper.sources.parts import parts_of, refuse_whole

    checkpoint = open_source(
        source, purpose="headers", revision=revision, catalogue=True, follow_links=follow_links, rules=rules
    )
    rulebook = _rulebook(rules)
    if parts := parts_of(checkpoint, rulebook):
        refuse_whole(checkpoint, parts, rulebook)
    return checkpoint


def _is_key(subject: str) -> bool:
    if os.path.exists(subject) or any(mark in subject for mark in ("/", ":", MARK)):
        return False
    return "." in subject


def _leaf_lines(leaves: Iterable[LeafExplanation], show: Paint) -> Iterator[str]:
    leaves = list(leaves)
    rows = _columns((leaf.path, leaf.role or "-", leaf.kind, leaf.why) for leaf in leaves)
    said: set[str] = set()
    for leaf, (path, role, kind, why) in zip(leaves, rows, strict=True):
        yield f"{path}  {show('role' if leaf.role else 'doubt', role)}  {kind}  {show('faint', why)}".rstrip()
        for lost in leaf.lost:
            if lost not in said:
                yield show("faint", f"  lost: {printable(lost)}")
        if above := len(said.intersection(leaf.lost)):
            yield show("faint", f"  lost: {above} that {'is' if above == 1 else 'are'} said above")
        said.update(leaf.lost)


def _family_lines(families: Iterable[FamilyExplanation], show: Paint) -> Iterator[str]:
    """The family chosen, and those that came close: of the others nothing was found at all."""
    for family in families:
        if family.chosen:
            yield f"family {show('good', family.name)}, {printable(family.file)}"
        elif family.foreign:
            yield f"not {family.name}: has {printable(', '.join(family.foreign[:3]))}"
        elif len(family.lacking) == 1:
            yield f"not {family.name}: lacks {printable(family.lacking[0])}"


def _flow_lines(flows: Iterable[FlowExplanation], show: Paint) -> Iterator[str]:
    flows = list(flows)
    for flow, (block, place, name) in zip(
        flows, _columns((flow.block, flow.place, flow.flow or "-") for flow in flows), strict=True
    ):
        yield f"{block}  {place}  {show('role' if flow.flow else 'doubt', name)}".rstrip()
        for filled in flow.slots:
            others = f" (fitted too: {', '.join(filled.others)})" if filled.others else ""
            yield show("faint", f"  {filled.slot}: {filled.step}{others}")


def _columns(rows: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The rows with equal widths, names from files made harmless; the last column is left as it is."""
    clean = [tuple(printable(text) for text in row) for row in rows]
    widths = [min(max(map(len, column)), _WIDTH) for column in zip(*clean, strict=True)]
    widths = [*widths[:-1], 0]
    return [tuple(f"{text:{wide}}" for text, wide in zip(row, widths, strict=True)) for row in clean]
