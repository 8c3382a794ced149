"""A LoRA beside its base: what is merged is what a hand merges, what stands beside gives the same, what does not fit is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import mapper
from mapper.cli import main
from mapper.errors import FormatError, SourceError
from tests.checkpoints import write_bert
from tests.parity.harness import transformers

RANK, ALPHA = 3, 12
QUERIES = [f"encoder.layer.{at}.attention.self.query" for at in range(2)]
IDS = torch.arange(1, 12)[None]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_bert(tmp_path / "base")


def halves(weight: torch.Tensor, rank: int = RANK, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    out, inputs = weight.shape[:2]
    return torch.randn(rank, inputs, generator=made), torch.randn(out, rank, generator=made)


def write_adapter(folder: Path, tensors: dict[str, torch.Tensor], **settings: Any) -> Path:
    folder.mkdir(exist_ok=True)
    save_file(
        {key: tensor.contiguous() for key, tensor in tensors.items()}, folder / "adapter_model.safetensors"
    )
    said = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, **settings}
    (folder / "adapter_config.json").write_text(json.dumps(said))
    return folder


def lora(weights: dict[str, torch.Tensor], paths: list[str], rank: int = RANK) -> dict[str, torch.Tensor]:
    found = {}
    for at, path in enumerate(paths):
        a, b = halves(weights[f"{path}.weight"], rank, seed=at)
        found |= {f"base_model.model.{path}.lora_A.weight": a, f"base_model.model.{path}.lora_B.weight": b}
    return found


def by_hand(base: Path, adapter: Path, scale: float) -> torch.nn.Module:
    """The base with W + scale * B A in the place of each W that is updated."""
    model = mapper.build(base)
    updates = load_file(adapter / "adapter_model.safetensors")
    state = model.state_dict()
    for key in updates:
        if key.endswith(".lora_A.weight"):
            path = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            delta = updates[key.replace("lora_A", "lora_B")] @ updates[key]
            state[f"{path}.weight"] = state[f"{path}.weight"] + scale * delta
    model.load_state_dict(state, strict=True, assign=True)
    return model


def last(model: torch.nn.Module, ids: torch.Tensor = IDS) -> torch.Tensor:
    with torch.no_grad():
        return model(ids).last_hidden_state


def same(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-5 * max(1.0, float(other.abs().max())), rtol=0)


def test_merged_and_beside_are_what_a_hand_merges(tmp_path: Path, base: Path) -> None:
    paths = [*QUERIES, "encoder.layer.0.output.dense", "pooler.dense"]
    adapter = write_adapter(tmp_path / "lora", lora(load_file(base / "model.safetensors"), paths))
    wanted = last(by_hand(base, adapter, ALPHA / RANK))
    merged, beside = mapper.build(base, adapter=adapter, merge=True), mapper.build(base, adapter=adapter)
    same(last(merged), wanted)
    same(last(beside), wanted)
    assert not torch.allclose(last(mapper.build(base)), wanted, atol=0.01)
    assert set(merged.state_dict()) == set(load_file(base / "model.safetensors"))
    added = set(beside.state_dict()) - set(merged.state_dict())
    assert added == {f"{path}.lora_{half}.weight" for path in paths for half in "AB"}


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({"use_rslora": True}, ALPHA / math.sqrt(RANK)),
        ({"alpha_pattern": {"layer.0.attention.self.query": 30}}, None),
    ],
)
def test_the_settings_scale_it(
    tmp_path: Path, base: Path, settings: dict[str, Any], scale: float | None
) -> None:
    adapter = write_adapter(
        tmp_path / "lora", lora(load_file(base / "model.safetensors"), QUERIES), **settings
    )
    merged = mapper.build(base, adapter=adapter, merge=True).state_dict()
    before, updates = load_file(base / "model.safetensors"), load_file(adapter / "adapter_model.safetensors")
    for path, of_this in zip(QUERIES, [scale or 30 / RANK, scale or ALPHA / RANK], strict=True):
        delta = (
            updates[f"base_model.model.{path}.lora_B.weight"]
            @ updates[f"base_model.model.{path}.lora_A.weight"]
        )
        same(merged[f"{path}.weight"], before[f"{path}.weight"] + of_this * delta)


def test_ranks_of_their_own_are_read_with_and_without_merging(tmp_path: Path, base: Path) -> None:
    weights = load_file(base / "model.safetensors")
    tensors = lora(weights, QUERIES[:1], rank=2) | lora(weights, QUERIES[1:])
    adapter = write_adapter(tmp_path / "lora", tensors, rank_pattern={"layer.0.attention.self.query": 2})
    same(last(mapper.build(base, adapter=adapter)), last(mapper.build(base, adapter=adapter, merge=True)))


def test_layers_without_an_update_stay_as_they_are(tmp_path: Path, base: Path) -> None:
    adapter = write_adapter(tmp_path / "lora", lora(load_file(base / "model.safetensors"), QUERIES[1:]))
    same(last(mapper.build(base, adapter=adapter)), last(by_hand(base, adapter, ALPHA / RANK)))


def test_maps_that_are_stored_transposed_and_embeddings(tmp_path: Path) -> None:
    config = transformers.GPT2Config(
        n_embd=16, n_layer=2, n_head=2, vocab_size=40, n_positions=32, tie_word_embeddings=True
    )
    torch.manual_seed(0)
    base = tmp_path / "base"
    transformers.GPT2Model(config).save_pretrained(base)
    weights = load_file(base / "model.safetensors")
    square = "h.0.attn.c_proj"  # as many inputs as outputs: its shape does not show how it is stored
    a, b = halves(weights[f"{square}.weight"].t())
    table, rows = torch.randn(RANK, 40), torch.randn(16, RANK)
    tensors = {
        f"base_model.model.{square}.lora_A.weight": a, f"base_model.model.{square}.lora_B.weight": b,
        "base_model.model.wte.lora_embedding_A": table, "base_model.model.wte.lora_embedding_B": rows,
    }  # fmt: skip
    adapter = write_adapter(tmp_path / "lora", tensors, fan_in_fan_out=True)
    model = mapper.build(base)
    state = model.state_dict()
    state[f"{square}.weight"] = state[f"{square}.weight"] + ALPHA / RANK * (b @ a).t()
    state["wte.weight"] = state["wte.weight"] + ALPHA / RANK * (rows @ table).t()
    model.load_state_dict(state, assign=True)
    same(last(mapper.build(base, adapter=adapter)), last(model))
    same(last(mapper.build(base, adapter=adapter, merge=True)), last(model))


def test_a_head_that_the_adapter_brings_and_a_prefix_that_the_base_has_not(
    tmp_path: Path, base: Path
) -> None:
    weights = load_file(base / "model.safetensors")
    tensors = {
        key.replace("base_model.model.", "base_model.model.bert."): tensor
        for key, tensor in lora(weights, QUERIES).items()
    }
    head = {
        "base_model.model.classifier.weight": torch.randn(3, 8),
        "base_model.model.classifier.bias": torch.randn(3),
    }
    adapter = write_adapter(
        tmp_path / "lora", tensors | head, modules_to_save=["classifier"], task_type="SEQ_CLS"
    )
    model = mapper.build(base, adapter=adapter)
    with torch.no_grad():
        logits = model(IDS).logits
        merged = mapper.build(base, adapter=adapter, merge=True)(IDS).logits
    assert logits.shape == (1, 3)
    same(logits, merged)
    mapper.build(base, adapter=adapter, out=tmp_path / "kept")
    found = mapper.verify(tmp_path / "kept")
    assert found.equal and any("does not return it: logits" in note for note in found.notes)


def test_the_source_writes_the_modules_and_a_kept_model_comes_back(tmp_path: Path, base: Path) -> None:
    adapter = write_adapter(tmp_path / "lora", lora(load_file(base / "model.safetensors"), QUERIES))
    text = mapper.generate(base, adapter=adapter)
    assert "class LinearLowRank(nn.Linear):" in text
    assert "LowRank" not in mapper.generate(base, adapter=adapter, merge=True)
    model = mapper.build(base, adapter=adapter, out=tmp_path / "kept")
    assert torch.equal(last(mapper.build(tmp_path / "kept")), last(model))
    assert torch.equal(last(mapper.load(tmp_path / "kept")[0]), last(model))
    report = mapper.inspect(tmp_path / "kept")
    assert "with an update of rank 3" in str(report)
    assert not [line for line in report.architecture.findings if "adapter" in line]


def test_the_reference_gets_the_updates_that_a_kept_model_has_beside_its_weights(
    tmp_path: Path, base: Path
) -> None:
    adapter = write_adapter(tmp_path / "lora", lora(load_file(base / "model.safetensors"), QUERIES))
    mapper.build(base, adapter=adapter, out=tmp_path / "kept")
    found = mapper.verify(tmp_path / "kept")
    assert found.equal and str(found.against).startswith("transformers"), str(found)
    assert "the reference has the updates of low rank in its weights" in found.notes


def test_an_update_that_no_reference_can_have_is_not_compared(tmp_path: Path) -> None:
    config = transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=40, n_positions=32)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "base")
    table = "base_model.model.transformer.wte.lora_embedding_"
    tensors = {f"{table}A": torch.randn(RANK, 40), f"{table}B": torch.randn(16, RANK)}
    adapter = write_adapter(tmp_path / "lora", tensors)
    mapper.build(tmp_path / "base", adapter=adapter, out=tmp_path / "kept")
    found = mapper.verify(tmp_path / "kept")
    assert found.equal is None and found.passed
    assert "transformers has no update of an embedding whose table is the head's too" in found.notes


def test_its_own_dropout_is_named_as_not_written(tmp_path: Path, base: Path) -> None:
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0.1}))
    weights = load_file(base / "model.safetensors")
    adapter = write_adapter(tmp_path / "lora", lora(weights, QUERIES), lora_dropout=0.05)
    assert "not written: adapter_config.lora_dropout = 0.05" in mapper.generate(
        base, adapter=adapter, train=True
    )
    assert "lora_dropout" not in mapper.generate(base, adapter=adapter, merge=True, train=True)


REFUSED = {
    "another type": ({"peft_type": "IA3"}, "of the type .IA3"),
    "a DoRA": ({"use_dora": True}, "is a DoRA"),
    "a base that was changed": ({"init_lora_weights": "pissa"}, "init_lora_weights = .pissa"),
    "biases in the update": ({"lora_bias": True}, "lora_bias = true"),
    "layers twice": ({"layer_replication": [[0, 2], [1, 2]]}, "layer_replication"),
    "another rank": ({"r": 4}, "its tensors have 3"),
    "no alpha": ({"lora_alpha": None}, "lora_alpha is null"),
    "an expression": ({"alpha_pattern": {"(a+)+$": 3}}, "only paths are read"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_plain_lora_is_refused_by_name(tmp_path: Path, base: Path, case: str) -> None:
    settings, message = REFUSED[case]
    adapter = write_adapter(
        tmp_path / "lora", lora(load_file(base / "model.safetensors"), QUERIES), **settings
    )
    with pytest.raises(SourceError, match=message):
        mapper.build(base, adapter=adapter)


def _other_base(tensors: dict[str, torch.Tensor]) -> None:
    for key in list(tensors):
        tensors[key.replace("encoder.layer.1", "encoder.layer.7")] = tensors.pop(key)


def _one_half(tensors: dict[str, torch.Tensor]) -> None:
    del tensors[f"base_model.model.{QUERIES[0]}.lora_B.weight"]


def _wide(tensors: dict[str, torch.Tensor]) -> None:
    tensors[f"base_model.model.{QUERIES[0]}.lora_A.weight"] = torch.zeros(RANK, 9)


def _norm(tensors: dict[str, torch.Tensor]) -> None:
    path = "base_model.model.embeddings.LayerNorm"
    tensors |= {f"{path}.lora_A.weight": torch.zeros(RANK, 8), f"{path}.lora_B.weight": torch.zeros(8, RANK)}


def _more(tensors: dict[str, torch.Tensor]) -> None:
    tensors["base_model.model.pooler.dense.weight"] = torch.zeros(8, 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_other_base, "no weight at 'encoder.layer.7.attention.self.query'.*1 of 2 updates"),
        (_one_half, "lora_B.weight'? is missing"),
        (_wide, "does not fit its weight"),
        (_norm, "a LayerNorm; maps, convolutions and embeddings"),
        (_more, "nothing says what"),
    ],
)
def test_names_and_shapes_are_matched_strictly(tmp_path: Path, base: Path, change: Any, message: str) -> None:
    tensors = lora(load_file(base / "model.safetensors"), QUERIES)
    change(tensors)
    with pytest.raises(SourceError, match=message):
        mapper.build(base, adapter=write_adapter(tmp_path / "lora", tensors), merge=True)


def test_merge_without_an_adapter_is_a_slip(base: Path) -> None:
    with pytest.raises(mapper.MapperError, match="name one"):
        mapper.build(base, merge=True)


def test_a_converted_adapter_keeps_its_settings(tmp_path: Path, base: Path) -> None:
    adapter = write_adapter(tmp_path / "lora", lora(load_file(base / "model.safetensors"), QUERIES))
    done = mapper.convert(adapter, tmp_path / "other")
    assert done.files == ["model.safetensors", "adapter_config.json"]
    same(last(mapper.build(base, adapter=tmp_path / "other")), last(mapper.build(base, adapter=adapter)))
    alone = mapper.convert(adapter, tmp_path / "other.safetensors")
    assert any("the settings of the adapter are not in a file of tensors" in note for note in alone.notes)


@pytest.mark.parametrize(
    "change", [{"lora_alpha": 2 * ALPHA}, {"use_rslora": True}, {"alpha_pattern": {"query": 1}}]
)
def test_adapters_of_the_same_tensors_and_other_scales_are_not_equal(
    tmp_path: Path, base: Path, change: dict[str, Any]
) -> None:
    tensors = lora(load_file(base / "model.safetensors"), QUERIES)
    one, same_, other = (
        write_adapter(tmp_path / name, tensors, **settings)
        for name, settings in (("one", {}), ("same", {"lora_dropout": 0.5}), ("other", change))
    )
    assert mapper.diff(one, same_, values=True).equal is True
    found = mapper.diff(one, other, values=True)
    assert found.equal is False and found.weights_equal is True
    assert any(f"adapter.{next(iter(change))}" in contrast.subject for contrast in found.architecture)


@pytest.mark.parametrize("merge", [True, False])
def test_a_saved_model_says_which_adapter_is_in_it(
    tmp_path: Path, base: Path, merge: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    adapter = write_adapter(tmp_path / "lora", lora(load_file(base / "model.safetensors"), QUERIES))
    mapper.build(base, adapter=adapter, merge=merge, out=tmp_path / "kept")
    document = json.loads((tmp_path / "kept" / "mapper.json").read_text())
    said = {"base": "base", "adapter": "lora", "rank": [RANK], "alpha": [ALPHA], "merged": merge}
    assert document["architecture"]["model"]["adapted"] == [said]
    where = "merged into" if merge else "beside"
    note = f"lora: a LoRA of base, rank {RANK}, alpha {ALPHA}, {where} the weights"
    assert main(["inspect", str(tmp_path / "kept")]) == 0
    assert f"note: {note}\n" in capsys.readouterr().out
    assert note in json.loads(mapper.inspect(tmp_path / "kept").to_json())["notes"]


def test_it_is_still_said_of_what_was_loaded_and_saved_again_and_of_every_adapter(
    tmp_path: Path, base: Path
) -> None:
    weights = load_file(base / "model.safetensors")
    settings = {
        "rank_pattern": {"layer.0.attention.self.query": 2},
        "alpha_pattern": {"layer.0.attention.self.query": 5},
    }
    first = write_adapter(
        tmp_path / "first", lora(weights, QUERIES[:1], rank=2) | lora(weights, QUERIES[1:]), **settings
    )
    second = write_adapter(tmp_path / "second", lora(weights, QUERIES))
    mapper.build(base, adapter=first, merge=True, out=tmp_path / "one")
    mapper.save(tmp_path / "two", mapper.load(tmp_path / "one")[0])
    mapper.build(tmp_path / "two", adapter=second, merge=True, out=tmp_path / "three")
    notes = json.loads(mapper.inspect(tmp_path / "three").to_json())["notes"]
    assert "first: a LoRA of base, rank 2 and 3, alpha 5 and 12, merged into the weights" in notes
    assert "second: a LoRA of two, rank 3, alpha 12, merged into the weights" in notes


@pytest.mark.parametrize("change", [{"rank": ["x"]}, {"alpha": [10**400]}, {"merged": 1}, {"base": 3}])
def test_what_is_no_such_record_is_refused(tmp_path: Path, base: Path, change: dict[str, Any]) -> None:
    adapter = write_adapter(tmp_path / "lora", lora(load_file(base / "model.safetensors"), QUERIES))
    mapper.build(base, adapter=adapter, merge=True, out=tmp_path / "kept")
    file = tmp_path / "kept" / "mapper.json"
    document = json.loads(file.read_text())
    document["architecture"]["model"]["adapted"][0].update(change)
    file.write_text(json.dumps(document))
    with pytest.raises(FormatError, match=r"adapter|base"):
        mapper.inspect(tmp_path / "kept")
