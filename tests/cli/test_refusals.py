"""What headers decide is refused before torch is there, in the words of whoever asked, with what it names as fields."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import mapper
from mapper.cli import main
from mapper.errors import ArchitectureError, HintError, MapperError, OverwriteError, StructureError
from tests.checkpoints import BERT, write_bert, write_manifest

# Each is refused; the whole list in one process, whose modules are looked at after each.
RUN = """
import json, sys
import mapper
from mapper.cli import main

told = []
def look(what, refused):
    told.append([what, refused, "torch" in sys.modules, "transformers" in sys.modules])

for arguments in json.loads(sys.argv[1]):
    look(arguments, main(arguments) == 2)
for call, arguments, options in json.loads(sys.argv[2]):
    try:
        getattr(mapper, call)(*arguments, **options)
        look([call, arguments, options], False)
    except mapper.MapperError:
        look([call, arguments, options], True)
print(json.dumps(told))
"""


@pytest.fixture
def unusable(tmp_path: Path) -> str:
    """A checkpoint with an activation that nobody has."""
    folder = write_bert(tmp_path / "unusable")
    (folder / "config.json").write_text(json.dumps({**BERT, "hidden_act": "unheard_of"}))
    return str(folder)


@pytest.fixture
def unknown(tmp_path: Path) -> str:
    """A checkpoint whose heads nobody knows, nor do the weights show them."""
    folder = write_bert(tmp_path / "unknown")
    told = {name: value for name, value in BERT.items() if name != "num_attention_heads"}
    (folder / "config.json").write_text(json.dumps(told))
    return str(folder)


def test_what_headers_decide_is_refused_before_torch_is_there(unusable: str, tmp_path: Path) -> None:
    cut, out = tmp_path / "cut.safetensors", str(tmp_path / "out")
    cut.write_bytes(Path(unusable, "model.safetensors").read_bytes()[:-1])
    manifest = str(write_manifest(tmp_path / "bert.json"))
    known = str(write_bert(tmp_path / "known"))
    commands = [
        ["build", unusable],
        ["build", unusable, "--out", out],
        ["build", unusable, "--set", "attention.heads=3"],
        ["build", unusable, "--set", "attention.hats=2"],
        ["build", manifest],
        ["build", known, "--out", unusable],
        *([command, str(cut)] for command in ("build", "verify", "generate")),
        ["verify", unusable],
        ["verify", manifest],
        ["generate", unusable],
        ["generate", known, "--cache"],
        ["convert", str(cut), out],
        ["convert", manifest, out],
        ["convert", known, unusable],
        ["convert", known, out, "--shard-size", "much"],
    ]
    calls = [
        ["build", [unusable], {}],
        ["build", [known], {"dtype": "float17"}],
        ["build", [known], {"cache": True}],
        ["build", [manifest], {"out": out}],
        ["build", [known], {"out": unusable}],
        ["build", [str(cut)], {"dtype": "float16"}],
        ["verify", [unusable], {}],
        ["convert", [known, out], {"dtype": "int8"}],
        ["generate", [unusable], {}],
    ]
    command = [sys.executable, "-c", RUN, json.dumps(commands), json.dumps(calls)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    told = json.loads(done.stdout.splitlines()[-1])
    assert [what for what, refused, torch, transformers in told if not refused or torch or transformers] == []
    assert len(told) == len(commands) + len(calls)


# ------------------------------------------------------------------------------------------- words, and what they name
@pytest.mark.parametrize(
    ("command", "python"),
    [
        ("say --set attention.heads=VALUE", 'say hints={"attention.heads": VALUE}'),
        ("say --set vision:attention.heads=VALUE (and 1 more)", 'say hints={"vision:attention.heads": VALUE} (and 1 more)'),
        ("heads = 3 (--set attention.heads=3); possible", 'heads = 3 (hints={"attention.heads": 3}); possible'),
        ("(if so: --set a.b=true --set c=gelu)", '(if so: hints={"a.b": True, "c": "gelu"})'),
        ("--set strides=[1, 2] contradicts", 'hints={"strides": [1, 2]} contradicts'),
        ("say --set 'fc:chain.reads=A & B', of names", 'say hints={"fc:chain.reads": "A & B"}, of names'),
        ("--set text:task: no value", 'hints["text:task"]: no value'),
        ("or replace it with --overwrite", "or replace it with overwrite=True"),
        ("split it with --shard-size", "split it with shard_size="),
        ("cast them to one (--dtype)", "cast them to one (dtype=)"),
        ("a--set b.c=1 is a name, -- is none", "a--set b.c=1 is a name, -- is none"),
    ],
)  # fmt: skip
def test_options_of_the_command_line_are_arguments_in_python(command: str, python: str) -> None:
    error = MapperError(command)
    assert (str(error), error.in_command()) == (python, command)


def test_whoever_asked_is_answered_in_their_words(unknown: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ArchitectureError) as caught:
        mapper.build(unknown)
    assert str(caught.value).endswith('say hints={"attention.heads": VALUE}')
    assert main(["build", unknown]) == 2
    assert capsys.readouterr().err.endswith("say --set attention.heads=VALUE\n")
    with pytest.raises(HintError, match=r'^hints\["attention.heads"\]: '):
        mapper.build(unknown, hints={"attention.heads": "many"})
    assert main(["build", unknown, "--set", "attention.heads=many"]) == 2
    assert capsys.readouterr().err.startswith("error: --set attention.heads: ")
    assert mapper.build(unknown, hints={"attention.heads": 2}) is not None  # as it says


def refused(source: object, **options: object) -> MapperError:
    with pytest.raises(MapperError) as caught:
        mapper.build(source, **options)  # type: ignore[arg-type]
    return caught.value


def test_what_an_error_names_is_in_its_fields(unknown: str) -> None:
    error = refused(unknown)
    assert (error.fact, error.at, error.candidates) == ("attention.heads", "encoder.layer.*", (1, 2, 4, 8))
    question = json.loads(mapper.inspect(unknown).to_json())["questions"][0]
    assert (error.fact, error.at, list(error.candidates)) == tuple(
        question[key] for key in ("fact", "at", "candidates")
    )
    error = refused(unknown, hints={"attention.heads": 3})
    assert (error.fact, error.candidates) == ("attention.heads", (1, 2, 4, 8))
    assert "encoder.layer.1.attention.self.query.weight" in error.tensors
    error = refused(unknown, hints={"attention.head": 3})
    assert (error.fact, error.candidates) == ("attention.head", ("attention.heads",))
    error = refused(unknown, hints={"nowhere:attention.heads": 2})
    assert (error.fact, error.at) == ("attention.heads", "nowhere")
    error = refused(unknown, hints={"norm.placement": "sideways"})
    assert error.fact == "norm.placement" and "post" in error.candidates


def test_a_contradiction_names_its_tensors_and_its_fact(tmp_path: Path) -> None:
    bert = write_bert(tmp_path / "bert")
    tensors = load_file(bert / "model.safetensors")
    lacking = "encoder.layer.1.attention.self.key.bias"
    without = {name: tensor for name, tensor in tensors.items() if name != lacking}
    error = refused({"tensors": {name: [*tensor.shape] for name, tensor in without.items()}, "config": BERT})
    assert error.tensors == (lacking,) and lacking in str(error)
    save_file(tensors, bert / "model.safetensors")
    (bert / "config.json").write_text(json.dumps({**BERT, "intermediate_size": 17}))
    error = refused(bert)
    assert (error.fact, error.candidates) == ("feed_forward.intermediate_size", (16,))
    assert error.at.startswith("encoder.layer")


def test_a_file_that_is_cut_short_names_the_tensor(tmp_path: Path) -> None:
    bert = write_bert(tmp_path / "bert")
    data = (bert / "model.safetensors").read_bytes()
    (bert / "model.safetensors").write_bytes(data[:-8])
    error = refused(bert)
    assert len(error.tensors) == 1 and repr(error.tensors[0]) in str(error)
    tensors = {"fine": torch.ones(2), "big": torch.tensor([1e30])}
    with pytest.raises(MapperError) as caught:
        mapper.convert(tensors, tmp_path / "out.safetensors", dtype="float16")
    assert caught.value.tensors == ("big",)


def test_fields_and_words_go_through_pickle(unknown: str) -> None:
    for error in (
        refused(unknown),
        OverwriteError("out already exists, or replace it with --overwrite", tensors=["a"]),
        StructureError("text", "path", None, fact="f"),
    ):
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is type(error) and str(back) == str(error) and vars(back) == vars(error)


# ----------------------------------------------------------------------------------------------------------- the type
@pytest.mark.parametrize("dtype", ["float16", "torch.bfloat16", "float64", torch.float16, None])
def test_a_type_is_torchs_or_its_name(dtype: str | torch.dtype | None, tmp_path: Path) -> None:
    bert = write_bert(tmp_path / "bert")
    wanted = (
        getattr(torch, dtype.removeprefix("torch.")) if isinstance(dtype, str) else dtype or torch.float32
    )
    assert {tensor.dtype for tensor in mapper.build(bert, dtype=dtype).parameters()} == {wanted}
    mapper.save(tmp_path / "saved", mapper.build(bert))
    assert {tensor.dtype for tensor in mapper.load(tmp_path / "saved", dtype=dtype).model.parameters()} == {
        wanted
    }


@pytest.mark.parametrize("dtype", ["float17", "int8", "", "nn", 3])
def test_what_is_no_type_is_refused_with_those_that_are(dtype: object, tmp_path: Path) -> None:
    error = refused(write_bert(tmp_path / "bert"), dtype=dtype)
    assert "float64, float32, float16, bfloat16" in str(error)


def test_what_is_missing_has_the_name_that_was_meant_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(write_bert(tmp_path / "bert").parent)
    for source, advice in (
        ("bert/model.safetensor", "did you mean 'bert/model.safetensors'?"),
        ("brt", "did you mean 'bert'?"),
        ("bert/other", "'bert' is a folder here, without 'other'"),
    ):
        assert main(["inspect", source]) == 2
        assert advice in capsys.readouterr().err


def test_an_adapter_alone_is_asked_nothing(tmp_path: Path) -> None:
    key = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    tensors = {key.format("A"): torch.zeros(4, 64), key.format("B"): torch.zeros(64, 4)}
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    report = mapper.inspect(tmp_path / "adapter_model.safetensors")
    assert report.architecture.questions == []
    assert "what its tensors are; why no model is made of them is said below" in str(report)
    assert "mapper build MODEL --adapter THIS" in str(report)


def test_what_keeps_a_reading_from_being_trusted_is_said(tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert")
    file = folder / "model.safetensors"
    save_file({**load_file(file), "foo.weight": torch.zeros(3, 5)}, file)
    assert "has no use for the tensors without a role below" in str(mapper.inspect(folder))


@pytest.mark.parametrize(
    ("command", "option"), [("build", "-o"), ("build", "--output"), ("generate", "--out")]
)
def test_where_an_answer_goes_is_spelled_as_anywhere(command: str, option: str, tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert")
    assert main([command, str(folder), option, str(tmp_path / "made")]) == 0
    assert (tmp_path / "made").exists()
