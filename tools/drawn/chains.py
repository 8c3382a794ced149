"""Small networks that nobody names, as people write them and save them: a state dict, no config, layers called in several habits.

Written apart from all rules, for tools/combinations.py: layers are made and called at once, so what the modules of torch give is
the truth. `Sketch` has the words that say it layer by layer, `drawn/recipes.py` the networks.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HABITS = ("hand", "suffix", "camel", "spelled", "sequential", "whole", "units", "blocks", "lists")
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x, "relu": F.relu, "leaky_relu": F.leaky_relu, "leaky_relu_0.2": lambda x: F.leaky_relu(x, 0.2), "elu": F.elu,
    "gelu": F.gelu, "silu": F.silu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "softmax": lambda x: F.softmax(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, 1), "normalised": lambda x: F.normalize(x, dim=1),
}  # fmt: skip


@dataclass(frozen=True)
class Draw:
    """One network."""

    recipe: str = "images"
    habit: str = "hand"
    depth: int = 2
    width: int = 8
    kernel: int = 3
    norm: str | None = None  # batch, group, layer, instance: without weights
    activation: str = "relu"  # prelu has slopes
    acts_first: bool = False  # the activation before the norm
    pooling: str | None = None  # max, mean; else strides
    padded: bool = True
    reduction: str = "flatten"
    linears: int = 2
    dropout: bool = False  # modules without weights, which count in a Sequential
    output: str = "none"
    axes: int = 2
    bias: bool = True
    cell: str = "LSTM"
    layers: int = 1  # of a recurrent one
    both_ways: bool = False
    read: str = "last"  # of a sequence
    norms_last: bool = False  # defined behind all layers that they stand between
    eps: float = 1e-5
    variant: int = 0  # of the recipe


RECIPES = (
    "images", "images", "images", "vectors", "vectors", "heads", "words", "words", "series", "convolved_series", "cells",
    "residual", "residual", "autoencoder", "maps_autoencoder", "variational", "u_net", "u_net", "larger", "siamese", "dense",
    "excited", "attentive", "generator", "pairs", "arms", "depthwise", "attention",
)  # fmt: skip


def draw(seed: int) -> Draw:
    """The network of a number."""
    pick = random.Random(seed).choice
    habits = (*HABITS, "hand", "hand", "hand", "sequential", "sequential")
    norm = pick((None, None, "batch", "batch", "batch", "batch", "group", "instance", "layer"))
    return Draw(
        recipe=pick(RECIPES),
        habit=pick(habits),
        depth=pick((1, 2, 2, 3, 3, 4)),
        width=pick((4, 6, 8, 16)),
        kernel=pick((3, 3, 3, 5, 4)),
        norm=norm,
        activation=pick(("relu",) * 6 + ("leaky_relu", "leaky_relu_0.2", "elu", "gelu", "silu", "tanh", "prelu", "prelu")),
        acts_first=pick((False, False, False, False, True)),
        pooling=pick(("max", "max", "max", "mean", None, None)),
        padded=pick((True, True, False)),
        reduction=pick(("flatten", "flatten", "flatten", "mean", "max")),
        linears=pick((1, 2, 2, 3)),
        dropout=pick((False, True)),
        output=pick(("none", "none", "none", "sigmoid", "softmax", "log_softmax", "tanh", "normalised")),
        axes=pick((2, 2, 2, 1)),
        bias=pick((True, True, True, False)),
        cell=pick(("LSTM", "LSTM", "GRU", "RNN")),
        layers=pick((1, 1, 2, 3)),
        both_ways=pick((False, False, True)),
        read=pick(("last", "last", "all", "mean", "final_states", "max")),
        norms_last=pick((False, False, True)),
        eps=pick((1e-5,) * 29 + (1e-3,)),
        variant=pick((0, 1, 2, 3)),
    )  # fmt: skip


class Sketch:
    """Layers that are made and called at once, with what is to be said of each."""

    def __init__(self, one: Draw, seed: int):
        self.one, self.pick = (
            one,
            random.Random(repr(one)).choice,
        )  # names and sizes are the same for any weights
        self.generator = torch.Generator().manual_seed(seed)
        self.net, self.truth, self.classes = nn.Module(), dict[str, str](), dict[str, str]()
        self.main = self.norm_name = self.reads = ""  # the last layer, its norm, and what the next is told
        self.owners: dict[str, str] = {}  # of norms and slopes
        self.reduced = ""
        self.has_acted = self.is_instance = False
        self.folder = "net" if one.habit == "whole" else "features"
        self.index, self.unit, self.before, self.is_linear = 0, 0, 0, False
        self.inputs: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}

    # ------------------------------------------------------------------------------------------------- names
    def part(self, folder: str, is_linear: bool = False) -> None:
        """Another Sequential, or other words with numbers of their own."""
        if self.one.habit == "whole" and folder in ("features", "classifier"):
            self.folder = "net"
            return
        self.folder, self.index, self.is_linear = folder, 0, is_linear
        self.before, self.unit = self.before + self.unit, 0

    def begin(self) -> None:
        """Another layer with what belongs to it."""
        self.unit += 1
        if self.one.habit == "units" and not self.is_linear:
            self.index = 0

    def skip(self) -> None:
        """A module without weights."""
        self.index += 1

    def name(self, kind: str) -> str:
        """What a layer is called: by `conv`, `up`, `linear`, `norm` or `slopes`."""
        habit, number = self.one.habit, self.unit
        if habit in ("sequential", "whole") or (habit == "units" and not self.is_linear):
            folder = f"layer{number}" if habit == "units" else self.folder
            self.index += 1
            return f"{folder}.{self.index - 1}"
        number += self.before if kind in ("norm", "slopes") else 0  # no norm is called as one of another part
        words = WORDS[habit if habit in WORDS else "hand"]
        if habit == "blocks" and not self.is_linear:
            return f"blocks.{number - 1}.{words[kind].format(n='')}"
        if habit == "lists":
            apart = "fc_" if self.is_linear and kind != "linear" else ""
            return f"{apart}{words[kind]}.{self.unit - 1}"
        if habit == "suffix" and kind in ("norm", "slopes"):
            return f"{words[self.last_kind].format(n=self.unit)}_{words[kind]}"
        if habit == "blocks" and kind in ("norm", "slopes"):
            return f"{'act' if kind == 'slopes' else 'norm'}{number}"
        self.last_kind = kind
        return words[kind].format(n=number)

    last_kind = "conv"

    # ------------------------------------------------------------------------------------------------- layers
    def put(self, name: str, module: nn.Module) -> nn.Module:
        """Registers a module under a path, with weights of its own."""
        home: nn.Module = self.net
        *folders, last = name.split(".")
        for folder in folders:
            if not hasattr(home, folder):
                home.add_module(folder, nn.Module())
            home = getattr(home, folder)
        if hasattr(home, last):  # it would be in no checkpoint, and in the output all the same
            raise ValueError(f"two modules are called {name}")
        home.add_module(last, module)
        for path, each in module.named_modules(prefix=name):
            self.classes[path] = type(each).__name__
        for key, tensor in module.state_dict().items():
            tensor.copy_(self._drawn(key.rpartition(".")[2], tensor, module))
        return module.eval()

    def _drawn(self, key: str, tensor: Tensor, module: nn.Module) -> Tensor:
        if not tensor.is_floating_point():
            return torch.full_like(tensor, 7)
        noise = torch.randn(tensor.shape, generator=self.generator)
        if key == "running_var":
            return 0.6 + noise.abs()
        if tensor.dim() < 2:
            is_factor = key == "weight"
            return (0.3 if isinstance(module, nn.PReLU) else 1.0) * is_factor + 0.2 * noise
        if isinstance(module, nn.Embedding):
            return noise
        fan = tensor[0].numel()
        if isinstance(module, nn.modules.conv._ConvTransposeNd):
            fan = tensor.shape[0] * 4
        return noise * (1.6 / fan) ** 0.5

    def tell(self, layer: str, fact: str, value: Any) -> None:
        self.truth[f"{layer}:{fact}"] = str(value).lower() if isinstance(value, bool) else str(value)

    def _enter(self, name: str) -> None:
        self.main, self.norm_name, self.has_acted, self.is_instance = name, "", False, False
        self.tell(name, "chain.activation", "none")
        self.tell(name, "chain.output", "none")
        self.tell(name, "chain.residual", "none")
        self.tell(name, "chain.joined", "none")
        self.tell(name, "chain.recurrent_activation", "tanh")  # torch's own, of a plain recurrent layer
        if self.reduced:
            self.tell(name, "chain.reduction", self.reduced)
            self.reduced = ""
        if self.reads:
            self.tell(name, "chain.reads", self.reads)
            self.reads = ""

    def conv(self, x: Tensor, out: int, kernel: int = 0, stride: int = 1, padding: int | None = None, groups: int = 1,
             name: str = "", dilation: int = 1, bias: bool | None = None) -> Tensor:  # fmt: skip
        kernel = kernel or self.one.kernel
        padding = dilation * (kernel - 1) // 2 if padding is None and self.one.padded else padding or 0
        kernel = min(kernel, min(x.shape[2:]) + 2 * padding)
        name = name or self.name("conv")
        kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[x.dim() - 3]
        bias = self.one.bias if bias is None else bias
        module = kind(x.shape[1], out, kernel, stride, padding, groups=groups, dilation=dilation, bias=bias)
        self._enter(name)
        for fact, value in (
            ("stride", stride),
            ("padding", padding),
            ("dilation", dilation),
            ("pooling", "none"),
        ):
            self.tell(name, f"chain.{fact}", value)
        self.tell(name, "chain.halved", "groups")
        return self.put(name, module)(x)

    def up(
        self,
        x: Tensor,
        out: int,
        kernel: int = 2,
        stride: int = 2,
        padding: int = 0,
        more: int = 0,
        name: str = "",
    ) -> Tensor:
        name = name or self.name("up")
        kind = (nn.ConvTranspose1d, nn.ConvTranspose2d)[x.dim() - 3]
        self._enter(name)
        facts = {"up_stride": stride, "up_padding": padding, "output_padding": more, "pooling": "none"}
        for fact, value in facts.items():
            self.tell(name, f"chain.{fact}", value)
        if kernel - 2 * padding + more == stride:
            self.tell(name, "chain.up_padding", "exact")
        self.truth[f"{name}:chain.kind"] = "transposed"
        return self.put(name, kind(x.shape[1], out, kernel, stride, padding, more))(x)

    def linear(self, x: Tensor, out: int, name: str = "", bias: bool = True) -> Tensor:
        name = name or self.name("linear")
        self._enter(name)
        return self.put(name, nn.Linear(x.shape[-1], out, bias=bias))(x)

    def norm(self, x: Tensor, name: str = "", kind: str | None = None) -> Tensor:
        """The norm of a draw, or another; none."""
        kind = kind or self.one.norm
        is_counted = self.one.habit in ("sequential", "whole", "units") and not name
        if kind == "instance" and self.one.activation == "prelu" and not is_counted:
            return x  # nobody writes that by hand
        is_map = x.dim() > 2
        if (kind == "instance" and not is_map) or kind is None:
            return x
        width = x.shape[1]
        if kind == "instance":
            self.skip()
            self.is_instance = True
            self.tell(self.main, "chain.activation", "instance_norm")
            return F.instance_norm(x)
        name = name or self.name("norm")
        if kind != "batch":  # nobody calls a norm of groups after batches
            name = re.sub(
                "bn|BN|batch_norm", "norm" if self.one.variant % 2 or kind == "layer" else "gn", name
            )
        module: nn.Module
        if kind == "batch" or (kind == "group" and not is_map):
            module = (nn.BatchNorm2d if x.dim() == 4 else nn.BatchNorm1d)(width, eps=self.one.eps)
        elif kind == "group" or is_map:
            module = nn.GroupNorm(2, width, eps=self.one.eps)
            self.tell(name, "chain.groups", 2)
        else:
            module = nn.LayerNorm(width, eps=self.one.eps)
        self.tell(name, "norm.eps", self.one.eps)
        self.tell(name, "chain.activation_before_norm", self.has_acted)
        self.tell(name, "chain.normed", self.main)
        self.norm_name, self.owners[name] = name, self.main
        return self.put(name, module)(x)

    def act(self, x: Tensor, word: str = "", name: str = "") -> Tensor:
        """An activation, with slopes where the draw says so."""
        word, self.has_acted = word or self.one.activation, True
        if word == "prelu":
            count = self.pick((1, x.shape[1])) if x.dim() > 2 else 1
            name = name or self.name("slopes")
            self.owners[name] = self.main
            self.tell(name, "chain.activation", "none")
            return self.put(name, nn.PReLU(count))(x)
        self.skip()
        before = "instance_norm+" if self.is_instance else ""
        self.tell(self.main, "chain.activation", before + word)
        if self.norm_name:
            self.tell(self.norm_name, "chain.activation", word)
        return ACTIVATIONS[word](x)

    def normed(self, x: Tensor) -> Tensor:
        """Norm and activation in the order of the draw."""
        if self.one.acts_first and self.one.norm != "instance":
            return self.norm(self.act(x))
        return self.act(self.norm(x))

    def pool(self, x: Tensor, word: str, size: int = 2) -> Tensor:
        self.skip()
        self.tell(self.main, "chain.pooling", f"{word}_{size}")
        axes = x.dim() - 2
        kinds = {"max": (F.max_pool1d, F.max_pool2d), "mean": (F.avg_pool1d, F.avg_pool2d)}
        if word == "upsample":
            return F.interpolate(x, scale_factor=size)
        return kinds[word][axes - 1](x, size)

    def reduce(self, x: Tensor, word: str) -> Tensor:
        """Maps to features."""
        self.reduced = word
        if word == "flatten":
            self.index += self.one.habit == "whole"
            return x.flatten(1)
        self.index += 2 * (self.one.habit == "whole")
        return x.flatten(2).mean(-1) if word == "mean" else x.flatten(2).amax(-1)

    def recurrent(
        self, x: Tensor, width: int, name: str, read: str = "", layers: int = 1, both: bool = False
    ) -> Tensor:
        """(B, T, F) -> (B, T, F), or (B, F)."""
        kind = getattr(nn, self.one.cell)
        module = kind(x.shape[-1], width, layers, batch_first=True, bidirectional=both)
        self._enter(name)
        y = self.put(name, module)(x)[0]
        return self.of_sequence(y, read, both) if read else y

    def of_sequence(self, y: Tensor, read: str, both: bool = False) -> Tensor:
        read = "last" if read == "final_states" and not both else read
        self.tell(self.main, "chain.positions", read)
        half = y.shape[-1] // 2
        return {
            "all": y, "last": y[:, -1], "mean": y.mean(1), "max": y.amax(1),
            "final_states": torch.cat((y[:, -1, :half], y[:, 0, half:]), -1),
        }[read]  # fmt: skip

    def drop(self) -> None:
        """A dropout, which counts in a Sequential."""
        if self.one.dropout:
            self.skip()

    def end(self, x: Tensor, output: str = "none", name: str = "output", is_sequence: bool = False) -> None:
        """An output, of a sequence with its features last."""
        self.tell(self.main, "chain.output", output)
        y = x.transpose(1, -1) if is_sequence else x
        y = ACTIVATIONS[output](y)
        self.outputs[name] = y.transpose(1, -1) if is_sequence else y

    def take(self, *shape: int, name: str = "inputs", words: int = 0) -> Tensor:
        """An input."""
        if words:
            self.inputs[name] = torch.randint(0, words, shape, generator=self.generator)
        else:
            self.inputs[name] = torch.randn(shape, generator=self.generator)
        return self.inputs[name]


WORDS = {
    "hand": {"conv": "conv{n}", "up": "deconv{n}", "linear": "fc{n}", "norm": "bn{n}", "slopes": "prelu{n}"},
    "suffix": {"conv": "conv{n}", "up": "upconv{n}", "linear": "fc{n}", "norm": "BN", "slopes": "prelu"},
    "camel": {"conv": "convLayer{n}", "up": "upLayer{n}", "linear": "fcLayer{n}", "norm": "normLayer{n}", "slopes": "actLayer{n}"},
    "spelled": {"conv": "conv_{n}", "up": "trans_conv_{n}", "linear": "dense_{n}", "norm": "batch_norm_{n}", "slopes": "prelu_{n}"},
    "blocks": {"conv": "conv", "up": "deconv", "linear": "fc{n}", "norm": "bn", "slopes": "act"},
    "lists": {"conv": "convs", "up": "ups", "linear": "fcs", "norm": "bns", "slopes": "acts"},
}  # fmt: skip


def sketched(one: Draw, seed: int = 0) -> Sketch:
    """The network of a draw, called once."""
    from tools.drawn.recipes import RECIPES as known

    sketch = Sketch(one, seed)
    with torch.no_grad():
        known[one.recipe](sketch)
    for name, owner in sketch.owners.items():
        for fact in ("chain.activation", "chain.pooling", "chain.output"):
            value = "none" if fact == "chain.activation" else sketch.truth.get(f"{owner}:{fact}", "none")
            sketch.truth.setdefault(f"{name}:{fact}", value)
    return sketch


def truth(one: Draw) -> dict[str, str]:
    """What is to be said of each layer: `conv1:chain.pooling`."""
    return sketched(one).truth


def classes(one: Draw) -> dict[str, str]:
    """The class of each module, by its path."""
    return sketched(one).classes


def write(one: Draw, folder: Path, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The checkpoint of a draw, a state dict; its inputs and its outputs by name."""
    sketch = sketched(one, seed)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = sketch.net.state_dict()
    if one.norms_last and one.habit in ("hand", "camel", "spelled", "lists"):
        kinds = sketch.classes
        late = [key for key in tensors if "Norm" in kinds.get(key.rpartition(".")[0], "")]
        early = [key for key in tensors if key not in late]
        tensors = {key: tensors[key] for key in (*early, *late)}
    torch.save(dict(tensors), folder / "model.pth")
    return sketch.inputs, sketch.outputs
