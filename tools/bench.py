"""Time and memory beside transformers, each pair in one run; prints a markdown table.

    python tools/bench.py                          # everything: about half an hour and 10 GB of disk
    python tools/bench.py inspect planning         # some of it
    python tools/bench.py build --repeat 3 --folder /data/bench
    python tools/bench.py inspect --write docs/speed.md  # and put the rows into the table there

The two sides take turns, and every figure is a median. Checkpoints are random and made once, in `--folder`. Rows over their
limit are named at the end, and the exit code is 3.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_convert import converting
from bench_export import exporting
from bench_picture import pages
from bench_run import running
from bench_weights import comparing, weights
from timing import PEAK, ROOT, Line, alone, in_turns, markdown, memory, rewritten, row, run_python, seconds

MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
LLAMA = {  # 1.1 billion parameters, 2.2 GB in bfloat16
    "hidden_size": 2048,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "intermediate_size": 5632,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}
EXPERTS = {
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "intermediate_size": 384,
    "moe_intermediate_size": 384,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "vocab_size": 32000,
}
SHARD_BYTES = 500_000_000
LENGTH = 128
OVER = 3  # exit code: a row is over its limit


# ------------------------------------------------------------------------------------------------- whole processes
def inspect(folder: Path, repeat: int) -> Iterator[Line]:
    """A whole `mapper inspect` of a local MiniLM beside an import of transformers."""
    case = bert_checkpoint(folder / "minilm", **MINILM)
    commands = {
        "from transformers import AutoModel": lambda: run_python("-c", "from transformers import AutoModel"),
        "import torch": lambda: run_python("-c", "import torch"),
        "import numpy, yaml, safetensors": lambda: run_python("-c", "import numpy, yaml, safetensors"),
    }
    ours, *others = in_turns(
        repeat, lambda: run_python("-m", "mapper", "inspect", str(case)), *commands.values()
    )
    for at, (name, theirs) in enumerate(zip(commands, others, strict=True)):
        limit = 0.08 if at == 0 else None
        yield seconds(f"`mapper inspect` of MiniLM; `{name}`", ours, theirs, limit)


def planning(folder: Path, repeat: int) -> Iterator[Line]:
    """From the header of a mixture of experts to its architecture: linear in the number of tensors."""
    cases = [experts_header(folder / f"experts-{layers}.safetensors", layers) for layers in (50, 100)]
    code = (
        "import sys, time; start = time.perf_counter(); from mapper._api import describe;"
        "describe({!r}); sys.exit(print(time.perf_counter() - start, file=open({!r}, 'w')))"
    )
    note = folder / "planning.txt"

    def plan(case: Path) -> float:
        run_python("-c", code.format(str(case), str(note)))
        return float(note.read_text())

    once, twice = in_turns(repeat, *(lambda case=case: plan(case) for case in cases))
    yield alone("planning 100,000 tensors (50 layers × 2,000 experts)", once, 0.7)
    yield seconds("planning 200,000 tensors; 100,000", twice, once, 2.2)
    (experts,) = in_turns(repeat, lambda: plan(catalogue_header(folder / "qwen.json", "Qwen/Qwen3-30B-A3B")))
    yield alone("planning Qwen3-30B-A3B (18,867 tensors)", experts, 0.6)
    document = [run_python("-m", "mapper", "inspect", str(cases[0]), "--json") for _ in range(repeat)]
    yield alone("`mapper inspect --json` of 100,000 tensors", document)


def picture(folder: Path, repeat: int) -> Iterator[Line]:
    """The page with the picture."""
    minilm = bert_checkpoint(folder / "minilm", **MINILM)
    yield from pages(minilm, catalogue_header(folder / "qwen.json", "Qwen/Qwen3-30B-A3B"), folder, repeat)


# Without cyclic collections, as the command reads: there would be one of all that the reading before has made.
RULES = """
import sys, time
from mapper._collector import collection_paused
from mapper.inference import infer
from mapper.rulebook.rulebook import Rulebook
from mapper.sources import open_source
case, folder, note = sys.argv[1:]
extra = [folder] if folder else []
with collection_paused():
    known = Rulebook(extra)
    model = infer(open_source(case, purpose="headers"), known)
    flows = {block.flow for block in model.root.blocks() if block.flow}
    start = time.perf_counter()
    rules = Rulebook(extra)
    rules.digest, rules.vocabulary, rules.config_vocabulary, rules.inputs, rules.activations, rules.composites
    [entry.read() for entry in rules.family_entries if entry.name == model.family], [rules.flows[name] for name in flows]
    print(time.perf_counter() - start, file=open(note, "w"))
