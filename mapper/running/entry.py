"""From a source and an input to the answer: the one way for Python and for the command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper._api import describe
from mapper.errors import HintError, MapperError, SourceError, shorten
from mapper.running.session import Session, Wishes
from mapper.running.uses import Use

if TYPE_CHECKING:
    import torch
    from torch import nn

    Source = str | Path | Mapping[str, Any] | nn.Module

Answer = dict[str, Any]
# What is done with inputs -> where, and whether it is done with several at once.
WORK = {
    ("continue", "text"): ("texts:go_on", False),
    ("rewrite", "text"): ("texts:rewrite", False),
    ("fill", "text"): ("texts:fill", False),
    ("label", "text"): ("texts:label", False),
    ("answer", "text"): ("texts:answer", False),
    ("tag", "text"): ("texts:tag", False),
    ("embed", "text"): ("texts:embed", True),
    ("label", "image"): ("images:label", False),
    ("embed", "image"): ("images:embed", False),
    ("caption", "image"): ("images:caption", False),
    ("compare", "image"): ("images:compare", False),
    ("detect", "image"): ("objects:detect", False),
    ("depth", "image"): ("images:depth", False),
    ("transcribe", "sound"): ("sounds:transcribe", False),
    ("compare", "sound"): ("sounds:compare", False),
    ("spell", "sound"): ("sounds:spell", False),
    ("label", "sound"): ("sounds:label", False),
    ("embed", "sound"): ("sounds:embed", False),
}
# What may be said beside an input -> the option for it, and the uses that read it.
_HEARD = {
    "context": ("--context", ("answer", "label")),
    "texts": ("--text", ("compare",)),
    "images": ("--image", ("continue",)),
    "chat": ("--chat", ("continue",)),
    "language": ("--language", ("rewrite", "transcribe")),
    "source_language": ("--source-language", ("rewrite",)),
    "out": ("--out", ("depth",)),
    "beams": ("--beams", ("continue", "rewrite", "caption", "transcribe")),
}
_TOGETHER = 16  # inputs that are worked on together where one may have no answer
_FILES = {"image": "a picture", "sound": "a sound (.wav)"}


def run(
    source: Source,
    input: Any,
    *,
    context: str | None = None,
    text: str | Sequence[str] = (),
    image: Any = (),
    max_tokens: int = 64,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int | None = None,
    beams: int | None = None,
    chat: bool = False,
    language: str | None = None,
    source_language: str | None = None,
    top: int = 5,
    out: str | Path | None = None,
    overwrite: bool = False,
    tell: Callable[[str], None] | None = None,
    dtype: torch.dtype | str | None = None,
    device: str = "cpu",
    hints: Mapping[str, Any] | None = None,
    revision: str | None = None,
    rules: Sequence[str | Path] = (),
    families: bool = True,
    follow_links: bool = False,
) -> Answer | list[Answer]:
    """A model's answer to an input, or a list of them to a list, by the task that its head is for.

    `input` is a text; a picture (a path, or one of Pillow's) or a sound (the path of a .wav file, or samples with their
    rate) where the model takes one. Each answer has `use` ("continue", "embed", "label", …), `input` and what that use
    gives: `text`, `embedding`, `labels`; and `notes` where something should be known of it. `context` is the text in
    which a question is answered, `text` is one or several that a picture or a sound is compared with, `image` is one picture or several
    among the words of the input, `out` is where a picture is written. Text is made of the likeliest tokens, searched for
    with as many `beams` as the settings say, unless `temperature` is above 0; `tell` is given it as it comes. `chat` puts the
    input into the model's chat template. Raises MapperError, with what the model takes, where it has no such use.

        mapper.run("sentence-transformers/all-MiniLM-L6-v2", "A man is playing a guitar.")["embedding"]
    """
    wishes = Wishes(
        max_tokens,
        temperature,
        top_p,
        seed,
        beams,
        chat,
        context,
        (text,) if isinstance(text, str) else tuple(text),
        tuple(image) if isinstance(image, (list, tuple)) else (image,),
        language,
        source_language,
        top,
        os.fspath(out) if out is not None else None,
        overwrite,
        tell,
    )
    architecture = describe(
        source,
        hints,
        purpose="weights",
        revision=revision,
        rules=rules,
        families=families,
        follow_links=follow_links,
    )
    session = Session(architecture, wishes, dtype, device)
    is_several = isinstance(input, list)
    answers = list(answered(session, input if is_several else [input]))
    return answers if is_several else answers[0]


def answered(session: Session, inputs: Sequence[Any], goes_on: bool = False) -> Iterator[Answer]:
    """An answer to each input, one after the other. Raises MapperError before any weights are read, where that can be.

    `goes_on`: an input without an answer has its `error` in the place of one, and the next ones are answered.
    """
    _check(session)
    use = session.use
    _check_said(session)
    if not goes_on:
        _check_files(session, inputs)
    for item, answer in zip(inputs, _worked(session, inputs, goes_on), strict=True):
        notes = [*answer.pop("notes", ()), *session.noted(), *_taken_as_text(use, item)]
        yield {
            "use": use.use,
            "input": shown_input(item),
            **answer,
            **({"notes": notes} if notes else {}),
        }


def _worked(session: Session, inputs: Sequence[Any], goes_on: bool) -> Iterator[Answer]:
    """What the work of the model's use makes of each input."""
    place, is_batched = WORK[session.use.use, session.use.reads]
    module, _, function = place.partition(":")
    work = getattr(import_module(f"mapper.running.{module}"), function)
    several = work if is_batched else lambda session, items: (work(session, item) for item in items)
    if not goes_on:
        yield from several(session, inputs)
        return
    count = _TOGETHER if is_batched else 1
    for at in range(0, len(inputs), count):
        yield from _each(session, several, inputs[at : at + count])


