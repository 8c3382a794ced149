"""Operations of encoders of sound against loops over frames."""

from __future__ import annotations

import pytest
import torch

from mapper.operations import features, pooling, positions, sounds, transformer_xl

MASK = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]])


def test_frames_of_padded_convolutions_are_real_where_their_sounds_were():
    assert pooling.halved_mask(torch.zeros(2, 4, 1), MASK, 1).sum(dim=1).tolist() == [3, 4]
    assert pooling.halved_mask(torch.zeros(2, 2, 1), MASK, 2).sum(dim=1).tolist() == [2, 2]
    assert pooling.halved_mask(torch.zeros(2, 2, 1), None, 2) is None


def test_rows_of_an_image_of_sound_become_zero_where_they_are_padding():
    image = torch.ones(2, 3, 4, 5)
    assert pooling.zero_frames(image, MASK, 1)[:, 0, :, 0].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert pooling.zero_frames(image, None, 1) is image


def test_the_last_of_an_odd_number_of_frames_has_no_pair():
    assert pooling.mean_of_pairs(torch.arange(5.0)[None, :, None]).flatten().tolist() == [0.5, 2.5]


def test_scores_by_distance_become_scores_by_key():
    length = 4
    distances = torch.arange(length - 1, -length, -1.0)
    shifted = transformer_xl.shift_distances(distances.expand(1, 2, length, -1))
    index = torch.arange(length)
    assert torch.equal(shifted[0, 1].long(), index[:, None] - index)


def test_waves_of_distances_begin_with_the_farthest_earlier_key():
    x = torch.zeros(1, 3, 8)
    waves = transformer_xl.distance_waves(x, 8)
    assert waves.shape == (1, 5, 8)
    assert torch.equal(waves, positions.sinusoids_interleaved(x, torch.tensor([[2, 1, 0, -1, -2]]), 8))


def test_far_distances_share_the_rows_at_both_ends_of_a_table():
    rows = transformer_xl.clipped_distances(torch.zeros(1, 4, 1), 2, 1)
    assert rows.tolist() == [[2, 3, 3, 3], [1, 2, 3, 3], [0, 1, 2, 3], [0, 0, 1, 2]]


def test_a_query_meets_the_vector_of_each_distance():
    q, table = torch.randn(2, 3, 4, 5), torch.randn(4, 6, 5)
    scores = transformer_xl.distance_scores(q, table)
    torch.testing.assert_close(scores[1, 2, 3, 4], q[1, 2, 3] @ table[3, 4])


def test_waves_without_their_padding():
    where = torch.tensor([[2, 3, 1]])
    waves = positions.sinusoids_split(torch.zeros(1, 3, 4), where, 4)
    torch.testing.assert_close(
        waves[0, 1],
        torch.tensor([3.0, 0.03, 3.0, 0.03])
        .sin()
        .where(torch.tensor([True, True, False, False]), torch.tensor([3.0, 0.03, 3.0, 0.03]).cos()),
    )
    assert positions.zero_at(waves, where, 1)[0, 2].tolist() == [0, 0, 0, 0]


def test_a_spectrogram_is_folded_and_unfolded():
    x = torch.arange(2 * 16 * 4.0).view(1, 2, 16, 4)  # two folds of eight frames
    folded = sounds.fold_spectrogram(x, 8, 4)
    assert folded.shape == (1, 2, 8, 8)
    assert torch.equal(folded[0, 0, :4, 0], x[0, 0, 0])  # the bands of the first frame
    assert torch.equal(folded[0, 0, 4:, 0], x[0, 0, 8])  # below them those of the second half's first
    back = sounds.unfold_spectrogram(folded.permute(0, 2, 3, 1), 2)
    assert torch.equal(back, x.transpose(2, 3))


def test_a_short_spectrogram_is_stretched():
    assert sounds.fold_spectrogram(torch.randn(1, 1, 11, 4), 8, 4).shape == (1, 1, 8, 8)


def test_parts_stand_side_by_side():
    parts = torch.arange(2 * 3.0).view(6, 1, 1, 1)
    beside = sounds.side_by_side(parts, torch.zeros(2, 4), torch.zeros(2, 1, 1, 5))
    assert beside.tolist() == [[[[0, 1, 2, 0, 0]]], [[[3, 4, 5, 0, 0]]]]


