"""Whatever text names a source, and whatever an index of a pipeline holds: read, or refused in one line."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mapper.errors import MapperError
from mapper.sources import split_part
from mapper.sources.hub import is_id, is_revision
from mapper.sources.pages import neighbours, page_of
from mapper.sources.pipeline import members
from mapper.sources.sharded import is_inside, position

WORDS = st.sampled_from(
    [
        "org",
        "name",
        "tree",
        "blob",
        "main",
        "resolve",
        "datasets",
        "..",
        "",
        "%2F",
        "a b",
        "#x",
        "?y",
        "\0",
        "é",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)
KEYS = st.text(max_size=6) | st.sampled_from(
    ["unet", "../vae", "a/b", "/etc", "..", "_class_name", "a\\b", "c:"]
)


@given(st.lists(WORDS, max_size=7))
@settings(max_examples=200)
def test_an_address_is_a_page_or_is_refused(words: list[str]) -> None:
    try:
        page = page_of("https://huggingface.co/" + "/".join(words))
    except MapperError as error:
        assert "\n" not in str(error)
        return
    assert is_id(page.name) and (page.revision is None or is_revision(page.revision))
    assert all(is_inside(path) for path in (page.file, page.folder) if path)


@given(st.dictionaries(KEYS, VALUES | st.just(["diffusers", "Model"]), max_size=5))
@settings(max_examples=200)
def test_the_members_of_a_pipeline_are_folders_beside_its_index(index: dict[str, Any]) -> None:
    try:
        found = members(json.loads(json.dumps(index)), "x")
    except MapperError as error:
        assert "\n" not in str(error)
        return
    assert all(is_inside(folder) and "/" not in folder for folder in found)
    assert all(isinstance(kind, str) for kind in found.values())


@given(st.text(max_size=30), st.integers(0, 30), st.integers(0, 30))
@settings(max_examples=200)
def test_names_are_taken_apart_without_a_loss(text: str, number: int, last: int) -> None:
    whole, part = split_part(text)
    assert text == (f"{whole}#{part}" if part else whole)
    name = f"{text.replace('/', '')}-{number:05}-of-{last:05}.safetensors"
    found = position(name)
    assert (found is not None) == (0 < number <= last)
    if found is not None:
        assert found[1][number - 1] == name and len(found[1]) == last


@given(st.text(st.sampled_from("abdegilmnoprstu2-/"), max_size=20))
@settings(max_examples=50)
def test_neighbours_are_ids(text: str) -> None:
    said = neighbours(text)
    assert not said or said.startswith("; did you mean ")
    near = said.removeprefix("; did you mean ").removesuffix("?").split(" or ")
    assert all(map(is_id, near if said else []))
