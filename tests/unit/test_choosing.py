"""What is not gone through again, or not looked for, when flows are chosen: the flows and the questions are the same."""

from __future__ import annotations

import pytest

from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.inference import choosing, compose, infer
from mapper.inference.select import choose
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK


def unlisted(family: str) -> Checkpoint:
    first = header(next(item for item in RULEBOOK.families if item.name == family).examples[0])
    return Checkpoint("x", "manifest", first.tensors, {**(first.config or {}), "model_type": "unheard_of"})


def small(**layers: tuple[int, ...]) -> Checkpoint:
    tensors = {f"{name}.weight": TensorInfo(shape, "F32") for name, shape in layers.items()}
    tensors |= {f"{name}.bias": TensorInfo(shape[:1], "F32") for name, shape in layers.items()}
    return Checkpoint("x", "manifest", tensors, None)


@pytest.mark.parametrize("family", ["llama", "t5", "bert"])
def test_listed_types_with_equal_answers_take_the_flow_of_the_first(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone_through, compared = [], []

    def counted(*asked):
        gone_through.append(asked)
        return choose(*asked)

    def held_against(self, scope, families, facts):
        found = kept(self, scope, families, facts)
        compared.append((found, choose(scope, self.flows, families, facts).flow))
        return found

    kept = choosing.Choosing.flow
    monkeypatch.setattr(choosing, "choose", counted)
    monkeypatch.setattr(choosing.Choosing, "flow", held_against)
    infer(unlisted(family), RULEBOOK)
    assert [found.name if found else None for found, _ in compared] == [
        wanted.name if wanted else None for _, wanted in compared
    ]
    assert 0 < len(gone_through) < len(compared) * 2 / 3


def gist(architecture: Architecture) -> list[object]:
    """All that follows from which flows come near."""
    asked = [repr(question) for question in architecture.questions]
    flows = [(block.role, block.flow) for block in architecture.root.blocks()]
    return [asked, flows, [str(unfit) for unfit in architecture.unfit], architecture.missing]


@pytest.mark.parametrize(
    "checkpoint",
    [
        small(conv1=(4, 1, 3, 3), conv2=(8, 4, 3, 3), classifier=(5, 8), projection=(8, 8), scorer=(2, 8)),
        small(first=(8, 4), second=(8, 8), dense=(3, 8)),
        unlisted("gpt2"),
        unlisted("vit"),
        unlisted("detr"),
    ],
    ids=["convolutions", "linear", "gpt2", "vit", "detr"],
)
def test_answers_that_are_not_tried_would_lead_nowhere(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = gist(infer(checkpoint, RULEBOOK))
    monkeypatch.setattr(compose, "_may_answer", lambda block, page: True)
    monkeypatch.setattr(compose, "_lacks_for_good", lambda block, page, step: False)
    assert gist(infer(checkpoint, RULEBOOK)) == found
