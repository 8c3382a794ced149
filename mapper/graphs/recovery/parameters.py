"""The names of weights that an exporter left without one: by the module that uses them and what they are there.

Three things say which module it is: the scopes that torch.export writes beside each node, the path that the tracing
exporter gives a node as its name, and the bias that is added to a product, which kept its own name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mapper import limits
from mapper.checkpoint import DTYPE_BYTES, FLOATS
from mapper.graphs.graph import Node
from mapper.graphs.recovery.modules import Modules
from mapper.graphs.recovery.norms import rms_norms
from mapper.graphs.recovery.origins import STEPS, Origin, origin, same_numbers
from mapper.graphs.recovery.wiring import SAME, Wiring, module_of
from mapper.sources.onnx_graph import WEIGHT, is_counted

# What an input of an operation is to its module, by position.
ROLES: Mapping[str, Mapping[int, str]] = {
    "MatMul": {1: "weight"},
    "Gemm": {1: "weight", 2: "bias"},
    "Conv": {1: "weight", 2: "bias"},
    "ConvTranspose": {1: "weight", 2: "bias"},
    "LayerNormalization": {1: "weight", 2: "bias"},
    "RMSNormalization": {1: "weight"},
    "GroupNormalization": {1: "weight", 2: "bias"},
    "InstanceNormalization": {1: "weight", 2: "bias"},
    "BatchNormalization": {1: "weight", 2: "bias", 3: "running_mean", 4: "running_var"},
    "Gather": {0: "weight"},
    "PRelu": {1: "weight"},
}
# What torch.export calls the first result of an operation, where that was calculated at the export.
CALLS = {
    "embedding", "expand", "index", "select", "clone", "linear", "cat", "arange", "full", "ones", "zeros", "mean", "where", "view",
    "permute", "transpose", "unsqueeze", "add", "sub", "mul", "div", "pow", "exp", "cos", "sin", "rsqrt", "_to_copy", "new_ones",
}  # fmt: skip
COUNTED = re.compile(r"_\d+$")  # at the end of a module's name: the number of its call
PRODUCTS = ("MatMul", "Gemm")
# What a module that is one layer does beside its operation: shapes, and the bias.
BESIDE = {
    "Add", "Transpose", "Reshape", "Constant", "Shape", "Concat", "Squeeze", "Unsqueeze", "Gather", "Slice", "Flatten",
    "DequantizeLinear", "ConstantOfShape", *SAME,
}  # fmt: skip
BIAS, WEIGHTS = ".bias", ".weight"
FOLDED_FROM = (
    "pkg.onnxscript.optimizer.folded_from"  # beside a value: the names of what it was calculated from
)
FOLDED = ".weight_bias"  # of a convolution into which onnxscript folded a batch norm


class Use(NamedTuple):
    """A weight as one node uses it."""

    node: Node
    position: int
    role: str


@dataclass
class Parameter:
    """A weight under the name that the model has for it."""

    name: str
    origin: Origin  # as the module holds it
    source: str  # what says the name; "" where the file has it


@dataclass
class Table:
    """The weights of a model by their names, and what each value that holds one is called."""

    parameters: dict[str, Parameter]
    names: dict[str, str]  # also of copies
    shared: dict[str, dict[str, str]] = field(default_factory=dict)  # of tensors with two names: by operator

    def called(self, key: str, operator: str) -> str:
        """The name of the weight that a value holds, as the layer of an operator has it; "" for no weight."""
        return self.shared.get(key, {}).get(operator) or self.names.get(key, "")


def parameters(wiring: Wiring) -> Table:
    """Every weight of the model under its name, in the order of the file; those without a sure name keep the exporter's."""
    held, modules = _weights(wiring), Modules(wiring)
    claims = {key: list(_claims(wiring, modules, uses)) for key, uses in held.items()}
    own = {key: _stem(key) for key in held if not is_made_up(key)}
    copies = _copies(claims, own)
    names = _settled({key: found for key, found in claims.items() if key not in copies}, own)
    found: dict[str, Parameter] = {}
    for key, uses in held.items():
        said = names.get(key)
        best = next((one for one in claims[key] if one.name == said), None)
        if best is None or said == own.get(key):
            best = Parameter(said or key, _as_stored(uses[0][1]), "")
        if key not in copies:
            found[best.name] = best
    called = {one.origin.key: name for name, one in found.items()}
    table = Table(found, called | {key: _uncounted(claims[key][0].name, found) for key in copies})
    for key, uses in held.items():
        _share(table, wiring, modules, key, uses)
    return table


def _share(table: Table, wiring: Wiring, modules: Modules, key: str, uses: list[tuple[Use, Origin]]) -> None:
    """Enter a table that is also a product's weight under both of its names, as far as they are known."""
    by_operator: dict[str, list[tuple[Use, Origin]]] = {}
    for use, held in uses:
        if use.role == "weight":
            by_operator.setdefault(use.node.operator, []).append((use, held))
    if "Gather" not in by_operator or by_operator.keys().isdisjoint(PRODUCTS):
        return
    for operator, own in by_operator.items():
        said = next(_claims(wiring, modules, own), None)
        if said is not None and said.name not in table.parameters:
            table.parameters[said.name] = said
            table.shared.setdefault(key, {})[operator] = said.name


