"""What an export refuses before anything is read: no torch is needed to say so."""

from __future__ import annotations

import importlib.util
import os

from mapper.errors import HintError, MapperError, shorten
from mapper.outputs.files import place_of, refuse_to_replace

SUFFIX = ".onnx"
DATA = ".data"  # added to the file's name: where weights beside it are
OPSETS = range(
    18, 25
)  # of ONNX's operators: torch writes none before, and later ones onnxruntime does not run


def check_asked(path: str | os.PathLike[str], opset: int, overwrite: bool) -> None:
    """Raises MapperError for a place, a version or an environment in which nothing can be written."""
    if not os.fspath(path).endswith(SUFFIX):
        raise HintError(f"{shorten(os.fspath(path))}: an ONNX file ends in {SUFFIX}")
    if opset not in OPSETS:
        raise HintError(f"opset {opset} is not written: --opset is {OPSETS[0]} to {OPSETS[-1]}")
    check_installed()
    refuse_to_replace(place_of(path), path, overwrite)


def check_installed() -> None:
    """Raises MapperError unless onnxruntime and what writes ONNX files are there."""
    missing = [
        name for name in ("onnx", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise MapperError(f"not installed: {', '.join(missing)}; pip install 'checkpoint-mapper[onnx]'")
