"""Lists that a loop goes through together: where one is shorter, a module was lost, and no model is made of the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mapper.errors import ArchitectureError
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK

ANSWERS = {"padding_index": 2, "embedding.segments_in": "tokens", "fields.idle": "is_encoder,use_lang_emb"}


@pytest.mark.parametrize("lost", ["layer_norm1.0.", "layer_norm2.1.", "ffns.1."])
def test_an_element_less_makes_no_model(lost: str) -> None:
    """XLM keeps attention, feed-forward and the norms of each in a list of its own; it was called exact with any of them cut."""
    known = header(next(each for each in RULEBOOK.families if "xlm" in each.model_types).examples[0])
    assert infer(known, RULEBOOK).reading == "exact"
    tensors = {name: info for name, info in known.tensors.items() if lost not in name}
    assert len(tensors) < len(known.tensors)
    with pytest.raises(
        ArchitectureError, match=rf"transformer\.{lost[:-1]} is missing: no flaubert has an element"
    ):
        infer(replace(known, tensors=tensors), RULEBOOK)
    nobody = {**known.config, "model_type": "nobody"}  # the lists of a type that no example shows
    read = infer(replace(known, tensors=tensors, config=nobody), RULEBOOK, hints=ANSWERS)
    assert read.reading == "skeleton" and "side by side: some are missing" in "; ".join(read.missing)
