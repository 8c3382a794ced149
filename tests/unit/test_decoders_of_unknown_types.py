"""Decoders whose code lies beside their weights, under types that nobody lists: what is asked, and equal outputs once it is told.

Each is written here with names, settings and an order of channels as published decoders have them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

import mapper

WORDS, WIDTH, HEADS, SIZE, INNER = 40, 16, 4, 4, 24
BASE = 10000.0
CONFIG = {
    "model_type": "unheard_of", "architectures": ["UnheardOfForCausalLM"], "tie_word_embeddings": False,
    "auto_map": {"AutoModelForCausalLM": "code.UnheardOfForCausalLM"}, "vocab_size": WORDS, "hidden_size": WIDTH,
    "num_hidden_layers": 2, "num_attention_heads": HEADS,
}  # fmt: skip
Tensors = dict[str, Tensor]
IDS = torch.tensor([[1, 5, 2, 9, 30, 7, 7], [3, 0, 39, 12, 4, 8, 1]])


def drawn(shapes: dict[str, tuple[int, ...]]) -> Tensors:
    """Norms around 1, maps that keep the size of what they read."""
    source = torch.Generator().manual_seed(7)
    return {
        name: 1 + 0.3 * torch.randn(shape, generator=source) if len(shape) == 1 and "norm" in name
        else torch.randn(shape, generator=source) / math.sqrt(shape[-1])
        for name, shape in shapes.items()
    }  # fmt: skip


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, (WIDTH,), weight, 1e-5)


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (-1, SIZE)).transpose(1, 2)


def turned(x: Tensor, channels: int, interleaved: bool = False) -> Tensor:
    """Rotary embeddings of the first channels of each head (2104.09864)."""
    angles = torch.arange(x.shape[2])[:, None] / BASE ** (torch.arange(0, channels, 2) / channels)
    part, rest = x[..., :channels], x[..., channels:]
    first, second = (part[..., ::2], part[..., 1::2]) if interleaved else part.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    pair = first * cos - second * sin, second * cos + first * sin
    return torch.cat([torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1), rest], -1)


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    k, v = (part.repeat_interleave(HEADS // part.shape[1], 1) for part in (k, v))
    later = torch.full((q.shape[2],) * 2, -math.inf).triu(1)
    scores = q @ k.mT / math.sqrt(SIZE) + bias + later
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def gated(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def distances() -> tuple[dict[str, Any], Tensors, Callable[[Tensors], Tensor], dict[str, Any]]:
    """Queries, keys and values in one map, and nothing but a bias by distance that tells places apart (2108.12409)."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (WORDS, WIDTH)}
    for layer in ("model.layers.0.", "model.layers.1."):
        shapes |= {f"{layer}{word}_layernorm.weight": (WIDTH,) for word in ("input", "post_attention")}
        shapes |= {f"{layer}self_attn.W_pack.weight": (3 * WIDTH, WIDTH)}
        shapes |= {f"{layer}self_attn.o_proj.weight": (WIDTH, WIDTH)}
        shapes |= {f"{layer}mlp.{word}_proj.weight": (INNER, WIDTH) for word in ("gate", "up")}
        shapes |= {f"{layer}mlp.down_proj.weight": (WIDTH, INNER)}
    shapes |= {"model.norm.weight": (WIDTH,), "lm_head.weight": (WORDS, WIDTH)}

    def forward(t: Tensors) -> Tensor:
        places = torch.arange(IDS.shape[1])
        slopes = torch.tensor([2.0 ** (-8 * (head + 1) / HEADS) for head in range(HEADS)])
        bias = slopes[:, None, None] * (places - places[:, None])
        x = t["model.embed_tokens.weight"][IDS]
        for layer in ("model.layers.0.", "model.layers.1."):
            y = F.linear(rms(x, t[f"{layer}input_layernorm.weight"]), t[f"{layer}self_attn.W_pack.weight"])
            mixed = attend(*map(heads, y.chunk(3, -1)), bias)
            x = x + F.linear(mixed, t[f"{layer}self_attn.o_proj.weight"])
            y = rms(x, t[f"{layer}post_attention_layernorm.weight"])
            x = x + gated(y, *(t[f"{layer}mlp.{word}_proj.weight"] for word in ("gate", "up", "down")))
        return F.linear(rms(x, t["model.norm.weight"]), t["lm_head.weight"])

    settings = {"hidden_act": "silu", "rms_norm_eps": 1e-5, "intermediate_size": INNER}
    return settings, drawn(shapes), forward, {"rotary": False, "position.sinusoidal": None, "alibi": True}


