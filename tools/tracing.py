"""Does a model trace, train and subclass: torch.export, torch.compile, a gradient step, a class derived from it.

    from tools.tracing import failures
    failures(model, inputs, dims)   # {} or {"export": "cause in one line", ...}

`dims` names the extents of each input, as an architecture's `inputs` do: {"input_ids": ["batch", "length"]}. Every
extent named in DYNAMIC is exported as dynamic, and the program is run on inputs of another size.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

# Extents that callers choose; others (channels, the side of an image, mel bins) belong to the model.
DYNAMIC = ("batch", "length", "decoder_length", "text_batch", "frames", "samples")
TOLERANCE = 1e-5
SECONDS = 60  # for one check; most take one or two
Inputs = Mapping[str, Tensor]
Dims = Mapping[str, Sequence[str | int]]


def failures(
    model: nn.Module, inputs: Inputs, dims: Dims, *, checks: Sequence[str] | None = None
) -> dict[str, str]:
    """The checks that fail, each with its cause in one line. The model keeps its weights."""
    found: dict[str, str] = {}
    for name in checks or CHECKS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with within(SECONDS):
                    CHECKS[name](model, inputs, dims)
            except Exception as error:  # what torch cannot trace comes in many types
                found[name] = one_line(error)
    return found


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raises TimeoutError after so long: the sizes of some programs are equations that nobody solves in time."""

    def end(number: int, frame: object) -> None:
        raise TimeoutError(f"takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def one_line(error: Exception) -> str:
    """The first line of a message that says something, with the kind of error before it."""
    rows = [" ".join(row.split()) for row in str(error).splitlines()]
    text = next((row for row in rows if row), "")
    return f"{type(error).__name__}: {text}"[:200]


def check_export(model: nn.Module, inputs: Inputs, dims: Dims) -> None:
    """One program for every batch and length."""
    shapes = {
        key: {axis: torch.export.Dim.DYNAMIC for axis, extent in enumerate(dims[key]) if extent in DYNAMIC}
        for key in inputs
    }
    with torch.no_grad():
        program = torch.export.export(model, (), dict(inputs), dynamic_shapes=shapes).module()
        for values in (inputs, resized(inputs, dims)):
            _same(program(**values), model(**values))


def check_compile(model: nn.Module, inputs: Inputs, dims: Dims) -> None:
    """One graph without a break, also for a second size."""
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager", dynamic=True)
    with torch.no_grad():
        for values in (inputs, resized(inputs, dims)):
            _same(compiled(**values), model(**values))


def check_gradient(model: nn.Module, inputs: Inputs, dims: Dims) -> None:
    """A step against the gradient reaches every parameter that has an effect, and lowers the loss."""
    copied = derived(model).train()
    for module in copied.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()  # statistics of a made-up batch say nothing
    before = _loss(copied, inputs)
    before.backward()  # type: ignore[no-untyped-call]
    still = [name for name, value in copied.named_parameters() if not _moves(value)]
    unused = [name for name in still if not _has_effect(model, inputs, name)]
    lost = sorted(set(still) - set(unused))
    if lost:
        raise ValueError(f"{len(lost)} parameters get no gradient: {', '.join(lost[:3])}")
    weights = {name: value.detach().clone() for name, value in copied.named_parameters()}
    for rate in (1e-3, 1e-4, 1e-5, 1e-6):
        with torch.no_grad():
            for name, value in copied.named_parameters():
                if value.grad is not None:
                    value.copy_(weights[name] - rate * value.grad)
            if _loss(copied, inputs) < before:
                return
    raise ValueError(f"no step against the gradient lowers the loss of {before.item():.4g}")


def check_subclass(model: nn.Module, inputs: Inputs, dims: Dims) -> None:
    """A class derived from the model's own gives the same outputs and may add to its forward."""
    with torch.no_grad():
        copied = derived(model)
        _same(copied(**inputs), model(**inputs))
    if getattr(copied, "calls", 0) != 1:
        raise ValueError("the derived forward was not called")


CHECKS: dict[str, Callable[[nn.Module, Inputs, Dims], None]] = {
    "export": check_export, "compile": check_compile, "gradient": check_gradient, "subclass": check_subclass,
}  # fmt: skip


def derived(model: nn.Module) -> nn.Module:
    """A model of a subclass that counts its calls, with a copy of the weights."""

    class Derived(type(model)):  # type: ignore[misc]
        calls = 0

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return super().forward(*args, **kwargs)

    with torch.device("meta"):
        made: nn.Module = Derived()
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    made.load_state_dict(state, strict=True, assign=True)
    return made.eval()


def resized(inputs: Inputs, dims: Dims) -> dict[str, Tensor]:
    """The inputs with one row more, and two positions fewer where an extent is a length."""
    found = {}
    for key, value in inputs.items():
        for axis, extent in enumerate(dims[key]):
            if extent == "batch":
                value = torch.cat((value, value.narrow(axis, 0, 1)), dim=axis)
            elif extent in DYNAMIC:
                value = value.narrow(axis, 0, value.shape[axis] - 2)
        found[key] = value
    return found


def outputs(result: Any) -> Iterator[tuple[str, Tensor]]:
    """The float tensors of an output, by name."""
    items = (
        ((field.name, getattr(result, field.name)) for field in fields(result))
        if is_dataclass(result)
        else ()
    )
    for name, value in items:
        if isinstance(value, Tensor) and value.is_floating_point():
            yield name, value


def _loss(model: nn.Module, inputs: Inputs) -> Tensor:
    return torch.stack([value.float().square().mean() for _, value in outputs(model(**inputs))]).sum()


def _moves(parameter: Tensor) -> bool:
    grad = parameter.grad
    return grad is not None and bool(grad.isfinite().all()) and bool((grad != 0).any())


def _has_effect(model: nn.Module, inputs: Inputs, name: str) -> bool:
    """Whether a parameter changes any output: those of optional inputs that are not given do not."""
    changed = derived(model)
    with torch.no_grad():
        changed.get_parameter(name).add_(1.0)
        try:
            _same(changed(**inputs), model(**inputs))
        except ValueError:
            return True
    return False


def _same(one: Any, other: Any) -> None:
    values = dict(outputs(one))
    for name, value in outputs(other):
        difference = (values[name] - value).abs().max() / value.abs().max().clamp(min=1)
        if not difference <= TOLERANCE:
            raise ValueError(f"{name} differs by {difference.item():.1e}")
