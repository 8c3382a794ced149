"""Shapes and biases show how maps are stored, whatever the family of these names says."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mapper
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.inference import infer
from tests.shipped import RULEBOOK

WIDTH, HEADS, LAYERS, WORDS, LENGTH = 32, 4, 2, 65, 16
TURNED = "are stored [out, in] here"


class Norm(nn.Module):
    """LayerNorm with an optional bias."""

    def __init__(self, bias: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH) * 0.2 + 1)
        self.bias = nn.Parameter(torch.randn(WIDTH) * 0.2) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class Attention(nn.Module):
    def __init__(self, bias: bool):
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH, bias=bias)
        self.c_proj = nn.Linear(WIDTH, WIDTH, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        parts = (
            part.view(rows, length, HEADS, -1).transpose(1, 2) for part in self.c_attn(x).split(WIDTH, 2)
        )
        query, key, value = parts
        scores = query @ key.transpose(-2, -1) / math.sqrt(key.size(-1))
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
        return self.c_proj((scores.softmax(-1) @ value).transpose(1, 2).reshape(rows, length, WIDTH))


class FeedForward(nn.Module):
    def __init__(self, bias: bool):
        super().__init__()
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH, bias=bias)
        self.c_proj = nn.Linear(4 * WIDTH, WIDTH, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, bias: bool):
        super().__init__()
        self.ln_1, self.attn = Norm(bias), Attention(bias)
        self.ln_2, self.mlp = Norm(bias), FeedForward(bias)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Model(nn.Module):
    """A decoder with GPT-2's names, its maps as torch stores them."""

    def __init__(self, bias: bool):
        super().__init__()
        parts = {"wte": nn.Embedding(WORDS, WIDTH), "wpe": nn.Embedding(LENGTH, WIDTH), "ln_f": Norm(bias)}
        self.transformer = nn.ModuleDict({**parts, "h": nn.ModuleList(Block(bias) for _ in range(LAYERS))})
        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.transformer.wte(ids) + self.transformer.wpe(torch.arange(ids.shape[1]))
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))


def model(bias: bool) -> Model:
    torch.manual_seed(0)
    made = Model(bias)
    for parameter in made.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.3)  # so that one activation is told from the next
    return made.eval()


def logits(built: Any, ids: Tensor) -> Tensor:
    with torch.no_grad():
        return built(input_ids=ids).logits


def saved(made: Model, path: Any, prefix: str, settings: bool) -> None:
    state = {prefix + name: value for name, value in made.state_dict().items()}
    arguments = {
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_embd": WIDTH,
        "block_size": LENGTH,
        "vocab_size": WORDS,
        "dropout": 0.0,
    }
    beside = {"model_args": arguments, "iter_num": 7} if settings else {}
    torch.save({"model": state, **beside} if settings else state, path)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("prefix", "settings"), [("", False), ("_orig_mod.", True)])
def test_a_decoder_of_these_names_gives_its_outputs(
    bias: bool, prefix: str, settings: bool, tmp_path
) -> None:
    made = model(bias)
    saved(made, tmp_path / "ckpt.pt", prefix, settings)
    hints: dict[str, Any] = {"feed_forward.activation": "gelu"}
    hints |= {} if settings else {"attention.heads": HEADS}
    hints |= {} if bias else {"norm.kind": "LayerNorm"}  # a listed type of these names has others
    report = json.loads(mapper.inspect(tmp_path / "ckpt.pt").to_json())
    assert {question["fact"] for question in report["questions"]} == set(hints)
    ids = torch.randint(0, WORDS, (2, 9), generator=torch.Generator().manual_seed(1))
    built = mapper.build(tmp_path / "ckpt.pt", hints=hints)
    with torch.no_grad():
        wanted = made(ids)
    assert (logits(built, ids) - wanted).abs().max() <= 1e-5 * wanted.abs().max()


def tensors(bias: bool, stored_in_out: bool = False, drop: str = "") -> dict[str, TensorInfo]:
    """The header of such a model; `stored_in_out`: with maps as GPT-2 was published."""
    found = {}
    for name, value in model(bias).state_dict().items():
        is_map = value.dim() == 2 and ".h." in name
        shape = tuple(value.shape[::-1] if is_map and stored_in_out else value.shape)
        found |= {name: TensorInfo(shape, "F32")} if not drop or drop not in name else {}
    return found


@pytest.mark.parametrize("bias", [True, False])
def test_shapes_win_over_a_type_that_is_listed(bias: bool) -> None:
    config = {"model_type": "gpt2", "n_head": HEADS, "n_embd": WIDTH, "n_layer": LAYERS}
    read = infer(Checkpoint("x", "manifest", tensors(bias), config), RULEBOOK)
    assert (read.family, read.reading, read.missing) == ("gpt2", "unverified", [])
    assert any(TURNED in line for line in read.findings)
    assert {leaf.form for leaf in read.leaves} == {"plain"}


def test_maps_as_published_stay_as_the_family_says() -> None:
    config = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_layer": LAYERS,
        "n_head": HEADS,
        "tie_word_embeddings": True,
    }
    read = infer(Checkpoint("x", "manifest", tensors(True, stored_in_out=True), config), RULEBOOK)
    assert (read.reading, read.findings) == ("exact", [])
    forms = {leaf.place[-1]: leaf.form for leaf in read.leaves if leaf.kind == "Linear" and leaf.block}
    assert {forms[name] for name in ("c_attn", "c_proj", "c_fc")} == {"transposed"}


def test_one_missing_bias_is_an_incomplete_file_and_no_other_architecture() -> None:
    config = {"model_type": "gpt2", "n_head": HEADS}
    for stored_in_out in (True, False):
        held = tensors(True, stored_in_out, drop="c_fc.bias")
        with pytest.raises(mapper.MapperError, match=r"c_fc\.bias is missing"):
            infer(Checkpoint("x", "manifest", held, config), RULEBOOK)


def test_a_contradiction_is_the_loss_of_a_family_that_only_names_tell() -> None:
    """A map whose two extents fit no reading of the family: the file is read on without it, and says so."""
    held = tensors(True)
    for layer in range(LAYERS):
        held[f"transformer.h.{layer}.ln_2.weight"] = TensorInfo((WIDTH + 1,), "F32")
        held[f"transformer.h.{layer}.ln_2.bias"] = TensorInfo((WIDTH + 1,), "F32")
    config = {"model_type": "unheard_of", "n_head": HEADS}
    read = infer(Checkpoint("x", "manifest", held, config), RULEBOOK)
    assert read.family is None
    assert any("the names are those of 'gpt2', and it does not fit" in line for line in read.findings)
