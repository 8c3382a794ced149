"""Pairs of an encoder of images and one of texts, whose vectors are compared, in combinations that nobody published."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tools.drawn import vision
from tools.drawn.parts import HIDDEN, store
from tools.drawn.vision import called, settings, stored, truth_of_layers
from tools.drawn.vision_towers import LAYERS, Reference, Vision, Weights

WORDS, POSITIONS, PROJECTION, END = 97, 12, 20, 96


@dataclass(frozen=True)
class Draw:
    """One pair."""

    image: Vision = field(default_factory=lambda: Vision(pooling="first"))
    text: Vision = field(default_factory=lambda: Vision(class_token=False))  # of which the layers count
    scheme: str = "clip"  # whose names the image's encoder has
    causal: bool = True
    read: str = "end"  # which state of a text: end, last, first, mean
    projected: bool = True  # both vectors, without biases
    text_bias: bool = False  # of the text's projection
    bias: bool = False  # beside the scale


def draw(seed: int) -> Draw:
    """The combination of a number."""
    pick = random.Random(seed).choice
    image = replace(
        vision.draw(seed), classes=False, timm_fields=False, placement="pre",
        scheme=pick(("clip", "clip", "dinov2", "modern")),
        pooling=pick(("first", "first", "mean", "probe")),
        final=pick(("positions", "pooled")),
    )  # fmt: skip
    image = vision._sensible(image)
    image = replace(image, pooling=image.pooling or "mean")  # some vector is compared
    text = Vision(
        class_token=False,
        norm=image.norm,
        eps=image.eps,
        query_norm=pick((None, None, "head")),
        query_bias=pick((True, True, False)),
        inner_bias=pick((True, True, False)),
        gated=image.gated,
        activation=image.activation,
    )
    causal = pick((True, False))
    return Draw(
        image=Vision(**{name: getattr(image, name) for name in Vision.__dataclass_fields__}),
        text=text,
        scheme=image.scheme,
        causal=causal,
        read=pick(("end", "last", "mean") if causal else ("first", "last", "mean", "end")),
        projected=pick((True, True, False)),
        text_bias=pick((False, False, True)),
        bias=pick((False, True)),
    )


class Texts(Reference):
    """Token ids (B, T) -> states (B, T, HIDDEN) and those that are read (B, HIDDEN)."""

    def __init__(self, pair: Draw, tensors: dict[str, Tensor]):
        super().__init__(pair.text, tensors)
        self.pair = pair

    def embedded(self, ids: Tensor) -> Tensor:
        self.ids = ids
        return self.tensors["words"][ids] + self.tensors["positions"][: ids.shape[1]]

    def masked(self, scores: Tensor) -> Tensor:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(later, -torch.inf) if self.pair.causal else scores

    def pooled(self, x: Tensor) -> Tensor:
        match self.pair.read:
            case "first":
                return x[:, 0]
            case "last":
                return x[:, -1]
            case "mean":
                return x.mean(dim=1)
        return x[torch.arange(len(x)), (self.ids == END).long().argmax(dim=1)]


TEXT_NAMES = {
    "words": "embeddings.token_embedding.weight",
    "positions": "embeddings.position_embedding.weight",
}


def text_tensors(pair: Draw, generator: torch.Generator) -> dict[str, Tensor]:
    weights = Weights(pair.text, generator)
    weights.tensors["words"] = weights.drawn(WORDS, HIDDEN)
    weights.tensors["positions"] = weights.drawn(POSITIONS, HIDDEN)
    for layer in range(LAYERS):
        weights.layer(f"layers.{layer}.")
    weights.norm("final_norm")
    return weights.tensors


def text_name(name: str, pair: Draw) -> str:
    return TEXT_NAMES.get(name) or called(name, pair.text, "clip").replace(
        "post_layernorm", "final_layer_norm"
    )


def config(pair: Draw) -> dict[str, Any]:
    of_text = settings(pair.text) | {"model_type": "unheard_of_text_model", "vocab_size": WORDS}
    of_text |= {"max_position_embeddings": POSITIONS, "eos_token_id": END, "projection_dim": PROJECTION}
    for name in ("image_size", "patch_size", "num_channels"):
        del of_text[name]
    of_image = settings(pair.image) | {"model_type": "unheard_of_vision_model", "projection_dim": PROJECTION}
    parts = {"text_config": of_text, "vision_config": of_image}
    kept = {
        key: {name: value for name, value in part.items() if value is not None} for key, part in parts.items()
    }
    return kept | {
        "model_type": "unheard_of",
        "architectures": ["UnheardOfModel"],
        "projection_dim": PROJECTION,
        "logit_scale_init_value": 2.6592,
    }


def truth(pair: Draw) -> dict[str, Any]:
    """What a pair answers to what may be asked of it."""
    of_image = truth_of_layers(pair.image) | {"pooling": vision.pooling_of(pair.image)}
    of_text = {
        "attention.causal": pair.causal,
        "attention.masked": True,
        "pooling": pair.read,
        "norm.final": "positions",
        "rotary": False,
        "norm.placement": "pre",
        "norm.kind": of_image["norm.kind"],
        "norm.offset": False,
        "norm.eps": pair.text.eps,
        "embedding.scale": None,
        "feed_forward.activation": pair.text.activation,
        "attention.norms": "before_rotary" if pair.text.query_norm else None,
    }
    named = {
        f"{part}:{name}": value
        for part, facts in (("vision", of_image), ("text", of_text))
        for name, value in facts.items()
    }
    return of_image | named | {"similarity.scaling": "exponential"}


def write(pair: Draw, folder: Path, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The checkpoint of a pair; its inputs, images (2, 3, height, width) and token ids (2, 9); its outputs by name."""
    generator = torch.Generator().manual_seed(seed)
    weights = Weights(pair.image, generator)
    of_image, of_text = weights.all(), text_tensors(pair, generator)
    found = {
        f"vision_model.{name}": value for name, value in stored(pair.image, of_image, pair.scheme).items()
    }
    found |= {f"text_model.{text_name(name, pair)}": value for name, value in of_text.items()}
    images = torch.randn(2, 3, pair.image.height, pair.image.width, generator=generator)
    ids = torch.randint(0, END, (2, 9), generator=generator)
    ids[0, 6], ids[1, 8] = END, END
    image, words = Reference(pair.image, of_image)(images)[1], Texts(pair, of_text)(ids)[1]
    scale = found["logit_scale"] = torch.tensor(1.5)
    if pair.projected:
        for name, biased in (("visual_projection", False), ("text_projection", pair.text_bias)):
            found[f"{name}.weight"] = weights.drawn(PROJECTION, HIDDEN)
            if biased:
                found[f"{name}.bias"] = weights.drawn(PROJECTION)
        image = F.linear(image, found["visual_projection.weight"])
        words = F.linear(words, found["text_projection.weight"], found.get("text_projection.bias"))
    image, words = F.normalize(image, dim=-1), F.normalize(words, dim=-1)
    logits = words @ image.T * scale.exp()
    if pair.bias:
        found["logit_bias"] = torch.tensor([-0.7])
        logits = logits + found["logit_bias"]
    store(folder, {name: tensor.contiguous() for name, tensor in found.items()}, config(pair))
    wanted = {
        "logits_per_text": logits,
        "logits_per_image": logits.T,
        "image_embeds": image,
        "text_embeds": words,
    }
    return {"pixel_values": images, "input_ids": ids}, wanted
