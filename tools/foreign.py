"""How checkpoints that other packages wrote are read: kinds of leaves and of blocks, and outputs.

    python tools/foreign.py CASES                  # what is read, with what lies beside the files
    python tools/foreign.py CASES --hints FILE     # with the answers of FILE: {case: {fact: value}}
        --only vgg11 lenet                         # these cases
        --wrong                                    # each leaf and block of another kind

tools/foreign_cases.py makes cases: a folder for each, and beside it CASE.io with `inputs`, `outputs` and `kinds`, the
class of each module of the package. A leaf counts for each key; a block where the name of a class says what it is.
Outputs are equal within 1e-4 + 1e-3 of each number; where they are not, and the built model's own are as far from what it
gives in double precision, the case shows nothing (UNSTABLE).
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import yaml  # noqa: E402

import mapper  # noqa: E402
from mapper._api import describe  # noqa: E402
from mapper._build import build_architecture  # noqa: E402
from mapper.architecture import Architecture, Leaf  # noqa: E402

LEAVES = {  # a class by its name -> kind; `{n}` is the number of dimensions
    r"NonDynamicallyQuantizableLinear|NormedLinear|Linear|Siren": "Linear",
    r"MeanShift": "Conv2d",
    r"(?:Masked)?Conv(\d)d.*|Conv(\d)D\w*|Conv(\d)dSame|StdConv(\d)d\w*|ScaledStdConv(\d)d\w*": "Conv{n}d",
    r"ConvTranspose(\d)d": "ConvTranspose{n}d",
    r"BatchNorm\dd?|BatchNormAct2d|FrozenBatchNorm2d|SyncBatchNorm": "BatchNorm",
    r"((Chan|WithBias_|FP32)?LayerNorm(2d|Fp32|Fp16|ND)?|LN|ESM1b?LayerNorm|LayerNormAct2d)": "LayerNorm",
    r"GroupNorm\w*|InstanceNorm\dd|GlobLN": "GroupNorm",
    r"\w*R[Mm][Ss]Norm\w*|RMS|N|SimpleNorm(2d)?": "RMSNorm",
    r"Embedding|LearnedPositionalEmbedding|(Token|Segment)Embedding|\w+NormEmbeddings": "Embedding",
    r"(LSTM|GRU|RNN|PReLU|Bilinear)": "{0}",
    r"(LSTM|GRU|RNN)Cell": "{1}",
}
BLOCKS = {  # a class by its name -> kinds that it may be read as; the first that fits counts, an empty set for none
    r"UNetMid\w+": set(),  # resnets around attentions: a stage
    r"PrepareForMultiHeadAttention|\w+_V?AE_MLP": set(),  # one map; a whole network
    r"ChannelAttention": {"convolution", "feed_forward", "other", "attention"},
    r"(Encoder|Decoder)?MultiHeadAttentionLayer": {"attention"},
    r"Attention(Block|Layer)": {"attention", "layer"},  # with a norm or maps of its own
    r"GroupedFeedForward": {"feed_forward", "convolution"},
    r"ConvMixerLayer": {"convolution", "layer"},
    r"SelectiveKernelAttn|SplitAttn": {
        "convolution",
        "feed_forward",
        "other",
    },  # weighs channels, as squeeze-and-excitation
    r"\w*Block\w*Attn|LayerScaleBlock\w*": {"layer"},
    r"(\w*Attention|\w*Attn|MHA|EfficientMixAttn|\w*AttentionV2)": {"attention"},
    r"(\w*Mlp|\w*MLP|\w*FeedForward|FFN|FF|SwiGLU\w*|MLPBlock|PointwiseFeedForward|\w*FeedForwardModule)": {
        "feed_forward"
    },
    r"(\w*(Transformer|Attention|Encoder|Decoder|Mixer|Eva|Parallel|Conformer|ResidualAttention|Swin\w*)(Block|Layer)|TB|Block|\w*DecoderLayerV?)": {
        "layer"
    },
    r"(Bottleneck|BasicBlock|\w*Conv\w*(Act|Activation)|InvertedResidual|MBConv|DepthwiseSeparableConv|ResnetBlock\w*|RDB|Fire|\w*ConvNeXtBlock|CNBlock|\w*ResBlock|ResBottleneckBlock|_DenseLayer|_Transition)": {
        "convolution",
        "layer",
    },
    r"\w*(SqueezeExcit\w*|SEModule|SEBlock)": {"convolution", "feed_forward", "other"},
    r"(Mamba(Mixer|Block)?|MambaMixer)": {"state_space", "layer"},
    r"(Basic|Separable)Conv\w*|Convolution|TwoConv|Conv3XC|\w*Conv\w*(Block|ReLU|Unit)|(Dark|TDNN|MobileOne|Rep[Vv][Gg][Gg]|NormFree|Osa|NAF|DualPath)Block": {
        "convolution",
        "layer",
    },
    r"(Bottleneck(Transform|Block)|PreAct\w+|Ghost(Module|Bottleneck)|LinearBottleneck|Bottle2neck|_InvertedResidual|UniversalInvertedResidual|FusedMBConv|EdgeResidual|MBConvBlock|DenseLayer|DlaBasic|Inception\w*Block|Block(8|17|35)|SelectiveKernel\w*|RepMixer|SPAB|ResidualDenseBlock\w*|XceptionModule|\w+(Res|SE|Dense|Fire|Shuffle)\w*Unit|ResidualUnit)": {
        "convolution",
        "layer",
    },
    r"(MetaFormerBlock|FocalNetBlock|SwinTransformerBlockV2|SpatialBlock|ChannelBlock)": {"layer"},
}


class Score(NamedTuple):
    """One case: right and all leaves and blocks, the reading, and what is wrong with the outputs."""

    leaves: tuple[int, int]
    blocks: tuple[int, int]
    wrong: list[str]
    reading: str
    trouble: str


def of_class(table: dict[str, Any], name: str) -> tuple[Any, re.Match[str]] | None:
    """What a table of patterns has for a class."""
    for pattern, value in table.items():
        match = re.fullmatch(pattern, name)
        if match:
            return value, match
    return None


def leaf_kind(class_name: str) -> str | None:
    """The kind of leaf that a class is; None for one that is none."""
    found = of_class(LEAVES, class_name)
    if found is None:
        return None
    kind, match = found
    groups = [group for group in match.groups() if group]
    return (
        str(kind)
        .replace("{n}", groups[0] if groups else "")
        .replace("{0}", class_name)
        .replace("{1}", groups[0] if groups else "")
    )


def leaves(architecture: Architecture, classes: dict[str, str], shift: str) -> Iterator[tuple[bool, str]]:
    """For each key whether its kind is that of the package's module."""
    for leaf in architecture.leaves:
        for key in Leaf.keys(leaf):
            module = (shift + key).rpartition(".")[0].split(".parametrizations.")[0]
            if module not in classes:
                continue  # a second name of a module that is shared, which no list of modules has
            wanted = leaf_kind(classes.get(module, "").removeprefix("Parametrized").removeprefix("Temporal"))
            if wanted is None:
                wanted = "Parameter"
            kind = leaf.kind.removesuffix("Cell")
            is_right = (
                kind == wanted
                or {kind, wanted} <= {"Parameter", "Buffer"}
                or (wanted == "Linear" and kind == "Linear")
            )
            yield is_right, f"{key}: {leaf.kind}, is {classes.get(module, 'none')}"


