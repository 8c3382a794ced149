"""Words spread over frames, and what inverts a coupling layer."""

from __future__ import annotations

import math

import torch

from mapper.operations.speech import invert_splines, spread_by_durations


def test_words_last_for_their_durations():
    x = torch.tensor([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]], [[7.0], [8.0], [9.0]]])
    spread, frames = spread_by_durations(x, torch.tensor([[2.0, 0.0, 1.0], [1.0, 3.0, 0.0], [0.0, 0.0, 0.0]]))
    assert spread[:, 0].tolist() == [[1, 1, 3, 0], [4, 5, 5, 5], [0, 0, 0, 0]]
    assert frames[:, 0].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]]


def test_splines_are_inverted_within_their_bound():
    # two bins of which logits give the shares 1/4 and 3/4 across, 3/4 and 1/4 up, less and more than 0.001;
    # where they meet the slope is 0.001 + log(2): equation 4 of paper 1906.04032, at shares of a quarter and a half
    low, high = 0.001 + 0.998 / 4, 0.001 + 0.998 * 3 / 4
    across, up, meet = (-2 + 4 * low, 2 - (-2 + 4 * low)), (-2 + 4 * high, 4 * low), 0.001 + math.log(2)
    bins = torch.tensor([0.0, 2 * math.log(3), 2 * math.log(3), 0.0, 0.0])
    values, wanted = [-3.0, 2.5], [-3.0, 2.5]
    for start, width, floor, height, left, right in (
        (-2.0, 4 * low, -2.0, 4 * high, 1.0, meet),
        (across[0], across[1], up[0], up[1], meet, 1.0),
    ):
        for share in (0.25, 0.5):
            slope, both = height / width, share * (1 - share)
            rise = height * (slope * share**2 + left * both) / (slope + (left + right - 2 * slope) * both)
            values.append(floor + rise)
            wanted.append(start + share * width)
    found = invert_splines(torch.tensor(values), bins.expand(6, 5), 2.0, 2.0)
    torch.testing.assert_close(found, torch.tensor(wanted), rtol=1e-5, atol=1e-5)