"""
OPERATIONS = """
import sys
from mapper.inference import infer
from mapper.operations import registry
from mapper.rulebook.rulebook import Rulebook
from mapper.sources import open_source
parsed, parse = {}, registry._parse
registry._parse = lambda topics: parsed.update(parse(topics)) or parsed
infer(open_source(sys.argv[1], purpose="headers"), Rulebook())
print(len(parsed), len(registry._operations()._made), file=open(sys.argv[2], "w"))
"""


def values(folder: Path, repeat: int) -> Iterator[Line]:
    """A whole `inspect --values` beside a process that reads each tensor and asks torch for the same moments."""
    for name, case in (
        ("MiniLM", bert_checkpoint(folder / "minilm", **MINILM)),
        ("2.2 GB Llama", llama_checkpoint(folder / "llama")),
    ):
        peer = lambda case=case: run_python("-c", _MOMENTS, str(case))  # noqa: E731
        own = lambda case=case: run_python("-m", "mapper", "inspect", str(case), "--values")  # noqa: E731
        ours, theirs = in_turns(repeat, own, peer)
        yield seconds(
            f"`mapper inspect --values` of {name}; torch's mean, std, min and max of each tensor",
            ours,
            theirs,
            None,
        )


_MOMENTS = """
import sys
from pathlib import Path
import torch
from safetensors import safe_open
for file in sorted(Path(sys.argv[1]).glob("*.safetensors")):
    with safe_open(file, "pt") as tensors:
        for name in tensors.keys():
            x = tensors.get_tensor(name).float()
            print(name, float(x.mean()), float(x.std()), float(x.min()), float(x.max()))
"""


def rules(folder: Path, repeat: int) -> Iterator[Line]:
    """What a MiniLM needs of the rules, as a process finds them that is not the first since they changed."""
    case, more, note = (
        bert_checkpoint(folder / "minilm", **MINILM),
        ten_times(folder / "rules"),
        folder / "rules.txt",
    )

    def read(extra: str) -> float:
        run_python("-c", RULES, str(case), extra, str(note))
        return float(note.read_text())

    def whole(*extra: str) -> float:
        return run_python("-m", "mapper", "inspect", str(case), *extra)

    once, often, shipped, with_more = in_turns(
        repeat, lambda: read(""), lambda: read(str(more)), whole, lambda: whole("--rules", str(more))
    )
    yield alone("reading the rules that MiniLM needs", once, 0.02)
    yield seconds("the same with ten times the families; as they are", often, once, 2)
    yield seconds(
        "`mapper inspect` of MiniLM with ten times the families; as they are", with_more, shipped, 1.15
    )
    file = str(ROOT / "rules/families/llama.yaml")
    (checked,) = in_turns(min(repeat, 2), lambda: run_python("-m", "mapper", "rules", "check", file))
    yield alone("`mapper rules check` of one file", checked, 4)
    run_python("-c", OPERATIONS, str(case), str(note))
    parsed, read_of = map(int, note.read_text().split())
    yield Line("operations parsed for an `inspect`", str(parsed), limit=0, measured=parsed)
    yield Line("operations of which it asks a signature", str(read_of), limit=40, measured=read_of)


# ------------------------------------------------------------------------------------------------------- loading
LOAD = f"""
import json, sys, time
born, case, side, note = float(sys.argv[1]), *sys.argv[2:5]
{PEAK}
if side == "mapper":
    import mapper
    model = mapper.build(case)
elif side == "transformers":
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(case, dtype="auto")
else:
    import torch
seconds, megabytes = time.time() - born, peak()
if side != "torch":
    import torch
    with torch.inference_mode():
        model(input_ids=torch.arange(16)[None])
