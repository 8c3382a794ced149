"""By how much the right activation is better than others on several texts: from it the margins of `mapper infer --try` were taken.

    python tools/evidence_margins.py MODELS/gpt2 MODELS/opt      # folders of tools/train_tiny.py, models of bytes

A line for each text and activation: the mean difference of the losses from those of the true activation, in nats, and in
standard deviations over rows; first as they are, then each at the sureness that is best for the text.
"""

from __future__ import annotations

import argparse
import inspect
import statistics
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from pydoc_data.topics import topics

import torch

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

from evidence_table import opened  # noqa: E402
from train_tiny import HELD_BACK, LENGTH  # noqa: E402

from mapper._build import build_architecture  # noqa: E402
from mapper.checkpoint import Checkpoint  # noqa: E402
from mapper.evidence.behaviour.longer_text import longer_text  # noqa: E402
from mapper.evidence.behaviour.passage import PASSAGE  # noqa: E402
from mapper.evidence.behaviour.voices import SURENESS  # noqa: E402
from mapper.inference import infer  # noqa: E402
from mapper.rulebook.rulebook import rulebook_of  # noqa: E402

ACTIVATIONS = ("gelu", "gelu_new", "quick_gelu", "silu", "relu")
FIELDS = ("activation_function", "hidden_act", "hidden_activation", "activation")
FACT = "feed_forward.activation"


def texts() -> dict[str, bytes]:
    """What a model of bytes is asked: like its training (held back from it), and more and more unlike it."""
    held = "\n".join(topics[name] for name in sorted(topics)).encode()[-HELD_BACK:]
    sources = "".join(map(inspect.getsource, (textwrap, statistics)))
    return {
        "held back": held[:16_000],
        "passage": PASSAGE.encode(),
        "docstrings": longer_text().encode()[:20_000],
        "more docstrings": longer_text().encode()[60_000:80_000],
        "sources": sources.encode()[:12_000],
    }


def losses(model: torch.nn.Module, text: bytes) -> Iterator[torch.Tensor]:
    """The loss of each row [rows]: as it is, and at the best sureness."""
    ids = torch.tensor(list(text[: len(text) // LENGTH * LENGTH])).view(-1, LENGTH)
    with torch.inference_mode():
        scores = torch.cat([model(input_ids=part).logits[:, :-1] for part in ids.split(32)])
    right = scores.gather(-1, ids[:, 1:, None])[..., 0]
    by_factor = [((scores * factor).logsumexp(-1) - factor * right).mean(1) for factor in SURENESS]
    yield by_factor[SURENESS.index(1.0)]
    yield min(by_factor, key=lambda rows: float(rows.mean()))


def heard(checkpoint: Checkpoint, activation: str) -> dict[str, list[torch.Tensor]]:
    """The losses by text of a model with this activation, all else as its config says."""
    config = checkpoint.config or {}
    field = next(name for name in FIELDS if name in config)
    said = infer(replace(checkpoint, config={**config, field: activation}), rulebook_of(()))
    model = build_architecture(said, torch.float32, "cpu")
    return {name: list(losses(model, text)) for name, text in texts().items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", nargs="+")
    for source in parser.parse_args().sources:
        name, checkpoint = opened(source)
        true = next(fact.value for fact in infer(checkpoint, rulebook_of(())).facts if fact.name == FACT)
        right = heard(checkpoint, true)
        print(f"{name}: {true}")
        for other in ACTIVATIONS:
            for text, both in heard(checkpoint, other).items() if other != true else ():
                apart = [rows - base for rows, base in zip(both, right[text], strict=True)]
                told = [f"{d.mean():+.4f} ({d.mean() / (d.std() / len(d) ** 0.5):.1f})" for d in apart]
                print(f"  {other:10} {text:15} {'  '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
