"""The small networks of small_chains.py, each with an input of it, and what it must be told."""

from __future__ import annotations

from torch import nn

from tests.unit.small_chains import (
    beside,
    causal,
    cells,
    deviation,
    dueling,
    enlarged,
    finder,
    fire,
    frames,
    generator,
    halved,
    inception,
    lenet,
    named_block,
    pitch,
    recognizer,
    residual,
    restored,
    speaker,
    tagger,
    text,
    two_branches,
    u_net,
    vae,
    vae_of_maps,
    words,
)

RELU = {"chain.activation": "relu"}
PLAIN = {"chain.stride": 1, "chain.padding": 0, "chain.output": "none"}
ENLARGED = {**RELU, **PLAIN, "chain.padding": 1, "chain.pooling": "upsample_2", "chain.output": "tanh"}
CASES = {
    "lenet": (lenet, {**RELU, **PLAIN, "chain.pooling": "max_2", "chain.reduction": "flatten"}),
    "u_net": (
        u_net,
        {
            **RELU, **PLAIN, "chain.padding": "half", "chain.up_stride": 2, "chain.up_padding": "exact", "norm.eps": 1e-5, "chain.skip": "none",
            "chain.pooling": "none", "inc.3:chain.pooling": "max_2", "down1.3:chain.pooling": "max_2", "chain.joined": "earlier_first",
        },
    ),
    "fire": (fire, {**RELU, **PLAIN, "chain.pooling": "none", "chain.output": "relu+mean", "chain.residual": "none"}),
    "inception": (
        inception,
        {
            **RELU, **PLAIN, "chain.padding": "half", "norm.eps": 1e-5, "chain.pooling": "none", "mixed1.branch1.0:chain.pooling": "max_2", "chain.activation_before_norm": False,
            "chain.pooling_before": "max_3_1_1", "chain.reduction": "mean",
        },
    ),
    "text": (lambda: text(False), {**RELU, **PLAIN, "chain.reduction": "max"}),
    "text_images": (lambda: text(True), {**RELU, **PLAIN, "chain.reduction": "max"}),
    "vae": (vae, {**RELU, "chain.output": "sigmoid"}),
    "vae_of_maps": (vae_of_maps, {**RELU, **PLAIN, "chain.stride": 2, "chain.up_stride": 2, "chain.up_padding": "exact", "chain.pooling": "none", "chain.reduction": "flatten"}),
    "beside": (beside, {"chain.activation": "tanh", "chain.output": "none"}),
    "deviation": (deviation, {**RELU, **PLAIN, "norm.eps": 1e-5, "chain.activation_before_norm": True, "chain.pooling": "none", "chain.reduction": "mean_std", "chain.dilation": 1}),
    "dueling": (dueling, {**RELU, **PLAIN, "chain.pooling": "none", "chain.reduction": "flatten"}),
    "two_branches": (two_branches, {**RELU, **PLAIN, "chain.padding": "half", "chain.pooling": "none", "convDb:chain.output": "normalised"}),
    "named_block": (named_block, {**RELU, **PLAIN, "chain.padding": "half", "chain.pooling": "none", "chain.reduction": "mean", "chain.residual": "after_activation"}),
    "tagger": (tagger, {"chain.positions": "all", "chain.output": "none"}),
    "speaker": (speaker, {"chain.positions": "final_states", "chain.output": "normalised"}),
    "restored": (restored, {**PLAIN, "chain.padding": "half", "chain.shuffle": 2, "chain.skip": "added"}),
    "generator": (
        generator,
        {
            **RELU, "chain.up_stride": 2, "chain.up_padding": "exact", "norm.eps": 1e-5,
            "chain.pooling": "none", "chain.output": "tanh",
        },
    ),
    "enlarged": (enlarged, {**ENLARGED, "l1.0:chain.activation": "none", "conv.1:chain.pooling_before": "upsample_2"}),
    "enlarged_norm": (
        lambda: enlarged(nn.BatchNorm2d(8)),
        {**ENLARGED, "conv.0:chain.activation": "none", "chain.activation_before_norm": False},
    ),
    "recognizer": (
        recognizer,
        {
            **RELU, **PLAIN, "chain.padding": "same", "chain.pooling": "max_2", "chain.activation_before_norm": False,
            "norm.eps": 1e-5, "chain.positions": "all", "chain.output": "log_softmax", "chain.reduction": "columns",
        },
    ),
    "finder": (
        finder,
        {
            **PLAIN, "prelu1:chain.pooling": "max_3_2_ceil", "chain.reduction": "flatten_reversed",
            "head_1:chain.output": "softmax",
        },
    ),
    "frames": (
        frames,
        {
            **RELU, **PLAIN, "chain.pooling": "max_2", "chain.reduction": "flatten", "fc:chain.activation": "tanh",
            "chain.positions": "all",
        },
    ),
    "cells": (cells, {"enc_cell:chain.positions": "last_repeated", "chain.positions": "all", "chain.output": "none"}),
    "residual": (
        residual,
        {
            **PLAIN, "chain.padding": "half", "chain.pooling": "none", "chain.reduction": "mean", "norm.eps": 1e-5,
            "chain.activation": "leaky_relu_0.3", "chain.activation_before_norm": False, "chain.residual": "before_activation",
        },
    ),
    "pitch": (
        pitch,
        {
            **PLAIN, "chain.padding": "half", "fc:chain.padding": 4, "chain.pooling": "none", "norm.eps": 1e-5,
            "chain.activation": "leaky_relu_0.3", "conv2:chain.residual": "after_activation", "chain.output": "softmax",
        },
    ),
    "causal": (
        causal,
        {
            **RELU, **PLAIN, "chain.padding": "causal", "chain.dilation": 1, "network.1:chain.dilation": 2, "chain.pooling": "none",
            "chain.reduction": "last", "chain.residual": "between_activations",
        },
    ),
    "halved": (
        halved,
        {
            **RELU, **PLAIN, "chain.padding": "half", "layer1.0.conv1:chain.stride": 2, "chain.pooling": "none",
            "chain.activation_before_norm": False, "norm.eps": 1e-5, "chain.reduction": "mean",
            "chain.residual": "before_activation",
        },
    ),
    "words": (
        words,
        {**RELU, **PLAIN, "chain.stride": 2, "chain.padding": "half", "chain.pooling": "none", "chain.reduction": "mean"},
    ),
}  # fmt: skip
