"""Transformers as people write them around torch's own layers or with names of their own: equal outputs once what nothing shows is told."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

import mapper
from tests.unit.test_chains_in_wheels import Net

WIDTH, HEADS = 16, 4
TORCH = {"d_model": WIDTH, "nhead": HEADS, "dim_feedforward": 24, "batch_first": True}
SCALE = math.sqrt(WIDTH)


def folder(**modules):
    return lambda: nn.ModuleDict(modules)


class Positions(nn.Module):
    """A stored table that nobody trains."""

    def __init__(self, *shape):
        super().__init__()
        self.register_buffer("pe", torch.randn(shape))


def causal(length):
    return nn.Transformer.generate_square_subsequent_mask(length)


def translation():
    """torch.nn.Transformer beside embeddings of each language, scaled, and one table of positions (1706.03762)."""

    def forward(s, source, target):
        table = s.positional_encoding.pe
        read = s.src_tok_emb["embedding"](source) * SCALE + table[:, : source.shape[1]]
        written = s.tgt_tok_emb["embedding"](target) * SCALE + table[:, : target.shape[1]]
        return s.generator(s.transformer(read, written, tgt_mask=causal(target.shape[1])))

    net = Net(
        forward, transformer=lambda: nn.Transformer(num_encoder_layers=2, num_decoder_layers=2, **TORCH),
        generator=lambda: nn.Linear(WIDTH, 30), src_tok_emb=folder(embedding=nn.Embedding(20, WIDTH)),
        tgt_tok_emb=folder(embedding=nn.Embedding(30, WIDTH)), positional_encoding=lambda: Positions(1, 12, WIDTH),
    )  # fmt: skip
    answers = {
        "task": "conditional_generation", "decoder:attention.causal": True, "encoder:attention.causal": False,
        "norm.placement": "post", "feed_forward.activation": "relu", "attention.heads": HEADS, "embedding.scale": SCALE,
    }  # fmt: skip
    return net, answers, {"input_ids": torch.tensor([[1, 8, 3]]), "decoder_input_ids": torch.tensor([[6, 0]])}


def words():
    """Next words by torch's encoder: `encoder` is the table of words, `decoder` the head."""

    def forward(s, ids):
        x = s.encoder(ids) * SCALE + s.pos_encoder.pe[: ids.shape[1], 0]
        return s.decoder(s.transformer_encoder(x, causal(ids.shape[1])))

    layer = nn.TransformerEncoderLayer(**TORCH)
    net = Net(
        forward, pos_encoder=lambda: Positions(12, 1, WIDTH), encoder=lambda: nn.Embedding(20, WIDTH),
        transformer_encoder=lambda: nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        decoder=lambda: nn.Linear(WIDTH, 20),
    )  # fmt: skip
    answers = {
        "task": "causal_lm", "norm.placement": "post", "feed_forward.activation": "relu", "attention.heads": HEADS,
        "embedding.scale": SCALE,
    }  # fmt: skip
    return net, answers, {"input_ids": torch.tensor([[1, 8, 3]])}


def patches(x, size, *, first):
    """Squares of an image in rows, the pixels channel by channel or the channels pixel by pixel."""
    cut = x.unflatten(3, (-1, size)).unflatten(2, (-1, size))
    return cut.permute(0, 2, 4, *((1, 3, 5) if first else (3, 5, 1))).flatten(3).flatten(1, 2)


def mixer():
    """Tokens and channels mixed in turn (2105.01601), of patches that a linear layer takes."""

    def mlp(inputs, inner):
        return nn.ModuleDict({"fc1": nn.Linear(inputs, inner), "fc2": nn.Linear(inner, inputs)})

    def block():
        norms = {f"norm{n}": nn.LayerNorm(WIDTH) for n in (1, 2)}
        return nn.ModuleDict({**norms, "token_mlp": mlp(4, 6), "channel_mlp": mlp(WIDTH, 24)})

    def mixed(part, x):
        return part["fc2"](F.gelu(part["fc1"](x)))

    def forward(s, image):
        x = s.patch_embed(patches(image, 4, first=True))
        for layer in s.blocks:
            x = x + mixed(layer["token_mlp"], layer["norm1"](x).mT).mT
            x = x + mixed(layer["channel_mlp"], layer["norm2"](x))
        return s.head(s.norm(x).mean(1))

    net = Net(
        forward, patch_embed=lambda: nn.Linear(48, WIDTH), blocks=lambda: nn.ModuleList([block(), block()]),
        norm=lambda: nn.LayerNorm(WIDTH), head=lambda: nn.Linear(WIDTH, 5),
    )  # fmt: skip
    answers = {
        "task": "image_classification", "pooling": "mean", "norm.eps": 1e-5, "feed_forward.activation": "gelu",
        "image.patch_channels": "first", "channels": 3,
    }  # fmt: skip
    return net, answers, {"pixel_values": torch.rand(1, 3, 8, 8)}