def blocks(architecture: Architecture, classes: dict[str, str], shift: str) -> Iterator[tuple[bool, str]]:
    """For each module whose class says what it is whether there is a block of that kind at its name."""
    keys = [shift + key for leaf in architecture.leaves for key in Leaf.keys(leaf)]
    homes = [
        (shift + str(place), block.kind)
        for block in architecture.root.blocks()
        for place in block.home.expand()
    ]
    homes += [(shift + path, kind) for place, kind in architecture.shown.items() for path in place.expand()]
    for name, class_name in classes.items():
        wanted = of_class(BLOCKS, class_name)
        own = [key for key in keys if key.startswith(f"{name}.")]
        if wanted and wanted[0] and len(own) > 1:
            found = {kind for home, kind in homes if covers(home, name, own)}
            yield bool(found & wanted[0]), f"{name}: {sorted(found)}, is {class_name}"


def covers(home: str, name: str, own: list[str]) -> bool:
    """Whether a block stands at a module's name, or in a folder of it with most of its tensors."""
    return home == name or (
        home.startswith(f"{name}.") and 2 * sum(key.startswith(f"{home}.") for key in own) > len(own)
    )


def shifted(architecture: Architecture, classes: dict[str, str]) -> str:
    """What stands before the package's names and no longer before the keys."""
    keys = {key for leaf in architecture.leaves for key in Leaf.keys(leaf)}
    tops = {name.split(".")[0] + "." for name in classes if name} | {""}
    return max(
        sorted(tops),
        key=lambda top: sum((top + key).rpartition(".")[0] in classes for key in keys) + (top == "") * 0.5,
    )


