"""Transformers as people write them themselves: names of no library, no config, and the answers that nothing stored shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mapper

WORDS, WIDTH, HEADS, LENGTH = 150, 48, 4, 32


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of heads side by side. (B, T, W) -> (B, T, W)"""
    q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class Shifted(nn.Module):
    """A norm with parameters called scale and shift."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (WIDTH,), self.scale, self.shift)


class Separate(nn.Module):
    """Queries, keys and values by their whole words, a mask beside them, maps in a list called layers."""

    def __init__(self) -> None:
        super().__init__()
        self.att = nn.Module()
        self.att.W_query, self.att.W_key, self.att.W_value = (
            nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3)
        )
        self.att.out_proj = nn.Linear(WIDTH, WIDTH)
        self.att.register_buffer("mask", torch.triu(torch.ones(LENGTH, LENGTH), diagonal=1))
        self.ff = nn.Module()
        self.ff.layers = nn.Sequential(nn.Linear(WIDTH, 96), nn.GELU("tanh"), nn.Linear(96, WIDTH))
        self.norm1, self.norm2 = Shifted(), Shifted()

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.att.out_proj(attend(self.att.W_query(y), self.att.W_key(y), self.att.W_value(y)))
        return x + self.ff.layers(self.norm2(x))


class Flat(nn.Module):
    """All maps of a layer in one folder, and norms with letters."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_a, self.norm_b = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.to_qkv, self.to_out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)
        self.fc, self.fc_out = nn.Linear(WIDTH, 96), nn.Linear(96, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.to_out(attend(*self.to_qkv(self.norm_a(x)).chunk(3, -1)))
        return x + self.fc_out(F.gelu(self.fc(self.norm_b(x)), approximate="tanh"))


class Head(nn.Module):
    """One head, with the triangle that hides later words."""

    def __init__(self) -> None:
        super().__init__()
        size = WIDTH // HEADS
        self.key, self.query, self.value = (nn.Linear(WIDTH, size, bias=False) for _ in range(3))
        self.register_buffer("tril", torch.tril(torch.ones(LENGTH, LENGTH)))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2) * self.key.out_features**-0.5
        hidden = self.get_buffer("tril")[: x.shape[1], : x.shape[1]] == 0
        weights: Tensor = scores.masked_fill(hidden, -math.inf).softmax(-1)
        return weights @ self.value(x)


