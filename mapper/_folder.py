"""`mapper build --out`: a folder with the source, the weights and what is known; itself a source for every command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper._files import whole_folder
from mapper.errors import SourceError
from mapper.report.document import as_json

if TYPE_CHECKING:
    import torch

    from mapper.architecture import Architecture
    from mapper.checkpoint import Checkpoint

INDEX = "model.safetensors.index.json"


def write_folder(
    architecture: Architecture, folder: Path | str, dtype: torch.dtype | None = None
) -> list[str]:
    """The names of what was written: model.py, the weights, architecture.json and config.json; all of it or nothing.

    safetensors files are copied as they are; others, and cast ones, become one model.safetensors.
    """
    from mapper.emission import emit

    with whole_folder(folder) as partial:
        _write(partial / "model.py", emit(architecture))
        _write(partial / "architecture.json", as_json(architecture))
        if architecture.checkpoint.config is not None:
            _write(partial / "config.json", json.dumps(architecture.checkpoint.config, indent=2) + "\n")
        if architecture.checkpoint.container.startswith("safetensors") and dtype is None:
            _copy(architecture.checkpoint, partial)
        else:
            _save(architecture.checkpoint, partial, dtype)
        return sorted(path.name for path in partial.iterdir())


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="")


def _copy(checkpoint: Checkpoint, folder: Path) -> None:
    from safetensors import safe_open

    files = [Path(file) for file in checkpoint.weights]
    names = ["model.safetensors"] if len(files) == 1 else [file.name for file in files]
    index: dict[str, str] = {}
    for file, name in zip(files, names, strict=True):
        shutil.copyfile(file, folder / name)
        with safe_open(file, framework="numpy") as opened:
            index |= dict.fromkeys(opened.keys(), name)
    if len(files) > 1:
        total = sum(file.stat().st_size for file in files)
        document = {"metadata": {"total_size": total}, "weight_map": index}
        _write(folder / INDEX, json.dumps(document, indent=2, sort_keys=True) + "\n")


def _save(checkpoint: Checkpoint, folder: Path, dtype: torch.dtype | None) -> None:
    from safetensors.torch import save_file

    if checkpoint.read is None:
        raise SourceError(f"{checkpoint.source} has no weights to write; name a checkpoint that has them")
    tensors = checkpoint.read(checkpoint.tensors)
    if dtype is not None:
        tensors = {
            name: tensor.to(dtype) if tensor.is_floating_point() else tensor
            for name, tensor in tensors.items()
        }
    save_file(_apart(tensors), folder / "model.safetensors", {"format": "pt"})


def _apart(tensors: dict[str, Any]) -> dict[str, Any]:
    """Contiguous tensors that share no memory: the format keeps each on its own."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        start = tensor.untyped_storage().data_ptr()
        whole = tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes
        apart[name] = tensor if whole and start not in seen else tensor.clone(memory_format=_contiguous())
        seen.add(start)
    return apart


def _contiguous() -> Any:
    import torch

    return torch.contiguous_format
