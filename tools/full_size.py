"""How models of full size are read: the default config of each class, with all its layers, and no weights.

    python tools/full_size.py CHECKPOINTS              # of the classes that these folders' configs name
        --only bert t5                                 # folders of these names alone
        --json FILE                                    # what each was read as

Tiny checkpoints have two layers of a kind. Whether one of thirty that differs is taken for a loss, or a list with other
strides for another network, shows at full size alone. Names and shapes are those that transformers would save (of
tied tensors the first), made on the meta device. A default config is not always one that anybody trained: some
contradict themselves, which is said then.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from mapper.checkpoint import Checkpoint  # noqa: E402
from mapper.errors import MapperError  # noqa: E402
from mapper.inference import infer  # noqa: E402
from mapper.rulebook.rulebook import Rulebook  # noqa: E402
from mapper.sources import open_source  # noqa: E402

DTYPES = {
    torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL", torch.complex64: "C64",
}  # fmt: skip
UNMADE = "not made"


def classes(folder: Path, only: list[str]) -> Iterator[tuple[str, str]]:
    """The folders of checkpoints, each with the class that its config names."""
    for path in sorted(folder.glob("*/config.json")):
        named = json.loads(path.read_text()).get("architectures") or []
        if named and (not only or path.parent.name in only):
            yield path.parent.name, named[0]


def header(class_name: str) -> Checkpoint:
    """The header of a model of the class with its default config, under the names that it is saved with."""
    import transformers
    from transformers.core_model_loading import revert_weight_conversion

    made = getattr(transformers, class_name)
    config = made.config_class()
    with torch.device("meta"):
        model = made(config)
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    states = {name: value for name, value in model.state_dict().items() if name not in tied}
    saved = revert_weight_conversion(model, states)
    said = json.loads(json.dumps({**config.to_dict(), "architectures": [class_name]}, default=str))
    tensors = {
        name: {"shape": list(value.shape), "dtype": DTYPES[value.dtype]} for name, value in saved.items()
    }
    return open_source({"tensors": tensors, "config": said}, purpose="headers")


def reading(class_name: str, rulebook: Rulebook) -> str:
    """What it is read as; of what is not read the reason, too."""
    try:
        checkpoint = header(class_name)
    except Exception as error:  # whatever a class raises whose default config makes no model
        return f"{UNMADE}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    try:
        architecture = infer(checkpoint, rulebook)
    except MapperError as error:
        return f"refused: {error}"
    why = architecture.missing or architecture.findings
    return architecture.reading + (f": {why[0]}" if why else "")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", type=Path, help="a folder of checkpoints")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these folders alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what each was read as")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rulebook = Rulebook()
    found: dict[str, Any] = {}
    for name, class_name in classes(arguments.checkpoints, arguments.only):
        found[name] = reading(class_name, rulebook)
        if not found[name].startswith("exact"):
            print(f"{name}: {found[name][:300]}", flush=True)
    counts = Counter(said.partition(":")[0] for said in found.values())
    print("; ".join(f"{what}: {count}" for what, count in counts.most_common()))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
