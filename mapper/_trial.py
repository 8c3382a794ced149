"""One forward on made-up inputs: `mapper build` shows that a model runs before anyone writes code for it."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

    from mapper.architecture import Architecture

# Free extents of inputs. Images and sounds need some size to survive their convolutions.
EXTENTS = {"batch": 1, "height": 224, "width": 224, "samples": 16_000, "frames": 100}
OTHER_EXTENT = 8
FIRST_ID, IDS = 2, 8  # past the padding ids 0 and 1; every vocabulary has ten


def made_up_inputs(architecture: Architecture, model: nn.Module) -> dict[str, torch.Tensor]:
    """The inputs that the model cannot do without, on its device and in its type: small ids, noise from a fixed seed."""
    like = next((tensor for tensor in model.parameters() if tensor.is_floating_point()), None)
    required = {name: spec for name, spec in architecture.inputs.items() if not spec.get("optional")}
    inputs = {}
    for name, spec in required.items():
        made = _made_up(spec)
        inputs[name] = made if like is None else made.to(like if made.is_floating_point() else like.device)
    return inputs


def _made_up(spec: dict[str, Any]) -> torch.Tensor:
    import torch

    shape = [
        extent if isinstance(extent, int) else EXTENTS.get(extent, OTHER_EXTENT) for extent in spec["shape"]
    ]
    dtype = getattr(torch, spec["dtype"])
    if dtype.is_floating_point:
        return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
    if dtype == torch.bool:
        return torch.ones(shape, dtype=dtype)
    return (torch.arange(shape[-1]) % IDS + FIRST_ID).expand(shape).to(dtype)


def shapes(value: Any, name: str = "") -> list[str]:
    """`last_hidden_state (1, 8, 384)` for every tensor in an output."""
    if hasattr(value, "shape"):
        return [f"{name} ({', '.join(map(str, value.shape))})"]
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        return [line for key, item in value.items() for line in shapes(item, key)]
    if isinstance(value, (list, tuple)):
        return (
            [f"{name}: {len(value)} of {shapes(value[0])[0].strip()}"]
            if value and hasattr(value[0], "shape")
            else []
        )
    return []