def test_padding_of_sounds_is_left_out():
    x = torch.arange(2 * 4.0).view(2, 4, 1)
    mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])  # half of them 4 and 3, every two joined 2 and 1
    assert sounds.real_counts(mask, 1, 2).tolist() == [2, 1]
    assert sounds.real_frames(x, mask, 1, 2).flatten().tolist() == [0, 1, 4]
    assert sounds.real_frames(x, None, 1, 2).shape == (8, 1)


def test_rows_of_one_sound_are_counted():
    ids = torch.tensor([[0, 9, 9, 9, 9, 9, 0], [0, 0, 9, 9, 0, 9, 0]])  # sounds of five, two and one vectors
    assert sounds.sound_windows(ids, 9, torch.tensor([3, 2, 2, 1])).tolist() == [0, 1, 0, 0]


def test_what_stands_at_the_start_of_a_sound_is_not_turned():
    x = torch.randn(2, 3, 8)
    turned = sounds.turn_by_time(x, torch.tensor([0, 1]), 0.04, 1200.0, 0.5)
    assert torch.equal(turned[0, 0], x[0, 0])
    assert not torch.equal(turned[1, 0, :4], x[1, 0, :4])
    assert torch.equal(turned[..., 8:], x[..., 8:])


def test_every_feature_has_its_place():
    ids = torch.tensor([[1, 9, 9]])
    placed = features.place_all_features(torch.zeros(1, 3, 2), torch.ones(2, 2), ids, 9)
    assert placed.sum(-1).tolist() == [[0, 2, 2]]
    with pytest.raises(RuntimeError, match="places"):
        features.place_all_features(torch.zeros(1, 3, 2), torch.ones(1, 2), ids, 9)


def test_pieces_are_packed_and_see_their_stretch():
    x = torch.arange(2 * 2 * 2.0).view(2, 2, 2, 1)  # two pieces of two vectors, from four frames each
    mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
    seen = sounds.piece_mask(x, mask, 1)
    assert seen.tolist() == [[[True, True], [True, True]], [[True, True], [True, False]]]
    assert sounds.pack_pieces(x, seen).flatten().tolist() == [0, 1, 2, 3, 4, 5, 6]
    stretches = sounds.same_stretch_mask(seen, 1)[0, 0]
    assert stretches.sum(dim=1).tolist() == [2, 2, 2, 2, 2, 2, 1]
    assert sounds.same_stretch_mask(seen, 2)[0, 0].sum(dim=1).tolist() == [4, 4, 4, 4, 3, 3, 3]
    assert sounds.piece_mask(x, None, 1).all()


def test_a_spectrogram_is_cut_along_its_time():
    x = torch.arange(2 * 3 * 8.0).view(2, 3, 8)
    assert torch.equal(sounds.cut_pieces(x, 4)[1, 0], x[0, :, 4:])


def test_codes_are_placed_where_one_of_two_ids_stands():
    ids = torch.tensor([[1, 8, 9, 2]])
    places = features.places_of(ids, 8, 9)
    assert places.flatten().tolist() == [False, True, True, False]
    x, vectors = torch.zeros(1, 4, 1), torch.tensor([[[5.0], [6.0], [7.0]]])
    kept = torch.tensor([[True, False, True]])
    assert features.place_codes(x, vectors, kept, places).flatten().tolist() == [0, 5, 7, 0]
    assert features.place_codes(x, None, None, places) is x


def test_frames_are_cut_into_blocks_and_joined():
    x = torch.randn(2, 7, 3)
    blocks = sounds.cut_blocks(x, 4)
    assert blocks.shape == (4, 4, 3)
    assert torch.equal(sounds.join_blocks(blocks, x), x)
    real = sounds.block_mask_keys(x, torch.tensor([[1] * 7, [1] * 3 + [0] * 4]), 4)
    assert real.flatten(1).sum(dim=1).tolist() == [4, 3, 3, 0]
    assert sounds.block_mask_keys(x[:, :4], None, 4) is None
    assert sounds.block_mask_keys(x, None, 4).sum() == 14


def test_scores_by_distance_take_the_row_of_each_distance():
    q, table = torch.randn(1, 2, 3, 4), torch.randn(7, 4)
    bias = sounds.distance_bias(q, table)
    assert torch.allclose(bias[0, 1, 2, 0], q[0, 1, 2] @ table[3 + 2])
    assert torch.allclose(bias[0, 1, 0, 2], q[0, 1, 0] @ table[3 - 2])


