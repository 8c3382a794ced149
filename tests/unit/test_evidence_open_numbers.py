"""Numbers of which any could be right are tried with those that rules work out, and change fast while nothing makes sense."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from mapper.architecture import Architecture
from mapper.evidence.behaviour.passage import PASSAGE
from mapper.evidence.behaviour.settling import Trial, ranked
from mapper.evidence.behaviour.trying import _Search
from mapper.evidence.behaviour.voices import Voice
from mapper.inference import infer
from mapper.rulebook.rulebook import rulebook_of
from mapper.sources import open_source

WIDTH = 64


def beside_sines(folder: Path) -> Architecture:
    """The reading of torch's own layers behind embeddings beside a constant table of positions, without a config."""
    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 4, 96), 2, enable_nested_tensor=False)
    state = {f"encoder.{name}": value for name, value in layers.state_dict().items()}
    state |= {"embedding.weight": torch.randn(256, WIDTH), "pos_encoder.pe": torch.randn(128, 1, WIDTH)}
    state |= {"head.weight": torch.randn(256, WIDTH), "head.bias": torch.zeros(256)}
    save_file(state, folder / "model.safetensors")
    return infer(open_source(folder / "model.safetensors", purpose="weights"), rulebook_of(()))


def test_a_factor_on_embeddings_is_tried_as_none_and_as_the_root_of_their_width(tmp_path: Path) -> None:
    search = _Search(beside_sines(tmp_path), PASSAGE, 60.0, lambda what, part: None, "cpu")
    answers = search.possible()
    assert answers is not None  # the question that all others lead to has candidates
    assert answers["norm.placement"] in ("pre", "post")
    assert search.values(search.questions["embedding.scale"]) == [None, WIDTH**0.5]


class Scaled(_Search):
    """A search over a number of which any could be right, each value with its loss."""

    def __init__(self, losses: dict[int, float]) -> None:
        self.losses = losses
        self.voice = Voice("loss", lambda scores: scores({}), least=0.02, most=3.0)
        self.questions = {"scale": SimpleNamespace(name="scale", fact="scale", candidates=tuple(losses))}  # type: ignore[dict-item]

    def values(self, question: Any) -> list[Any]:
        return list(question.candidates)

    def is_open(self, question: Any) -> bool:
        return True

    def is_late(self) -> bool:
        return False

    def together(self, answers: Any) -> None:
        return None

    def trials(self, name: str, question: Any, answers: Any, only_heard: bool = False) -> list[Trial]:
        spread = 0.01 * torch.linspace(-1, 1, 64)
        return ranked([Trial(name, value, loss + spread) for value, loss in self.losses.items()])

    def changed(self, answers: Any, name: str, value: Any) -> Any:
        return {name: value}


def test_an_open_number_changes_by_little_only_while_the_model_makes_no_sense() -> None:
    assert Scaled({1: 3.2, 8: 3.1}).improved({"scale": 1}) == ({"scale": 8}, True)
    assert Scaled({1: 2.2, 8: 2.1}).improved({"scale": 1}) == ({"scale": 1}, True)
    assert Scaled({1: 2.2, 8: 1.9}).improved({"scale": 1}) == ({"scale": 8}, True)
