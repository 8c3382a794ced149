"""An encoder of words that somebody wrote, whose vector a map projects, against the network written here with torch alone."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

import mapper
from tests.parity.harness import TOLERANCE, randomise
from tests.parity.test_classifiers_of_words import Layer
from tests.parity.test_rows_of_scales import HEADS, SIZE, WORDS

TOLD = {
    "attention.heads": HEADS, "feed_forward.activation": "gelu", "norm.placement": "pre", "norm.eps": 1e-5,
    "attention.causal": False, "task": "base",
}  # fmt: skip


class Projected(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.ModuleDict(
            {"token_embedding": nn.Embedding(WORDS, SIZE), "position_embedding": nn.Embedding(12, SIZE)}
        )
        self.layers, self.norm = nn.ModuleList(Layer() for _ in range(2)), nn.LayerNorm(SIZE)
        self.projection = nn.Linear(SIZE, 20, bias=False)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embeddings["token_embedding"](ids)
        x = x + self.embeddings["position_embedding"].weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return x, self.projection(x[:, -1])


@torch.no_grad()
def test_which_state_is_projected_is_asked(tmp_path: Path) -> None:
    model = randomise(Projected().eval())
    torch.save(model.state_dict(), tmp_path / "model.pth")
    asked = mapper.inspect(tmp_path / "model.pth", hints=TOLD).architecture.questions
    assert [question.name for question in asked] == ["pooling"]
    built = mapper.build(tmp_path / "model.pth", hints={**TOLD, "pooling": "last"})
    ids = torch.randint(0, WORDS, (2, 7), generator=torch.Generator().manual_seed(1))
    output, (states, vector) = built(input_ids=ids), model(ids)
    for made, wanted in ((output.last_hidden_state, states), (output.pooler_output, vector)):
        assert float((made - wanted).abs().max() / wanted.std()) <= TOLERANCE
