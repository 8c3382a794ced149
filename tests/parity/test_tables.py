"""Encoders of tables, whose tokens know their cell, against the reference library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.parity.harness import check, reference, text_inputs, transformers

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 14,
    "type_vocab_sizes": [3, 9, 8, 2, 7, 6, 5],
    "max_num_rows": 4,
    "max_num_columns": 5,
}


def tables(positions: bool = True) -> dict[str, dict[str, torch.Tensor]]:
    """Each case with a table; the first words stand in no cell. One case has none."""
    cases = text_inputs(99, positions=positions)
    for name, case in cases.items():
        if name != "all ones":
            ids = case["input_ids"]
            cell = torch.arange(ids.shape[1]) // 3 + ids[:, :1] % 2
            kinds = (ids % 2, cell % 3 + cell // 4, cell // 3 + 1, ids % 2, ids % 7, ids % 6, ids % 5)
            types = torch.stack(torch.broadcast_tensors(*kinds), -1).clone()
            types[:, :2, 1:3] = 0
            case["token_type_ids"] = types
    return cases


@pytest.mark.parametrize("anew", [True, False])
@pytest.mark.parametrize("head", ["Model", "ForMaskedLM", "ForSequenceClassification"])
def test_tapas(head: str, anew: bool, tmp_path: Path) -> None:
    config = transformers.TapasConfig(**SIZES, reset_position_index_per_cell=anew, num_labels=3)
    check(reference(f"Tapas{head}", config), tmp_path, tables())


@pytest.mark.parametrize(
    "options",
    [{}, {"num_aggregation_labels": 4, "temperature": 0.3}, {"allow_empty_column_selection": True}],
    ids=["cells", "aggregation", "empty"],
)
def test_tapas_chooses_cells(options: dict[str, Any], tmp_path: Path) -> None:
    config = transformers.TapasConfig(**SIZES, reset_position_index_per_cell=True, **options)
    check(reference("TapasForQuestionAnswering", config), tmp_path, tables())