def _uncounted(name: str, known: Container[str]) -> str:
    """A name without the counts of calls; one that is known stays."""
    return name if name in known else ".".join(COUNTED.sub("", part) for part in name.split("."))


def _copies(claims: Mapping[str, list[Parameter]], own: Mapping[str, str]) -> set[str]:
    """Weights that stand there twice: of a module that is called twice some exporters arrange each use's anew.

    The tracing exporter counts the calls, as in `attention_1.query`.
    """
    first: dict[str, Origin] = {}
    found = set()
    for key, said in claims.items():
        if not said or key in own:
            continue
        name, held = said[0].name, said[0].origin
        for called in (name, _uncounted(name, {})):
            other = first.get(called)
            if other is not None and other.key != key and same_numbers(other, held):
                found.add(key)
        first.setdefault(name, held)
    return found


def is_made_up(key: str) -> bool:
    """Whether a value's name is the exporter's: counted up, or that of the operation or of the weight that it was made from."""
    return "/" in key or key.endswith(FOLDED) or key in CALLS or is_counted(key)


def _stem(key: str) -> str:
    return key.removesuffix("_quantized")


def _as_stored(held: Origin) -> Origin:
    """A weight under its own name: as the file has it, unless its numbers mean nothing there."""
    if held.scaled:
        return held
    return Origin(held.key, held.ref, held.ref.shape, held.ref.dtype)


def _weights(wiring: Wiring) -> dict[str, list[tuple[Use, Origin]]]:
    """The uses of each tensor of the file that is a weight, by the value that holds it."""
    found: dict[str, list[tuple[Use, Origin]]] = {}
    normed = {(norm.result, norm.weight) for norm in rms_norms(wiring)}
    for node in wiring.graph.nodes:
        if node.domain or node.operator in STEPS:  # what comes after these is the use
            continue
        for position, name in enumerate(node.inputs):
            held = origin(wiring, name) if name else None
            if held is None or held.ref.dtype not in DTYPE_BYTES:
                continue
            role = ROLES.get(node.operator, {}).get(position, "")
            role = "weight" if (node.outputs[0], name) in normed else role
            found.setdefault(held.key, []).append((Use(node, position, role), held))
    order = {key: at for at, key in enumerate(wiring.held)}
    kept = [key for key, uses in found.items() if _is_weight(key, uses, wiring)]
    kept.sort(key=lambda key: order.get(key, len(order)))
    beside = {key for uses in found.values() for _, held in uses if held.scaled for key in held.scaled[:2]}
    known = {*found, *beside}
    unused = [
        key
        for key, ref in wiring.held.items()
        if key not in known and ref.dtype in DTYPE_BYTES and not _is_size(wiring, key)
    ]
    return {key: found[key] for key in kept} | {key: _unused(wiring, key) for key in unused}


def _unused(wiring: Wiring, key: str) -> list[tuple[Use, Origin]]:
    """An initialiser that no node of the graph itself reads."""
    ref = wiring.held[key]
    return [(Use(Node(""), 0, ""), Origin(key, ref, ref.shape, ref.dtype))]


def _is_size(wiring: Wiring, key: str) -> bool:
    """Whether a tensor is read, as by a Reshape, and none of the model's: a few numbers that an exporter gave a name."""
    return is_made_up(key) and key in wiring.users and wiring.held[key].size < WEIGHT


def _is_weight(key: str, uses: list[tuple[Use, Origin]], wiring: Wiring) -> bool:
    """Whether a tensor is one of the model's, not a size or a step of its arithmetic."""
    ref = uses[0][1].ref
    if "." in key and not is_made_up(key):
        return True
    if key not in wiring.held or is_made_up(key) or ref.dtype not in FLOATS:
        has_role = any(use.role and held.dtype in FLOATS and held.shape for use, held in uses)
        return has_role or (ref.dtype in FLOATS and ref.size >= WEIGHT)
    return True


def _claims(wiring: Wiring, modules: Modules, uses: list[tuple[Use, Origin]]) -> Iterator[Parameter]:
    """The names that the uses of a weight speak for, the surest first."""
    for use, held in uses:
        bias = _named_bias(wiring, use, held)
        if bias:
            yield Parameter(f"{bias.removesuffix(BIAS)}.weight", _as_layer(use, held), f"{bias} beside it")
        weight = _named_weight(wiring, use)
        if weight:
            yield Parameter(f"{weight.removesuffix(WEIGHTS)}{BIAS}", held, f"{weight} beside it")
    table = _folded_table(wiring, uses[0][1].key)
    if table:
        yield Parameter(table, uses[0][1], f"{table}, of which the exporter took the first rows")
    if uses[0][1].key.endswith(FOLDED):
        return  # its node stands in the norm's module
    for use, held in uses:
        path = modules.name(use.node) if _is_leaf(wiring, use, held) else ""
        if path and len(path) < limits.NAME_CHARACTERS // 2:
            said = f"{use.node.operator} {use.node.name}"
            yield Parameter(f"{path}.{_role(use, held)}", _as_layer(use, held), said)