json.dump([seconds, megabytes, time.time() - born, peak()], open(note, "w"))
"""


def build(folder: Path, repeat: int) -> Iterator[Line]:
    """A sharded Llama of 2.2 GB, from the start of the process to the loaded model and to its first logits."""
    case, note = llama_checkpoint(folder / "llama"), folder / "build.json"

    def load(side: str) -> list[float]:
        run_python("-c", LOAD, str(time.time()), str(case), side, str(note))
        measured: list[float] = json.loads(note.read_text())
        return measured

    sides = ("mapper", "transformers", "torch")
    results = in_turns(repeat, *(lambda side=side: load(side) for side in sides))
    ours, theirs, floor = ([list(column) for column in zip(*result, strict=True)] for result in results)
    yield seconds("2.2 GB Llama, process start to loaded; `from_pretrained`", ours[0], theirs[0], 0.5)
    yield memory("its peak memory", ours[1], theirs[1], 1.0)
    yield seconds("process start to first logits", ours[2], theirs[2], None)
    yield memory("peak memory to first logits", ours[3], theirs[3], None)
    yield seconds("the floor: process start to `import torch`", ours[0], floor[0], None)


# ------------------------------------------------------------------------------------------------------- forward
def forward(folder: Path, repeat: int) -> Iterator[Line]:
    """One forward in evaluation mode beside transformers with scaled dot-product attention, the same weights."""
    case = bert_checkpoint(
        folder / "bert-base", hidden_size=768, num_hidden_layers=12, num_attention_heads=12
    )
    for batch in (1, 8):
        yield _forward("bert-base", case, "AutoModel", batch, repeat)
    yield _forward("2.2 GB Llama", llama_checkpoint(folder / "llama"), "AutoModelForCausalLM", 1, repeat)


def experts(folder: Path, repeat: int) -> Iterator[Line]:
    """One forward of mixtures of experts beside transformers: tensors of their own for each expert, and one for all."""
    for layout, class_name in (("an expert", "Qwen3MoeForCausalLM"), ("all experts", "GptOssForCausalLM")):
        case = experts_checkpoint(folder / class_name.lower(), class_name)
        for batch in (1, 8):
            name = f"32 experts, 4 a token, tensors for {layout}"
            yield _forward(name, case, "AutoModelForCausalLM", batch, repeat, limit=1.1)


def _forward(name: str, case: Path, loader: str, batch: int, repeat: int, limit: float = 1.05) -> Line:
    import torch
    import transformers

    sys.path.insert(0, str(ROOT))
    import mapper

    transformers.utils.logging.disable_progress_bar()
    with_sinks = "gptoss" in case.name  # which scaled dot-product attention has not
    attention = "eager" if with_sinks else "sdpa"
    theirs = getattr(transformers, loader).from_pretrained(case, dtype="auto", attn_implementation=attention)
    theirs = theirs.eval()
    ours = mapper.build(str(case))
    ids = torch.randint(0, 30_000, (batch, LENGTH), generator=torch.Generator().manual_seed(0))
    arguments = {"input_ids": ids} | ({"use_cache": False} if loader == "AutoModelForCausalLM" else {})
    with torch.inference_mode():
        difference = _largest_difference(ours(input_ids=ids), theirs(**arguments))
        times = in_turns(
            4 * repeat, lambda: _timed(ours, {"input_ids": ids}), lambda: _timed(theirs, arguments)
        )
    line = seconds(f"forward of {name}, batch {batch}, length {LENGTH}; {attention}", *times, limit)
    print(f"{line.what}: largest difference {difference:.1g}", file=sys.stderr)
    return line


def _timed(model: Any, arguments: dict[str, Any]) -> float:
    start = time.perf_counter()
    model(**arguments)
    return time.perf_counter() - start


def _largest_difference(ours: Any, theirs: Any) -> float:
    name = "logits" if hasattr(theirs, "logits") else "last_hidden_state"
    return (getattr(ours, name).float() - getattr(theirs, name).float()).abs().max().item()


# ---------------------------------------------------------------------------------------------------- checkpoints
def bert_checkpoint(folder: Path, **sizes: int) -> Path:
    """A random BERT in float32, written once."""
    if not (folder / "model.safetensors").exists():
        from transformers import BertConfig, BertModel

        BertModel(BertConfig(**sizes)).save_pretrained(folder)
    return folder


def experts_checkpoint(folder: Path, class_name: str) -> Path:
    """A random decoder with 32 experts a layer in float32, written once."""
    if not (folder / "model.safetensors").exists():
        import transformers

        config = getattr(transformers, class_name).config_class(**EXPERTS)
        getattr(transformers, class_name)(config).save_pretrained(folder)
    return folder


def llama_checkpoint(folder: Path) -> Path:
    """A random Llama in bfloat16 in shards of 500 MB, written once; never whole in memory."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        return folder
    import torch
    from safetensors.torch import save_file
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**LLAMA, dtype="bfloat16", architectures=["LlamaForCausalLM"])
    config.save_pretrained(folder)
    with torch.device("meta"):
        tensors = LlamaForCausalLM(config).state_dict()
    generator = torch.Generator().manual_seed(0)
    shards = list(_shards({name: tensor.shape for name, tensor in tensors.items()}))
    files: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        weights = {
            name: (torch.randn(shape, generator=generator) * 0.02).bfloat16() for name, shape in shard.items()
        }
        for name, tensor in weights.items():
            if tensor.dim() == 1:  # norms
                weights[name] = torch.ones_like(tensor)
        save_file(weights, folder / file, {"format": "pt"})
        files |= dict.fromkeys(shard, file)
    size = sum(2 * tensor.numel() for tensor in tensors.values())
    index.write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": files}))
    return folder


