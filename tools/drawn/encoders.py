"""Encoders of texts of known pieces in combinations that nobody published: tensors, config, and what they compute.

Written apart from all rules, for tools/combinations.py: `Reference` is the truth that a reading is compared with. Names of
each scheme, and the fields that its published classes write, stand in tools/drawn/encoder_names.py.
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

HEADS, LAYERS, WORDS, INNER, SEGMENTS, LABELS = 4, 3, 97, 48, 2, 5
HEAD, POSITIONS, NARROW, WINDOW, BUCKETS, FURTHEST = HIDDEN // HEADS, 64, 16, 4, 8, 20
SCHEMES = ("bert", "roberta", "distilbert", "modern", "nomic", "llama", "albert")
POOLED = ("bert", "nomic", "albert")  # whose classifiers read a pooler
COUNTED = {"order": 0, "padding": 2}  # rows of a table of positions before the first


@dataclass(frozen=True)
class Draw:
    """One combination."""

    scheme: str = "bert"  # whose names: one of SCHEMES
    prefix: str = "unheard_of."  # before names of what stands under a head
    norm: str = "layer"  # layer, rms, scale: a layer norm without biases
    placement: str = "post"  # post, pre
    eps: float = 1e-12
    position: str = "order"  # order, padding: learned; sinusoidal, rotary, relative, alibi
    base: float = 10000.0
    types: bool = True  # of tokens, in pairs of texts
    embedding_norm: bool = True
    narrow: bool = False  # embeddings of another size, with a projection
    first_norm: bool = True  # a first layer with pre-norm has its own beside that of embeddings
    fused: bool = False
    bias: bool = True
    query_norm: str | None = None  # head: over each head, wide: over all of them
    kv_heads: int = 4
    window: str | None = None  # all: every layer has one, types: every other
    gated: bool = False
    gate_fused: str | None = None  # first, last: where the gate stands
    activation: str = "gelu"
    head: str = "masked"  # none, pooler, masked, classes, tokens: classes of each of them
    tied: bool = True
    named_type: bool = True  # the config says by `position_embedding_type` what positions are

    @property
    def body(self) -> str:
        return "" if self.head in ("none", "pooler") else self.prefix

    @property
    def width(self) -> int:
        return NARROW if self.narrow else HIDDEN

    @property
    def has_pooler(self) -> bool:
        return self.head == "pooler" or (self.head == "classes" and self.scheme in POOLED)

    @property
    def waves(self) -> bool:
        """Whether positions are sinusoidal, and no tensor stores them."""
        return self.position == "sinusoidal" and self.scheme != "distilbert"

    @property
    def normed_last(self) -> bool:
        return self.placement == "pre"

    @property
    def deep(self) -> int:
        """Layers with weights of their own."""
        return 1 if self.scheme == "albert" else LAYERS

    def sees_window(self, layer: int) -> bool:
        return self.window == "all" or (self.window == "types" and layer != 1)

    def head_activation(self) -> str:
        return self.activation if self.scheme in ("bert", "distilbert", "nomic", "albert") else "gelu"


def draw(seed: int) -> Draw:
    """The combination of a number."""
    pick = random.Random(seed).choice
    found = Draw(
        scheme=pick((*SCHEMES, "bert", "modern")),
        prefix=pick(("unheard_of.", "unheard_of.", "model.", "encoder.")),
        norm=pick(("layer", "layer", "rms", "scale")),
        placement=pick(("post", "pre")),
        eps=pick((1e-12, 1e-5, 1e-6)),
        position=pick(("order", "order", "padding", "sinusoidal", "rotary", "rotary", "relative", "alibi")),
        base=pick((10000.0, 160000.0)),
        types=pick((True, False)),
        embedding_norm=pick((True, True, False)),
        narrow=pick((False, False, False, True)),
        first_norm=pick((True, False)),
        fused=pick((False, False, True)),
        bias=pick((True, True, False)),
        query_norm=pick((None, None, None, "head", "wide")),
        kv_heads=pick((4, 4, 2)),
        window=pick((None, None, None, "all", "types")),
        gated=pick((False, True)),
        gate_fused=pick((None, "first", "last")),
        activation=pick(("gelu", "gelu", "gelu_new", "relu", "silu")),
        head=pick(("none", "pooler", "masked", "masked", "classes", "tokens")),
        tied=pick((True, True, False)),
        named_type=pick((True, False)),
    )
    return _sensible(found)


def _sensible(found: Draw) -> Draw:
    """Without what cannot be together, or has no names in a scheme."""
    scheme, position = found.scheme, found.position
    is_new = scheme in ("modern", "llama")
    if scheme in ("modern", "llama", "distilbert") and found.head == "pooler":
        found = replace(found, head="none")
    if scheme == "llama":
        found = replace(found, placement="pre", fused=False, narrow=False, bias=False, gated=True)
        found = replace(
            found, gate_fused=None, embedding_norm=False, types=False, window=None, position="rotary"
        )
    if scheme in ("modern", "nomic"):
        found = replace(found, fused=True, window=found.window if scheme == "modern" else None)
    if scheme in ("distilbert", "albert"):
        found = replace(found, gated=False, placement="post" if scheme == "albert" else found.placement)
        found = replace(found, fused=False, narrow=scheme == "albert", norm="layer", query_norm=None)
    if scheme == "distilbert":
        where = position if position in ("order", "sinusoidal", "rotary") else "order"
        found = replace(found, types=False, position=where)
    if scheme == "roberta":
        found = replace(found, position="padding" if position == "order" else position, types=found.types)
    elif found.position == "padding":  # a scheme that has no table of positions has turned them above
        found = replace(found, position="order")
    if scheme in ("modern", "nomic"):
        found = replace(found, gate_fused="first" if scheme == "modern" else None)
    if not is_new or found.position not in ("rotary", "order", "padding"):
        found = replace(found, window=None)
    return replace(
        found,
        placement="pre" if found.window else found.placement,
        kv_heads=found.kv_heads if scheme in ("modern", "llama") else 4,
        first_norm=found.first_norm
        or scheme != "modern"
        or not found.embedding_norm
        or found.placement == "post",
        gate_fused=found.gate_fused if found.gated else None,
        query_norm="head" if found.fused and found.query_norm == "wide" else found.query_norm,
        embedding_norm=found.embedding_norm or found.placement == "post",
    )


class Weights(Tensors):
    """The tensors of a draw, by names of this page."""

    one: Draw

    def linear(self, name: str, rows: int, columns: int, bias: bool | None = None) -> None:
        super().linear(name, rows, columns, self.one.bias if bias is None else bias)

    def all(self) -> dict[str, Tensor]:
        self.embeddings()
        for layer in range(self.one.deep):
            self.layer(f"layers.{layer}.", layer)
        if self.one.normed_last:
            self.norm("final_norm")
        if self.one.has_pooler:
            self.linear("pooler", HIDDEN, HIDDEN, True)
        self.head()
        return self.tensors

    def embeddings(self) -> None:
        one = self.one
        self.table("words", WORDS, one.width)
        if one.position in COUNTED:
            self.table("positions", POSITIONS + COUNTED[one.position], one.width)
        if one.position == "sinusoidal" and one.scheme == "distilbert":  # which stores the waves
            self.tensors["positions.weight"] = waves(POSITIONS, one.width, apart=False)
        if one.types:
            self.table("types", SEGMENTS, one.width)
        if one.embedding_norm:
            self.norm("embedding_norm", one.width)
        if one.narrow:
            self.linear("projection", HIDDEN, NARROW, True)
        if one.position == "relative":
            self.table("relative", BUCKETS, HEADS)

    def layer(self, start: str, layer: int) -> None:
        one = self.one
        narrow = one.kv_heads * HEAD
        if layer or one.first_norm:
            self.norm(f"{start}norm_1")
        self.norm(f"{start}norm_2")
        if one.fused:
            self.linear(f"{start}qkv", HIDDEN + 2 * narrow, HIDDEN)
        else:
            for name, size in (("q", HIDDEN), ("k", narrow), ("v", narrow)):
                self.linear(start + name, size, HIDDEN)
        self.linear(f"{start}o", HIDDEN, HIDDEN)
        if one.query_norm:
            self.norm(f"{start}q_norm", HEAD if one.query_norm == "head" else HIDDEN)
            self.norm(f"{start}k_norm", HEAD if one.query_norm == "head" else narrow)
        if one.gate_fused:
            self.linear(f"{start}gate_up", 2 * INNER, HIDDEN)
        else:
            for name in ("gate", "up") if one.gated else ("up",):
                self.linear(start + name, INNER, HIDDEN)
        self.linear(f"{start}down", HIDDEN, INNER)

    def head(self) -> None:
        one = self.one
        if one.head == "masked" and one.scheme == "llama":
            self.linear("decoder", WORDS, HIDDEN, False) if not one.tied else None
        elif one.head == "masked":
            self.linear("transform", one.width, HIDDEN, one.bias)
            self.norm("transform_norm", one.width)
            self.tensors["decoder.bias"] = self.drawn(WORDS)
            if not one.tied:
                self.tensors["decoder.weight"] = self.drawn(WORDS, one.width)
        elif one.head in ("classes", "tokens"):
            if one.head == "classes" and one.scheme in ("roberta", "distilbert"):
                self.linear("class_dense", HIDDEN, HIDDEN, True)
            elif one.scheme == "modern":
                self.linear("transform", HIDDEN, HIDDEN, one.bias)
                self.norm("transform_norm")
            self.linear("classes", LABELS, HIDDEN, True)


def waves(rows: int, size: int, apart: bool) -> Tensor:
    """Sines, then cosines, or in pairs of channels as in paper 1706.03762: (rows, size)."""
    angles = torch.arange(rows)[:, None] * 10000.0 ** (-torch.arange(0, size, 2) / size)
    both = torch.stack((angles.sin(), angles.cos()), dim=-1)
    return both.mT.flatten(1) if apart else both.flatten(1)


class Reference(Layers):
    """What a draw computes: token ids, a mask and types of tokens, each (B, T) -> outputs by name."""

    one: Draw

    def __call__(self, ids: Tensor, mask: Tensor, types: Tensor) -> dict[str, Tensor]:
        one = self.one
        x = self.embedded(ids, mask, types)
        for layer in range(LAYERS):
            x = self.layer(f"layers.{layer if one.deep > 1 else 0}.", x, layer, mask)
        if one.normed_last:
            x = self.norm("final_norm", x)
        pooled = torch.tanh(self.linear("pooler", x[:, 0])) if one.has_pooler else x[:, 0]
        unknown = torch.where(mask[..., None] == 1, 0.0, torch.nan)  # of what stands at paddings
        match one.head:
            case "none":
                return {"last_hidden_state": x + unknown}
            case "pooler":
                return {"last_hidden_state": x + unknown, "pooler_output": pooled}
            case "masked":
                return {"logits": self.words(x) + unknown}
            case "tokens":
                return {"logits": self.linear("classes", self.transformed(x)) + unknown}
        return {"logits": self.linear("classes", self.of_class(pooled))}

    def embedded(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        one = self.one
        x = self.tensors["words.weight"][ids]
        places = torch.arange(ids.shape[1]).expand_as(ids)
        if one.position == "padding":  # whose id is 1, as the row before the first position
            places = mask.cumsum(1) * mask + 1
        if "positions.weight" in self.tensors:
            x = x + self.tensors["positions.weight"][places]
        elif one.waves:
            x = x + waves(POSITIONS, one.width, apart=True)[places]
        if one.types:
            x = x + self.tensors["types.weight"][types]
        x = self.norm("embedding_norm", x) if one.embedding_norm else x
        return self.linear("projection", x) if one.narrow else x

    def layer(self, start: str, x: Tensor, layer: int, mask: Tensor) -> Tensor:
        first, second = f"{start}norm_1", f"{start}norm_2"
        if self.one.placement == "pre":
            before = self.norm(first, x) if f"{first}.weight" in self.tensors else x
            x = x + self.attention(start, before, layer, mask)
            return x + self.feed_forward(start, self.norm(second, x))
        x = self.norm(first, x + self.attention(start, x, layer, mask))
        return self.norm(second, x + self.feed_forward(start, x))

    def attention(self, start: str, x: Tensor, layer: int, mask: Tensor) -> Tensor:
        one = self.one
        q, k, v = self.projected(start, x)
        q, k, v = (part.unflatten(-1, (-1, HEAD)).transpose(1, 2) for part in (q, k, v))
        if one.query_norm == "head":
            q, k = self.norm(f"{start}q_norm", q), self.norm(f"{start}k_norm", k)
        if one.position == "rotary":
            q, k = turned(q, one.base), turned(k, one.base)
        k, v = (part.repeat_interleave(HEADS // one.kv_heads, dim=1) for part in (k, v))
        index = torch.arange(x.shape[1])
        apart = index - index[:, None]
        scores = q @ k.transpose(-1, -2) * HEAD**-0.5 + self.bias(apart)
        near = apart.abs() <= (WINDOW // 2 if one.sees_window(layer) else POSITIONS)
        scores = scores.masked_fill(~(near & (mask[:, None, None] == 1)), torch.finfo(x.dtype).min)
        return self.linear(f"{start}o", (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))

    def bias(self, apart: Tensor) -> Tensor:
        """What is added to scores, by how far a key (column) stands behind a query (row): (heads, T, T), or 0."""
        if self.one.position == "relative":
            return self.tensors["relative.weight"][buckets(apart)].permute(2, 0, 1)
        if self.one.position == "alibi":
            slopes = 2.0 ** (-8 * torch.arange(1, HEADS + 1) / HEADS)
            return -slopes[:, None, None] * apart.abs()
        return torch.zeros(())

    def projected(self, start: str, x: Tensor) -> tuple[Tensor, ...]:
        one = self.one
        if one.fused:
            narrow = one.kv_heads * HEAD
            return self.linear(f"{start}qkv", x).split([HIDDEN, narrow, narrow], dim=-1)
        q, k, v = (self.linear(start + name, x) for name in "qkv")
        if one.query_norm == "wide":
            q, k = self.norm(f"{start}q_norm", q), self.norm(f"{start}k_norm", k)
        return q, k, v

    def feed_forward(self, start: str, x: Tensor) -> Tensor:
        one = self.one
        activation = ACTIVATIONS[one.activation]
        if not one.gated:
            return self.linear(f"{start}down", activation(self.linear(f"{start}up", x)))
        if one.gate_fused:
            halves = self.linear(f"{start}gate_up", x).chunk(2, dim=-1)
            gate, up = halves if one.gate_fused == "first" else reversed(halves)
        else:
            gate, up = self.linear(f"{start}gate", x), self.linear(f"{start}up", x)
        return self.linear(f"{start}down", activation(gate) * up)

    def transformed(self, x: Tensor) -> Tensor:
        if "transform.weight" not in self.tensors:
            return x
        activation = ACTIVATIONS[self.one.head_activation()]
        return self.norm("transform_norm", activation(self.linear("transform", x)))

    def words(self, x: Tensor) -> Tensor:
        weight = self.tensors.get("decoder.weight", self.tensors["words.weight"])
        return F.linear(self.transformed(x), weight, self.tensors.get("decoder.bias"))

    def of_class(self, pooled: Tensor) -> Tensor:
        """What the classes of a text are a linear layer of: (B, HIDDEN)."""
        if "class_dense.weight" in self.tensors:
            return ACTIVATIONS[CLASS_ACTIVATIONS[self.one.scheme]](self.linear("class_dense", pooled))
        return self.transformed(pooled)


CLASS_ACTIVATIONS = {"roberta": "tanh", "distilbert": "relu"}


def buckets(apart: Tensor) -> Tensor:
    """Rows of a table of distances on both sides, in logarithmic buckets (paper 1910.10683): of the shape of `apart`."""
    half, exact = BUCKETS // 2, BUCKETS // 4
    far = apart.abs()
    spread = (far.clamp(min=1) / exact).log() / torch.tensor(FURTHEST / exact).log() * (half - exact)
    row = torch.where(far < exact, far, (exact + spread.long()).clamp(max=half - 1))
    return row + half * (apart > 0)


def truth(one: Draw) -> dict[str, Any]:
    """What a draw answers to what may be asked of it."""
    is_rotary = one.position == "rotary"
    return plain_truth(one) | {
        "attention.causal": False,
        "attention.fused": "concatenated",
        "attention.norms": {"head": "before_rotary", "wide": "all_heads", None: None}[one.query_norm],
        "attention.one_sided_window": WINDOW // 2,
        "attention.pattern": {"all": "sliding_attention", "types": "mixed"}.get(one.window, "full_attention"),
        "attention.relative": "shared" if one.position == "relative" else None,
        "attention.rotary": is_rotary,
        "attention.scale": HEAD**-0.5,
        "attention.scaling": "head_dim",
        "attention.window": WINDOW if one.window else None,
        "alibi": one.position == "alibi",
        "classifier.activation": CLASS_ACTIVATIONS.get(one.scheme, "gelu"),
        "embedding.scale": None,
        "feed_forward.activation": one.activation,
        "feed_forward.gate_last": one.gate_fused == "last",
        "head.activation": one.head_activation(),
        "head.pooling": "first",
        "lm_head.activation": one.head_activation(),
        "norm.embedding_shared": not one.first_norm,
        "norm.final": "positions" if one.normed_last else "none",
        "pooler.activation": "tanh",
        "pooling": None,
        "position.counting": {"order": "all", "padding": "tokens"}.get(one.position, "all"),
        "position.sinusoidal": "split" if one.waves else None,
        "rotary": is_rotary,
        "rotary.local_base": one.base,
    }


def write(one: Draw, folder: Path, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The checkpoint of a draw; its inputs, each (2, 9), and its outputs, nan where a text is padded."""
    from tools.drawn.encoder_names import config, renamed

    generator = torch.Generator().manual_seed(seed)
    tensors = Weights(one, generator).all()
    store(folder, renamed(one, tensors), config(one))
    ids = torch.randint(3, WORDS, (2, 9), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    ids = torch.where(mask == 1, ids, 1 if one.position == "padding" else 0)
    types = (torch.arange(9) > 4).long().expand_as(ids)
    inputs = {"input_ids": ids, "attention_mask": mask} | ({"token_type_ids": types} if one.types else {})
    return inputs, Reference(one, tensors)(ids, mask, types)