def attended(x, maps, mask=False):
    q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in maps)
    return F.scaled_dot_product_attention(q, k, v, is_causal=mask).transpose(1, 2).flatten(2)


def vision():
    """A vision transformer (2010.11929) whose linear layer takes the channels of each pixel side by side."""

    def block():
        attn = nn.ModuleDict({"qkv": nn.Linear(WIDTH, 3 * WIDTH), "proj": nn.Linear(WIDTH, WIDTH)})
        mlp = nn.Sequential(nn.Linear(WIDTH, 24), nn.GELU(), nn.Linear(24, WIDTH))
        return nn.ModuleDict(
            {"ln1": nn.LayerNorm(WIDTH), "attn": attn, "ln2": nn.LayerNorm(WIDTH), "mlp": mlp}
        )

    def forward(s, image):
        x = s.patch_to_embedding(patches(image, 4, first=False))
        x = torch.cat((s.cls_token, x), 1) + s.pos_embedding
        for layer in s.blocks:
            y = layer["ln1"](x)
            x = x + layer["attn"]["proj"](attended(y, layer["attn"]["qkv"](y).chunk(3, -1)))
            x = x + layer["mlp"](layer["ln2"](x))
        return s.mlp_head(x[:, 0])

    net = Net(
        forward, patch_to_embedding=lambda: nn.Linear(48, WIDTH), blocks=lambda: nn.ModuleList([block(), block()]),
        mlp_head=lambda: nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5)),
    )  # fmt: skip
    net.cls_token = nn.Parameter(torch.randn(1, 1, WIDTH))
    net.pos_embedding = nn.Parameter(torch.randn(1, 5, WIDTH))
    answers = {
        "attention.heads": HEADS, "norm.placement": "pre", "norm.eps": 1e-5, "feed_forward.activation": "gelu",
        "image.patch_channels": "last", "channels": 3,
    }  # fmt: skip
    return net, answers, {"pixel_values": torch.rand(1, 3, 8, 8)}


class Tutorial(nn.Module):
    """A layer with the names of the sequence-to-sequence tutorials."""

    def __init__(self, is_decoder):
        super().__init__()
        self.self_attention = nn.ModuleDict(
            {"multihead_attn": nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)}
        )
        self.self_attn_layer_norm, self.ff_layer_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.positionwise_feedforward = nn.ModuleDict(
            {"fc_1": nn.Linear(WIDTH, 24), "fc_2": nn.Linear(24, WIDTH)}
        )
        if is_decoder:
            self.encoder_attention = nn.ModuleDict(
                {"multihead_attn": nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)}
            )
            self.enc_attn_layer_norm = nn.LayerNorm(WIDTH)

    def forward(self, x, states=None):
        mask = None if states is None else causal(x.shape[1])
        y, _ = self.self_attention["multihead_attn"](x, x, x, attn_mask=mask)
        x = self.self_attn_layer_norm(x + y)
        if states is not None:
            y, _ = self.encoder_attention["multihead_attn"](x, states, states)
            x = self.enc_attn_layer_norm(x + y)
        inner = self.positionwise_feedforward
        return self.ff_layer_norm(x + inner["fc_2"](F.relu(inner["fc_1"](x))))


def tutorial():
    """An encoder and a decoder that each scale their words and add learned positions."""

    def part(words, **more):
        layers = nn.ModuleList([Tutorial(bool(more)), Tutorial(bool(more))])
        tables = {"tok_embedding": nn.Embedding(words, WIDTH), "pos_embedding": nn.Embedding(9, WIDTH)}
        return lambda: nn.ModuleDict({**tables, "layers": layers, **more})

    def through(side, ids, *states):
        x = side["tok_embedding"](ids) * SCALE + side["pos_embedding"](torch.arange(ids.shape[1]))
        for layer in side["layers"]:
            x = layer(x, *states)
        return x

    def forward(s, source, target):
        return s.decoder["fc_out"](through(s.decoder, target, through(s.encoder, source)))

    net = Net(forward, encoder=part(20), decoder=part(30, fc_out=nn.Linear(WIDTH, 30)))
    answers = {
        "task": "conditional_generation", "decoder:attention.causal": True, "encoder:attention.causal": False,
        "norm.eps": 1e-5, "feed_forward.activation": "relu", "attention.heads": HEADS, "embedding.scale": SCALE,
    }  # fmt: skip
    return net, answers, {"input_ids": torch.tensor([[1, 8, 3]]), "decoder_input_ids": torch.tensor([[6, 0]])}