def _shards(shapes: dict[str, Any]) -> Iterator[dict[str, Any]]:
    shard: dict[str, Any] = {}
    size = 0
    for name, shape in shapes.items():
        if shard and size + 2 * shape.numel() > SHARD_BYTES:
            yield shard
            shard, size = {}, 0
        shard[name] = shape
        size += 2 * shape.numel()
    yield shard


def experts_header(path: Path, layers: int, experts: int = 2000) -> Path:
    """A mixture of experts with one tensor of four bytes an expert, written once."""
    if not path.exists():
        names = [
            f"model.layers.{layer}.mlp.experts.{at}.up_proj.weight"
            for layer in range(layers)
            for at in range(experts)
        ]
        header = {
            name: {"dtype": "F32", "shape": [1, 1], "data_offsets": [4 * at, 4 * at + 4]}
            for at, name in enumerate(names)
        }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + 4 * len(names))
    return path


def ten_times(folder: Path) -> Path:
    """A folder of rules with nine copies of every family under other names, written once."""
    import yaml

    sys.path.insert(0, str(ROOT))
    from mapper.rulebook.rulebook import Rulebook

    for document in () if folder.exists() else Rulebook().documents("families"):
        for number in range(2, 11):
            data = dict(document.data) | {
                "model_types": [f"{name}_{number}" for name in document.data.get("model_types", ())]
            }
            data |= {key: f"{data[key]}_{number}" for key in ("family", "extends") if key in data}
            data.pop("examples", None)
            path = folder / "families" / f"{document.path.stem}_{number}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return folder


def catalogue_header(path: Path, name: str) -> Path:
    """The header and config of a model in the catalogue, written once."""
    if not path.exists():
        from mapper.catalogue import HEADERS, SUFFIX

        with zipfile.ZipFile(HEADERS) as archive:
            path.write_bytes(archive.read(name + SUFFIX))
    return path


BENCHMARKS = {
    "inspect": inspect,
    "picture": picture,
    "values": values,
    "rules": rules,
    "planning": planning,
    "build": build,
    "forward": forward,
    "experts": experts,
    "weights": weights,
    "comparing": comparing,
    "converting": converting,
    "running": running,
    "exporting": exporting,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{', '.join(BENCHMARKS)}; all when left out"
    )
    parser.add_argument("--repeat", type=int, default=5, help="measured turns (default 5)")
    parser.add_argument(
        "--folder", type=Path, help="where the checkpoints are kept (default: a temporary folder)"
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the rows into the table of a page")
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        lines: list[Line] = []
        for name in options.names or BENCHMARKS:
            print(f"{name} ...", file=sys.stderr, flush=True)
            lines += BENCHMARKS[name](folder, options.repeat)
    print(markdown(lines))
    if options.write:
        options.write.write_text(
            rewritten(options.write.read_text(encoding="utf-8"), lines), encoding="utf-8"
        )
    over = [line for line in lines if line.is_over]
    for line in over:
        print(f"over its limit of {line.most}: {row(line)}", file=sys.stderr)
    return OVER if over else 0


if __name__ == "__main__":
    sys.exit(main())
