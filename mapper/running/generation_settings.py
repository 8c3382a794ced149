"""What generation_config.json says of text that a model makes: which tokens may come, and how the best text is searched for.

The fields and what they mean are those of https://huggingface.co/docs/transformers/main_classes/text_generation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mapper.running.decoding import repeated, without

if TYPE_CHECKING:
    from mapper.running.session import Session

FILE = "generation_config.json"
_INNER = ("decoder", "generator", "text_config")  # parts of a config that say what its top does not
_MOST_BEAMS = 256
# Fields of what is not done here; a value that changes nothing is one of `_NEUTRAL`.
_UNDONE = (
    "guidance_scale",
    "encoder_repetition_penalty",
    "num_beam_groups",
    "diversity_penalty",
    "penalty_alpha",
    "constraints",
    "force_words_ids",
    "exponential_decay_length_penalty",
    "watermarking_config",
    "stop_strings",
    "dola_layers",
)
_NEUTRAL: tuple[Any, ...] = (None, False, 0, 1, "", [], {})


@dataclass(frozen=True)
class Rules:
    """What holds of the tokens of a text, and of the search for it."""

    end: frozenset[int] = frozenset()
    never: frozenset[int] = frozenset()
    not_first: frozenset[int] = frozenset()
    forced_first: int | None = None  # after a beginning of one token
    forced_last: frozenset[int] = frozenset()  # where as many tokens are made as are wished
    no_repeat: int = 0  # tokens of a run that does not come twice
    no_copy: int = 0  # tokens of a run that is not one of the source
    added: tuple[tuple[tuple[int, ...], float], ...] = ()  # to the score of a run's last token
    repetition: float = 1.0  # what makes tokens that are there already less likely
    least: int = 0  # tokens of a text with its beginning
    least_new: int = 0
    renormalised: bool = False
    beams: int = 1
    length_penalty: float = 1.0  # the power of a text's length that its score is divided by
    early: bool | str = (
        False  # a search ends with as many texts as beams; "never": where none can become better
    )

    def allowed(self, scores: Tensor, said: Sequence[int], at: Place) -> Tensor:
        """Scores of the next token after `said`, those that may not come -inf. scores (V,)"""
        scores = self._penalised(scores, said)
        banned = {*repeated(said, self.no_repeat), *repeated(said, self.no_copy, at.source)}
        if len(said) < self.least or len(said) - at.first < self.least_new:
            banned |= self.end
        scores = without(scores, banned)
        if self.forced_first is not None and len(said) == 1:
            scores = _only(scores, {self.forced_first})
        if self.forced_last and len(said) - at.first == at.most - 1:
            scores = _only(scores, self.forced_last)
        begins = at.first + (at.first == 1 and self.forced_first is not None)
        scores = without(scores, {*self.never, *(self.not_first if len(said) == begins else ())})
        return scores.log_softmax(-1) if self.renormalised else scores

    def _penalised(self, scores: Tensor, said: Sequence[int]) -> Tensor:
        """Scores that repetition makes lower (paper 1909.05858), and what settings add to runs of tokens."""
        scores = scores.clone()
        for run, value in self.added:
            before = len(run) - 1
            if run[-1] < len(scores) and (not before or tuple(said[-before:]) == run[:-1]):
                scores[run[-1]] += value
        if self.repetition == 1.0 or not said:
            return scores
        ids = torch.tensor(sorted({*said}), device=scores.device)
        old = scores[ids]
        return scores.index_copy(0, ids, torch.where(old < 0, old * self.repetition, old / self.repetition))


@dataclass(frozen=True)
class Place:
    """Where a text begins, how long it may become, and what it is made from."""

    first: int  # tokens that it begins with
    most: int  # tokens that are made, at most
    source: tuple[int, ...] = ()  # ids that an encoder read


def _only(scores: Tensor, ids: set[int] | frozenset[int]) -> Tensor:
    """Scores of which these tokens alone are left, each as likely as can be."""
    found = torch.full_like(scores, -torch.inf)
    found[[at for at in ids if 0 <= at < len(found)]] = 0
    return found


def rules_of(session: Session, also: Sequence[int | None] = ()) -> Rules:
    """By generation_config.json, or by the config where there is none; `also` end a text too. What is not done is noted."""
    said = _said(session)
    for name in _UNDONE:
        if said.get(name) not in _NEUTRAL:
            session.note(
                f"{FILE} has {name}, which is not done: the answer may differ from the published one"
            )
    end = _ids(said.get("eos_token_id", session.config.get("eos_token_id")))
    wished, beams = session.wishes.beams, _count(said.get("num_beams"), 1)
    if session.wishes.temperature > 0 and max(beams, wished or 1) > 1:
        session.note("tokens are drawn one after the other, without a search with beams")
    bad = [
        tuple(row) for row in said.get("bad_words_ids") or () if isinstance(row, list) and _ids(row) == row
    ]
    first = said.get("forced_bos_token_id")
    return Rules(
        end=frozenset(end) | {at for at in also if at is not None},
        never=frozenset(_ids(said.get("suppress_tokens"))),
        not_first=frozenset(_ids(said.get("begin_suppress_tokens"))),
        forced_first=first if type(first) is int else None,
        forced_last=frozenset(_ids(said.get("forced_eos_token_id"))),
        no_repeat=_count(said.get("no_repeat_ngram_size")),
        no_copy=_count(said.get("encoder_no_repeat_ngram_size")),
        added=(
            *((run, -torch.inf) for run in bad if run and run not in {(at,) for at in end}),
            *_added(said),
        ),
        repetition=_number(said.get("repetition_penalty"), 1.0),
        least=0 if _count(said.get("min_new_tokens")) else _count(said.get("min_length")),
        least_new=_count(said.get("min_new_tokens")),
        renormalised=said.get("renormalize_logits") is True,
        beams=min(wished or beams, _MOST_BEAMS),
        length_penalty=_number(said.get("length_penalty"), 1.0),
        early=early if (early := said.get("early_stopping")) in (True, "never") else False,
    )


def _said(session: Session) -> dict[str, Any]:
    """The settings; of a config without a file beside it also those of the part that makes the text."""
    said = session.beside.json(FILE)
    if said:
        return said
    parts = (session.config.get(name) for name in _INNER)
    inner = next((part for part in parts if isinstance(part, dict) and part), {})
    return {**inner, **{key: value for key, value in session.config.items() if value is not None}}


def _added(said: dict[str, Any]) -> list[tuple[tuple[int, ...], float]]:
    """`sequence_bias`: pairs of a run of tokens and what is added to the score of its last one."""
    rows = said.get("sequence_bias")
    pairs = [row for row in rows if isinstance(row, list) and len(row) == 2] if isinstance(rows, list) else []
    return [(tuple(run), _number(value, 0.0)) for run, value in pairs if run and _ids(run) == run]


def _ids(value: Any) -> list[int]:
    """An id or a list of them."""
    return [at for at in (value if isinstance(value, list) else [value]) if type(at) is int]


def _count(value: Any, usual: int = 0) -> int:
    return value if type(value) is int and value > 0 else usual


def _number(value: Any, usual: float) -> float:
    return float(value) if type(value) in (int, float) else usual
