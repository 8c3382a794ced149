"""What candidates are judged by, when a value is settled, and that models which make no sense settle nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mapper.checkpoint import Checkpoint
from mapper.cli.app import main
from mapper.evidence.behaviour.drawn import NAMES, drawn_images
from mapper.evidence.behaviour.longer_text import longer_text
from mapper.evidence.behaviour.passage import PASSAGE
from mapper.evidence.behaviour.settling import Trial, by_default, is_better, ranked, settled
from mapper.evidence.behaviour.table import table
from mapper.evidence.behaviour.trying import Tried, _Search
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


def read_more(row: Trial, mean: float, count: int = 64) -> Trial:
    """The trial of a value that has read a longer text, too."""
    parts = mean + 0.01 * torch.linspace(-1, 1, count).roll(int(100 * mean))
    return replace(row, further=parts)


def test_a_longer_text_settles_what_a_short_one_leaves_open_but_not_against_it() -> None:
    near = trial(4, 2.0, 2.0), trial(8, 2.03, 2.0)  # too uneven
    assert settled(near, LOSS) is None
    assert settled([read_more(near[0], 2.5), read_more(near[1], 2.6)], LOSS) is not None
    assert settled([read_more(near[0], 2.5), read_more(near[1], 2.505)], LOSS) is None
    against = [read_more(trial(4, 2.0), 2.5), read_more(trial(8, 1.9), 2.6)]
    assert settled(against, LOSS) is None
    some = read_more(trial(8, 2.0), 2.6, count=32)  # left behind on the way: compared by what both have read
    assert is_better(read_more(near[0], 2.5), some, LOSS.least)
    assert [row.value for row in ranked([trial(1, 1.0), some, read_more(near[0], 2.5)])] == [4, 8, 1]


def test_values_that_come_to_the_same_model_are_no_others() -> None:
    same = [replace(trial(word, 2.0), source="a") for word in ("gelu_new", "gelu_fast")]
    found = settled([*same, replace(trial("relu", 3.0), source="b")], LOSS)
    assert found is not None
    assert found.value == "gelu_new"
    assert settled(same, LOSS) is None  # nothing else was tried


def test_more_is_beyond_doubt_where_another_fact_may_be_wrong() -> None:
    rows = [trial(4, 2.0), trial(8, 2.1)]
    assert settled(rows, LOSS) is not None
    assert settled(rows, LOSS, times=10.0) is None


def test_a_model_is_not_worse_for_being_too_sure() -> None:
    """On a text unlike those of its training every model is, and what makes it less sure is no better reading."""
    voice = voice_of(described(("input_ids",), task="causal_lm"), PASSAGE)
    assert voice is not None
    random = torch.Generator().manual_seed(0)
    noise = torch.randn(1024, 256, generator=random)

    def plain(given: Inputs) -> torch.Tensor:
        return noise[: given["input_ids"].shape[1]].expand(len(given["input_ids"]), -1, -1)

    ids = torch.tensor(list(PASSAGE.encode()[: 8 * 96])).view(8, 96)
    too_sure = hear(voice, Answers("logits", lambda given: plain(given) / 0.55))
    assert float(too_sure.mean()) <= float(next_words(plain, ids).mean()) + 1e-4


def test_a_longer_text_is_always_the_same_and_read_part_by_part() -> None:
    assert len(longer_text()) > 100_000
    assert longer_text()[:100] == longer_text()[:100]
    voice = voice_of(described(("input_ids",), task="causal_lm"), PASSAGE)
    assert voice is not None
    flat = Answers("logits", lambda given: torch.zeros(*given["input_ids"].shape, 256))
    parts = [len(hear(voice, flat, judge)) for judge in voice.further]
    assert parts == [95 * rows for rows in (8, 16, 32, 64)]


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


class Greedy(_Search):
    """A search over a model that is right where "turned" is so, and "by" is 2: a question that only this raises."""

    def __init__(self, wrong: float = 2.2) -> None:
        self.wrong = wrong
        self.voice, self.questions = LOSS, {"turned": self.asked("turned", (False, True))}

    @staticmethod
    def asked(name: str, candidates: tuple[Any, ...]) -> Any:
        return SimpleNamespace(name=name, fact=name, candidates=candidates)

    def values(self, question: Any) -> list[Any]:
        return list(question.candidates)

    def is_late(self) -> bool:
        return False

    def reading(self, answers: Any, questions: Any, kept: str = "") -> Any:
        raised = {"by": self.asked("by", (0, 1, 2))} if answers["turned"] else {}
        first = {name: question.candidates[0] for name, question in raised.items()}
        said = {"turned": answers["turned"], **{name: answers.get(name, first[name]) for name in first}}
        return None, said, {**self.questions, **raised}

    def listen(self, name: str, value: Any, said: Any, questions: Any) -> Trial:
        return trial(value, 2.0 if not said["turned"] else 1.0 if said["by"] == 2 else self.wrong)

    def trial(self, name: str, value: Any, answers: Any, only_heard: bool) -> Trial:
        return self.listen(name, value, {"by": 0, **answers, name: value}, {})

    def changed(self, answers: Any, name: str, value: Any) -> Any:
        return {**answers, name: value}


def test_a_value_is_tried_with_other_answers_to_what_it_raises() -> None:
    assert Greedy().together({"turned": False}) == {"turned": True, "by": 2}
    assert Greedy().together({"turned": True, "by": 2}) is None
    assert Greedy(wrong=3.0).together({"turned": False}) is None  # too far for other answers to make good


class Dropping(Greedy):
    """A search in which a longer text shows that "turned" is so, after which "other" is asked no more."""

    def __init__(self) -> None:
        super().__init__()
        self.questions["other"] = self.asked("other", (0, 1))

    def is_open(self, question: Any) -> bool:
        return False

    def trials(self, name: str, question: Any, answers: Any, only_heard: bool = False) -> list[Trial]:
        return [trial(value, 2.0) for value in question.candidates]

    def compared(self, name: str, rows: Any) -> list[Trial]:
        return [trial(row.value, 1.0 if row.value else 2.0) for row in reversed(rows)]

    def changed(self, answers: Any, name: str, value: Any) -> Any:
        self.questions.pop("other", None)
        return {"turned": value}

    def improved(self, answers: Any) -> Any:
        return answers, True


def test_what_is_asked_no_more_after_a_longer_text_is_not_looked_for() -> None:
    trials, is_whole = Dropping().nearer({"turned": False, "other": 0}, True)
    assert is_whole
    assert list(trials) == ["turned"]
    assert trials["turned"][0].value is True
