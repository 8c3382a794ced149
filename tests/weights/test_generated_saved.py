"""Models of generated files: unedited ones have an architecture, edited ones say that they were edited."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import mapper
from mapper.checkpoint import Checkpoint
from mapper.emission import emit
from mapper.emission.origin import apart_from_versions, is_unedited, told_by
from mapper.inference import infer
from mapper.rulebook.rulebook import Rulebook, rulebook_of
from mapper.weights.built.model import architecture_data, why_not_built
from tests.checkpoints import BERT, bert_shapes, write_bert
from tests.weights.small_models import FAMILIES, KINDS, RULEBOOK, built, generated, imported, read, stored

IDS = torch.arange(14).reshape(2, 7)


@pytest.fixture
def bert_folder(tmp_path: Path) -> Path:
    return write_bert(tmp_path / "bert")


@pytest.mark.parametrize("family", list(FAMILIES)[1::4])  # others in test_built
def test_what_a_file_says_is_enough_to_read_the_same_again(family: str) -> None:
    before = read(family)
    text = emit(before)
    told = told_by(text)
    assert told is not None and is_unedited(text)
    tensors = dict(reversed(before.checkpoint.tensors.items()))
    checkpoint = Checkpoint(told.source, "memory", tensors, told.origin.config, notes=list(told.notes))
    again = infer(checkpoint, RULEBOOK, hints=told.origin.hints, use_families=told.origin.families)
    assert emit(again) == text


@pytest.mark.parametrize("family", KINDS)
def test_a_model_of_a_generated_file_has_the_architecture_of_the_built_one(
    family: str, tmp_path: Path
) -> None:
    data = stored(architecture_data(generated(family, tmp_path)))
    assert data == stored(architecture_data(built(family)))


@pytest.mark.parametrize("options", [{"cache": True}, {"hidden_states": True}])
def test_its_options_are_those_of_the_file(options: dict[str, bool], tmp_path: Path) -> None:
    data = architecture_data(generated("llama", tmp_path, **options))
    assert data is not None and data["options"] == list(options)


def test_the_last_lines_are_short_comments(bert_folder: Path) -> None:
    text = mapper.generate(bert_folder)
    rows = text.partition("return model.eval()\n")[2].split("\n")
    assert rows[:2] == ["", ""] and rows[-1] == ""
    assert all(row.startswith("# ") and len(row) <= 110 for row in rows[2:-1])


@pytest.mark.parametrize("name", ["two  spaces", "  ", "a\nb", "é\x7f\u2028", '"""', "x" * 300, "a " * 200])
def test_any_text_of_a_config_comes_through_the_comments(name: str, tmp_path: Path) -> None:
    tensors = {key: {"shape": shape, "dtype": "F32"} for key, shape in bert_shapes().items()}
    text = mapper.generate({"tensors": tensors, "config": {**BERT, "new_field": name, name: 1}})
    told = told_by(text)
    assert told is not None
    assert told.origin.config[name] == 1
    assert told.origin.config["new_field"] == (name if len(json.dumps(name)) <= 200 else "...")
    assert text.isascii() and compile(text, "model.py", "exec")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x + self", "x - self"),
        ("eps", "epsilon"),
        ("# What this was read from", "#  What this was read from"),
        ("Load the weights", "Load all weights"),
        ('"num_attention_heads": 2', '"num_attention_heads": 4'),
        ("\n", "\r\n\n"),
    ],
)
def test_a_file_that_was_edited_gives_states_alone(
    old: str, new: str, bert_folder: Path, tmp_path: Path
) -> None:
    text = mapper.generate(bert_folder)
    assert old in text
    assert not is_unedited(text.replace(old, new, 1))


def test_an_edited_file_says_so(bert_folder: Path, tmp_path: Path) -> None:
    text = mapper.generate(bert_folder).replace("x = self.embeddings(", "x = 2 * self.embeddings(")
    assert text != mapper.generate(bert_folder)
    model = imported(text, tmp_path, "mine").load(bert_folder)
    assert architecture_data(model) is None
    assert "mine.py' was edited since mapper wrote it" in why_not_built(model)


def test_a_file_that_is_edited_after_its_import_says_so(bert_folder: Path, tmp_path: Path) -> None:
    module = imported(mapper.generate(bert_folder), tmp_path, "later")
    assert architecture_data(module.load(bert_folder)) is not None
    with open(tmp_path / "later.py", "a") as file:
        file.write("# a note\n")
    assert "was edited" in why_not_built(module.load(bert_folder))


def test_code_that_is_not_that_of_the_file_is_noticed(bert_folder: Path, tmp_path: Path) -> None:
    text = mapper.generate(bert_folder)
    module = imported(text.replace("x = self.embeddings(", "x = 2 * self.embeddings("), tmp_path, "back")
    model = module.load(bert_folder)
    (tmp_path / "back.py").write_text(text)
    assert architecture_data(model) is None
    assert "is another function" in why_not_built(model)


def test_rules_that_read_it_otherwise_now_are_named(bert_folder: Path, tmp_path: Path) -> None:
    text = mapper.generate(bert_folder)
    other = text.replace("Self-attention", "Another attention").replace("post-norm", "Post-norm")
    whole = other[: other.index("# sha256")]
    digest = hashlib.sha256(whole.encode()).hexdigest()[:16]
    assert other != text
    model = imported(f"{whole}# sha256 of all above: {digest}\n", tmp_path, "old").load(bert_folder)
    assert architecture_data(model) is None
    assert "the rules have changed since" in why_not_built(model)


