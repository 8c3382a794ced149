"""One small function for each operator of ONNX that can be imported, on torch tensors, printed into generated source as it is.

Inputs are positional, `None` where left out; attributes are keywords under ONNX's own names. A function that wants to know
how many outputs are used has a keyword `outputs`. What takes whole numbers as Python's own says so by its annotation.
Your own: decorate a function of your module, and import that module before `mapper.build`.

    @operator("Twice", domain="my.company")
    def twice(x: Tensor, *, times: int = 2) -> Tensor:
        return x * times
"""

from mapper.graphs.operators.registry import operator

__all__ = ["operator"]
