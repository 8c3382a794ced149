"""Parity: a tiny model of the reference library against what mapper builds and generates from its checkpoint.

A test is three lines:

    model = reference("BertForMaskedLM", BertConfig(vocab_size=99, hidden_size=32, ...))
    check(model, tmp_path, text_inputs(vocab_size=99, segments=2))

`reference` gives the model with every parameter randomised. `check` saves it, reads it, and for every set of
inputs compares all float outputs of the reference with those of the built model (within TOLERANCE of max(1,
largest value), where the mask is 1), and those of the imported generated file with the built module's (equal to
the bit). It also holds the reading to `exact` and the state dict to the file's keys, shapes and dtypes.

`check` returns the Pair, for tests of what is particular to a family. The slow checks are functions of a Pair
for representatives: `check_gradient`, `check_export`, `check_compile`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from mapper._api import describe
from mapper._build import build_architecture
from mapper.architecture import Architecture
from mapper.emission import emit
from tools.usage import used_units

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

TOLERANCE = 1e-5  # of max(1, largest value): float32, other kernels
NOT_COMPARED = ("hidden_states", "attentions", "past_key_values", "loss", "cross_attentions", "cache_params")
COMPARED = "compared"  # no input: the mask of an output whose positions are not those of a mask that is given
CONFIGS = {
    "querier": ("qformer_config", "projector_config"),
    "resampler": ("perceiver_config",),
    "encoder": ("encoder.text_config",),
    "decoder": ("decoder",),
    "vision": ("vision_config.encoder_config",),
    "backbone": ("vision_config.sam_config",),
}  # tower: other names of its config
Inputs = Mapping[str, Any]  # what is no tensor is a keyword of the reference alone


@dataclass
class Pair:
    """One reference model, and what mapper made of its checkpoint."""

    reference: nn.Module
    folder: Path
    read: Architecture  # of which both are made: a folder is read once
    built: nn.Module
    source: str  # the generated text
    module: ModuleType  # the generated file, imported
    loaded: nn.Module  # its model


def reference(kind: str | type[nn.Module], config: Any, seed: int = 0) -> nn.Module:
    """The reference library's model, eager attention, in eval mode; no parameter keeps its neutral initial value."""
    with quiet():
        reference_class = getattr(transformers, kind) if isinstance(kind, str) else kind
        model = reference_class._from_config(config, attn_implementation="eager").eval()
    return randomise(model, seed)