def test_a_frame_made_of_two_is_real_where_both_were():
    frames = torch.tensor([[1, 1, 1, 0, 0]])
    assert sounds.frames_behind(torch.zeros(1, 2, 1), frames).tolist() == [[True, False]]
    assert sounds.frames_behind(torch.zeros(1, 5, 1), frames) is frames
    assert sounds.frames_behind(torch.zeros(1, 2, 1), None) is None


def test_vectors_of_sounds_stand_in_one_row():
    x = torch.arange(6.0).view(6, 1, 1)
    found = sounds.vectors_of_sounds(x, torch.zeros(2, 5))
    assert found.shape == (2, 3, 1)
    shown = sounds.shown_vectors(found, torch.tensor([[True, True, False], [True, False, False]]))
    assert shown.flatten().tolist() == [0, 1, 3]
    assert sounds.shown_vectors(None, None) is None
    assert sounds.shown_vectors(found, None).shape == (6, 1)


def test_bands_are_normed_over_real_frames():
    x = torch.randn(2, 6, 3)
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    normed = sounds.norm_bands(x, mask)
    assert normed[1, 4:].abs().max() == 0
    assert torch.allclose(normed[1, :4].mean(dim=0), torch.zeros(3), atol=1e-6)
    assert torch.allclose(normed[1, :4].std(dim=0), torch.ones(3), atol=1e-4)
    assert torch.allclose(normed[0], sounds.norm_bands(x[:1], None)[0])


def test_who_speaks_is_heard_on_the_mean_of_frames():
    logits = torch.tensor([[[4.0, -4.0], [-1.0, -4.0]]])
    active = sounds.active_speakers(logits, 2, 0.5)
    assert active.tolist() == [[[True, False]]]
    vectors = sounds.speaker_vectors(torch.eye(2)[None], 4)
    assert vectors[0, 0].tolist() == [0, 1, 0, 1]  # the waves at place 0


def test_vectors_are_placed_in_order_or_at_their_own_positions():
    x, places = torch.zeros(1, 4, 1), torch.tensor([[False, True, False, True]])[..., None]
    vectors = torch.tensor([[[5.0], [6.0], [7.0]]])
    kept = torch.tensor([[1, 0, 1]])
    assert features.place_vectors(x, vectors, kept, places).flatten().tolist() == [0, 5, 0, 7]
    assert features.place_latents(x, vectors[:, :2], places).flatten().tolist() == [0, 5, 0, 6]
    own = torch.arange(1.0, 5).view(1, 4, 1)
    assert features.place_latents(x, own, places).flatten().tolist() == [0, 2, 0, 4]
    assert features.place_latents(x, None, places) is x
    with pytest.raises(RuntimeError, match="places"):
        features.place_vectors(x, vectors, None, places)


def test_no_duration_has_waves_at_their_start():
    assert sounds.duration_waves(torch.zeros(1), 0.0, 6, 100.0).tolist() == [1, 1, 1, 0, 0, 0]
    waves = sounds.duration_waves(torch.zeros(1), 3.0, 4, 100.0)
    assert torch.allclose(waves, torch.tensor([3.0, 0.03, 3.0 - torch.pi / 2, 0.03 - torch.pi / 2]).cos())


def test_sounds_are_normed_over_their_real_frames():
    x, weight, bias = torch.randn(2, 4, 3), torch.rand(3), torch.rand(3)
    frames = torch.tensor([[True] * 4, [True, True, False, False]])
    normed = sounds.norm_sounds(x, frames, weight, bias, 1e-5)
    alone = torch.nn.functional.group_norm(x[1:, :2].transpose(1, 2), 1, weight, bias, 1e-5).transpose(1, 2)
    assert torch.allclose(normed[1:, :2], alone, atol=1e-6)
    assert normed[1, 2:].abs().max() == 0
    assert torch.allclose(sounds.norm_sounds(x[:1], None, weight, bias, 1e-5), normed[:1])


def test_a_frame_is_real_where_its_first_sample_is():
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])
    frames = sounds.frames_of_samples(mask, 2)
    assert frames.tolist() == [[True, True, True, False]]
    assert sounds.frame_keys(frames).shape == (1, 1, 1, 4)
    assert sounds.frames_of_samples(None, 2) is None
    assert sounds.frame_keys(None) is None
