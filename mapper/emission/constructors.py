"""The constructor call of each leaf, from its kind, its shapes and the facts that no shape shows."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mapper.checkpoint import COUNTER, FLOATS, TORCH_NAMES, TensorInfo
from mapper.emission.constructor_arguments import Arguments
from mapper.emission.expressions import literal
from mapper.emission.identifiers import identifier
from mapper.emission.leaf_arguments import argument_value
from mapper.emission.reparametrized import STORED, function_of
from mapper.errors import FlowError, shorten
from mapper.flows.language import parse_expression
from mapper.naming.members import DOWN, LENGTHS, UPDATED, misfit, odd_dtype

TORCH_DTYPES = {name: f"torch.{word}" for name, word in TORCH_NAMES.items()}
_RANKS = {"Linear": 2, "Embedding": 2, "Conv1d": 3, "Conv2d": 4, "Conv3d": 5}  # extents of a usual matrix
_OPTIONAL = frozenset({"bias"})
_STATISTICS = frozenset({"running_mean", "running_var"})
_SCALES = tuple(map(frozenset, ({"weight"}, {"gamma"}, {"scale"}, {"g"})))
_TENSORS: dict[str, tuple[frozenset[str], ...]] = {
    "Linear": (frozenset({"weight"}), *STORED),
    "Embedding": (frozenset({"weight"}), frozenset({"embedding", "new_embedding"}), frozenset({"pos_enc"})),
    "GroupNorm": (frozenset({"weight"}), frozenset({"gamma", "beta"})),
    "LayerNorm": (*_SCALES, *map(frozenset, ({"gamma", "beta"}, {"scale", "shift"}, {"a_2", "b_2"}))),
    "RMSNorm": _SCALES,
    "BatchNorm": tuple(
        _STATISTICS | extra
        for extra in (
            {"weight"},
            {COUNTER},
            {"weight", COUNTER},
        )
    ),
}
_CONVOLUTIONS = ("Conv1d", "Conv2d", "Conv3d", *(f"ConvTranspose{axes}d" for axes in (1, 2, 3)))


class Constructor(Arguments):
    """Writes the call that makes one leaf into a draft."""

    def text(self) -> str:
        """The call, with marks for its arguments."""
        kind = self.leaf.kind
        if kind in ("Parameter", "Buffer"):
            return self.bare()
        if not self.is_whole():
            return self.loose()
        method = getattr(self, f"make_{kind.lower()}", None)
        made = self.convolution() if kind in _CONVOLUTIONS else method() if method else self.recurrent()
        function = self.function()
        return self.call(function, made, self.sliced()) if function else made

    def function(self) -> str:
        """Torch's function that makes the weight of other tensors; "" where none does, or a module of our own does it."""
        return function_of(
            self.leaf.kind, self.leaf.tensors, self.evaluated("padding_mode", "zeros") == "zeros"
        )

    def text_with(self, unread: Mapping[str, TensorInfo]) -> str:
        """The call, and around it one that makes tensors which no forward reads, as long as its own where they are."""
        text, own = self.text(), self.weight()
        shapes = []
        for name, info in unread.items():
            shape, hint = info.torch_shape, identifier(name.replace(".", "_"))
            alike = shape in (own, own[:1]) and not self.leaf.is_transposed
            declared = self.where.shape[: len(shape)] if alike else ()
            sizes = [self.extent(axis, shape, f"{hint}_size{axis}", declared) for axis in range(len(shape))]
            shapes.append(f"{literal(name)}: [{', '.join(sizes)}]")
        return f"with_unused({text}, {{{', '.join(shapes)}}})" if unread else text

    def is_whole(self) -> bool:
        """Whether its tensors are those that its usual module has; a tied head may have stored its bias alone."""
        names, kind = set(self.leaf.tensors) - set(UPDATED), self.leaf.kind
        if kind in ("LSTM", "GRU", "RNN"):
            is_plain = {"weight_ih_l0", "weight_hh_l0"} <= names
            is_plain |= names - {"bias_ih", "bias_hh"} == {"weight_ih", "weight_hh"}
            return is_plain and self.agrees_inside()
        if (
            len(self.weight()) != _RANKS.get(kind, len(self.weight()))
            or not self.weight()
            or not self.agrees_inside()
        ):
            return False
        usual = _TENSORS.get(kind, _TENSORS["Linear"])
        return any(needed <= names <= needed | _OPTIONAL for needed in usual) and self.has_slices()

    def has_slices(self) -> bool:
        """Whether the lengths of a weight norm, if it has one, are those of slices along one axis, or one of all."""
        length = self.length()
        if self.function():  # torch's own have one for each slice
            return length is None or [*length] in self.slices()
        return length is None or [*length] in [*self.slices(), [1] * len(self.weight())]

    def slices(self) -> list[list[int]]:
        """Shapes of the lengths along each axis of the weight."""
        whole = self.weight()
        return [[size if at == axis else 1 for at, size in enumerate(whole)] for axis in range(len(whole))]

    def agrees_inside(self) -> bool:
        """Whether shapes and types are those of one module."""
        kind, tensors = self.leaf.kind, self.leaf.tensors
        return not misfit(kind, tensors) and not odd_dtype(kind, tensors)

    def loose(self) -> str:
        """The tensors of a leaf that cannot be its usual module."""
        folder: dict[str, Any] = {}
        for name in self.leaf.tensors:
            *words, last = name.split(".")
            inner = folder
            for word in words:
                inner = inner.setdefault(word, {})
            inner[last] = self.leaf.tensors[name]
        return self.loose_folder(folder)

    def loose_folder(self, folder: dict[str, Any]) -> str:
        if any(isinstance(item, dict) for item in folder.values()):
            pairs = [
                f"{literal(word)}: {self.loose_folder(item)}"
                for word, item in folder.items()
                if isinstance(item, dict)
            ]
            bare = {word: item for word, item in folder.items() if not isinstance(item, dict)}
            if bare:
                pairs += [
                    f"{literal(word)}: {self.loose_folder({word: item})}" for word, item in bare.items()
                ]
            return f"nn.ModuleDict({{{', '.join(pairs)}}})"
        return f"nn.ParameterDict({{{', '.join(f'{literal(word)}: {self.zeros(word, info)}' for word, info in folder.items())}}})"

    def zeros(self, name: str, info: TensorInfo) -> str:
        shape = info.torch_shape
        declared = self.where.shape[:1] if name == "bias" else self.where.shape
        extents = ", ".join(
            self.extent(axis, shape, f"{name}_size{axis}", declared) for axis in range(len(shape))
        )
        if info.dtype in FLOATS:
            return f"nn.Parameter(torch.zeros({extents or '()'}))"
        return f"nn.Parameter(torch.zeros({extents or '()'}, dtype={TORCH_DTYPES[info.dtype]}), requires_grad=False)"

    def make_linear(self) -> str:
        shape = self.weight()
        transposed = self.leaf.is_transposed
        if transposed:
            self.where = replace(
                self.where, shape=self.where.shape[::-1]
            )  # declared as torch has it: [out, in]
        first, second = (0, 1) if transposed else (1, 0)
        size = (self.extent(first, shape, "in_features"), self.extent(second, shape, "out_features"))
        update = self.update()
        plain = "LinearTransposed" if transposed else "Linear" if update else "nn.Linear"
        return self.call(f"{plain}LowRank" if update else plain, *size, *update, self.no_bias())

    def update(self) -> tuple[str, ...]:
        """Rank and scale of a low-rank update that stands beside the weight; nothing where there is none."""
        name = next((name for name in DOWN if name in self.leaf.tensors), None)
        if name is None:
            return ()
        fact = self.leaf.facts["scale"]
        scale = self.draft.size("adapter_scale", fact.value, ast.Name("scale"), {"scale": fact}, "")
        return self.value("rank", self.leaf.tensors[name].shape[0]), scale

    def make_prelu(self) -> str:
        return self.call("nn.PReLU", self.extent(0, self.weight(), "channels"))

    def make_bilinear(self) -> str:
        shape = self.weight()
        sizes = [
            self.extent(at, shape, name)
            for at, name in ((1, "in1_features"), (2, "in2_features"), (0, "out_features"))
        ]
        return self.call("nn.Bilinear", *sizes, self.no_bias())

    def make_affine(self) -> str:
        return self.call("Affine", self.extent(0, self.weight(), "size"))

    def make_embedding(self) -> str:
        shape = self.weight()
        rows, size = self.extent(0, shape, "rows"), self.extent(1, shape, "size")
        more = self.leaf.tensors.get("new_embedding")
        if more is not None:
            return self.call("EmbeddingExtended", rows, self.value("more_rows", more.shape[0]), size)
        if update := self.update():
            return self.call("EmbeddingLowRank", rows, size, *update)
        return self.call("EmbeddingEncoded" if "pos_enc" in self.leaf.tensors else "nn.Embedding", rows, size)

    def make_layernorm(self) -> str:
        shape = self.weight()
        size = self.extents(shape) if len(shape) > 1 else self.extent(0, shape, "size")
        eps = self.option("eps", 1e-5)
        shifted = {"beta": "GammaBeta", "a_2": "Deviation", "shift": "ScaleShift"}
        if name := next((shifted[word] for word in shifted if word in self.leaf.tensors), ""):
            return self.call(f"LayerNorm{name}", size, self.required_eps())
        if name := self.row_of_scales():
            return self.call(f"LayerNorm{name}", size, self.required_eps(), self.offset())
        if self.leaf.form == "channels_first":
            return self.call("LayerNormChannelsFirst", size, self.required_eps())
        if self.leaf.form == "offset":
            return self.call("LayerNormOffset", size, self.required_eps())
        return self.call("nn.LayerNorm", size, eps, self.no_bias())

    def extents(self, shape: tuple[int, ...]) -> str:
        return f"({', '.join(self.extent(axis, shape, f'size{axis}') for axis in range(len(shape)))})"

    def required_eps(self) -> str:
        fact = self.leaf.facts.get("eps")
        if fact is None:
            return self.value("eps", 1e-5)
        return self.draft.size(
            f"{self.name}_eps", fact.value, ast.Name("eps"), {"eps": fact}, self.where.prefix
        )

    def offset(self) -> str | None:
        """What a norm adds to the weight that is stored."""
        return "offset=1.0" if self.leaf.form == "offset" else None

    def row_of_scales(self) -> str:
        """What classes of norms are called by the name of their scales; "" for `weight`."""
        names = {"g": "Vector", "gamma": "Gamma", "scale": "Scale"}
        return next((names[word] for word in names if word in self.leaf.tensors), "")

    def make_rmsnorm(self) -> str:
        shape = self.weight()
        size = self.extents(shape) if len(shape) > 1 else self.extent(0, shape, "size")
        if "gamma" in self.leaf.tensors and len(shape) > 2:
            return self.call("RMSNormHeads", size, self.required_eps())
        if self.leaf.has_one_gain:
            return self.call("ScaleNorm", self.required_eps(), self.offset())
        if name := self.row_of_scales():
            return self.call(f"RMSNorm{name}", size, self.required_eps(), self.offset())
        if self.leaf.form == "offset":
            return self.call("RMSNormOffset", size, self.required_eps())
        return self.call("nn.RMSNorm", size, f"eps={self.required_eps()}")

    def make_batchnorm(self) -> str:
        dimensions = (self.where.arguments or {}).get(
            "dimensions", 2
        )  # of what is normed: no tensor shows it
        tensors = self.leaf.tensors
        if dimensions not in (1, 2, 3):
            raise FlowError(f"a batch norm has 1, 2 or 3 dimensions, not {shorten(str(dimensions))}")
        affine = None if "weight" in tensors else "affine=False"
        if COUNTER not in tensors and affine is None:
            return self.call(
                "FrozenBatchNorm", self.extent(0, self.weight(), "size"), self.option("eps", 1e-5)
            )
        return self.call(
            f"nn.BatchNorm{dimensions}d",
            self.extent(0, self.weight(), "size"),
            self.option("eps", 1e-5),
            affine,
        )

    def make_groupnorm(self) -> str:
        fact = self.leaf.facts.get("groups")
        groups = self.value("groups", fact.value if fact else 1)
        size = self.extent(0, self.weight(), "size")
        if "gamma" in self.leaf.tensors:
            return self.call("GroupNormGammaBeta", groups, size, self.required_eps())
        return self.call("nn.GroupNorm", groups, size, self.option("eps", 1e-5))

    def convolution(self) -> str:
        shape, kind = self.weight(), self.leaf.kind
        first, second = (
            ("in_channels", "out_channels")
            if kind.startswith("ConvTranspose")
            else ("out_channels", "in_channels")
        )
        groups = self.groups(shape)
        if first == "in_channels":
            size = (self.extent(0, shape, first), self.grouped(shape, second, groups))
        else:
            size = (self.grouped(shape, second, groups), self.extent(0, shape, first))
        defaults: dict[str, Any] = {"stride": 1, "padding": 0, "dilation": 1}
        if kind.startswith("ConvTranspose"):
            defaults["output_padding"] = 0
        else:
            defaults["padding_mode"] = "zeros"
        options = [self.option(name, default) for name, default in defaults.items()]
        grouping = f"groups={self.grouping(groups)}" if groups != 1 else None
        kernel = self.kernel_size(shape)
        if self.length() is not None and not self.function():
            return self.normed(size, kernel, options, grouping)
        return self.call(f"nn.{kind}", *size, f"kernel_size={kernel}", *options, grouping, self.no_bias())

    def kernel_size(self, shape: tuple[int, ...]) -> str:
        """One symbol where the flow declares the same for each side of the kernel."""
        declared = set(self.where.shape[2:])
        if len(declared) == 1 and len(set(shape[2:])) == 1:
            return self.extent(2, shape, "kernel_size")
        return self.value("kernel_size", self.kernel())

    def normed(
        self, size: tuple[str, str], kernel: str, options: list[str | None], grouping: str | None
    ) -> str:
        function = f"{self.leaf.kind}{'WeightNorm' if 'weight_v' in self.leaf.tensors else 'Parametrized'}"
        return self.call(function, *size, kernel, *options, grouping, self.no_bias(), self.sliced())

    def length(self) -> tuple[int, ...] | None:
        """The shape of the lengths of a weight norm; None where there is none."""
        return next((self.leaf.tensors[name].shape for name in LENGTHS if name in self.leaf.tensors), None)

    def sliced(self) -> str | None:
        """The axis along whose slices the lengths are; None for torch's own default, the first, and where there are none."""
        slices, length = self.slices(), self.length()
        axis = slices.index([*length]) if length is not None and [*length] in slices else None
        return None if length is None or axis == 0 else f"dim={axis}"

    def grouping(self, groups: int) -> str:
        """The groups, as the flow declares them if facts alone do."""
        text = (self.where.arguments or {}).get("groups")
        node = parse_expression(str(text), "leaves", 1) if text is not None else None
        return self.value("groups", groups, node if node is not None and self.agrees(node, groups) else None)

    def groups(self, shape: tuple[int, ...]) -> int:
        text = (self.where.arguments or {}).get("groups")
        fact = self.leaf.facts.get("groups")
        if fact is not None:
            return int(fact.value)
        if text is None:
            return 1
        known = {key: item.value for key, item in (self.where.facts or {}).items()}
        return int(
            argument_value(
                {**known, "kernel": self.kernel(), "channels": shape[0]},
                parse_expression(str(text), "leaves", 1),
            )
        )

    def grouped(self, shape: tuple[int, ...], hint: str, groups: int) -> str:
        """The channels on the other side, as the flow declares them: the shape shows them divided by the groups."""
        text = (self.where.arguments or {}).get(hint)
        node = parse_expression(str(text), "leaves", 1) if text is not None else None
        if node is not None and self.agrees(node, shape[1] * groups):
            return self.value(hint, shape[1] * groups, node)
        if (
            groups == 1
        ):  # of one group the channels are as many as those that come out, where they are a square
            is_square = self.where.shape[1:2] == ("group_size",) and shape[0] == shape[1]
            return self.extent(0 if is_square else 1, shape, hint)
        return self.grouping(groups) if shape[1] == 1 else self.value(hint, shape[1] * groups)

    def recurrent(self) -> str:
        tensors = self.leaf.tensors
        if "weight_ih" in tensors:
            return self.cell()
        layers = sum(
            1 for name in tensors if name.startswith("weight_ih_l") and not name.endswith("_reverse")
        )
        gates = {"LSTM": 4, "GRU": 3}.get(self.leaf.kind, 1)
        hidden = tensors["weight_hh_l0"].shape[1] if "weight_hh_l0" in tensors else self.weight()[0] // gates
        projection = tensors["weight_hr_l0"].shape if "weight_hr_l0" in tensors else None
        if projection is not None:  # from what is kept to what is given
            hidden = projection[1]
        options = [
            f"num_layers={layers}" if layers > 1 else None,
            None if "bias_ih_l0" in tensors else "bias=False",
            "batch_first=True",
            "bidirectional=True" if any(name.endswith("_reverse") for name in tensors) else None,
            f"proj_size={projection[0]}" if projection is not None else None,
            self.nonlinearity(),
        ]
        return self.call(
            f"nn.{self.leaf.kind}", *self.read_and_kept(tensors["weight_ih_l0"].shape, hidden), *options
        )

    def read_and_kept(self, shape: tuple[int, ...], hidden: int) -> list[str]:
        """The sizes of what is read and kept: as they are known to be others', or as numbers."""
        sizes = (*shape, hidden)
        return [self.extent(axis, sizes, name) for axis, name in ((1, "input_size"), (2, "hidden_size"))]

    def cell(self) -> str:
        """A cell that is called for each position in turn."""
        tensors = self.leaf.tensors
        sizes = self.read_and_kept(tensors["weight_ih"].shape, tensors["weight_hh"].shape[1])
        options = (None if "bias_ih" in tensors else "bias=False", self.nonlinearity())
        return self.call(f"{self.leaf.kind}Steps", *sizes, *options)

    def nonlinearity(self) -> str | None:
        """The argument of a plain recurrent layer that has another one than torch's own has."""
        fact = self.leaf.facts.get("nonlinearity")
        return f"nonlinearity={literal(fact.value)}" if fact else None

    def bare(self) -> str:
        info = self.leaf.tensors[""]
        shape = info.torch_shape
        extents = ", ".join(self.extent(axis, shape, f"size{axis}") for axis in range(len(shape)))
        dtype = None if info.dtype == "F32" else f"dtype={TORCH_DTYPES[info.dtype]}"
        tensor = self.call("torch.zeros", extents or "()", dtype if info.dtype not in FLOATS else None)
        if self.leaf.kind == "Buffer":
            return tensor
        grad = None if info.dtype in FLOATS else "requires_grad=False"
        return self.call("nn.Parameter", tensor, grad)
