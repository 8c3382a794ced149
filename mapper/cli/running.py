"""`mapper run`: an input and the model's answer to it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from mapper.cli import options
from mapper.cli.building import DTYPES
from mapper.cli.options import Command
from mapper.cli.output import say, working
from mapper.errors import FormatError, HintError, MapperError
from mapper.report.wording import printable
from mapper.sources.files import base_name, open_regular, reading

if TYPE_CHECKING:
    from mapper.running.session import Session

_LINES_BYTES = 100_000_000  # of a file of inputs
_SHOWN = 8  # numbers of a vector that are printed; --json has all
STANDARD_INPUT = "-"


@click.command(
    cls=Command,
    examples="""
    mapper run sentence-transformers/all-MiniLM-L6-v2 "A man is playing a guitar." --json
    mapper run HuggingFaceTB/SmolLM2-135M-Instruct "What is gravity?" --chat --max-tokens 100
    mapper run distilbert-base-uncased "The capital of France is [MASK]."
    mapper run ./question-answering "Who wrote it?" --context "It was written by Ada."
    mapper run facebook/nllb-200-distilled-600M "Hello." --source-language eng_Latn --language fra_Latn
    mapper run openai/clip-vit-base-patch32 cat.jpg --text "a cat" --text "a dog"
    mapper run openai/whisper-tiny speech.wav
    mapper run llava-hf/llava-1.5-7b-hf "What is in the picture?" --image cat.jpg --chat --device cuda --dtype bfloat16
    """,
)
@options.source
@click.argument("inputs", metavar="[INPUT]...", nargs=-1, shell_complete=options.complete_files)
@click.option("--lines", metavar="FILE", help="An input in each line of a file; - is standard input.")
@click.option("--context", metavar="TEXT", help="The text in which a question is answered.")
@click.option(
    "--text", "texts", metavar="TEXT", multiple=True, help="What a picture or a sound is compared with."
)
@click.option(
    "--image",
    "images",
    metavar="FILE",
    multiple=True,
    shell_complete=options.complete_files,
    help="A picture that a text is about.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1, 1_000_000),
    default=64,
    show_default=True,
    help="Tokens of an answer, at most.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0, 100),
    default=0.0,
    show_default=True,
    help="0 takes the likeliest tokens, whatever the settings say of drawing; higher draws more freely.",
)
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Draw from the likeliest tokens that have this chance together.",
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Draw the same tokens in every run.")
@click.option(
    "--beams",
    type=click.IntRange(1, 256),
    help="Texts that are searched side by side; what the settings say unless it is given.",
)
@click.option("--chat", is_flag=True, help="Put the input into the model's chat template.")
@click.option(
    "--language", metavar="CODE", help="Of speech, or to translate into, as the vocabulary spells it."
)
@click.option("--source-language", metavar="CODE", help="The language that a text is in.")
@click.option(
    "--top", type=click.IntRange(min=1), default=5, show_default=True, help="Labels or words that are told."
)
@click.option(
    "-o",
    "--out",
    metavar="FILE",
    shell_complete=options.complete_files,
    help="Where an answer that is a picture goes.",
)
@click.option("--overwrite", is_flag=True, help="Replace FILE.")
@click.option("--dtype", type=click.Choice(DTYPES), help="Compute in this type instead of the stored one.")
@options.device
@click.option("--json", "as_json", is_flag=True, help="Everything, as one JSON document.")
@options.facts
@options.rule_folders
@options.revision
@options.follow_links
def run(source: str, inputs: tuple[str, ...], lines: str | None, as_json: bool, **told: Any) -> None:
    """Give a model an input and print its answer, by the task that its head is for.

    A text is gone on with, filled in, labelled, answered, translated or made a vector; a picture or a sound (INPUT is then
    a file; .wav) is labelled, described, compared with texts, transcribed or made a vector. Tokenizer, preprocessor and
    labels are those beside the weights. INPUT - reads a text from standard input.
    """
    given = [_read_input(item) for item in inputs] + (_read_lines(lines) if lines is not None else [])
    if not given:
        raise HintError("no input; name one, or a file of them with --lines")
    is_one = len(given) == 1 and lines is None
    with working("loading torch"):
        from mapper.running.entry import answered
    options.check_device(told["device"])
    session = _session(source, told, streams=is_one and not as_json)
    answers = _kept(answered(session, given, goes_on=not is_one))
    if as_json:
        found = list(answers)
        click.echo(_document(found[0] if is_one else found))
    else:
        found = _shown(answers, is_one)
    _check_all(found)


def _kept(answers: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Answers from the first that is one on; those before it have their error. Raises MapperError where none is one."""
    failed = []
    for answer in answers:
        failed.append(answer)
        if "error" not in answer:
            yield from failed
            yield from answers
            return
    if failed:
        raise MapperError(failed[0]["error"])


