"""The reference model of a case, and what its outputs are compared by."""

from __future__ import annotations

import inspect
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedConfig

TOLERANCE = 1e-4  # of max(1, largest value)
PARAMETERS = 6_000_000  # a change may ask for a model of any size
NOT_COMPARED = ("hidden_states", "attentions", "past_key_values", "cross_attentions", "cache_params", "loss")


class NoTrial(Exception):
    """The reference refuses, or its outputs say nothing."""


class Case:
    """A folder with config.json, inputs.safetensors and outputs.safetensors; its class is the config's first."""

    def __init__(self, folder: Path):
        import transformers

        self.folder, self.name = folder, folder.name
        self.raw = json.loads((folder / "config.json").read_text())
        self.inputs = load_file(folder / "inputs.safetensors")
        self.stored = load_file(folder / "outputs.safetensors")
        self.kind = getattr(transformers, self.raw["architectures"][0])
        self.config_class = self._config_class(transformers.CONFIG_MAPPING)
        words = self.inputs.get("input_ids")
        self.ids = [int(word) for word in words.flatten()[1:6]] if words is not None else [7, 11, 13]

    def _config_class(self, known: Mapping[str, type]) -> type:
        wanted = self.kind.config_class
        named = self.raw.get("model_type")
        found = known[named] if named in known else wanted  # noqa: SIM401  (a lazy mapping without get)
        return found if issubclass(found, wanted) or self._is_loaded_as(named) else wanted

    def _is_loaded_as(self, model_type: Any) -> bool:
        """Whether an Auto class makes this case's class of a config of that type, be it another type's class."""
        from transformers.models.auto import modeling_auto

        tables = (table for name, table in vars(modeling_auto).items() if name.endswith("_MAPPING_NAMES"))
        return any(self.kind.__name__ in _several(table.get(model_type)) for table in tables)

    def config(self, raw: Mapping[str, Any]) -> Any:
        data = PreTrainedConfig._decode_special_floats(json.loads(json.dumps(raw)))  # as from a file
        made = self.config_class.from_dict(data)  # type: ignore[attr-defined]
        return made[0] if isinstance(made, tuple) else made

    def model(self, config: Any, weights: Mapping[str, Tensor]) -> nn.Module:
        """A model with these weights where they fit; other parameters have values by chance, always the same."""
        torch.manual_seed(zlib.crc32(self.name.encode()))
        config._experts_implementation = "eager"
        try:
            model = self.kind._from_config(config, attn_implementation="eager")
        except ValueError as error:
            if "attn" not in str(error).lower():
                raise
            model = self.kind(config)
        if sum(parameter.numel() for parameter in model.parameters()) > PARAMETERS:
            raise NoTrial("too large")
        with torch.no_grad():
            for name, parameter in model.float().named_parameters():
                stored = weights.get(name)
                if stored is not None and stored.shape == parameter.shape:
                    parameter.copy_(stored)
                elif parameter.dim() > 0:
                    parameter.add_(torch.randn_like(parameter), alpha=0.1)
        return model.eval()

    def outputs(self, model: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The float outputs, all finite and not constant. Raises NoTrial."""
        found = {
            name: value
            for name, value in named(call(model, inputs, plain=True)).items()
            if name in self.stored
        }
        if not found or not all(bool(torch.isfinite(value).all()) for value in found.values()):
            raise NoTrial("no finite outputs")
        first = next(iter(found.values()))
        if first.numel() > 1 and float(first.std()) < 1e-6:
            raise NoTrial("outputs are constant")
        return found


def _several(names: Any) -> tuple[str, ...]:
    return names if isinstance(names, tuple) else (names,)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def call(model: nn.Module, inputs: Mapping[str, Tensor], plain: bool = False) -> Any:
    """A forward; `plain`: of the reference, without a cache."""
    takes = inspect.signature(model.forward).parameters
    wanted = {"use_cache": False, "return_dict": True} if plain else {}
    passed_on = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
    may_have = {"use_cache"} if passed_on and hasattr(getattr(model, "config", None), "use_cache") else set()
    torch.manual_seed(0)
    with torch.no_grad():
        copies = {name: value.clone() for name, value in inputs.items()}
        kept = {name: value for name, value in wanted.items() if name in takes or name in may_have}
        return model(**copies, **kept)


def named(result: Any) -> dict[str, Tensor]:
    """Float outputs by name; those of a list with their number behind."""
    if isinstance(result, Tensor):
        return {"output": result.detach().float()}
    items = result.items() if hasattr(result, "items") else vars(result).items()
    found: dict[str, Tensor] = {}
    for name, value in items:
        several = value if isinstance(value, (tuple, list)) else None
        for key, one in (
            [(name, value)] if several is None else [(f"{name}.{at}", x) for at, x in enumerate(several)]
        ):
            if (
                isinstance(one, Tensor)
                and one.is_floating_point()
                and one.numel()
                and not name.endswith(NOT_COMPARED)
            ):
                found[key] = one.detach().float()
    return found


def difference(found: Tensor, wanted: Tensor) -> float:
    """How far off, of max(1, largest value); 9 for another shape, 1e9 for what is not finite."""
    if found.shape != wanted.shape:
        return 9.0
    if not wanted.numel():
        return 0.0
    off = float((found - wanted).abs().max()) / max(1.0, float(wanted.abs().max()))
    return off if off == off else 1e9


def worst(
    found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], mask: Tensor | None = None
) -> tuple[float, str]:
    """The largest difference and its output; with a mask, where that is 1. What is not there counts as 9."""
    told = [(0.0, "")]
    for name, value in wanted.items():
        other = found.get(name)
        if other is not None and mask is not None and value.shape[:2] == mask.shape == other.shape[:2]:
            value, other = value[mask.bool()], other[mask.bool()]
        told.append((9.0 if other is None else difference(other, value), name))
    return max(told)


def masks(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Masks that pad the second row on the right and on the left; none where the inputs have no mask of ones."""
    mask = inputs.get("attention_mask")
    if (
        mask is None
        or mask.dim() != 2
        or mask.shape[0] < 2
        or mask.shape[1] < 8
        or not bool((mask == 1).all())
    ):
        return {}
    count = max(3, mask.shape[1] // 4)
    right, left = mask.clone(), mask.clone()
    right[1, -count:] = 0
    left[1, :count] = 0
    return {"right": right, "left": left}
