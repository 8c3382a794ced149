"""Masks, position numbers and the key/value cache against loops over positions."""

from __future__ import annotations

import pytest
import torch

from mapper.operations import attention, cache, masks, missing_inputs, positions

LEFT = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
RIGHT = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])


def written_out(attention_mask, length: int, sees) -> torch.Tensor:
    batch = 1 if attention_mask is None else attention_mask.shape[0]
    mask = torch.zeros(batch, 1, length, length, dtype=torch.bool)
    for b in range(batch):
        for i in range(length):
            for j in range(length):
                real = attention_mask is None or bool(attention_mask[b, j])
                mask[b, 0, i, j] = real and sees(i, j)
    return mask


@pytest.mark.parametrize(
    "attention_mask", [None, LEFT, RIGHT, LEFT.bool()], ids=["none", "left", "right", "bool"]
)
def test_masks_show_what_they_say(attention_mask):
    x = torch.zeros(2, 5, 3)
    causal = masks.causal_mask(x, attention_mask)
    assert torch.equal(causal, written_out(attention_mask, 5, lambda i, j: j <= i))
    sliding = masks.sliding_mask(x, attention_mask, 2)
    assert torch.equal(sliding, written_out(attention_mask, 5, lambda i, j: i - 2 < j <= i))
    around = masks.sliding_mask(x, attention_mask, 2, 2)
    assert torch.equal(around, written_out(attention_mask, 5, lambda i, j: i - 1 <= j <= i + 2))


def test_the_states_of_an_encoder_stand_beside_the_keys_of_a_decoder():
    x, source = torch.zeros(2, 3, 4), torch.zeros(2, 2, 4)
    seen = torch.tensor([[True, False], [True, True]])[:, None, None]
    mask = masks.with_source_mask(None, seen, x, source)
    assert torch.equal(mask[..., :3], masks.causal_mask(x, None).expand(2, 1, 3, 3))
    assert torch.equal(mask[..., 3:], seen.expand(2, 1, 3, 2))
    assert masks.with_source_mask(None, None, x, source)[..., 3:].all()


def test_padding_hides_keys_from_every_query():
    assert masks.padding_mask(None) is None
    assert masks.padding_mask(LEFT).shape == (2, 1, 1, 5)
    assert torch.equal(masks.padding_mask(LEFT)[:, 0, 0], LEFT.bool())


def test_padded_positions_become_zero():
    x = torch.ones(2, 5, 3)
    assert masks.zero_padding(x, None) is x
    assert torch.equal(masks.zero_padding(x, RIGHT)[..., 0], RIGHT.float())


def test_masks_over_a_cache_are_the_rows_of_the_full_mask():
    x = torch.zeros(2, 5, 3)
    for attention_mask in (None, LEFT):
        full = masks.causal_mask(x, attention_mask)
        window = masks.sliding_mask(x, attention_mask, 2)
        slots = torch.tensor([3, 4])
        at = masks.causal_mask_at(slots, 8, attention_mask)
        assert torch.equal(at[..., :5], full[:, :, 3:]) and not at[..., 5:].any()
        near = at & (slots[:, None] - torch.arange(8) < 2)
        assert torch.equal(near[..., :5], window[:, :, 3:]) and not near[..., 5:].any()


@pytest.mark.parametrize("attention_mask", [None, LEFT], ids=["none", "left"])
def test_attention_through_a_cache_equals_attention_over_all(attention_mask):
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    x = torch.zeros(2, 5, 3)
    expected = attention.attend(q, k, v, masks.causal_mask(x, attention_mask))
    past = cache.empty_cache(x, 2, 9, [(2, 8)])
    outputs = []
    for start, stop in ((0, 3), (3, 4), (4, 5)):
        part = x[:, start:stop]
        slots = cache.new_cache_positions(part, torch.tensor(start))
        keys, values = cache.extend_cache(past[0], k[:, :, start:stop], v[:, :, start:stop], slots)
        seen = None if attention_mask is None else attention_mask[:, :stop]
        mask = masks.causal_mask_at(slots, cache.cache_length(part, past), seen)
        outputs.append(attention.attend(q[:, :, start:stop], keys, values, mask))
    real = slice(2, None) if attention_mask is not None else slice(None)
    torch.testing.assert_close(torch.cat(outputs, 2)[:, :, real], expected[:, :, real])


def test_without_a_cache_the_new_keys_are_all():
    x = torch.zeros(2, 5, 3)
    k = torch.randn(2, 2, 5, 8)
    slots = cache.new_cache_positions(x, None)
    assert slots.tolist() == [0, 1, 2, 3, 4]
    assert cache.extend_cache(None, k, k, slots)[0] is k
    assert cache.cache_length(x, None) == 5
    assert cache.layer_caches(None, 3) == [None, None, None]


def test_positions_behind_a_cache_go_on_where_it_ends():
    slots = torch.tensor([3, 4])
    assert cache.cache_positions(slots, None).tolist() == [[3, 4]]
    assert cache.cache_positions(slots, torch.tensor([[7, 8]])).tolist() == [[7, 8]]
    assert cache.cache_positions_of_mask(slots, 6, None).tolist() == [[0, 1, 2, 3, 4, 5]]
    assert cache.cache_positions_of_mask(slots, 6, LEFT).tolist() == [[0, 0, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]


def test_positions_count_real_tokens():
    x = torch.zeros(2, 5, 3)
    assert positions.positions_in_order(x).tolist() == [[0, 1, 2, 3, 4]]
    assert positions.positions_of_mask(x, None).tolist() == [[0, 1, 2, 3, 4]]
    assert positions.positions_of_mask(x, LEFT).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]


