"""What a first user is told when something is not as thought: what it is, and what to type next."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from mapper.cli import main
from mapper.errors import in_python
from tests.checkpoints import BERT, write_bert
from tests.gguf_files import gguf_bytes


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """All that a command prints."""
    main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return printed.out + printed.err


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A file whose heads no config says, nor do its weights show them."""
    path = tmp_path / "bare.safetensors"
    save_file(load_file(write_bert(tmp_path / "whole") / "model.safetensors"), path)
    return path


def test_infer_says_why_nothing_is_made_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_file({"embedding.weight": torch.zeros(9, 4)}, tmp_path / "table.safetensors")
    text = said(capsys, "infer", tmp_path / "table.safetensors")
    assert "unknown\n  no flow fits root: none of the" in text
    assert "all that is known in it is embeddings" in text


def test_infer_says_that_the_weights_show_nothing(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "infer", bare)
    assert "the weights show none of what is asked; --try builds the model" in text
    assert "--set 'attention.heads=" in text


def test_infer_says_that_nothing_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing is asked" in said(capsys, "infer", write_bert(tmp_path / "whole"))


def test_a_network_of_unknown_words_is_sent_to_the_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_file({"a": torch.zeros(3)}, tmp_path / "vector.safetensors")
    text = said(capsys, "inspect", tmp_path / "vector.safetensors")
    assert "1 tensor, 3 parameters" in text
    assert text.endswith(
        "'a' has no role\n  what has no role gets one by a rule: mapper rules new SRC begins the file\n"
    )


def test_one_of_several_files_is_named_as_it_is_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "two").mkdir()
    for name in ("a", "b"):
        save_file({name: torch.zeros(1)}, tmp_path / "two" / f"{name}.safetensors")
    monkeypatch.chdir(tmp_path)
    assert said(capsys, "inspect", "two").endswith("name the one to read, as in two/a.safetensors\n")
    assert "1 tensor, 1 parameter (" in said(capsys, "inspect", "two/a.safetensors")


def test_what_a_config_says_wrong_is_set_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_bert(tmp_path / "other")
    wrong = {**BERT, "num_hidden_layers": 9, "hidden_size": 2 * BERT["hidden_size"]}
    (folder / "config.json").write_text(json.dumps(wrong))
    given: list[object] = []
    for _ in range(3):  # each answer is the one that the line before says
        text = said(capsys, "inspect", folder, *given)
        if "correct the config, or --set " not in text:
            break
        given += ["--set", text.rstrip().rpartition("or --set ")[2]]
    assert len(given) == 4
    assert text.startswith("other: bert, unverified")
    hidden = ["--set", f"hidden_size={BERT['hidden_size']}"]
    assert "but the names show" in said(capsys, "inspect", folder, *hidden, "--set", "layers=9")


def test_a_name_that_is_nearly_a_container_is_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_bert(tmp_path / "whole")
    text = said(capsys, "convert", folder, tmp_path / "out.safetensor")
    assert "did you mean .safetensors? a folder that is called so ends with /" in text
    assert not (tmp_path / "out.safetensor").exists()
    said(capsys, "convert", folder, f"{tmp_path / 'out.safetensor'}/")
    assert (tmp_path / "out.safetensor" / "model.safetensors").is_file()


def test_a_fact_with_a_slip_is_no_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean 'attention.heads'?" in said(capsys, "rules", "explain", "attention.hed")
    assert "did you mean" not in said(
        capsys, "rules", "explain", "encoder.layer.0.attention.self.query.weight"
    )


def test_the_method_of_quantised_weights_is_quoted_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_bert(tmp_path / "packed")
    (folder / "config.json").write_text(json.dumps({**BERT, "quantization_config": {"quant_method": "gptq"}}))
    assert '(config quantization_config: "gptq")' in said(capsys, "inspect", folder)


def test_a_file_without_a_tokenizer_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    width, rows = 8, {"token_embd": (9, 8), "output": (9, 8), "output_norm": (8,)}
    rows |= {f"blk.0.{name}": (width, width) for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
    rows |= {f"blk.0.ffn_{name}": (width, width) for name in ("up", "down", "gate")}
    rows |= {f"blk.0.{name}_norm": (width,) for name in ("attn", "ffn")}
    said_of = {
        "block_count": 1,
        "context_length": 8,
        "embedding_length": width,
        "feed_forward_length": width,
        "attention.head_count": 2,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    metadata = {
        "general.architecture": "llama",
        **{f"llama.{name}": value for name, value in said_of.items()},
    }
    tensors = {f"{name}.weight": np.ones(shape, np.float32) for name, shape in rows.items()}
    (tmp_path / "x.gguf").write_bytes(gguf_bytes(metadata, tensors))
    text = said(capsys, "run", tmp_path / "x.gguf", "hello")
    assert text.endswith("no tokenizer is in the file; put tokenizer.json beside it\n")


def test_what_stands_in_quotes_for_a_shell_is_one_value_in_python() -> None:
    text = "say --set 'a.0:chain.reads=b & c', of layers' names, then --set norm.eps=VALUE"
    told = """say hints={"a.0:chain.reads": "b & c"}, of layers' names, then hints={"norm.eps": VALUE}"""
    assert in_python(text) == told
