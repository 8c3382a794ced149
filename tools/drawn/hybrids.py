"""Decoders whose layers mix positions by latent attention or state space layers, in combinations that nobody published.

As tools/drawn/decoders.py, whose norms, feed-forwards, experts and factors they have; for tools/combinations.py.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tools.drawn import decoders
from tools.drawn.decoders import HEADS, LAYERS, WORDS
from tools.drawn.parts import ACTIVATIONS, HIDDEN, store

PLAIN, ROTATED, VALUE, RANK, QUERY_RANK = (
    8,
    4,
    6,
    12,
    10,
)  # channels of a head of latent attention, and its latents
STATE, KERNEL, MIXED, STEP_RANK, MIXER_HEADS = 8, 4, 64, 5, 4  # of state space layers
KEY_HEADS = 2  # of layers with a delta rule, whose values have MIXER_HEADS of STATE channels


@dataclass(frozen=True)
class Draw(decoders.Draw):
    """One combination: a decoder's, and what its layers have in place of attention."""

    mixer: str = "latent"  # latent: in every layer; mamba, mamba2, delta: in all layers but the second
    query_rank: bool = False  # whether latent attention's queries are compressed, too
    interleaved: bool = False  # whether it turns neighbours, not halves
    groups: int = 1  # of mamba2's states
    inner_norms: bool = False  # whether mamba norms steps and states
    is_all: bool = False  # whether all layers have it, and none attention
    is_joined: bool = (
        False  # whether queries, keys, values and gate of a delta rule are one projection, its rates another
    )
    own_activation: bool = False  # whether a field of its own says silu, whatever the feed-forwards have

    def is_mixer(self, layer: int) -> bool:
        return self.mixer == "latent" or self.is_all or layer != 1


def draw(seed: int) -> Draw:
    """The combination of a number."""
    pick = random.Random(1000 + seed).choice
    found = Draw(
        mixer=pick(("latent", "latent", "mamba", "mamba2", "delta", "delta")),
        norm=pick(("rms", "rms", "rms", "layer")),
        placement=pick(("pre", "pre", "pre", "sandwich")),
        eps=pick((1e-5, 1e-6)),
        base=pick((10000.0, 500000.0)),
        kv_heads=pick((4, 2)),
        position=pick(("rotary", "rotary", "none")),
        activation=pick(("silu", "relu", "gelu", "gelu_pytorch_tanh")),
        output_bias=pick((False, False, True)),
        inner_bias=pick((False, False, True)),
        experts=pick((None, None, "softmax", "normalised", "sigmoid", "shared")),
        dense_first=pick((False, True)),
        embedding_scale=pick((None, None, None, 3.0)),
        residual_scale=pick((None, None, None, 0.5)),
        divisor=pick((None, None, None, 2.0)),
        softcap=pick((None, None, None, 5.0)),
        tied=pick((True, False)),
        query_rank=pick((False, True)),
        interleaved=pick((False, True)),
        groups=pick((1, 2)),
        inner_norms=pick((False, True)),
        is_all=pick((False, False, True)),
        own_activation=pick((False, True)),
        is_joined=pick((False, True)),
    )
    return _sensible(found)


def _sensible(found: Draw) -> Draw:
    """Without what a mixer has not."""
    is_latent = found.mixer == "latent"
    return replace(
        found,
        dense_first=found.dense_first and found.experts is not None,
        kv_heads=HEADS if is_latent else found.kv_heads,
        position="rotary" if is_latent else found.position,
        query_rank=found.query_rank and is_latent,
        interleaved=found.interleaved and is_latent,
        groups=found.groups if found.mixer == "mamba2" else 1,
        inner_norms=found.inner_norms and found.mixer == "mamba",
        is_all=found.is_all and not is_latent,
        own_activation=found.own_activation and found.mixer.startswith("mamba"),
        is_joined=found.is_joined and found.mixer == "delta",
        output_bias=found.output_bias and not is_latent,
    )


