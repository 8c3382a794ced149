"""Transformers that somebody wrote under names of their own, each beside the same computation by torch."""

import torch
import torch.nn.functional as F
from torch import nn

import mapper


def heads_of(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def maps(width, names, bias):
    return {name: nn.Linear(width, width, bias=bias) for name in names}


def encoder():
    """An encoder of texts whose list, maps, norms and head have words that others seldom use."""
    block = {
        "mixing": nn.ModuleDict(maps(8, ("to_q", "to_k", "to_v", "merge"), True)),
        "ln_a": nn.LayerNorm(8),
        "ln_b": nn.LayerNorm(8),
        "expand": nn.Linear(8, 12),
        "shrink": nn.Linear(12, 8),
    }
    return nn.ModuleDict(
        {
            "word_table": nn.Embedding(19, 8),
            "place_table": nn.Embedding(10, 8),
            "stack": nn.ModuleList([nn.ModuleDict(block)]),
            "last_ln": nn.LayerNorm(8),
            "verdict": nn.Linear(8, 3),
        }
    )


def test_the_one_map_at_the_top_that_no_word_knows_is_the_head():
    torch.manual_seed(0)
    model, ids = encoder(), torch.tensor([[3, 1, 4, 1, 5]])
    answers = {
        "task": "sequence_classification", "head.pooling": "mean", "attention.heads": 2, "attention.causal": False,
        "feed_forward.activation": "gelu", "norm.eps": 1e-5,
    }  # fmt: skip
    x = model["word_table"](ids) + model["place_table"].weight[:5]
    block = model["stack"][0]
    y, inner = block["ln_a"](x), block["mixing"]
    q, k, v = (heads_of(inner[name](y), 2) for name in ("to_q", "to_k", "to_v"))
    x = x + inner["merge"](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
    x = x + block["shrink"](F.gelu(block["expand"](block["ln_b"](x))))
    built = mapper.build(model.state_dict(), hints=answers)
    torch.testing.assert_close(built(ids).logits, model["verdict"](model["last_ln"](x).mean(1)))


def test_two_maps_at_the_top_that_no_word_knows_are_not_taken_for_a_head():
    model = encoder()
    model["other"] = nn.Linear(8, 5)
    found = mapper.inspect(model.state_dict()).architecture
    assert {leaf.role for leaf in found.leaves if leaf.place in (("verdict",), ("other",))} == {None}


def test_a_map_of_what_is_given_beside_the_words_is_no_head():
    model = encoder()
    model["film"] = model.pop("verdict")
    found = mapper.inspect(model.state_dict()).architecture
    assert "classifier" not in {leaf.role for leaf in found.leaves if leaf.place == ("film",)}


def decoder():
    """A decoder whose gate stands beside `up` and `down` in the layer itself, where others have a router called so."""
    block = {
        "att_norm": nn.RMSNorm(8),
        "att": nn.ModuleDict(maps(8, ("wq", "wk", "wv", "wo"), False)),
        "ffn_norm": nn.RMSNorm(8),
        "gate": nn.Linear(8, 12, bias=False),
        "up": nn.Linear(8, 12, bias=False),
        "down": nn.Linear(12, 8, bias=False),
    }
    return nn.ModuleDict(
        {
            "tok": nn.Embedding(19, 8),
            "blocks": nn.ModuleList([nn.ModuleDict(block)]),
            "norm": nn.RMSNorm(8),
            "out": nn.Linear(8, 19, bias=False),
        }
    )


def test_a_gate_beside_up_and_down_is_no_router():
    torch.manual_seed(0)
    model, ids = decoder(), torch.tensor([[3, 1, 4]])
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, 1.0, 0.1)
    answers = {
        "task": "causal_lm", "attention.causal": True, "attention.heads": 2, "feed_forward.activation": "silu",
        "norm.eps": 1e-6, "norm.kind": "RMSNorm", "rotary": False, "alibi": False, "position.sinusoidal": None,
    }  # fmt: skip
    block, x = model["blocks"][0], model["tok"](ids)

    def norm(scale, y):
        return F.rms_norm(y, (8,), scale.weight, 1e-6)

    y, inner = norm(block["att_norm"], x), block["att"]
    q, k, v = (heads_of(inner[name](y), 2) for name in ("wq", "wk", "wv"))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    x = x + inner["wo"](y)
    y = norm(block["ffn_norm"], x)
    x = x + block["down"](F.silu(block["gate"](y)) * block["up"](y))
    built = mapper.build(model.state_dict(), hints=answers)
    torch.testing.assert_close(built(ids).logits, model["out"](norm(model["norm"], x)))


def test_maps_of_the_masked_words_and_of_the_next_sentence_are_two_heads():
    """Both stand behind layers that end in no pooler: the second reads the first state, which is asked."""
    torch.manual_seed(0)
    norm = {"norm": nn.LayerNorm(8)}
    block = {
        "attention": nn.ModuleDict(maps(8, ("query", "key", "value", "output"), True)),
        "feed_forward": nn.ModuleDict({"w_1": nn.Linear(8, 12), "w_2": nn.Linear(12, 8)}),
        "input_sublayer": nn.ModuleDict(norm),
        "output_sublayer": nn.ModuleDict({"norm": nn.LayerNorm(8)}),
    }
    embedding = {"token": nn.Embedding(19, 8), "position": nn.Embedding(10, 8), "segment": nn.Embedding(2, 8)}
    inner = {
        "embedding": nn.ModuleDict(embedding),
        "transformer_blocks": nn.ModuleList([nn.ModuleDict(block)]),
    }
    model = nn.ModuleDict(
        {
            "bert": nn.ModuleDict(inner),
            "mask_lm": nn.ModuleDict({"linear": nn.Linear(8, 19)}),
            "next_sentence": nn.ModuleDict({"linear": nn.Linear(8, 2)}),
        }
    )
    asked = {each.fact for each in mapper.inspect(model.state_dict()).architecture.questions}
    assert {"head.pooling", "attention.heads", "feed_forward.activation", "norm.eps"} <= asked
    answers = {
        "head.pooling": "first",
        "attention.heads": 2,
        "feed_forward.activation": "gelu",
        "norm.eps": 1e-5,
    }
    ids, segments = torch.tensor([[3, 1, 4, 1]]), torch.tensor([[0, 0, 1, 1]])
    x = embedding["token"](ids) + embedding["position"].weight[:4] + embedding["segment"](segments)
    y = block["input_sublayer"]["norm"](x)
    q, k, v = (heads_of(block["attention"][name](y), 2) for name in ("query", "key", "value"))
    x = x + block["attention"]["output"](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
    y = block["feed_forward"]["w_1"](block["output_sublayer"]["norm"](x))
    x = x + block["feed_forward"]["w_2"](F.gelu(y))
    found = mapper.build(model.state_dict(), hints=answers)(ids, token_type_ids=segments)
    torch.testing.assert_close(found.prediction_logits, model["mask_lm"]["linear"](x))
    torch.testing.assert_close(found.seq_relationship_logits, model["next_sentence"]["linear"](x[:, 0]))


def test_layers_of_torch_may_stand_in_a_list_of_any_name():
    """One of them alone is a model, too: that does not make one of each element of a list."""
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, dropout=0.0) for _ in range(2)]
    tables = {"tokens": nn.Embedding(19, 8), "positions": nn.Embedding(10, 8)}
    model = nn.ModuleDict({**tables, "blocks": nn.ModuleList(layers), "head": nn.Linear(8, 3)}).eval()
    answers = {
        "task": "sequence_classification", "head.pooling": "mean", "norm.placement": "post", "attention.heads": 2,
        "attention.causal": False, "feed_forward.activation": "relu",
    }  # fmt: skip
    ids = torch.tensor([[3, 1, 4, 1]])
    x = tables["tokens"](ids) + tables["positions"].weight[:4]
    for layer in layers:
        x = layer(x)
    built = mapper.build(model.state_dict(), hints=answers)
    torch.testing.assert_close(built(ids).logits, model["head"](x.mean(1)))
