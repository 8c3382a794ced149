"""Token after token: with a cache of keys and values where the model has one, else with all tokens each time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from mapper.errors import SourceError
from mapper.running.beams import searched
from mapper.running.decoding import Sampler
from mapper.running.generation_settings import FILE as SETTINGS
from mapper.running.generation_settings import Place, Rules
from mapper.running.session import Session

# Of these the place of every token is counted where pictures take places of their own: each step is given those of the whole text.
_PLACES = {"mm_token_type_ids", "image_grid_thw"}


def note_length(session: Session, count: int) -> bool:
    """Whether text of so many tokens ended at the limit, not where the model ends it; said where a whole text is expected."""
    is_cut = count >= session.wishes.max_tokens
    if is_cut and session.use.use != "continue":
        session.note(f"the text is cut at {count:,} tokens; --max-tokens allows more")
    return is_cut


class Continuing:
    """What may follow texts: the model is given what it has not seen yet. `more` is given with the first step."""

    def __init__(self, session: Session, length: int, count: int, more: dict[str, Tensor]):
        self.session = session
        self.more = {name: _times(value, count) for name, value in more.items()}
        self.past: Any = session.model.new_cache(count, length) if session.has_cache else None  # type: ignore[operator]
        self.start = 0

    def __call__(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Logits of each row's next token. -> (rows, V)"""
        out = self._called(torch.tensor([row[self._seen :] for row in rows]), len(rows[0]))
        self.start = len(rows[0])
        logits: Tensor = out.logits[:, -1]
        return logits

    @property
    def _seen(self) -> int:
        return 0 if self.past is None else self.start

    def _called(self, step: Tensor, length: int) -> Any:
        again = {*self.session.needed, *(_PLACES if self.more.keys() >= _PLACES else ())}
        is_first = self.past is None or self.start == 0
        given = {name: value for name, value in self.more.items() if is_first or name in again}
        place = {} if self.past is None else {"past": self.past, "start": self.start}
        return self.session.call(input_ids=step, **_grown(given, step.shape[1], length), **place)

    def follow(self, order: Sequence[int]) -> None:
        """Put the cache's rows into the order of the texts that are given next."""
        if self.past is None or list(order) == [*range(len(order))]:
            return
        with torch.inference_mode():
            for kept in (kept for layer in self.past for kept in layer):
                kept.copy_(kept[torch.tensor(order, device=kept.device)])


class Rewriting(Continuing):
    """What may follow texts that a decoder writes of what an encoder read; that runs once where there is a cache."""

    _NAME = "encoder_last_hidden_state"
    known: Tensor | None = None

    @property
    def _keeps(self) -> bool:
        return self.past is not None and self._NAME in self.session.parameters

    @property
    def _seen(self) -> int:
        return self.start if self._keeps else 0

    def _called(self, step: Tensor, length: int) -> Any:
        place = {"past": self.past, "start": self.start, self._NAME: self.known} if self._keeps else {}
        out = self.session.call(**self.more, decoder_input_ids=step, **place)
        self.known = getattr(out, self._NAME, None)
        return out


def _times(value: Tensor, count: int) -> Tensor:
    """A batch of one for so many texts: its rows, however many there are for one, again for each. (B, ...) -> (count B, ...)"""
    return value if count == 1 else torch.cat([value] * count)


def continued(
    session: Session, ids: Sequence[int], rules: Rules, more: dict[str, Tensor] | None = None
) -> Iterator[int]:
    """The tokens after `ids`, until one that ends a text or as many as are wished. `more` is given with the first step."""
    place = Place(len(ids), session.wishes.max_tokens)
    count = _beams(session, rules)
    steps = Continuing(session, len(ids) + place.most, count, more or {})
    yield from _tokens(session, steps, ids, rules, place, count)


def rewritten(
    session: Session, source: dict[str, Tensor], first: Sequence[int], rules: Rules
) -> Iterator[int]:
    """The tokens that a decoder says after `first` of what an encoder read."""
    read = source["input_ids"][0].tolist() if "input_ids" in source else ()
    place = Place(len(first), session.wishes.max_tokens, tuple(read))
    count = _beams(session, rules)
    steps = Rewriting(session, len(first) + place.most, count, source)
    yield from _tokens(session, steps, first, rules, place, count)


def _beams(session: Session, rules: Rules) -> int:
    return 1 if session.wishes.temperature > 0 else rules.beams


def _tokens(
    session: Session, steps: Continuing, first: Sequence[int], rules: Rules, place: Place, count: int
) -> Iterator[int]:
    """The best text of several beams, or one token after the other."""
    if count > 1:
        yield from searched(steps, first, place, rules)
        return
    wishes, said = session.wishes, list(first)
    sampler = Sampler(wishes.temperature, wishes.top_p, wishes.seed)
    for _ in range(place.most):
        token = sampler.pick(rules.allowed(steps([said])[0], said, place))
        if token in rules.end:
            return
        said.append(token)
        yield token


def _grown(given: dict[str, Tensor], step: int, length: int) -> dict[str, Tensor]:
    """What is given, kinds of tokens with 0 for those that were said since: of a step, or of the whole text for its places."""
    grown = {}
    for name, value in given.items():
        lacks = (
            (length if name in _PLACES else step) - value.shape[-1] if name.endswith("token_type_ids") else 0
        )
        grown[name] = torch.nn.functional.pad(value, (0, lacks)) if lacks > 0 else value
    return grown


def first_of_decoder(session: Session, is_text: bool = False) -> int:
    """The token that a decoder begins with; `is_text`: also by the part of the config that is for texts. Raises SourceError."""
    text = session.config.get("text_config") if is_text else None
    said = {**(text if isinstance(text, dict) else {}), **session.config, **session.beside.json(SETTINGS)}
    for name in ("decoder_start_token_id", "bos_token_id"):
        if type(said.get(name)) is int:
            return int(said[name])
    raise SourceError(
        f"{session.source}: no decoder_start_token_id in {SETTINGS} or config.json says what its text begins with"
    )
