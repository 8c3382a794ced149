"""What published config classes have: the table, and a config as these classes take it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mapper.architecture import Block, Place
from mapper.catalogue import published
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.inference import infer
from mapper.inference.completed import complete
from mapper.inference.families import Families
from mapper.inference.matching import FamilyMatch
from mapper.inference.scopes import Scope
from mapper.rulebook.examples import header
from mapper.rulebook.rulebook import Rulebook, rulebook_of
from tests.checkpoints import BERT, bert_shapes

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bundle", ROOT / "tools" / "bundle_config_fields.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_what_the_installed_classes_say(tool: ModuleType) -> None:
    rows = tool.table(tool.listed_types())
    with zipfile.ZipFile(published.FIELDS) as archive:
        there = {name.removesuffix(".json"): archive.read(name).decode() for name in archive.namelist()}
    assert there.pop("") == tool.document({"transformers": importlib.metadata.version("transformers")})
    made = {key: tool.document(row) for key, row in rows.items()}
    differing = [key for key in {**there, **made} if there.get(key) != made.get(key)]
    assert not differing, "run tools/bundle_config_fields.py"


def test_the_same_rows_give_the_same_bytes(tool: ModuleType, tmp_path: Path) -> None:
    rows = tool.table(["bert", "opt"])
    for name in ("one.zip", "two.zip"):
        tool.pack(rows, "5", tmp_path / name)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


@pytest.mark.parametrize("name", ["", "no_such_type", "../bert", "resnet50"])
def test_other_names_have_no_row(name: str) -> None:
    assert published.find(name) is None


def test_what_is_left_out_is_filled_in_and_what_the_class_has_not_is_not_seen() -> None:
    done = complete({"hidden_size": 8, "alibi": True}, "opt")
    assert done.data["activation_function"] == "relu" and done.default_of("activation_function") == "opt"
    assert done.data["hidden_size"] == 8 and not done.default_of("hidden_size")
    assert "alibi" not in done.data


def test_another_name_of_a_field_is_the_field() -> None:
    done = complete({"hidden_size": 8}, "gpt2")
    assert done.data["n_embd"] == 8 and done.moved["n_embd"] == "hidden_size"
    assert complete({"num_experts_per_token": 2}, "kimi_linear").data["num_experts_per_tok"] == 2


def test_a_part_is_read_by_its_own_class_and_made_where_it_is_left_out() -> None:
    done = complete({"text_config": {"hidden_size": 8, "patch_size": 3}}, "clip")
    assert (
        done.data["text_config"]["hidden_act"] == "quick_gelu"
        and "patch_size" not in done.data["text_config"]
    )
    assert done.data["vision_config"]["patch_size"] == 32
    assert done.default_of("vision_config.patch_size") == "clip_vision_model"


def test_the_fields_of_a_part_may_stand_at_the_top_as_older_files_have_them() -> None:
    done = complete({"hidden_act": "gelu"}, "qwen2_vl")
    assert done.data["hidden_act"] == "gelu" and done.data["rms_norm_eps"] == 1e-5
    assert "hidden_act" not in complete({"hidden_act": "gelu", "text_config": {}}, "qwen2_vl").data


@pytest.mark.parametrize(
    ("model_type", "given", "name", "value"),
    [
        ("apertus", {}, "factor", 8.0),
        ("apertus", {"rope_theta": 5.0}, "rope_theta", 12000000.0),
        ("llama", {}, "rope_theta", 10000.0),
        ("mixtral", {"rope_parameters": {"rope_theta": 5.0}}, "rope_theta", 5.0),
        ("mixtral", {"rope_parameters": {"rope_type": "default"}}, "rope_theta", 1000000.0),
        ("mixtral", {"rope_parameters": {"rope_theta": 5.0, "partial_rotary_factor": 0.5}}, "partial_rotary_factor", None),
        ("phi", {"rope_parameters": {"rope_theta": 5.0, "partial_rotary_factor": 0.25}}, "partial_rotary_factor", 0.25),
        ("llama", {"rope_parameters": {"rope_theta": 5.0, "llama_4_scaling_beta": 0.5}}, "llama_4_scaling_beta", None),
        ("ministral3", {"rope_parameters": {"rope_theta": 5.0, "llama_4_scaling_beta": 0.5}}, "llama_4_scaling_beta", 0.5),
    ],
)  # fmt: skip
def test_rotary_positions_are_those_of_the_class(
    model_type: str, given: dict[str, Any], name: str, value: object
) -> None:
    assert complete(given, model_type).data["rope_parameters"].get(name) == value


def test_a_config_of_no_known_type_stays_as_it_is() -> None:
    data = {"alibi": True}
    assert complete(data, None).data == complete(data, "resnet50").data == data


def read_bert(**changed: Any) -> Any:
    """The reading of a small BERT; a field that is None is left out."""
    config = {name: value for name, value in {**BERT, **changed}.items() if value is not None}
    tensors = {name: TensorInfo(tuple(shape), "F32") for name, shape in bert_shapes().items()}
    return infer(Checkpoint("bert", "manifest", tensors, config), rulebook_of())


def test_a_field_that_is_left_out_has_its_types_default_and_says_so() -> None:
    read = read_bert(hidden_act=None, layer_norm_eps=None)
    facts = {fact.name: fact for fact in read.facts}
    assert read.reading == "exact"
    assert facts["feed_forward.activation"].value == "gelu" and facts["norm.eps"].value == 1e-12
    assert facts["norm.eps"].evidence == "default"
    assert facts["norm.eps"].source == "layer_norm_eps, left out: the default of bert"


@pytest.mark.parametrize(
    "field",
    [{"use_parallel_residual": True}, {"alibi": True}, {"rotary_dim": 2}, {"final_logit_softcapping": 2.0}],
)
def test_a_field_that_the_type_does_not_have_is_a_finding_and_changes_nothing(field: dict[str, Any]) -> None:
    read = read_bert(**field)
    assert read.reading == "unverified"
    assert read.findings == [f"config field is read by no rule: {next(iter(field))!r}"]
    assert read.facts == read_bert().facts


def test_fewer_layers_than_the_default_of_a_count_that_is_left_out_is_a_finding() -> None:
    assert read_bert(num_hidden_layers=None).findings == [
        "config num_hidden_layers, left out: the default of bert, 12; the names show 2 layers"
    ]


def test_the_authors_own_fields_are_read_where_the_family_names_them() -> None:
    family = next(family for family in rulebook_of().families if family.name == "nomic_bert")
    example = next(example for example in family.examples if example.name == "the fields of its authors")
    facts = {fact.name: fact for fact in infer(header(example), rulebook_of()).facts}
    assert facts["attention.heads"].value == 4 and facts["attention.heads"].source == "n_head"


def llama_shapes(gate: str = "gate_proj") -> dict[str, TensorInfo]:
    """The names of a decoder of one layer."""
    layer = "model.layers.0"
    maps = {f"{layer}.self_attn.{word}_proj": (32, 32) for word in "qkvo"}
    maps |= {
        f"{layer}.mlp.{gate}": (48, 32),
        f"{layer}.mlp.up_proj": (48, 32),
        f"{layer}.mlp.down_proj": (32, 48),
    }
    maps |= {"model.embed_tokens": (99, 32), "lm_head": (99, 32)}
    norms = [f"{layer}.input_layernorm", f"{layer}.post_attention_layernorm", "model.norm"]
    shapes = {**maps, **dict.fromkeys(norms, (32,))}
    return {f"{name}.weight": TensorInfo(shape, "F32") for name, shape in shapes.items()}


TALE = """
family: tale
model_types: [{types}]
source: [a made-up decoder]
recognise: ["{{root}}.layers.{{n}}.mlp.gates_proj", "{{root}}.layers.{{n}}.self_attn.q_proj"]
names: {{mlp.gates_proj: feed_forward.gate}}
facts: {{norm.placement: {{value: pre, why: made up}}, rotary: {{value: true, why: made up}}}}
"""


def said_by_names(types: str, folder: Path, config: dict[str, Any] | None = None) -> dict[str, Any]:
    """What is known of a checkpoint without a type, by a made-up family of these types."""
    (folder / "families").mkdir(parents=True)
    (folder / "families" / "tale.yaml").write_text(TALE.format(types=types))
    checkpoint = Checkpoint("tale", "manifest", llama_shapes("gates_proj"), config)
    read = infer(checkpoint, Rulebook([folder]))
    assert read.family == "tale"
    return {fact.name: fact for fact in read.facts}


def test_where_names_alone_show_a_family_the_default_is_that_of_the_classes_of_its_types(
    tmp_path: Path,
) -> None:
    facts = said_by_names("mistral, qwen2", tmp_path)  # both have silu, and epsilons 1e-6
    activation = facts["feed_forward.activation"]
    assert (activation.value, activation.evidence) == ("silu", "default")
    assert activation.source == "hidden_act, left out: the default of mistral"
    assert facts["norm.eps"].value == 1e-6


def test_where_the_classes_of_its_types_differ_nothing_is_taken_for_known(tmp_path: Path) -> None:
    assert "feed_forward.activation" not in said_by_names("mistral, opt", tmp_path)


def test_what_a_config_without_a_type_says_is_no_default(tmp_path: Path) -> None:
    facts = said_by_names("mistral, qwen2", tmp_path, {"hidden_act": "relu", "num_attention_heads": 4})
    assert (facts["feed_forward.activation"].value, facts["feed_forward.activation"].evidence) == (
        "relu",
        "config",
    )


def test_a_family_that_is_named_after_a_type_has_the_default_of_its_class() -> None:
    """Of the two types of llama they differ in the epsilon, of these three none has the name of the family."""
    families = {family.name: family for family in rulebook_of().families}
    root = Scope(Block("other", "root", Place()), None, (), None)

    def types(name: str, model_type: str | None = None) -> list[str]:
        match = FamilyMatch(families[name], model_type is not None, model_type)
        return list(Families(match).types_at(root))

    assert types("llama") == ["llama"]
    assert types("llama", "paddleocr_vl_text") == ["paddleocr_vl_text"]
    assert types("bert_pre_norm") == ["megatron-bert", "roberta-prelayernorm", "xlm-roberta-xl"]


def test_a_class_that_no_family_knows_has_what_every_class_has(tmp_path: Path) -> None:
    """Its config is silent about an activation, so it has that of its kin."""
    said = {"model_type": "saga", "num_attention_heads": 4}
    assert said_by_names("mistral, qwen2", tmp_path, said)["feed_forward.activation"].value == "silu"
