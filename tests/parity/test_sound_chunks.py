"""Separators over frames of chunks and over chunks, under other libraries' names, against the same in torch alone."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.parity.harness import randomise
from tests.parity.test_sound_library_names import assert_near, built_of


class Layers(nn.Module):
    """A transformer encoder with positions that are added, and a final norm."""

    def __init__(self) -> None:
        super().__init__()
        one = nn.TransformerEncoderLayer(
            12, 4, 20, 0.0, batch_first=True, norm_first=True, layer_norm_eps=1e-6
        )
        self.layers = nn.TransformerEncoder(one, 2, nn.LayerNorm(12, eps=1e-6), enable_nested_tensor=False)
        self.register_buffer("positions", torch.randn(1, 40, 12) * math.sqrt(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x + self.positions[:, : x.shape[1]])  # type: ignore[index]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.map = nn.LSTM(12, 10, batch_first=True, bidirectional=True), nn.Linear(20, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.map(self.rnn(x)[0])


class Both(nn.Module):
    """One block: along a chunk, then across chunks. x (B, chunks, size, C)."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.intra, self.inter = kind(), kind()
        self.intra_norm, self.inter_norm = nn.GroupNorm(1, 12, eps=1e-8), nn.GroupNorm(1, 12, eps=1e-8)

    def forward(self, x: Tensor) -> Tensor:
        along = torch.stack([self.intra(row) for row in x])
        x = x + self.intra_norm(along.movedim(3, 1)).movedim(1, 3)
        across = torch.stack([self.inter(row.transpose(0, 1)).transpose(0, 1) for row in x])
        return x + self.inter_norm(across.movedim(3, 1)).movedim(1, 3)


class Masks(nn.Module):
    """Masks of two sources over frames of 16 bands, in chunks of 6 frames, half of each in the next one too."""

    def __init__(self, kind: type[nn.Module], around: int) -> None:
        super().__init__()
        self.around = around
        self.norm, self.entry = nn.GroupNorm(1, 16, eps=1e-8), nn.Conv1d(16, 12, 1)
        self.blocks = nn.ModuleList(Both(kind) for _ in range(2))
        self.slope, self.spread = nn.PReLU(), nn.Conv2d(12, 24, 1)
        self.out, self.gate, self.last = (
            nn.Conv1d(12, 12, 1),
            nn.Conv1d(12, 12, 1),
            nn.Conv1d(12, 16, 1, bias=False),
        )

    def forward(self, frames: Tensor) -> Tensor:
        length = frames.shape[2]
        x = F.pad(self.entry(self.norm(frames)), (self.around, self.around + 6))
        whole = (
            length + 12 if self.around == 6 else length + 6 + 6 - (3 + length) % 6
        )  # frames with zeros around
        starts = range(0, whole - 5, 3)
        x = torch.stack([x[..., at : at + 6].transpose(1, 2) for at in starts], dim=1)
        for block in self.blocks:
            x = block(x)
        x = self.spread(self.slope(x.movedim(3, 1))).unflatten(1, (2, 12))
        total = torch.zeros(len(x), 2, 12, starts[-1] + 6)
        for number, at in enumerate(starts):
            total[..., at : at + 6] += x[:, :, :, number]
        total = total[..., self.around : self.around + length].flatten(0, 1)
        return self.last(torch.tanh(self.out(total)) * torch.sigmoid(self.gate(total))).unflatten(0, (-1, 2))


ALONE = (
    (r"^blocks", "dual_mdl"), (r"(intra|inter)\.rnn", r"\1_mdl.mdl.rnn"), (r"(intra|inter)\.map", r"\1_linear.w"),
    (r"(intra|inter)\.positions", r"\1_mdl.pos_enc.pe"), (r"(intra|inter)\.layers\.norm", r"\1_mdl.mdl.norm.norm"),
    (r"(intra|inter)\.layers\.layers", r"\1_mdl.mdl.layers"), (r"\.norm(\d)", r".norm\1.norm"), (r"\.self_attn", ".self_att.att"),
    (r"linear1", "pos_ffn.ffn.0"), (r"linear2", "pos_ffn.ffn.3"), (r"^entry", "conv1d"), (r"^slope", "prelu"), (r"^spread", "conv2d"),
    (r"^out", "output.0"), (r"^gate", "output_gate.0"), (r"^last", "end_conv1x1"),
)  # fmt: skip
WITHIN = (
    (r"^blocks", "masker.net"), (r"(intra|inter)\.rnn", r"\1_RNN.rnn"), (r"(intra|inter)\.map", r"\1_linear"),
    (r"(_norm|^norm)\.weight", r"\1.gamma"), (r"(_norm|^norm)\.bias", r"\1.beta"), (r"^norm", "masker.bottleneck.0"),
    (r"^entry", "masker.bottleneck.1"), (r"^slope", "masker.first_out.0"), (r"^spread", "masker.first_out.1"),
    (r"^out", "masker.net_out.0"), (r"^gate", "masker.net_gate.0"), (r"^last", "masker.mask_net"),
)  # fmt: skip


def named(model: nn.Module, table: tuple[tuple[str, str], ...]) -> dict[str, Tensor]:
    state = {}
    for name, value in model.state_dict().items():
        for pattern, other in table:
            name = re.sub(pattern, other, name)
        state[name] = value
    return state


@pytest.mark.parametrize("kind", [Recurrent, Layers])
@pytest.mark.parametrize("length", [13, 15])
def test_masks_by_a_separator_alone(tmp_path: Path, kind: type[nn.Module], length: int) -> None:
    model, x = randomise(Masks(kind, 3)), torch.randn(2, 16, length)
    hints = {"separator.chunk": 6}
    if kind is Layers:
        hints |= {"attention.heads": 4, "norm.placement": "pre", "feed_forward.activation": "relu"}
    made = built_of(tmp_path, named(model, ALONE), hints=hints)
    with torch.no_grad():
        assert_near(made(x).masks, torch.relu(model(x)).transpose(0, 1))


@pytest.mark.parametrize("activation", [None, "relu"])
def test_masks_over_a_bank_of_filters(tmp_path: Path, activation: str | None) -> None:
    model, x = randomise(Masks(Recurrent, 6)), torch.randn(2, 1, 66)
    filters = torch.randn(2, 16, 1, 8)
    state = {**named(model, WITHIN), "encoder.filterbank._filters": filters[0], "decoder.filterbank._filters": filters[1]}  # fmt: skip
    settings = {"chunk_size": 6, "stride": 4, "norm_type": "gLN", "mask_act": "sigmoid", "fb_name": "free", "encoder_activation": activation}  # fmt: skip
    made = built_of(tmp_path, state, settings)
    with torch.no_grad():
        frames = F.conv1d(x, filters[0], stride=4)
        frames = torch.relu(frames) if activation else frames
        masked = torch.sigmoid(model(frames)) * frames[:, None]
        wanted = torch.stack(
            [F.conv_transpose1d(masked[:, at], filters[1], stride=4)[:, 0] for at in range(2)], 1
        )
        assert_near(made(x).audio_values, F.pad(wanted, (0, 66 - wanted.shape[-1])))
