"""Headers, conversions and other containers beside `cp`, NumPy and torch; `tools/bench.py` prints the rows.

Each measurement is a process of its own: `python tools/bench_convert.py CASE SIDE FOLDER NOTE` does one and writes its
seconds to NOTE. What is loaded ends in memory of its own on both sides: mapped pages are copied.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from timing import ROOT, Line, alone, in_turns, run_python, seconds

TENSORS, ROWS, COLUMNS = 60, 2048, 4096  # 2.0 GB of 32-bit floats
LLAMA_70B = {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
}
VOCABULARY, KEY_VALUE = 128256, 1024
SHARD_BYTES = 5e9
LLAMA_1B = {"vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
            "num_attention_heads": 32, "num_key_value_heads": 4}  # fmt: skip


def converting(folder: Path, repeat: int) -> Iterator[Line]:
    """A large model's header; 2 GB copied; the same read from an archive of NumPy and a file of torch."""
    large = llama_70b(folder / "llama-70b")
    (times,) = in_turns(repeat, lambda: processor("-m", "mapper", "inspect", str(large)))
    yield alone("`mapper inspect` of 70 billion parameters in 30 shards, processor time", times, 1)
    note = folder / "converting.json"
    run_python(__file__, "write", "-", str(folder), str(note))

    def measure(case: str, *sides: str) -> list[list[float]]:
        def side(name: str) -> float:
            run_python(__file__, case, name, str(folder), str(note))
            return float(json.loads(note.read_text()))

        return in_turns(repeat, *(lambda name=name: side(name) for name in sides))

    ours, copied, synced = measure("copy", "mapper", "cp", "cp and sync")
    yield seconds(
        "`mapper.convert` of 2.0 GB, safetensors to safetensors; `cp` and fsync", ours, synced, 1.25
    )
    yield seconds("the same; `cp` alone", ours, copied, None)
    for library in ("meta", "litgpt"):
        ours, synced = measure(f"rename {library}", "mapper", "cp and sync")
        row = f"`mapper.rename` of a 2.2 GB Llama from Hugging Face's names to {library}'s; `cp` and fsync"
        yield seconds(row, ours, synced, 1.5)
    yield seconds("2.0 GB of an archive into memory; `numpy.load`", *measure("npz", "mapper", "peer"), 1.3)
    yield seconds("2.0 GB of a torch file into memory; `torch.load`", *measure("zip", "mapper", "peer"), 1.3)


def processor(*arguments: str) -> float:
    """Seconds of processor time that one interpreter takes from start to end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run_python(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def llama_70b(folder: Path) -> Path:
    """A Llama of 70 billion parameters in 30 sparse shards: headers and holes."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": VOCABULARY, "num_key_value_heads": 8,
              "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "max_position_embeddings": 8192,
              "tie_word_embeddings": False, **LLAMA_70B}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    shards = list(_sharded(_llama_shapes()))
    table = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        _sparse(folder / name, shard)
        table |= dict.fromkeys(shard, name)
    index.write_text(json.dumps({"metadata": {}, "weight_map": table}))
    return folder


def _llama_shapes(
    sizes: dict[str, int] = LLAMA_70B, vocabulary: int = VOCABULARY, key_value: int = KEY_VALUE
) -> dict[str, list[int]]:
    width, inner = sizes["hidden_size"], sizes["intermediate_size"]
    shapes = {"model.embed_tokens.weight": [vocabulary, width]}
    for at in range(sizes["num_hidden_layers"]):
        layer = f"model.layers.{at}"
        rows = {"q_proj": width, "k_proj": key_value, "v_proj": key_value, "o_proj": width}
        shapes |= {f"{layer}.self_attn.{word}.weight": [count, width] for word, count in rows.items()}
        shapes |= {f"{layer}.mlp.{word}_proj.weight": [inner, width] for word in ("gate", "up")}
        shapes[f"{layer}.mlp.down_proj.weight"] = [width, inner]
        shapes |= {f"{layer}.{word}_layernorm.weight": [width] for word in ("input", "post_attention")}
    return {**shapes, "model.norm.weight": [width], "lm_head.weight": [vocabulary, width]}