def called(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> Any:
    """What a model gives for inputs, which are by position where names differ."""
    names = list(inspect.signature(model.forward).parameters)
    usual = {"image": "pixel_values", "text": "input_ids", "mel": "input_features", "tokens": "input_ids"}
    named = {}
    flat = {key: value for key, value in inputs.items() if not isinstance(value, dict)}
    flat |= {key: value for part in inputs.values() if isinstance(part, dict) for key, value in part.items()}
    for name, value in flat.items():
        name = usual.get(name, name)
        is_of_decoder = name == "input_ids" and "decoder_input_ids" in names and name not in inputs
        named["decoder_input_ids" if is_of_decoder else name] = value
    return model(**named) if set(named) <= set(names) else model(*flat.values())


def tensors(value: Any) -> list[torch.Tensor]:
    """Every tensor of what a model gives."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif not isinstance(value, (list, tuple)):
        value = [getattr(value, name) for name in getattr(value, "__slots__", ()) or vars(value)]
    return [
        tensor
        for item in value
        if item is not None and not isinstance(item, (str, int, float))
        for tensor in tensors(item)
    ]


def trouble(architecture: Architecture, stored: dict[str, Any]) -> str:
    """What is wrong with the outputs; "" for nothing."""
    try:
        model = build_architecture(architecture)
    except mapper.MapperError as error:
        return f"no: {error}"
    if architecture.reading == "skeleton":
        return "no: " + "; ".join(map(str, architecture.missing))
    try:
        with torch.no_grad():
            made = tensors(called(model, stored["inputs"]))
    except Exception as error:  # a model may stumble over anything: that is what is asked
        return f"RAISES {type(error).__name__}: {error}"
    wanted = [tensor for tensor in tensors(stored["outputs"]) if tensor.dim()]
    for tensor in wanted:
        near = [one for one in made if one.shape == tensor.shape]
        if not any(is_near(one, tensor) for one in near):
            if near and is_unstable(model, stored["inputs"], made):
                return "UNSTABLE: its own numbers differ as much with more digits, which shows nothing"
            return f"WRONG {[tuple(one.shape) for one in made]}, not {tuple(tensor.shape)}"
    return ""


def is_near(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two outputs are equal as far as such numbers can be."""
    return torch.allclose(one, other, atol=1e-4, rtol=1e-3)


def is_unstable(model: torch.nn.Module, inputs: dict[str, Any], made: list[torch.Tensor]) -> bool:
    """Whether a model's own outputs are others in double precision: weights that were drawn at random may blow up."""
    try:
        with torch.no_grad():
            exact = tensors(called(model.double(), doubled(inputs)))
    except Exception:  # what runs in single precision alone shows nothing here
        return False
    return any(not is_near(one.double(), other.double()) for one, other in zip(made, exact, strict=True))


def doubled(value: Any) -> Any:
    """Inputs in double precision, as deep as they are nested."""
    if isinstance(value, dict):
        return {key: doubled(part) for key, part in value.items()}
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def score(folder: Path, hints: dict[str, Any]) -> Score:
    """One case."""
    stored = torch.load(f"{folder}.io", weights_only=True)
    architecture = describe(folder, purpose="weights", hints=hints)
    classes = stored["kinds"]
    shift = shifted(architecture, classes)
    found = list(leaves(architecture, classes, shift)), list(blocks(architecture, classes, shift))
    counts = [(sum(is_right for is_right, _ in part), len(part)) for part in found]
    wrong = [text for part in found for is_right, text in part if not is_right]
    return Score(counts[0], counts[1], wrong, architecture.reading, trouble(architecture, stored))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", type=Path, help="a folder of cases")
    parser.add_argument("--hints", type=Path, metavar="FILE", help="answers for each case")
    parser.add_argument("--only", nargs="+", default=[], metavar="CASE", help="these cases")
    parser.add_argument("--wrong", action="store_true", help="list leaves and blocks of another kind")
    arguments = parser.parse_args()
    answers = yaml.safe_load(arguments.hints.read_text()) if arguments.hints else {}
    total: Counter[str] = Counter()
    for folder in sorted(path for path in arguments.cases.iterdir() if path.is_dir()):
        if arguments.only and folder.name not in arguments.only:
            continue
        try:
            found = score(folder, answers.get(folder.name, {}))
        except mapper.MapperError as error:
            print(f"{folder.name}: refused: {error}", flush=True)
            total["cases"] += 1
            total["refused"] += 1
            continue
        total.update(
            cases=1, leaves=found.leaves[1], right_leaves=found.leaves[0], blocks=found.blocks[1],
            right_blocks=found.blocks[0], equal=not found.trouble,
            exact_and_wrong=found.reading == "exact" and bool(found.trouble) and not found.trouble.startswith("UNSTABLE"),
            unstable=found.trouble.startswith("UNSTABLE"),
            wrong=found.trouble.startswith("WRONG"), unverified=found.reading == "unverified" and not found.trouble.startswith("no:"),
        )  # fmt: skip
        print(
            f"{folder.name}: {found.reading}, leaves {found.leaves[0]} of {found.leaves[1]}, blocks {found.blocks[0]} of {found.blocks[1]}, {found.trouble[:260] or 'EQUAL'}",
            flush=True,
        )
        for line in found.wrong if arguments.wrong else ():
            print("   ", line)
    print(dict(total))
    return int(total["exact_and_wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
