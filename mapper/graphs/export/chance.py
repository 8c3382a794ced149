"""Models of which two right runs differ: they draw random numbers, or choose among scores that are equal.

What is drawn becomes an input where the model has one for it, else nothing can be compared.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mapper.comparing.verification import Inputs
from mapper.errors import MapperError
from mapper.graphs.export.sizes import Subject


def settled(subject: Subject, check: bool) -> tuple[tuple[str, ...], str | None]:
    """The inputs that the file takes so that nothing is drawn, and a note where these are more than were wanted.

    Raises MapperError where the model draws whatever it is given, and what is written is to be checked.
    """
    if not draws(subject.model, subject.inputs({})):
        return subject.wanted, None
    declared = subject.architecture.inputs
    for key, spec in declared.items():
        more = tuple(name for name in declared if name == key or name in subject.wanted)
        if key in subject.wanted or "kind" in spec:
            continue
        inputs = Subject(subject.architecture, subject.model, more, subject.asked).inputs({})
        if subject.takes(inputs) and not draws(subject.model, inputs):
            return more, f"{key} is an input of the file, for without it the model draws random numbers"
    if check:
        raise MapperError(
            f"{subject.name}: its forward draws random numbers, so no two runs are alike and nothing can be compared: "
            "leave the check out"
        )
    return subject.wanted, "the model draws random numbers, and the file others"


def draws(model: torch.nn.Module, inputs: Inputs) -> bool:
    """Whether a forward takes numbers from torch's generator; one that fails does not."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.get_rng_state()
        try:
            model(**inputs)
        except Exception:  # what fails is said by whoever needs its outputs
            return False
        return not torch.equal(before, torch.get_rng_state())


def ties(model: torch.nn.Module, inputs: Inputs) -> bool:
    """Whether a forward takes the highest of scores of which the last that is taken and the first that is not are equal.

    Which of these is taken, neither torch nor ONNX says (https://pytorch.org/docs/stable/generated/torch.topk.html).
    """
    watch = _Edges()
    with torch.no_grad(), watch:
        model(**inputs)
    return watch.are_even


class _Edges(TorchDispatchMode):
    """Looks at what each topk leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.are_even = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.topk.default and args[1] < args[0].shape[-1]:
            ranked = torch.sort(args[0], dim=-1, descending=True).values
            last, next_ = ranked[..., args[1] - 1], ranked[..., args[1]]
            self.are_even |= bool(((last == next_) & last.isfinite()).any())
        return func(*args, **(kwargs or {}))
