"""Where a list of modules begins in the paths of its elements."""

from __future__ import annotations

import pytest

from mapper.architecture import Place
from mapper.emission.paths import list_folder


def place(path: str) -> Place:
    return Place(tuple((int(word),) if word.isdigit() else word for word in path.split(".") if word))


@pytest.mark.parametrize(
    ("paths", "owner", "wanted"),
    [
        (["blocks.0", "blocks.1"], "", "blocks"),
        (["blocks.0.heads.0", "blocks.0.heads.1"], "", "blocks.0.heads"),
        (["focal_layers.0.0", "focal_layers.1.0"], "", "focal_layers"),
        (["focal_layers.0.0"], "", "focal_layers"),  # of one element: its first number
        (["features.1.conv"], "", "features"),
        (["blocks.2.heads.0"], "blocks.2", "blocks.2.heads"),
    ],
)
def test_a_list_begins_before_the_numbers_in_which_its_elements_differ(
    paths: list[str], owner: str, wanted: str
) -> None:
    assert list_folder([place(path) for path in paths], place(owner)) == place(wanted)