class Weights(decoders.Weights):
    """The tensors of a draw."""

    one: Draw

    def layer(self, start: str, layer: int) -> None:
        super().layer(start, layer)
        if not self.one.is_mixer(layer):
            return
        for name in [name for name in self.tensors if name.startswith(f"{start}self_attn.")]:
            del self.tensors[name]
        makers = {"latent": self.latent, "mamba": self.mamba, "mamba2": self.mamba2, "delta": self.delta}
        makers[self.one.mixer](start)

    def latent(self, start: str) -> None:
        start += "self_attn."
        width = HEADS * (PLAIN + ROTATED)
        if self.one.query_rank:
            self.linear(f"{start}q_a_proj", QUERY_RANK, HIDDEN, False)
            self.norm(f"{start}q_a_layernorm", QUERY_RANK)
            self.linear(f"{start}q_b_proj", width, QUERY_RANK, False)
        else:
            self.linear(f"{start}q_proj", width, HIDDEN, False)
        self.linear(f"{start}kv_a_proj_with_mqa", RANK + ROTATED, HIDDEN, False)
        self.norm(f"{start}kv_a_layernorm", RANK)
        self.linear(f"{start}kv_b_proj", HEADS * (PLAIN + VALUE), RANK, False)
        self.linear(f"{start}o_proj", HIDDEN, HEADS * VALUE, False)

    def mamba(self, start: str) -> None:
        start += "mamba."
        self.linear(f"{start}in_proj", 2 * MIXED, HIDDEN, False)
        self.convolution(start, MIXED)
        self.linear(f"{start}x_proj", STEP_RANK + 2 * STATE, MIXED, False)
        self.linear(f"{start}dt_proj", MIXED, STEP_RANK, True)
        self.tensors[f"{start}A_log"] = self.drawn(MIXED, STATE)
        self.tensors[f"{start}D"] = 1 + self.drawn(MIXED)
        self.linear(f"{start}out_proj", HIDDEN, MIXED, False)
        if self.one.inner_norms:
            for name, size in (("dt", STEP_RANK), ("b", STATE), ("c", STATE)):
                self.tensors[f"{start}{name}_layernorm.weight"] = 1 + self.drawn(size)

    def mamba2(self, start: str) -> None:
        start += "mamba."
        states = 2 * self.one.groups * STATE
        self.linear(f"{start}in_proj", 2 * MIXED + states + MIXER_HEADS, HIDDEN, False)
        self.convolution(start, MIXED + states)
        for name in ("A_log", "D", "dt_bias"):
            self.tensors[start + name] = self.drawn(MIXER_HEADS)
        self.tensors[f"{start}norm.weight"] = 1 + self.drawn(MIXED)
        self.linear(f"{start}out_proj", HIDDEN, MIXED, False)

    def delta(self, start: str) -> None:
        start += "linear_attn."
        keys, values = 2 * KEY_HEADS * STATE, MIXER_HEADS * STATE
        parts = {"qkv": keys + values, "z": values, "b": MIXER_HEADS, "a": MIXER_HEADS}
        if self.one.is_joined:
            parts = {"qkvz": keys + 2 * values, "ba": 2 * MIXER_HEADS}
        for name, size in parts.items():
            self.linear(f"{start}in_proj_{name}", size, HIDDEN, False)
        self.convolution(start, keys + values, bias=False)
        for name in ("A_log", "dt_bias"):
            self.tensors[start + name] = self.drawn(MIXER_HEADS)
        self.tensors[f"{start}norm.weight"] = 1 + self.drawn(STATE)
        self.linear(f"{start}out_proj", HIDDEN, values, False)

    def convolution(self, start: str, channels: int, bias: bool = True) -> None:
        self.tensors[f"{start}conv1d.weight"] = self.drawn(channels, 1, KERNEL)
        if bias:
            self.tensors[f"{start}conv1d.bias"] = self.drawn(channels)


