"""Four-bit floats against their definition."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from mapper.operations import mxfp4


def test_every_number_of_four_bits() -> None:
    blocks = torch.arange(16, dtype=torch.uint8)[None] | (torch.arange(16, dtype=torch.uint8)[None] << 4)
    numbers = mxfp4.unpack_mxfp4(blocks, torch.tensor([128], dtype=torch.uint8), torch.zeros(1))
    half = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0]
    assert numbers[::2].tolist() == half + [-number for number in half]
    assert torch.equal(numbers[::2], numbers[1::2])


def test_the_low_bits_come_first_and_the_smallest_scale_is_no_zero() -> None:
    blocks = torch.full((1, 16), 0x72, dtype=torch.uint8)
    assert mxfp4.unpack_mxfp4(blocks, torch.tensor([127], dtype=torch.uint8), torch.zeros(1))[
        :2
    ].tolist() == [1.0, 6.0]
    tiny = mxfp4.unpack_mxfp4(blocks, torch.tensor([7], dtype=torch.uint8), torch.zeros(1).bfloat16())
    assert tiny.dtype == torch.bfloat16 and tiny[0] == 2.0**-120


def test_each_expert_has_its_own_matrix() -> None:
    generator = torch.Generator().manual_seed(0)
    blocks = torch.randint(0, 256, (3, 5, 2, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(120, 130, (3, 5, 2), generator=generator, dtype=torch.uint8)
    rows = torch.randn(4, 64, generator=generator)
    bias = torch.randn(3, 5, generator=generator)
    out = mxfp4.expert_linear_mxfp4(rows, blocks, scales, bias, [3, 0, 1])
    matrices = mxfp4.unpack_mxfp4(blocks, scales, rows)
    torch.testing.assert_close(out[:3], F.linear(rows[:3], matrices[0], bias[0]))
    torch.testing.assert_close(out[3:], F.linear(rows[3:], matrices[2], bias[2]))
    assert mxfp4.expert_linear_mxfp4(rows[:0], blocks, scales, bias, [0, 0, 0]).shape == (0, 5)
