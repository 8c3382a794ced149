"""One trial: a changed config, the reference from it, and what mapper makes of the same folder."""

from __future__ import annotations

import copy
import json
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import mapper
from mapper._build import made_of
from mapper.errors import MapperError
from tools.config_fuzz.fields import Change, patched
from tools.config_fuzz.reference import TOLERANCE, Case, NoTrial, call, masks, named, weights_of, worst

Row = dict[str, Any]


class TooLong(Exception):
    """A trial took more than its seconds."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises TooLong in what takes longer."""

    def stop(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True)
class Unchanged:
    """A case as it stands: its weights, and what it gives, plain and padded."""

    config: Any
    weights: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    padded: Mapping[str, frozenset[str]]  # side -> outputs that are equal there


def unchanged(case: Case, folder: Path) -> Unchanged | str:
    """The case without any change; why there are no trials where its reading is not exact and equal."""
    config = case.config(case.raw)
    model = case.model(config, load_file(case.folder / "model.safetensors"))
    write(model, case.raw, folder)
    outputs = case.outputs(model, case.inputs)
    row: Row = {}
    built = read(folder, row)
    if built is None or row["reading"] != "exact":
        return f"reading {row['reading']} {row.get('error', '')}"
    off, at = worst(named(call(built, case.inputs)), outputs)
    if off > TOLERANCE:
        return f"unequal without any change: {at} {off:.2g}"
    padded = {}
    for side, mask in masks(case.inputs).items():
        inputs = {**case.inputs, "attention_mask": mask}
        wanted, found = named(call(model, inputs, plain=True)), named(call(built, inputs))
        padded[side] = frozenset(
            name for name in outputs if worst(found, {name: wanted[name]}, mask)[0] <= TOLERANCE
        )
    return Unchanged(config, weights_of(model), outputs, padded)


def write(model: nn.Module, raw: Mapping[str, Any], folder: Path) -> None:
    """Save as on the hub, config.json being the file word for word."""
    model.save_pretrained(folder)  # type: ignore[operator]
    (folder / "config.json").write_text(json.dumps(raw))
    if not (folder / "model.safetensors").exists():
        raise NoTrial("no model.safetensors")


def read(folder: Path, row: Row) -> nn.Module | None:
    """The model that mapper builds, with what it says of it in the row; None where it builds none."""
    try:
        built = mapper.build(folder)
    except MapperError as error:
        row.update(reading=_reading_of(folder), result="refused", error=str(error)[:250])
        return None
    except TooLong:
        row.update(reading="none", result="crash", error="mapper took too long")
        return None
    except Exception as error:
        row.update(reading="none", result="crash", error=f"{type(error).__name__}: {error}"[:250])
        return None
    made = made_of(built)
    assert made is not None
    row.update(
        reading=made.architecture.reading,
        findings=[str(line)[:200] for line in made.architecture.findings[:3]],
    )
    if made.architecture.reading == "skeleton":
        row["result"] = "skeleton"
        return None
    return built


def _reading_of(folder: Path) -> str:
    """What `inspect` says of what is not built: `refused` where it refuses too."""
    try:
        return str(mapper.inspect(folder).architecture.reading)
    except MapperError:
        return "refused"


def trial(
    case: Case, base: Unchanged, change: Change, option: tuple[Any, Any, Any], keep: Path | None
) -> Row:
    """What a change leads to, as a row."""
    old, new, patch = option
    row: Row = {"case": case.name, "field": change.field, "kind": change.kind, "old": old, "new": new}
    folder = Path(tempfile.mkdtemp(prefix="config_fuzz_"))
    try:
        raw = patched(case.raw, patch)
        try:
            model = case.model(case.config(raw), base.weights)
            write(model, raw, folder)  # before a forward: some change their weights in it
            outputs = case.outputs(model, case.inputs)
        except Exception as error:
            return {**row, "result": "reference", "error": f"{type(error).__name__}: {error}"[:250]}
        row["effect"] = effect(model, outputs, base)
        built = read(folder, row)
        if built is not None:
            row.update(compared(case, base, model, built, outputs, row["effect"] != "no"))
        if keep is not None and row["reading"] == "exact" and row["result"] in ("wrong", "raises"):
            save_file(dict(case.inputs), folder / "inputs.safetensors")
            save_file(
                {name: value.contiguous().clone() for name, value in outputs.items()},
                folder / "outputs.safetensors",
            )
            shutil.copytree(folder, keep / folder.name)
            row["kept"] = folder.name
        return row
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def effect(model: nn.Module, outputs: Mapping[str, Tensor], base: Unchanged) -> str:
    """Whether a change reaches the outputs: `shape` where other tensors are there, `yes`, `no`."""
    shapes = {name: value.shape for name, value in model.named_parameters()}
    if shapes != {name: value.shape for name, value in base.weights.items()}:
        return "shape"
    return "yes" if worst(outputs, base.outputs)[0] > TOLERANCE else "no"