def pairs_by_head() -> tuple[dict[str, Any], Tensors, Callable[[Tensors], Tensor], dict[str, Any]]:
    """Keys and values from one map, the keys of each head beside its values."""
    shapes: dict[str, tuple[int, ...]] = {"transformer.word_embeddings.weight": (WORDS, WIDTH)}
    for layer in ("transformer.h.0.", "transformer.h.1."):
        shapes |= {f"{layer}{word}_layernorm.weight": (WIDTH,) for word in ("input", "post_attention")}
        shapes |= {f"{layer}self_attention.{word}.weight": (WIDTH, WIDTH) for word in ("query", "dense")}
        shapes |= {f"{layer}self_attention.key_value.weight": (2 * WIDTH, WIDTH)}
        shapes |= {f"{layer}mlp.{word}_proj.weight": (INNER, WIDTH) for word in ("gate", "up")}
        shapes |= {f"{layer}mlp.down_proj.weight": (WIDTH, INNER)}
    shapes |= {"transformer.norm.weight": (WIDTH,), "lm_head.weight": (WORDS, WIDTH)}

    def forward(t: Tensors) -> Tensor:
        x = t["transformer.word_embeddings.weight"][IDS]
        for layer in ("transformer.h.0.", "transformer.h.1."):
            y = rms(x, t[f"{layer}input_layernorm.weight"])
            q = turned(heads(F.linear(y, t[f"{layer}self_attention.query.weight"])), SIZE)
            pair = F.linear(y, t[f"{layer}self_attention.key_value.weight"]).unflatten(-1, (HEADS, 2 * SIZE))
            k, v = pair.transpose(1, 2).chunk(2, -1)
            x = x + F.linear(attend(q, turned(k, SIZE), v), t[f"{layer}self_attention.dense.weight"])
            y = rms(x, t[f"{layer}post_attention_layernorm.weight"])
            x = x + gated(y, *(t[f"{layer}mlp.{word}_proj.weight"] for word in ("gate", "up", "down")))
        return F.linear(rms(x, t["transformer.norm.weight"]), t["lm_head.weight"])

    answers = {"attention.paired": "per_head", "rotary": True, "rotary.base": BASE}
    answers |= {"norm.kind": "RMSNorm", "feed_forward.activation": "silu"}
    return {"layer_norm_epsilon": 1e-5, "ffn_hidden_size": INNER}, drawn(shapes), forward, answers


def stored_angles() -> tuple[dict[str, Any], Tensors, Callable[[Tensors], Tensor], dict[str, Any]]:
    """Half of each head turned, as the stored angles show, neighbours paired; fewer keys and values behind all queries."""
    rows = (HEADS + 2 * 2) * SIZE
    shapes: dict[str, tuple[int, ...]] = {"transformer.embedding.word_embeddings.weight": (WORDS, WIDTH)}
    for layer in ("transformer.encoder.layers.0.", "transformer.encoder.layers.1."):
        shapes |= {f"{layer}{word}_layernorm.weight": (WIDTH,) for word in ("input", "post_attention")}
        shapes |= {f"{layer}self_attention.query_key_value.weight": (rows, WIDTH)}
        shapes |= {f"{layer}self_attention.query_key_value.bias": (rows,)}
        shapes |= {f"{layer}self_attention.dense.weight": (WIDTH, WIDTH)}
        shapes |= {f"{layer}mlp.dense_h_to_4h.weight": (2 * INNER, WIDTH)}
        shapes |= {f"{layer}mlp.dense_4h_to_h.weight": (WIDTH, INNER)}
    shapes |= {"transformer.encoder.final_layernorm.weight": (WIDTH,), "lm_head.weight": (WORDS, WIDTH)}
    angles = {"transformer.rotary_pos_emb.inv_freq": BASE ** -(torch.arange(0, 2, 2) / 2)}

    def forward(t: Tensors) -> Tensor:
        x = t["transformer.embedding.word_embeddings.weight"][IDS]
        for layer in ("transformer.encoder.layers.0.", "transformer.encoder.layers.1."):
            y, name = rms(x, t[f"{layer}input_layernorm.weight"]), f"{layer}self_attention.query_key_value"
            parts = F.linear(y, t[f"{name}.weight"], t[f"{name}.bias"]).split([WIDTH, 2 * SIZE, 2 * SIZE], -1)
            q, k, v = map(heads, parts)
            mixed = attend(turned(q, 2, interleaved=True), turned(k, 2, interleaved=True), v)
            x = x + F.linear(mixed, t[f"{layer}self_attention.dense.weight"])
            gate, up = t[f"{layer}mlp.dense_h_to_4h.weight"].chunk(2)
            y = rms(x, t[f"{layer}post_attention_layernorm.weight"])
            x = x + gated(y, gate, up, t[f"{layer}mlp.dense_4h_to_h.weight"])
        return F.linear(rms(x, t["transformer.encoder.final_layernorm.weight"]), t["lm_head.weight"])

    settings = {"layernorm_epsilon": 1e-5, "rmsnorm": True, "ffn_hidden_size": INNER}
    answers = {"rotary.style": "interleaved", "attention.fused": "concatenated", "rotary.base": BASE}
    answers |= {"feed_forward.gate_last": False, "feed_forward.activation": "silu"}
    return settings, drawn(shapes) | angles, forward, answers


