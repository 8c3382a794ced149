"""Layers of torch's own in modules that people write, under words that no vocabulary has: widths show what stands around."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import mapper
from tests.parity.harness import TOLERANCE

WIDTH, WORDS, GIVEN = 32, 50, 7
TOLD = {
    "task": "sequence_classification", "head.pooling": "mean", "norm.placement": "post", "attention.causal": False,
    "feed_forward.activation": "relu", "attention.heads": 4,
}  # fmt: skip


class Around(nn.Module):
    """What is given to the width of the layers, a table of positions, the layers, and a head."""

    def __init__(
        self, entry: nn.Module, head: nn.Module, shape: tuple[int, ...] | None, words: dict[str, str]
    ) -> None:
        super().__init__()
        self.words = words
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 40, batch_first=True)
        self.add_module(words["entry"], entry)
        self.add_module(words["layers"], nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
        self.add_module(words["head"], head)
        if shape:
            self.register_parameter(words["table"], nn.Parameter(torch.randn(shape)))

    def forward(self, x: Tensor) -> Tensor:
        parts = {role: getattr(self, word, None) for role, word in self.words.items()}
        x = parts["entry"](x)
        if (table := parts["table"]) is not None:
            x = x + table[..., : x.shape[1], :]
        return parts["head"](parts["layers"](x).mean(1))


def named(entry: str, table: str, layers: str, head: str) -> dict[str, str]:
    return {"entry": entry, "table": table, "layers": layers, "head": head}


CASES: list[tuple[Any, Any, tuple[int, ...] | None, dict[str, str]]] = [
    (nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 5), (1, 20, WIDTH), named("embedding", "pos_encoder", "trunk", "fc_out")),
    (nn.Linear(GIVEN, WIDTH), nn.Linear(WIDTH, 3), (20, WIDTH), named("linear_in", "pos", "transformer", "linear_out")),
    (nn.Linear(GIVEN, WIDTH), nn.Linear(WIDTH, 1), None, named("embedding", "", "encoder", "decoder")),
    (nn.Linear(GIVEN, WIDTH), nn.Sequential(nn.Linear(WIDTH, 24), nn.ReLU(), nn.Linear(24, 2)), (1, 20, WIDTH), named("feature_proj", "places", "encoder", "regressor")),
    (nn.Embedding(WORDS, WIDTH), nn.Sequential(nn.Linear(WIDTH, 24), nn.ReLU(), nn.Linear(24, 2)), (1, 20, WIDTH), named("embed", "positional_encoding", "encoder", "mlp")),
]  # fmt: skip


def stored(model: nn.Module, folder: Path) -> Path:
    folder.mkdir()
    save_file(dict(model.state_dict()), folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case[3].values()))
def test_widths_show_what_stands_around_layers(tmp_path: Path, case: Any) -> None:
    torch.manual_seed(0)
    model = Around(*case).eval()
    folder = stored(model, tmp_path / "model")
    asked = {question.fact for question in mapper.inspect(folder).architecture.questions}
    assert {"task", "attention.heads"} <= asked
    has_two = isinstance(case[1], nn.Sequential)
    told = TOLD | ({"classifier.activation": "relu"} if has_two else {})
    if has_two:  # nothing stored shows what stands between its maps
        with pytest.raises(mapper.MapperError, match=r"classifier\.activation"):
            mapper.build(folder, hints=TOLD)
    built = mapper.build(folder, hints=told)
    x = torch.randint(1, WORDS, (2, 9)) if isinstance(case[0], nn.Embedding) else torch.randn(2, 9, GIVEN)
    with torch.no_grad():
        given, wanted = built(x), model(x)
    assert (given.logits - wanted).abs().max() < TOLERANCE


def test_of_two_maps_that_read_the_states_neither_is_taken(tmp_path: Path) -> None:
    model = Around(nn.Linear(GIVEN, WIDTH), nn.Linear(WIDTH, 3), None, named("inp", "", "trunk", "middle"))
    model.add_module("spread", nn.Linear(WIDTH, 3))
    leaves = mapper.inspect(stored(model, tmp_path / "model")).architecture.leaves
    roles = {str(leaf.place): leaf.role for leaf in leaves}
    assert roles["inp"] == "projection"
    assert "classifier" not in (roles["middle"], roles["spread"])


def test_rows_that_are_no_places_stay_without_a_role(tmp_path: Path) -> None:
    model = Around(
        nn.Linear(GIVEN, WIDTH), nn.Linear(WIDTH, 3), (1, 4, WIDTH), named("inp", "queries", "trunk", "out")
    )
    leaves = mapper.inspect(stored(model, tmp_path / "model")).architecture.leaves
    assert {str(leaf.place): leaf.role for leaf in leaves}["queries"] is None


class Pair(nn.Module):
    """torch's encoder and decoder, a table of words for each, one of positions for both, and a head."""

    def __init__(self, *words: str) -> None:
        super().__init__()
        self.words = words
        parts = [
            nn.Embedding(WORDS, WIDTH),
            nn.Embedding(30, WIDTH),
            nn.Embedding(20, WIDTH),
            nn.Linear(WIDTH, 30),
        ]
        for word, part in zip(words, parts, strict=True):
            self.add_module(word, part)
        self.transformer = nn.Transformer(WIDTH, 4, 1, 2, 40, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        read, written, table, head = (getattr(self, word) for word in self.words)
        states = read(source) + table(torch.arange(source.shape[1]))
        asked = written(target) + table(torch.arange(target.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return head(self.transformer(states, asked, tgt_mask=mask))


@pytest.mark.parametrize(
    "words", ["src_embed tgt_embed pos_embedding generator", "source_emb target_emb pos_embed fc_out"]
)
def test_one_table_of_positions_is_that_of_encoder_and_decoder(tmp_path: Path, words: str) -> None:
    torch.manual_seed(0)
    model = Pair(*words.split()).eval()
    told = {
        "task": "conditional_generation", "decoder:attention.causal": True, "encoder:attention.causal": False,
        "norm.placement": "post", "feed_forward.activation": "relu", "attention.heads": 4,
    }  # fmt: skip
    built = mapper.build(stored(model, tmp_path / "model"), hints=told)
    source, target = torch.randint(2, WORDS, (2, 9)), torch.randint(2, 30, (2, 6))
    with torch.no_grad():
        given, wanted = built(input_ids=source, decoder_input_ids=target), model(source, target)
    assert (given.logits - wanted).abs().max() < TOLERANCE
