"""The type that a caller asks for, as torch's or as its name, and a config that says it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mapper.errors import MapperError, shorten

if TYPE_CHECKING:
    import torch

CASTABLE = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
FIELDS = ("dtype", "torch_dtype")  # of a config, as written since 2025 and before
KEPT = ("quantization_config",)  # says what a quantiser computes with, whatever the other weights are


def dtype_word(dtype: Any) -> str:
    """The name of a type that is given as torch's or as its name: "float16". Raises MapperError for what is neither."""
    word = str(dtype).removeprefix("torch.")
    if word not in CASTABLE.values():
        raise MapperError(f"dtype is {shorten(word)}; weights are cast to {', '.join(CASTABLE.values())}")
    return word


def as_torch(dtype: torch.dtype | str | None) -> torch.dtype | None:
    """The type of torch that is meant by its name; torch's own as they are. Raises MapperError for another name."""
    import torch

    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    found: torch.dtype = getattr(torch, dtype_word(dtype))
    return found


def with_dtype(config: dict[str, Any], dtype: Any) -> dict[str, Any]:
    """The config of weights that were cast: where it, or a part of it, names a type of floats, it names this one."""
    word = dtype_word(dtype)

    def told(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: said(key, item) for key, item in value.items()}
        return [told(item) for item in value] if isinstance(value, list) else value

    def said(key: str, value: Any) -> Any:
        if key in KEPT:
            return value
        if key in FIELDS and isinstance(value, str) and value.removeprefix("torch.") in CASTABLE.values():
            return word
        return told(value)

    return {key: said(key, value) for key, value in config.items()}
