from __future__ import annotations

import subprocess
import sys


def test_building_draws_no_initial_values() -> None:
    """Drawing one, even on the meta device, imports sympy and 800 more modules: a second of every load."""
    names = {
        f"layer.{at}.attention.{word}.weight": {"shape": [8, 8], "dtype": "F32"}
        for at in range(2)
        for word in ("q_proj", "k_proj")
    }
    code = f"import sys, mapper; model = mapper.build({{'tensors': {names!r}}}); print('sympy' in sys.modules, len(list(model.parameters())))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "4"]
