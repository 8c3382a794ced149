"""What training drops: a built model with dropout against the reference, site by site and in distribution.

`check_sites` compares what is handed to dropout, tensor by tensor, with the rate: a site that is missing, doubled or
elsewhere shows at once. `check_distribution` draws: many equal rows of one batch are as many samples, and means and
variances of every output must agree within what chance allows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mapper
from tests.parity.harness import Inputs, outputs, quiet, reference

ROWS = 1200  # samples
GROUPS = 20  # of samples, whose spread says how far a mean variance is off by chance
CHANCE = 5.0  # standard errors: one false alarm in 1.7 million comparisons
Drawn = list[tuple[float, Tensor]]


def trained(kind: str, config: Any, folder: Path) -> tuple[nn.Module, nn.Module]:
    """The reference and what mapper builds of its checkpoint with dropout, both in training mode."""
    theirs = reference(kind, config)
    with quiet():
        theirs.save_pretrained(folder)
    ours = mapper.build(folder, train=True)
    check_evaluation(ours, folder)
    return theirs.train(), ours.train()


def check_evaluation(ours: nn.Module, folder: Path) -> None:
    """Outside of training the model is the one without dropout: names, and outputs to the bit."""
    plain = mapper.build(folder)
    assert list(plain.state_dict()) == list(ours.state_dict())
    config = json.loads((folder / "config.json").read_text())
    inputs = made_up(config, rows=3)
    with torch.no_grad():
        for (name, one), (_, other) in zip(outputs(plain(**inputs)), outputs(ours(**inputs)), strict=True):
            assert torch.equal(one, other), name


def made_up(config: Mapping[str, Any], rows: int) -> dict[str, Tensor]:
    """One row of inputs, several times."""
    generator = torch.Generator().manual_seed(1)
    if "image_size" in config:
        side = config["image_size"]
        pixels = torch.randn(1, 3, side, side, generator=generator)
        return {"pixel_values": pixels.expand(rows, -1, -1, -1)}
    ids = torch.randint(3, config["vocab_size"], (1, 6), generator=generator)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if "num_mel_bins" in config:
        length = 2 * config["max_source_positions"]
        inputs = {"input_features": torch.randn(1, config["num_mel_bins"], length, generator=generator)}
    if config.get("is_encoder_decoder"):
        inputs["decoder_input_ids"] = ids[:, :4]
    return {name: value.expand(rows, *[-1] * (value.dim() - 1)) for name, value in inputs.items()}


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Drawn]:
    """Dropout that changes nothing and keeps what it is given."""
    drawn: Drawn = []

    def dropout(value: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if training and p > 0:
            drawn.append((p, value.detach().clone()))
        return value

    def attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
                  is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> Tensor:  # fmt: skip
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        if attn_mask is not None:
            hidden = torch.finfo(scores.dtype).min
            scores = (
                scores.masked_fill(~attn_mask, hidden)
                if attn_mask.dtype == torch.bool
                else scores + attn_mask
            )
        return dropout(scores.softmax(-1), dropout_p) @ v

    with monkeypatch.context() as patch:
        patch.setattr(F, "dropout", dropout)
        patch.setattr(F, "scaled_dot_product_attention", attention)
        yield drawn


def check_sites(theirs: nn.Module, ours: nn.Module, inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> int:
    """The same tensors are dropped at the same rates, whatever the order; how many there are."""
    drawn: list[Drawn] = []
    for model in (theirs, ours):
        with recorded(monkeypatch) as found, torch.no_grad(), quiet():
            model(**inputs)
        drawn.append(found)
    wanted, got = drawn
    assert len(got) == len(wanted), ([p for p, _ in got], [p for p, _ in wanted])
    for rate, value in wanted:
        at = next(
            (at for at, (p, other) in enumerate(got) if math.isclose(p, rate) and _same(value, other)), None
        )
        assert at is not None, f"nothing here drops {tuple(value.shape)} at {rate}"
        del got[at]
    return len(wanted)


def _same(one: Tensor, other: Tensor) -> bool:
    return one.numel() == other.numel() and torch.allclose(
        one.flatten(), other.flatten(), rtol=1e-4, atol=1e-4
    )


def check_distribution(theirs: nn.Module, ours: nn.Module, config: Any, seed: int = 0) -> None:
    """Means and variances of every output agree within CHANCE standard errors, and there is a variance.

    The standard error of a mean of n samples is the root of their variance over n. That of the variance, which is
    averaged over all elements of an output, comes from the spread of its estimate among GROUPS of the samples.
    """
    inputs = made_up(config.to_dict(), ROWS)
    torch.manual_seed(seed)
    with torch.no_grad(), quiet():
        wanted, got = dict(outputs(theirs(**inputs))), dict(outputs(ours(**inputs)))
    for name in wanted.keys() & got.keys():
        one, other = (values[name].double().flatten(1) for values in (wanted, got))
        error = ((one.var(0) + other.var(0)) / ROWS).sqrt().clamp(min=1e-7)
        elements = one.shape[1]
        most = CHANCE + math.sqrt(2 * math.log(elements))  # the largest of so many deviations
        assert ((one.mean(0) - other.mean(0)).abs() <= most * error + 1e-6).all(), name
        (spread, error_one), (own, error_other) = map(_spread, (one, other))
        assert spread > 0, name
        assert abs(spread - own) <= CHANCE * math.hypot(error_one, error_other), (name, spread, own)


def _spread(values: Tensor) -> tuple[float, float]:
    """The mean variance of the elements, and its standard error."""
    parts = torch.stack([part.var(0).mean() for part in values.chunk(GROUPS)])
    return float(parts.mean()), float(parts.std() / math.sqrt(GROUPS))
