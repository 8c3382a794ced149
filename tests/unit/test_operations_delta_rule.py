"""The gated delta rule against its definition, one position after another."""

from __future__ import annotations

import pytest
import torch

from mapper.operations.delta_rule import delta_rule, exponential_gates, l2_normalise


@pytest.mark.parametrize("length", [1, 16, 37])
@pytest.mark.parametrize("channels", [1, 6])
def test_chunks_give_what_the_recurrence_gives(length: int, channels: int) -> None:
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(2, length, *shape, generator=generator)  # noqa: E731
    q, k, v, beta = draw(2, 6), draw(2, 6), draw(4, 5), draw(4).sigmoid()
    decay = -torch.rand(2, length, 4, channels, generator=generator)
    queries = l2_normalise(q).repeat_interleave(2, 2) * 6**-0.5
    keys = l2_normalise(k).repeat_interleave(2, 2)
    memory, wanted = torch.zeros(2, 4, 6, 5), []
    for t in range(length):
        memory = memory * decay[:, t].exp()[..., None]
        held = (memory * keys[:, t, :, :, None]).sum(2)
        new = (v[:, t] - held) * beta[:, t, :, None]
        memory = memory + keys[:, t, :, :, None] * new[:, :, None]
        wanted.append((memory * queries[:, t, :, :, None]).sum(2))
    got = delta_rule(q, k, v, decay, beta)
    torch.testing.assert_close(got, torch.stack(wanted, 1), rtol=1e-4, atol=1e-5)


def test_strong_decays_stay_finite() -> None:
    q, k, v = torch.randn(1, 20, 2, 4), torch.randn(1, 20, 2, 4), torch.randn(1, 20, 2, 3)
    assert delta_rule(q, k, v, torch.full((1, 20, 2, 4), -60.0), torch.ones(1, 20, 2)).isfinite().all()


@pytest.mark.parametrize("length", [1, 16, 37])
def test_exponential_gates_give_what_the_recurrence_gives(length: int) -> None:
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(2, length, 3, *shape, generator=generator)  # noqa: E731
    q, k, v, strength, decay = draw(6), draw(6), draw(5), 3 * draw(), -torch.nn.functional.softplus(draw())
    state, weights, highest, wanted = torch.zeros(2, 3, 6, 5), torch.zeros(2, 3, 6), torch.zeros(2, 3), []
    for t in range(length):
        last, highest = highest, torch.maximum(highest + decay[:, t], strength[:, t])
        kept = (decay[:, t] + last - highest).exp()[..., None]
        new = (strength[:, t] - highest).exp()[..., None] * k[:, t]
        state = kept[..., None] * state + new[..., None] * v[:, t, :, None]
        weights = kept * weights + new
        query = q[:, t] * 6**-0.5
        share = (query * weights).sum(-1).abs().maximum((-highest).exp()) + 1e-2
        wanted.append((query[..., None] * state).sum(2) / share[..., None])
    got = exponential_gates(q, k, v, strength, decay, 1e-2)
    torch.testing.assert_close(got, torch.stack(wanted, 1), rtol=1e-4, atol=1e-5)
