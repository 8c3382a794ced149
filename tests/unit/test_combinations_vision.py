"""Models of images of known pieces, together as in no listed type: nothing is taken in silence that is otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from mapper._api import describe
from tools.combinations import EQUAL, TOLD, answered, fares, unusual
from tools.drawn import pairs, vision
from tools.drawn.pairs import Draw as Pair
from tools.drawn.vision import Draw, draw, write
from tools.drawn.vision_towers import Vision

ASKED = {  # what names alone suggest
    "pooling": Draw(scheme="modern", pooling="mean"),
    "head.pooling": Draw(scheme="modern", classes=True, pooling="mean"),
    "norm.final": Draw(scheme="modern", pooling="first"),
    "image.norm_last": Draw(scheme="dinov2", first_norm=True),
    "image.positions": Draw(scheme="modern", position="waves"),
    "image.prefix_tokens": Draw(class_token=False, registers=True, position="patches"),
    "rotary.style": Draw(scheme="modern", position="rotary", style="interleaved"),
    "rotary.coordinates": Draw(scheme="clip", position="both", coordinates="centred"),
}  # fmt: skip
KNOWN = {
    "a square of places and one more that is none of them": Draw(height=24, pooling="mean"),
    "an indexed table of the patches alone": Draw(scheme="clip", position="patches", width=32),
    "angles of rows and columns one after the other": Draw(position="rotary", axes="split", pooling="probe"),
    "registers and a norm of the mean": Draw(scheme="timm", fused=True, registers=True, final="pooled", pooling="mean"),
    "waves behind a class token": Draw(scheme="modern", position="waves", norm="rms", gated=True, classes=True, pooling="all"),
    "a head that reads what attention pools": Draw(scheme="clip", pooling="probe", classes=True),
    "a norm of the mean alone, beside norms of queries": Draw(final="pooled", query_norm="head", layer_scale=True, pooling="mean"),
}  # fmt: skip

PAIRS = {
    "texts that see all words, and their mean": Pair(causal=False, read="mean"),
    "angles that the config has a base of": Pair(image=Vision(position="both", axes="split", pooling="first")),
    "a probe whose heads are not those of the layers": Pair(
        image=Vision(class_token=False, position="patches", head_dim=16, pooling="probe"), causal=False, read="last", bias=True
    ),
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_pairs_compose_and_say_nothing_false(pair: Pair, tmp_path: Path) -> None:
    how, why = fares(pairs, pair, tmp_path, 1)
    assert how in (EQUAL, TOLD), why


@pytest.mark.parametrize(("fact", "one"), ASKED.items(), ids=ASKED)
def test_what_names_alone_suggest_is_asked(fact: str, one: Draw, tmp_path: Path) -> None:
    write(one, tmp_path, 1)
    said, _ = answered(vision, one, tmp_path)
    assert fact in {name.rpartition(":")[2] for name in said}


@pytest.mark.parametrize("one", KNOWN.values(), ids=KNOWN)
def test_pieces_compose(one: Draw, tmp_path: Path) -> None:
    how, why = fares(vision, one, tmp_path, 1)
    assert how in (EQUAL, TOLD), why


@pytest.mark.parametrize("seed", range(4))
def test_what_is_drawn_is_equal_or_asked(seed: int, tmp_path: Path) -> None:
    how, why = fares(vision, draw(seed), tmp_path, seed)
    assert how in (EQUAL, TOLD), f"{how}: {why}: {unusual(draw(seed))}"


def test_rows_beyond_the_patches_of_the_configs_image_are_of_the_class_token(tmp_path: Path) -> None:
    write(Draw(height=24, pooling="first"), tmp_path, 1)  # 24 patches, and 25 rows as a square has them
    read = describe(str(tmp_path), hints={"pooling": "first", "norm.final": "positions"})
    assert {fact.value for fact in read.facts if fact.name == "image.positions"} == {"interpolated"}
