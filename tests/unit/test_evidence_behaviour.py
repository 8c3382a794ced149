"""What candidates are judged by, when a value is settled, and that models which make no sense settle nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from mapper.architecture import Question
from mapper.checkpoint import Checkpoint
from mapper.cli.app import main
from mapper.evidence.behaviour import trying
from mapper.evidence.behaviour.drawn import drawn_images
from mapper.evidence.behaviour.passage import PASSAGE
from mapper.evidence.behaviour.table import table
from mapper.evidence.behaviour.trying import Trial, Tried
from mapper.evidence.behaviour.voices import Voice, next_words
from mapper.evidence.behaviour.words import words_of
from mapper.rulebook.rulebook import rulebook_of
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


def search() -> trying._Search:
    """A search that has heard nothing, of a checkpoint without weights."""
    made = object.__new__(trying._Search)
    made.voice = Voice("loss on a text (bytes)", lambda scores: scores({}), least=0.02, most=3.0)
    made.first = type("First", (), {"rulebook": rulebook_of(())})()  # type: ignore[assignment]
    return made


def trial(value: object, mean: float, spread: float = 0.01) -> Trial:
    parts = mean + spread * torch.linspace(-1, 1, 64).roll(int(100 * mean))
    return Trial("fact", value, parts)


def test_a_value_is_settled_where_all_others_are_worse_beyond_doubt() -> None:
    settled = search().settled
    heads, base = Question("attention.heads", "*"), Question("rotary.base", "*")
    sure = settled([trial(4, 2.0), trial(8, 3.0)], heads)
    assert sure is not None
    assert (sure.value, sure.evidence) == (4, "behaviour")
    assert sure.source == "loss on a text (bytes) 2 against 3 for 8"
    assert settled([trial(4, 2.0), trial(8, 2.01)], heads) is None  # too small
    assert settled([trial(4, 2.0, 2.0), trial(8, 2.3, 2.0)], heads) is None  # too uneven
    unknown, against = Trial("fact", 8, why="asks"), Trial("fact", 8, why="no", is_impossible=True)
    assert settled([trial(4, 2.0), trial(2, 3.0), unknown], heads) is None  # could be better, nobody knows
    assert settled([trial(4, 2.0), trial(2, 3.0), against], heads) is not None
    assert settled([trial(10000.0, 2.0), trial(1e6, 3.0)], base) is None  # any other number could be


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