def declared(config_class: type, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the sizes that a config class has: what it has not it would keep and write, as a field of nobody's."""
    known = {field.name for field in fields(config_class)} | set(config_class.attribute_map)
    return {name: size for name, size in sizes.items() if name in known}


def check_by_names(model: nn.Module, folder: Path, image: Tensor, output: str = "logits") -> None:
    """Saves the weights of a network alone, with every parameter and statistic randomised, and compares what is read of them.

    The largest difference is at most TOLERANCE of the output's standard deviation. The reading is unverified, and leaves nothing out.
    """
    randomise(model.eval())
    torch.save(model.state_dict(), folder / "model.pth")
    read = describe(folder / "model.pth", purpose="weights")
    assert read.reading == "unverified", (read.findings, read.missing)
    assert not read.unmapped + read.findings
    with torch.no_grad():
        wanted, out = model(image), build_architecture(read)(pixel_values=image)
    assert float((getattr(out, output) - wanted).abs().max() / wanted.std()) <= TOLERANCE


def randomise(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model with other values in every parameter and every running statistic."""
    generator = torch.Generator().manual_seed(seed)
    norms = {
        id(part.weight)
        for part in model.modules()
        if "Norm" in type(part).__name__ and hasattr(part, "weight")
    }
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            scale = 0.2 if parameter.ndim < 2 else 0.7 * parameter[0].numel() ** -0.5
            parameter.copy_(noise * scale + (1.0 if id(parameter) in norms else 0.0))
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.2)
            elif name.endswith("running_var"):
                buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
    return model


def pair(model: nn.Module, folder: Path, edit: Callable[[dict[str, Any]], None] | None = None) -> Pair:
    """Saves the reference and builds it. `edit` may change the config.json, to the spelling of another year say."""
    with quiet():
        model.save_pretrained(folder)
    if edit is not None:
        path = folder / "config.json"
        config = json.loads(path.read_text())
        edit(config)
        path.write_text(json.dumps(config))
    read = describe(folder, purpose="weights")
    source = emit(read)
    file = folder / "generated_model.py"
    file.write_text(source)
    module = imported(file)
    built = build_architecture(read, text=source)
    return Pair(model, folder, read, built, source, module, module.load(folder))


def check(
    model: nn.Module,
    folder: Path,
    inputs: Mapping[str, Inputs],
    *,
    edit: Callable[[dict[str, Any]], None] | None = None,
    reading: str = "exact",
    tolerance: float = TOLERANCE,
) -> Pair:
    """The built model and the generated file give the reference's outputs for every set of inputs."""
    made = pair(model, folder, edit)
    read = made.read
    assert read.reading == reading, (read.reading, read.findings, read.missing, read.unmapped)
    assert not read.unmapped
    check_keys(made.folder, made.built, made.loaded)
    worst = max(check_outputs(made, values, name, tolerance) for name, values in inputs.items())
    record(made, worst)
    return made


def record(made: Pair, worst: float) -> None:
    """Lines for `tools/validate.py`, which names the file, of what was compared: the whole, and each of its towers."""
    name, read = type(made.reference).__name__, made.read
    write_line({"test": current_test(), "steps": sorted(used_units(read))})
    record_line(read.family, made.reference.config.model_type, name, worst)
    config = json.loads((made.folder / "config.json").read_text())
    for tower, family in read.towers.items():
        parts = (_part(config, name) for name in (*CONFIGS.get(tower, ()), f"{tower}_config"))
        if model_type := next((part["model_type"] for part in parts if "model_type" in part), None):
            record_line(family, model_type, name, worst)


def _part(config: dict[str, Any], name: str) -> dict[str, Any]:
    """The part of a config at a dotted name; empty where there is none."""
    for word in name.split("."):
        config = config.get(word, {}) if isinstance(config, dict) else {}
    return config if isinstance(config, dict) else {}


def record_line(family: str | None, model_type: str, name: str, worst: float) -> None:
    write_line({"family": family, "model_type": model_type, "class": name, "worst": worst})


def current_test() -> str:
    """The id of the running test, without the phase that stands behind it."""
    return os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0]


def write_line(line: dict[str, Any]) -> None:
    if path := os.environ.get("MAPPER_PARITY_RECORD"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def check_outputs(made: Pair, inputs: Inputs, name: str = "", tolerance: float = TOLERANCE) -> float:
    """All float outputs of the reference for one set of inputs, compared where its mask is 1; the largest difference."""
    own = {key: value for key, value in inputs.items() if isinstance(value, Tensor) and key != COMPARED}
    theirs = {key: value for key, value in inputs.items() if key != COMPARED}
    with torch.no_grad(), quiet():
        wanted = made.reference(**theirs)
        built, loaded = made.built(**own), made.loaded(**own)
    worst: list[float] = []
    for key, value in outputs(wanted):
        got = output(built, key)
        assert got is not None, f"{name}: no output {key!r}; there are {[key for key, _ in outputs(built)]}"
        assert got.shape == value.shape, (name, key, got.shape, value.shape)
        keep = _kept(key, value, inputs)
        difference = (got - value)[keep].abs().max() / value[keep].abs().max().clamp(min=1)
        assert difference <= tolerance, f"{name}: {key} differs by {difference:.1e}"
        assert torch.equal(output(loaded, key)[keep], got[keep]), (
            f"{name}: the generated file's {key} differs"
        )
        worst.append(float(difference))
    assert worst, f"{name}: the reference gives no float output"
    return max(worst)


def outputs(result: Any) -> Iterator[tuple[str, Tensor]]:
    """Float tensors of an output by name, logits that are a tuple by name and number."""
    items = (
        result.items()
        if isinstance(result, Mapping)
        else ((f.name, getattr(result, f.name)) for f in fields(result))
    )
    for key, value in items:
        several = isinstance(value, tuple) and key == "logits"
        named = [(f"{key}.{at}", item) for at, item in enumerate(value)] if several else [(key, value)]
        for name, item in named:
            if isinstance(item, Tensor) and item.is_floating_point() and name not in NOT_COMPARED:
                yield name, item


def output(result: Any, name: str) -> Any:
    """One output of a built model by such a name; None where there is none."""
    key, _, at = name.partition(".")
    value = getattr(result, key, None)
    return value[int(at)] if at and value is not None else value


def text_inputs(
    vocab_size: int,
    *,
    segments: int = 0,
    positions: bool = True,
    padding: int | None = None,
    left_positions: bool = False,
    length: int = 12,
) -> dict[str, dict[str, Tensor]]:
    """Ids without a mask, all ones, padding on either side, an odd length, batch 1; then given positions and segments.

    `padding` is the id that padded places hold (any id if None). `left_positions`: on the left side the positions
    are given too, counted from the first real token, as generation does for decoders.
    """
    ids = torch.randint(3, vocab_size, (3, length), generator=torch.Generator().manual_seed(1))
    right = torch.ones_like(ids)
    right[1, -4:] = 0
    right[2, -1:] = 0
    left = right.flip(1)
    cases: dict[str, dict[str, Tensor]] = {
        "no mask": {"input_ids": ids},
        "all ones": {"input_ids": ids, "attention_mask": torch.ones_like(ids)},
        "right": {"input_ids": _padded(ids, right, padding), "attention_mask": right},
        "left": {"input_ids": _padded(ids, left, padding), "attention_mask": left},
        "odd": {"input_ids": ids[:, :7], "attention_mask": right[:, -7:]},
        "one": {"input_ids": ids[:1, :5]},
    }
    if left_positions:
        cases["left"]["position_ids"] = (left.cumsum(1) - 1).clamp(min=0)
    if positions:
        given = torch.arange(length).flip(0).expand(3, -1) + 1
        cases["positions"] = {"input_ids": ids, "attention_mask": right, "position_ids": given}
    if segments:
        cases["segments"] = {"input_ids": ids, "attention_mask": right, "token_type_ids": ids % segments}
    return cases


def image_inputs(
    *sizes: tuple[int, int], own: tuple[int, int] = (32, 32), resize: str = "", patch: int = 0
) -> dict[str, dict[str, Any]]:
    """Images of the size that the model is made for, one alone, and others of `sizes`.

    `resize` is the reference's keyword for other sizes than its own, where it needs one. `patch`: also with every
    other patch masked.
    """
    generator = torch.Generator().manual_seed(1)
    cases: dict[str, dict[str, Any]] = {
        "own size": {"pixel_values": torch.randn(3, 3, *own, generator=generator)},
        "one": {"pixel_values": torch.randn(1, 3, *own, generator=generator)},
    }
    for height, width in sizes:
        cases[f"{height} x {width}"] = {
            "pixel_values": torch.randn(2, 3, height, width, generator=generator),
            **({resize: True} if resize else {}),
        }
    if patch:
        count = (own[0] // patch) * (own[1] // patch)
        masked = (torch.arange(count) % 2 == 0).expand(3, -1)
        cases["masked"] = {**cases["own size"], "bool_masked_pos": masked}
    return cases


def check_gradient(made: Pair, inputs: Inputs) -> None:
    """One step downhill: every parameter that the reference trains gets a finite gradient, and the loss falls."""
    model = made.module.load(made.folder).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4)

    def loss() -> Tensor:
        return sum((value.float() ** 2).mean() for _, value in outputs(model(**inputs)))

    before = loss()
    before.backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    theirs = sum((value.float() ** 2).mean() for _, value in outputs(made.reference(**inputs)))
    theirs.backward()
    untrained = {name for name, p in made.reference.named_parameters() if p.grad is None}
    made.reference.zero_grad()
    assert set(missing) <= untrained, sorted(set(missing) - untrained)
    optimiser.step()
    assert loss() < before


def check_export(made: Pair, inputs: Inputs, other: Inputs) -> None:
    """torch.export with dynamic batch and length gives a program that also runs inputs of another size."""
    batch, length = torch.export.Dim("batch", max=64), torch.export.Dim("length", max=24)
    dims = {name: {0: batch, 1: length} for name in inputs}
    with quiet(), torch.no_grad():
        program = torch.export.export(made.loaded, (), dict(inputs), dynamic_shapes=dims).module()
        _same(program(**other), made.loaded(**other))


def check_compile(made: Pair, inputs: Inputs) -> None:
    """torch.compile without a graph break gives the same outputs."""
    torch._dynamo.reset()
    with quiet(), torch.no_grad():
        _same(torch.compile(made.loaded, fullgraph=True, backend="eager")(**inputs), made.loaded(**inputs))


def _same(one: Any, other: Any) -> None:
    values = dict(outputs(one))
    for key, value in outputs(other):
        torch.testing.assert_close(values[key], value, rtol=1e-5, atol=1e-5)


def check_keys(folder: Path, *models: nn.Module) -> None:
    """Their state dicts have the stored names, shapes and dtypes."""
    stored: dict[str, Tensor] = {}
    for file in folder.glob("*.safetensors"):
        stored |= load_file(file)
    for model in models:
        state = model.state_dict()
        assert {k: (v.shape, v.dtype) for k, v in state.items()} == {
            k: (v.shape, v.dtype) for k, v in stored.items()
        }


def _padded(ids: Tensor, mask: Tensor, padding: int | None) -> Tensor:
    return ids if padding is None else ids.masked_fill(mask == 0, padding)


def _kept(key: str, value: Tensor, inputs: Inputs) -> Tensor:
    """Where an output is compared: the places its mask shows, everything where it is not per position."""
    masks = ("attention_mask",) if key.startswith("encoder") else ("decoder_attention_mask", "attention_mask")
    for name in (COMPARED, *masks):
        if name in inputs and inputs[name].shape == value.shape[:2]:
            return inputs[name].bool()
    return torch.ones(value.shape[:2], dtype=torch.bool)


def imported(file: Path) -> ModuleType:
    """A generated file as a module."""
    spec = importlib.util.spec_from_file_location(f"generated_{abs(hash(str(file)))}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


@contextmanager
def quiet() -> Iterator[None]:
    """The reference library's and torch's own deprecations are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
