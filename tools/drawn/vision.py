"""Encoders of images of known pieces in combinations that nobody published: names, config, and what they give.

What they compute is in vision_towers.py, apart from all rules, for tools/combinations.py.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tools.drawn.parts import HIDDEN, store
from tools.drawn.vision_towers import (
    CLASSES,
    HEADS,
    INNER,
    LAYERS,
    PATCH,
    REGISTERS,
    Reference,
    Vision,
    Weights,
)


@dataclass(frozen=True)
class Draw(Vision):
    """One combination."""

    scheme: str = "vit"  # whose names: vit, clip, dinov2, timm, modern
    classes: bool = False  # a classifier, or the states and a vector
    timm_fields: bool = False  # whose names the config's fields have


def draw(seed: int) -> Draw:
    """The combination of a number."""
    pick = random.Random(seed).choice
    found = Draw(
        scheme=pick(("vit", "clip", "dinov2", "timm", "modern")),
        classes=pick((False, True)),
        timm_fields=pick((False, True)),
        norm=pick(("layer", "layer", "rms")),
        eps=pick((1e-5, 1e-6, 1e-12)),
        placement=pick(("pre", "pre", "pre", "sandwich", "after")),
        first_norm=pick((False, False, True)),
        final=pick(("positions", "positions", "pooled", "none")),
        class_token=pick((True, True, False)),
        registers=pick((False, False, True)),
        position=pick(("learned", "learned", "patches", "rotary", "both", "waves")),
        base=pick((10000.0, 100.0)),
        style=pick(("half", "interleaved")),
        axes=pick(("halves", "halves", "split")),
        coordinates=pick(("counted", "centred")),
        query_norm=pick((None, None, "head", "wide")),
        query_bias=pick((True, True, False)),
        output_bias=pick((True, True, False)),
        inner_bias=pick((True, True, False)),
        fused=pick((False, False, True)),
        head_dim=pick((8, 8, 8, 16)),
        gated=pick((False, False, True)),
        gate_fused=pick((False, True)),
        activation=pick(("gelu", "gelu_pytorch_tanh", "quick_gelu", "silu", "relu")),
        layer_scale=pick((False, False, True)),
        patch_bias=pick((True, False)),
        height=pick((16, 24)),
        width=pick((16, 16, 32)),
        pooling=pick((None, "first", "first", "mean", "all", "both", "dense", "probe")),
    )
    return _sensible(found)


def _sensible(found: Draw) -> Draw:
    """Without what cannot be together, or has no names in a scheme."""
    if found.scheme != "modern":
        found = replace(found, placement="pre")
    found = replace(found, fused=True) if found.scheme == "timm" else replace(found, timm_fields=False)
    if found.fused and found.query_norm == "wide":
        found = replace(found, query_norm="head")
    if not found.class_token and found.pooling in ("first", "both", "dense"):
        found = replace(found, pooling="mean")
    if found.classes and found.pooling is None:
        found = replace(found, pooling="first" if found.class_token else "mean")
    if found.pooling == ("dense" if found.classes else "both"):
        found = replace(found, pooling="first")
    if found.pooling == "all" and (found.leading == 0 or found.scheme == "timm"):
        found = replace(found, pooling="mean")
    found = _conventional(found)
    if found.final == "pooled" and found.pooling not in ("first", "mean", "all"):
        found = replace(found, final="positions")
    if found.final == "none" and found.placement == "after":
        found = replace(found, final="positions")
    if found.scheme == "timm" and found.final == "pooled":
        found = replace(found, pooling="mean")
    if found.position == "learned" and not found.class_token:
        found = replace(found, position="patches")
    if found.axes == "split":
        found = replace(found, coordinates="counted")
    if not found.rotates:
        plain = Vision()
        found = replace(
            found, style=plain.style, axes=plain.axes, coordinates=plain.coordinates, base=plain.base
        )
    return replace(found, gate_fused=found.gate_fused and found.gated)


def _conventional(found: Draw) -> Draw:
    """With the vector that all published models of a scheme's names have, where they agree."""
    is_known = (
        found.scheme in ("clip", "dinov2")
        and found.class_token
        and found.pooling not in ("both", "dense", "probe")
    )
    if found.classes:
        has_table = found.position in ("learned", "both", "patches")
        is_plain = (
            found.scheme in ("vit", "dinov2") and found.class_token and not found.registers and has_table
        )
        return replace(found, pooling="first") if is_plain and found.pooling in ("mean", "all") else found
    if is_known:
        return replace(found, pooling="first", final="positions" if found.scheme == "dinov2" else found.final)
    if not (found.class_token or found.registers):
        return replace(found, pooling=None if found.pooling == "mean" else found.pooling)
    return found


