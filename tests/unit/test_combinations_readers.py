"""Decoders that read images or sounds, of known pieces together as in no listed type: nothing is wrong in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from mapper._api import describe
from tools.combinations import EQUAL, TOLD, answered, fares
from tools.drawn import decoders, readers, speech
from tools.drawn.readers import Draw
from tools.drawn.vision_towers import Vision

PLACES = Vision(class_token=False, position="patches", activation="gelu_pytorch_tanh")
SOUND = speech.Draw(hears="spectra", position="stored", key_bias=False)


def seeing(**said: object) -> Draw:
    """One whose projector reads the output of an encoder without a class token."""
    return Draw(**{"image": PLACES, "layer": None, "strategy": False, "dropped": False} | said)  # type: ignore[arg-type]


KNOWN = {
    "patches one behind the other": Draw(joined="rows", shape="one"),
    "squares of a named layer": Draw(joined="squares", joined_field="spatial_merge_size"),
    "squares beside a decoder of a listed type": seeing(
        joined="squares", joined_field="spatial_merge_size", listed="text", called="numbers"
    ),
    "means of squares": seeing(joined="mean"),
    "three maps in a row of modules, and a norm": Draw(called="numbers", shape="three", normed="last"),
    "a norm between two maps": seeing(called="numbers", normed="between"),
    "frames joined": Draw(
        reads="sounds", layer=None, strategy=False, dropped=False, place="audio_token_id", sound=SOUND, joined="rows"
    ),
}  # fmt: skip


DRAWN = {  # by their numbers
    "a listed tower with a pooled vector, of which the positions are read": 701,
    "squares of patches of two layers side by side": 719,
    "images of sizes of their own": 903,
    "a text in the folder that holds the tower": 909,
    "a text and an encoder of sounds with the names of one decoder together": 1037,
    "the same beside an encoder of a listed type": 9010,
    "three maps in a row of modules, behind a norm": 1106,
    "a pooler that nothing reads": 1224,
    "the last norm of positions that stand among words": 9016,
    "a field with how many frames three maps read at once": 331200,
}


@pytest.mark.parametrize("seed", DRAWN.values(), ids=DRAWN)
def test_what_was_built_wrong_or_did_not_compose(seed: int, tmp_path: Path) -> None:
    how, why = fares(readers, readers.draw(seed), tmp_path, seed)
    assert how in (EQUAL, TOLD), why


@pytest.mark.parametrize("one", KNOWN.values(), ids=KNOWN)
def test_pieces_compose(one: Draw, tmp_path: Path) -> None:
    how, why = fares(readers, one, tmp_path, 1)
    assert how in (EQUAL, TOLD), why


def test_a_norm_as_wide_as_what_is_read_and_given_is_asked_for(tmp_path: Path) -> None:
    one = seeing(normed="last", called="fc")
    readers.write(one, tmp_path, 1)
    said, missing = answered(readers, one, tmp_path)
    assert said["projector.placement"] == "last" and not missing


def test_a_norm_as_wide_as_what_is_read_alone_stands_first(tmp_path: Path) -> None:
    readers.write(seeing(normed="first", joined="squares", joined_field="downsample_ratio"), tmp_path, 1)
    found = {fact.value for fact in describe(str(tmp_path)).facts if fact.name == "projector.placement"}
    assert found == {"first"}


def test_which_norms_a_text_beside_a_tower_has_is_asked_as_of_one_alone(tmp_path: Path) -> None:
    """The field of their epsilon is no listed type's of these names, though types that nobody lists may have it."""
    one = Draw(text=decoders.Draw(norm="scale"))
    readers.write(one, tmp_path, 1)
    said, missing = answered(readers, one, tmp_path)
    assert {key.rpartition(":")[2]: value for key, value in said.items()}[
        "norm.kind"
    ] == "LayerNorm" and not missing, said
    assert fares(readers, one, tmp_path / "again", 1)[0] == TOLD
