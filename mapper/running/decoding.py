"""The next token from logits, and text from tokens as they come."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

_UNFINISHED = "\ufffd"  # what a decoder writes for bytes that are no whole character


@dataclass
class Sampler:
    """Picks tokens: the likeliest at temperature 0, else one drawn from the likeliest whose chances make up `top_p`.

    Nucleus sampling is of paper 1904.09751. `seed` makes the draws the same in every run.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    generator: torch.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.generator = torch.Generator()
        self.generator.seed() if self.seed is None else self.generator.manual_seed(self.seed)

    def pick(self, logits: Tensor) -> int:
        """The id of the next token. logits (V,)"""
        if self.temperature == 0:
            return int(logits.argmax())
        chances = (logits.float().cpu() / self.temperature).softmax(-1)
        kept = nucleus(chances, self.top_p)
        return int(torch.multinomial(kept, 1, generator=self.generator))


def nucleus(chances: Tensor, top_p: float) -> Tensor:
    """The chances of the fewest tokens that together have `top_p`, zeros for the others. chances (V,) -> (V,)"""
    ordered, order = chances.sort(descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered  # what the likelier ones have: the first always stays
    ordered = ordered.masked_fill(before >= top_p, 0)
    return torch.zeros_like(chances).scatter(0, order, ordered)


def without(logits: Tensor, ids: Collection[int]) -> Tensor:
    """Logits of which some tokens are never picked. logits (V,) -> (V,)"""
    inside = [at for at in ids if 0 <= at < len(logits)]
    return logits.index_fill(0, torch.tensor(inside, device=logits.device), -torch.inf) if inside else logits


def repeated(ids: Sequence[int], size: int, among: Sequence[int] | None = None) -> set[int]:
    """The tokens that would end a run of `size` tokens which `among` has, or `ids` has already; none where the size is 0."""
    if size < 1 or len(ids) + 1 < size:
        return set()
    last, there = tuple(ids[len(ids) - size + 1 :]), ids if among is None else among
    return {
        there[at + size - 1]
        for at in range(len(there) - size + 1)
        if tuple(there[at : at + size - 1]) == last
    }


class Streamed:
    """Text from tokens as they come: a part is told once its characters are whole, and never taken back."""

    def __init__(self, decode: Callable[[list[int]], str], tell: Callable[[str], None] | None = None):
        self._decode, self._tell = decode, tell
        self.ids: list[int] = []
        self._from = 0  # of the ids: tokens before it cannot change what follows
        self._mark = 0  # of the ids: those before it are told
        self.text = ""

    def add(self, token: int) -> None:
        """Tell what became whole with one more token."""
        self.ids.append(token)
        new = self._new()
        if not new.endswith(_UNFINISHED):
            self._say(new)
            self._from, self._mark = self._mark, len(self.ids)

    def end(self) -> str:
        """Tell the rest, whole or not; the whole text."""
        self._say(self._new())
        self._from = self._mark = len(self.ids)
        return self.text

    def _new(self) -> str:
        """What the tokens after the mark add to those shortly before it: a word's space is decided by its neighbour."""
        before = self._decode(self.ids[self._from : self._mark])
        return self._decode(self.ids[self._from :])[len(before) :]

    def _say(self, part: str) -> None:
        self.text += part
        if part and self._tell is not None:
            self._tell(part)
