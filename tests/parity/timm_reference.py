"""timm, the reference of networks in its naming: `from tests.parity.timm_reference import timm` skips a module where it is not.

It needs torchvision, which transformers would take up as well; `.ci/run` puts both into a folder of their own.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tools.torchvision_operators import left_out

missing = [package for package in ("timm", "torchvision") if find_spec(package) is None]
if missing:
    pytest.skip(f"there is no {' and no '.join(missing)}", allow_module_level=True)
with left_out():
    import timm

__all__ = ["timm"]
