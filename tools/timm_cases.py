"""Networks of timm with random weights and the config that timm writes, each with inputs and outputs, for tools/foreign.py.

    PYTHONPATH=PACKAGES python tools/timm_cases.py CASES --seed 1              # one of each module
    PYTHONPATH=PACKAGES python tools/timm_cases.py CASES --only resnet convnext --each 5
    PYTHONPATH=PACKAGES python tools/timm_cases.py CASES --headless            # `num_classes: 0`

Drawn by the seed of those with at most 30 million parameters for images of at most 260 pixels. PACKAGES is as in foreign_cases.py.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
from pathlib import Path
from typing import Any

import torch
from foreign_cases import Row, write
from torchvision_operators import left_out

PARAMETERS, PIXELS, TRIED = 3e7, 260, 25


def side(timm: Any, name: str) -> int:
    """The side of a network's images; 0 where they or its weights are too large."""
    with torch.device("meta"):
        made = timm.create_model(name, num_classes=10)
    pixels = int(made.default_cfg.get("input_size", (3, 224, 224))[-1])
    size = sum(parameter.numel() for parameter in made.parameters())
    return pixels if size <= PARAMETERS and pixels <= PIXELS else 0


def make(timm: Any, name: str, folder: Path, classes: int) -> bool:
    """Whether a case could be made."""
    try:
        if not (pixels := side(timm, name)):
            return False
        arguments = {"model_name": name, "num_classes": classes}
        with torch.no_grad():
            write(name, Row("timm:create_model", arguments, ((1, 3, pixels, pixels),), "timm"), folder)
    except Exception as error:  # another package may fail in any way: the others are made all the same
        print(f"{name}: not made: {type(error).__name__}: {error}")
        return False
    config = folder / name / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "num_classes": classes}))
    print(f"{name}: made", flush=True)
    return True


def main() -> None:
    with left_out():
        timm = importlib.import_module("timm")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("cases", type=Path, help="where to put them")
    parser.add_argument("--only", nargs="+", metavar="MODULE", help="of these modules")
    parser.add_argument("--each", type=int, default=1, help="networks of a module (default 1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--headless", action="store_true", help="without a head")
    arguments = parser.parse_args()
    drawn = random.Random(arguments.seed)
    for module in arguments.only or sorted(timm.list_modules()):
        names = timm.list_models(module=module)
        tried = iter(drawn.sample(names, min(TRIED, len(names))))
        left = arguments.each
        while left and (name := next(tried, None)):
            left -= make(timm, name, arguments.cases, 0 if arguments.headless else 10)


if __name__ == "__main__":
    main()
