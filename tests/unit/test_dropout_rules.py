"""Rules of dropout: what they may say, what is refused, and what headers and commands tell of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mapper
from mapper.cli import main
from mapper.errors import ArchitectureError, RuleError
from mapper.rulebook.rulebook import Rulebook, shipped_folder

SHIPPED = sorted((shipped_folder() / "dropout").glob("*.yaml"))
SIZES = {
    "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 12, "vocab_size": 11, "max_position_embeddings": 6, "type_vocab_size": 2, "hidden_act": "gelu",
    "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
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
    said = {name: value for name, value in (SIZES | config).items() if value is not None}
    file.write_text(json.dumps({"config": said, "tensors": SHAPES}))
    return file


def head(text: str) -> str:
    return " ".join(text.partition('"""\n')[0].split())


def test_shipped_files_are_read_and_speak_of_most_types():
    book = Rulebook()
    rules = book.index("dropout")
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
    assert "dropout_p=" not in text  # of attention the config says that there is none


def test_what_the_config_leaves_out_is_at_the_rate_of_the_published_class(tmp_path):
    text = mapper.generate(manifest(tmp_path, attention_probs_dropout_prob=None), train=True)
    assert "attention_probs_dropout_prob = 0.1 (the published default)." in head(text)
    assert "    attention_probs_dropout_prob: float = 0.1  # default:" in text
    assert "dropout_p=self.attention_probs_dropout_prob * self.training" in text


def test_so_is_a_part_that_the_config_leaves_out():
    """A CLIP whose config says nothing of its towers: their own classes have 0.0, so that nothing is written or named."""
    text = mapper.generate("openai/clip-vit-base-patch32", train=True)
    assert "Dropout, in training mode alone: the config has none." in head(text)


def test_a_rate_of_the_class_that_no_rule_places_is_named(tmp_path):
    (tmp_path / "rules" / "dropout").mkdir(parents=True)
    (tmp_path / "rules" / "dropout" / "mine.yaml").write_text(
        "dropout: mine\ndoc: of a test\ngroups:\n  - model_types: [bert]\n    places:\n"
        "      - {rate: hidden_dropout_prob, at: [result of attention]}\n"
    )
    file = manifest(tmp_path, hidden_dropout_prob=0.2, attention_probs_dropout_prob=None)
    text = mapper.generate(file, train=True, rules=[tmp_path / "rules"])
    assert (
        "not written: attention_probs_dropout_prob = 0.1 (the published default): no rule says where"
        in head(text)
    )


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
        Rulebook([tmp_path / "rules"]).dropout("bert")


MINE = "dropout: mine\ndoc: of a test\ngroups:\n  - model_types: [bert]\n    places:\n      - {rate: RATE, at: [SITE]}\n"


def own(folder: Path, rate: str, site: str, name: str = "mine") -> Path:
    rule = folder / "rules" / "dropout" / f"{name}.yaml"
    rule.parent.mkdir(parents=True, exist_ok=True)
    rule.write_text(MINE.replace("RATE", rate).replace("SITE", site))
    return rule


def test_of_a_rate_that_no_rule_can_place_the_header_says_why(tmp_path):
    rule = own(tmp_path, "hidden_dropout_prob", "result of attention")
    rule.write_text(rule.read_text() + "    unwritten: {odd_dropout: it drops what is computed}\n")
    file = manifest(tmp_path, hidden_dropout_prob=0.1, odd_dropout=0.2)
    text = mapper.generate(file, train=True, rules=[tmp_path / "rules"])
    assert "Dropout that is not written: odd_dropout = 0.2: it drops what is computed." in head(text)


@pytest.mark.parametrize(
    ("rate", "site", "why"),
    [
        ("hidden_dropuot_prob", "result of attention", "a config of bert has no field 'hidden_dropuot_prob'"),
        (
            "hidden_dropout_prob",
            "result of atention",
            "'atention' is no role and no topic of flows; did you mean",
        ),
        ("hidden_dropout_prob", "output of attention", "is no site"),
    ],
)
def test_rules_check_reads_such_files_too(rate, site, why, tmp_path, capsys):
    own(tmp_path, rate, site)
    assert main(["rules", "check", "--no-run", str(tmp_path / "rules" / "dropout" / "mine.yaml")]) == 2
    assert why in capsys.readouterr().out


def test_a_good_file_and_the_shipped_ones_pass(tmp_path, capsys):
    files = [own(tmp_path, "hidden_dropout_prob", "result of attention"), *SHIPPED]
    assert main(["rules", "check", "--no-run", *map(str, files)]) == 0


def test_a_type_in_two_files_of_one_folder_is_a_problem(tmp_path, capsys):
    own(tmp_path, "hidden_dropout_prob", "result of attention", "other")
    rule = own(tmp_path, "hidden_dropout_prob", "result of attention")
    assert main(["rules", "check", "--no-run", str(rule), "--rules", str(tmp_path / "rules")]) == 2
    assert "bert is in" in capsys.readouterr().out


def test_the_digest_of_the_rules_covers_them(tmp_path):
    rule = own(tmp_path, "hidden_dropout_prob", "result of attention")
    before = mapper.generate(manifest(tmp_path), rules=[tmp_path / "rules"]).partition("\n")[0]
    rule.write_text(rule.read_text().replace("attention", "feed_forward"))
    assert mapper.generate(manifest(tmp_path), rules=[tmp_path / "rules"]).partition("\n")[0] != before


def test_generate_writes_it_on_the_command_line(tmp_path):
    out = tmp_path / "model.py"
    file = manifest(tmp_path, hidden_dropout_prob=0.1)
    assert main(["generate", str(file), "--train", "-o", str(out)]) == 0
    assert "F.dropout" in out.read_text()
