"""What models of texts answer: how a text goes on, what is hidden in it, a label, an answer, labels of words, a vector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from mapper.errors import HintError, SourceError
from mapper.running.decoding import Streamed
from mapper.running.generating import continued, note_length, rewritten
from mapper.running.generation_settings import rules_of
from mapper.running.labels import label_of, labels_of
from mapper.running.languages import spoken
from mapper.running.session import Session
from mapper.running.tokenizing import Words, padded, words_of

Answer = dict[str, Any]
BATCH = 16  # texts at a time


def go_on(session: Session, text: str) -> Answer:
    """How a text goes on, or what is answered in a chat."""
    words = words_of(session.beside)
    ends: list[int | None] = [words.id("eos_token")]
    if session.wishes.images:
        ids, more = _among_pictures(session, words, text)
        return said(session, words, ids, continued(session, ids, rules_of(session, ends), more))
    if session.wishes.chat:
        from mapper.running.chat import prompt_of

        prompt = prompt_of(session.beside, words, text)
        ids = words.encode(prompt, is_whole=False).ids  # the template has written what stands around
    else:
        ids = _without_end(words.encode(text).ids, words)
    if not ids:
        raise SourceError(
            f"{session.source}: an empty text, and its tokenizer puts nothing before one; give it some words"
        )
    return said(session, words, ids, continued(session, ids, rules_of(session, ends)))


def _among_pictures(session: Session, words: Words, text: str) -> tuple[list[int], dict[str, Tensor]]:
    """The ids of a text, or of a chat, with pictures, and what is given beside them. Raises HintError for a model that takes none."""
    from mapper.running.chat import prompt_of
    from mapper.running.prompts import content_of, with_pictures

    if "pixel_values" not in session.architecture.inputs:
        raise HintError(f"{session.source}: goes on with texts alone; leave --image out")
    chat = session.wishes.chat
    prompt = prompt_of(session.beside, words, content_of(session, text)) if chat else text
    ids, more = with_pictures(session, words, prompt, is_whole=not chat)
    return (ids if chat else _without_end(ids, words)), more


def _without_end(ids: list[int], words: Words) -> list[int]:
    """Without the token that ends a text, where a tokenizer puts one behind: nothing would follow."""
    ends = {at for name in ("eos_token", "sep_token") if (at := words.id(name)) is not None}
    return ids[:-1] if len(ids) > 1 and ids[-1] in ends else ids


def said(session: Session, words: Words, ids: Sequence[int], tokens: Iterator[int]) -> Answer:
    """The answer of tokens that come one after the other."""
    streamed = Streamed(words.decode, session.wishes.tell)
    for token in tokens:
        streamed.add(token)
    text = streamed.end()
    ended = "length" if note_length(session, len(streamed.ids)) else "stop"
    return {"text": text, "ids": streamed.ids, "ended": ended, "input_ids": list(ids)}


def rewrite(session: Session, text: str) -> Answer:
    """What an encoder-decoder makes of a text: a translation, a summary."""
    words = words_of(session.beside)
    told = spoken(session, words)
    ids = words.encode(told.before + text).ids
    source = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
    return said(session, words, ids, rewritten(session, source, [told.start], told.rules))


def fill(session: Session, text: str) -> Answer:
    """The likeliest words for each hidden one."""
    words = words_of(session.beside)
    mask = words.id("mask_token")
    if mask is None:
        raise SourceError(f"{session.source}: its tokenizer has no token for a hidden word")
    word = words.special["mask_token"]
    encoding = words.encode(text)
    places = [at for at, token in enumerate(encoding.ids) if token == mask]
    if not places:
        raise HintError(f"{session.source}: fills in what is hidden; put {word} where a word is to be found")
    out = _one(session, encoding)
    logits = getattr(out, "logits", None)  # those for pretraining have another head beside
    logits = (out.prediction_logits if logits is None else logits)[0]
    found = [_likeliest(logits[at], words, session.wishes.top) for at in places]
    best = list(encoding.ids)
    for at, rows in zip(places, found, strict=True):
        best[at] = rows[0]["id"]
    return {"text": words.decode(best), "masks": found}


def _likeliest(logits: Tensor, words: Words, top: int) -> list[Answer]:
    scores, ids = logits.float().softmax(-1).topk(min(top, len(logits)))
    pairs = zip(ids.tolist(), scores.tolist(), strict=True)
    return [
        {"id": at, "word": words.decode([at], with_special=True).strip(), "score": score}
        for at, score in pairs
    ]


def _one(session: Session, encoding: Any) -> Any:
    """The outputs for one encoding."""
    return session.call(
        input_ids=torch.tensor([encoding.ids]),
        attention_mask=torch.tensor([encoding.attention_mask]),
        token_type_ids=torch.tensor([encoding.type_ids]),
    )


def label(session: Session, text: str) -> Answer:
    """The labels of a text, or of it and the context together, the likeliest first."""
    encoding = _fitting(session, words_of(session.beside), text, session.wishes.context)
    return labels_of(session, _one(session, encoding).logits[0])


def _fitting(session: Session, words: Words, text: str, pair: str | None = None) -> Any:
    """The encoding of a text, cut at its end where it is longer than the settings allow, which is said."""
    encoding = words.encode(text, pair)
    if words.longest is None or len(encoding.ids) <= words.longest:
        return encoding
    session.note(
        f"a text has {len(encoding.ids):,} tokens and is read up to {words.longest:,}: its tokenizer's settings say so"
    )
    words.tokenizer.enable_truncation(
        words.longest, strategy="only_second" if pair is not None else "longest_first"
    )
    encoding = words.encode(text, pair)
    words.tokenizer.no_truncation()
    return encoding


def answer(session: Session, question: str) -> Answer:
    """The part of the context that answers a question, with its place in it (characters from `start` to `end`)."""
    context = session.wishes.context
    if context is None:
        raise HintError(f"{session.source}: finds answers in a text; give it with --context")
    encoding = _fitting(session, words_of(session.beside), question, context)
    out = _one(session, encoding)
    inside = torch.tensor([sequence == 1 for sequence in encoding.sequence_ids])
    if not context.strip():
        raise HintError(f"{session.source}: the context is empty; give the text that has the answer")
    if not inside.any():
        raise HintError(f"{session.source}: the question alone fills all positions; ask a shorter one")
    first, last, score = best_span(out.start_logits[0], out.end_logits[0], inside)
    start, end = encoding.offsets[first][0], encoding.offsets[last][1]
    return {"text": context[start:end], "start": start, "end": end, "score": score}


_LONGEST_ANSWER = 15  # tokens: what questions of SQuAD need, and what the reference's pipeline takes


def best_span(start: Tensor, end: Tensor, inside: Tensor) -> tuple[int, int, float]:
    """First and last position of the likeliest answer, and its chance. start, end (T,) logits, inside (T,) where one may lie

    The end is not before the start, nor more than 15 tokens; chances are over all pairs of positions inside.
    """
    chances = [
        logits.float().masked_fill(~inside.to(logits.device), -torch.inf).softmax(-1)
        for logits in (start, end)
    ]
    pairs = (chances[0][:, None] * chances[1][None]).triu().tril(_LONGEST_ANSWER - 1)
    best = int(pairs.argmax())
    return best // len(start), best % len(start), float(pairs.flatten()[best])


def tag(session: Session, text: str) -> Answer:
    """Each word of a text with its label; words without one (`O`, as corpora write it) are left out of `entities`."""
    words = words_of(session.beside)
    encoding = _fitting(session, words, text)
    scores, kinds = _one(session, encoding).logits[0].float().softmax(-1).max(-1)
    rows = [
        {
            "text": text[start:end],
            "start": start,
            "end": end,
            "label": label_of(session, int(kind)),
            "score": float(score),
        }
        for (start, end), sequence, kind, score in zip(
            encoding.offsets, encoding.sequence_ids, kinds, scores, strict=True
        )
        if sequence is not None and end > start
    ]
    return {"tokens": rows, "entities": joined([row for row in rows if row["label"] != "O"], text)}


def joined(rows: Sequence[Answer], text: str) -> list[Answer]:
    """Neighbours of one kind as one thing: `B-PER` begins one, `I-PER` goes on; its score is the mean."""
    found: list[Answer] = []
    for row in rows:
        kind = row["label"].partition("-")[2] or row["label"]
        last = found[-1] if found else None
        near = last is not None and not text[last["end"] : row["start"]].strip()
        if last is not None and near and kind == last["label"] and not row["label"].startswith("B-"):
            last["end"], last["text"] = row["end"], text[last["start"] : row["end"]]
            last["scores"].append(row["score"])
        else:
            found.append(
                {
                    **{key: row[key] for key in ("text", "start", "end")},
                    "label": kind,
                    "scores": [row["score"]],
                }
            )
    return [{**row, "score": sum(scores) / len(scores)} for row in found if (scores := row.pop("scores"))]


def embed(session: Session, texts: Sequence[str]) -> Iterator[Answer]:
    """A vector for each text, pooled as modules.json says."""
    from mapper.running.pooling import pooling_of

    words = words_of(session.beside)
    pooling = pooling_of(session)
    words.longest = pooling.longest or words.longest
    filler = words.id("pad_token") or 0
    general = session.noted()
    for at in range(0, len(texts), BATCH):
        encodings, notes = [], []
        for text in texts[at : at + BATCH]:
            encodings.append(_fitting(session, words, pooling.cased(text)))
            notes.append([*general, *session.noted()])
        ids, mask = padded([encoding.ids for encoding in encodings], filler)
        types, _ = padded([encoding.type_ids for encoding in encodings], 0)
        given = [torch.tensor(rows) for rows in (ids, mask, types)]
        out = session.call(input_ids=given[0], attention_mask=given[1], token_type_ids=given[2])
        for vector, told in zip(pooling(out, given[1]), notes, strict=True):
            yield {"embedding": vector.float().tolist(), "notes": told}