NAMES = {  # of parts, as schemes have them
    "vit": {
        "patch": "embeddings.patch_embeddings.projection", "class": "embeddings.cls_token",
        "registers": "embeddings.register_tokens", "positions": "embeddings.position_embeddings",
        "first_norm": "embeddings.layernorm", "layers": "encoder.layer", "norm1": "layernorm_before",
        "norm2": "layernorm_after", "q": "attention.attention.query", "k": "attention.attention.key",
        "v": "attention.attention.value", "qkv": "attention.attention.qkv", "o": "attention.output.dense",
        "q_norm": "attention.attention.q_norm", "k_norm": "attention.attention.k_norm", "scale1": "layer_scale1.lambda1",
        "scale2": "layer_scale2.lambda1", "gate": "gate.dense", "up": "intermediate.dense", "down": "output.dense",
        "gate_up": "intermediate.gate_up_proj", "final_norm": "layernorm", "pooled_norm": "layernorm",
        "pooler": "pooler.dense",
    },
    "clip": {
        "patch": "embeddings.patch_embedding", "class": "embeddings.class_embedding",
        "registers": "embeddings.register_tokens", "positions": "embeddings.position_embedding.weight",
        "first_norm": "pre_layrnorm", "layers": "encoder.layers", "norm1": "layer_norm1", "norm2": "layer_norm2",
        "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "qkv": "self_attn.qkv_proj",
        "o": "self_attn.out_proj", "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm", "scale1": "ls1",
        "scale2": "ls2", "gate": "mlp.gate_proj", "up": "mlp.fc1", "down": "mlp.fc2", "gate_up": "mlp.gate_up_proj",
        "final_norm": "post_layernorm", "pooled_norm": "post_layernorm", "pooler": "pooler.dense",
    },
    "dinov2": {
        "patch": "embeddings.patch_embeddings.projection", "class": "embeddings.cls_token",
        "registers": "embeddings.register_tokens", "positions": "embeddings.position_embeddings",
        "first_norm": "embeddings.norm", "layers": "encoder.layer", "norm1": "norm1", "norm2": "norm2",
        "q": "attention.attention.query", "k": "attention.attention.key", "v": "attention.attention.value",
        "qkv": "attention.attention.qkv", "o": "attention.output.dense", "q_norm": "attention.attention.q_norm",
        "k_norm": "attention.attention.k_norm", "scale1": "layer_scale1.lambda1", "scale2": "layer_scale2.lambda1",
        "gate": "mlp.gate_proj", "up": "mlp.fc1", "down": "mlp.fc2", "gate_up": "mlp.weights_in",
        "final_norm": "layernorm", "pooled_norm": "layernorm", "pooler": "pooler.dense",
    },
    "timm": {
        "patch": "patch_embed.proj", "class": "cls_token", "registers": "reg_token", "positions": "pos_embed",
        "first_norm": "norm_pre", "layers": "blocks", "norm1": "norm1", "norm2": "norm2", "qkv": "attn.qkv",
        "o": "attn.proj", "q_norm": "attn.q_norm", "k_norm": "attn.k_norm", "scale1": "ls1.gamma",
        "scale2": "ls2.gamma", "gate": "mlp.fc1_g", "up": "mlp.fc1", "down": "mlp.fc2", "gate_up": "mlp.w12",
        "final_norm": "norm", "pooled_norm": "fc_norm", "pooler": "pooler.dense",
    },
    "modern": {
        "patch": "embeddings.patch_embeddings", "class": "embeddings.cls_token",
        "registers": "embeddings.register_tokens", "positions": "embeddings.position_embeddings",
        "first_norm": "pre_layernorm", "layers": "layers", "norm1": "input_layernorm", "norm2": "post_attention_layernorm",
        "after1": "post_attention_layernorm", "after2": "post_feedforward_layernorm", "q": "self_attn.q_proj",
        "k": "self_attn.k_proj", "v": "self_attn.v_proj", "qkv": "self_attn.qkv_proj", "o": "self_attn.o_proj",
        "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm", "scale1": "layer_scale1.lambda1",
        "scale2": "layer_scale2.lambda1", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
        "gate_up": "mlp.gate_up_proj", "final_norm": "norm", "pooled_norm": "norm", "pooler": "pooler.dense",
    },
}  # fmt: skip
PROBES = {
    "probe": "head.probe", "probe_in": "head.attention.in_proj", "probe_out": "head.attention.out_proj",
    "probe_norm": "head.layernorm", "probe_up": "head.mlp.fc1", "probe_down": "head.mlp.fc2",
}  # fmt: skip
BETWEEN = {
    "vit": {
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
        "gate": "mlp.gate_proj",
        "gate_up": "mlp.gate_up_proj",
    }
}
# what gated networks are called where others are called otherwise
GATED = {
    "clip": {"up": "mlp.up_proj", "down": "mlp.down_proj"},
    "dinov2": {"up": "mlp.up_proj", "down": "mlp.down_proj"},
    "timm": {"up": "mlp.fc1_x"},
    **BETWEEN,
}
FUSED = {"dinov2": {"down": "mlp.weights_out"}, "timm": {"down": "mlp.w3"}}


