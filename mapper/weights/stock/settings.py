"""The settings of torch.nn's layers: which a constructor takes, what they are in a module, and as JSON."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from mapper.errors import FormatError, shorten

# What is exported and is no layer: bases, wrappers of other modules, bags of parameters.
_NO_LAYERS = frozenset(
    {"Module", "Container", "DataParallel", "ParameterList", "ParameterDict", "RNNBase", "RNNCellBase"}
)
# The one class that torch.nn's layers are made of and that it does not export: an attention's output.
_OUTPUT = nn.modules.linear.NonDynamicallyQuantizableLinear
# Where a tensor is made, not what the layer does; and ways to hand tensors and modules in.
_IGNORED = frozenset(
    {
        "self",
        "args",
        "kwargs",
        "device",
        "dtype",
        "size_average",
        "reduce",
        "process_group",
        "weight",
        "pos_weight",
    }
) | {
    "_weight",
    "_freeze",
    "_random_samples",
    "custom_encoder",
    "custom_decoder",
    "distance_function",
    "modules",
}
_ACTIVATIONS = (
    "relu", "gelu", "silu", "elu", "selu", "celu", "relu6", "leaky_relu", "mish", "hardswish", "hardtanh", "hardsigmoid",
    "softplus", "softsign", "tanhshrink", "logsigmoid", "tanh", "sigmoid",
)  # fmt: skip
_FUNCTIONS: dict[str, Any] = {
    f"{place}.{name}": getattr(module, name)
    for place, module in (("torch.nn.functional", F), ("torch", torch))
    for name in _ACTIVATIONS
    if hasattr(module, name)
}
_LARGEST = 2**63  # of integers: a constructor may raise one to a power


class NotPlain(Exception):
    """Something in a model cannot be said as data."""


@functools.cache
def stock_class(name: str) -> type[nn.Module] | None:
    """The layer or container of torch.nn that is called `name`."""
    if name == _OUTPUT.__name__:
        return _OUTPUT
    found = getattr(nn, name, None) if name in nn.modules.__all__ and name not in _NO_LAYERS else None
    return found if isinstance(found, type) and issubclass(found, nn.Module) else None


def accepted(kind: type[nn.Module]) -> frozenset[str]:
    """The settings of `kind` that a description may give."""
    return frozenset(defaults_of(kind.__name__))


@functools.cache
def defaults_of(name: str) -> dict[str, Any]:
    """The settings of a class in the order of its constructor, each with its default; `Parameter.empty` for none."""
    kind = stock_class(name)
    assert kind is not None
    recurrent = issubclass(kind, nn.RNNBase)
    initial = nn.RNNBase.__init__ if recurrent else kind.__init__
    found = {key: entry.default for key, entry in inspect.signature(initial).parameters.items()}
    if recurrent:
        del found["mode"]
        found |= {"nonlinearity": "tanh"} if kind is nn.RNN else {}
        if kind is not nn.LSTM:
            del found["proj_size"]
    return {key: default for key, default in found.items() if key not in _IGNORED}


def settings_of(module: nn.Module) -> dict[str, Any]:
    """The settings that make a module like `module`, as far as it shows them."""
    special = _SPECIAL.get(type(module).__name__, lambda _: {})(module)
    found = {}
    for name in defaults_of(type(module).__name__):
        if name in special:
            found[name] = special[name]
        elif name in module.__dict__:
            found[name] = module.__dict__[name]
        elif name == "bias":
            found[name] = module._parameters.get("bias") is not None
    return found


def _attention(module: Any) -> dict[str, Any]:
    return {"bias": module.in_proj_bias is not None, "add_bias_kv": module.bias_k is not None}


def _layer(module: Any) -> dict[str, Any]:
    """Of a transformer's layer: its parts show what the constructor was told."""
    try:
        return {
            "d_model": module.self_attn.embed_dim,
            "nhead": module.self_attn.num_heads,
            "dim_feedforward": module.linear1.out_features,
            "dropout": module.dropout.p,
            "activation": module.activation,
            "layer_norm_eps": module.norm1.eps,
            "batch_first": module.self_attn.batch_first,
            "norm_first": module.norm_first,
            "bias": module.linear1.bias is not None,
        }
    except AttributeError:  # a part of another kind
        return {"d_model": 1, "nhead": 1, "dim_feedforward": 1, "activation": module.activation}


def _stack(module: Any) -> dict[str, Any]:
    if not len(module.layers):
        raise NotPlain
    layer = "encoder_layer" if isinstance(module, nn.TransformerEncoder) else "decoder_layer"
    return {layer: module.layers[0], "num_layers": len(module.layers), "norm": module.norm}


def _transformer(module: Any) -> dict[str, Any]:
    told = {"d_model": module.d_model, "nhead": module.nhead, "batch_first": module.batch_first}
    try:
        layer = _layer(module.encoder.layers[0])
        return {
            **layer,
            **told,
            "num_encoder_layers": len(module.encoder.layers),
            "num_decoder_layers": len(module.decoder.layers),
        }
    except (AttributeError, IndexError, TypeError):  # custom parts
        return {**told, "num_encoder_layers": 1, "num_decoder_layers": 1, "dim_feedforward": 1}


_SPECIAL: dict[str, Callable[[Any], dict[str, Any]]] = {
    "MultiheadAttention": _attention,
    "TransformerEncoderLayer": _layer,
    "TransformerDecoderLayer": _layer,
    "TransformerEncoder": _stack,
    "TransformerDecoder": _stack,
    "Transformer": _transformer,
    "LinearCrossEntropyLoss": lambda module: {
        "in_features": module.linear.in_features,
        "bias": module.linear.bias is not None,
    },
    "PairwiseDistance": lambda module: {"p": module.norm},
    "RNN": lambda module: {"nonlinearity": module.mode.removeprefix("RNN_").lower()},
    "AdaptiveLogSoftmaxWithLoss": lambda module: {"cutoffs": module.cutoffs[:-1]},
}


def plain(value: Any) -> Any:
    """`value` as JSON: a tuple as an array, other kinds with their name. Raises NotPlain."""
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is int and abs(value) < _LARGEST:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if type(value) is tuple:
        return [plain(item) for item in value]
    if type(value) in (list, torch.Size):
        return {"list" if type(value) is list else "size": [plain(item) for item in value]}
    if type(value) is dict:
        return {"dict": [[plain(key), plain(item)] for key, item in value.items()]}
    for name, function in _FUNCTIONS.items():
        if value is function:
            return {"function": name}
    raise NotPlain


def from_plain(value: Any) -> Any:
    """The value that `plain` gave. Raises FormatError for anything else."""
    if value is None or isinstance(value, (bool, str, float)):
        return value
    if isinstance(value, int) and abs(value) < _LARGEST:
        return value
    if isinstance(value, list):
        return tuple(from_plain(item) for item in value)
    if isinstance(value, dict) and len(value) == 1:
        ((kind, inner),) = value.items()
        known = _KINDS.get(kind)
        if known is not None:
            try:
                return known(inner)
            except (TypeError, ValueError, KeyError, OverflowError) as error:
                raise FormatError(f"the architecture has the value {shorten(str(value))}") from error
    raise FormatError(f"the architecture has the value {shorten(str(value))}, which is no literal")


_KINDS: dict[str, Callable[[Any], Any]] = {
    "float": lambda text: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[text],
    "list": lambda items: list(from_plain(items)),
    "size": lambda items: torch.Size(from_plain(items)),
    "dict": lambda pairs: {from_plain(key): from_plain(item) for key, item in pairs},
    "function": lambda name: _FUNCTIONS[name],
}
