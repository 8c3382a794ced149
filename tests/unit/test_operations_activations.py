from __future__ import annotations

import pytest
import torch

from mapper.operations.activations import xielu
from mapper.operations.heads import rms_norm_plain


def test_xielu_bends_both_sides_by_what_it_learned() -> None:
    alpha_p, alpha_n, beta, eps = (torch.tensor(value) for value in (0.3, -0.2, 0.5, -1e-6))
    x = torch.tensor([-2.0, 0.0, 3.0])
    above, below = torch.nn.functional.softplus(alpha_p), 0.5 + torch.nn.functional.softplus(alpha_n)
    wanted = torch.stack(((x[0].expm1() - x[0]) * below - 1.0, below * eps.expm1(), above * 9.0 + 1.5))
    assert xielu(x, alpha_p, alpha_n, beta, eps) == pytest.approx(wanted, abs=1e-6)


def test_a_norm_without_weights_leaves_a_mean_square_of_one_in_the_dtype_it_got() -> None:
    y = rms_norm_plain(torch.randn(2, 3, 8, dtype=torch.bfloat16), 1e-6)
    assert y.dtype == torch.bfloat16
    assert y.float().square().mean(-1) == pytest.approx(torch.ones(2, 3), abs=2e-2)
