"""A decoder on a graphics card beside transformers: milliseconds of a prompt and of each token after it, and memory.

    python tools/bench_device.py --device cuda

A Llama of 1.2 billion random weights in bfloat16, with a cache, one row and eight; the medians of rounds in turns. What
both give for the prompt is compared first, in 32-bit floats.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from timing import HEAD  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache  # noqa: E402

import mapper  # noqa: E402

SIZES = {
    "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 32_000, "max_position_embeddings": 4096,
}  # fmt: skip
PROMPT, TOKENS, ROUNDS = 1024, 32, 5
TOLERANCE = 1e-4  # of the largest logit


def milliseconds(work: Callable[[], Any], device: str) -> float:
    """Of one call, its kernels included."""
    _wait(device)
    start = time.perf_counter()
    work()
    _wait(device)
    return (time.perf_counter() - start) * 1000


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


class Ours:
    """The model that mapper builds; its cache has its length from the start."""

    def __init__(self, folder: Path, dtype: str, device: str):
        self.model = mapper.build(folder, dtype, device, cache=True)

    def prompt(self, ids: torch.Tensor) -> torch.Tensor:
        self.past: Any = self.model.new_cache(len(ids), PROMPT + TOKENS)  # type: ignore[operator]
        logits: torch.Tensor = self.model(ids, past=self.past).logits
        return logits

    def token(self, ids: torch.Tensor, at: int) -> None:
        self.model(ids, past=self.past, start=at)


class Theirs:
    """The reference with the cache that is its default, or one with its length from the start."""

    def __init__(self, folder: Path, dtype: str, device: str, is_static: bool):
        model = LlamaForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        self.model = model.to(device).eval()
        self.is_static = is_static

    def prompt(self, ids: torch.Tensor) -> torch.Tensor:
        self.past = StaticCache(self.model.config, max_cache_len=PROMPT + TOKENS) if self.is_static else None
        out = self.model(ids, past_key_values=self.past, use_cache=True)
        self.past = out.past_key_values
        logits: torch.Tensor = out.logits
        return logits

    def token(self, ids: torch.Tensor, at: int) -> None:
        self.model(ids, past_key_values=self.past, use_cache=True)


def rounds(sides: list[Any], rows: int, device: str) -> list[tuple[float, float]]:
    """For each side the medians of a prompt's and of a token's milliseconds."""
    ids = torch.randint(0, 32_000, (rows, PROMPT), device=device)
    found: list[list[tuple[float, float]]] = [[] for _ in sides]
    for turn in range(ROUNDS + 1):
        for side, measured in zip(sides, found, strict=True):
            first = milliseconds(lambda side=side: side.prompt(ids), device)  # type: ignore[misc]
            later = milliseconds(
                lambda side=side: [side.token(ids[:, :1], PROMPT + at) for at in range(TOKENS)],  # type: ignore[misc]
                device,
            )
            if turn:
                measured.append((first, later / TOKENS))
    return [(median(a for a, _ in one), median(b for _, b in one)) for one in found]


def compared(folder: Path, device: str) -> str:
    """How far the logits of both lie from each other in 32-bit floats, of the largest."""
    ids = torch.randint(0, 32_000, (2, 64), device=device)
    ours = mapper.build(folder, "float32", device)(ids).logits
    theirs = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()(ids).logits
    off = float((ours - theirs).abs().max() / theirs.abs().max())
    if off > TOLERANCE:
        sys.exit(f"the logits differ by {off:.1e} of the largest")
    return f"logits in 32-bit floats: {off:.1e} of the largest apart"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    device = parser.parse_args().device
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as made, torch.inference_mode():
        folder = Path(made)
        LlamaForCausalLM(LlamaConfig(**SIZES)).to(torch.bfloat16).save_pretrained(folder)
        print(compared(folder, device))
        sides = [
            Ours(folder, "bfloat16", device),
            Theirs(folder, "bfloat16", device, False),
            Theirs(folder, "bfloat16", device, True),
        ]
        print(HEAD)
        for rows in (1, 8):
            ours, *others = rounds(sides, rows, device)
            for name, other in zip(("its default cache", "its static cache"), others, strict=True):
                for what, left, right in zip((f"prompt of {PROMPT}", "a token"), ours, other, strict=True):
                    print(f"| {what}, {rows} rows, {name} | {left:.2f} ms | {right:.2f} ms | {left / right:.2f} | - |")  # fmt: skip


if __name__ == "__main__":
    main()