def _folded_table(wiring: Wiring, key: str) -> str:
    """The name of the table whose rows a constant is, counted from nought; "" for any other. The exporter says what it folded."""
    value = wiring.graph.values.get(key)
    written = value.metadata.get(FOLDED_FROM, "") if value is not None else ""
    parts = re.findall(r"'([^'\\\\]*)'", written)
    named = [part for part in parts if part.endswith(WEIGHTS) and not is_made_up(part)]
    is_table = key == "embedding" or key.startswith("embedding_")
    return named[0] if is_table and parts[:1] == ["arange"] and len(named) == 1 else ""


def _role(use: Use, held: Origin) -> str:
    return "bias" if use.node.operator == "Add" else use.role


def _as_layer(use: Use, held: Origin) -> Origin:
    """The weight as its layer holds it: that of a Linear as [outputs, inputs], https://pytorch.org/docs/stable/nn.html."""
    is_turned = use.node.operator == "MatMul" or not use.node.attributes.get("transB", 0)
    if use.node.operator in PRODUCTS and use.role == "weight" and len(held.shape) == 2 and is_turned:
        return held.transposed((1, 0))
    return held


def _named_bias(wiring: Wiring, use: Use, held: Origin) -> str:
    """The name of the bias that is added to a weight's product alone; "" where there is none of its size."""
    node = use.node
    if node.operator not in PRODUCTS or use.role != "weight" or len(held.shape) != 2:
        return ""
    if node.operator == "Gemm":
        others = node.inputs[2:3]
        width = held.shape[0 if node.attributes.get("transB", 0) else 1]
    else:
        added = _sum_after(wiring, node)
        others = added.inputs if added else []
        width = held.shape[1]
    for name in others:
        bias = origin(wiring, name)
        if bias and bias.key.endswith(BIAS) and not is_made_up(bias.key) and bias.shape == (width,):
            return bias.key
    return ""


def _named_weight(wiring: Wiring, use: Use) -> str:
    """The name of the weight of the layer that a bias is of; "" where it has none of its own."""
    held = origin(wiring, use.node.inputs[1]) if use.role == "bias" else None
    return held.key if held and held.key.endswith(WEIGHTS) and not is_made_up(held.key) else ""


def _sum_after(wiring: Wiring, node: Node) -> Node | None:
    """The Add that alone reads what a node gives."""
    for _ in range(len(SAME)):
        user = wiring.only_user(node.outputs[0]) if node.outputs else None
        if user is None or user.domain or user.operator not in SAME:
            break
        node = user
    return user if user is not None and user.operator == "Add" and not user.domain else None


def _is_leaf(wiring: Wiring, use: Use, held: Origin) -> bool:
    """Whether the module that a use of a weight stands in is one layer, and the weight is what the layer has of its kind."""
    path = module_of(use.node)
    if not path or path in wiring.parents:
        return False
    is_sum = use.node.operator == "Add" and len(held.shape) == 1
    if not (use.role or is_sum):
        return False
    if use.node.operator == "Mul":  # of an RMS norm, the one of its module
        return [node.operator for node in wiring.modules[path]].count("ReduceMean") == 1
    layers = [node for node in wiring.modules[path] if node.operator not in BESIDE and not node.domain]
    if use.node.operator == "Gather":
        tables = [node for node in wiring.modules[path] if node.operator == "Gather"]
        return not layers and len({node.inputs[0] for node in tables}) == 1 and len(held.shape) == 2
    if is_sum:
        is_bias = any(_sum_after(wiring, node) is use.node for node in layers)
        return is_bias and {node.operator for node in layers} == {"MatMul"}
    shapes = {_weight_shape(wiring, node) for node in layers}
    return (
        len(shapes) == 1 and None not in shapes and {node.operator for node in layers} == {use.node.operator}
    )


def _weight_shape(wiring: Wiring, node: Node) -> tuple[int, ...] | None:
    held = origin(wiring, node.inputs[1]) if len(node.inputs) > 1 else None
    return held.shape if held else None


def _settled(claims: Mapping[str, list[Parameter]], own: Mapping[str, str]) -> dict[str, str]:
    """The name of each weight, where it has one: its own, or the first that is claimed and that nothing else has or claims.

    Of a weight that two modules share the exporter keeps one name, and makes a rearranged copy for the other module. Where
    the copy's module is the one that the name speaks of, the weight is called by the module that uses it as it is.
    """
    wanted = {key: found[0].name for key, found in claims.items() if found and key not in own}
    names = dict(own)
    taken = {name: key for key, name in own.items()}
    claimed = Counter(wanted.values())
    for key, name in wanted.items():
        if claimed[name] > 1:
            continue
        holder = taken.get(name)
        if holder is not None:
            elsewhere = {one.name for one in claims[holder]}
            free = {one for one in elsewhere if one not in taken and one not in claimed}
            if len(elsewhere) != 1 or len(free) != 1:
                continue
            names[holder] = free.pop()
            taken[names[holder]] = holder
        names[key] = name
        taken[name] = key
    return names
