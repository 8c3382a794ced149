"""What a model says of how well it is read: a number for each part of what it is given, the lower the better.

The parts are the same for every candidate, so that two are compared part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isqrt, log
from typing import Any, NamedTuple

import torch
from torch import nn

from mapper.architecture import Architecture
from mapper.evidence.behaviour.drawn import NAMES, drawn_images
from mapper.evidence.behaviour.longer_text import longer_text
from mapper.evidence.behaviour.passage import PASSAGE
from mapper.evidence.behaviour.words import BY_BYTE, Words, words_of

ROWS, LENGTH = 4, 48  # of a text: rows and ids of each
BYTE_ROWS, BYTE_LENGTH = 8, 96  # of a text in bytes, of which each says less
SENSE = 0.2  # nats by which a model of language must be better than how often words are
LOOK = 8  # ids by which it is seen whether later words are shown
CUTS = 12  # of a text that is shown word by word: beginnings that are shown
FACTORS = (1.0, 0.25, 0.0625)  # of scores by the token embeddings: heads that are tied may have one
SURENESS = (
    1.0,
    0.85,
    0.7,
    0.55,
)  # factors of scores: on texts unlike those of its training a model is too sure
FURTHER = 4  # parts of a longer text, of twice as many rows each
LOGITS = 30_000_000  # scores that are held at once, for a part of it
HIDDEN = 6  # of so many words one is hidden from a model that fills in words
IMAGES = 24
SMALL = 32  # side of an image that is to be restored
_SIDE = 224  # of an image where nothing says it
_WORST = 30.0  # of one part: what is no number at all

Inputs = Mapping[str, torch.Tensor]


Scores = Callable[[Inputs], torch.Tensor]  # what a model gives, [..., words or classes]
Judge = Callable[[Scores], torch.Tensor]


class Voice(NamedTuple):
    """What is asked of a model, and how its answer is judged."""

    what: str  # "loss on a text (bytes)": of a report
    judge: Judge  # the model -> [parts]; what was not asked of it is no number
    least: float  # difference of the means from which on one candidate is better
    most: float  # mean from which on a model makes no sense, however it is read: nothing can be told by it
    head: torch.Tensor | None = None  # of a model without one: the token embeddings
    further: tuple[Judge, ...] = ()  # the same of more and more of a longer text, for what is near


def voice_of(architecture: Architecture, text: str) -> Voice | None:
    """How to judge models of this kind; None where nothing that they give can be judged."""
    inputs = architecture.inputs
    needed = {name for name, spec in inputs.items() if not spec.get("optional")}
    if "input_ids" in inputs and needed <= {"input_ids"}:
        return _of_language(architecture, text)
    if "pixel_values" in inputs and needed <= {"pixel_values"}:
        facts = {fact.name: fact.value for fact in architecture.facts}
        return _of_restored() if facts.get("task") == _RESTORED else _of_images(facts)
    if needed == {"input_ids", "pixel_values"}:
        return _of_pairs(architecture)
    return None


def hear(voice: Voice, model: nn.Module, judge: Judge | None = None) -> torch.Tensor:
    """The numbers [parts] of a model, by another judge if one is given. Raises ValueError where nothing can be judged."""
    device = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
    head = None if voice.head is None else voice.head.to(device)

    def scores(inputs: Inputs) -> torch.Tensor:
        """What is compared is small: it is judged on the processor."""
        outputs = model(**{name: value.to(device) for name, value in inputs.items()})
        return _scores(outputs, head).float().cpu()

    with torch.inference_mode():
        return (judge or voice.judge)(scores).clamp(max=_WORST)


_GIVEN = ("logits", "logits_per_image", "reconstruction")  # of outputs: what is judged
_RESTORED = "super_resolution"  # the task whose answer is close to what was given


def _scores(outputs: Any, head: torch.Tensor | None) -> torch.Tensor:
    """Scores of words or classes; of a model without a head, states by the token embeddings, as most heads are tied."""
    for name in _GIVEN:
        given = getattr(outputs, name, None)
        if isinstance(given, torch.Tensor):
            return given
    states = getattr(outputs, "last_hidden_state", None)
    if not isinstance(states, torch.Tensor) or head is None or head.shape[1] != states.shape[-1]:
        raise ValueError("it gives no scores of words or classes")
    return states @ head.T


def _tied_head(architecture: Architecture) -> torch.Tensor | None:
    """The token embeddings [words, hidden] of a model of one tower."""
    tables = [leaf for leaf in architecture.leaves if leaf.kind == "Embedding" and leaf.role == "token"]
    if len(tables) != 1 or architecture.checkpoint.read is None:
        return None
    key = next(tables[0].keys())
    return architecture.checkpoint.read([key])[key].float()


def _of_language(architecture: Architecture, text: str) -> Voice | None:
    """The loss of each next word, or of each hidden one, in nats."""
    facts = {fact.name: fact.value for fact in architecture.facts}
    words = words_of(architecture.checkpoint, int(facts.get("vocab_size") or 0))
    if words is None:
        return None
    rows, length = (BYTE_ROWS, BYTE_LENGTH) if words.what == BY_BYTE else (ROWS, LENGTH)
    ids = torch.tensor(words.encode(text)[: rows * length])
    ids = ids[: len(ids) // rows * rows].view(rows, -1)
    if ids.shape[1] < HIDDEN * 2:
        return None
    judge_of, what, is_tied = _reader(facts, words)
    if judge_of is None:
        return None
    more = _further(words, "" if text == PASSAGE else text, rows, length, int(facts["vocab_size"]))
    return Voice(
        what,
        judge_of(ids),
        0.02,
        _usual(ids),
        _tied_head(architecture) if is_tied else None,
        tuple(map(judge_of, more)),
    )


def _reader(
    facts: Mapping[str, Any], words: Words
) -> tuple[Callable[[torch.Tensor], Judge] | None, str, bool]:
    """How ids [rows, length] are asked of a model for its task, what that is called, and whether it has no head of its own."""
    task = facts.get("task")
    if task == "masked_lm":
        what = f"loss on hidden words of a text ({words.what})"
        return (None if words.mask is None else partial(_hidden, mask=words.mask)), what, False
    what, is_tied = f"loss on a text ({words.what})", task == "base" and bool(facts.get("attention.causal"))
    if task != "causal_lm" and not is_tied:
        return None, what, False
    factors = [one * other for one in (FACTORS if is_tied else (1.0,)) for other in SURENESS]
    return partial(_next, factors=factors), what, is_tied


def _further(words: Words, text: str, rows: int, length: int, vocabulary: int) -> list[torch.Tensor]:
    """More rows of ids [rows, length] of a longer text, each as many as all before it, the first read being done."""
    ids = torch.tensor(words.encode(text or longer_text())[rows * length if text else 0 :])
    ids = ids[: len(ids) // length * length].view(-1, length)
    most = max(LOGITS // (length * vocabulary), 1)
    parts: list[torch.Tensor] = []
    at, size = 0, rows
    while at + size <= len(ids) and len(parts) < FURTHER:
        parts += [ids[at : at + size]]
        at, size = at + size, min(2 * size, most)
    return parts


def _next(ids: torch.Tensor, factors: Sequence[float]) -> Judge:
    return lambda scores: _at_best_factor(scores, lambda scaled: next_words(scaled, ids), factors)


def _hidden(ids: torch.Tensor, mask: int) -> Judge:
    """The loss of words of ids [rows, length] that are hidden; each once."""
    rows = ids.repeat(HIDDEN, 1)
    hidden = torch.zeros_like(rows, dtype=torch.bool)
    for at in range(HIDDEN):
        hidden[at * len(ids) : (at + 1) * len(ids), at::HIDDEN] = True
    inputs = {"input_ids": rows.masked_fill(hidden, mask)}
    return lambda scores: _at_best_factor(
        scores, lambda scaled: _losses(scaled(inputs)[hidden], rows[hidden]), SURENESS
    )


def _at_best_factor(
    scores: Scores, judge: Callable[[Scores], torch.Tensor], factors: Sequence[float]
) -> torch.Tensor:
    """The losses by the factor of the scores that is best for the text.

    A text unlike those of its training finds a model too sure, so that what makes it less sure would seem better. And
    of a head that is not known to be what was tied the factor is not known.
    """
    heard: dict[bytes, torch.Tensor] = {}

    def once(inputs: Inputs) -> torch.Tensor:
        key = inputs["input_ids"].numpy().tobytes()
        if key not in heard:
            heard[key] = scores(inputs)
        return heard[key]

    def scaled(factor: float) -> torch.Tensor:
        return judge(lambda inputs: once(inputs) * factor)

    return min(map(scaled, factors), key=lambda losses: float(losses.nanmean()))


def next_words(scores: Scores, ids: torch.Tensor) -> torch.Tensor:
    """The loss of each next word of ids [rows, length], of all of them or of some.

    A model that is shown later words, and must not be asked for what it was shown, is given the beginnings of the rows alone.
    """
    if not _is_shown_later_words(scores, ids[:1, :LOOK]):
        return _losses(scores({"input_ids": ids})[:, :-1], ids[:, 1:])
    length = ids.shape[1]
    losses = torch.full((len(ids), length - 1), torch.nan)
    for end in range(length // CUTS, length, length // CUTS):
        losses[:, end - 1] = _losses(scores({"input_ids": ids[:, :end]})[:, -1], ids[:, end])
    return losses.reshape(-1)


def _is_shown_later_words(scores: Scores, ids: torch.Tensor) -> bool:
    """Whether what a model says at the first of ids [1, length] depends on the last of them."""
    changed = ids.clone()
    changed[0, -1] = next((one for one in ids[0].tolist() if one != ids[0, -1]), 0)
    first, second = (scores({"input_ids": given})[:, :-1] for given in (ids, changed))
    return not torch.allclose(first, second, rtol=1e-3, atol=1e-3)


def _usual(ids: torch.Tensor) -> float:
    """The loss of who knows how often each word is in the text, and nothing else; somewhat less makes sense."""
    shares = ids.unique(return_counts=True)[1] / ids.numel()
    return float(-(shares * shares.log()).sum()) - SENSE


def _losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    losses = nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), reduction="none"
    )
    return losses.nan_to_num(_WORST, _WORST, _WORST)


def _of_restored() -> Voice:
    """How far restored images, made as small as those that were given, lie from these: in parts of the range of a pixel."""
    pixels = (torch.from_numpy(drawn_images(len(NAMES), SMALL)) + 1) / 2

    def judge(scores: Scores) -> torch.Tensor:
        restored = scores({"pixel_values": pixels})
        if restored.ndim != 4 or restored.shape[:2] != pixels.shape[:2] or restored.shape[-1] % SMALL:
            raise ValueError("it gives no images of those that it is given")
        small = nn.functional.avg_pool2d(restored, restored.shape[-1] // SMALL)
        return (small - pixels).abs().flatten(1).mean(1).nan_to_num(_WORST, _WORST, _WORST)

    return Voice("distance of restored images from drawn ones", judge, least=0.01, most=0.1)


def _of_pairs(architecture: Architecture) -> Voice | None:
    """The loss of what each drawn image is called, of the names of all: the diagonal of the pairs."""
    facts = {fact.name: fact.value for fact in architecture.facts}
    words = words_of(architecture.checkpoint, int(facts.get("vocab_size") or 0))
    if words is None:
        return None
    pixels = torch.from_numpy(drawn_images(IMAGES, _side(facts)))
    names = [torch.tensor([words.marked(f"a photo of {name}")]) for name in NAMES]
    right = torch.arange(IMAGES) % len(NAMES)

    def judge(scores: Scores) -> torch.Tensor:
        columns = [scores({"input_ids": ids, "pixel_values": pixels}) for ids in names]
        if any(column.shape != (IMAGES, 1) for column in columns):
            raise ValueError("it gives no scores of pairs")
        return _losses(torch.cat(columns, 1), right)

    return Voice(f"loss on names of drawn images ({words.what})", judge, 0.05, log(len(NAMES)) - SENSE)


def _of_images(facts: Mapping[str, Any]) -> Voice:
    """How far the answers to drawn images tell them apart, though they are mirrored or moved by a pixel."""
    pixels = torch.from_numpy(drawn_images(IMAGES, _side(facts)))
    views = torch.cat([pixels, pixels.flip(-1), pixels.roll((1, 1), (-2, -1))])

    def judge(scores: Scores) -> torch.Tensor:
        logits = scores({"pixel_values": views})
        if logits.ndim != 2:
            raise ValueError("it gives no scores of classes")
        return _agreement(logits.view(3, IMAGES, -1))

    return Voice("agreement on drawn images", judge, least=0.1, most=-0.5)


def _side(facts: Mapping[str, Any]) -> int:
    """Pixels along a side: as in training where something says it, or so many that all positions have their patch."""
    patch, positions = facts.get("patch_size"), facts.get("positions")
    if isinstance(facts.get("image.size"), int):
        return int(facts["image.size"])
    if isinstance(patch, int) and isinstance(positions, int):
        return isqrt(positions) * patch
    return _SIDE


def _agreement(logits: torch.Tensor) -> torch.Tensor:
    """Of logits [views, images, classes]: information of the answer to each image that its views share, negative, in nats."""
    shares = logits.log_softmax(-1)
    common = shares.mean(0).log_softmax(-1)
    usual = common.exp().mean(0).log()
    return -(common.exp() * (common - usual)).sum(-1)
