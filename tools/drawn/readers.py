"""Decoders that read images or sounds, in combinations that nobody published.

What an encoder makes of these is projected and stands in the places of a token among the words (papers 2304.08485,
2312.14238, 2405.02246, 2407.10759); written apart from all rules, for tools/combinations.py.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tools.drawn import decoders, speech, vision
from tools.drawn.parts import ACTIVATIONS, HIDDEN, Layers, Tensors, store
from tools.drawn.vision_towers import LAYERS, Reference, Vision, Weights

INNER, FACTOR, PLACE = 44, 2, 95  # of a projector; side of a square of patches; the token that keeps places
VISIONS = tuple(Vision.__dataclass_fields__)
PLAIN_IMAGE = Vision(
    first_norm=True, final="pooled", pooling="first", activation="quick_gelu", patch_bias=False
)


@dataclass(frozen=True)
class Draw:
    """One reader."""

    reads: str = "images"  # images, sounds
    image: Vision = PLAIN_IMAGE
    image_scheme: str = "clip"  # whose names the encoder of images has
    sound: speech.Draw = field(default_factory=lambda: speech.Draw(hears="spectra", position="stored"))
    text: decoders.Draw = field(default_factory=decoders.Draw)
    paired: bool = False  # whether frames are averaged in pairs before the encoder's last norm
    names: str = "llava"  # where the parts stand
    listed: str = ""  # parts whose own types are known: text, encoder, both
    place: str = "image_token_id"  # the field of the token
    layer: int | tuple[int, ...] | None = -2  # of the encoder, several side by side, None: its output
    strategy: bool = True  # whether the config says which positions are taken
    dropped: bool = True  # the class token, where there is one
    joined: str | None = None  # squares: pixel shuffle, rows: one behind the other, mean: of a square
    joined_field: str = "scale_factor"
    shape: str = "two"  # of the projector: one, two, gated, three: linear layers
    called: str = "linear"  # linear: linear_1, fc: fc1, numbers: 0, proj: up_proj, bare: has no folder
    bias: bool = True
    normed: str | None = None  # first, between, last: a norm of the projector
    norm: str = "layer"  # of the projector
    activation: str = "gelu"
    activation_said: bool = True
    both_ways: str | None = None  # prefix, images: what sees what stands behind it

    @property
    def frames(self) -> int:
        """Vectors of an encoder that a projector reads at once."""
        return 1 if self.joined in (None, "mean") else FACTOR**2

    @property
    def read(self) -> int:
        """Columns of what a projector reads."""
        several = len(self.layer) if isinstance(self.layer, tuple) else 1
        return HIDDEN * several * self.frames


def draw(seed: int) -> Draw:
    """The combination of a number."""
    pick = random.Random(5000 + seed).choice
    image = replace(vision.draw(seed), classes=False, timm_fields=False)
    image = image if image.scheme != "timm" else replace(image, scheme="clip")
    image = vision._sensible(replace(image, height=16, width=16))
    reads = pick(("images", "images", "images", "sounds"))
    found = Draw(
        reads=reads,
        image=pick((PLAIN_IMAGE, Vision(**{name: getattr(image, name) for name in VISIONS}))),
        image_scheme=image.scheme,
        sound=_sound(seed, pick),
        text=pick((_plain_text(pick), decoders.draw(seed))),
        paired=pick((False, False, True)),
        names=pick(("llava", "old", "idefics", "intern", "flat", "visual")),
        listed=pick(("", "", "text", "encoder", "both")),
        place=pick(("{}_token_id", "{}_token_index")).format("image" if reads == "images" else "audio"),
        layer=pick((-2, -2, -1, (-3, -1), None, None)),
        strategy=pick((True, True, False)),
        dropped=pick((True, True, False)),
        joined=pick((None, None, None, "squares", "squares", "rows", "mean")),
        joined_field=pick(("scale_factor", "downsample_ratio", "downsample_factor", "spatial_merge_size")),
        shape=pick(("one", "two", "two", "two", "gated", "three")),
        called=pick(("linear", "linear", "fc", "numbers", "proj", "bare")),
        bias=pick((True, True, False)),
        normed=pick((None, None, None, "first", "between", "last")),
        norm=pick(("layer", "layer", "rms")),
        activation=pick(("gelu", "gelu", "silu", "relu", "gelu_pytorch_tanh")),
        activation_said=pick((True, True, True, False)),
        both_ways=pick((*[None] * 6, "prefix", "images")),
    )  # fmt: skip
    return _sensible(found)


def _plain_text(pick: Any) -> decoders.Draw:
    """A decoder as llama, with or without biases of queries."""
    return decoders.Draw(
        kv_heads=pick((4, 2)), tied=pick((True, False)), eps=pick((1e-5, 1e-6)), base=pick((10000.0, 500000.0))
    )  # fmt: skip


def _sound(seed: int, pick: Any) -> speech.Draw:
    plain = speech.Draw(hears="spectra", position="stored", key_bias=False)
    drawn = replace(speech.draw(seed), hears="spectra")
    drawn = replace(drawn, position="stored" if drawn.position != "rotary" else "rotary")
    return pick((plain, speech._sensible(replace(drawn, tied=True, scaled=False))))


def _sensible(found: Draw) -> Draw:
    """Without what cannot be together, or has no names."""
    found = replace(found, image_scheme="clip" if found.image == PLAIN_IMAGE else found.image_scheme)
    if found.reads == "sounds":
        found = replace(
            found, layer=None, joined=None if found.joined in ("squares", "mean") else found.joined
        )
    has_class = found.reads == "images" and found.image.class_token
    if found.image.registers or not has_class:
        found = replace(found, dropped=False)
    if found.layer is None or not found.strategy:
        found = replace(
            found, strategy=False, dropped=has_class and found.layer is not None and not found.image.registers
        )
    if found.joined and found.reads == "images":  # of a square without a token before it
        found = replace(found, image=replace(found.image, registers=False))
        if not found.dropped:
            found = replace(
                found, image=replace(found.image, class_token=False, position=_without(found.image))
            )
    if not found.image.class_token and found.image.final == "pooled":  # nothing would be read behind its norm
        found = replace(found, image=replace(found.image, final="positions", pooling=None))
    paired = found.paired and found.reads == "sounds" and found.joined != "rows"
    found = replace(found, paired=paired, norm="layer" if found.text.norm == "scale" else found.norm)
    if found.text.scheme != "llama" and found.names not in ("old", "intern"):
        found = replace(found, text=_plain_text(random.Random(0).choice))
    found = replace(found, listed=_listed(found))
    if found.shape not in ("one", "two") and found.called in ("fc", "proj"):
        found = replace(found, called="proj" if found.shape == "gated" else "linear")
    if found.shape == "gated":
        found = replace(found, called="proj")
    if found.shape == "one":
        found = replace(
            found, called=found.called if found.called in ("linear", "bare", "proj") else "linear"
        )
    elif found.called == "bare":
        found = replace(found, called="numbers")
    if found.normed == "between" and found.shape != "two":
        found = replace(found, normed="first")
    if found.called == "bare":
        found = replace(found, normed=None)
    if found.both_ways and (found.text.window or found.reads == "sounds"):
        found = replace(found, both_ways=None)
    return replace(found, activation_said=found.activation_said or found.shape == "one")


def _without(image: Vision) -> str:
    """The positions of an encoder without a class token."""
    return "patches" if image.position in ("learned", "both") else image.position


def _listed(found: Draw) -> str:
    """The parts that are what the type beside them says."""
    text = decoders.Draw(
        kv_heads=found.text.kv_heads, tied=found.text.tied, eps=found.text.eps, base=found.text.base
    )
    is_text = found.text == text and found.listed in ("text", "both") and not found.both_ways
    plain = speech.Draw(hears="spectra", position="stored", key_bias=False)
    heard = found.sound == plain and found.paired
    known = found.image == PLAIN_IMAGE if found.reads == "images" else heard
    is_encoder = known and found.listed in ("encoder", "both")
    return "both" if is_text and is_encoder else "text" if is_text else "encoder" if is_encoder else ""


class Seen(Reference):
    """What an encoder gives: images (B, 3, height, width) -> states (B, T, HIDDEN) behind each layer, the output last."""

    def states(self, images: Tensor) -> list[Tensor]:
        found = [self.embedded(images)]
        for layer in range(LAYERS):
            found.append(self.layer(f"layers.{layer}.", found[-1]))
        return [*found, self.norm("final_norm", found[-1]) if self.one.final == "positions" else found[-1]]


class Heard(speech.Reference):
    """What an encoder gives: spectra (B, BANDS, FRAMES) -> states (B, T, HIDDEN)."""

    paired: bool

    def norm(self, name: str, x: Tensor) -> Tensor:
        if self.paired and name == "heard.encoder.layer_norm":
            x = x.unflatten(1, (-1, 2)).mean(dim=2)
        return super().norm(name, x)


class Projector(Layers):
    """States (B, T, read) -> vectors (B, T, HIDDEN) of the width of the words."""

    one: Draw

    def __call__(self, x: Tensor) -> Tensor:
        one, act = self.one, ACTIVATIONS[self.one.activation]
        x = self.normed("first", x)
        match one.shape:
            case "one":
                x = self.linear("linear", x)
            case "gated":
                x = self.linear("down", act(self.linear("gate", x)) * self.linear("up", x))
            case "two":
                x = self.linear("down", act(self.normed("between", self.linear("up", x))))
            case "three":
                x = self.linear("down", act(self.linear("middle", act(self.linear("up", x)))))
        return self.normed("last", x)

    eps = 1e-5

    def normed(self, place: str, x: Tensor) -> Tensor:
        return self.norm("norm", x) if self.one.normed == place else x

    def layer_norm(self, name: str, x: Tensor, eps: float | None = None) -> Tensor:
        return super().layer_norm(name, x, self.eps)

    def root_mean_square(self, name: str, x: Tensor) -> Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x * scale * self.tensors[f"{name}.weight"]


def projector_tensors(one: Draw, generator: torch.Generator) -> dict[str, Tensor]:
    weights = Tensors(one, generator)
    sizes = {"first": one.read, "between": INNER, "last": HIDDEN}
    if one.shape == "one":
        weights.linear("linear", HIDDEN, one.read, one.bias)
    for name, rows, columns in (
        ("gate", INNER, one.read), ("up", INNER, one.read), ("middle", INNER, INNER), ("down", HIDDEN, INNER)
    ):  # fmt: skip
        is_there = {"gate": one.shape == "gated", "middle": one.shape == "three"}.get(
            name, one.shape != "one"
        )
        if is_there:
            weights.linear(name, rows, columns, one.bias)
    if one.normed:
        weights.norm("norm", sizes[one.normed])
    return weights.tensors


class Read(decoders.Reference):
    """Token ids (B, T) and vectors (B, N, HIDDEN) -> logits (B, T, WORDS)."""

    both_ways: str | None = None
    vectors: Tensor

    def read(self, x: Tensor, ids: Tensor) -> Tensor:
        self.ids = ids
        return x.masked_scatter((ids == PLACE)[..., None], self.vectors)

    def seen(self, layer: int, length: int) -> Tensor:
        found = super().seen(layer, length)
        if self.both_ways == "images":
            inside = self.ids == PLACE
            return found | (inside[:, None, :, None] & inside[:, None, None])
        if self.both_ways == "prefix":
            before = torch.arange(length) < length - 3
            return found | (before[:, None] & before)
        return found


def features(one: Draw, reference: Any, given: Tensor) -> Tensor:
    """What a projector reads (B, T, read)."""
    if one.reads == "sounds":
        reference.paired = one.paired
        x = reference.heard(given)
    else:
        states = reference.states(given)
        layers = one.layer if isinstance(one.layer, tuple) else (one.layer,)
        # the output is not among the states of layers
        x = torch.cat([states[-1] if layer is None else states[layer - 1] for layer in layers], dim=-1)
        x = x[:, 1:] if one.dropped else x
    return arranged(one, x)


def arranged(one: Draw, x: Tensor) -> Tensor:
    side = int(x.shape[1] ** 0.5)
    if one.joined == "rows":
        return x.reshape(len(x), -1, one.read)
    if one.joined in ("squares", "mean"):
        squares = x.unflatten(1, (side // FACTOR, FACTOR, side // FACTOR, FACTOR)).transpose(2, 3)
        return (
            squares.mean(dim=(3, 4)).flatten(1, 2)
            if one.joined == "mean"
            else squares.flatten(3).flatten(1, 2)
        )
    return x


NAMES = {  # where parts stand: the encoder, the projector, the decoder without and with its own folder, its head
    "llava": ("model.vision_tower.", "model.multi_modal_projector.", "model.language_model.", None, "lm_head."),
    "old": ("vision_tower.", "multi_modal_projector.", None, "language_model.", "language_model.lm_head."),
    "idefics": ("model.vision_model.", "model.connector.", "model.text_model.", None, "lm_head."),
    "intern": ("vision_model.", "mlp1.", None, "language_model.", "language_model.lm_head."),
    "flat": ("model.vision_tower.", "model.mm_projector.", "model.", None, "lm_head."),
    "visual": ("model.visual.", "model.visual_projector.", "model.language_model.", None, "lm_head."),
}  # fmt: skip
NAMES_OF_SOUNDS = {
    "vision_tower": "audio_tower",
    "vision_model": "audio_encoder",
    "visual": "audio",
    "mlp1": "audio_projector",
}
PROJECTORS = {  # names of layers
    "linear": {"up": "linear_1", "middle": "linear_2", "down": "linear_2", "linear": "linear", "norm": "norm"},
    "fc": {"up": "fc1", "down": "fc2", "norm": "norm"},
    "proj": {"gate": "gate_proj", "up": "up_proj", "down": "down_proj", "norm": "norm",
             "linear": "modality_projection.proj"},
    "bare": {"linear": ""},
}  # fmt: skip


def projector_name(name: str, one: Draw) -> str:
    part, _, leaf = name.partition(".")
    if one.called == "numbers":
        return f"{_numbers(one)[part]}.{leaf}"
    table = PROJECTORS[one.called] | ({"down": "linear_3"} if one.shape == "three" else {})
    return ".".join(filter(None, (table[part], leaf)))


def _numbers(one: Draw) -> dict[str, int]:
    """The places of layers in a row of modules, of which activations have some."""
    row = {
        "two": ["up", "", "down"], "three": ["up", "", "middle", "", "down"], "one": ["linear"],
    }[one.shape]  # fmt: skip
    if one.normed:
        row.insert({"first": 0, "between": 1, "last": len(row)}[one.normed], "norm")
    return {part: at for at, part in enumerate(row) if part}


def prefixes(one: Draw) -> tuple[str, ...]:
    found = NAMES[one.names]
    if one.reads == "images":
        return tuple(part or "" for part in found)
    swapped = NAMES_OF_SOUNDS
    return tuple(".".join(swapped.get(word, word) for word in (part or "").split(".")) for part in found)


def text_name(name: str, one: Draw) -> str:
    """A tensor of the decoder, where it stands in the whole."""
    _, _, inside, around, head = prefixes(one)
    found = decoders.renamed(name, one.text.scheme)
    if around:
        return around + found
    return (
        head + found.removeprefix("lm_head.")
        if found.startswith("lm_head.")
        else inside + found.removeprefix("model.")
    )


def config(one: Draw) -> dict[str, Any]:
    """What a class of the model hub would have written of a draw."""
    of_text = decoders.config(one.text)
    del of_text["architectures"]
    of_text["model_type"] = "llama" if one.listed in ("text", "both") else "unheard_of_text"
    is_listed = one.listed in ("encoder", "both")
    if one.both_ways:
        of_text["use_bidirectional_attention"] = True
    if one.reads == "images":
        part = vision.settings(one.image) | {
            "model_type": "clip_vision_model" if is_listed else "unheard_of_vision"
        }
    else:
        part = speech.config(one.sound) | {
            "model_type": "qwen2_audio_encoder" if is_listed else "unheard_of_audio"
        }
        dropped = ("architectures", "vocab_size", "max_target_positions", "tie_word_embeddings", "decoder_start_token_id",
                   "is_encoder_decoder", "pad_token_id")  # fmt: skip
        part = {
            name: value
            for name, value in part.items()
            if name not in dropped and not name.startswith("decoder")
        }
    found: dict[str, Any] = {
        "model_type": "unheard_of", "architectures": ["UnheardOfForConditionalGeneration"], "text_config": of_text,
        ("vision" if one.reads == "images" else "audio") + "_config": {k: v for k, v in part.items() if v is not None},
        one.place: PLACE, "tie_word_embeddings": one.text.tied,
        "projector_hidden_act": one.activation if one.activation_said and one.shape != "one" else None,
        "vision_feature_layer": list(one.layer) if isinstance(one.layer, tuple) else one.layer,
        "vision_feature_select_strategy": ("default" if one.dropped else "full") if one.strategy else None,
        "multimodal_projector_bias": one.bias, **_joined(one),
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def _joined(one: Draw) -> dict[str, Any]:
    if one.joined == "mean":
        return {"mm_tokens_per_image": one.image.places // FACTOR**2}
    if one.joined in (None, "rows"):
        return {"stack_factor": FACTOR**2} if one.joined and one.reads == "sounds" else {}
    return {one.joined_field: 1 / FACTOR if one.joined_field == "downsample_ratio" else FACTOR}


def truth(one: Draw) -> dict[str, Any]:
    """What a reader answers to what may be asked of it."""
    of_text = decoders.truth(one.text) | {
        "attention.bidirectional_blocks": one.both_ways,
        "pooling": None,
        "features.scaled": "tokens",
    }
    if one.reads == "images":
        of_encoder, part = vision.truth_of_layers(one.image) | {"pooling": None}, "vision"
    else:
        of_encoder, part = speech.truth(one.sound) | {"norm.final": "positions"}, "audio"
    named = {f"text:{name}": value for name, value in of_text.items()}
    named |= {f"{part}:{name}": value for name, value in of_encoder.items()}
    return of_text | named | truth_of_projector(one)


def truth_of_projector(one: Draw) -> dict[str, Any]:
    is_several = isinstance(one.layer, tuple)
    return {
        "features": one.reads,
        "features.layout": "several"
        if is_of_several(one)
        else "row"
        if one.strategy and not one.joined
        else "each",
        "features.select": "output" if one.layer is None else "patches" if one.dropped else "all",
        "features.layer": one.layer,
        "features.layers": "several" if is_several else "one",
        "features.audio_select": "all",
        "features.positions": None,
        "frames.halvings": 1,
        "norm.weights": True,
        "head.scale": 1 / (one.text.divisor or 1.0),
        "frames.paired": one.paired,
        "frames.joined": one.frames,
        "projector.shuffle": one.joined == "squares",
        "projector.factor": FACTOR,
        "projector.frames": "joined" if one.joined == "rows" else "single",
        "projector.activation": one.activation,
        "projector.last_activation": False,
        "projector.placement": one.normed,
        "projector:norm.eps": Projector.eps,
        "norm.kind": "RMSNorm" if "rms" in (one.normed and one.norm, one.text.norm) else "LayerNorm",
        "projector:feed_forward.activation": one.activation,
    }


def is_of_several(one: Draw) -> bool:  # paper 2408.12637, whose field it is
    return (one.reads, one.joined, one.joined_field, one.layer) == ("images", "squares", "scale_factor", None)


def write(one: Draw, folder: Path, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The checkpoint of a reader; its inputs, token ids and images or spectra of two texts; its output, the logits."""
    generator = torch.Generator().manual_seed(seed)
    encoder, projector, *_ = prefixes(one)
    words = decoders.Weights(one.text, generator).all()
    found = {text_name(name, one): tensor for name, tensor in words.items()}
    if one.reads == "images":
        seen = Weights(one.image, generator).all()
        reference: Any = Seen(one.image, seen)
        found |= {
            encoder + name: tensor
            for name, tensor in vision.stored(one.image, seen, one.image_scheme).items()
        }
        given = torch.randn(2, 3, one.image.height, one.image.width, generator=generator)
    else:
        weights = speech.Weights(one.sound, generator)
        weights.ears()
        reference = Heard(one.sound, weights.tensors)
        for name, tensor in weights.tensors.items():
            found[encoder + speech.renamed(name, one.sound).removeprefix("model.encoder.")] = tensor
        given = torch.randn(2, speech.BANDS, speech.FRAMES, generator=generator)
    maps = projector_tensors(one, generator)
    found |= {projector + projector_name(name, one): tensor for name, tensor in maps.items()}
    store(folder, {name: tensor.contiguous() for name, tensor in found.items()}, config(one))
    vectors = Projector(one, maps)(features(one, reference, given))
    ids = torch.randint(0, PLACE, (2, vectors.shape[1] + 5), generator=generator)
    ids[:, 1 : 1 + vectors.shape[1]] = PLACE
    model = Read(one.text, words)
    model.both_ways, model.vectors = one.both_ways, vectors
    return inputs(one, ids, given), {"logits": model(ids)}


def inputs(one: Draw, ids: Tensor, given: Tensor) -> dict[str, Tensor]:
    if one.reads == "sounds":
        return {"input_ids": ids, "input_features": given}
    found = {"input_ids": ids, "pixel_values": given[:, None] if is_of_several(one) else given}
    if one.both_ways == "images":
        return found | {"token_type_ids": (ids == PLACE).long()}
    if one.both_ways == "prefix":
        behind = torch.arange(ids.shape[1]) >= ids.shape[1] - 3
        return found | {"token_type_ids": behind.long().expand_as(ids)}
    return found
