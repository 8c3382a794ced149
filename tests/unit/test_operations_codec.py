"""Convolutions of waveforms, and the nearest code of a book."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from mapper.operations.codec import (
    halve_smooth,
    nearest_codes,
    pad_mirrored,
    pad_start,
    pad_to_frames,
    snake,
    upsample_twice,
)
from mapper.operations.pieces import (
    join_pieces,
    sum_chunks,
)


def test_a_padded_convolution_has_a_place_for_each_begun_step_and_sees_nothing_later() -> None:
    x, kernel = torch.randn(2, 3, 11), torch.randn(4, 3, 6)
    y = F.conv1d(pad_start(x, 3, 3), kernel, stride=3)
    assert y.shape[-1] == 4
    later = torch.cat((x[..., :6], torch.randn(2, 3, 5)), dim=-1)
    torch.testing.assert_close(F.conv1d(pad_start(later, 3, 3), kernel, stride=3)[..., :2], y[..., :2])


def test_the_edge_may_be_repeated() -> None:
    assert pad_start(torch.tensor([[[5.0, 6.0, 7.0]]]), 2, 2, "replicate").tolist() == [[[5, 5, 5, 6, 7, 7]]]


def test_the_nearest_code_is_the_one_with_the_smallest_difference() -> None:
    codes = torch.tensor([[1.0, 0.0], [0.0, 3.0], [2.0, 2.0]])
    numbers, found = nearest_codes(torch.tensor([[[0.9, 0.4], [0.1, 2.9]]]), codes)
    assert numbers.tolist() == [[0, 1]] and found.tolist() == [[[1, 0], [0, 3]]]


def test_a_snake_grows_with_its_argument() -> None:
    x = torch.linspace(-3, 3, 50)[None, None]
    y = snake(x, torch.full((1, 1, 1), 2.0))
    torch.testing.assert_close(y, x + torch.sin(2 * x).square() / 2)


def test_samples_next_to_the_ends_are_mirrored():
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    assert pad_mirrored(x, 2, 2).tolist() == [[[3.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 2.0]]]
    assert pad_mirrored(x, 2, 1).tolist() == [[[3.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0]]]
    few = torch.tensor([[[1.0, 2.0]]])
    assert pad_mirrored(few, 3, 0).tolist() == [[[0.0, 0.0, 2.0, 1.0, 2.0]]]


def test_zeros_stand_behind_the_last_sample_until_frames_are_whole() -> None:
    padded = pad_to_frames(torch.ones(1, 1, 13), [4, 6], 2)  # frames of 2 * 3 samples, two at a time
    assert padded.shape[-1] == 24 and padded[0, 0].tolist() == [1.0] * 13 + [0.0] * 11


def test_pieces_of_a_waveform_are_joined_by_their_middles() -> None:
    first, second = torch.tensor([[[0.0, 0.0, 8.0]]]), torch.tensor([[[4.0, 4.0]]])
    # the third sample is as near to the middle of either
    assert join_pieces([first, second], 2).tolist() == [[[0.0, 0.0, 6.0, 4.0]]]


def test_chunks_have_zeros_around_all_frames_and_are_summed_again() -> None:
    x = torch.arange(1.0, 6.0)[None, None]
    chunks = F.pad(x, (2, 3)).unfold(2, 4, 2).transpose(2, 3)
    assert chunks[0, 0].T.tolist() == [[0, 0, 1, 2], [1, 2, 3, 4], [3, 4, 5, 0], [5, 0, 0, 0]]
    assert sum_chunks(chunks, 2)[0, 0].tolist() == [0, 0, 2, 4, 6, 8, 10, 0, 0, 0]


def test_a_snake_has_a_frequency_and_a_scale_for_each_channel() -> None:
    x = torch.tensor([[[1.0], [2.0]]])
    made = snake(x, torch.tensor([[torch.pi / 2], [0.0]]), torch.tensor([[4.0], [1.0]]))
    assert made[0, :, 0].tolist() == pytest.approx([1.25, 2.0])


def test_twice_and_half_as_many_samples_with_the_ends_repeated() -> None:
    x = torch.tensor([[[1.0, 2.0, 4.0]]])
    pairs = torch.tensor([[[0.0, 0.5, 0.5, 0.0]]])  # each sample at two places
    assert upsample_twice(x, pairs)[0, 0].tolist() == [1.0, 1.0, 2.0, 2.0, 4.0, 4.0]
    assert halve_smooth(torch.tensor([[[1.0, 3.0, 5.0, 9.0]]]), pairs)[0, 0].tolist() == [2.0, 7.0]
    assert halve_smooth(torch.tensor([[[1.0, 3.0, 5.0, 9.0]]]), pairs.roll(-1))[0, 0].tolist() == [1.0, 4.0]
