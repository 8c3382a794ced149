"""Decoders of known pieces in combinations that nobody published: tensors, config, and what they compute.

Written apart from all rules, for tools/combinations.py: `Reference` is the truth that a reading is compared with.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tools.drawn.parts import ACTIVATIONS, HIDDEN, Layers, Tensors, plain_truth, store, turned

HEADS, LAYERS, WORDS, INNER, EXPERTS, CHOSEN = 4, 3, 97, 48, 4, 2
WINDOW, POSITIONS, EXPERT_INNER = 3, 64, 24


@dataclass(frozen=True)
class Draw:
    """One combination."""

    scheme: str = "llama"  # whose names: llama, gpt2, opt, meta
    norm: str = "rms"  # rms, layer, scale: a layer norm without biases
    placement: str = "pre"  # pre, sandwich, after, post, parallel
    eps: float = 1e-5
    query_norm: str | None = None  # head: over each head, wide: over all of them
    query_bias: bool = False
    output_bias: bool = False
    inner_bias: bool = False
    kv_heads: int = 4
    head_dim: int = 8
    fused: bool = False
    sinks: bool = False
    window: str | None = None  # all: every layer has one, types: every other
    position: str = "rotary"  # rotary, partial, learned, some: not in every layer
    base: float = 10000.0
    gated: bool = True
    activation: str = "silu"
    gate_fused: bool = False
    experts: str | None = None  # softmax, normalised, sigmoid, shared
    dense_first: bool = False
    embedding_scale: float | None = None
    embedding_norm: bool = False
    residual_scale: float | None = None
    divisor: float | None = None
    softcap: float | None = None
    score_softcap: float | None = None
    score_scale: float | None = None
    tied: bool = True

    def has_experts(self, layer: int) -> bool:
        return self.experts is not None and not (self.dense_first and layer == 0)

    def rotates(self, layer: int) -> bool:
        return self.position in ("rotary", "partial") or (self.position == "some" and layer != 1)

    def sees_window(self, layer: int) -> bool:
        return self.window == "all" or (self.window == "types" and layer != 1)


def draw(seed: int) -> Draw:
    """The combination of a number."""
    pick = random.Random(seed).choice
    rare = (None, None, None)
    found = Draw(
        scheme=pick(("llama", "llama", "gpt2", "opt", "meta")),
        norm=pick(("rms", "rms", "layer", "scale")),
        placement=pick(("pre", "pre", "pre", "sandwich", "after", "post", "parallel")),
        eps=pick((1e-5, 1e-6)),
        query_norm=pick((None, None, "head", "wide")),
        query_bias=pick((False, False, True)),
        output_bias=pick((False, False, True)),
        inner_bias=pick((False, False, True)),
        kv_heads=pick((4, 2, 1)),
        head_dim=pick((8, 8, 16)),
        fused=pick((False, False, False, True)),
        sinks=pick((False, False, False, False, True)),
        window=pick((None, None, "all", "types")),
        position=pick(("rotary", "rotary", "rotary", "partial", "learned", "some")),
        base=pick((10000.0, 500000.0)),
        gated=pick((True, True, False)),
        activation=pick(("silu", "relu", "gelu", "gelu_pytorch_tanh")),
        gate_fused=pick((False, False, True)),
        experts=pick((None, None, None, "softmax", "normalised", "sigmoid", "shared")),
        dense_first=pick((False, True)),
        embedding_scale=pick((*rare, 3.0)),
        embedding_norm=pick((False, False, False, False, True)),
        residual_scale=pick((*rare, 0.5)),
        divisor=pick((*rare, 2.0)),
        softcap=pick((*rare, 5.0)),
        score_softcap=pick((*rare, 4.0)),
        score_scale=pick((*rare, 0.2)),
        tied=pick((True, False)),
    )
    return _sensible(found)


def _sensible(found: Draw) -> Draw:
    """Without what cannot be together, or has no names in a scheme."""
    if found.scheme != "llama":
        where = found.placement if found.placement in ("pre", "parallel") else "pre"
        found = replace(found, placement=where, experts=None, gate_fused=False, gated=found.scheme == "meta")
    if found.scheme == "meta":
        found = replace(found, fused=False)
    if found.fused and found.query_norm == "wide":
        found = replace(found, query_norm="head")
    return replace(
        found,
        gate_fused=found.gate_fused and found.gated,
        dense_first=found.dense_first and found.experts is not None,
        score_softcap=None if found.sinks else found.score_softcap,
    )


class Weights(Tensors):
    """The tensors of a draw, by llama's names."""

    one: Draw

    def all(self) -> dict[str, Tensor]:
        one = self.one
        self.tensors["model.embed_tokens.weight"] = torch.randn(WORDS, HIDDEN, generator=self.generator)
        if one.position == "learned":
            self.tensors["model.embed_positions.weight"] = torch.randn(
                POSITIONS, HIDDEN, generator=self.generator
            )
        if one.embedding_norm:
            self.norm("model.embed_layernorm")
        for layer in range(LAYERS):
            self.layer(f"model.layers.{layer}.", layer)
        if one.placement != "post":
            self.norm("model.norm")
        if not one.tied:
            self.linear("lm_head", WORDS, HIDDEN, False)
        return self.tensors

    def layer(self, start: str, layer: int) -> None:
        for name in NORMS[self.one.placement]:
            self.norm(start + name)
        self.attention(f"{start}self_attn.")
        if self.one.has_experts(layer):
            self.experts(f"{start}mlp.")
        else:
            self.feed_forward(f"{start}mlp.", INNER)

    def attention(self, start: str) -> None:
        one = self.one
        wide, narrow = HEADS * one.head_dim, one.kv_heads * one.head_dim
        if one.fused:
            self.linear(f"{start}qkv_proj", wide + 2 * narrow, HIDDEN, one.query_bias)
        else:
            for name, size in (("q", wide), ("k", narrow), ("v", narrow)):
                self.linear(f"{start}{name}_proj", size, HIDDEN, one.query_bias)
        self.linear(f"{start}o_proj", HIDDEN, wide, one.output_bias)
        if one.query_norm:
            self.norm(f"{start}q_norm", one.head_dim if one.query_norm == "head" else wide)
            self.norm(f"{start}k_norm", one.head_dim if one.query_norm == "head" else narrow)
        if one.sinks:
            self.tensors[f"{start}sinks"] = torch.randn(HEADS, generator=self.generator)

    def feed_forward(self, start: str, inner: int) -> None:
        bias = self.one.inner_bias
        if self.one.gate_fused:
            self.linear(f"{start}gate_up_proj", 2 * inner, HIDDEN, bias)
        else:
            for name in ("gate_proj", "up_proj") if self.one.gated else ("up_proj",):
                self.linear(start + name, inner, HIDDEN, bias)
        self.linear(f"{start}down_proj", HIDDEN, inner, bias)

    def experts(self, start: str) -> None:
        self.linear(f"{start}gate", EXPERTS, HIDDEN, False)
        if self.one.experts == "sigmoid":
            self.tensors[f"{start}gate.e_score_correction_bias"] = self.drawn(EXPERTS)
        for expert in range(EXPERTS):
            self.feed_forward(f"{start}experts.{expert}.", EXPERT_INNER)
        if self.one.experts == "shared":
            self.feed_forward(f"{start}shared_experts.", EXPERT_INNER)


