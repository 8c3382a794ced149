"""What no forward reads is said where it is made, and has the sizes of the config where a flow says them."""

import json
from pathlib import Path

import mapper
from mapper.authoring.expectations import read_example
from mapper.catalogue import find
from mapper.emission import emit
from mapper.inference import infer
from mapper.rulebook.rulebook import Rulebook
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


def emitted(family_name: str, at: int) -> str:
    """The source of a family's example."""
    rulebook = Rulebook()
    family = next(family for family in rulebook.families if family.name == family_name)
    architecture, _ = read_example(family.examples[at], family, rulebook)
    assert architecture is not None
    return emit(architecture)


def test_what_nothing_reads_is_as_large_as_its_like_that_is_read() -> None:
    text = emit(infer(find("google-t5/t5-small"), Rulebook()))
    tables = [row.strip() for row in text.splitlines() if "self.relative_attention_bias = " in row]
    assert tables == ["self.relative_attention_bias = nn.Embedding(config.buckets, config.heads)"] * 2


def test_a_module_with_unread_tensors_below_stays_what_torch_has() -> None:
    text = " ".join(emitted("ibert", 0).split())
    assert 'with_unused( nn.Embedding(config.vocab_size, config.hidden_size), {"weight_integer": [' in text
    assert '"activation.x_min": [1]' in text
    assert "self.dense.weight" not in text and "x = self.word_embeddings(input_ids)" in text


def test_equal_blocks_with_numbers_in_their_names_are_made_by_their_numbers() -> None:
    text = emitted("switch_transformers", 0)
    assert '{f"expert_{index}": FeedForward(config) for index in range(config.experts)}' in text
    assert "mix_experts(x, weights, chosen, self.experts.values())" in text
    assert "expert_10" not in text.partition("class Model")[2].partition("# What this was")[0]
