"""Encoders and decoders of texts of known pieces in combinations that nobody published: tensors, config, and what they compute.

Written apart from all rules, for tools/combinations.py: `Reference` is the truth that a reading is compared with. What BART and
T5 call the parts, and what their classes write, stands at the end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tools.drawn.encoders import BUCKETS, FURTHEST, buckets, waves
from tools.drawn.parts import ACTIVATIONS, HIDDEN, Layers, Tensors, plain_truth, store, turned

HEADS, WORDS, INNER, POSITIONS = 4, 97, 48, 64
LAYERS = {"encoder": 2, "decoder": 3}
RESERVED = {"offset": 2, "order": 0}  # rows of a table of positions before the first


@dataclass(frozen=True)
class Draw:
    """One combination."""

    scheme: str = "bart"  # whose names: bart, t5
    norm: str = "layer"  # layer, rms, scale: a layer norm without biases
    placement: str = "post"  # post, pre
    placement_named: bool = False
    eps: float = 1e-5
    eps_named: bool = False
    position: str = "offset"  # offset, order: learned; sinusoidal, rotary; first, each: biases by distance
    base: float = 10000.0
    embedding_norm: bool = True
    scaled: bool = False  # embeddings, by the root of their width
    apart: bool = False  # encoder and decoder have tables of their own
    head_dim: int = 8
    bias: bool = True
    gated: bool = False
    activation: str = "gelu"
    head: bool = True
    tied: bool = True
    head_scaled: bool = False  # by the root of the width, before a tied head
    head_scale_named: bool = False
    logits_bias: bool = False


def draw(seed: int) -> Draw:
    """The combination of a number."""
    pick = random.Random(seed).choice
    found = Draw(
        scheme=pick(("bart", "bart", "t5")),
        norm=pick(("layer", "rms", "scale")),
        placement=pick(("post", "pre")),
        placement_named=pick((False, True)),
        eps=pick((1e-5, 1e-6)),
        eps_named=pick((False, True)),
        position=pick(("offset", "order", "sinusoidal", "rotary", "first", "each")),
        base=pick((10000.0, 160000.0)),
        embedding_norm=pick((True, False)),
        scaled=pick((True, False)),
        apart=pick((False, False, False, True)),
        head_dim=pick((8, 8, 12)),
        bias=pick((True, False)),
        gated=pick((True, False)),
        activation=pick(("gelu", "gelu_new", "relu", "silu")),
        head=pick((True, True, False)),
        tied=pick((True, True, False)),
        head_scaled=pick((True, False)),
        head_scale_named=pick((True, False)),
        logits_bias=pick((True, False)),
    )
    return _sensible(found)


def _sensible(found: Draw) -> Draw:
    """Without what cannot be together, or has no names in a scheme."""
    if found.scheme == "t5":
        where = found.position if found.position in ("first", "each", "rotary") else "first"
        found = replace(found, placement="pre", placement_named=False, position=where, embedding_norm=False)
        is_scaled = found.head_scaled and found.tied and found.head
        is_named = found.head_scale_named or not is_scaled  # these names have a scaled head, where it is tied
        return replace(found, norm="rms", eps_named=True, scaled=False, apart=False, logits_bias=False,
                       bias=False, head_scaled=is_scaled, head_scale_named=is_named)  # fmt: skip
    where = found.position if found.position not in ("first", "each") else "offset"
    is_named = found.eps_named or found.norm == "rms" or found.eps != 1e-5
    return replace(found, position=where, head_dim=8, gated=False, head_scaled=False, head_scale_named=False,
                   eps_named=is_named, logits_bias=found.logits_bias and found.head,
                   tied=found.tied and not found.apart)  # fmt: skip


class Weights(Tensors):
    """The tensors of a draw, by names of this page."""

    one: Draw

    def linear(self, name: str, rows: int, columns: int, bias: bool | None = None) -> None:
        super().linear(name, rows, columns, self.one.bias if bias is None else bias)

    def all(self) -> dict[str, Tensor]:
        one = self.one
        for name in ("encoder.words", "decoder.words") if one.apart else ("words",):
            self.table(name, WORDS, HIDDEN)
        for tower in LAYERS:
            self.tower(f"{tower}.", tower)
        if one.head and not one.tied:
            self.tensors["head.weight"] = self.drawn(WORDS, HIDDEN)
        if one.logits_bias:
            self.tensors["logits_bias"] = self.drawn(1, WORDS)
        return self.tensors

    def tower(self, start: str, tower: str) -> None:
        one = self.one
        if one.position in RESERVED:
            self.table(f"{start}positions", POSITIONS + RESERVED[one.position], HIDDEN)
        if one.embedding_norm:
            self.norm(f"{start}embedding_norm")
        for layer in range(LAYERS[tower]):
            self.layer(f"{start}{layer}.", tower == "decoder", layer)
        if one.placement == "pre":
            self.norm(f"{start}final_norm")

    def layer(self, start: str, is_decoder: bool, layer: int) -> None:
        one = self.one
        for part in ("self", "cross") if is_decoder else ("self",):
            self.norm(f"{start}{part}.norm")
            for name in "qkv":
                self.linear(f"{start}{part}.{name}", HEADS * one.head_dim, HIDDEN)
            self.linear(f"{start}{part}.o", HIDDEN, HEADS * one.head_dim)
        if one.position == "each" or (one.position == "first" and layer == 0):
            self.table(f"{start}self.relative", BUCKETS, HEADS)
        self.norm(f"{start}inner.norm")
        for name in ("gate", "up") if one.gated else ("up",):
            self.linear(f"{start}inner.{name}", INNER, HIDDEN)
        self.linear(f"{start}inner.down", HIDDEN, INNER)


class Reference(Layers):
    """What a draw computes: token ids and a mask (B, S), ids of the decoder (B, T) -> outputs by name."""

    one: Draw

    def __call__(self, ids: Tensor, mask: Tensor, decoder_ids: Tensor) -> dict[str, Tensor]:
        states = self.tower("encoder", ids, None, mask)
        x = self.tower("decoder", decoder_ids, states, mask)
        unknown = torch.where(mask[..., None] == 1, 0.0, torch.nan)  # of what stands at paddings
        outputs = {"encoder_last_hidden_state": states + unknown}
        return outputs | ({"logits": self.logits(x)} if self.one.head else {"last_hidden_state": x})

    def logits(self, x: Tensor) -> Tensor:
        one = self.one
        if one.head_scaled:
            x = x * HIDDEN**-0.5
        logits = x @ (self.tensors["words.weight"] if one.tied else self.tensors["head.weight"]).T
        return logits + self.tensors["logits_bias"] if one.logits_bias else logits

    def tower(self, tower: str, ids: Tensor, states: Tensor | None, mask: Tensor) -> Tensor:
        one = self.one
        table = self.tensors[f"{tower}.words.weight" if one.apart else "words.weight"]
        x = table[ids] * (HIDDEN**0.5 if one.scaled else 1.0)
        if one.position in RESERVED:
            first = RESERVED[one.position]
            x = x + self.tensors[f"{tower}.positions.weight"][first : first + ids.shape[1]]
        elif one.position == "sinusoidal":
            x = x + waves(ids.shape[1], HIDDEN, apart=True)
        if one.embedding_norm:
            x = self.norm(f"{tower}.embedding_norm", x)
        for layer in range(LAYERS[tower]):
            x = self.layer(tower, layer, x, states, mask)
        return self.norm(f"{tower}.final_norm", x) if one.placement == "pre" else x

    def layer(self, tower: str, layer: int, x: Tensor, states: Tensor | None, mask: Tensor) -> Tensor:
        start, real = f"{tower}.{layer}.", mask[:, None, None] == 1
        length = x.shape[1]
        seen = real if states is None else torch.ones(length, length, dtype=torch.bool).tril()
        x = self.around(f"{start}self.", x, lambda y: self.attention(f"{start}self.", y, y, seen, tower))
        if states is not None:
            x = self.around(
                f"{start}cross.", x, lambda y: self.attention(f"{start}cross.", y, states, real, "")
            )
        return self.around(f"{start}inner.", x, lambda y: self.feed_forward(f"{start}inner.", y))

    def around(self, start: str, x: Tensor, part: Any) -> Tensor:
        if self.one.placement == "pre":
            added: Tensor = x + part(self.norm(f"{start}norm", x))
            return added
        return self.norm(f"{start}norm", x + part(x))

    def attention(self, start: str, x: Tensor, source: Tensor, seen: Tensor, tower: str) -> Tensor:
        """`tower`: whose positions tell queries and keys apart, none in cross-attention."""
        one = self.one
        q = self.linear(f"{start}q", x)
        k, v = self.linear(f"{start}k", source), self.linear(f"{start}v", source)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (q, k, v))
        if tower and one.position == "rotary":
            q, k = turned(q, self.one.base), turned(k, self.one.base)
        scores = q @ k.transpose(-1, -2) * (1.0 if one.scheme == "t5" else one.head_dim**-0.5)
        if tower and one.position in ("first", "each"):
            scores = scores + self.bias(start, tower, x.shape[1])
        scores = scores.masked_fill(~seen, -torch.inf)
        return self.linear(f"{start}o", (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))

    def bias(self, start: str, tower: str, length: int) -> Tensor:
        whose = start if self.one.position == "each" else f"{tower}.0.self."
        index = torch.arange(length)
        apart = index - index[:, None]
        rows = buckets(apart) if tower == "encoder" else buckets_before(apart)
        return self.tensors[f"{whose}relative.weight"][rows].permute(2, 0, 1)

    def feed_forward(self, start: str, x: Tensor) -> Tensor:
        activation = ACTIVATIONS[self.one.activation]
        if self.one.gated:
            y = activation(self.linear(f"{start}gate", x)) * self.linear(f"{start}up", x)
        else:
            y = activation(self.linear(f"{start}up", x))
        return self.linear(f"{start}down", y)


def buckets_before(apart: Tensor) -> Tensor:
    """Rows of a table of distances to what stands before (paper 1910.10683): of the shape of `apart`."""
    exact = BUCKETS // 2
    far = (-apart).clamp(min=0)
    spread = (far.clamp(min=1) / exact).log() / torch.tensor(FURTHEST / exact).log() * (BUCKETS - exact)
    return torch.where(far < exact, far, (exact + spread.long()).clamp(max=BUCKETS - 1))


SUBLAYERS = {
    "bart": {
        "self": "self_attn.", "cross": "encoder_attn.", "inner": "", "q": "q_proj", "k": "k_proj", "v": "v_proj",
        "o": "out_proj", "up": "fc1", "down": "fc2",
    },
    "t5": {"self": "SelfAttention.", "cross": "EncDecAttention.", "inner": "DenseReluDense.", "up": "wi", "down": "wo"},
}  # fmt: skip
NORMS = {"self": "self_attn_layer_norm", "cross": "encoder_attn_layer_norm", "inner": "final_layer_norm"}
ENDS = {
    "bart": {
        "words": "embed_tokens", "positions": "embed_positions", "embedding_norm": "layernorm_embedding",
        "final_norm": "layer_norm",
    },
    "t5": {"words": "embed_tokens", "final_norm": "final_layer_norm"},
}  # fmt: skip


def renamed(name: str, one: Draw) -> str:
    body = "model." if one.head and one.scheme == "bart" else ""
    parts = name.split(".")
    if parts[0] == "words":
        return f"{body}shared.weight"
    if parts[0] == "logits_bias":
        return "final_logits_bias"
    if parts[0] == "head":
        return "lm_head.weight"
    if len(parts) == 3:
        return f"{body}{parts[0]}.{ENDS[one.scheme][parts[1]]}.{parts[2]}"
    return body + (_of_bart if one.scheme == "bart" else _of_t5)(parts, one)


def _of_bart(parts: list[str], one: Draw) -> str:
    tower, layer, block, part, ending = parts
    if part == "norm":
        return f"{tower}.layers.{layer}.{NORMS[block]}.{ending}"
    return f"{tower}.layers.{layer}.{SUBLAYERS['bart'][block]}{SUBLAYERS['bart'][part]}.{ending}"


def _of_t5(parts: list[str], one: Draw) -> str:
    tower, layer, block, part, ending = parts
    place = {"self": 0, "cross": 1, "inner": 2 if tower == "decoder" else 1}[block]
    start = f"{tower}.block.{layer}.layer.{place}."
    if part == "norm":
        return f"{start}layer_norm.{ending}"
    gated = {"gate": "wi_0", "up": "wi_1"} if one.gated else {}
    called = SUBLAYERS["t5"] | {"relative": "relative_attention_bias"} | gated
    return f"{start}{called[block]}{called.get(part, part)}.{ending}"


def config(one: Draw) -> dict[str, Any]:
    """What a class of the model hub would have written of a draw."""
    name = "ForConditionalGeneration" if one.head else "Model"
    found: dict[str, Any] = {
        "model_type": "unheard_of", "architectures": [f"UnheardOf{name}"], "d_model": HIDDEN, "vocab_size": WORDS,
        "is_encoder_decoder": True, "use_cache": True, "torch_dtype": "float32", "transformers_version": "4.57.1",
        "tie_word_embeddings": one.tied, "rope_theta": one.base if one.position == "rotary" else None,
    } | (_config_of_bart if one.scheme == "bart" else _config_of_t5)(one)  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def _config_of_bart(one: Draw) -> dict[str, Any]:
    eps = "rms_norm_eps" if one.norm == "rms" else "layer_norm_eps"
    return {
        "encoder_layers": LAYERS["encoder"], "decoder_layers": LAYERS["decoder"], "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS, "encoder_ffn_dim": INNER, "decoder_ffn_dim": INNER, "num_hidden_layers": 2,
        "activation_function": one.activation, "scale_embedding": one.scaled, "max_position_embeddings": POSITIONS,
        "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": 2,
        "dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0, "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0, "init_std": 0.02, "classifier_dropout": 0.0, eps: one.eps if one.eps_named else None,
        "normalize_before": one.placement == "pre" if one.placement_named else None,
        "share_encoder_decoder_embeddings": False if one.apart else None,
    }  # fmt: skip


def _config_of_t5(one: Draw) -> dict[str, Any]:
    is_biased = one.position != "rotary"
    return {
        "d_kv": one.head_dim, "d_ff": INNER, "num_layers": LAYERS["encoder"], "num_decoder_layers": LAYERS["decoder"],
        "num_heads": HEADS, "relative_attention_num_buckets": BUCKETS if is_biased else None,
        "relative_attention_max_distance": FURTHEST if is_biased else None, "dropout_rate": 0.1,
        "layer_norm_epsilon": one.eps, "initializer_factor": 1.0, "is_gated_act": one.gated,
        "feed_forward_proj": f"gated-{one.activation}" if one.gated else one.activation,
        "dense_act_fn": one.activation, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0,
        "classifier_dropout": 0.0,
        "scale_decoder_outputs": one.head_scaled if one.head_scale_named else None,
    }  # fmt: skip


def truth(one: Draw) -> dict[str, Any]:
    """What a draw answers to what may be asked of it."""
    is_rotary = one.position == "rotary"
    return plain_truth(one) | {
        "alibi": False,
        "attention.relative": one.position if one.position in ("first", "each") else None,
        "attention.rotary": is_rotary,
        "attention.scale": 1.0 if one.scheme == "t5" else one.head_dim**-0.5,
        "attention.scaling": "none" if one.scheme == "t5" else "head_dim",
        "attention.window": None,
        "embedding.norm_first": False,
        "embedding.scale": HIDDEN**0.5 if one.scaled else None,
        "feed_forward.activation": one.activation,
        "head.scaled": one.head_scaled,
        "norm.final": "positions" if one.placement == "pre" else "none",
        "pooling": None,
        "position.counting": "offset" if one.position == "offset" else "all",
        "position.sinusoidal": "split" if one.position == "sinusoidal" else None,
        "rotary": is_rotary,
    }


def write(one: Draw, folder: Path, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The checkpoint of a draw; its inputs, ids (2, 9) and those of the decoder (2, 6); its outputs, nan where ids are padding."""
    generator = torch.Generator().manual_seed(seed)
    tensors = Weights(one, generator).all()
    store(folder, {renamed(name, one): tensor for name, tensor in tensors.items()}, config(one))
    ids, decoder_ids = (torch.randint(3, WORDS, (2, size), generator=generator) for size in (9, 6))
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    ids = torch.where(mask == 1, ids, config(one)["pad_token_id"])
    inputs = {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": decoder_ids}
    return inputs, Reference(one, tensors)(ids, mask, decoder_ids)