def called(name: str, one: Vision, scheme: str) -> str:
    """A tensor's name in a scheme."""
    names = NAMES[scheme] | PROBES
    if one.gated:
        names |= GATED.get(scheme, {}) | (FUSED.get(scheme, {}) if one.gate_fused else {})
    if one.placement == "sandwich":
        names["norm2"] = "pre_feedforward_layernorm"
    start, _, rest = name.partition(".")
    if start != "layers":
        return ".".join(filter(None, (names[start], rest))).replace("in_proj.", "in_proj_")
    number, _, rest = rest.partition(".")
    part, _, rest = rest.partition(".")
    return ".".join(filter(None, (names["layers"], number, names[part], rest)))


def stored(one: Vision, tensors: dict[str, Tensor], scheme: str) -> dict[str, Tensor]:
    """The tensors by their names and in the shapes of a scheme."""
    found = {}
    for name, tensor in tensors.items():
        is_bare = name in ("class", "positions", "registers", "probe")
        if name in ("class", "probe") and not (scheme == "clip" and name == "class"):
            tensor = tensor[None]
        if is_bare and not (scheme == "clip" and name in ("class", "positions")):
            tensor = tensor[None]
        found[called(name, one, scheme)] = tensor
    return found


def prefixed(one: Draw) -> str:
    if one.scheme == "clip":
        return "vision_model."
    return "unheard_of." if one.classes and one.scheme != "timm" else ""


HEAD_NAMES = {"timm": "head"}


def settings(one: Vision) -> dict[str, Any]:
    """The fields of an encoder, as a class of the model hub would have written them; None: it has none."""
    return {
        "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "intermediate_size": INNER,
        "hidden_act": one.activation, "rms_norm_eps" if one.norm == "rms" else "layer_norm_eps": one.eps,
        "image_size": one.height if one.height == one.width else [one.height, one.width], "patch_size": PATCH,
        "num_channels": 3, "qkv_bias": one.query_bias, "head_dim": None if one.head_dim == HIDDEN // HEADS else one.head_dim,
        "num_register_tokens": REGISTERS if one.registers else None, "rope_theta": one.base if one.rotates else None,
        "layerscale_value": 1.0 if one.layer_scale else None, "use_qk_norm": True if one.query_norm else None,
        "attention_dropout": 0.0, "initializer_range": 0.02,
    }  # fmt: skip


