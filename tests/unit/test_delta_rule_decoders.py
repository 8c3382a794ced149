"""Decoders whose memory is written by the delta rule, of types that nobody lists, against a loop over the positions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

import mapper

ANSWERS = {
    "norm.kind": "RMSNorm",
    "rotary": False,
    "alibi": False,
    "position.sinusoidal": None,
}  # which nothing shows
WIDTH, HEADS, KEY, VALUE, KERNEL = 24, 3, 4, 8, 3


def linear(rows: int, columns: int) -> nn.Linear:
    return nn.Linear(columns, rows, bias=False)


def short(channels: int) -> nn.Conv1d:
    return nn.Conv1d(channels, channels, KERNEL, groups=channels, padding=KERNEL - 1, bias=False)


def of_length_one(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + 1e-6)


class Memory(nn.Module):
    """A matrix for each head: what it holds for a key is moved to the value (papers 2406.06484 and 2412.06464)."""

    def __init__(self, decays: bool, has_gate: bool):
        super().__init__()
        self.q_proj, self.k_proj = linear(HEADS * KEY, WIDTH), linear(HEADS * KEY, WIDTH)
        self.v_proj, self.o_proj = linear(HEADS * VALUE, WIDTH), linear(WIDTH, HEADS * VALUE)
        self.q_conv1d, self.k_conv1d = short(HEADS * KEY), short(HEADS * KEY)
        self.v_conv1d, self.b_proj = short(HEADS * VALUE), linear(HEADS, WIDTH)
        self.o_norm = nn.RMSNorm(VALUE, eps=1e-6)
        if decays:
            self.a_proj = linear(HEADS, WIDTH)
            self.A_log, self.dt_bias = nn.Parameter(torch.rand(HEADS)), nn.Parameter(torch.rand(HEADS))
        if has_gate:
            self.g_proj = linear(HEADS * VALUE, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            F.silu(conv(of(x).mT)[..., : x.shape[1]]).mT.unflatten(-1, (HEADS, -1))
            for of, conv in (
                (self.q_proj, self.q_conv1d), (self.k_proj, self.k_conv1d), (self.v_proj, self.v_conv1d)
            )
        )  # fmt: skip
        q, k, strength = of_length_one(q) * KEY**-0.5, of_length_one(k), self.b_proj(x).sigmoid()
        kept = torch.ones(x.shape[0], x.shape[1], HEADS)
        if hasattr(self, "A_log"):
            kept = torch.exp(-self.A_log.exp() * F.softplus(self.a_proj(x) + self.dt_bias))
        memory, read = torch.zeros(x.shape[0], HEADS, KEY, VALUE), []
        for t in range(x.shape[1]):
            memory = memory * kept[:, t, :, None, None]
            held = torch.einsum("bhk,bhkv->bhv", k[:, t], memory)
            change = strength[:, t, :, None] * (v[:, t] - held)
            memory = memory + torch.einsum("bhk,bhv->bhkv", k[:, t], change)
            read.append(torch.einsum("bhk,bhkv->bhv", q[:, t], memory))
        y = self.o_norm(torch.stack(read, dim=1)).flatten(2)
        return self.o_proj(y * F.silu(self.g_proj(x)) if hasattr(self, "g_proj") else y)


class Layer(nn.Module):
    def __init__(self, decays: bool, has_gate: bool):
        super().__init__()
        self.attn_norm, self.mlp_norm = nn.RMSNorm(WIDTH, eps=1e-6), nn.RMSNorm(WIDTH, eps=1e-6)
        self.attn = Memory(decays, has_gate)
        self.mlp = nn.ModuleDict(
            {"gate_proj": linear(32, WIDTH), "up_proj": linear(32, WIDTH), "down_proj": linear(WIDTH, 32)}
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.attn_norm(x))
        y = self.mlp_norm(x)
        return x + self.mlp["down_proj"](F.silu(self.mlp["gate_proj"](y)) * self.mlp["up_proj"](y))


class Decoder(nn.Module):
    def __init__(self, decays: bool, has_gate: bool):
        super().__init__()
        self.model = nn.ModuleDict(
            {
                "embeddings": nn.Embedding(30, WIDTH),
                "layers": nn.ModuleList(Layer(decays, has_gate) for _ in range(2)),
                "norm": nn.RMSNorm(WIDTH, eps=1e-6),
            }
        )
        self.lm_head = linear(30, WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.model["embeddings"](ids)
        for layer in self.model["layers"]:
            x = layer(x)
        return self.lm_head(self.model["norm"](x))


def written(folder: Path, decays: bool, has_gate: bool, **fields: object) -> Decoder:
    """A decoder whose weights and config lie in the folder."""
    model = Decoder(decays, has_gate).eval()
    for value in model.parameters():
        nn.init.normal_(value, std=0.3)
    said = {
        "model_type": "unheard_of", "architectures": ["UnheardOfForCausalLM"], "vocab_size": 30, "hidden_size": WIDTH,
        "num_hidden_layers": 2, "num_heads": HEADS, "hidden_act": "swish", "norm_eps": 1e-6, "attn_mode": "chunk",
        "use_short_conv": True, "use_gate": has_gate, "tie_word_embeddings": False,
        **({"output_gate_activation": "swish"} if has_gate else {}),
    }  # fmt: skip
    save_file(model.state_dict(), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(said | fields))
    return model


@pytest.mark.parametrize("has_gate", [False, True])
@pytest.mark.parametrize("decays", [False, True])
def test_what_is_read_of_a_memory_is_what_a_loop_reads(decays: bool, has_gate: bool, tmp_path: Path) -> None:
    wanted = written(tmp_path, decays, has_gate)
    model = mapper.build(tmp_path, hints=ANSWERS)
    ids = torch.randint(30, (2, 21))
    with torch.no_grad():
        assert torch.allclose(model(ids).logits, wanted(ids), atol=1e-5)


def test_a_memory_that_may_turn_over_is_asked_about(tmp_path: Path) -> None:
    """Twice the strength: what is held may become its opposite."""
    written(tmp_path, True, True, allow_neg_eigval=True)
    asked = mapper.inspect(tmp_path, hints=ANSWERS).architecture.questions
    assert [question.candidates for question in asked] == [("allow_neg_eigval",)]


def test_queries_and_keys_whose_sum_is_one_are_none_of_length_one(tmp_path: Path) -> None:
    written(tmp_path, False, False, qk_norm="sum")
    read = mapper.inspect(tmp_path, hints=ANSWERS).architecture
    assert read.reading == "skeleton" and "attention.unit_keys" in str(read.missing)


def test_an_activation_that_queries_and_keys_alone_have_is_none_of_all(tmp_path: Path) -> None:
    written(tmp_path, False, False, qk_activation="relu")
    read = mapper.inspect(tmp_path, hints=ANSWERS).architecture
    assert read.missing and "qk_activation" in str(read.missing)


def test_what_convolutions_have_is_asked_where_the_feed_forward_has_no_silu(tmp_path: Path) -> None:
    written(tmp_path, True, False, hidden_act="gelu")
    asked = mapper.inspect(tmp_path, hints=ANSWERS).architecture.questions
    assert "attention.activation" in {question.fact for question in asked}
