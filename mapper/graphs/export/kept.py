"""What an exported file says of where it is from: with it the same source is read back from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from mapper._kept import kept_config
from mapper.architecture import Architecture
from mapper.outputs.written import config_text
from mapper.sources.saved import METADATA, NAMES_METADATA, digest_of_names
from mapper.weights.modules import States
from mapper.weights.saving.document import architecture_of, as_text, document_of

CONFIG = "config"  # where the settings of any library are looked for in a file's metadata
_OF_TENSORS = ("placement", "frozen", "absent")  # of a save's document: how its own tensors lie in memory


def metadata_of(
    architecture: Architecture,
    model: nn.Module,
    states: States,
    tensors: Mapping[str, torch.Tensor],
    keys: Mapping[str, str],
    dtype: torch.dtype | None,
) -> dict[str, str]:
    """The entries of the file's metadata: the config, and the document that `mapper.save` writes beside tensors.

    `keys` says under which key each of the model's tensors stands in the file.
    """
    document, _ = document_of(states, tensors, None, architecture=architecture_of(model)[0])
    told: dict[str, Any] = {name: value for name, value in document.items() if name not in _OF_TENSORS}
    told["tied"] = {keys[alias]: keys[owner] for alias, owner in document["tied"].items()}
    told["raw"] = {keys[name]: entry for name, entry in document["raw"].items()}
    config = kept_config(architecture, dtype)
    kept = {METADATA: as_text(told), NAMES_METADATA: digest_of_names(keys[name] for name in tensors)}
    return {**kept, **({CONFIG: config_text(config)} if config is not None else {})}
