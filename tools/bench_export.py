"""A BERT of base size out to ONNX and back: `tools/bench.py` prints the rows.

`python tools/bench_export.py SIDE CASE FILE NOTE` does one measurement in a process of its own, and writes its seconds to NOTE.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from timing import Line, alone, in_turns, run_python, seconds

if TYPE_CHECKING:
    import torch

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
LENGTH = 128
FORWARDS = 5  # of which the fastest counts
IMPORTED = 1.02  # of the original module's time


def exporting(folder: Path, repeat: int) -> Iterator[Line]:
    """Time to export and check, and a forward of the model that is imported from that file beside transformers' own."""
    from bench import bert_checkpoint

    case, file, note = (
        bert_checkpoint(folder / "bert", **BASE),
        folder / "bert.onnx",
        folder / "exporting.txt",
    )

    def measure(side: str) -> float:
        run_python(__file__, side, str(case), str(file), str(note))
        return float(note.read_text())

    yield alone(
        "`mapper.export` of BERT base, compared in onnxruntime", [measure("export") for _ in range(repeat)]
    )
    ours, graph, theirs = in_turns(
        repeat, *(lambda side=side: measure(side) for side in ("imported", "straight", "original"))
    )
    what = f"BERT base imported from ONNX, {LENGTH} tokens; transformers' own"
    yield seconds(what, ours, theirs, IMPORTED)
    yield seconds(f"{what}, as straight-line code", graph, theirs, IMPORTED)


def main(side: str, case: str, file: str, note: str) -> None:
    import torch

    import mapper
    from mapper.graphs.reading import read_model
    from mapper.graphs.straight.building import build_straight
    from mapper.graphs.straight.source import write_model

    start = time.perf_counter()
    if side == "export":
        mapper.export(case, file, overwrite=True)
        Path(note).write_text(str(time.perf_counter() - start))
        return
    if side == "imported":
        model = mapper.build(file)
    elif side == "straight":
        model = build_straight(write_model(read_model(file)), file)
    else:
        from transformers import AutoModel

        model = AutoModel.from_pretrained(case).eval()
    ids = torch.arange(LENGTH)[None] + 100
    with torch.inference_mode():
        times = [_timed(model, ids) for _ in range(FORWARDS + 1)]
    Path(note).write_text(str(min(times[1:])))


def _timed(model: object, ids: torch.Tensor) -> float:
    import torch

    start = time.perf_counter()
    model(input_ids=ids, attention_mask=torch.ones_like(ids))  # type: ignore[operator]
    return time.perf_counter() - start


if __name__ == "__main__":
    main(*sys.argv[1:])