def compared(
    case: Case, base: Unchanged, model: nn.Module, built: nn.Module, outputs: Mapping[str, Tensor], pads: bool
) -> Row:
    """The result of a built model: equal, wrong, or raises; padded too where the change has an effect."""
    tried: list[tuple[str, Mapping[str, Tensor], Mapping[str, Tensor], Tensor | None]]
    tried = [("", case.inputs, outputs, None)]
    try:
        for side, mask in masks(case.inputs).items() if pads else ():
            inputs = {**case.inputs, "attention_mask": mask}
            try:
                wanted = named(call(model, inputs, plain=True))
            except Exception:  # the reference itself cannot with this padding
                continue
            same = {name: wanted[name] for name in base.padded.get(side, ()) if name in wanted}
            if side == "left":  # what is pooled there may be padding, which no model defines
                same = {name: value for name, value in same.items() if value.shape[:2] == mask.shape}
            tried.append((side, inputs, same, mask))
        for side, inputs, wanted, mask in tried:
            off, at = worst(named(call(built, inputs)), wanted, mask)
            if off > TOLERANCE:
                told = {"result": "wrong", "diff": off, "output": at, "padded": side}
                told["in float64"] = in_float64(model, built, inputs, wanted, mask)
                told["moved"] = moved(model, inputs, wanted, mask)
                return {**told, "in sdpa": in_sdpa(model, built, inputs, wanted, mask)}
    except TooLong:
        return {"result": "crash", "error": "forward took too long"}
    except Exception as error:
        return {"result": "raises", "error": f"{type(error).__name__}: {error}"[:250]}
    return {"result": "equal"}


def in_sdpa(
    model: nn.Module,
    built: nn.Module,
    inputs: Mapping[str, Tensor],
    names: Mapping[str, Tensor],
    mask: Tensor | None,
) -> float | str:
    """The difference from the reference with its other attention: of some classes the two do not agree."""
    try:
        kind: Any = type(model)
        other = kind._from_config(copy.deepcopy(model.config), attn_implementation="sdpa").float().eval()
        other.load_state_dict(model.state_dict())
        wanted = named(call(other, inputs, plain=True))
        return worst(named(call(built, inputs)), {name: wanted[name] for name in names}, mask)[0]
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:120]


def moved(
    model: nn.Module, inputs: Mapping[str, Tensor], names: Mapping[str, Tensor], mask: Tensor | None
) -> float | str:
    """How far the reference's own outputs go at most when its weights change by one part in ten million, four times."""
    try:
        made, far = torch.Generator().manual_seed(0), 0.0
        for _ in range(4):
            other = copy.deepcopy(model)
            with torch.no_grad():
                for parameter in other.parameters():
                    parameter.mul_(1 + 1e-7 * torch.randn(parameter.shape, generator=made))
            far = max(far, worst(named(call(other, inputs, plain=True)), names, mask)[0])
        return far
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:120]


def in_float64(
    model: nn.Module,
    built: nn.Module,
    inputs: Mapping[str, Tensor],
    names: Mapping[str, Tensor],
    mask: Tensor | None,
) -> float | str:
    """The difference without rounding: chaotic models differ in float32 alone."""
    try:
        doubled = {
            key: value.double() if value.is_floating_point() else value for key, value in inputs.items()
        }
        wanted = named(call(copy.deepcopy(model).double(), doubled, plain=True))
        found = named(call(copy.deepcopy(built).double(), doubled))
        return worst(found, {name: wanted[name] for name in names}, mask)[0]
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:120]
