"""Whole commands on small checkpoints: what they print, what they write, how they end."""

from __future__ import annotations

import gc
import json
import pickle
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import mapper
from mapper.cli import main
from tests.checkpoints import write_bert, write_manifest
from tests.schema import violations
from tests.unit.chain_cases import CASES

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_bert(tmp_path_factory.mktemp("cli") / "tiny-bert"))


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_manifest(tmp_path_factory.mktemp("cli") / "tiny.json"))


def answer(capsys: Captured, *arguments: str, code: int = 0) -> str:
    """What a command prints; standard error must be empty."""
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refusal(capsys: Captured, *arguments: str) -> str:
    """The one line of a command that a user or a file made impossible."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ") and err.count("\n") == 1
    return err


def test_inspect_prints_the_report(bert: str, capsys: Captured) -> None:
    out = answer(capsys, "inspect", bert)
    assert out == f"{mapper.inspect(bert)}\n"
    assert "encoder.layer.{0..1} " in out
    assert "attention 2 heads, feed_forward 8-16 gelu" in out


def test_inspect_json_is_one_document(bert: str, capsys: Captured) -> None:
    document = json.loads(answer(capsys, "inspect", bert, "--json"))
    assert violations(document) == []
    assert (document["source"], document["family"], document["reading"]) == ("tiny-bert", "bert", "exact")
    owned = {f"{leaf['path']}.{name}" for leaf in document["leaves"] for name in leaf["tensors"]}
    assert len(owned) == document["tensors"]


@pytest.mark.parametrize(("more", "looks"), [((), False), (("--values",), True)])
def test_only_headers_are_read_without_looking_for_what_is_free(
    bert: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured, more: tuple[str, ...], looks: bool
) -> None:
    seen, read = [], mapper.inspect
    monkeypatch.setattr(mapper, "inspect", lambda *a, **k: (seen.append(gc.isenabled()), read(*a, **k))[1])
    answer(capsys, "inspect", bert, *more)
    assert seen == [looks] and gc.isenabled()


def test_inspect_says_the_same_twice(bert: str, capsys: Captured) -> None:
    assert answer(capsys, "inspect", bert, "--json") == answer(capsys, "inspect", bert, "--json")


def test_inspect_why_shows_one_fact(bert: str, capsys: Captured) -> None:
    out = answer(capsys, "inspect", bert, "--why", "attention.heads")
    assert out.startswith("attention.heads = 2")
    assert "config: num_attention_heads" in out


def test_inspect_quietly_is_one_line(bert: str, capsys: Captured) -> None:
    assert answer(capsys, "inspect", bert, "-q") == "tiny-bert: bert, exact\n"


def test_a_given_fact_makes_no_reading_exact(bert: str, capsys: Captured) -> None:
    document = json.loads(answer(capsys, "inspect", bert, "--json", "--set", "attention.heads=4"))
    assert document["reading"] == "unverified"
    assert {"attention.heads": 4}.items() <= {
        fact["name"]: fact["value"] for fact in document["facts"]
    }.items()


def test_a_fact_that_nobody_knows_is_refused(bert: str, capsys: Captured) -> None:
    assert "attention.heads" in refusal(capsys, "inspect", bert, "--set", "attention.head=4")


def test_a_reading_without_families_names_none(bert: str, capsys: Captured) -> None:
    document = json.loads(answer(capsys, "inspect", bert, "--json", "--without", "families"))
    assert document["family"] is None
    assert document["reading"] != "exact"


def test_colours_appear_on_a_terminal_alone(
    bert: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b" not in answer(capsys, "inspect", bert)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "\x1b[" in answer(capsys, "inspect", bert)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in answer(capsys, "inspect", bert)


def test_inspect_never_imports_torch(bert: str) -> None:
    code = (
        f"import sys; from mapper.cli import main; main(['inspect', {bert!r}]); print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.endswith(
        "False\n"
    )


def test_generate_prints_or_writes_the_source(bert: str, capsys: Captured, tmp_path: Path) -> None:
    text = answer(capsys, "generate", bert)
    assert text == mapper.generate(bert)
    assert answer(capsys, "generate", bert, "-o", str(tmp_path / "model.py")).startswith("wrote ")
    assert (tmp_path / "model.py").read_text() == text


def test_generate_names_the_folder_that_is_missing(bert: str, capsys: Captured, tmp_path: Path) -> None:
    assert "make it first" in refusal(capsys, "generate", bert, "-o", str(tmp_path / "no" / "model.py"))


def test_build_runs_the_model_and_writes_nothing(bert: str, capsys: Captured, tmp_path: Path) -> None:
    before = sorted(Path(bert).rglob("*"))
    out = answer(capsys, "build", bert)
    assert "last_hidden_state (1, 8, 8)" in out
    assert "exact" in out and "--out DIR" in out
    assert sorted(Path(bert).rglob("*")) == before


def test_build_says_where_an_input_of_another_size_is_needed(capsys: Captured, tmp_path: Path) -> None:
    make, answers = CASES["recognizer"]
    torch.save(make()[0].state_dict(), tmp_path / "lines.pt")
    said = [word for fact, value in answers.items() for word in ("--set", f"{fact}={str(value).lower()}")]
    out = answer(capsys, "build", str(tmp_path / "lines.pt"), *said, "--out", str(tmp_path / "lines"))
    assert "not run: made-up inputs of the sizes that nothing shows do not fit (RuntimeError: " in out
    assert (tmp_path / "lines" / "model.py").is_file()


def test_build_out_is_a_folder_that_runs_with_torch_alone(
    bert: str, capsys: Captured, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    assert f"wrote {folder}" in answer(capsys, "build", bert, "--out", str(folder))
    code = "import torch; from model import load; print(load('.')(input_ids=torch.tensor([[5, 6]])).last_hidden_state.sum().item())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    built = mapper.build(bert)(input_ids=torch.tensor([[5, 6]]))
    assert float(done.stdout) == pytest.approx(built.last_hidden_state.sum().item(), abs=1e-6)
    assert answer(capsys, "inspect", str(folder), "-q") == "out: bert, exact\n"


def test_build_never_replaces_a_folder(bert: str, capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    assert main(["build", bert, "--out", str(tmp_path), "-q"]) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path} already exists")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_build_casts(bert: str, capsys: Captured) -> None:
    assert "last_hidden_state" in answer(capsys, "build", bert, "--dtype", "bfloat16")


def test_a_device_that_is_not_there_is_refused(bert: str, capsys: Captured) -> None:
    assert main(["build", bert, "--device", "nonsense"]) == 2
    assert capsys.readouterr().err.startswith("error: --device 'nonsense' is not to be had here")


def test_what_build_says_of_keeping_is_the_model_that_was_built(
    bert: str, capsys: Captured, tmp_path: Path
) -> None:
    source, out = str(shutil.copytree(bert, tmp_path / "a base")), tmp_path / "kept"
    config = Path(source, "config.json")
    config.write_text(json.dumps({**json.loads(config.read_text()), "hidden_dropout_prob": 0.5}))
    given = ["--dtype", "float64", "--set", "attention.causal=true", "--train", "--without", "families"]
    lines = answer(capsys, "build", source, *given).splitlines()
    said = dict(line.split(": ", 1) for line in lines if line.startswith(("keep it: ", "or in Python: ")))
    answer(capsys, *shlex.split(said["keep it"].replace("DIR", str(out)))[1:])
    names: dict[str, torch.nn.Module] = {}
    exec(said["or in Python"], names)
    models = names["model"], mapper.load(out)[0]
    ids = torch.tensor([[5, 6, 7]])
    first, second = (model.eval()(ids).last_hidden_state for model in models)
    assert first.dtype is torch.float64 and torch.equal(first, second)
    assert not torch.allclose(
        first[:, :2], mapper.build(source)(ids).last_hidden_state[:, :2].double()
    )  # causal
    for model in models:
        model.train()
        assert not torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)


def test_build_needs_weights(manifest: str, capsys: Captured) -> None:
    assert "without weights" in refusal(capsys, "build", manifest)


def test_generate_needs_none(manifest: str, capsys: Captured) -> None:
    assert "def load(" in answer(capsys, "generate", manifest)


def test_rules_list_names_every_file(capsys: Captured) -> None:
    out = answer(capsys, "rules", "list")
    assert "families/bert.yaml" in out
    assert "vocabulary/attention.yaml" in out


def test_rules_explain_a_key_names_the_line(capsys: Captured) -> None:
    out = answer(capsys, "rules", "explain", "encoder.layer.0.attention.self.query.weight")
    assert "attention.query" in out
    assert "vocabulary/attention.yaml:" in out


def test_explain_says_what_a_fact_is_and_may_be(capsys: Captured) -> None:
    out = answer(capsys, "rules", "explain", "position.counting")
    assert out.startswith("position.counting: how position ids are counted")
    assert "tokens" in out and "answered by: --set position.counting=VALUE" in out


def test_rules_explain_a_source_names_family_and_flows(bert: str, capsys: Captured) -> None:
    out = answer(capsys, "rules", "explain", bert)
    assert "family bert, families/bert.yaml" in out
    assert "layer/attention+post_norm_attention+feed_forward+post_norm_feed_forward" in out


def test_rules_check_reports_line_and_count(capsys: Captured, tmp_path: Path) -> None:
    rule = tmp_path / "mine.yaml"
    rule.write_text("family: mine\nsurprise: 1\n")
    assert main(["rules", "check", str(rule)]) == 2
    out, err = capsys.readouterr()
    assert "mine.yaml:2: " in out and "surprise" in out
    assert err == "error: 1 problem in 1 rule file\n"


def test_verify_finds_a_model_equal_to_its_reference(bert: str, capsys: Captured) -> None:
    found = json.loads(answer(capsys, "verify", bert, "--json"))
    assert found["equal"] is True and found["against"].startswith("transformers ")


def test_verify_of_an_edited_file_is_exit_code_three(bert: str, capsys: Captured, tmp_path: Path) -> None:
    text = mapper.generate(bert)
    edited = text.replace("x + attention", "x - attention").replace(
        "x + self.attention", "x - self.attention"
    )
    assert edited != text
    (tmp_path / "edited.py").write_text(edited)
    out = answer(capsys, "verify", str(tmp_path / "edited.py"), "--weights", bert, code=3)
    assert "first block that departs: " in out


def test_verify_names_a_reference_that_is_none(bert: str, capsys: Captured) -> None:
    assert "'tensorflow' is no reference" in refusal(capsys, "verify", bert, "--against", "tensorflow")


def changed_config(bert: str, folder: Path, **config: object) -> str:
    """A copy of the checkpoint whose config says something else."""
    shutil.copytree(bert, folder)
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    return str(folder)


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({"num_attention_heads": 5}, "does not divide by 5"),
        ({"num_hidden_layers": 7}, "7"),
        ({"hidden_act": 12}, "hidden_act"),
    ],
)
def test_inspect_of_a_contradiction_shows_what_it_read(
    bert: str, capsys: Captured, tmp_path: Path, config: dict[str, object], error: str
) -> None:
    source = changed_config(bert, tmp_path / "changed", **config)
    assert main(["inspect", source]) == 2
    out, err = capsys.readouterr()
    assert out.splitlines()[0].endswith("bert, contradiction")
    assert "attention.query " in out and "norm.placement = post" in out
    assert err.startswith("error: ") and err.count("\n") == 1 and error in err
    for quiet in ("--json", "--quiet"):
        assert main(["inspect", source, quiet]) == 2
        assert capsys.readouterr().out == ""


def test_a_contradiction_is_the_same_error_in_another_process(bert: str, tmp_path: Path) -> None:
    source = changed_config(bert, tmp_path / "changed", num_attention_heads=5)
    with pytest.raises(mapper.ArchitectureError) as caught:
        mapper.inspect(source)
    assert caught.value.so_far is not None
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.so_far) == (str(caught.value), None)


def test_inspect_shows_as_many_levels_as_asked_for(bert: str, capsys: Captured) -> None:
    first = answer(capsys, "inspect", bert, "--depth", "1")
    assert (
        "attention.self.query " not in first
        and "layer, attention+post_norm" in first
        and "--depth 2" in first
    )
    assert "attention.self.query " in answer(capsys, "inspect", bert, "--depth", "9")
    assert "x>=1" in refusal(capsys, "inspect", bert, "--depth", "0")


def test_no_line_is_wider_than_the_terminal(
    bert: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "70")
    lines = {"inspect": [bert], "rules": ["explain", bert], "diff": [bert, bert]}
    for command, arguments in lines.items():
        wide = answer(capsys, command, *arguments)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        narrow = answer(capsys, command, *arguments)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
        assert max(map(len, narrow.splitlines())) <= 70
        assert command == "diff" or max(map(len, wide.splitlines())) > 70


def test_generate_and_build_say_what_was_read_and_where_it_is(
    bert: str, capsys: Captured, tmp_path: Path
) -> None:
    out = answer(capsys, "generate", bert, "-o", str(tmp_path / "model.py"))
    assert out.startswith(f"wrote {tmp_path / 'model.py'} (") and out.endswith(": bert, exact\n")
    out = answer(capsys, "build", bert, "--out", str(tmp_path / "built"))
    assert out.splitlines()[0].endswith("bert, exact") and f"wrote {tmp_path / 'built'}: " in out


def test_bars_of_other_libraries_are_not_seen(
    bert: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers
    from tqdm.auto import tqdm

    usual = transformers.BertModel.from_pretrained

    def with_bars(*arguments: object, **options: object) -> object:
        for _ in tqdm(range(3), desc="loading what nobody asked about"):
            pass
        return usual(*arguments, **options)

    monkeypatch.setattr(transformers.BertModel, "from_pretrained", with_bars)
    assert "equal" in answer(capsys, "verify", bert)  # and nothing on standard error
    list(tqdm(range(3), desc="still there"))
    assert "still there" in capsys.readouterr().err


def test_rules_explain_says_which_step_fills_which_slot(bert: str, capsys: Captured) -> None:
    out = answer(capsys, "rules", "explain", bert)
    assert "  project: separate\n" in out
    assert "  scores: masked (fitted too: softcap)\n" in out
