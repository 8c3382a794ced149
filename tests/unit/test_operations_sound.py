"""Operations of encoders of sound against loops over frames."""

from __future__ import annotations

import pytest
import torch

from mapper.operations import audio, features, pooling, positions, transformer_xl

MASK = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]])


def test_frames_of_padded_convolutions_are_real_where_their_sounds_were():
    assert pooling.halved_mask(torch.zeros(2, 4, 1), MASK, 1).sum(dim=1).tolist() == [3, 4]
    assert pooling.halved_mask(torch.zeros(2, 2, 1), MASK, 2).sum(dim=1).tolist() == [2, 2]
    assert pooling.halved_mask(torch.zeros(2, 2, 1), None, 2) is None


def test_rows_of_an_image_of_sound_become_zero_where_they_are_padding():
    image = torch.ones(2, 3, 4, 5)
    assert pooling.zero_frames(image, MASK, 1)[:, 0, :, 0].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert pooling.zero_frames(image, None, 1) is image


def test_scores_by_distance_become_scores_by_key():
    length = 4
    distances = torch.arange(length - 1, -length, -1.0)
    shifted = transformer_xl.relative_shift(distances.expand(1, 2, length, -1))
    index = torch.arange(length)
    assert torch.equal(shifted[0, 1].long(), index[:, None] - index)


def test_sines_stand_before_cosines():
    where = torch.tensor([[2, 3, 1]])
    waves = positions.sinusoids(torch.zeros(1, 3, 4), where, 4, shift=0)
    torch.testing.assert_close(
        waves[0, 1],
        torch.tensor([3.0, 0.03, 3.0, 0.03])
        .sin()
        .where(torch.tensor([True, True, False, False]), torch.tensor([3.0, 0.03, 3.0, 0.03]).cos()),
    )


def test_a_spectrogram_is_folded():
    x = torch.arange(2 * 16 * 4.0).view(1, 2, 16, 4)  # two folds of eight frames
    folded = audio.fold_spectrogram(x, 8, 4)
    assert folded.shape == (1, 2, 8, 8)
    assert torch.equal(folded[0, 0, :4, 0], x[0, 0, 0])  # the bands of the first frame
    assert torch.equal(folded[0, 0, 4:, 0], x[0, 0, 8])  # below them those of the second half's first


def test_a_short_spectrogram_is_stretched():
    assert audio.fold_spectrogram(torch.randn(1, 1, 11, 4), 8, 4).shape == (1, 1, 8, 8)


def test_padding_of_sounds_is_left_out():
    x = torch.arange(2 * 4.0).view(2, 4, 1)
    mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])  # half of them 4 and 3, every two joined 2 and 1
    assert audio.unpadded_frames(x, mask, 1, 2).flatten().tolist() == [0, 1, 4]
    assert audio.unpadded_frames(x, None, 1, 2).shape == (8, 1)


def test_rows_of_one_sound_are_counted():
    ids = torch.tensor([[0, 9, 9, 9, 9, 9, 0], [0, 0, 9, 9, 0, 9, 0]])  # sounds of five, two and one vectors
    assert audio.sound_windows(ids, 9, torch.tensor([3, 2, 2, 1])).tolist() == [0, 1, 0, 0]


def test_what_stands_at_the_start_of_a_sound_is_not_turned():
    x = torch.randn(2, 3, 8)
    turned = audio.apply_rotary_by_time(x, torch.tensor([0, 1]), 0.04, 1200.0, 0.5)
    assert torch.equal(turned[0, 0], x[0, 0])
    assert not torch.equal(turned[1, 0, :4], x[1, 0, :4])
    assert torch.equal(turned[..., 8:], x[..., 8:])


def test_every_feature_has_its_place():
    places = torch.tensor([[False, True, True]])[..., None]
    placed = features.scatter_vectors(torch.zeros(1, 3, 2), torch.ones(2, 2), None, places)
    assert placed.sum(-1).tolist() == [[0, 2, 2]]
    with pytest.raises(RuntimeError, match="places"):
        features.scatter_vectors(torch.zeros(1, 3, 2), torch.ones(1, 2), None, places)


