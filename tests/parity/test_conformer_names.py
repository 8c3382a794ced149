"""Conformers under the names of ESPnet and WeNet, against the reference library's layers behind a stem written here.

No reading of these is exact: no config names a type, and names do not tell the two libraries apart.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import Wav2Vec2ConformerConfig
from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer as published

import mapper
from tests.parity.harness import randomise
from tests.parity.test_library_names import renamed
from tests.parity.test_sound_library_names import assert_near, built_of

NAMES = (
    (r"ffn1_layer_norm", "norm_ff_macaron"), (r"ffn1\.intermediate_dense", "feed_forward_macaron.w_1"),
    (r"ffn1\.output_dense", "feed_forward_macaron.w_2"), (r"self_attn_layer_norm", "norm_mha"),
    (r"conv_module\.layer_norm", "norm_conv"), (r"conv_module\.batch_norm", "conv_module.norm"),
    (r"ffn2_layer_norm", "norm_ff"), (r"ffn2\.intermediate_dense", "feed_forward.w_1"),
    (r"ffn2\.output_dense", "feed_forward.w_2"), (r"final_layer_norm", "norm_final"),
)  # fmt: skip


class Conformer(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        config = Wav2Vec2ConformerConfig(
            hidden_size=16, num_attention_heads=4, intermediate_size=24, conv_depthwise_kernel_size=5,
            position_embeddings_type="relative", hidden_act="swish",
        )  # fmt: skip
        config._attn_implementation = "eager"
        self.embed = nn.ModuleDict({
            "conv": nn.Sequential(nn.Conv2d(1, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 16, 3, 2), nn.ReLU()),
            "out": nn.Sequential(nn.Linear(64, 16)),
        })  # fmt: skip
        self.encoders = nn.ModuleList(published.Wav2Vec2ConformerEncoderLayer(config) for _ in range(2))
        self.after_norm = nn.LayerNorm(16)
        self.distances = published.Wav2Vec2ConformerRelPositionalEmbedding(config)
        for norm in (module for module in self.modules() if isinstance(module, nn.LayerNorm)):
            norm.eps = eps

    def forward(self, sound: Tensor) -> Tensor:
        x = self.embed["conv"](sound[:, None]).transpose(1, 2).flatten(2)
        x = self.embed["out"](x) * 4.0
        places = self.distances(x)
        for layer in self.encoders:
            x = layer(x, relative_position_embeddings=places)
        return self.after_norm(x)


def by_places(layer: nn.Module, query: Tensor, key: Tensor, _distances: Tensor) -> tuple[Tensor, Tensor]:
    """The part of the scores that is of the key's own place, counted from 0."""
    angles = torch.arange(key.shape[2])[:, None] * 10000.0 ** (-torch.arange(0, 16, 2) / 16)
    keys = layer.linear_pos(torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1))
    scores = (query + layer.pos_bias_v[:, None]) @ keys.view(-1, 4, 4).permute(1, 2, 0)
    return query + layer.pos_bias_u[:, None], scores * layer.scaling


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """Under their names, with the biases that the convolutions of these libraries have."""
    state = dict(renamed(model.state_dict(), *NAMES))
    for layer in range(2):
        for part, size in (("pointwise_conv1", 32), ("depthwise_conv", 16), ("pointwise_conv2", 16)):
            state[f"encoders.{layer}.conv_module.{part}.bias"] = torch.zeros(size)
    return state


@pytest.mark.parametrize("is_shifted", [True, False])
def test_a_conformer_behind_two_planes_of_stride_two(
    is_shifted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = randomise(Conformer(1e-12 if is_shifted else 1e-5)).eval()
    if not is_shifted:
        monkeypatch.setattr(published, "_apply_relative_position_encoding", by_places)
    made = built_of(tmp_path, state_of(model), hints={"attention.shifted_distances": is_shifted})
    sound = torch.randn(1, 40, 20, generator=torch.Generator().manual_seed(1))
    found = made(sound, lengths=torch.tensor([40]))
    assert found.lengths.tolist() == [9]
    with torch.no_grad():
        assert_near(found.last_hidden_state, model(sound))


def test_whether_distances_are_shifted_is_asked(tmp_path: Path) -> None:
    torch.save(state_of(Conformer(1e-5)), tmp_path / "model.pth")
    asked = mapper.inspect(tmp_path).architecture.questions
    assert [question.fact for question in asked] == ["attention.shifted_distances"]
