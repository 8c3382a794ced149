"""What models of images answer: a label, a vector, a description, the text that fits best, how far things are away."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mapper.errors import HintError, OverwriteError, SourceError
from mapper.running.extras import need
from mapper.running.generating import continued, first_of_decoder, rewritten
from mapper.running.generation_settings import rules_of
from mapper.running.labels import labels_of
from mapper.running.pictures import opened, prepared
from mapper.running.preprocessors import settings_of
from mapper.running.session import Session
from mapper.running.texts import said
from mapper.running.tokenizing import padded, words_of

Answer = dict[str, Any]


def pixels_of(session: Session, given: Any) -> Tensor:
    """The picture as the model takes it. -> (1, 3, height, width)"""
    settings, row = settings_of(session, "images")
    return torch.from_numpy(prepared(opened(given), settings, row))[None]


def label(session: Session, given: Any) -> Answer:
    """The labels of a picture, the likeliest first."""
    return labels_of(session, session.call(pixel_values=pixels_of(session, given)).logits[0])


def embed(session: Session, given: Any) -> Answer:
    """The vector that the model gives for a whole picture; the mean of its states where it gives none, which is said."""
    return {"embedding": vector_of(session, session.call(pixel_values=pixels_of(session, given)))}


def vector_of(session: Session, out: Any) -> list[float]:
    """One vector of a model's outputs."""
    for name in ("image_embeds", "audio_embeds", "pooler_output"):
        if (value := getattr(out, name, None)) is not None:
            return value[0].flatten().float().tolist()
    states = getattr(out, "last_hidden_state", None)
    if states is None:
        raise SourceError(f"{session.source}: it gives no states to make a vector of")
    session.note("the model gives no vector for the whole: it is the mean over all positions, not normalised")
    places = states[0] if states.ndim == 3 else states[0].flatten(1).T
    return places.float().mean(0).tolist()


def compare(session: Session, given: Any) -> Answer:
    """How well each of some texts fits a picture."""
    return compared(session, "logits_per_image", lambda: {"pixel_values": pixels_of(session, given)})


def compared(session: Session, logits_of: str, prepare: Callable[[], dict[str, Tensor]]) -> Answer:
    """How well each of some texts fits what is prepared for a batch of one, by the output of that name. Raises HintError without texts."""
    texts = session.wishes.texts
    if not texts:
        raise HintError(f"{session.source}: compares what it is given with texts; give some with --text")
    words = words_of(session.beside)
    is_independent = _is_independent(session)
    if is_independent:
        words.tokenizer.enable_truncation(words.longest or _positions(session))
    rows = [words.encode(text).ids for text in texts]
    filler = words.id("pad_token")
    ids, mask = padded(rows, words.id("eos_token") or 0 if filler is None else filler)
    if is_independent:  # trained on texts of full length without a mask
        length = words.longest or _positions(session)
        ids, mask = [[*row, *[filler or 0] * (length - len(row))] for row in ids], None  # type: ignore[assignment]
    out = session.call(
        input_ids=torch.tensor(ids),
        attention_mask=None if mask is None else torch.tensor(mask),
        **prepare(),
    )
    logits = getattr(out, logits_of)[0].float()
    scores = logits.sigmoid() if is_independent else logits.softmax(-1)
    found = [{"label": text, "score": score} for text, score in zip(texts, scores.tolist(), strict=True)]
    found.sort(key=lambda row: -row["score"])
    return {"label": found[0]["label"], "labels": found}


def _is_independent(session: Session) -> bool:
    """Whether the model was trained to score each pair by itself."""
    sign = session.use.independent
    return bool(sign) and any(
        name.rpartition(".")[2] == sign for name in session.architecture.checkpoint.tensors
    )


def _positions(session: Session) -> int:
    """How many positions texts of full length have. Raises SourceError."""
    counts = [fact.value for fact in session.architecture.facts if fact.name == "positions"]
    text = session.config.get("text_config")
    told = text.get("max_position_embeddings") if isinstance(text, dict) else None
    found = told if type(told) is int else min((count for count in counts if type(count) is int), default=0)
    if not found:
        raise SourceError(
            f"{session.source}: nothing says how long its texts are; put model_max_length into tokenizer_config.json"
        )
    return found


def caption(session: Session, given: Any) -> Answer:
    """What a model says of a picture."""
    words = words_of(session.beside)
    pixels = {"pixel_values": pixels_of(session, given)}
    rules = rules_of(session, [words.id("eos_token"), words.id("sep_token")])
    if "decoder_input_ids" in session.use.takes:
        return said(session, words, [], rewritten(session, pixels, [first_of_decoder(session)], rules))
    first = [first_of_decoder(session, is_text=True)]
    return said(session, words, first, continued(session, first, rules, pixels))


def depth(session: Session, given: Any) -> Answer:
    """How far away each point of a picture is: written as a grey picture of its size, the lowest number black."""
    out = session.wishes.out
    if out is None:
        raise HintError(f"{session.source}: answers with a picture; say where it goes with --out")
    if os.path.lexists(out) and not session.wishes.overwrite:
        raise OverwriteError(f"{out} is there already; say --overwrite to replace it")
    image = opened(given)
    found = session.call(pixel_values=pixels_of(session, image)).predicted_depth
    found = found.reshape(1, 1, *found.shape[-2:]).float().cpu()
    grid = torch.nn.functional.interpolate(
        found, size=(image.height, image.width), mode="bicubic", align_corners=False
    )[0, 0]
    low, high = float(grid.min()), float(grid.max())
    grey = ((grid - low) / max(high - low, 1e-12) * 255).to(torch.uint8).numpy()
    _write(need("PIL.Image", "pictures").fromarray(grey), out)
    return {"path": out, "lowest": low, "highest": high, "size": [image.width, image.height]}


def _write(image: Any, out: str) -> None:
    """Raises HintError for a name that is no picture's."""
    try:
        image.save(Path(out))
    except ValueError as error:
        raise HintError(f"{out}: {error}; give a name that ends in .png") from error