def test_positions_of_ids_equal_the_references():
    from transformers.models.roberta.modeling_roberta import RobertaEmbeddings

    ids = torch.tensor([[1, 1, 5, 6, 7], [5, 6, 1, 1, 1]])
    expected = RobertaEmbeddings.create_position_ids_from_input_ids(ids, 1)
    assert torch.equal(positions.positions_of_ids(ids, 1), expected)

    steps = [
        positions.positions_of_ids(part, 1) + at * (part != 1)
        for at, part in ((0, ids[:, :4]), (4, ids[:, 4:]))
    ]
    assert torch.cat(steps, dim=1)[1].tolist() == [2, 3, 1, 1, 1]


def test_positions_of_a_mask_leave_padding_behind_the_first():
    ids = torch.zeros(2, 5, dtype=torch.int64)
    expected = [[-1, -1, 0, 1, 2], [0, 1, 2, 3, 4]]
    assert missing_inputs.position_indices_of_mask(ids, None, LEFT).tolist() == expected
    assert missing_inputs.position_indices_of_mask(ids, None, None).tolist() == expected[1:]
    assert missing_inputs.position_indices_of_mask(ids, ids, LEFT) is ids
    slots = torch.tensor([4, 5])
    assert cache.cache_positions_of_mask(slots, 6, LEFT)[:, slots].tolist() == [[2, 3], [4, 5]]


@pytest.mark.parametrize("size", [8, 9])
def test_sinusoids_equal_the_references(size):
    from transformers.models.xglm.modeling_xglm import XGLMSinusoidalPositionalEmbedding

    expected = XGLMSinusoidalPositionalEmbedding.get_embedding(7, size, None)
    torch.testing.assert_close(positions.sinusoids(torch.zeros(1), torch.arange(7)[None], size)[0], expected)


def test_sinusoids_with_cosines_first_are_the_references():
    from transformers.models.musicgen.modeling_musicgen import MusicgenSinusoidalPositionalEmbedding

    expected = MusicgenSinusoidalPositionalEmbedding.get_embedding(7, 9)
    made = positions.sinusoids(torch.zeros(1), torch.arange(7)[None], 9, cosine_first=True)
    torch.testing.assert_close(made[0], expected)


def test_interleaved_sinusoids_equal_the_formula():
    out = positions.sinusoids_interleaved(torch.zeros(1), torch.arange(5)[None], 6)[0]
    for p in range(5):
        for i in range(3):
            angle = torch.tensor(p / 10000 ** (2 * i / 6))
            torch.testing.assert_close(out[p, 2 * i : 2 * i + 2], torch.stack((angle.sin(), angle.cos())))


def test_position_tables_resize_as_the_reference_does():
    from transformers import Dinov2Config, Dinov2Model

    torch.manual_seed(0)
    config = Dinov2Config(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=8
    )
    embeddings = Dinov2Model(config).embeddings
    table = torch.nn.init.normal_(embeddings.position_embeddings)
    for height, width in ((4, 4), (3, 5), (7, 7)):
        patches = torch.zeros(1, 1 + height * width, 8)
        expected = embeddings.interpolate_pos_encoding(patches, height * 8, width * 8)
        torch.testing.assert_close(positions.resize_positions(table, 1, height, width), expected)
    torch.testing.assert_close(positions.resize_positions(table, 1, 4, 4), table, rtol=0, atol=0)


def test_a_decoder_without_ids_reads_the_shifted_ones_of_the_encoder():
    ids = torch.tensor([[5, 6, 7]])
    assert positions.decoder_ids(None, ids, 2, 1).tolist() == [[2, 5, 6]]
    assert positions.decoder_ids(torch.tensor([[9]]), ids, 2, 1).tolist() == [[9]]


def test_a_prefix_is_seen_by_all_and_sees_itself_alone():
    real = torch.tensor([[1, 1, 0, 1, 1], [1, 1, 1, 1, 1]])
    seen = masks.block_mask(torch.ones(2, 5, 3), real, torch.tensor([[0, 0, -1, -1, -1]]))[0, 0].long()
    expected = [[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 1, 1]]
    assert seen.tolist() == expected


def test_what_is_asked_is_one_block_wherever_it_stands():
    types = torch.tensor([[1, 0, 1, 0]])
    seen = masks.block_mask(torch.zeros(1, 4, 2), None, torch.where(types == 1, 0, -1))[0, 0]
    assert seen.int().tolist() == [[1, 0, 1, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


def test_whole_groups_with_the_best_scores_are_seen_and_what_is_left_over() -> None:
    k = torch.tensor([[[0.0], [1.0], [3.0], [5.0], [1.0]]])
    q, even = torch.ones(1, 1, 5, 1), torch.zeros(1, 5, 1)
    mask = masks.grouped_mask(q, k, even, torch.zeros(2, 1), torch.ones(1, 5, 1), None, 2)
    seen = [[0], [0, 1], [0, 1, 2], [2, 3], [2, 3, 4]]
    assert [row.nonzero()[:, 0].tolist() for row in mask[0, 0]] == seen
    padding = torch.tensor([[0, 1, 1, 1, 1]])
    mask = masks.grouped_mask(q, k, even, torch.zeros(2, 1), torch.ones(1, 5, 1), padding, 4)
    seen = [[0, 1, 2, 3, 4], [1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]
    assert [row.nonzero()[:, 0].tolist() for row in mask[0, 0]] == seen