def test_another_version_of_the_rules_that_reads_the_same_does_not_matter(
    bert_folder: Path, tmp_path: Path
) -> None:
    text = mapper.generate(bert_folder)
    older = text.replace(f"rules {rulebook_of().digest}", "rules 0123456789ab", 1)
    assert older != text and apart_from_versions(older) == apart_from_versions(text)


def test_rules_of_ones_own_that_this_process_has_read_are_tried(bert_folder: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    flow = next(file for file in Rulebook().documents("flows") if file.label.endswith("flows/layer.yaml"))
    (rules / flow.label).parent.mkdir(parents=True)
    (rules / flow.label).write_text(flow.path.read_text().replace("doc:", "doc: my own", 1))
    text = mapper.generate(bert_folder, rules=rules)
    assert text != mapper.generate(bert_folder)
    assert architecture_data(imported(text, tmp_path, "own").load(bert_folder)) is not None


def test_a_cast_model_keeps_it(bert_folder: Path, tmp_path: Path) -> None:
    model = imported(mapper.generate(bert_folder), tmp_path).load(bert_folder)
    data = architecture_data(model)
    assert data is not None
    assert architecture_data(model.half()) == data
    assert architecture_data(model.double()) == data


def test_weights_of_several_types_keep_it(tmp_path: Path) -> None:
    tensors = {name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in bert_shapes().items()}
    tensors |= {name: value.float() for name, value in tensors.items() if "LayerNorm" in name}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(BERT))
    model = imported(mapper.generate(tmp_path), tmp_path).load(tmp_path)
    data = stored(architecture_data(model))
    assert data == stored(architecture_data(mapper.build(tmp_path)))
    assert architecture_data(model.float()) is not None


def test_hints_and_a_reading_without_families_are_made_again(bert_folder: Path, tmp_path: Path) -> None:
    (bert_folder / "config.json").unlink()
    hints = {
        "attention.heads": 4,
        "attention.similarity": "dot_product",
        "position.counting": "all",
        "feed_forward.activation": "gelu",
    }
    text = mapper.generate(bert_folder, hints=hints)
    told = told_by(text)
    assert told is not None and told.origin.hints == hints
    assert architecture_data(imported(text, tmp_path, "hinted").load(bert_folder)) is not None
    (bert_folder / "config.json").write_text(json.dumps(BERT))
    text = mapper.generate(bert_folder, hints={"norm.placement": "post"}, families=False)
    told = told_by(text)
    assert told is not None and not told.origin.families
    assert architecture_data(imported(text, tmp_path, "plain").load(bert_folder)) is not None


def test_names_that_cannot_be_attributes_are_turned_back(tmp_path: Path) -> None:
    save_file(
        {"class.def.weight": torch.zeros(4, 4), "type.weight": torch.zeros(3, 3)}, tmp_path / "m.safetensors"
    )
    module = imported(mapper.generate(tmp_path / "m.safetensors"), tmp_path)
    model = module.load(tmp_path / "m.safetensors")
    data = stored(architecture_data(model))
    assert data == stored(architecture_data(mapper.build(tmp_path / "m.safetensors")))
    assert data["leaves"][0]["place"] == ["class", "def"]


def test_a_model_of_other_sizes_than_its_files_has_none(bert_folder: Path, tmp_path: Path) -> None:
    module = imported(mapper.generate(bert_folder), tmp_path)
    model = module.Model(module.Config(norm_eps=1e-3))
    assert architecture_data(model) is None
    assert "has another" in why_not_built(model)


def test_a_subclass_of_ones_own_has_none(bert_folder: Path, tmp_path: Path) -> None:
    module = imported(mapper.generate(bert_folder), tmp_path)

    class Mine(module.Model):  # type: ignore[name-defined,misc]
        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(*inputs).last_hidden_state

    assert architecture_data(Mine()) is None
    assert architecture_data(nn.Sequential(module.Model())) is None


@pytest.fixture
def gpt2_folder(tmp_path: Path) -> Path:
    """A tied head that the file has as well, under its own name."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=40)
    folder = tmp_path / "gpt2"
    folder.mkdir()
    states = {name: tensor.clone() for name, tensor in GPT2LMHeadModel(config).state_dict().items()}
    save_file(states, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    return folder


@pytest.mark.parametrize("dropped", ["lm_head.weight", "transformer.wte.weight"])
def test_load_takes_a_tied_weight_that_is_stored_under_one_of_its_names(
    gpt2_folder: Path, tmp_path: Path, dropped: str
) -> None:
    module = imported(mapper.generate(gpt2_folder), tmp_path)
    expected = module.load(gpt2_folder)(IDS).logits
    states = load_file(gpt2_folder / "model.safetensors")
    del states[dropped]
    save_file(states, tmp_path / "once.safetensors")
    model = module.load(tmp_path / "once.safetensors")
    assert model.lm_head.weight is model.transformer.wte.weight
    assert torch.equal(model(IDS).logits, expected)
    del states["transformer.wpe.weight"]
    save_file(states, tmp_path / "less.safetensors")
    with pytest.raises(RuntimeError, match=r"wpe\.weight"):
        module.load(tmp_path / "less.safetensors")


def test_load_takes_what_mapper_saved_with_aux_beside_it(gpt2_folder: Path, tmp_path: Path) -> None:
    module = imported(mapper.generate(gpt2_folder), tmp_path)
    model = module.load(gpt2_folder)
    for place in (tmp_path / "saved", tmp_path / "saved.safetensors"):
        mapper.save(place, model, aux={"step": torch.tensor(3)})
        assert torch.equal(module.load(place)(IDS).logits, model(IDS).logits)
        again, aux = mapper.load(place)
        assert torch.equal(again(IDS).logits, model(IDS).logits)
        assert again.lm_head.weight is again.transformer.wte.weight and aux["step"] == 3
