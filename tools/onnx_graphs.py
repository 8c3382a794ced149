"""Tiny transformers models as ONNX graphs, by both exporters of torch: `python tools/onnx_graphs.py make FOLDER`.

Each model has its folder with config.json and model.safetensors, and `legacy.onnx` and `dynamo.onnx` (opset 20, dynamic batch and
length); `names.json` has the names in the module. `measure` prints the table of what is made of them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

TEXT = {"vocab_size": 103, "max_position_embeddings": 64}
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 44}
GROUPED = {**TEXT, **SMALL, "num_key_value_heads": 2}
IMAGE = {"image_size": 32, "patch_size": 8}
WORDS = ("input_ids", "attention_mask")
MODELS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "bert": ("BertModel", {**TEXT, **SMALL}, WORDS),
    "distilbert": ("DistilBertForMaskedLM", {**TEXT, "dim": 32, "hidden_dim": 44, "n_layers": 2, "n_heads": 4}, WORDS),
    "roberta": ("RobertaModel", {**TEXT, **SMALL}, WORDS),
    "albert": ("AlbertModel", {**TEXT, **SMALL, "embedding_size": 16}, WORDS),
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": 103, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}, WORDS),
    "llama": ("LlamaForCausalLM", GROUPED, WORDS),
    "qwen2": ("Qwen2ForCausalLM", GROUPED, WORDS),
    "qwen3": ("Qwen3ForCausalLM", {**GROUPED, "head_dim": 8}, WORDS),
    "t5": ("T5EncoderModel", {"vocab_size": 103, "d_model": 32, "d_kv": 8, "d_ff": 44, "num_layers": 2, "num_heads": 4}, WORDS),
    "vit": ("ViTModel", {**SMALL, **IMAGE}, ("pixel_values",)),
    "clip_text_model": ("CLIPTextModel", {**TEXT, **SMALL, "eos_token_id": 2}, WORDS),
    "whisper": ("WhisperModel", {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
                "decoder_attention_heads": 4, "encoder_ffn_dim": 44, "decoder_ffn_dim": 44, "vocab_size": 103,
                "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 16, "pad_token_id": 1,
                "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}, ("input_features",)),
    "resnet": ("ResNetModel", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2], "layer_type": "basic"}, ("pixel_values",)),
}  # fmt: skip
BATCH, LENGTH = (2, 3), (7, 11)  # at the export, and afterwards
FIXED = {"pixel_values": (3, 32, 32), "input_features": (8, 40)}


def plain(model: torch.nn.Module, names: tuple[str, ...]) -> torch.nn.Module:
    """The same model, of a class whose forward takes these tensors in this order and gives its results as a tuple."""
    whole = type(model).forward

    def of_words(self: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return whole(self, input_ids=input_ids, attention_mask=attention_mask).to_tuple()

    def of_image(self: Any, pixel_values: torch.Tensor) -> Any:
        return whole(self, pixel_values).to_tuple()

    def of_sound(self: Any, input_features: torch.Tensor) -> Any:
        return whole(self, input_features).to_tuple()

    forward = {WORDS: of_words, ("pixel_values",): of_image, ("input_features",): of_sound}[names]
    model.__class__ = type(type(model).__name__, (type(model),), {"forward": forward})
    model.config.use_cache = False  # type: ignore[union-attr]
    return model


def made(name: str) -> torch.nn.Module:
    """The model of that name with weights drawn anew, also where a norm begins with ones."""
    import transformers

    class_name, settings, _ = MODELS[name]
    kind = getattr(transformers, class_name)
    torch.manual_seed(0)
    model = kind(kind.config_class(**settings)).eval()
    if name == "whisper":
        model = model.encoder
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        for key, buffer in model.named_buffers():
            if key.endswith(("running_mean", "running_var")):
                buffer.add_(torch.rand_like(buffer) * 0.1)
    return model


def inputs(name: str, again: bool = False) -> tuple[torch.Tensor, ...]:
    """What goes in; `again` with another batch and length. Every row but the first has padding at its end."""
    generator = torch.Generator().manual_seed(int(again))
    batch, length = BATCH[again], LENGTH[again]
    found = []
    for key in MODELS[name][2]:
        if key in FIXED:
            found.append(torch.randn(batch, *FIXED[key], generator=generator))
        elif key == "input_ids":
            found.append(torch.randint(4, 100, (batch, length), generator=generator))
        else:
            mask = torch.ones(batch, length, dtype=torch.long)
            mask[1:, -2:] = 0
            found.append(mask)
    return tuple(found)


def export(name: str, model: torch.nn.Module, path: Path, dynamo: bool) -> None:
    """Write the graph of `model`. The exporter of torch prints its own notes."""
    names = MODELS[name][2]
    axes = {key: {0: "batch"} if key in FIXED else {0: "batch", 1: "length"} for key in names}
    options: dict[str, Any] = {"input_names": list(names), "output_names": ["result"], "opset_version": 20}
    if dynamo:
        shapes = tuple(dict.fromkeys(axes[key], torch.export.Dim.DYNAMIC) for key in names)
        options |= {"dynamo": True, "dynamic_shapes": shapes, "external_data": False}
    else:
        outer = {"result": {0: "batch"} if names[0] in FIXED else {0: "batch", 1: "length"}}
        options |= {"dynamo": False, "dynamic_axes": axes | outer}
    torch.onnx.export(model, inputs(name), str(path), **options)


def make(folder: Path, chosen: list[str]) -> None:
    for name in chosen or MODELS:
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        model = made(name)
        model.save_pretrained(place)  # type: ignore[operator]
        (place / "names.json").write_text(
            json.dumps(_named(model))
        )  # as the module has them: a saved file may have others
        model = plain(model, MODELS[name][2])
        for dynamo in (False, True):
            path = place / ("dynamo.onnx" if dynamo else "legacy.onnx")
            try:
                with torch.no_grad():
                    export(name, model, path, dynamo)
                print(f"{name}/{path.name}: {_difference(name, model, path):.1e} from torch", flush=True)
            except Exception as error:
                print(f"{name}/{path.name}: {type(error).__name__}: {str(error)[:300]}", flush=True)


def _named(model: torch.nn.Module) -> dict[str, Any]:
    every = list(model.named_parameters(remove_duplicate=False))
    names = [
        (key, [other for other, tensor in every if tensor is own]) for key, own in model.named_parameters()
    ]
    return {"parameters": dict(names), "buffers": [key for key, _ in model.named_buffers()]}


def _difference(name: str, model: torch.nn.Module, path: Path) -> float:
    """How far onnxruntime is from torch, with another batch and length."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = inputs(name, again=True)
    names = [value.name for value in session.get_inputs()]
    feed = {key: value.numpy() for key, value in zip(MODELS[name][2], given, strict=True) if key in names}
    with torch.no_grad():
        expected: tuple[torch.Tensor, ...] = model(*given)
    pairs = zip(session.run(None, feed), expected, strict=True)
    return max(float((torch.from_numpy(found) - wanted).abs().max()) for found, wanted in pairs)


