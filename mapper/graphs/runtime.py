"""An ONNX file in onnxruntime, called as a model is: tensors by name go in, tensors by name come out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import torch

from mapper.errors import FormatError, MapperError, MissingSourceError, SourceError, listed, shorten
from mapper.graphs.export.asked import check_installed

ERRORS_ONLY = 3  # the severity from which onnxruntime prints
# onnxruntime's types of tensors that NumPy has, as torch calls them.
DTYPES = {
    "tensor(float)": torch.float32, "tensor(double)": torch.float64, "tensor(float16)": torch.float16,
    "tensor(int64)": torch.int64, "tensor(int32)": torch.int32, "tensor(int16)": torch.int16, "tensor(int8)": torch.int8,
    "tensor(uint8)": torch.uint8, "tensor(bool)": torch.bool,
}  # fmt: skip


class RunError(MapperError):
    """onnxruntime does not run a file that it has loaded, on the inputs that it was given."""


class Declared(NamedTuple):
    """What a graph says of one of its inputs."""

    shape: tuple[int | str | None, ...]  # a word is an extent that callers choose; None is one without a name
    dtype: torch.dtype


class Runtime:
    """A session of onnxruntime on the processor. Raises MapperError for what it cannot load or run."""

    def __init__(self, path: Any) -> None:
        """`path` is a file, or a session that somebody has opened."""
        is_file = isinstance(path, (str, os.PathLike))
        self.name = Path(path).name if is_file else "the session"
        self.session: Any = _session(path, self.name) if is_file else path
        self.inputs = {item.name: self._declared(item) for item in self.session.get_inputs()}
        self.outputs = [item.name for item in self.session.get_outputs()]

    def __call__(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        unknown = [name for name in inputs if name not in self.inputs]
        missing = [name for name in self.inputs if name not in inputs]
        if unknown or missing:
            what = f"takes no {listed(unknown)}" if unknown else f"needs {listed(missing)}"
            raise SourceError(f"{self.name}: {what}; its inputs are {', '.join(self.inputs)}")
        given = {name: value.detach().cpu().contiguous().numpy() for name, value in inputs.items()}
        try:
            found = self.session.run(None, given)
        except Exception as error:  # a class of its own for each kind, none of them public
            raise RunError(f"{self.name}: onnxruntime fails: {_one_line(error)}") from error
        return {name: torch.from_numpy(value) for name, value in zip(self.outputs, found, strict=True)}

    def _declared(self, item: Any) -> Declared:
        if item.type not in DTYPES:
            raise SourceError(
                f"{self.name}: its input {shorten(item.name)} is {item.type}, which no plain tensor is"
            )
        return Declared(tuple(item.shape), DTYPES[item.type])


def version() -> str:
    """`onnxruntime 1.32.0`."""
    check_installed()
    import onnxruntime

    return f"onnxruntime {onnxruntime.__version__}"


def _session(path: str | os.PathLike[str], name: str) -> Any:
    check_installed()
    if not os.path.isfile(path):
        raise MissingSourceError(f"{shorten(os.fspath(path))}: no such file")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = ERRORS_ONLY + 1
    try:
        return onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise FormatError(f"{name}: onnxruntime cannot load it: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).removeprefix("[ONNXRuntimeError] : ")[:300]
