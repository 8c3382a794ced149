"""The likeliest text, searched for with several beginnings side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from mapper.running.generation_settings import Place, Rules

_NONE = -1e9  # the score of a text that is not there


class Steps(Protocol):
    """A model that says what may follow each of some texts of one length."""

    def __call__(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Logits of each row's next token. -> (rows, V)"""

    def follow(self, order: Sequence[int]) -> None:
        """What is kept of the rows that were given last, in the order of those that are given next."""


@dataclass
class Search:
    """A beam search (Graves, paper 1211.3711; its scores and its end as transformers' `generate` has them).

    A text's score is the sum of its tokens' log-probabilities, divided by the power `length_penalty` of how many there are.
    """

    rules: Rules
    place: Place
    rows: list[list[int]]
    scores: list[float]
    done: list[tuple[float, list[int]]] = field(default_factory=list)  # the best first

    def advance(self, logits: Tensor) -> list[int] | None:
        """Give each of the best texts its next token: which row each was made from, None at the end. logits (rows, V)"""
        ways = self._ways(logits)
        length = len(self.rows[0]) + 1 - self.place.first
        is_last = length >= self.place.most
        ended = [is_last or token in self.rules.end for _, _, token in ways]
        for (score, row, token), is_end in zip(ways[: self.rules.beams], ended, strict=False):
            if is_end:
                self._keep(score / length**self.rules.length_penalty, [*self.rows[row], token])
        open_ways = [way for way, is_end in zip(ways, ended, strict=True) if not is_end][: self.rules.beams]
        if not open_ways or not self._can_improve(open_ways[0][0], length):
            return None
        self.rows = [[*self.rows[row], token] for _, row, token in open_ways]
        self.scores = [score for score, _, _ in open_ways]
        return [row for _, row, _ in open_ways]

    def _ways(self, logits: Tensor) -> list[tuple[float, int, int]]:
        """The likeliest ways on, so many that as many as there are beams do not end: score, row, token."""
        chances = logits.float().log_softmax(-1)
        chances = torch.stack(
            [
                self.rules.allowed(row, said, self.place) + score
                for row, said, score in zip(chances, self.rows, self.scores, strict=True)
            ]
        )
        count = max(2, 1 + len(self.rules.end)) * self.rules.beams
        scores, at = chances.flatten().topk(min(count, chances.numel()))
        width = chances.shape[1]
        return [
            (score, way // width, way % width)
            for score, way in zip(scores.tolist(), at.tolist(), strict=True)
            if score > -torch.inf
        ]

    def _keep(self, score: float, ids: list[int]) -> None:
        """Add a text that ends; of equal ones the earlier stays in front."""
        self.done = sorted([*self.done, (score, ids)], key=lambda item: -item[0])[: self.rules.beams]

    def _can_improve(self, best: float, length: int) -> bool:
        """Whether a text that goes on may become better than the worst that is kept."""
        if len(self.done) < self.rules.beams:
            return True
        if self.rules.early is True:
            return False
        power = self.rules.length_penalty
        is_longest = self.rules.early == "never" and power > 0
        return best / (self.place.most if is_longest else length) ** power > self.done[-1][0]


def searched(steps: Steps, first: Sequence[int], place: Place, rules: Rules) -> list[int]:
    """The tokens of the best text after `first`, without the one that ends it."""
    count = rules.beams
    search = Search(rules, place, [list(first) for _ in range(count)], [0.0, *[_NONE] * (count - 1)])
    while (order := search.advance(steps(search.rows))) is not None:
        order += [order[-1]] * (count - len(order))  # a small vocabulary: the last stands for those that lack
        search.rows += [search.rows[-1]] * (count - len(search.rows))
        search.scores += [_NONE] * (count - len(search.scores))
        steps.follow(order)
    found = search.done[0][1][len(first) :] if search.done else search.rows[0][len(first) :]
    return found[:-1] if found and found[-1] in rules.end else found
