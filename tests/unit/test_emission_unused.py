"""What no forward reads is said where it is made, and has the sizes of the config where a flow says them."""

import json
from pathlib import Path

import mapper
from tests.checkpoints import BERT, bert_shapes, write_bert


def written(folder: Path, more: dict[str, list[int]], config: dict[str, object] = BERT) -> str:
    shapes = {**bert_shapes(), **more}
    tensors = {
        name: {"shape": shape, "dtype": "I64" if "ids" in name else "F32"} for name, shape in shapes.items()
    }
    path = folder / "bert.json"
    path.write_text(json.dumps({"tensors": tensors, "config": config}))
    return mapper.generate(path)


def test_nothing_is_said_of_what_is_read(tmp_path: Path) -> None:
    assert "# unused" not in mapper.generate(write_bert(tmp_path / "bert"))


def test_a_buffer_that_the_forward_counts_by_itself_is_told(tmp_path: Path) -> None:
    rows = written(tmp_path, {"embeddings.position_ids": [1, 32]}).splitlines()
    at = next(number for number, row in enumerate(rows) if "register_buffer" in row)
    assert rows[at - 1].strip() == "# unused: the positions 0, 1, 2 and so on, counted by the forward itself"
    assert max(map(len, rows)) <= 110


def test_the_bias_of_a_tied_head_is_as_long_as_the_vocabulary(tmp_path: Path) -> None:
    head = {
        "cls.predictions.transform.dense.weight": [8, 8],
        "cls.predictions.transform.dense.bias": [8],
        "cls.predictions.transform.LayerNorm.weight": [8],
        "cls.predictions.transform.LayerNorm.bias": [8],
        "cls.predictions.bias": [99],
        "cls.predictions.decoder.bias": [99],
    }
    text = written(tmp_path, head, {**BERT, "architectures": ["BertForMaskedLM"]})
    assert (
        "99" not in text.partition("class Config")[2].partition("class ")[2].partition("# What this was")[0]
    )
