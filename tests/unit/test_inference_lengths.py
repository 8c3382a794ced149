"""What the lengths of tables show of facts."""

from __future__ import annotations

import pytest

from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK

VIT = header(next(family for family in RULEBOOK.families if family.name == "timm_vit").examples[0])


@pytest.mark.parametrize(("rows", "shown"), [(0, ("interpolated", "default")), (-1, ("patches", "shape"))])
def test_a_table_of_a_square_number_of_rows_has_none_for_the_class_token(
    rows: int, shown: tuple[str, str]
) -> None:
    table = VIT.tensors["pos_embed"]
    one, count, width = table.shape
    tensors = {**VIT.tensors, "pos_embed": TensorInfo((one, count + rows, width), table.dtype)}
    read = infer(Checkpoint("x", "manifest", tensors, None), RULEBOOK)
    facts = {fact.name: fact for fact in read.facts}
    found = facts["image.positions"]
    assert (found.value, found.evidence) == shown
