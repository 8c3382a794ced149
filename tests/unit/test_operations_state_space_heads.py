"""State spaces with heads against their definition, one position after another."""

from __future__ import annotations

import pytest
import torch

from mapper.operations.state_space_heads import state_space_heads


@pytest.mark.parametrize("length", [1, 16, 37])
def test_chunks_give_what_the_recurrence_gives(length: int) -> None:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(2, length, *shape, generator=generator)

    x, dt, b, c = draw(4, 3), draw(4).exp(), draw(2, 5), draw(2, 5)
    a = -torch.rand(4, generator=generator)
    state, wanted = torch.zeros(2, 4, 3, 5), []
    for t in range(length):
        write = (dt[:, t, :, None] * x[:, t])[..., None] * b[:, t].repeat_interleave(2, 1)[:, :, None]
        state = (dt[:, t] * a).exp()[..., None, None] * state + write
        wanted.append((state @ c[:, t].repeat_interleave(2, 1)[..., None]).squeeze(-1))
    torch.testing.assert_close(
        state_space_heads(x, dt, a, b, c), torch.stack(wanted, 1), rtol=1e-4, atol=1e-5
    )
