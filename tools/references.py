"""Tiny reference models of transformers, made from the examples in the family files, with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto

from mapper.rulebook.families import Example, Family

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

# transformers' own tables of which class serves which task; a type that a table lacks has no such head.
TABLES = (
    "MODEL_MAPPING_NAMES", "MODEL_FOR_MASKED_LM_MAPPING_NAMES", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES", "MODEL_FOR_CTC_MAPPING_NAMES",
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES", "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
)  # fmt: skip


def complete_example(family: Family, model_type: str) -> Example | None:
    """The first example of a model type that says everything and expects an exact reading."""
    for example in family.examples:
        config = example.config or {}
        if config.get("model_type") == model_type and example.expect.get("reading") == "exact":
            return example
    return None


def classes(model_type: str) -> Iterator[str]:
    """Names of the classes that transformers has for a model type, the base first."""
    seen: set[str] = set()
    for table in TABLES:
        found = getattr(modeling_auto, table, {}).get(model_type)
        for name in [found] if isinstance(found, str) else list(found or ()):
            if name not in seen and hasattr(transformers, name):
                seen.add(name)
                yield name


def write_reference(config: dict[str, Any], class_name: str, folder: Path) -> None:
    """Save a model of that class, as the hub has it, with weights that no default could be mistaken for."""
    fields = {name: value for name, value in config.items() if name not in ("model_type", "architectures")}
    made = transformers.AutoConfig.for_model(config["model_type"], **fields)
    if hasattr(made, "pad_token_id") and made.pad_token_id is None:
        made.pad_token_id = 0  # without one the reference classifies single rows only
    torch.manual_seed(0)
    model = getattr(transformers, class_name)._from_config(made, attn_implementation="eager").float().eval()
    randomise(model)
    model.save_pretrained(folder)


def randomise(model: torch.nn.Module) -> None:
    """Noise on every parameter and floating-point buffer, so that nothing is neutral: no bias 0, no norm weight 1."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            fan_in = (
                parameter[0].numel() if parameter.dim() > 1 else 100
            )  # keeps twelve layers from amplifying rounding
            parameter.add_(torch.randn(parameter.shape, generator=generator) * min(0.1, fan_in**-0.5))
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(torch.randn(buffer.shape, generator=generator) * 0.1)
            elif name.endswith("running_var"):
                buffer.add_(torch.rand(buffer.shape, generator=generator))