def norms_without_weights() -> tuple[dict[str, Any], Tensors, Callable[[Tensors], Tensor], dict[str, Any]]:
    """Norms that nothing is stored of, half of a fused map the gate, a head with a name of feed-forwards (2402.00838)."""
    shapes: dict[str, tuple[int, ...]] = {"model.transformer.wte.weight": (WORDS, WIDTH)}
    for layer in ("model.transformer.blocks.0.", "model.transformer.blocks.1."):
        shapes |= {f"{layer}att_proj.weight": (3 * WIDTH, WIDTH), f"{layer}attn_out.weight": (WIDTH, WIDTH)}
        shapes |= {f"{layer}ff_proj.weight": (2 * INNER, WIDTH), f"{layer}ff_out.weight": (WIDTH, INNER)}
    shapes |= {"model.transformer.ff_out.weight": (WORDS, WIDTH)}

    def normed(x: Tensor) -> Tensor:
        return F.layer_norm(x, (WIDTH,), eps=1e-5)

    def forward(t: Tensors) -> Tensor:
        x = t["model.transformer.wte.weight"][IDS]
        for layer in ("model.transformer.blocks.0.", "model.transformer.blocks.1."):
            q, k, v = map(heads, F.linear(normed(x), t[f"{layer}att_proj.weight"]).chunk(3, -1))
            x = x + F.linear(attend(turned(q, SIZE), turned(k, SIZE), v), t[f"{layer}attn_out.weight"])
            up, gate = t[f"{layer}ff_proj.weight"].chunk(2)
            x = x + gated(normed(x), gate, up, t[f"{layer}ff_out.weight"])
        return F.linear(normed(x), t["model.transformer.ff_out.weight"])

    settings = {"rope": True, "activation_type": "swiglu", "layer_norm_with_affine": False, "n_heads": HEADS}
    answers = {"rotary.style": "half", "rotary.base": BASE, "norm.eps": 1e-5, "norm.mean": True}
    return settings, drawn(shapes), forward, answers | {"embedding.normed": False}


@pytest.mark.parametrize("made", [distances, pairs_by_head, stored_angles, norms_without_weights])
def test_what_was_told_was_asked_and_gives_equal_outputs(made: Callable[..., Any], tmp_path: Path) -> None:
    settings, tensors, forward, answers = made()
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | settings))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "model.safetensors")
    told: dict[str, Any] = {}
    while asked := {question.name for question in mapper.inspect(tmp_path, told).architecture.questions}:
        new = {name: answers[name] for name in asked if name in answers and name not in told}
        assert new, f"nothing known of {asked}"
        told |= new
    assert told.keys() == answers.keys()
    model = mapper.build(tmp_path, hints=told).eval()
    with torch.inference_mode():
        torch.testing.assert_close(model(input_ids=IDS).logits, forward(tensors), rtol=1e-4, atol=1e-5)