def series():
    """Vectors in a row, mapped and with learned positions, of which the last state is classified."""

    def forward(s, vectors):
        x = s.input_projection(vectors) + s.pos_embedding[:, : vectors.shape[1]]
        return s.fc(s.transformer(x)[:, -1])

    layer = nn.TransformerEncoderLayer(**TORCH)
    net = Net(
        forward, input_projection=lambda: nn.Linear(5, WIDTH), fc=lambda: nn.Linear(WIDTH, 3),
        transformer=lambda: nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
    )  # fmt: skip
    net.pos_embedding = nn.Parameter(torch.randn(1, 12, WIDTH))
    answers = {
        "task": "sequence_classification", "head.pooling": "last", "attention.causal": False, "norm.placement": "post",
        "feed_forward.activation": "relu", "attention.heads": HEADS,
    }  # fmt: skip
    return net, answers, {"embedded": torch.rand(2, 7, 5)}


class Plain(nn.Module):
    """Attention of plural names, whose scores are divided by the root of the whole width, before or within a block."""

    def __init__(self):
        super().__init__()
        for name in ("queries", "keys", "values", "fc_out"):
            self.add_module(name, nn.Linear(WIDTH, WIDTH))

    def forward(self, x, states, mask=False):
        maps = (self.queries(x) * HEADS**-0.5, self.keys(states), self.values(states))
        return self.fc_out(attended(x, maps, mask))


def nested():
    """A decoder whose layers hold a layer that reads the encoder."""

    def block():
        parts = {"attention": Plain(), "norm1": nn.LayerNorm(WIDTH), "norm2": nn.LayerNorm(WIDTH)}
        return nn.ModuleDict(
            {**parts, "feed_forward": nn.Sequential(nn.Linear(WIDTH, 24), nn.ReLU(), nn.Linear(24, WIDTH))}
        )

    def whole():
        return nn.ModuleDict(
            {"attention": Plain(), "norm": nn.LayerNorm(WIDTH), "transformer_block": block()}
        )

    def part(words, layers, **more):
        tables = {"word_embedding": nn.Embedding(words, WIDTH), "position_embedding": nn.Embedding(9, WIDTH)}
        return lambda: nn.ModuleDict({**tables, "layers": nn.ModuleList(layers), **more})

    def through(layer, x, states):
        x = layer["norm1"](x + layer["attention"](x, states))
        return layer["norm2"](x + layer["feed_forward"](x))

    def embedded(side, ids):
        return side["word_embedding"](ids) + side["position_embedding"](torch.arange(ids.shape[1]))

    def forward(s, source, target):
        states, x = embedded(s.encoder, source), embedded(s.decoder, target)
        for layer in s.encoder["layers"]:
            states = through(layer, states, states)
        for layer in s.decoder["layers"]:
            own = layer["norm"](x + layer["attention"](x, x, mask=True))
            x = through(layer["transformer_block"], own, states)
        return s.decoder["fc_out"](x)

    net = Net(
        forward,
        encoder=part(20, [block(), block()]),
        decoder=part(30, [whole(), whole()], fc_out=nn.Linear(WIDTH, 30)),
    )
    answers = {
        "task": "conditional_generation", "decoder:attention.causal": True, "encoder:attention.causal": False,
        "norm.placement": "post", "norm.eps": 1e-5, "feed_forward.activation": "relu", "attention.heads": HEADS,
        "attention.scaling": "own", "attention.query_scale": WIDTH,
    }  # fmt: skip
    return net, answers, {"input_ids": torch.tensor([[1, 8, 3]]), "decoder_input_ids": torch.tensor([[6, 0]])}


