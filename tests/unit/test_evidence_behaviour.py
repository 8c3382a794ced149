"""What candidates are judged by, when a value is settled, and that models which make no sense settle nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mapper.checkpoint import Checkpoint
from mapper.cli.app import main
from mapper.evidence.behaviour.drawn import NAMES, drawn_images
from mapper.evidence.behaviour.passage import PASSAGE
from mapper.evidence.behaviour.settling import Trial, by_default, settled
from mapper.evidence.behaviour.table import table
from mapper.evidence.behaviour.trying import Tried
from mapper.evidence.behaviour.voices import Voice, hear, next_words, voice_of
from mapper.evidence.behaviour.words import words_of
from tests.checkpoints import write_bert

WORDS = 16
IDS = torch.arange(48).remainder(7).view(2, 24)
Inputs = Mapping[str, torch.Tensor]


def table_of(ids: torch.Tensor) -> torch.Tensor:
    """Scores that are sure of `ids` [rows, length]."""
    return 9.0 * torch.nn.functional.one_hot(ids, WORDS).float()


def guesses(inputs: Inputs) -> torch.Tensor:
    """Of a model that is right about the next word, from the word before it alone."""
    return table_of((inputs["input_ids"] + 1).remainder(7))


def peeks(inputs: Inputs) -> torch.Tensor:
    """Of a model that repeats the next word where it is shown, and knows nothing else."""
    ids = inputs["input_ids"]
    return torch.cat([table_of(ids[:, 1:]), torch.zeros(len(ids), 1, WORDS)], dim=1)


def test_a_model_that_is_shown_later_words_is_not_asked_for_these() -> None:
    honest, cheat = next_words(guesses, IDS), next_words(peeks, IDS)
    assert honest.isfinite().all() and float(honest.mean()) < 0.1
    asked = cheat[cheat.isfinite()]
    assert 0 < len(asked) < len(cheat)  # the others stand behind what it was shown
    assert torch.allclose(asked, torch.tensor(WORDS).float().log())


LOSS = Voice("loss on a text (bytes)", lambda scores: scores({}), least=0.02, most=3.0)


def trial(value: object, mean: float, spread: float = 0.01) -> Trial:
    parts = mean + spread * torch.linspace(-1, 1, 64).roll(int(100 * mean))
    return Trial("fact", value, parts)


def test_a_value_is_settled_where_all_others_are_worse_beyond_doubt() -> None:
    sure = settled([trial(4, 2.0), trial(8, 3.0)], LOSS)
    assert sure is not None
    assert (sure.value, sure.evidence) == (4, "behaviour")
    assert sure.source == "loss on a text (bytes) 2 against 3 for 8"
    assert settled([trial(4, 2.0), trial(8, 2.01)], LOSS) is None  # too small
    assert settled([trial(4, 2.0, 2.0), trial(8, 2.3, 2.0)], LOSS) is None  # too uneven
    unknown, against = Trial("fact", 8, why="asks"), Trial("fact", 8, why="no", is_impossible=True)
    assert settled([trial(4, 2.0), trial(2, 3.0), unknown], LOSS) is None  # could be better, nobody knows
    assert settled([trial(4, 2.0), trial(2, 3.0), against], LOSS) is not None


def test_values_that_do_the_same_leave_the_first_as_a_default_that_says_so() -> None:
    rows = [trial("gelu_new", 2.0), trial("gelu", 2.001), trial("relu", 3.0)]
    found = by_default(rows, ("relu", "gelu", "gelu_new"), LOSS, is_untold=False)
    assert found is not None
    assert (found.value, found.evidence) == ("gelu", "default")
    assert found.source == 'loss on a text (bytes) does not tell it from "gelu_new"'
    assert by_default(rows, ("gelu",), LOSS, is_untold=True) is None  # not exactly the same
    between = [trial(1e4, 2.0, 2.0), trial(1e6, 2.3, 2.0)]  # neither the same nor likely worse
    assert by_default(between, (1e4, 1e6), LOSS, is_untold=False) is None
    late = [*rows, Trial("fact", "silu", why="no time was left", is_late=True)]
    assert by_default(late, ("gelu",), LOSS, is_untold=False) is None


def test_text_becomes_bytes_and_nothing_without_a_tokenizer() -> None:
    checkpoint = Checkpoint("x", "safetensors", {})
    words = words_of(checkpoint, 256)
    assert words is not None
    assert bytes(words.encode(PASSAGE)).decode() == PASSAGE
    assert PASSAGE.isascii()
    assert words_of(checkpoint, 30_000) is None


def test_drawn_images_are_always_the_same_and_several() -> None:
    images = drawn_images(8, 24)
    assert images.shape == (8, 3, 24, 24)
    assert (images == drawn_images(8, 24)).all()
    assert len({image.tobytes() for image in images}) == 8


class Answers(torch.nn.Module):
    """A model that gives one output, made of what it is given."""

    def __init__(self, name: str, make: Callable[[Inputs], torch.Tensor]):
        super().__init__()
        self.name, self.make = name, make

    def forward(self, **inputs: torch.Tensor) -> object:
        return SimpleNamespace(**{self.name: self.make(inputs)})


def described(needed: tuple[str, ...], **facts: object) -> Any:
    """As much of an architecture as a voice asks of it; its vocabulary is bytes."""
    known = [SimpleNamespace(name=name, value=value) for name, value in {"vocab_size": 256, **facts}.items()]
    inputs = {name: {} for name in needed}
    return SimpleNamespace(inputs=inputs, facts=known, checkpoint=Checkpoint("x", "safetensors", {}))


def test_restored_images_are_compared_with_what_was_given() -> None:
    voice = voice_of(described(("pixel_values",), task="super_resolution"), PASSAGE)
    assert voice is not None
    right = Answers(
        "reconstruction", lambda given: given["pixel_values"].repeat_interleave(2, 2).repeat_interleave(2, 3)
    )
    wrong = Answers("reconstruction", lambda given: 1 - given["pixel_values"])
    assert float(hear(voice, right).max()) == 0
    assert float(hear(voice, wrong).mean()) > voice.most
    with pytest.raises(ValueError, match="no images"):
        hear(voice, Answers("logits", lambda given: given["pixel_values"].mean((2, 3))))


def test_pairs_are_judged_by_their_diagonal() -> None:
    voice = voice_of(described(("input_ids", "pixel_values"), patch_size=8, positions=16), PASSAGE)
    assert voice is not None
    names = [f"a photo of {name}" for name in NAMES]

    def matches(given: Inputs) -> torch.Tensor:
        """Of a model that knows which name is whose: images come in turn."""
        kind = names.index(bytes(given["input_ids"][0].tolist()).decode())
        images = len(given["pixel_values"])
        return 9.0 * (torch.arange(images) % len(NAMES) == kind).float()[:, None]

    assert float(hear(voice, Answers("logits_per_image", matches)).mean()) < 0.1
    blind = Answers("logits_per_image", lambda given: torch.zeros(len(given["pixel_values"]), 1))
    assert float(hear(voice, blind).mean()) > voice.most


def test_a_table_says_what_was_tried_and_what_could_not_be() -> None:
    rows = [trial(4, 2.0), trial(8, 3.0), Trial("fact", 16, why="asks for more")]
    assert table(Tried("loss", {"attention.heads": rows})) == [
        "tried, by loss, the lower the better:",
        "  attention.heads  4: 2, 8: 3, not 16 (asks for more)",
    ]
    assert "nothing that it gives can be judged" in table(Tried())[0]


def test_untrained_weights_settle_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_bert(tmp_path / "bert")
    (folder / "config.json").unlink()
    assert main(["infer", str(folder), "--try", "--seconds", "5"]) == 0
    out = capsys.readouterr().out
    assert "behaviour:" not in out
    assert "tried: nothing" in out
    assert "attention.heads" in out.partition("to be answered")[2]