def test_pieces_are_packed_and_see_their_stretch():
    x = torch.zeros(2, 2, 2, 1)  # two pieces of two vectors, from four frames each
    mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
    seen = audio.segment_mask(x, mask, 1)
    assert seen.tolist() == [[[True, True], [True, True]], [[True, True], [True, False]]]
    stretches = audio.same_stretch_mask(seen, 1)[0, 0]
    assert stretches.sum(dim=1).tolist() == [2, 2, 2, 2, 2, 2, 1]
    assert audio.same_stretch_mask(seen, 2)[0, 0].sum(dim=1).tolist() == [4, 4, 4, 4, 3, 3, 3]
    assert audio.segment_mask(x, None, 1).all()


def test_frames_are_cut_into_blocks_and_joined():
    x = torch.randn(2, 7, 3)
    blocks = audio.split_into_blocks(x, 4)
    assert blocks.shape == (4, 4, 3)
    assert torch.equal(blocks.unflatten(0, (2, -1)).flatten(1, 2)[:, :7], x)
    real = audio.block_mask_keys(x, torch.tensor([[1] * 7, [1] * 3 + [0] * 4]), 4)
    assert real.flatten(1).sum(dim=1).tolist() == [4, 3, 3, 0]
    assert audio.block_mask_keys(x[:, :4], None, 4) is None
    assert audio.block_mask_keys(x, None, 4).sum() == 14


def test_a_frame_made_of_two_is_real_where_both_were():
    frames = torch.tensor([[1, 1, 1, 0, 0]])
    assert audio.frames_after(torch.zeros(1, 2, 1), frames).tolist() == [[True, False]]
    assert audio.frames_after(torch.zeros(1, 5, 1), frames) is frames
    assert audio.frames_after(torch.zeros(1, 2, 1), None) is None


def test_vectors_of_sounds_stand_in_one_row():
    found = torch.arange(6.0).view(2, 3, 1)
    shown = audio.unpadded_vectors(found, torch.tensor([[True, True, False], [True, False, False]]))
    assert shown.flatten().tolist() == [0, 1, 3]
    assert audio.unpadded_vectors(None, None) is None
    assert audio.unpadded_vectors(found, None).shape == (6, 1)


def test_bands_are_normed_over_real_frames():
    x = torch.randn(2, 6, 3)
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    normed = audio.norm_bands(x, mask)
    assert normed[1, 4:].abs().max() == 0
    assert torch.allclose(normed[1, :4].mean(dim=0), torch.zeros(3), atol=1e-6)
    assert torch.allclose(normed[1, :4].std(dim=0), torch.ones(3), atol=1e-4)
    assert torch.allclose(normed[0], audio.norm_bands(x[:1], None)[0])


def test_vectors_are_placed_in_order_or_at_their_own_positions():
    x, places = torch.zeros(1, 4, 1), torch.tensor([[False, True, False, True]])[..., None]
    vectors = torch.tensor([[[5.0], [6.0], [7.0]]])
    kept = torch.tensor([[1, 0, 1]])
    assert features.scatter_vectors(x, vectors, kept, places).flatten().tolist() == [0, 5, 0, 7]
    assert features.scatter_latents(x, vectors[:, :2], places).flatten().tolist() == [0, 5, 0, 6]
    own = torch.arange(1.0, 5).view(1, 4, 1)
    assert features.scatter_latents(x, own, places).flatten().tolist() == [0, 2, 0, 4]
    assert features.scatter_latents(x, None, places) is x
    with pytest.raises(RuntimeError, match="places"):
        features.scatter_vectors(x, vectors, None, places)


def test_sounds_are_normed_over_their_real_frames():
    x, weight, bias = torch.randn(2, 4, 3), torch.rand(3), torch.rand(3)
    frames = torch.tensor([[True] * 4, [True, True, False, False]])
    normed = audio.norm_sounds(x, frames, weight, bias, 1e-5)
    alone = torch.nn.functional.group_norm(x[1:, :2].transpose(1, 2), 1, weight, bias, 1e-5).transpose(1, 2)
    assert torch.allclose(normed[1:, :2], alone, atol=1e-6)
    assert normed[1, 2:].abs().max() == 0
    assert torch.allclose(audio.norm_sounds(x[:1], None, weight, bias, 1e-5), normed[:1])


def test_all_rows_lose_the_same_numbers():
    x = torch.ones(3, 50, 4)
    dropped = audio.drop_shared(x, 0.5)
    assert torch.equal(dropped[0], dropped[2])
    assert dropped.unique().tolist() == [0, 2]
