"""Rules of dropout: what they may say, what is refused, and what headers and commands tell of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mapper
from mapper.cli import main
from mapper.errors import ArchitectureError, RuleError
from mapper.rulebook.dropout import dropout_rules
from mapper.rulebook.rulebook import Rulebook

SIZES = {
    "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 12, "vocab_size": 11, "max_position_embeddings": 6, "type_vocab_size": 2, "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}  # fmt: skip
SHAPES = {
    "embeddings.word_embeddings.weight": [11, 8], "embeddings.position_embeddings.weight": [6, 8],
    "embeddings.token_type_embeddings.weight": [2, 8],
    **{f"embeddings.LayerNorm.{name}": [8] for name in ("weight", "bias")},
    **{
        f"encoder.layer.0.{module}.{name}": ([*shape] if name == "weight" else [shape[0]])
        for module, shape in {
            "attention.self.query": (8, 8), "attention.self.key": (8, 8), "attention.self.value": (8, 8),
            "attention.output.dense": (8, 8), "attention.output.LayerNorm": (8,), "intermediate.dense": (12, 8),
            "output.dense": (8, 12), "output.LayerNorm": (8,),
        }.items()
        for name in ("weight", "bias")
    },
}  # fmt: skip


def manifest(folder: Path, **config: Any) -> Path:
    file = folder / "model.json"
    file.write_text(json.dumps({"config": SIZES | config, "tensors": SHAPES}))
    return file


def head(text: str) -> str:
    return " ".join(text.partition('"""\n')[0].split())


def test_shipped_files_are_read_and_speak_of_most_types():
    book = Rulebook()
    rules = dropout_rules(book)
    known = {name for family in book.families for name in family.model_types}
    assert len(known & set(rules)) > 150  # the others are types of towers


def test_without_the_option_the_header_says_that_there_is_none(tmp_path):
    text = mapper.generate(manifest(tmp_path, hidden_dropout_prob=0.1))
    assert "No dropout is written: training mode computes the same;" in head(text)
    assert "F.dropout" not in text


def test_of_batch_norms_the_header_says_that_they_train():
    assert "computes the same, the batch norms apart;" in head(mapper.generate("timm/resnet18.a1_in1k"))


def test_with_it_the_header_names_each_rate_and_the_sizes_hold_it(tmp_path):
    text = mapper.generate(manifest(tmp_path, hidden_dropout_prob=0.1), train=True)
    assert "Dropout, in training mode alone: hidden_dropout_prob = 0.1." in head(text)
    assert "    hidden_dropout_prob: float = 0.1  # config: hidden_dropout_prob\n" in text
    assert "F.dropout(self.LayerNorm(x), self.hidden_dropout_prob, self.training)" in text
    assert "dropout_p=" not in text  # of attention the config says nothing


def test_what_the_config_has_not_is_not_written(tmp_path):
    text = mapper.generate(manifest(tmp_path, hidden_dropout_prob=0.0), train=True)
    assert "Dropout, in training mode alone: the config has none." in head(text)
    assert "F.dropout" not in text


def test_a_rate_whose_place_is_unknown_is_named(tmp_path):
    text = mapper.generate(manifest(tmp_path, hidden_dropout_prob=0.1, odd_dropout=0.2), train=True)
    assert "Dropout that is not written: odd_dropout = 0.2: no rule says where." in head(text)


def test_where_no_place_is_known_it_is_refused(tmp_path):
    file = manifest(tmp_path, odd_dropout=0.2)
    with pytest.raises(ArchitectureError, match=r"odd_dropout = 0\.2: no rule says where"):
        mapper.generate(file, train=True)
    assert main(["generate", str(file), "--train"]) == 2


def test_rates_of_stages_are_named_too(tmp_path):
    with pytest.raises(ArchitectureError, match=r"odd_drop_rate = \[0\.0, 0\.1\]: no rule says where"):
        mapper.generate(manifest(tmp_path, odd_drop_rate=[0.0, 0.1]), train=True)
    text = mapper.generate(manifest(tmp_path, odd_drop_rate=[0.0, 0.0]), train=True)
    assert "the config has none" in head(text)


def test_a_file_of_ones_own_says_where(tmp_path):
    (tmp_path / "rules" / "dropout").mkdir(parents=True)
    rule = tmp_path / "rules" / "dropout" / "mine.yaml"
    rule.write_text(
        "dropout: mine\ndoc: of a test\ngroups:\n  - model_types: [bert]\n    places:\n"
        "      - {rate: odd_dropout, at: [input of feed_forward.down]}\n"
    )
    text = mapper.generate(manifest(tmp_path, odd_dropout=0.2), train=True, rules=[tmp_path / "rules"])
    assert "F.dropout(F.gelu(self.intermediate.dense(x)), self.odd_dropout, self.training)" in text


@pytest.mark.parametrize(
    ("site", "why"),
    [
        ("output of attention", "is no site"),
        ("result of", "is no site"),
        ("result of Attention", "is no site"),
    ],
)
def test_a_site_that_is_none_is_an_error_with_its_line(site, why, tmp_path):
    folder = tmp_path / "rules" / "dropout"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(
        "dropout: mine\ndoc: of a test\ngroups:\n  - model_types: [bert]\n    places:\n"
        f"      - {{rate: odd_dropout, at: [{site}]}}\n"
    )
    with pytest.raises(RuleError, match=f"mine.yaml:6: .*{why}"):
        dropout_rules(Rulebook([tmp_path / "rules"]))


def test_generate_writes_it_on_the_command_line(tmp_path):
    out = tmp_path / "model.py"
    file = manifest(tmp_path, hidden_dropout_prob=0.1)
    assert main(["generate", str(file), "--train", "-o", str(out)]) == 0
    assert "F.dropout" in out.read_text()
