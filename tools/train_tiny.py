"""Train small models without a hub: the bench for what weights and behaviour show of a model.

    python tools/train_tiny.py OUT                       # all of tools/train_tiny.yaml
    python tools/train_tiny.py OUT --only llama vit --seconds 60
    python tools/train_tiny.py OUT --steps 300           # however long they take: the same weights on every run
    python tools/train_tiny.py OUT --table tools/train_activations.yaml    # one network with each activation
    python tools/train_tiny.py OUT --table tools/train_placement.yaml      # norms before sub-layers or behind them
    python tools/train_tiny.py OUT --device cuda --workers 8               # on a graphics card, eight at once

Language models read the bytes of Python's own documentation, byte 0 standing for what is masked; models of images tell
drawn shapes apart; `training` in the table says how each kind is trained. Each case is OUT/NAME/model.safetensors, its
config beside it as truth.json: no reader takes that for settings. Needs the reference library; deterministic on a
processor, but for the number of steps where the seconds decide it.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
import transformers
import yaml
from tiny_stacks import Stack
from torch import nn

TABLE = Path(__file__).with_suffix(".yaml")
LENGTH = 96  # bytes of a row
MASKED, MASK = 0.15, 0  # share of bytes that are hidden, and the byte that stands for them
HELD_BACK = 20_000  # bytes at the end of the text that no model is trained on
SHAPES = 10

Batch = Callable[[torch.Generator], dict[str, torch.Tensor]]


def text() -> torch.Tensor:
    """The documentation's bytes, [length]."""
    words = "\n".join(topics[name] for name in sorted(topics))
    return torch.tensor(list(words.encode())[:-HELD_BACK])


def causal(data: torch.Tensor, rows: int) -> Batch:
    """Rows of the text, each byte to be told from those before it."""

    def batch(random: torch.Generator) -> dict[str, torch.Tensor]:
        starts = torch.randint(len(data) - LENGTH, (rows,), generator=random)
        ids = torch.stack([data[start : start + LENGTH] for start in starts])
        return {"input_ids": ids, "labels": ids}

    return batch


def masked(data: torch.Tensor, rows: int) -> Batch:
    """Rows of the text with hidden bytes, which are to be told."""
    shown = causal(data, rows)

    def batch(random: torch.Generator) -> dict[str, torch.Tensor]:
        ids = shown(random)["input_ids"]
        hidden = torch.rand(ids.shape, generator=random) < MASKED
        labels = ids.masked_fill(~hidden, -100)
        return {"input_ids": ids.masked_fill(hidden, MASK), "labels": labels}

    return batch


def drawn(kind: torch.Tensor, at: torch.Tensor, size: int) -> torch.Tensor:
    """Shapes as images, [count, 3, size, size]: `kind` [count] of SHAPES, `at` [count, 3] is row, column and radius."""
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    y, x = (axis[None] - at[:, place, None, None] for place, axis in enumerate((rows, columns)))
    radius = at[:, 2, None, None]
    far, most, sum_ = (x**2 + y**2).sqrt(), torch.maximum(x.abs(), y.abs()), x.abs() + y.abs()
    thin = radius / 3
    shapes = (
        far < radius, (far < radius) & (far > radius - thin), most < radius, (most < radius) & (most > radius - thin),
        sum_ < radius, (x.abs() < thin) & (y.abs() < radius), (y.abs() < thin) & (x.abs() < radius),
        (torch.minimum(x.abs(), y.abs()) < thin) & (most < radius), ((x - y).abs() < thin) & (most < radius),
        (y.abs() < radius) & (x.abs() < (y + radius) / 2),
    )  # fmt: skip
    every = torch.stack([shape.float() for shape in shapes])
    return every[kind, torch.arange(len(kind))][:, None].expand(-1, 3, -1, -1)