def measure(folder: Path, chosen: list[str]) -> None:
    """Print what is recovered, read and built of each graph, without a config beside it."""
    totals: dict[str, float] = {
        "names": 0,
        "of": 0,
        "straight": 0,
        "family": 0,
        "fused": 0,
        "calls": 0,
        "graphs": 0,
    }
    for name in chosen or MODELS:
        for path in sorted((folder / name).glob("*.onnx")):
            found = _measured(folder / name, path, name)
            print(
                f"{name}/{path.name}: " + ", ".join(f"{key} {value}" for key, value in found.items()),
                flush=True,
            )
            for key, value in found.items():
                totals[key] = totals.get(key, 0) + (value if isinstance(value, (int, float)) else 0)
            totals["graphs"] += 1
    share = totals["names"] / max(totals["of"], 1)
    print(f"{totals['graphs']} graphs: {share:.4f} of the dotted names, {totals['straight']} equal as straight-line code, "
          f"{totals['family']} equal as a family's, {totals['fused']} of {totals['calls']} attention calls fused")  # fmt: skip


def _measured(place: Path, path: Path, name: str) -> dict[str, Any]:
    import mapper
    from mapper.graphs.reading import read_model
    from mapper.graphs.straight.building import build_straight
    from mapper.graphs.straight.source import write_model
    from mapper.sources import open_source

    with tempfile.TemporaryDirectory() as apart:  # where no config.json lies
        alone = Path(apart) / path.name
        shutil.copy(path, alone)
        names = json.loads((place / "names.json").read_text())["parameters"]
        have = open_source(alone, purpose="headers").tensors.keys()
        straight = write_model(read_model(alone))
        built = build_straight(straight, path.name)
        given = dict(zip(MODELS[name][2], inputs(name, again=True), strict=True))
        wanted = _run(alone, given)
        with torch.no_grad(), _counted() as calls_made:
            found = built(
                **{straight.inputs[key]: value for key, value in given.items() if key in straight.inputs}
            )
        architecture = mapper.inspect(alone).architecture
        is_whole = architecture.reading in mapper.architecture.READINGS[:2] and not architecture.questions
        family = is_whole and _as_family(mapper.build(alone), given, wanted)
        parameters = sum(one.numel() for one in built.parameters())
        buffers = sum(one.numel() for one in built.buffers() if one.is_floating_point())
        calls = 2 * (name not in ("t5", "resnet"))  # T5's attention is no fused call in the original either
        return {
            "names": sum(not have.isdisjoint(same) for same in names.values()), "of": len(names),
            "straight": int(all(_close(one, other) for one, other in zip(found.values(), wanted, strict=True))),
            "family": int(family), "read as": architecture.family,
            "fused": calls_made["attention"], "calls": calls,
            "trainable": f"{parameters / (parameters + buffers):.2f}",
        }  # fmt: skip


@contextmanager
def _counted() -> Iterator[Counter[str]]:
    """Counts the calls of torch's attention."""
    found: Counter[str] = Counter()
    own = torch.nn.functional.scaled_dot_product_attention

    def attention(*given: Any, **more: Any) -> torch.Tensor:
        found["attention"] += 1
        return own(*given, **more)

    torch.nn.functional.scaled_dot_product_attention = attention
    try:
        yield found
    finally:
        torch.nn.functional.scaled_dot_product_attention = own


def _run(path: Path, given: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    feed = {key: value.numpy() for key, value in given.items() if key in names}
    return [torch.from_numpy(one) for one in session.run(None, feed)]


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and bool(torch.allclose(one, other, rtol=1e-4, atol=2e-5))


def _as_family(model: torch.nn.Module, given: dict[str, torch.Tensor], wanted: list[torch.Tensor]) -> bool:
    """Whether each result of the graph is one of the model's."""
    with torch.no_grad():
        found = [one for one in vars(model(**given)).values() if isinstance(one, torch.Tensor)]
    return all(any(_close(one, other) for one in found) for other in wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("make", "measure"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*")
    given = parser.parse_args()
    (make if given.command == "make" else measure)(given.folder, given.models)


if __name__ == "__main__":
    main()