def _each(session: Session, several: Callable[..., Iterable[Answer]], items: Sequence[Any]) -> list[Answer]:
    """Answers to inputs together; where one has none, to each by itself, with its error."""
    try:
        _check_files(session, items)
        return list(several(session, items))
    except MapperError as error:
        if len(items) == 1:
            return [{"error": error.in_command()}]
    return [answer for item in items for answer in _each(session, several, [item])]


def _check(session: Session) -> None:
    """Raises SourceError for what has no weights or does not run."""
    from mapper._api import refuse_what_cannot_run

    if session.architecture.checkpoint.read is None:
        raise SourceError(
            f"{session.source}: a manifest has no weights, so it answers nothing; name a checkpoint"
        )
    refuse_what_cannot_run(session.architecture, is_built=True)


def _check_said(session: Session) -> None:
    """Raises HintError for what is said beside the input, and read by nothing that this model does."""
    use = session.use.use
    for name, (option, uses) in _HEARD.items():
        if getattr(session.wishes, name) and use not in uses:
            raise HintError(
                f"{session.source}: what this model is for is {use!r}, which reads no {option} (that is for {' and '.join(uses)}); leave it out"
            )


def _check_files(session: Session, inputs: Sequence[Any]) -> None:
    """Raises SourceError, which says what the model takes, for a path where no file is."""
    word = _FILES.get(session.use.reads)
    for item in inputs if word is not None else ():
        if isinstance(item, (str, Path)) and not os.path.isfile(item):
            raise SourceError(
                f"{session.source}: takes {word} as the path of a file, and there is no file {shorten(str(item))}"
            )


def _taken_as_text(use: Use, item: Any) -> list[str]:
    """Said where a text is also the name of a file, which nobody reads."""
    if use.reads != "text" or not isinstance(item, str) or not _is_file(item):
        return []
    return [
        f"{shorten(item)} is taken as a text, not as the file of that name; --lines reads texts of a file"
    ]


def _is_file(text: str) -> bool:
    try:
        return os.path.isfile(text)
    except ValueError:  # a text that can be no path
        return False


def shown_input(item: Any) -> str:
    """An input as an answer names it."""
    return str(item) if isinstance(item, (str, Path)) else f"a {type(item).__name__}"
