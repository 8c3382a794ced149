"""Source of a model of torch.nn's own layers, to read and to edit; nothing ever runs it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from inspect import Parameter
from typing import Any

from torch import nn
from torch.nn.modules.loss import _Loss

from mapper.weights.modules import joined
from mapper.weights.stock.settings import defaults_of, from_plain, stock_class

HEADER = '''"""A model of torch.nn's layers, as mapper saved it: `load` puts the saved weights in."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F

TIED = {tied}  # stored once, under another name


def build() -> nn.Module:
'''
FOOTER = '''

def load(path: str) -> nn.Module:
    """The model with the weights of a safetensors file."""
    from safetensors.torch import load_file

    model = build()
    missing = model.load_state_dict(load_file(path), strict=False).missing_keys
    if set(missing) - TIED:
        raise KeyError(f"{path} lacks {sorted(set(missing) - TIED)}")
    return model
'''


_IMPORTS = (("torch.", "import torch\n"), ("F.", "from torch.nn import functional as F\n"))


def stock_source(node: dict[str, Any], tied: Mapping[str, str]) -> str:
    """The text for a description of `mapper.weights.stock.layers`, and for parameters that are tied."""
    writer = _Writer()
    lines = writer.layer(node, "", 1)
    for alias, owner in tied.items():
        if not alias.startswith(tuple(f"{path}." for path in writer.shared)):
            writer.after.append(f"{_tensor(alias)} = {_tensor(owner)}")
    names = ", ".join(map(repr, sorted(tied)))
    text = HEADER.replace("{tied}", f"{{{names}}}" if names else "set()") + f"    model = {lines}\n"
    text += "".join(f"    {line}\n" for line in writer.after) + "    return model\n" + FOOTER
    for use, line in (("OrderedDict(", "from collections import OrderedDict\n\n"), *_IMPORTS):
        text = text if use in text.replace(line, "") else text.replace(line, "")
    return text


class _Writer:
    """The model as one expression, and the lines after it: what no constructor gives."""

    def __init__(self) -> None:
        self.after: list[str] = []
        self.shared: list[str] = []  # paths of modules that have another path too

    def layer(self, node: Any, path: str, depth: int) -> str:
        if node is None:
            return "None"
        if "same" in node:
            self.shared.append(path)
            self.after.append(f"model.set_submodule({path!r}, {_module(node['same'])})")
            return "nn.Identity()"
        if node["class"] in ("Sequential", "ModuleList", "ModuleDict"):
            text = self.container(node, path, depth)
        else:
            given = ", ".join(f"{key}={self.value(value, depth)}" for key, value in _changed(node))
            text = f"{_class(node['class'])}({given})"
            for name, child in node.get("children", {}).items():
                inner = joined(path, name)
                if child is not None:
                    made = self.layer(child, inner, 1)
                    if "same" not in child:
                        self.after.append(f"model.set_submodule({inner!r}, {made})")
        self.patches(node, path)
        return text

    def container(self, node: dict[str, Any], path: str, depth: int) -> str:
        children = node.get("children", {})
        made = {name: self.layer(child, joined(path, name), depth + 1) for name, child in children.items()}
        pad, end = "    " * (depth + 1), "    " * depth
        numbered = list(made) == [str(position) for position in range(len(made))]
        if node["class"] == "Sequential" and numbered:
            return "nn.Sequential(" + _lines(made.values(), pad, end) + ")"
        if node["class"] == "ModuleList" and numbered:
            return "nn.ModuleList([" + _lines(made.values(), pad, end) + "])"
        entries = _lines([f"({name!r}, {text})" for name, text in made.items()], pad, end)
        return f"nn.{node['class']}(OrderedDict([{entries}]))"

    def patches(self, node: dict[str, Any], path: str) -> None:
        place = _module(path)
        for name, value in node.get("attributes", {}).items():
            self.after.append(f"{place}.{name} = {_literal(from_plain(value))}")
        self.after += [f"{place}.{name} = None" for name in node.get("none", ())]
        for name, shape in node.get("shapes", {}).items():
            made = f"torch.empty({tuple(shape)})"
            is_buffer = issubclass(_kind(node), _Loss) or name.startswith("running_")
            self.after.append(f"{place}.{name} = {made if is_buffer else f'nn.Parameter({made})'}")

    def value(self, value: Any, depth: int) -> str:
        if isinstance(value, dict) and "module" in value:
            return self.layer(value["module"], "", depth)
        return _literal(from_plain(value))


def _lines(texts: Any, pad: str, end: str) -> str:
    texts = list(texts)
    return "\n" + "".join(f"{pad}{text},\n" for text in texts) + end if texts else ""


def _class(name: str) -> str:
    return f"nn.{name}" if hasattr(nn, name) else f"nn.modules.linear.{name}"


def _tensor(path: str) -> str:
    above, _, name = path.rpartition(".")
    return f"{_module(above)}.{name}"


def _kind(node: dict[str, Any]) -> type[nn.Module]:
    kind = stock_class(node["class"])
    assert kind is not None
    return kind


def _module(path: str) -> str:
    return f"model.get_submodule({path!r})" if path else "model"


def _changed(node: dict[str, Any]) -> list[tuple[str, Any]]:
    """The settings that are not the constructor's defaults."""
    defaults = defaults_of(node["class"])
    shown = []
    for name, value in node.get("settings", {}).items():
        plain = not (isinstance(value, dict) and "module" in value)
        if not plain or defaults[name] is Parameter.empty or _differs(from_plain(value), defaults[name]):
            shown.append((name, value))
    return shown


def _differs(value: Any, default: Any) -> bool:
    return type(value) is not type(default) or bool(value != default)


def _literal(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if callable(value):
        place = (
            "F"
            if "functional" in getattr(value, "__module__", "") or hasattr(nn.functional, value.__name__)
            else "torch"
        )
        return f"{place}.{value.__name__}"
    if type(value) in (list, tuple):
        inner = ", ".join(map(_literal, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    return repr(value)
