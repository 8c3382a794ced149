"""Networks that hear, of known pieces in combinations that nobody published: tensors, config, and what they compute.

Waves through convolutions to characters, as wav2vec 2.0 (paper 2006.11477), and spectra to words, as Whisper (paper
2212.04356); written apart from all rules, for tools/combinations.py.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tools.drawn.parts import ACTIVATIONS, HIDDEN, Layers, Tensors, plain_truth, store, turned

HEADS, LAYERS, INNER, WORDS, BANDS, FRAMES, POSITIONS = 4, 2, 44, 71, 16, 24, 40
CHANNELS, CLASSES = 20, 29  # of the convolutions over waves; characters
KERNELS, STRIDES = (10, 3, 2), (5, 2, 2)
AROUND, GROUPS = 8, 4  # positions of a convolution


@dataclass(frozen=True)
class Draw:
    """One combination."""

    hears: str = "waves"  # waves: to characters; spectra: to words, by a decoder
    scheme: str = "first"  # whose names of layers: those of the first published network, or llama's
    placement: str = "pre"  # pre, post
    norm: str = "layer"  # layer, rms
    eps: float = 1e-5
    activation: str = "gelu"
    key_bias: bool = True
    feature_norm: str = "group"  # of waves; group: the first convolution's, layer: each one's
    feature_bias: bool = False
    stored: str = (
        "halves"  # how a weight with a length is stored: halves (original0), old (weight_g) or plain
    )
    position: str = "convolution"  # of waves: convolution, rotary; of spectra: stored, rotary
    gated: bool = False
    scaled: bool = False  # whether words are scaled by the root of their size
    tied: bool = True

    @property
    def is_of_waves(self) -> bool:
        return self.hears == "waves"


def draw(seed: int) -> Draw:
    """The combination of a number."""
    pick = random.Random(3000 + seed).choice
    found = Draw(
        hears=pick(("waves", "spectra")),
        scheme=pick(("first", "first", "llama")),
        placement=pick(("pre", "pre", "post")),
        norm=pick(("layer", "layer", "layer", "rms")),
        eps=pick((1e-5, 1e-6)),
        activation=pick(("gelu", "gelu", "relu", "silu", "gelu_pytorch_tanh")),
        key_bias=pick((True, False)),
        feature_norm=pick(("group", "layer")),
        feature_bias=pick((True, False)),
        stored=pick(("halves", "old", "plain")),
        position=pick(("own", "own", "rotary")),
        gated=pick((False, False, True)),
        scaled=pick((False, False, True)),
        tied=pick((True, False)),
    )
    return _sensible(found)


def _sensible(found: Draw) -> Draw:
    plain = Draw()
    own = "convolution" if found.is_of_waves else "stored"
    found = replace(found, position="rotary" if found.position == "rotary" else own)
    if found.is_of_waves:
        found = replace(found, scaled=False, tied=True)
        return replace(found, stored=found.stored if found.position == "convolution" else plain.stored)
    return replace(found, feature_norm="group", feature_bias=False, stored="halves", placement="pre")


class Weights(Tensors):
    """The tensors of a draw, by the first published network's names."""

    one: Draw

    def all(self) -> dict[str, Tensor]:
        if self.one.is_of_waves:
            self.of_waves()
        else:
            self.of_spectra()
        return self.tensors

    def of_waves(self) -> None:
        one, start = self.one, "heard.feature_extractor.conv_layers."
        for at, kernel in enumerate(KERNELS):
            before = CHANNELS if at else 1
            self.layer_of(f"{start}{at}.conv", CHANNELS, before, kernel, bias=one.feature_bias)
            if one.feature_norm == "layer" or at == 0:
                self.norm(f"{start}{at}.layer_norm", CHANNELS, "layer")
        self.norm("heard.feature_projection.layer_norm", CHANNELS)
        self.linear("heard.feature_projection.projection", HIDDEN, CHANNELS)
        if one.position == "convolution":
            self.around("heard.encoder.pos_conv_embed.conv")
        self.norm("heard.encoder.layer_norm")
        for layer in range(LAYERS):
            self.layer(f"heard.encoder.layers.{layer}.")
        self.linear("lm_head", CLASSES, HIDDEN)

    def around(self, name: str) -> None:
        direction = self.drawn(HIDDEN, HIDDEN // GROUPS, AROUND)
        length = 1 + self.drawn(1, 1, AROUND).abs()
        parts = {
            "halves": {"parametrizations.weight.original0": length, "parametrizations.weight.original1": direction},
            "old": {"weight_g": length, "weight_v": direction},
            "plain": {"weight": direction},
        }[self.one.stored]  # fmt: skip
        for part, tensor in parts.items():
            self.tensors[f"{name}.{part}"] = tensor
        self.tensors[f"{name}.bias"] = self.drawn(HIDDEN)

    def of_spectra(self) -> None:
        self.ears()
        if self.one.position == "stored":
            self.tensors["heard.decoder.embed_positions.weight"] = self.drawn(POSITIONS, HIDDEN)
        self.tensors["heard.decoder.embed_tokens.weight"] = self.drawn(WORDS, HIDDEN)
        self.layers("decoder")
        if not self.one.tied:
            self.linear("proj_out", WORDS, HIDDEN, bias=False)

    def ears(self) -> None:
        """The encoder of spectra alone."""
        self.layer_of("heard.encoder.conv1", HIDDEN, BANDS, 3)
        self.layer_of("heard.encoder.conv2", HIDDEN, HIDDEN, 3)
        if self.one.position == "stored":
            self.tensors["heard.encoder.embed_positions.weight"] = self.drawn(FRAMES // 2, HIDDEN)
        self.layers("encoder")

    def layers(self, side: str) -> None:
        for layer in range(LAYERS):
            self.layer(f"heard.{side}.layers.{layer}.", is_across=side == "decoder")
        self.norm(f"heard.{side}.layer_norm")

    def layer(self, start: str, is_across: bool = False) -> None:
        self.attention(f"{start}self_attn.")
        self.norm(f"{start}self_attn_layer_norm")
        if is_across:
            self.attention(f"{start}encoder_attn.")
            self.norm(f"{start}encoder_attn_layer_norm")
        if self.one.gated:
            self.linear(f"{start}gate_proj", INNER, HIDDEN)
        self.linear(f"{start}fc1", INNER, HIDDEN)
        self.linear(f"{start}fc2", HIDDEN, INNER)
        self.norm(f"{start}final_layer_norm")

    def attention(self, start: str) -> None:
        for name in ("q", "k", "v"):
            self.linear(f"{start}{name}_proj", HIDDEN, HIDDEN, bias=self.one.key_bias or name != "k")
        self.linear(f"{start}out_proj", HIDDEN, HIDDEN)


class Reference(Layers):
    """What a draw computes: waves (B, S) -> logits (B, T, CLASSES), or spectra (B, BANDS, FRAMES) and token ids -> logits."""

    one: Draw

    def of_waves(self, waves: Tensor) -> Tensor:
        one, x, start = self.one, waves[:, None], "heard.feature_extractor.conv_layers."
        for at, stride in enumerate(STRIDES):
            x = self.convolution(f"{start}{at}.conv", x, stride=stride)
            if one.feature_norm == "layer":
                x = self.layer_norm(f"{start}{at}.layer_norm", x.transpose(1, 2), 1e-5).transpose(1, 2)
            elif at == 0:
                weight, bias = (self.tensors[f"{start}0.layer_norm.{part}"] for part in ("weight", "bias"))
                x = F.group_norm(x, CHANNELS, weight, bias)
            x = F.gelu(x)
        x = self.norm("heard.feature_projection.layer_norm", x.transpose(1, 2))
        x = self.linear("heard.feature_projection.projection", x)
        if one.position == "convolution":
            x = x + F.gelu(self.around("heard.encoder.pos_conv_embed.conv", x))
        if one.placement == "post":
            x = self.norm("heard.encoder.layer_norm", x)
        for layer in range(LAYERS):
            x = self.layer(f"heard.encoder.layers.{layer}.", x)
        if one.placement == "pre":
            x = self.norm("heard.encoder.layer_norm", x)
        return self.linear("lm_head", x)

    def around(self, name: str, x: Tensor) -> Tensor:
        length, direction = {
            "halves": ("parametrizations.weight.original0", "parametrizations.weight.original1"),
            "old": ("weight_g", "weight_v"),
            "plain": ("", "weight"),
        }[self.one.stored]
        weight = self.tensors[f"{name}.{direction}"]
        if length:
            weight = weight * self.tensors[f"{name}.{length}"] / weight.norm(dim=(0, 1), keepdim=True)
        y = F.conv1d(
            x.transpose(1, 2), weight, self.tensors[f"{name}.bias"], padding=AROUND // 2, groups=GROUPS
        )
        return y[..., :-1].transpose(1, 2)

    def heard(self, spectra: Tensor) -> Tensor:
        one, x = self.one, spectra
        for name, stride in (("conv1", 1), ("conv2", 2)):
            x = F.gelu(self.convolution(f"heard.encoder.{name}", x, stride=stride, padding=1))
        x = x.transpose(1, 2)
        if one.position == "stored":
            x = x + self.tensors["heard.encoder.embed_positions.weight"]
        for layer in range(LAYERS):
            x = self.layer(f"heard.encoder.layers.{layer}.", x)
        return self.norm("heard.encoder.layer_norm", x)

    def of_spectra(self, spectra: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        one, x = self.one, self.heard(spectra)
        table = self.tensors["heard.decoder.embed_tokens.weight"]
        y = table[ids] * (HIDDEN**0.5 if one.scaled else 1.0)
        if one.position == "stored":
            y = y + self.tensors["heard.decoder.embed_positions.weight"][: ids.shape[1]]
        for layer in range(LAYERS):
            y = self.layer(f"heard.decoder.layers.{layer}.", y, x)
        y = self.norm("heard.decoder.layer_norm", y)
        return y @ (table if one.tied else self.tensors["proj_out.weight"]).T, x

    def layer(self, start: str, x: Tensor, heard: Tensor | None = None) -> Tensor:
        is_causal = start.startswith("heard.decoder")
        x = self.beside(
            f"{start}self_attn_layer_norm", x, lambda y: self.attention(f"{start}self_attn.", y, y, is_causal)
        )
        if heard is not None:
            x = self.beside(
                f"{start}encoder_attn_layer_norm",
                x,
                lambda y: self.attention(f"{start}encoder_attn.", y, heard),
            )
        return self.beside(f"{start}final_layer_norm", x, lambda y: self.feed_forward(start, y))

    def beside(self, norm: str, x: Tensor, inner: Any) -> Tensor:
        if self.one.placement == "pre":
            return x + inner(self.norm(norm, x))
        return self.norm(norm, x + inner(x))

    def attention(self, start: str, x: Tensor, seen: Tensor, is_causal: bool = False) -> Tensor:
        q, k, v = (
            self.linear(f"{start}{name}_proj", part) for name, part in (("q", x), ("k", seen), ("v", seen))
        )
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (q, k, v))
        if self.one.position == "rotary" and x is seen:
            q, k = turned(q), turned(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        return self.linear(f"{start}out_proj", y.transpose(1, 2).flatten(2))

    def feed_forward(self, start: str, x: Tensor) -> Tensor:
        activation = ACTIVATIONS[self.one.activation]
        if self.one.gated:
            return self.linear(
                f"{start}fc2", activation(self.linear(f"{start}gate_proj", x)) * self.linear(f"{start}fc1", x)
            )
        return self.linear(f"{start}fc2", activation(self.linear(f"{start}fc1", x)))

    def convolution(self, name: str, x: Tensor, stride: int, padding: int = 0) -> Tensor:
        weight, bias = self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")
        return F.conv1d(x, weight, bias, stride=stride, padding=padding)


OF_WAVES = {  # parts of the names as wav2vec 2.0 has them
    "self_attn_layer_norm": "layer_norm", "self_attn.": "attention.", "fc1": "feed_forward.intermediate_dense",
    "fc2": "feed_forward.output_dense", "gate_proj": "feed_forward.gate_dense",
}  # fmt: skip
OF_LLAMA = {
    "encoder_attn_layer_norm": "cross_attention_layernorm", "self_attn_layer_norm": "input_layernorm",
    "final_layer_norm": "post_attention_layernorm", "out_proj": "o_proj", "gate_proj": "mlp.gate_proj",
    "fc1": "mlp.up_proj", "fc2": "mlp.down_proj", "encoder_attn.": "cross_attn.",
}  # fmt: skip


def renamed(name: str, one: Draw) -> str:
    table = OF_LLAMA if one.scheme == "llama" else OF_WAVES if one.is_of_waves else {}
    for old, new in table.items() if ".layers." in name else ():
        name = name.replace(old, new)
    if "lm_head" in name or "proj_out" in name:
        return name
    return name.replace("heard.", "unheard_of." if one.is_of_waves else "model.")


def config(one: Draw) -> dict[str, Any]:
    """What a class of the model hub would have written of a draw."""
    eps = "rms_norm_eps" if one.norm == "rms" else "layer_norm_eps"
    found: dict[str, Any] = {"model_type": "unheard_of", eps: one.eps}
    if one.position == "rotary":
        found["rope_theta"] = 10000.0
    if one.is_of_waves:
        return found | {
            "architectures": ["UnheardOfForCTC"], "hidden_size": HIDDEN, "num_attention_heads": HEADS,
            "num_hidden_layers": LAYERS, "intermediate_size": INNER, "hidden_act": one.activation, "vocab_size": CLASSES,
            "conv_dim": [CHANNELS] * len(KERNELS), "conv_kernel": list(KERNELS), "conv_stride": list(STRIDES),
            "conv_bias": one.feature_bias, "feat_extract_norm": one.feature_norm, "feat_extract_activation": "gelu",
            "do_stable_layer_norm": one.placement == "pre", "num_feat_extract_layers": len(KERNELS),
            "num_conv_pos_embeddings": AROUND, "num_conv_pos_embedding_groups": GROUPS,
        }  # fmt: skip
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in _SIDE.items()}
    return found | sides | {
        "architectures": ["UnheardOfForConditionalGeneration"], "d_model": HIDDEN, "activation_function": one.activation,
        "vocab_size": WORDS, "num_mel_bins": BANDS, "max_source_positions": FRAMES // 2, "max_target_positions": POSITIONS,
        "is_encoder_decoder": True, "scale_embedding": one.scaled, "tie_word_embeddings": one.tied,
        "decoder_start_token_id": 1, "pad_token_id": 0,
    }  # fmt: skip


_SIDE = {"layers": LAYERS, "attention_heads": HEADS, "ffn_dim": INNER}


def truth(one: Draw) -> dict[str, Any]:
    """What a draw answers to what may be asked of it."""
    is_rotary = one.position == "rotary"
    return plain_truth(one) | {
        "norm.final": "positions" if one.placement == "pre" else "first",
        "rotary": is_rotary,
        "attention.rotary": is_rotary,
        "rotary.base": 10000.0,
        "attention.heads": HEADS,
        "attention.causal": False,
        "embedding.scale": HIDDEN**0.5 if one.scaled else None,
        "feed_forward.activation": one.activation,
        "attention.masked": True,
    }


def write(one: Draw, folder: Path, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The checkpoint of a draw; its inputs and outputs."""
    generator = torch.Generator().manual_seed(seed)
    tensors = Weights(one, generator).all()
    store(folder, {renamed(name, one): tensor for name, tensor in tensors.items()}, config(one))
    reference = Reference(one, tensors)
    if one.is_of_waves:
        waves = torch.randn(2, 300, generator=generator)
        return {"input_values": waves}, {"logits": reference.of_waves(waves)}
    spectra = torch.randn(2, BANDS, FRAMES, generator=generator)
    ids = torch.randint(0, WORDS, (2, 7), generator=generator)
    logits, _ = reference.of_spectra(spectra, ids)
    return {"input_features": spectra, "decoder_input_ids": ids}, {"logits": logits}
