"""A written graph as a module with its weights."""

from __future__ import annotations

import torch
from torch import nn

from mapper._compiling import compile_source
from mapper.graphs.straight.source import Straight


def build_straight(straight: Straight, source: str) -> nn.Module:
    """The module; its tensors are views of the file where they stand there as they are."""
    namespace = compile_source(straight.text, source)
    with torch.device("meta"):
        model: nn.Module = namespace.Model()
    tensors = {name: ref.read() for name, ref in straight.tensors.items()}
    model.load_state_dict(tensors, strict=True, assign=True)
    if straight.is_tied:
        namespace.tie(model)
    return model.eval()
