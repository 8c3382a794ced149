"""What models of sounds answer: what is said, a label, a vector."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from mapper.errors import HintError, shorten
from mapper.running.decoding import Streamed
from mapper.running.generating import first_of_decoder, note_length, rewritten
from mapper.running.generation_settings import FILE as SETTINGS
from mapper.running.generation_settings import rules_of
from mapper.running.images import compared, vector_of
from mapper.running.labels import labels_of
from mapper.running.preprocessors import settings_of
from mapper.running.session import Session
from mapper.running.sound_steps import prepared, valued
from mapper.running.tokenizing import Words, words_of
from mapper.running.vocabularies import SETTINGS as TOKENIZER
from mapper.running.waves import heard

Answer = dict[str, Any]


def parts_of(session: Session, given: Any, *, is_all: bool = True) -> Iterator[dict[str, Tensor]]:
    """The inputs for a sound, each with a batch of one: several where it is longer than one input may be.

    `is_all`: whether the caller takes all of them, not the first alone, for what is said of a long sound.
    """
    settings, row = settings_of(session, "sounds")
    rate = settings.get("sampling_rate")
    samples, note = heard(given, rate if type(rate) is int and rate > 0 else 16_000)
    if note:
        session.note(note)
    seconds = valued(row.get("seconds"), settings)
    length = int(seconds * settings["sampling_rate"]) if seconds else len(samples)
    if len(samples) > length:
        does = "it is cut there, and each part heard by itself" if is_all else "only those are heard"
        session.note(f"the sound is longer than {seconds} seconds, which the model hears at once: {does}")
    for at in range(0, len(samples), length):
        made = prepared(samples[at : at + length], settings, row)
        yield {name: torch.from_numpy(value)[None] for name, value in made.items()}


def label(session: Session, given: Any) -> Answer:
    """The labels of a sound, the likeliest first."""
    return labels_of(session, session.call(**_first(session, given)).logits[0])


def embed(session: Session, given: Any) -> Answer:
    """The vector that the model gives for a whole sound; the mean of its states where it gives none, which is said."""
    return {"embedding": vector_of(session, session.call(**_first(session, given)))}


def compare(session: Session, given: Any) -> Answer:
    """How well each of some texts fits a sound."""
    return compared(session, "logits_per_audio", lambda: _first(session, given))


def _first(session: Session, given: Any) -> dict[str, Tensor]:
    """The inputs for as much of a sound as the model hears at once."""
    return next(parts_of(session, given, is_all=False))


def spell(session: Session, given: Any) -> Answer:
    """What is said, by the likeliest letter of each moment (connectionist temporal classification, Graves et al. 2006)."""
    words = words_of(session.beside)
    blank = session.config.get("pad_token_id")
    blank = words.id("pad_token") if type(blank) is not int else blank
    ids: list[int] = []
    for given_part in parts_of(session, given):
        moments = session.call(**given_part).logits[0].argmax(-1).tolist()
        ids += [at for at, _ in groupby(moments) if at != blank]
    return {"text": _spelled(session, words, ids), "ids": ids}


def _spelled(session: Session, words: Words, ids: list[int]) -> str:
    """Letters as words: by the tokenizer's own way, or side by side with a space where a letter stands for it."""
    if words.tokenizer.decoder is not None:
        return words.decode(ids)
    between = session.beside.json(TOKENIZER).get("word_delimiter_token")
    special = {*words.special.values()}
    letters = [
        word for at in ids if (word := words.tokenizer.id_to_token(at)) is not None and word not in special
    ]
    return " ".join(
        "".join(letters).replace(between if isinstance(between, str) and between else "|", " ").split()
    )


def transcribe(session: Session, given: Any) -> Answer:
    """What is said, by an encoder that hears and a decoder that writes."""
    words = words_of(session.beside)
    rules = rules_of(session, [words.id("eos_token")])
    streamed = Streamed(words.decode, session.wishes.tell)
    language = None
    for part in parts_of(session, given):
        first, language = _beginning(session, part, language)
        before = len(streamed.ids)
        for token in rewritten(session, part, first, rules):
            streamed.add(token)
        note_length(session, len(streamed.ids) - before)
    found = {"language": language} if language is not None else {}
    return {"text": streamed.end().strip(), "ids": streamed.ids, **found}


def _beginning(
    session: Session, part: dict[str, Tensor], language: str | None
) -> tuple[list[int], str | None]:
    """What the decoder begins with, and the language, which it hears itself where nobody says it: as the settings list them."""
    said = session.beside.json(SETTINGS)
    start = first_of_decoder(session)
    languages, tasks = said.get("lang_to_id"), said.get("task_to_id")
    last = [at] if type(at := said.get("no_timestamps_token_id")) is int else []
    if not isinstance(languages, dict) or not languages:
        if session.wishes.language is not None:
            raise HintError(f"{session.source}: {SETTINGS} lists no languages; leave --language out")
        return [start, *last], None
    language = language or _named(session, languages) or _likeliest(session, part, start, languages)
    task = tasks.get("transcribe") if isinstance(tasks, dict) else None
    return [start, int(languages[language]), *([task] if type(task) is int else []), *last], language


def _named(session: Session, languages: dict[str, int]) -> str | None:
    """The language that a user names. Raises HintError."""
    name = session.wishes.language
    if name is None:
        return None
    found = next((word for word in (name, f"<|{name}|>") if word in languages), None)
    if found is None:
        known = ", ".join(word.strip("<|>") for word in languages)
        raise HintError(
            f"{session.source}: {shorten(name)} is no language that it lists: {shorten(known, 400)}"
        )
    return found


def _likeliest(session: Session, part: dict[str, Tensor], start: int, languages: dict[str, int]) -> str:
    """The language whose token the decoder would say first."""
    logits = session.call(**part, decoder_input_ids=torch.tensor([[start]])).logits[0, -1]
    return max(languages, key=lambda name: float(logits[languages[name]]))
