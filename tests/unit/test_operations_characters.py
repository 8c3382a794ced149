"""Letters instead of words."""

from __future__ import annotations

import torch

from mapper.operations import characters


def test_a_block_sees_itself_but_for_its_padding():
    x, mask = torch.zeros(1, 4, 2), torch.tensor([[1, 0, 0, 0]])
    weights = characters.blocks_bias(x, mask, 2).softmax(-1)[0, 0]
    assert weights.tolist() == [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5]]
