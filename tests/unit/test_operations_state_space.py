"""The selective scan in both its forms against float64 recurrence and the reference's mixer."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mapper.operations import convolution, masks, state_space


def inputs(batch: int, length: int, size: int = 6, state: int = 4) -> tuple[Tensor, ...]:
    torch.manual_seed(length)
    x, dt = torch.randn(batch, length, size), F.softplus(torch.randn(batch, length, size))
    a = -torch.exp(torch.randn(size, state))
    return x, dt, a, torch.randn(batch, length, state), torch.randn(batch, length, state)


def scanned(x, dt, a, b, c, levels):
    h = state_space.linear_scan(dt[..., None] * a, (dt * x)[..., None] * b[:, :, None], levels)
    return (h @ c[..., None]).squeeze(-1)


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 33, 300])
def test_both_forms_equal_the_recurrence_in_float64(length):
    case = inputs(2, length)
    expected = state_space.selective_scan_steps(*(t.double() for t in case)).float()
    torch.testing.assert_close(state_space.selective_scan(*case), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(state_space.selective_scan_chunks(*case), expected, rtol=1e-5, atol=1e-5)
    for levels in (0, 1, 2):
        torch.testing.assert_close(scanned(*case, levels), expected, rtol=1e-5, atol=1e-5)


def test_the_last_level_takes_any_number_of_chunks():
    case = inputs(1, 2000)
    expected = state_space.selective_scan_steps(*(t.double() for t in case)).float()
    torch.testing.assert_close(state_space.selective_scan_chunks(*case), expected, rtol=1e-5, atol=1e-5)


def test_decays_from_none_to_total_stay_finite():
    x, dt, a, b, c = inputs(1, 40)
    for scale in (1e-6, 1.0, 1e4):
        expected = state_space.selective_scan_steps(*(t.double() for t in (x, dt, a * scale, b, c))).float()
        torch.testing.assert_close(
            state_space.selective_scan_chunks(x, dt, a * scale, b, c), expected, rtol=1e-5, atol=1e-5
        )


def test_both_forms_have_the_same_gradients():
    gradients = []
    for form in (state_space.selective_scan_steps, state_space.selective_scan_chunks):
        case = [t.clone().requires_grad_() for t in inputs(2, 35)]
        form(*case).square().sum().backward()
        gradients.append([t.grad for t in case])
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-3)


def test_half_precision_comes_back_as_half_precision():
    case = [t.bfloat16() for t in inputs(1, 5)]
    assert state_space.selective_scan(*case).dtype == torch.bfloat16


@pytest.mark.parametrize(
    "attention_mask", [None, [[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]]], ids=["none", "padded"]
)
def test_a_mixer_of_these_operations_is_the_references(attention_mask):
    from transformers import MambaConfig
    from transformers.models.mamba.modeling_mamba import MambaMixer

    torch.manual_seed(0)
    config = MambaConfig(hidden_size=12, state_size=4, conv_kernel=4, expand=2, time_step_rank=3)
    mixer = MambaMixer(config, layer_idx=0).eval()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x = torch.randn(2, 7, 12)
    mask = None if attention_mask is None else torch.tensor(attention_mask)

    h, gate = mixer.in_proj(masks.zero_padding(x, mask)).chunk(2, -1)
    h = F.silu(convolution.conv_causal(h, mixer.conv1d.weight, mixer.conv1d.bias))
    h = masks.zero_padding(h, mask)
    dt, b, c = mixer.x_proj(h).split([3, 4, 4], -1)
    y = state_space.selective_scan(h, F.softplus(mixer.dt_proj(dt)), -mixer.A_log.exp(), b, c)
    out = mixer.out_proj((y + h * mixer.D) * F.silu(gate))
    torch.testing.assert_close(out, mixer(x, attention_mask=mask), rtol=1e-5, atol=1e-5)