def beside_waves():
    """Layers of one's own that norm behind each sub-layer, of words beside a stored table of positions; hidden words are told."""

    def block():
        return nn.ModuleDict({
            "ln1": nn.LayerNorm(WIDTH), "ln2": nn.LayerNorm(WIDTH),
            "attn": nn.ModuleDict({"qkv": nn.Linear(WIDTH, 3 * WIDTH), "proj": nn.Linear(WIDTH, WIDTH)}),
            "mlp": nn.ModuleDict({"fc1": nn.Linear(WIDTH, 24), "fc2": nn.Linear(24, WIDTH)}),
        })  # fmt: skip

    def forward(s, ids):
        x = s.embedding(ids) * SCALE + s.pos_encoder.pe[: ids.shape[1], 0]
        for layer in s.blocks:
            x = layer["ln1"](x + layer["attn"]["proj"](attended(x, layer["attn"]["qkv"](x).chunk(3, -1))))
            x = layer["ln2"](x + layer["mlp"]["fc2"](F.relu(layer["mlp"]["fc1"](x))))
        return s.head(x)

    net = Net(
        forward, embedding=lambda: nn.Embedding(20, WIDTH), pos_encoder=lambda: Positions(12, 1, WIDTH),
        blocks=lambda: nn.ModuleList([block(), block()]), head=lambda: nn.Linear(WIDTH, 20),
    )  # fmt: skip
    answers = {
        "task": "masked_lm", "attention.causal": False, "norm.placement": "post", "norm.eps": 1e-5,
        "feed_forward.activation": "relu", "attention.heads": HEADS, "embedding.scale": SCALE,
    }  # fmt: skip
    return net, answers, {"input_ids": torch.tensor([[1, 8, 3]])}


CASES = [beside_waves, nested, series, translation, words, mixer, vision, tutorial]


def kept(net, tmp_path):
    """The file of a network whose norms scale and shift."""
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    save_file(net.eval().state_dict(), tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_equal_when_it_is_told(tmp_path, case) -> None:
    net, answers, inputs = case()
    model = mapper.build(kept(net, tmp_path), hints=answers)
    with torch.no_grad():
        torch.testing.assert_close(model(**inputs).logits, net(*inputs.values()), atol=2e-5, rtol=1e-4)


ASKED = [
    (beside_waves, "embedding.scale"),
    (beside_waves, "norm.placement"),
    (translation, "embedding.scale"),
    (tutorial, "embedding.scale"),
    (words, "embedding.scale"),
    (vision, "image.patch_channels"),
    (nested, "attention.scaling"),
    (series, "task"),
    (series, "head.pooling"),
    (mixer, "image.patch_channels"),
]


@pytest.mark.parametrize(("case", "fact"), ASKED)
def test_what_nothing_stored_shows_is_asked(tmp_path, case, fact) -> None:
    """Each of these was assumed without a word."""
    net, answers, _ = case()
    told = {name: value for name, value in answers.items() if name != fact}
    found = mapper.inspect(kept(net, tmp_path), hints=told).architecture
    assert fact in {question.fact for question in found.questions}


def test_a_last_norm_by_another_name_shows_that_others_stand_before_their_sub_layers(tmp_path) -> None:
    shapes = {"embed.weight": (20, 16), "norm_out.g": (16,), "unembed.weight": (20, 16)}
    for n in (0, 1):
        shapes |= {f"blocks.{n}.attn.to_{name}.weight": (16, 16) for name in ("q", "k", "v", "out")}
        shapes |= {f"blocks.{n}.ffn.w_{name}.weight": (24, 16) for name in ("gate", "up")}
        shapes |= {f"blocks.{n}.ffn.w_down.weight": (16, 24)}
        shapes |= {f"blocks.{n}.norm_{name}.g": (16,) for name in ("attn", "ffn")}
    found = mapper.inspect({name: torch.zeros(shape) for name, shape in shapes.items()}).architecture
    assert ("norm.placement", "pre") in {(fact.name, fact.value) for fact in found.facts}
    assert "feed_forward.gate_last" not in {question.fact for question in found.questions}


def test_two_maps_of_a_layer_have_the_activation_that_is_told() -> None:
    """`layer1` and `layer2` were those of a head that always has ReLU."""
    shapes = {"tok.weight": (20, 16), "norm.weight": (16,), "norm.bias": (16,), "out.weight": (20, 16)}
    for n in (0, 1):
        for name in ("q", "k", "v", "out"):
            shapes |= {f"layers.{n}.attn.to_{name}.weight": (16, 16)}
        for name, rows, columns in (("layer1", 24, 16), ("layer2", 16, 24)):
            shapes |= {f"layers.{n}.ff.{name}.weight": (rows, columns), f"layers.{n}.ff.{name}.bias": (rows,)}
        shapes |= {f"layers.{n}.norm{at}.{part}": (16,) for at in (1, 2) for part in ("weight", "bias")}
    found = mapper.inspect({name: torch.zeros(shape) for name, shape in shapes.items()}).architecture
    assert "feed_forward.activation" in {question.fact for question in found.questions}
