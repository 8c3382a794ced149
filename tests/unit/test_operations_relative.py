"""Relative positions and windows against the reference's own modules."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mapper.operations import attention, heads, relative, windows


@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20)])
def test_buckets_are_the_references(buckets, max_distance):
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = relative.relative_distances(torch.zeros(1, 301, 1))
    expected = T5Attention._relative_position_bucket(distances, True, buckets, max_distance)
    assert torch.equal(relative.relative_buckets(distances, buckets, max_distance), expected)
    expected = T5Attention._relative_position_bucket(distances, False, buckets, max_distance)
    earlier = (-distances).clamp(min=0)
    assert torch.equal(relative.bucket_logarithmic(earlier, buckets, max_distance), expected)


def test_mpnet_uses_the_bidirectional_buckets():
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    distances = relative.relative_distances(torch.zeros(1, 201, 1))
    expected = MPNetEncoder.relative_position_bucket(distances, num_buckets=32)
    assert torch.equal(relative.relative_buckets(distances, 32, 128), expected)


def test_a_distance_is_key_minus_query():
    full = relative.relative_distances(torch.zeros(1, 6, 1))
    assert full[2, 5] == 3


@pytest.mark.parametrize("heads_count", [1, 4, 6, 12, 16])
def test_alibi_is_the_references(heads_count):
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    expected = build_alibi_tensor(mask, heads_count, torch.float32).view(2, heads_count, 1, 5)
    from mapper.operations.positions import positions_of_mask

    x = torch.zeros(2, 5, 8)
    slopes = relative.alibi_slopes(x, heads_count)[:, None, None]
    torch.testing.assert_close(slopes * positions_of_mask(x, mask)[:, None, None, :], expected)


@pytest.mark.parametrize(("buckets", "max_distance"), [(256, 512), (8, 32), (6, 20)])
def test_logarithmic_buckets_are_the_references(buckets, max_distance):
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    distances = relative.relative_distances(torch.zeros(1, 3 * max_distance, 1))
    expected = make_log_bucket_position(distances, buckets, max_distance).long()
    assert torch.equal(relative.log_buckets(distances, buckets, max_distance), expected)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("buckets", [-1, 4])
@pytest.mark.parametrize("kinds", [["c2p"], ["p2c"], ["p2c", "c2p"]], ids="+".join)
def test_disentangled_attention_is_the_references(kinds, buckets, share):
    from transformers import DebertaV2Config
    from transformers.models.deberta_v2.modeling_deberta_v2 import (
        DisentangledSelfAttention,
        build_relative_position,
    )

    torch.manual_seed(0)
    config = DebertaV2Config(
        hidden_size=32, num_attention_heads=4, relative_attention=True, pos_att_type=kinds, share_att_key=share,
        position_buckets=buckets, max_relative_positions=-1, max_position_embeddings=16,
    )  # fmt: skip
    module = DisentangledSelfAttention(config).eval()
    span = buckets if buckets > 0 else 16
    x, table = torch.randn(2, 9, 32), torch.randn(2 * span, 32)
    real = torch.tensor([[1] * 9, [0] * 3 + [1] * 6])
    mask = real[:, None, None, :].bool()
    distances_there = build_relative_position(x, x, buckets, 16)
    expected, _ = module(x, mask & mask.transpose(2, 3), relative_pos=distances_there, rel_embeddings=table)

    query = module.query_proj if share else getattr(module, "pos_query_proj", None)
    key = module.key_proj if share else getattr(module, "pos_key_proj", None)
    out = disentangled(module, query, key, x, table, mask, kinds, buckets, span)
    torch.testing.assert_close(out[real.bool()], expected[real.bool()], rtol=1e-5, atol=1e-6)


def disentangled(module, position_query, position_key, x, table, mask, kinds, buckets, span) -> Tensor:
    q, k, v = (heads.split_heads(p(x), 8) for p in (module.query_proj, module.key_proj, module.value_proj))
    scale = (8 * (1 + len(kinds))) ** -0.5
    distances = relative.relative_distances(x)
    if buckets > 0:
        distances = relative.log_buckets(distances, buckets, 16)
    rows = (span - distances).clamp(0, 2 * span - 1)
    bias = torch.zeros(())
    if "c2p" in kinds:
        bias = bias + relative.relative_scores(q, heads.split_heads(position_key(table[None]), 8), rows)
    if "p2c" in kinds:
        bias = (
            bias + relative.relative_scores(k, heads.split_heads(position_query(table[None]), 8), rows.t()).mT
        )
    return heads.merge_heads(attention.attend_biased(q, k, v, bias * scale, mask, scale))


@pytest.mark.parametrize("shift", [(0, 0), (1, 1), (0, 1), (1, 0)])
@pytest.mark.parametrize(("height", "width"), [(6, 6), (5, 7), (4, 9)])
def test_windows_join_to_the_image_they_were_cut_from(height, width, shift):
    x = torch.randn(2, height, width, 4)
    cut = windows.partition_windows(x, 3, shift)
    assert cut.shape == (2 * -(-height // 3) * -(-width // 3), 9, 4)
    torch.testing.assert_close(windows.join_windows(cut, x, 3, shift), x, rtol=0, atol=0)


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize(("height", "width"), [(6, 6), (5, 7), (3, 9)])
def test_a_layer_in_windows_is_the_references(height, width, shift):
    from transformers import SwinConfig
    from transformers.models.swin.modeling_swin import SwinLayer

    torch.manual_seed(0)
    config = SwinConfig(embed_dim=8, window_size=3, num_heads=[2], depths=[2], drop_path_rate=0.0)
    layer = SwinLayer(config, 8, (height, width), 2, shift_size=shift).eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, height, width, 8)
    expected = layer(x.flatten(1, 2), (height, width))[0].unflatten(1, (height, width))

    at = layer.attention
    y = layer.layernorm_before(x)
    step = (windows.side_shift(min(y.shape[1:3]), 3, shift),) * 2
    cut = windows.partition_windows(y, 3, step)
    q, k, v = (heads.split_heads(p(cut), 4) for p in (at.q_proj, at.k_proj, at.v_proj))
    table = at.relative_position_bias.relative_position_bias_table
    bias = windows.window_bias(table, 3)
    cut = at.o_proj(
        heads.merge_heads(attention.attend_biased(q, k, v, bias, windows.window_mask(y, 3, step)))
    )
    y = x + windows.join_windows(cut, y, 3, step)
    y = y + layer.mlp(layer.layernorm_after(y))
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(4, 6), (5, 7)])
def test_patches_merge_as_the_reference_merges_them(height, width):
    from transformers.models.swin.modeling_swin import SwinPatchMerging

    module = SwinPatchMerging(4)
    x = torch.randn(2, height, width, 4)
    expected = module(x.flatten(1, 2), (height, width))
    out = module.reduction(module.norm(windows.merge_patches(x)))
    torch.testing.assert_close(out.flatten(1, 2), expected)


def test_images_become_sequences_and_are_padded():
    x = torch.randn(2, 3, 4, 5)
    assert windows.flatten_patches(x)[0, 6].tolist() == x[0, :, 1, 1].tolist()
    assert windows.pad_image(x, 4).shape == (2, 3, 4, 8)


def test_a_bias_hides_what_a_mask_hides():
    bias = torch.ones(1, 2, 1, 3)
    mask = torch.tensor([True, False, True])[None, None, None]
    hidden = relative.masked_bias(bias, mask)
    assert hidden[0, 1, 0].tolist() == [1.0, torch.finfo(torch.float32).min, 1.0]
    assert relative.masked_bias(bias, None) is bias