class HeadsApart(nn.Module):
    """Heads that are modules of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.sa = nn.Module()
        self.sa.heads, self.sa.proj = nn.ModuleList(Head() for _ in range(HEADS)), nn.Linear(WIDTH, WIDTH)
        self.ffwd = nn.Module()
        self.ffwd.net = nn.Sequential(nn.Linear(WIDTH, 96), nn.GELU("tanh"), nn.Linear(96, WIDTH))
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln1(x)
        x = x + self.sa.proj(torch.cat([head(y) for head in self.sa.heads], dim=-1))
        return x + self.ffwd.net(self.ln2(x))


class Decoder(nn.Module):
    """Words and positions, layers, a norm and a head, under any names."""

    def __init__(self, layer: Callable[[], nn.Module], names: tuple[str, ...], norm: Callable[[], nn.Module]):
        super().__init__()
        self.parts = names
        made: tuple[nn.Module, ...] = (
            nn.Embedding(WORDS, WIDTH),
            nn.Embedding(LENGTH, WIDTH),
            nn.ModuleList(layer() for _ in range(3)),
            norm(),
            nn.Linear(WIDTH, WORDS, bias=False),
        )
        for name, part in zip(names, made, strict=True):
            self.add_module(name, part)

    def forward(self, ids: Tensor) -> Tensor:
        token, position, layers, norm, head = (self.get_submodule(name) for name in self.parts)
        x = token(ids) + position(torch.arange(ids.shape[1]))
        for layer in layers:  # type: ignore[attr-defined]
            x = layer(x)
        logits: Tensor = head(norm(x))
        return logits


def norm() -> nn.Module:
    return nn.LayerNorm(WIDTH)


MODELS = {
    "separate": lambda: Decoder(Separate, ("tok_emb", "pos_emb", "trf_blocks", "final_norm", "out_head"), Shifted),
    "flat": lambda: Decoder(Flat, ("tok", "pos", "stack", "final", "unembed"), norm),
    "heads": lambda: Decoder(
        HeadsApart, ("token_embedding_table", "position_embedding_table", "blocks", "ln_f", "lm_head"), norm
    ),
}  # fmt: skip
ANSWERS = {
    "task": "causal_lm",
    "attention.causal": True,
    "attention.heads": HEADS,
    "norm.eps": 1e-5,
    "feed_forward.activation": "gelu_pytorch_tanh",
}
ASKED = {  # besides epsilon and activation: what the file itself does not show
    "separate": {"attention.heads"},
    "flat": {"task", "attention.causal", "attention.heads"},
    "heads": set(),
}


@pytest.mark.parametrize("name", MODELS)
def test_own_names_are_read_and_run_once_the_questions_are_answered(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    path = tmp_path / "model.pt"
    torch.save(model.state_dict(), path)
    said: dict[str, Any] = {}
    while questions := mapper.inspect(path, hints=said).architecture.questions:
        said |= {question.name: ANSWERS[question.fact] for question in questions}
    assert said.keys() <= {"norm.eps", "feed_forward.activation"} | ASKED[name]
    built = mapper.build(path, hints=said)
    ids = torch.randint(1, WORDS, (2, 11))
    with torch.no_grad():
        torch.testing.assert_close(built(input_ids=ids).logits, model(ids), atol=1e-5, rtol=1e-4)


def test_a_number_that_nothing_shows_is_asked_with_usual_ones(tmp_path: Path) -> None:
    torch.save(MODELS["flat"]().state_dict(), tmp_path / "model.pt")
    text = mapper.inspect(tmp_path / "model.pt").to_text()
    assert "norm.eps" in text and "usual: 1e-05, 1e-06, 1e-12" in text


def test_heads_of_their_own_are_as_many_as_the_config_of_the_source_has(tmp_path: Path) -> None:
    torch.save(MODELS["heads"]().state_dict(), tmp_path / "model.pt")
    text = mapper.generate(tmp_path / "model.pt", hints={"norm.eps": 1e-5, "feed_forward.activation": "gelu"})
    assert "class SingleHead(nn.Module):" in text
    assert "self.heads = nn.ModuleList(SingleHead(config) for _ in range(config.heads))" in text


class Summed(nn.Module):
    """An encoder whose layers are called one by one, and norm each sum in a module of its own."""

    def __init__(self, folder: str, block: str) -> None:
        super().__init__()
        self.embedding, layers = nn.Embedding(WORDS, WIDTH), nn.Module()
        self.add_module(folder, layers)
        for at in range(2):
            layer, ffn = nn.Module(), nn.Module()
            layer.attention = nn.Module()
            for name in ("W_q", "W_k", "W_v", "W_o"):
                layer.attention.add_module(name, nn.Linear(WIDTH, WIDTH))
            ffn.dense1, ffn.dense2 = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)
            layer.addnorm1, layer.ffn, layer.addnorm2 = nn.Module(), ffn, nn.Module()
            layer.addnorm1.ln, layer.addnorm2.ln = norm(), norm()
            layers.add_module(f"{block}{at}", layer)
        self.layers_called = list(layers.children())

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1])[:, None] / 10000 ** (torch.arange(0, WIDTH, 2) / WIDTH)
        x = self.embedding(ids) * WIDTH**0.5 + torch.stack((places.sin(), places.cos()), -1).flatten(1)
        for layer in self.layers_called:
            heads = (
                getattr(layer.attention, f"W_{part}")(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
                for part in "qkv"
            )
            y = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
            x = layer.addnorm1.ln(x + layer.attention.W_o(y))
            x = layer.addnorm2.ln(x + layer.ffn.dense2(F.relu(layer.ffn.dense1(x))))
        return x


@pytest.mark.parametrize("names", [("blks", "block"), ("blocks", "block_")])
def test_layers_one_by_one_with_norms_of_sums_are_a_list_of_post_norm_layers(names: tuple[str, str]) -> None:
    torch.manual_seed(0)
    model = Summed(*names).eval()
    said = {
        "task": "base", "attention.causal": False, "rotary": False, "attention.heads": HEADS, "norm.eps": norm().eps,
        "feed_forward.activation": "relu", "position.sinusoidal": "interleaved", "position.counting": "all",
        "embedding.scale": WIDTH**0.5, "attention.rotary": False,
    }  # fmt: skip
    ids = torch.randint(1, WORDS, (2, 11))
    with torch.no_grad():
        made = mapper.build(model.state_dict(), hints=said)(input_ids=ids)
        torch.testing.assert_close(made.last_hidden_state, model(ids), atol=1e-5, rtol=1e-4)
