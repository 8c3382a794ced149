"""Scores with a bias by distance and more besides, of types that nobody lists: computed together, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

import mapper

WIDTH, HEADS, INNER, WORDS, LAYERS = 24, 4, 40, 30, 2
SIZE = WIDTH // HEADS
CONFIG = {
    "model_type": "unheard_of", "architectures": ["UnheardOfLMHeadModel"], "vocab_size": WORDS, "n_embd": WIDTH,
    "n_layer": LAYERS, "n_head": HEADS, "n_inner": INNER, "n_positions": 32, "layer_norm_epsilon": 1e-5,
    "activation_function": "swiglu", "position_embedding_type": "alibi", "tie_word_embeddings": True,
}  # fmt: skip


def tensors() -> dict[str, Tensor]:
    """A decoder with GPT-2's names, kernels stored [in, out], whose feed-forward networks have a gate."""
    made = {"transformer.wte.weight": torch.randn(WORDS, WIDTH) * 0.3}
    norms = [f"h.{n}.{name}" for n in range(LAYERS) for name in ("ln_1", "ln_2")]
    for norm in (*norms, "ln_f"):
        made[f"transformer.{norm}.weight"] = 1 + 0.1 * torch.randn(WIDTH)
        made[f"transformer.{norm}.bias"] = 0.1 * torch.randn(WIDTH)
    maps = {
        "attn.c_attn": (WIDTH, 3 * WIDTH), "attn.c_proj": (WIDTH, WIDTH), "mlp.c_fc": (WIDTH, INNER),
        "mlp.c_fc2": (WIDTH, INNER), "mlp.c_proj": (INNER, WIDTH),
    }  # fmt: skip
    for n in range(LAYERS):
        for name, (rows, columns) in maps.items():
            made[f"transformer.h.{n}.{name}.weight"] = torch.randn(rows, columns) * 0.2
            made[f"transformer.h.{n}.{name}.bias"] = torch.randn(columns) * 0.1
    return made


def write(folder: Path, **fields: object) -> dict[str, Tensor]:
    made = tensors()
    save_file(made, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG | fields))
    return made


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, SIZE)).transpose(1, 2)


def logits(made: dict[str, Tensor], ids: Tensor, scale: float, embeds: float, factor: float) -> Tensor:
    """By hand: slopes 2 ** (-8 h / heads) times the distance (paper 2108.12409)."""

    def mapped(x: Tensor, name: str) -> Tensor:
        return x @ made[f"transformer.{name}.weight"] + made[f"transformer.{name}.bias"]

    def normed(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (WIDTH,), made[f"transformer.{name}.weight"], made[f"transformer.{name}.bias"])

    places = torch.arange(ids.shape[1])
    slopes = torch.tensor([2 ** (-8 * (head + 1) / HEADS) for head in range(HEADS)])
    bias = slopes[:, None, None] * (places - places[:, None])
    bias = bias.masked_fill(places > places[:, None], -torch.inf)
    x = made["transformer.wte.weight"][ids] * embeds
    for n in range(LAYERS):
        q, k, v = map(heads, mapped(normed(x, f"h.{n}.ln_1"), f"h.{n}.attn.c_attn").chunk(3, dim=-1))
        read = (q @ k.mT * scale + bias).softmax(dim=-1) @ v
        x = x + mapped(read.transpose(1, 2).flatten(2), f"h.{n}.attn.c_proj")
        y = normed(x, f"h.{n}.ln_2")
        y = F.silu(mapped(y, f"h.{n}.mlp.c_fc2")) * mapped(y, f"h.{n}.mlp.c_fc")
        x = x + mapped(y, f"h.{n}.mlp.c_proj")
    return F.linear(normed(x, "ln_f"), made["transformer.wte.weight"]) * factor


def test_scores_with_a_bias_have_a_scale_of_their_own(tmp_path: Path) -> None:
    """Widths scaled by muP (paper 2203.03466): scores divided by the size of a head, factors on what comes in and goes out."""
    made = write(tmp_path, scale_qk_dot_by_d=True, embeddings_scale=4.0, width_scale=0.5)
    ids = torch.randint(WORDS, (2, 9))
    with torch.no_grad():
        given = mapper.build(tmp_path)(ids).logits
    assert torch.allclose(given, logits(made, ids, 1 / SIZE, 4.0, 0.5), atol=1e-4)


def test_a_bias_that_no_scores_take_is_no_reading(tmp_path: Path) -> None:
    write(tmp_path, attn_logit_softcapping=30.0)
    read = mapper.inspect(tmp_path).architecture
    assert read.reading == "skeleton"
    assert "tower at 'transformer' computes 'bias', which nothing inside it reads" in read.missing