TIMM_FIELDS = {
    "hidden_size": "embed_dim", "num_attention_heads": "num_heads", "num_hidden_layers": "depth",
    "image_size": "img_size", "num_channels": "in_chans", "layerscale_value": "init_values",
}  # fmt: skip


def config(one: Draw) -> dict[str, Any]:
    """What a class of the model hub would have written of a draw."""
    found = settings(one)
    if one.timm_fields:
        del found["intermediate_size"]
        found = {TIMM_FIELDS.get(name, name): value for name, value in found.items()} | {
            "mlp_ratio": INNER / HIDDEN
        }
    what = "ForImageClassification" if one.classes else "Model"
    labels = {"id2label": {str(index): f"LABEL_{index}" for index in range(CLASSES)}} if one.classes else {}
    found |= {"model_type": "unheard_of", "architectures": [f"UnheardOf{what}"]} | labels
    return {name: value for name, value in found.items() if value is not None}


def truth(one: Draw) -> dict[str, Any]:
    """What a draw answers to what may be asked of it."""
    pooling = pooling_of(one)
    is_alone = one.registers and not one.class_token
    head = "behind_registers" if one.pooling == "mean" and is_alone else pooling
    if one.pooling == "probe" or (one.final == "pooled" and one.scheme != "timm"):
        head = None  # the encoder pools
    elif one.classes:
        pooling = None  # the head does
    return truth_of_layers(one) | {"pooling": pooling, "head.pooling": head}


def pooling_of(one: Vision) -> str | None:
    """What an encoder makes one vector of its states by."""
    behind = "patches" if one.leading else "mean"
    named = {"mean": behind, "all": "mean", "both": "first_and_patches", "dense": "first"}
    return named.get(one.pooling or "", one.pooling)


def truth_of_layers(one: Vision) -> dict[str, Any]:
    return {
        "norm.placement": one.placement,
        "norm.kind": "RMSNorm" if one.norm == "rms" else "LayerNorm",
        "norm.eps": one.eps,
        "norm.offset": False,
        "norm.final": "none" if one.final == "pooled" and getattr(one, "scheme", "") == "timm" else one.final,
        "image.norm_last": one.first_norm,
        "image.positions": {"patches": "patches", "waves": "own_size", "rotary": "none"}.get(
            one.position, "interpolated"
        ),
        "image.prefix_tokens": "single" if one.class_token or not one.registers else "registers",
        "rotary": one.rotates,
        "attention.rotary": one.rotates,
        "rotary.style": one.style,
        "rotary.axes": one.axes,
        "rotary.coordinates": one.coordinates,
        "rotary.fraction": 1.0,
        "rotary.base": one.base,
        "attention.causal": False,
        "attention.masked": False,
        "attention.fused": "concatenated",
        "attention.norms": {"head": "before_rotary", "wide": "all_heads", None: None}[one.query_norm],
        "input.kind": None,
        "feed_forward.gate_last": False,
        "feed_forward.activation": one.activation,
    }


def write(one: Draw, folder: Path, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The checkpoint of a draw; its inputs, images (2, 3, height, width), and its outputs by name."""
    generator = torch.Generator().manual_seed(seed)
    weights = Weights(one, generator)
    tensors = weights.all()
    found = {prefixed(one) + name: tensor for name, tensor in stored(one, tensors, one.scheme).items()}
    images = torch.randn(2, 3, one.height, one.width, generator=generator)
    states, pooled = Reference(one, tensors)(images)
    if one.classes:
        wide = 2 * HIDDEN if one.pooling == "both" else HIDDEN
        weights.linear("classifier", CLASSES, wide, True)
        head = {name: tensors[f"classifier.{name}"] for name in ("weight", "bias")}
        called_head = HEAD_NAMES.get(one.scheme, "classifier")
        found |= {f"{called_head}.{name}": tensor for name, tensor in head.items()}
        wanted = {"logits": torch.nn.functional.linear(pooled, **head)}
    else:
        wanted = {"last_hidden_state": states} | ({} if pooled is None else {"pooler_output": pooled})
    store(folder, {name: tensor.contiguous() for name, tensor in found.items()}, config(one))
    return {"pixel_values": images}, wanted