BOTH = ("post_attention_layernorm", "post_feedforward_layernorm")
NORMS = {
    "pre": ("input_layernorm", "post_attention_layernorm"),
    "parallel": ("input_layernorm",),
    "after": BOTH,
    "post": BOTH,
    "sandwich": ("input_layernorm", "pre_feedforward_layernorm", *BOTH),
}


class Reference(Layers):
    """What a draw computes: token ids (B, T) -> logits (B, T, WORDS)."""

    one: Draw

    def __call__(self, ids: Tensor) -> Tensor:
        one = self.one
        table = self.tensors["model.embed_tokens.weight"]
        x = self.read(table[ids] * (one.embedding_scale or 1.0), ids)
        if one.position == "learned":
            x = x + self.tensors["model.embed_positions.weight"][: ids.shape[1]]
        if one.embedding_norm:
            x = self.norm("model.embed_layernorm", x)
        for layer in range(LAYERS):
            x = self.layer(f"model.layers.{layer}.", x, layer)
        if one.placement != "post":
            x = self.norm("model.norm", x)
        logits = x @ (table if one.tied else self.tensors["lm_head.weight"]).T
        logits = logits / (one.divisor or 1.0)
        return torch.tanh(logits / one.softcap) * one.softcap if one.softcap else logits

    def read(self, x: Tensor, ids: Tensor) -> Tensor:
        """What else stands among the words: nothing here."""
        return x

    def seen(self, layer: int, length: int) -> Tensor:
        """Which positions (T, T) see which, or (B, 1, T, T)."""
        index = torch.arange(length)
        apart = index[:, None] - index
        return (apart >= 0) & (apart < (WINDOW if self.one.sees_window(layer) else POSITIONS))

    def layer(self, start: str, x: Tensor, layer: int) -> Tensor:
        scale = self.one.residual_scale or 1.0
        first, second = (start + name for name in BOTH)
        before = (
            self.norm(f"{start}input_layernorm", x) if f"{start}input_layernorm.weight" in self.tensors else x
        )
        read = self.attention(f"{start}self_attn.", before, layer)
        match self.one.placement:
            case "parallel":
                return x + scale * read + scale * self.inner(start, before, layer)
            case "pre":
                x = x + scale * read
                return x + scale * self.inner(start, self.norm(first, x), layer)
            case "sandwich":
                x = x + scale * self.norm(first, read)
                normed = self.norm(f"{start}pre_feedforward_layernorm", x)
                return x + scale * self.norm(second, self.inner(start, normed, layer))
            case "after":
                x = x + scale * self.norm(first, read)
                return x + scale * self.norm(second, self.inner(start, x, layer))
        x = self.norm(first, x + scale * read)
        return self.norm(second, x + scale * self.inner(start, x, layer))

    def attention(self, start: str, x: Tensor, layer: int) -> Tensor:
        one = self.one
        q, k, v = self.projected(start, x)
        q, k, v = (part.unflatten(-1, (-1, one.head_dim)).transpose(1, 2) for part in (q, k, v))
        if one.query_norm == "head":
            q, k = self.norm(f"{start}q_norm", q), self.norm(f"{start}k_norm", k)
        if one.rotates(layer):
            q, k = self.rotated(q), self.rotated(k)
        k, v = (part.repeat_interleave(HEADS // one.kv_heads, dim=1) for part in (k, v))
        scores = q @ k.transpose(-1, -2) * (one.score_scale or one.head_dim**-0.5)
        if one.score_softcap:
            scores = torch.tanh(scores / one.score_softcap) * one.score_softcap
        scores = scores.masked_fill(~self.seen(layer, x.shape[1]), -torch.inf)
        if one.sinks:
            sinks = self.tensors[f"{start}sinks"][:, None, None].expand(x.shape[0], -1, x.shape[1], 1)
            scores = torch.cat((scores, sinks), dim=-1)
        weights = scores.softmax(dim=-1)[..., : x.shape[1]]
        return self.linear(f"{start}o_proj", (weights @ v).transpose(1, 2).flatten(2))

    def projected(self, start: str, x: Tensor) -> tuple[Tensor, ...]:
        one = self.one
        if one.fused:
            narrow = one.kv_heads * one.head_dim
            return self.linear(f"{start}qkv_proj", x).split([HEADS * one.head_dim, narrow, narrow], dim=-1)
        q, k, v = (self.linear(f"{start}{name}_proj", x) for name in "qkv")
        if one.query_norm == "wide":
            q, k = self.norm(f"{start}q_norm", q), self.norm(f"{start}k_norm", k)
        return q, k, v

    def rotated(self, x: Tensor) -> Tensor:
        size = self.one.head_dim // (2 if self.one.position == "partial" else 1)
        return torch.cat((turned(x[..., :size], self.one.base), x[..., size:]), dim=-1)

    def inner(self, start: str, x: Tensor, layer: int) -> Tensor:
        start += "mlp."
        return self.mixed(start, x) if self.one.has_experts(layer) else self.feed_forward(start, x)

    def feed_forward(self, start: str, x: Tensor) -> Tensor:
        activation = ACTIVATIONS[self.one.activation]
        if not self.one.gated:
            return self.linear(f"{start}down_proj", activation(self.linear(f"{start}up_proj", x)))
        if self.one.gate_fused:
            gate, up = self.linear(f"{start}gate_up_proj", x).chunk(2, dim=-1)
        else:
            gate, up = self.linear(f"{start}gate_proj", x), self.linear(f"{start}up_proj", x)
        return self.linear(f"{start}down_proj", activation(gate) * up)

    def mixed(self, start: str, x: Tensor) -> Tensor:
        kind = self.one.experts
        logits = self.linear(f"{start}gate", x)
        scores = logits.sigmoid() if kind == "sigmoid" else logits.softmax(dim=-1)
        order = scores + self.tensors.get(f"{start}gate.e_score_correction_bias", torch.zeros(EXPERTS))
        chosen = order.topk(CHOSEN).indices
        weights = scores.gather(-1, chosen)
        if kind in ("normalised", "sigmoid"):
            weights = weights / weights.sum(dim=-1, keepdim=True)
        if kind == "sigmoid":
            weights = weights * 1.5
        y = torch.zeros_like(x)
        for expert in range(EXPERTS):
            weight = (weights * (chosen == expert)).sum(dim=-1, keepdim=True)
            y = y + weight * self.feed_forward(f"{start}experts.{expert}.", x)
        return y + self.feed_forward(f"{start}shared_experts.", x) if kind == "shared" else y


RENAMED = {  # parts of llama's names as other schemes have them
    "llama": {},
    "gpt2": {
        "model.embed_tokens": "transformer.wte", "model.embed_positions": "transformer.wpe",
        "model.embed_layernorm": "transformer.word_embeddings_layernorm", "model.layers.": "transformer.h.",
        "self_attn.": "attn.", "input_layernorm": "ln_1", "post_attention_layernorm": "ln_2", "mlp.up_proj": "mlp.fc_in",
        "mlp.down_proj": "mlp.fc_out", "o_proj": "out_proj", "model.norm": "transformer.ln_f",
    },
    "opt": {
        "model.embed_tokens": "model.decoder.embed_tokens", "model.embed_positions": "model.decoder.embed_positions",
        "model.embed_layernorm": "model.decoder.layernorm_embedding", "model.layers.": "model.decoder.layers.",
        "o_proj": "out_proj", "input_layernorm": "self_attn_layer_norm", "post_attention_layernorm": "final_layer_norm",
        "mlp.up_proj": "fc1", "mlp.down_proj": "fc2", "model.norm": "model.decoder.layer_norm",
    },
    "meta": {
        "model.embed_tokens": "model.tok_embeddings", "model.embed_positions": "model.position_embeddings",
        "model.embed_layernorm": "model.embedding_norm", "self_attn.q_proj": "attention.wq",
        "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv", "self_attn.o_proj": "attention.wo",
        "self_attn.": "attention.", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2",
        "lm_head": "output",
    },
}  # fmt: skip
FIELDS = {  # fields of a config as other schemes call them
    "gpt2": {
        "hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer",
        "max_position_embeddings": "n_positions", "intermediate_size": "n_inner", "hidden_act": "activation_function",
        "layer_norm_eps": "layer_norm_epsilon",
    },
    "opt": {"intermediate_size": "ffn_dim", "hidden_act": "activation_function"},
}  # fmt: skip


def renamed(name: str, scheme: str) -> str:
    for old, new in RENAMED[scheme].items():
        name = name.replace(old, new)
    return name


def config(one: Draw) -> dict[str, Any]:
    """What a class of the model hub would have written of a draw."""
    found: dict[str, Any] = {
        "model_type": "unheard_of", "architectures": ["UnheardOfForCausalLM"], "hidden_size": HIDDEN,
        "num_attention_heads": HEADS, "num_key_value_heads": one.kv_heads, "head_dim": one.head_dim,
        "num_hidden_layers": LAYERS, "vocab_size": WORDS, "intermediate_size": INNER,
        "max_position_embeddings": POSITIONS, "tie_word_embeddings": one.tied, "hidden_act": one.activation,
        "rms_norm_eps" if one.norm == "rms" else "layer_norm_eps": one.eps,
        "rope_theta": None if one.position == "learned" else one.base,
        "partial_rotary_factor": 0.5 if one.position == "partial" else None,
        "no_rope_layers": [1, 0, 1] if one.position == "some" else None,
        "sliding_window": WINDOW if one.window else None,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"] if one.window == "types" else None,
        "embedding_multiplier": one.embedding_scale, "residual_multiplier": one.residual_scale,
        "logits_scaling": one.divisor, "final_logit_softcapping": one.softcap,
        "attn_logit_softcapping": one.score_softcap, "attention_multiplier": one.score_scale,
        **(_of_experts(one) if one.experts else {}),
    }  # fmt: skip
    called = FIELDS.get(one.scheme, {})
    return {called.get(name, name): value for name, value in found.items() if value is not None}


def _of_experts(one: Draw) -> dict[str, Any]:
    is_sigmoid = one.experts == "sigmoid"
    return {
        "num_experts": EXPERTS,
        "num_experts_per_tok": CHOSEN,
        "moe_intermediate_size": EXPERT_INNER,
        "norm_topk_prob": one.experts in ("normalised", "sigmoid"),
        "scoring_func": "sigmoid" if is_sigmoid else None,
        "routed_scaling_factor": 1.5 if is_sigmoid else None,
        "n_shared_experts": 1 if one.experts == "shared" else None,
        "first_k_dense_replace": 1 if one.dense_first else None,
    }


def truth(one: Draw) -> dict[str, Any]:
    """What a draw answers to what may be asked of it."""
    is_rotary = one.position != "learned"
    return plain_truth(one) | {
        "norm.placement": "pre" if one.placement == "parallel" else one.placement,
        "norm.final": "none" if one.placement == "post" else "positions",
        "norm.embedding_shared": False,
        "layer.parallel": one.placement == "parallel",
        "rotary": is_rotary,
        "attention.rotary": is_rotary,
        "rotary.fraction": 0.5 if one.position == "partial" else 1.0,
        "rotary.dim": one.head_dim // 2 if one.position == "partial" else one.head_dim,
        "attention.causal": True,
        "attention.fused": "concatenated",
        "attention.window": WINDOW if one.window else None,
        "attention.norms": {"head": "before_rotary", "wide": "all_heads", None: None}[one.query_norm],
        "attention.scale": one.score_scale or one.head_dim**-0.5,
        "attention.prompt_full": False,
        "attention.temperature_scaled": False,
        "embedding.scale": one.embedding_scale,
        "embedding.normed": False,
        "embedding.norm_first": False,
        "moe.scoring": "sigmoid" if one.experts == "sigmoid" else "softmax",
        "moe.normalise": one.experts in ("normalised", "sigmoid"),
    }


def write(one: Draw, folder: Path, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The checkpoint of a draw; its inputs, token ids (2, 9), and its outputs, the logits (2, 9, WORDS)."""
    generator = torch.Generator().manual_seed(seed)
    tensors = Weights(one, generator).all()
    store(folder, {renamed(name, one.scheme): tensor for name, tensor in tensors.items()}, config(one))
    ids = torch.randint(0, WORDS, (2, 9), generator=generator)
    return {"input_ids": ids}, {"logits": Reference(one, tensors)(ids)}