def images(size: int, rows: int) -> Batch:
    """Drawn shapes in noise with the number of each."""

    def batch(random: torch.Generator) -> dict[str, torch.Tensor]:
        kind = torch.randint(SHAPES, (rows,), generator=random)
        at = torch.rand(rows, 3, generator=random) * torch.tensor([0.5, 0.5, 0.15]) + torch.tensor(
            [0.25, 0.25, 0.15]
        )
        pixels = drawn(kind, at * size, size)
        noise = torch.randn(pixels.shape, generator=random)
        return {"pixel_values": pixels * 2 - 1 + 0.3 * noise, "labels": kind}

    return batch


def made(task: str, row: dict[str, Any]) -> nn.Module:
    """The model of a row of the table."""
    known = dict(row)
    name = known.pop("class")
    if name == Stack.__name__:
        return Stack(task, **known)
    model = getattr(transformers, name)
    return model(model.config_class(**known, attn_implementation="eager"))


@dataclass(frozen=True)
class Course:
    """How a model is trained: its learning rate, the steps until that is reached, rows of a step; how long, and where."""

    rate: float
    warm_up: int
    rows: int
    seconds: float
    steps: int | None
    device: str

    def passed(self, steps: int, seconds: float) -> float:
        """The share of the course after so many steps or, where no number of steps is asked for, seconds."""
        return steps / self.steps if self.steps else seconds / self.seconds

    def rate_at(self, step: int, passed: float) -> float:
        """The learning rate of a step: rising to its whole, then falling to a twentieth along a cosine."""
        return self.rate * min((step + 1) / self.warm_up, 1) * (0.05 + 0.95 * math.cos(passed * math.pi / 2))


def train(model: nn.Module, batch: Batch, course: Course) -> tuple[int, float]:
    """Train a model on its course; the steps, and the mean loss of the last fifty."""
    random = torch.Generator().manual_seed(0)
    model.to(course.device).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=course.rate, weight_decay=0.05)
    losses: list[float] = []
    start = time.monotonic()
    while (passed := course.passed(len(losses), time.monotonic() - start)) < 1:
        for group in optimiser.param_groups:
            group["lr"] = course.rate_at(len(losses), passed)
        loss = model(**{name: value.to(course.device) for name, value in batch(random).items()}).loss
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
    return len(losses), sum(losses[-50:]) / len(losses[-50:])


def keep(model: Any, out: Path) -> None:
    """The weights, and the config where no reader looks for it."""
    model.save_pretrained(out)
    (out / "config.json").rename(out / "truth.json")
    for name in out.glob("generation_config.json"):
        name.unlink()


def case(task: str, name: str, row: dict[str, Any], course: Course, out: Path) -> None:
    """Train one row of the table and keep it."""
    torch.manual_seed(0)
    if task == "images":
        batch = images(row["image_size"], course.rows)
    else:
        batch = {"causal": causal, "masked": masked}[task](text(), course.rows)
    model = made(task, row)
    steps, loss = train(model, batch, course)
    keep(model.eval(), out / name)
    print(json.dumps({"case": name, "steps": steps, "loss": round(loss, 3)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", help="these cases")
    parser.add_argument("--table", type=Path, default=TABLE, help="the cases")
    parser.add_argument("--seconds", type=float, default=90, help="for each")
    parser.add_argument("--steps", type=int, help="for each, instead of seconds")
    parser.add_argument("--device", default="cpu", help="where they are trained")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    options = parser.parse_args()
    table = yaml.safe_load(options.table.read_text(encoding="utf-8"))
    common, training = table.pop("common"), table.pop("training")
    spawn = multiprocessing.get_context("spawn")  # a forked process cannot use a graphics card
    with ProcessPoolExecutor(options.workers, mp_context=spawn) as pool:
        running = []
        for task, rows in table.items():
            course = Course(
                **training[task], seconds=options.seconds, steps=options.steps, device=options.device
            )
            for name, row in rows.items():
                if not options.only or name in options.only:
                    whole = row if task == "images" else {**common, **row}
                    running.append(pool.submit(case, task, name, whole, course, options.out))
        for future in running:
            future.result()


if __name__ == "__main__":
    main()