def _shown(answers: Iterator[dict[str, Any]], is_one: bool) -> list[dict[str, Any]]:
    """Print answers as they come, and below them what should be known of them."""
    notes: dict[str, None] = {}
    found = []
    for answer in answers:
        found.append(answer)
        if "error" not in answer:
            _show(answer, is_one)
        notes.update(dict.fromkeys(answer.get("notes", ())))
    for note in notes:
        click.echo(f"note: {printable(note, limit=400)}", err=True)
    return found


def _check_all(found: list[dict[str, Any]]) -> None:
    """Raises MapperError, after what was printed, where an input has no answer."""
    failed = [answer for answer in found if "error" in answer]
    if failed:
        first = failed[0]
        raise MapperError(
            f"{len(failed)} of {len(found)} inputs have no answer, the first is {printable(first['input'], limit=60)}: {first['error']}"
        )


def _session(source: str, told: dict[str, Any], streams: bool) -> Session:
    """The model and what is wished of it."""
    from mapper._api import describe
    from mapper.running.session import Session, Wishes

    names = (
        "context",
        "texts",
        "images",
        "max_tokens",
        "temperature",
        "top_p",
        "seed",
        "beams",
        "chat",
        "language",
        "source_language",
        "top",
        "out",
        "overwrite",
    )
    tell = _stream if streams else None
    with working("reading"):
        architecture = describe(
            source,
            told["hints"],
            purpose="weights",
            revision=told["revision"],
            rules=told["rules"],
            follow_links=told["follow_links"],
        )
    return Session(
        architecture, Wishes(**{name: told[name] for name in names}, tell=tell), told["dtype"], told["device"]
    )


def _document(found: Any) -> str:
    """Answers as JSON. Raises FormatError for numbers that it has no words for."""
    try:
        return json.dumps(found, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise FormatError("the answer has numbers that are infinite or none; try --dtype float32") from None


def _stream(text: str) -> None:
    """Text as it comes: on the screen at once."""
    click.echo(_harmless(text), nl=False)
    sys.stdout.flush()


def _harmless(text: str) -> str:
    """Text of a model without what steers a terminal; lines stay."""
    return "".join(part if part.isprintable() or part in "\n\t" else repr(part)[1:-1] for part in text)


def _read_input(item: str) -> str:
    """An input as it was given, or the whole of standard input."""
    return sys.stdin.read().strip() if item == STANDARD_INPUT else item


def _read_lines(path: str) -> list[str]:
    """An input in each line that has one. Raises MapperError."""
    if path == STANDARD_INPUT:
        return [line for row in sys.stdin if (line := row.strip())]
    file, size = open_regular(path)
    with file, reading(base_name(path)):
        if size > _LINES_BYTES:
            raise FormatError(
                f"{base_name(path)} has {size:,} bytes, at most {_LINES_BYTES:,} are read; split it"
            )
        try:
            text = file.read(_LINES_BYTES).decode("utf-8")
        except UnicodeDecodeError:
            raise FormatError(f"{base_name(path)} is no UTF-8 text; an input is a line of text") from None
    return [line for row in text.splitlines() if (line := row.strip())]


def _show(answer: dict[str, Any], is_one: bool) -> None:
    """An answer for a reader."""
    if is_one and answer["use"] in _STREAMED:
        click.echo("")  # the text stands there already
        return
    for line in _lines(answer):
        line = _harmless(line)
        say(line if is_one else f"{printable(answer['input'], limit=60)}: {line}")


_STREAMED = ("continue", "rewrite", "caption", "transcribe")


def _lines(answer: dict[str, Any]) -> Iterator[str]:
    """What an answer says, a line for each thing."""
    if "embedding" in answer:
        vector = answer["embedding"]
        shown = ", ".join(f"{value:.4f}" for value in vector[:_SHOWN])
        yield f"[{shown}{', ...' if len(vector) > _SHOWN else ''}] ({len(vector):,} numbers; --json has all)"
    elif "masks" in answer:
        yield answer["text"]
        for row in answer["masks"]:
            yield "  ".join(f"{item['word']} {item['score']:.3f}" for item in row)
    elif "path" in answer:
        yield f"wrote {answer['path']}"
    elif "entities" in answer or "objects" in answer:
        rows = answer.get("entities") or answer.get("objects") or []
        yield from (_entity(row) for row in rows)
        if not rows:
            yield "nothing found"
    elif "labels" in answer:
        yield from (f"{item['score']:.3f}  {item['label']}" for item in answer["labels"])
    else:
        score = f"  ({answer['score']:.3f})" if "score" in answer else ""
        yield f"{answer['text']}{score}"


def _entity(row: dict[str, Any]) -> str:
    where = f"  [{', '.join(f'{edge:.0f}' for edge in row['box'])}]" if "box" in row else f"  {row['text']}"
    return f"{row['score']:.3f}  {row['label']}{where}"