def _sharded(shapes: dict[str, list[int]]) -> Iterator[dict[str, list[int]]]:
    shard: dict[str, list[int]] = {}
    size = 0
    for name, shape in shapes.items():
        if shard and size + _bytes(shape) > SHARD_BYTES:
            yield shard
            shard, size = {}, 0
        shard[name] = shape
        size += _bytes(shape)
    yield shard


def _bytes(shape: list[int]) -> int:
    count = 2
    for extent in shape:
        count *= extent
    return count


def _sparse(path: Path, shapes: dict[str, list[int]]) -> None:
    header, position = {}, 0
    for name, shape in shapes.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [position, position + _bytes(shape)]}
        position += _bytes(shape)
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + position)


# ------------------------------------------------------------------------------------------------- one measurement
def main(case: str, side: str, folder: str, note: str) -> None:
    """One case in this process; its seconds go to `note` as JSON."""
    sys.path.insert(0, str(ROOT))
    work = CASES[case](side, Path(folder))
    if work is None:
        return
    start = time.perf_counter()
    kept = work()
    elapsed = time.perf_counter() - start
    del kept
    Path(note).write_text(json.dumps(elapsed))


def _write(side: str, folder: Path) -> None:
    """The same tensors in three containers, written once."""
    if (folder / "large.bin").exists():
        return
    import numpy as np
    import torch
    from safetensors.torch import save_file

    tensors = {f"layer.{at}.weight": torch.full((ROWS, COLUMNS), float(at)) for at in range(TENSORS)}
    save_file(tensors, folder / "large.safetensors")
    np.savez(folder / "large.npz", **{name: tensor.numpy() for name, tensor in tensors.items()})
    torch.save(tensors, folder / "large.bin")
    os.sync()


def _copy(side: str, folder: Path) -> Callable[[], object]:
    source, out = folder / "large.safetensors", folder / "copied.safetensors"
    out.unlink(missing_ok=True)
    os.sync()
    if side == "mapper":
        import mapper

        convert = mapper.convert
        return lambda: convert(source, out)
    commands = [["cp", str(source), str(out)], ["sync", str(out)]]
    return lambda: [subprocess.run(command, check=True) for command in commands[: 1 if side == "cp" else 2]]


def _rename(library: str) -> Callable[[str, Path], Callable[[], object] | None]:
    def case(side: str, folder: Path) -> Callable[[], object] | None:
        source, out = llama_1b(folder / "llama-1b"), folder / "renamed"
        shutil.rmtree(out, ignore_errors=True)
        os.sync()
        if side == "mapper":
            import mapper

            rename = mapper.rename
            return lambda: rename(source, library, out)
        out.mkdir()
        weights = source / "model.safetensors", out / "model.safetensors"
        commands = [["cp", *map(str, weights)], ["sync", str(weights[1])]]
        return lambda: [subprocess.run(command, check=True) for command in commands]

    return case


def llama_1b(folder: Path) -> Path:
    """A Llama of 1.1 billion parameters in 16 bits, written once."""
    if (folder / "config.json").exists():
        return folder
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    shapes = _llama_shapes(LLAMA_1B, LLAMA_1B["vocab_size"], 256)
    tensors = {
        name: torch.full(shape, at / 256, dtype=torch.bfloat16)
        for at, (name, shape) in enumerate(shapes.items())
    }
    save_file(tensors, folder / "model.safetensors")
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "rms_norm_eps": 1e-5,
              "tie_word_embeddings": False, "max_position_embeddings": 2048, **LLAMA_1B}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    os.sync()
    return folder


def _npz(side: str, folder: Path) -> Callable[[], object]:
    import numpy as np

    return lambda: _read(folder / "large.npz") if side == "mapper" else dict(np.load(folder / "large.npz"))


def _zip(side: str, folder: Path) -> Callable[[], object]:
    import torch

    return lambda: _read(folder / "large.bin") if side == "mapper" else torch.load(folder / "large.bin")


def _read(path: Path) -> object:
    from mapper.sources import open_source

    checkpoint = open_source(path, purpose="weights")
    assert checkpoint.read is not None
    return {name: tensor.clone() for name, tensor in checkpoint.read(checkpoint.tensors).items()}


CASES: dict[str, Callable[[str, Path], Callable[[], object] | None]] = {
    "write": _write,
    "copy": _copy,
    "rename meta": _rename("meta"),
    "rename litgpt": _rename("litgpt"),
    "npz": _npz,
    "zip": _zip,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
