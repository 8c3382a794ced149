import torch

from mapper.operations.hashing import (
    attend_chunked,
    attend_hashed,
    chunks_around,
    pad_to_chunks,
    rotation_buckets,
)


def test_positions_fill_chunks_of_each_size_only_where_one_chunk_does_not_hold_them() -> None:
    x = torch.ones(1, 7, 2)
    padded, seen = pad_to_chunks(x, None, [4, 6])
    assert padded.shape == (1, 12, 2) and seen is not None and seen.sum() == 7
    assert pad_to_chunks(x, None, [8, None]) == (x, None)


def test_the_first_chunk_is_a_neighbour_of_the_last() -> None:
    around = chunks_around(torch.arange(6).view(1, 1, 6), (2, 1, 0))
    assert around[0, 0].tolist() == [[4, 5, 0, 1], [0, 1, 2, 3], [2, 3, 4, 5]]


def test_chunks_that_see_all_others_are_plain_attention() -> None:
    q, k, v = torch.randn(3, 2, 4, 6, 8, generator=torch.Generator().manual_seed(0))
    seen = torch.ones(2, 6, dtype=torch.bool)
    seen[1, 4:] = False
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None, None])
    torch.testing.assert_close(attend_chunked(q, k, v, seen, (2, 1, 1), False), wanted)


def test_what_is_hidden_changes_no_seen_position_and_a_lone_position_sees_itself() -> None:
    generator = torch.Generator().manual_seed(0)
    q, v = torch.randn(2, 1, 2, 8, 4, generator=generator)
    seen = torch.arange(8)[None] < 6
    buckets = rotation_buckets(q, seen, 2, (2, 4), 5)
    assert torch.equal(buckets, rotation_buckets(q, seen, 2, (2, 4), 5))
    assert (buckets[..., 6:] == torch.tensor([8, 17])[:, None]).all()
    y = attend_hashed(q, v, seen, (2, 1, 0), buckets, True)
    changed = v.masked_fill(~seen[:, None, :, None], 9.0)
    torch.testing.assert_close(
        attend_hashed(q, changed, seen, (2, 1, 0), buckets, True)[:, :, :6], y[:, :, :6]
    )
    torch.testing.assert_close(y[:, :, 0], v[:, :, 0])
