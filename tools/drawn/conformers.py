"""Conformers (paper 2005.08100) of known pieces in combinations that nobody published: tensors, config, and what they compute.

Written apart from all rules, for tools/combinations.py.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tools.drawn.parts import ACTIVATIONS, HIDDEN, Layers, Tensors, store, turned

HEADS, LAYERS, INNER, CLASSES, BANDS, FRAMES, CHANNELS = 4, 2, 44, 29, 16, 48, 12


@dataclass(frozen=True)
class Draw:
    """One combination."""

    scheme: str = "nemo"  # whose names of layers: nemo, or those of wav2vec 2.0's conformer
    position: str = "relative"  # relative: distances with learned biases of queries, rotary, none
    map_norm: str = "batch"  # of the convolution in a layer: batch, layer
    kernel: int = 9
    bias: bool = True  # of attention and feed-forwards
    map_bias: bool = True  # of the convolutions in a layer
    activation: str = "silu"
    scaled: bool = True  # whether frames are scaled by the root of their size
    factor: int = 8  # frames of a spectrum that make one
    eps: float = 1e-5


def draw(seed: int) -> Draw:
    """The combination of a number."""
    pick = random.Random(5000 + seed).choice
    return Draw(
        scheme=pick(("nemo", "nemo", "first")),
        position=pick(("relative", "relative", "rotary", "none")),
        map_norm=pick(("batch", "batch", "layer")),
        kernel=pick((9, 5)),
        bias=pick((True, False)),
        map_bias=pick((True, False)),
        activation=pick(("silu", "silu", "gelu", "relu")),
        scaled=pick((True, False)),
        factor=pick((8, 4)),
        eps=pick((1e-5, 1e-5, 1e-6)),
    )


class Weights(Tensors):
    """The tensors of a draw, by NeMo's names."""

    one: Draw

    def all(self) -> dict[str, Tensor]:
        start = "encoder.subsampling.layers."
        self.layer_of(f"{start}0", CHANNELS, 1, 3, 3)
        for at in range(2, 2 + 3 * (_halvings(self.one) - 1), 3):
            self.layer_of(f"{start}{at}", CHANNELS, 1, 3, 3)
            self.layer_of(f"{start}{at + 1}", CHANNELS, CHANNELS, 1, 1)
        self.layer_of("encoder.subsampling.linear", HIDDEN, CHANNELS * BANDS // self.one.factor)
        for at in range(LAYERS):
            self.of_layer(f"encoder.layers.{at}.")
        self.layer_of("ctc_head", CLASSES, HIDDEN, 1)
        return self.tensors

    def of_layer(self, start: str) -> None:
        one = self.one
        for name in ("feed_forward1", "feed_forward2"):
            self.layer_of(f"{start}{name}.linear1", INNER, HIDDEN, bias=one.bias)
            self.layer_of(f"{start}{name}.linear2", HIDDEN, INNER, bias=one.bias)
        for name in ("norm_feed_forward1", "norm_self_att", "norm_conv", "norm_feed_forward2", "norm_out"):
            self.norm(start + name, kind="layer")
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            self.layer_of(f"{start}self_attn.{name}", HIDDEN, HIDDEN, bias=one.bias)
        if one.position == "relative":
            self.layer_of(f"{start}self_attn.relative_k_proj", HIDDEN, HIDDEN, bias=False)
            for name in ("bias_u", "bias_v"):
                self.tensors[f"{start}self_attn.{name}"] = self.drawn(HEADS, HIDDEN // HEADS)
        self.layer_of(f"{start}conv.pointwise_conv1", 2 * HIDDEN, HIDDEN, 1, bias=one.map_bias)
        self.layer_of(f"{start}conv.depthwise_conv", HIDDEN, 1, one.kernel, bias=one.map_bias)
        self.norm(f"{start}conv.norm", kind="layer")
        if one.map_norm == "batch":
            self.tensors[f"{start}conv.norm.running_mean"] = self.drawn(HIDDEN)
            self.tensors[f"{start}conv.norm.running_var"] = 1 + self.drawn(HIDDEN).abs()
            self.tensors[f"{start}conv.norm.num_batches_tracked"] = torch.tensor(7)
        self.layer_of(f"{start}conv.pointwise_conv2", HIDDEN, HIDDEN, 1, bias=one.map_bias)


class Reference(Layers):
    """What a draw computes: spectra (B, FRAMES, BANDS) -> logits (B, FRAMES / factor, CLASSES)."""

    one: Draw

    def __call__(self, spectra: Tensor) -> Tensor:
        start = "encoder.subsampling.layers."
        x = F.relu(self.convolution(f"{start}0", spectra[:, None]))
        for at in range(2, 2 + 3 * (_halvings(self.one) - 1), 3):
            x = self.convolution(f"{start}{at}", x)
            x = F.relu(F.conv2d(x, *self.of(f"{start}{at + 1}")))
        x = F.linear(x.transpose(1, 2).flatten(2), *self.of("encoder.subsampling.linear"))
        x = x * (HIDDEN**0.5 if self.one.scaled else 1.0)
        for at in range(LAYERS):
            x = self.layer(f"encoder.layers.{at}.", x)
        return F.conv1d(x.transpose(1, 2), *self.of("ctc_head")).transpose(1, 2)

    def convolution(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self.of(name)
        return F.conv2d(
            x, weight, bias, stride=2, padding=1, groups=x.shape[1] if weight.shape[1] == 1 else 1
        )

    def layer(self, start: str, x: Tensor) -> Tensor:
        x = x + 0.5 * self.feed_forward(f"{start}feed_forward1.", self.norm(f"{start}norm_feed_forward1", x))
        x = x + self.attention(f"{start}self_attn.", self.norm(f"{start}norm_self_att", x))
        x = x + self.map(f"{start}conv.", self.norm(f"{start}norm_conv", x))
        x = x + 0.5 * self.feed_forward(f"{start}feed_forward2.", self.norm(f"{start}norm_feed_forward2", x))
        return self.norm(f"{start}norm_out", x)

    def norm(self, name: str, x: Tensor) -> Tensor:
        return self.layer_norm(name, x)

    def feed_forward(self, start: str, x: Tensor) -> Tensor:
        return F.linear(
            self.activation(F.linear(x, *self.of(f"{start}linear1"))), *self.of(f"{start}linear2")
        )

    def activation(self, x: Tensor) -> Tensor:
        return ACTIVATIONS[self.one.activation](x)

    def map(self, start: str, x: Tensor) -> Tensor:
        y = F.glu(F.conv1d(x.transpose(1, 2), *self.of(f"{start}pointwise_conv1")), dim=1)
        y = F.conv1d(y, *self.of(f"{start}depthwise_conv"), padding=self.one.kernel // 2, groups=HIDDEN)
        weight, bias = self.of(f"{start}norm")
        if self.one.map_norm == "batch":
            mean, variance = (self.tensors[f"{start}norm.running_{name}"] for name in ("mean", "var"))
            y = F.batch_norm(y, mean, variance, weight, bias)
        else:
            y = F.layer_norm(y.transpose(1, 2), (HIDDEN,), weight, bias, self.one.eps).transpose(1, 2)
        y = self.activation(y)
        return F.conv1d(y, *self.of(f"{start}pointwise_conv2")).transpose(1, 2)

    def attention(self, start: str, x: Tensor) -> Tensor:
        q, k, v = (
            F.linear(x, *self.of(f"{start}{name}_proj")).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for name in "qkv"
        )
        if self.one.position == "rotary":
            q, k = turned(q), turned(k)
        is_plain = self.one.position != "relative"
        scores = q @ k.transpose(-1, -2) if is_plain else self.relative(start, q, k)
        weights = (scores * (HIDDEN // HEADS) ** -0.5).softmax(dim=-1)
        return F.linear((weights @ v).transpose(1, 2).flatten(2), *self.of(f"{start}o_proj"))

    def relative(self, start: str, q: Tensor, k: Tensor) -> Tensor:
        """Scores by content and by distance (paper 1901.02860)."""
        length = q.shape[-2]
        index = torch.arange(length)
        apart = (index[:, None] - index)[..., None] * 10000.0 ** (-torch.arange(0, HIDDEN, 2) / HIDDEN)
        waves = torch.stack((apart.sin(), apart.cos()), dim=-1).flatten(-2)  # (T, T, HIDDEN)
        places = F.linear(waves, *self.of(f"{start}relative_k_proj")).unflatten(-1, (HEADS, -1))
        content, place = (q + self.tensors[f"{start}bias_{name}"][:, None] for name in "uv")
        return content @ k.transpose(-1, -2) + torch.einsum("bhqd,qkhd->bhqk", place, places)


def _halvings(one: Draw) -> int:
    return one.factor.bit_length() - 1


FIRST = {  # parts of the names as wav2vec 2.0's conformer has them
    "norm_feed_forward": "ffn_layer_norm_", "feed_forward1.": "ffn1.", "feed_forward2.": "ffn2.",
    "ffn_layer_norm_1": "ffn1_layer_norm", "ffn_layer_norm_2": "ffn2_layer_norm", "norm_self_att": "self_attn_layer_norm",
    "norm_conv": "conv_module.layer_norm", "norm_out": "final_layer_norm", "linear1": "intermediate_dense",
    "linear2": "output_dense", "conv.norm": "conv_module.norm", ".conv.": ".conv_module.", "q_proj": "linear_q", "relative_k_proj": "linear_pos",
    "k_proj": "linear_k", "v_proj": "linear_v", "o_proj": "linear_out", "bias_u": "pos_bias_u", "bias_v": "pos_bias_v",
}  # fmt: skip


def renamed(name: str, one: Draw) -> str:
    if one.scheme != "first" or ".layers." not in name or "subsampling" in name:
        return name
    for old, new in FIRST.items():
        name = name.replace(old, new)
    return name.replace(
        "conv_module.norm",
        "conv_module.batch_norm" if one.map_norm == "batch" else "conv_module.depthwise_layer_norm",
    )


def config(one: Draw) -> dict[str, Any]:
    """What a class of the model hub would have written of a draw."""
    inner: dict[str, Any] = {
        "model_type": "unheard_of_encoder", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS, "intermediate_size": INNER, "hidden_act": one.activation, "attention_bias": one.bias,
        "convolution_bias": one.map_bias, "conv_kernel_size": one.kernel, "num_mel_bins": BANDS, "scale_input": one.scaled,
        "subsampling_factor": one.factor, "subsampling_conv_channels": CHANNELS, "subsampling_conv_kernel_size": 3,
        "subsampling_conv_stride": 2, "max_position_embeddings": 64,
    }  # fmt: skip
    if one.position == "rotary":
        inner["rope_theta"] = 10000.0
    if one.eps != 1e-5:
        inner["layer_norm_eps"] = one.eps
    outer = {
        "model_type": "unheard_of",
        "architectures": ["UnheardOfForCTC"],
        "vocab_size": CLASSES,
        "pad_token_id": 0,
    }
    return {**outer, "encoder_config": inner}


def truth(one: Draw) -> dict[str, Any]:
    """What a draw answers to what may be asked of it."""
    is_rotary = one.position == "rotary"
    return {
        "norm.placement": "pre",
        "norm.kind": "LayerNorm",
        "norm.eps": one.eps,
        "rotary": is_rotary,
        "attention.rotary": is_rotary,
        "rotary.style": "half",
        "rotary.fraction": 1.0,
        "rotary.base": 10000.0,
        "position.sinusoidal": None,
        "attention.causal": False,
        "convolution.causal": False,
        "attention.masked": True,
        "feed_forward.activation": one.activation,
        "embedding.scale": HIDDEN**0.5 if one.scaled else None,
    }


def write(one: Draw, folder: Path, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The checkpoint of a draw; its inputs, spectra (2, FRAMES, BANDS), and its outputs, the logits."""
    generator = torch.Generator().manual_seed(seed)
    tensors = Weights(one, generator).all()
    store(folder, {renamed(name, one): tensor for name, tensor in tensors.items()}, config(one))
    spectra = torch.randn(2, FRAMES, BANDS, generator=generator)
    return {"input_features": spectra}, {"logits": Reference(one, tensors)(spectra)}
