"""What a text is in and what it is translated into, as vocabularies spell languages (`languages` of the table of tokenizers)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mapper.errors import FormatError, HintError, shorten
from mapper.running.generating import first_of_decoder
from mapper.running.generation_settings import Rules, rules_of
from mapper.running.session import Session
from mapper.running.tokenizing import Words


@dataclass(frozen=True)
class Spoken:
    """How a translation begins."""

    rules: Rules
    start: int  # what the decoder begins with
    before: str = ""  # what goes before the text that is translated


def spoken(session: Session, words: Words) -> Spoken:
    """By the languages that a user names, else by the settings. Raises HintError for one that the vocabulary has not."""
    rules, start = rules_of(session, [words.id("eos_token")]), first_of_decoder(session)
    if (source := session.wishes.source_language) is not None:
        _speak(session, words, source)
    name = session.wishes.language
    if name is None:
        return Spoken(rules, start)
    spelled = session.beside.vocabularies["languages"]
    for word in _spellings(spelled["text"], name):
        if words.tokenizer.token_to_id(word) is not None:
            return Spoken(rules, start, f"{word} ")
    for word in _spellings(spelled["answer"], name):
        if (at := words.tokenizer.token_to_id(word)) is not None:
            return _begun(words, rules, start, int(at))
    raise HintError(
        f"{session.source}: {_unknown(name)}; leave --language out, or spell it as its vocabulary does"
    )


def _begun(words: Words, rules: Rules, start: int, language: int) -> Spoken:
    """The language goes where the decoder begins, if it begins with one, else behind."""
    special = {words.id(name) for name in words.special}
    if rules.forced_first is None and start not in special:
        return Spoken(rules, language)
    return Spoken(replace(rules, forced_first=language), start)


def _speak(session: Session, words: Words, name: str) -> None:
    """Say what a text is in. Raises HintError where its tokenizer does not say that, or has no such language."""
    if words.speaks is None:
        raise HintError(
            f"{session.source}: its tokenizer does not say what a text is in; leave --source-language out"
        )
    try:
        words.speaks(name)
    except FormatError:
        raise HintError(
            f"{session.source}: {_unknown(name)}; spell --source-language as its vocabulary does"
        ) from None


def _spellings(forms: list[str], name: str) -> list[str]:
    return [form.replace("$", name) for form in forms]


def _unknown(name: str) -> str:
    return f"no token stands for the language {shorten(name)}"
