"""torchvision's Python beside a torch for which its compiled operators are not made: neither timm nor its layers call one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def left_out() -> Iterator[None]:
    """What is imported inside describes no operator of torchvision, where there are none to describe."""
    describe = torch.library.register_fake

    def register(name: Any, *arguments: Any, **more: Any) -> Any:
        if str(name).startswith("torchvision::"):
            return lambda function: function
        return describe(name, *arguments, **more)

    torch.library.register_fake = register  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.library.register_fake = describe
