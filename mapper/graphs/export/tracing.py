"""A module as an ONNX graph: torch's exporter, with what onnxruntime does not take repaired before, and no weight changed."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from mapper.errors import ArchitectureError
from mapper.graphs.export.translations import translations

if TYPE_CHECKING:
    import onnx_ir as ir

FUSED = 23  # the version of the operators since which there is one for attention as a whole
FOLDED = 1024  # elements of a constant up to which it is computed in advance; tables of a model are weights or worth a node
CONVOLUTIONS = ("Conv", "ConvTranspose")
INVOLVED = 24  # operations in the formula of one size from which on torch solves its equations for minutes, or for ever
_ATTENTION = torch.ops.aten.scaled_dot_product_attention.default


class UntracedError(ArchitectureError):
    """A forward that torch cannot trace for all the sizes that were asked for."""


Extents = Mapping[str, Sequence["str | int"]]  # of each input, by axis


def traced(
    model: nn.Module, inputs: Mapping[str, torch.Tensor], extents: Extents, source: str
) -> torch.export.ExportedProgram:
    """The program of a forward, for all sizes of the extents that are words.

    Raises UntracedError where the forward depends on values, or its sizes on those of the inputs in ways that torch does not solve.
    """
    free = {
        name: {
            axis: torch.export.Dim.AUTO
            for axis, extent in enumerate(extents[name])
            if isinstance(extent, str)
        }
        for name in inputs
    }
    try:
        with _quiet(), torch.no_grad(), _sizes_watched(model):
            return torch.export.export(model, (), dict(inputs), dynamic_shapes=free, strict=False)
    except TimeoutError:  # a caller's own limit
        raise
    except Exception as error:  # what torch cannot trace comes in many types
        raise UntracedError(f"{source}: torch cannot trace it: {_one_line(error)}") from error


@contextmanager
def _sizes_watched(model: nn.Module) -> Iterator[None]:
    """Ends a trace where a module is given a tensor whose sizes are formulas of INVOLVED operations or more, of several extents.

    Height and width that are rounded up to whole windows in one stage after another become such; of one extent, the length
    of a sound, torch solves longer ones.
    """
    handles = [each.register_forward_pre_hook(_refuse_involved, with_kwargs=True) for each in model.modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _refuse_involved(module: nn.Module, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    from sympy import count_ops

    for value in (*arguments, *named.values()):
        sizes = value.shape if isinstance(value, torch.Tensor) else ()
        formulas = [cast(Any, size).node.expr for size in sizes if isinstance(size, torch.SymInt)]
        involved = [formula for formula in formulas if count_ops(formula) >= INVOLVED]
        if len({symbol for formula in involved for symbol in formula.free_symbols}) > 1:
            raise ValueError("sizes within it depend on those of the inputs in too many steps")


def graph_of(
    program: torch.export.ExportedProgram, opset: int, weights: Collection[str], source: str
) -> ir.Model:
    """The ONNX model of a program, whose initialisers are the program's tensors as they are. Raises ArchitectureError.

    `weights` are the names that stay initialisers of their own: no constant is computed from them.
    """
    if opset >= FUSED:
        _widen_masks(program)
    try:
        with _quiet(), torch.no_grad():
            made = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=opset,
                optimize=False,
                verbose=False,
                custom_translation_table=translations(),
            )
    except TimeoutError:
        raise
    except Exception as error:
        raise ArchitectureError(
            f"{source}: torch cannot write it in version {opset} of ONNX's operators: {_one_line(error)}"
        ) from error
    assert made is not None
    _simplify(made.model, weights)
    return made.model


def _widen_masks(program: torch.export.ExportedProgram) -> None:
    """Masks of attention with a row for every query: onnxruntime takes no single one for all of them."""
    graph = program.graph
    for node in graph.find_nodes(op="call_function", target=_ATTENTION):
        mask = node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")
        if mask is None or mask.meta["val"].shape[-2] != 1:
            continue
        query = node.args[0]
        with graph.inserting_before(node):
            rows = graph.call_function(torch.ops.aten.sym_size.int, (query, -2))
            rows.meta["val"] = query.meta["val"].shape[-2]
            sizes = [-1] * (mask.meta["val"].dim() - 2) + [rows, -1]
            wide = graph.call_function(torch.ops.aten.expand.default, (mask, sizes))
            shape = [-1 if item is rows else item for item in sizes]
            shape[-2] = rows.meta["val"]
            wide.meta["val"] = mask.meta["val"].expand(shape)
        node.replace_input_with(mask, wide)


def _simplify(model: ir.Model, weights: Collection[str]) -> None:
    """Arithmetic of constants done, repeated nodes once; the tensors of `weights` are left alone, so that names last."""
    import onnx_ir.passes.common as passes
    from onnxscript.optimizer import fold_constants_ir, remove_unused_nodes

    passes.InlinePass()(model)
    _hide_wholly(model)
    kept = set(weights)

    def folds(node: ir.Node) -> bool | None:
        return False if any(value is not None and value.name in kept for value in node.inputs) else None

    with _quiet():
        for _ in range(2):
            fold_constants_ir(
                model,
                onnx_shape_inference=True,
                should_fold=folds,
                input_size_limit=FOLDED,
                output_size_limit=FOLDED,
            )
            remove_unused_nodes(model)
    for node in model.graph.all_nodes():
        if node.op_type in CONVOLUTIONS and len(node.inputs) == 3 and _is_zeros(node.inputs[2], kept):
            node.resize_inputs(2)  # the exporter gives every convolution a bias
    remove_unused_nodes(model)
    passes.CommonSubexpressionEliminationPass()(model)
    passes.OutputFixPass()(model)
    passes.RemoveUnusedOpsetsPass()(model)


def _hide_wholly(model: ir.Model) -> None:
    """What attention hides has no weight at all, as in torch, where every key of a row is hidden, too.

    The exporter adds the lowest finite number, whose softmax over a whole row is even, and then looks for NaN in vain.
    """
    import onnx_ir as ir

    for node in list(model.graph.all_nodes()):
        where = _before(node, "IsNaN", "Softmax", "Add", "Where")
        if where is None or where.graph is None or where.inputs[2] is None:
            continue
        dtype = where.inputs[2].dtype or ir.DataType.FLOAT
        infinity = ir.tensor(float("-inf"), dtype=dtype)
        hidden = ir.node("Constant", [], attributes={"value": infinity})
        where.graph.insert_before(where, hidden)
        where.replace_input_with(2, hidden.outputs[0])


def _before(node: ir.Node, *operators: str) -> ir.Node | None:
    """The node from which a chain of these operators, the last of them its own, leads to `node`; masks are added second."""
    found: ir.Node | None = node
    for at, operator in enumerate(operators):
        if found is None or found.op_type != operator:
            return None
        if at + 1 < len(operators):
            value = found.inputs[1 if operator == "Add" else 0]
            found = None if value is None else value.producer()
    return found


def _is_zeros(value: ir.Value | None, kept: Collection[str]) -> bool:
    """Whether a value is a constant of zeros, and no weight that happens to be."""
    if value is None or value.const_value is None or value.name in kept:
        return False
    return not value.const_value.numpy().any()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings, the log and the prints of an exporter: what fails is said once, by us."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _one_line(error: BaseException) -> str:
    """The first line of the first cause that says something."""
    while error.__cause__ is not None:
        error = error.__cause__
    rows: list[Any] = [" ".join(row.split()) for row in str(error).splitlines()]
    return f"{type(error).__name__}: {next((row for row in rows if row), '')}"[:300]
