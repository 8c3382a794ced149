"""The encoder and decoder of The Annotated Transformer, whose names many networks have, written anew: read and equal."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mapper

WIDTH, HEADS, LENGTH = 32, 4, 24


class Deviation(nn.Module):
    """A norm by the deviation of a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.a_2, self.b_2 = nn.Parameter(torch.rand(WIDTH) + 0.5), nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.a_2 * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.b_2


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor, source: Tensor, causal: bool) -> Tensor:
        pairs = zip(self.linears, (x, source, source), strict=False)
        q, k, v = (linear(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for linear, y in pairs)
        return self.linears[3](
            F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2)
        )


class Sublayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = Deviation()

    def forward(self, x: Tensor, made: Callable[[Tensor], Tensor]) -> Tensor:
        return x + made(self.norm(x))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_2(F.relu(self.w_1(x)))


class Layer(nn.Module):
    """With a source to read where it is one of a decoder."""

    def __init__(self, is_decoder: bool) -> None:
        super().__init__()
        self.self_attn, self.feed_forward = Attention(), FeedForward()
        self.src_attn = Attention() if is_decoder else None
        self.sublayer = nn.ModuleList(Sublayer() for _ in range(3 if is_decoder else 2))

    def forward(self, x: Tensor, source: Tensor | None = None) -> Tensor:
        x = self.sublayer[0](x, lambda y: self.self_attn(y, y, source is not None))
        if self.src_attn is not None and source is not None:
            x = self.sublayer[1](x, lambda y: self.src_attn(y, source, False))
        return self.sublayer[-1](x, self.feed_forward)


class Stack(nn.Module):
    def __init__(self, is_decoder: bool) -> None:
        super().__init__()
        self.layers, self.norm = nn.ModuleList(Layer(is_decoder) for _ in range(2)), Deviation()

    def forward(self, x: Tensor, *source: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, *source)
        return self.norm(x)


class Words(nn.Module):
    def __init__(self, rows: int) -> None:
        super().__init__()
        self.lut = nn.Embedding(rows, WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        return self.lut(ids) * math.sqrt(WIDTH)


class Places(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("pe", torch.randn(1, LENGTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pe[:, : x.shape[1]]


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder, self.decoder = Stack(False), Stack(True)
        self.src_embed = nn.Sequential(Words(50), Places())
        self.tgt_embed = nn.Sequential(Words(40), Places())
        self.generator = nn.ModuleDict({"proj": nn.Linear(WIDTH, 40)})

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x = self.decoder(self.tgt_embed(target), self.encoder(self.src_embed(source)))
        return F.log_softmax(self.generator["proj"](x), dim=-1)


def test_it_is_read_by_its_names_and_asks_for_its_heads_alone() -> None:
    model = Translator()
    read = mapper.inspect(model.state_dict()).architecture
    assert read.family == "annotated_transformer"
    assert {question.fact for question in read.questions} == {"attention.heads"}
    source, target = torch.randint(0, 50, (2, 9)), torch.randint(0, 40, (2, 7))
    built = mapper.build(model.state_dict(), hints={"attention.heads": HEADS})
    torch.testing.assert_close(built(source, target).logits, model(source, target))


def test_layers_by_themselves_ask_which_side_their_norms_stand_on() -> None:
    layers = {f"sublayer.{at}.norm": Deviation() for at in range(2)}
    state = {key: tensor for key, tensor in Translator().encoder.state_dict().items() if "norm." not in key}
    for at in range(2):
        for name, norm in layers.items():
            state |= {f"layers.{at}.{name}.{key}": tensor for key, tensor in norm.state_dict().items()}
    state["embed_tokens.weight"] = torch.randn(50, WIDTH)
    asked = {question.fact: question for question in mapper.inspect(state).architecture.questions}
    assert asked["norm.placement"].candidates == ("pre", "post")