class Reference(decoders.Reference):
    """What a draw computes: token ids (B, T) -> logits (B, T, WORDS)."""

    one: Draw

    def attention(self, start: str, x: Tensor, layer: int) -> Tensor:
        if not self.one.is_mixer(layer):
            return super().attention(start, x, layer)
        if self.one.mixer == "latent":
            return self.latent(start, x)
        if self.one.mixer == "delta":
            return self.delta(start.replace("self_attn.", "linear_attn."), x)
        start = start.replace("self_attn.", "mamba.")
        return self.mamba(start, x) if self.one.mixer == "mamba" else self.mamba2(start, x)

    def latent(self, start: str, x: Tensor) -> Tensor:
        """Paper 2405.04434."""
        if self.one.query_rank:
            low = self.norm(f"{start}q_a_layernorm", self.linear(f"{start}q_a_proj", x))
            q = self.linear(f"{start}q_b_proj", low)
        else:
            q = self.linear(f"{start}q_proj", x)
        low, k_turned = self.linear(f"{start}kv_a_proj_with_mqa", x).split([RANK, ROTATED], dim=-1)
        both = self.linear(f"{start}kv_b_proj", self.norm(f"{start}kv_a_layernorm", low))
        q_plain, q_turned = q.unflatten(-1, (HEADS, -1)).transpose(1, 2).split([PLAIN, ROTATED], dim=-1)
        k_plain, v = both.unflatten(-1, (HEADS, -1)).transpose(1, 2).split([PLAIN, VALUE], dim=-1)
        q = torch.cat((q_plain, self.turned(q_turned)), dim=-1)
        k = torch.cat((k_plain, self.turned(k_turned[:, None]).expand_as(q_turned)), dim=-1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.linear(f"{start}o_proj", y.transpose(1, 2).flatten(2))

    def turned(self, x: Tensor) -> Tensor:
        speeds = self.one.base ** (-torch.arange(0, ROTATED, 2) / ROTATED)
        turns = torch.polar(torch.ones(1), torch.arange(x.shape[-2])[:, None] * speeds)
        if self.one.interleaved:
            real, imaginary = x[..., 0::2], x[..., 1::2]
        else:
            real, imaginary = x.chunk(2, dim=-1)
        y = torch.complex(real, imaginary) * turns
        return torch.cat((y.real, y.imag), dim=-1)

    def mamba(self, start: str, x: Tensor) -> Tensor:
        """Paper 2312.00752."""
        x, gate = self.linear(f"{start}in_proj", x).chunk(2, dim=-1)
        x = self.convolved(start, x)
        step, b, c = self.linear(f"{start}x_proj", x).split([STEP_RANK, STATE, STATE], dim=-1)
        if self.one.inner_norms:
            step, b, c = (
                self.root_mean_square(f"{start}{name}_layernorm", part)
                for name, part in (("dt", step), ("b", b), ("c", c))
            )
        step = F.softplus(self.linear(f"{start}dt_proj", step))
        a = -self.tensors[f"{start}A_log"].exp()
        state, ys = torch.zeros(len(x), MIXED, STATE), []
        for t in range(x.shape[1]):
            change = step[:, t, :, None]
            state = state * (change * a).exp() + change * b[:, t, None] * x[:, t, :, None]
            ys.append((state * c[:, t, None]).sum(-1))
        y = torch.stack(ys, dim=1) + self.tensors[f"{start}D"] * x
        return self.linear(f"{start}out_proj", y * F.silu(gate))

    def mamba2(self, start: str, x: Tensor) -> Tensor:
        """Paper 2405.21060."""
        states = self.one.groups * STATE
        sizes = [MIXED, MIXED + 2 * states, MIXER_HEADS]
        gate, x, step = self.linear(f"{start}in_proj", x).split(sizes, dim=-1)
        x, b, c = self.convolved(start, x).split([MIXED, states, states], dim=-1)
        heads = x.unflatten(-1, (MIXER_HEADS, -1))
        each = MIXER_HEADS // self.one.groups
        b, c = (part.unflatten(-1, (-1, STATE)).repeat_interleave(each, dim=2) for part in (b, c))
        step = F.softplus(step + self.tensors[f"{start}dt_bias"])
        kept = (step * -self.tensors[f"{start}A_log"].exp()).exp()
        state, ys = torch.zeros(len(x), *heads.shape[2:], STATE), []
        for t in range(x.shape[1]):
            added = (step[:, t, :, None] * heads[:, t])[..., None] * b[:, t, :, None]
            state = state * kept[:, t, :, None, None] + added
            ys.append((state * c[:, t, :, None]).sum(-1))
        y = torch.stack(ys, dim=1) + self.tensors[f"{start}D"][:, None] * heads
        return self.linear(f"{start}out_proj", self.grouped(f"{start}norm", y.flatten(2) * F.silu(gate)))

    def grouped(self, name: str, x: Tensor) -> Tensor:
        """A root mean square over each group, as published for groups on several devices."""
        parts = x.unflatten(-1, (self.one.groups, -1))
        scale = torch.rsqrt(parts.pow(2).mean(-1, keepdim=True) + self.one.eps)
        return (parts * scale).flatten(-2) * self.tensors[f"{name}.weight"]

    def delta(self, start: str, x: Tensor) -> Tensor:
        """Paper 2412.06464."""
        q, k, v, gate, rate, step = self.of_delta(start, x)
        sizes = [KEY_HEADS * STATE, KEY_HEADS * STATE, MIXER_HEADS * STATE]
        q, k, v = self.convolved(start, torch.cat((q, k, v), dim=-1)).split(sizes, dim=-1)
        q, k, v = (part.unflatten(-1, (-1, STATE)) for part in (q, k, v))
        each = MIXER_HEADS // KEY_HEADS
        # as published code divides: relu may leave next to nothing of a head
        unit = (part * torch.rsqrt(part.pow(2).sum(-1, keepdim=True) + 1e-6) for part in (q, k))
        q, k = (part.repeat_interleave(each, dim=2) for part in unit)
        fading = -self.tensors[f"{start}A_log"].exp() * F.softplus(step + self.tensors[f"{start}dt_bias"])
        rate, state, ys = rate.sigmoid(), torch.zeros(len(x), MIXER_HEADS, STATE, STATE), []
        for t in range(x.shape[1]):
            state = state * fading[:, t, :, None, None].exp()
            known = torch.einsum("bhk,bhkv->bhv", k[:, t], state)
            state = state + k[:, t, ..., None] * ((v[:, t] - known) * rate[:, t, :, None])[..., None, :]
            ys.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * STATE**-0.5, state))
        y = self.root_mean_square(f"{start}norm", torch.stack(ys, dim=1))
        y = y * F.silu(gate.unflatten(-1, (MIXER_HEADS, STATE)))
        return self.linear(f"{start}out_proj", y.flatten(2))

    def of_delta(self, start: str, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys, values, gate, rates and steps; joined ones are in groups of a key's head."""
        keys, values = KEY_HEADS * STATE, MIXER_HEADS * STATE
        if not self.one.is_joined:
            q, k, v = self.linear(f"{start}in_proj_qkv", x).split([keys, keys, values], dim=-1)
            return q, k, v, *(self.linear(f"{start}in_proj_{name}", x) for name in "zba")
        each = MIXER_HEADS // KEY_HEADS
        joined = self.linear(f"{start}in_proj_qkvz", x).unflatten(-1, (KEY_HEADS, -1))
        rates = self.linear(f"{start}in_proj_ba", x).unflatten(-1, (KEY_HEADS, -1))
        parts = (*joined.split([STATE, STATE, each * STATE, each * STATE], dim=-1), *rates.chunk(2, dim=-1))
        return tuple(part.flatten(2) for part in parts)

    def convolved(self, start: str, x: Tensor) -> Tensor:
        weight, bias = self.tensors[f"{start}conv1d.weight"], self.tensors.get(f"{start}conv1d.bias")
        padded = F.pad(x.transpose(1, 2), (KERNEL - 1, 0))
        return self.activation(F.conv1d(padded, weight, bias, groups=len(weight))).transpose(1, 2)

    def activation(self, x: Tensor) -> Tensor:
        return F.silu(x) if self.one.own_activation else ACTIVATIONS[self.one.activation](x)


def config(one: Draw) -> dict[str, Any]:
    """What a class of the model hub would have written of a draw."""
    found = decoders.config(one)
    if one.position == "none":
        found.pop("rope_theta")
    if one.mixer == "latent":
        del found["head_dim"]
        return found | {
            "q_lora_rank": QUERY_RANK if one.query_rank else None, "kv_lora_rank": RANK, "qk_nope_head_dim": PLAIN,
            "qk_rope_head_dim": ROTATED, "v_head_dim": VALUE, "rope_interleave": one.interleaved,
        }  # fmt: skip
    if one.mixer == "delta":
        named = ["linear_attention" if one.is_mixer(layer) else "full_attention" for layer in range(LAYERS)]
        return found | {
            "layer_types": named, "linear_conv_kernel_dim": KERNEL, "linear_key_head_dim": STATE, "linear_value_head_dim": STATE,
            "linear_num_key_heads": KEY_HEADS, "linear_num_value_heads": MIXER_HEADS,
        }  # fmt: skip
    types = ["mamba" if one.is_mixer(layer) else "attention" for layer in range(LAYERS)]
    found |= {
        "layers_block_type": types, "mamba_d_state": STATE, "mamba_d_conv": KERNEL, "mamba_expand": MIXED // HIDDEN,
        "mamba_conv_bias": True, "mamba_proj_bias": False, "mamba_hidden_act": "silu" if one.own_activation else None,
    }  # fmt: skip
    if one.mixer == "mamba":
        return found | {"mamba_dt_rank": STEP_RANK}
    return found | {
        "mamba_n_heads": MIXER_HEADS, "mamba_d_head": MIXED // MIXER_HEADS, "mamba_n_groups": one.groups,
        "mamba_chunk_size": 16,
    }  # fmt: skip


def truth(one: Draw) -> dict[str, Any]:
    """What a draw answers to what may be asked of it."""
    return decoders.truth(one) | {
        "rotary": one.position == "rotary",
        "attention.rotary": one.position == "rotary",
        "rotary.style": "interleaved" if one.interleaved else "half",
        "attention.scale": (PLAIN + ROTATED if one.mixer == "latent" else one.head_dim) ** -0.5,
        "state_space.activation": "silu" if one.own_activation else one.activation,
        "attention.activation": one.activation,  # of the convolutions before a delta rule
        "attention.gate_activation": "silu",
    }


def write(one: Draw, folder: Path, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The checkpoint of a draw; its inputs, token ids (2, 9), and its outputs, the logits (2, 9, WORDS)."""
    generator = torch.Generator().manual_seed(seed)
    tensors = Weights(one, generator).all()
    store(folder, tensors, config(one))
    ids = torch.randint(0, WORDS, (2, 9), generator=generator)
    return {"input_ids": ids}, {"logits": Reference(one, tensors)(ids)}
