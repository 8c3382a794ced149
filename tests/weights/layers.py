"""One or more instances of every layer that torch.nn exports, with settings away from their defaults."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

# What torch.nn exports and is no layer, and why it cannot be had from data.
NONE = {
    "Module": "a base; it computes nothing",
    "Container": "a base; deprecated by torch",
    "RNNBase": "a base of RNN, LSTM and GRU",
    "RNNCellBase": "a base of the cells",
    "DataParallel": "a wrapper; what it wraps is saved",
    "ParameterList": "parameters without a layer",
    "ParameterDict": "parameters without a layer",
}
LAZY = "it has no shape before the first run, and is another class after it"


def _padding(size: int) -> dict[str, Any]:
    return {
        f"{kind}Pad{size}d": lambda kind=kind: getattr(nn, f"{kind}Pad{size}d")(2)
        for kind in ("Circular", "Reflection")
    } | {
        f"ReplicationPad{size}d": lambda: getattr(nn, f"ReplicationPad{size}d")(tuple(range(2 * size))),
        f"ZeroPad{size}d": lambda: getattr(nn, f"ZeroPad{size}d")(1),
        f"ConstantPad{size}d": lambda: getattr(nn, f"ConstantPad{size}d")(1, -float("inf")),
    }


def _sized(size: int) -> dict[str, Any]:
    """What there is for one, two and three dimensions."""
    made = lambda name, *args, **kwargs: lambda: getattr(nn, f"{name}{size}d")(*args, **kwargs)  # noqa: E731
    return {
        f"Conv{size}d": made("Conv", 4, 6, 3, stride=2, padding="valid", groups=2, bias=False),
        f"Conv{size}d circular": made(
            "Conv", 4, 6, (3,) * size, padding=1, dilation=2, padding_mode="circular"
        ),
        f"Conv{size}d same": made("Conv", 4, 6, 3, padding="same", padding_mode="reflect"),
        f"ConvTranspose{size}d": made("ConvTranspose", 4, 6, 3, 2, 1, output_padding=1, groups=2, dilation=2),
        f"BatchNorm{size}d": made("BatchNorm", 4, 1e-3, None, affine=False),
        f"BatchNorm{size}d without statistics": made("BatchNorm", 4, track_running_stats=False),
        f"InstanceNorm{size}d": made("InstanceNorm", 4, affine=True, track_running_stats=True),
        f"Dropout{size}d": made("Dropout", 0.25, True),
        f"MaxPool{size}d": made("MaxPool", 3, 2, 1, dilation=2, return_indices=True, ceil_mode=True),
        f"MaxUnpool{size}d": made("MaxUnpool", 3, 2, 1),
        f"AvgPool{size}d": made("AvgPool", 3, 2, 1, True, False),
        f"LPPool{size}d": made("LPPool", 1.5, 3, 2, True),
        f"AdaptiveAvgPool{size}d": made("AdaptiveAvgPool", (None, 2)[:size] if size == 2 else 3),
        f"AdaptiveMaxPool{size}d": made("AdaptiveMaxPool", 3, True),
        **_padding(size),
    }


_WEIGHT = torch.tensor([0.5, 1.0, 2.0])
LAYERS: dict[str, Callable[[], nn.Module]] = {
    **{
        name: getattr(nn, name)
        for name in ("Identity", "LogSigmoid", "Sigmoid", "Softmax2d", "Softsign", "Tanh", "Tanhshrink", "Sequential")
    },
    **{
        name: lambda name=name: getattr(nn, name)(inplace=True)
        for name in ("Hardsigmoid", "Hardswish", "Mish", "ReLU", "ReLU6", "SELU", "SiLU")
    },
    **{name: lambda name=name: getattr(nn, name)(0.125, True) for name in ("AlphaDropout", "Dropout", "FeatureAlphaDropout")},
    **{name: lambda name=name: getattr(nn, name)(0.7) for name in ("CELU", "ELU", "LeakyReLU", "Hardshrink", "Softshrink")},
    **{name: lambda name=name: getattr(nn, name)(dim=1) for name in ("GLU", "LogSoftmax", "Softmax", "Softmin")},
    **_sized(1), **_sized(2), **_sized(3),
    "AvgPool2d divided": lambda: nn.AvgPool2d(3, divisor_override=5),
    "AdaptiveLogSoftmaxWithLoss": lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], 2.0, head_bias=True),
    "Bilinear": lambda: nn.Bilinear(2, 3, 4, bias=False),
    "ChannelShuffle": lambda: nn.ChannelShuffle(2),
    "CosineSimilarity": lambda: nn.CosineSimilarity(0, 1e-3),
    "CrossMapLRN2d": lambda: nn.CrossMapLRN2d(3, 1e-3, 0.5, 2),
    "Embedding": lambda: nn.Embedding(5, 3, padding_idx=-1, max_norm=2.0, norm_type=1.0, scale_grad_by_freq=True),
    "EmbeddingBag": lambda: nn.EmbeddingBag(5, 3, mode="sum", include_last_offset=True, padding_idx=1, sparse=True),
    "Flatten": lambda: nn.Flatten(0, 1),
    "Fold": lambda: nn.Fold((4, 5), 2, padding=1),
    "FractionalMaxPool2d": lambda: nn.FractionalMaxPool2d(3, output_ratio=(0.5, 0.6)),
    "FractionalMaxPool3d": lambda: nn.FractionalMaxPool3d(3, output_size=(2, 2, 2), return_indices=True),
    "GELU": lambda: nn.GELU("tanh"),
    "GRU": lambda: nn.GRU(3, 4, 2, dropout=0.1, bidirectional=True),
    "GRUCell": lambda: nn.GRUCell(3, 4, bias=False),
    "GroupNorm": lambda: nn.GroupNorm(2, 4, 1e-3),
    "GroupNorm without weight": lambda: nn.GroupNorm(2, 4, affine=False),
    "Hardtanh": lambda: nn.Hardtanh(-2.0, 3.0),
    "LSTM": lambda: nn.LSTM(3, 4, 2, bias=False, batch_first=True, proj_size=2),
    "LSTMCell": lambda: nn.LSTMCell(3, 4),
    "LayerNorm": lambda: nn.LayerNorm((3, 4), 1e-3, bias=False),
    "LayerNorm without weight": lambda: nn.LayerNorm(3, elementwise_affine=False),
    "Linear": lambda: nn.Linear(3, 4),
    "Linear without bias": lambda: nn.Linear(3, 4, bias=False),
    "LocalResponseNorm": lambda: nn.LocalResponseNorm(2, 1e-3, 0.5, 2.0),
    "ModuleDict": lambda: nn.ModuleDict({"a b": nn.ReLU(), "é": nn.Linear(2, 2)}),
    "ModuleList": lambda: nn.ModuleList([nn.Linear(2, 3), nn.Linear(3, 2)]),
    "MultiheadAttention": lambda: nn.MultiheadAttention(8, 2, 0.1, batch_first=True),
    "MultiheadAttention, all options": lambda: nn.MultiheadAttention(
        8, 2, bias=False, add_bias_kv=True, add_zero_attn=True, kdim=3, vdim=5
    ),
    "PReLU": lambda: nn.PReLU(3, 0.5),
    "PairwiseDistance": lambda: nn.PairwiseDistance(1.0, keepdim=True),
    "PixelShuffle": lambda: nn.PixelShuffle(3),
    "PixelUnshuffle": lambda: nn.PixelUnshuffle(3),
    "RMSNorm": lambda: nn.RMSNorm(4, 1e-3),
    "RNN": lambda: nn.RNN(3, 4, nonlinearity="relu"),
    "RNN tanh": lambda: nn.RNN(3, 4, 2, bidirectional=True),
    "RNNCell": lambda: nn.RNNCell(3, 4, nonlinearity="relu"),
    "RReLU": lambda: nn.RReLU(0.25, 0.5),
    "Softplus": lambda: nn.Softplus(2.0, 10.0),
    "SyncBatchNorm": lambda: nn.SyncBatchNorm(4, momentum=0.5),
    "Threshold": lambda: nn.Threshold(0.5, 20.0),
    "Transformer": lambda: nn.Transformer(8, 2, 1, 2, 16, 0.2, "gelu", batch_first=True, norm_first=True, bias=False),
    "Transformer, custom": lambda: nn.Transformer(
        8, 2, custom_encoder=nn.Linear(8, 8), custom_decoder=nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 1, 4), 1)
    ),
    "TransformerDecoder": lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 2, nn.LayerNorm(8)),
    "TransformerDecoderLayer": lambda: nn.TransformerDecoderLayer(8, 2, 16, 0.0, F.gelu, 1e-3, True, True, False),
    "TransformerEncoder": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16), 3, nn.RMSNorm(8), enable_nested_tensor=False, mask_check=False
    ),
    "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(8, 2, 16, activation=nn.GELU("tanh"), bias=False),
    "TransformerEncoderLayer, a tensor's function": lambda: nn.TransformerEncoderLayer(8, 2, 16, activation=torch.tanh),
    "Unflatten": lambda: nn.Unflatten(1, (2, 3)),
    "Unflatten by size": lambda: nn.Unflatten(1, torch.Size([2, 3])),
    "Unfold": lambda: nn.Unfold((2, 3), stride=2),
    "Upsample": lambda: nn.Upsample(scale_factor=(2, 3), mode="bilinear", align_corners=True),
    "Upsample to a size": lambda: nn.Upsample(size=7, recompute_scale_factor=False),
    "UpsamplingBilinear2d": lambda: nn.UpsamplingBilinear2d(scale_factor=2),
    "UpsamplingNearest2d": lambda: nn.UpsamplingNearest2d((4, 5)),
    # losses
    **{name: lambda name=name: getattr(nn, name)(reduction="sum") for name in ("KLDivLoss", "L1Loss", "MSELoss", "SoftMarginLoss", "MultiLabelMarginLoss", "NLLLoss2d")},
    "BCELoss": lambda: nn.BCELoss(_WEIGHT),
    "BCEWithLogitsLoss": lambda: nn.BCEWithLogitsLoss(pos_weight=_WEIGHT),
    "CTCLoss": lambda: nn.CTCLoss(1, zero_infinity=True),
    "CosineEmbeddingLoss": lambda: nn.CosineEmbeddingLoss(0.5),
    "CrossEntropyLoss": lambda: nn.CrossEntropyLoss(_WEIGHT, ignore_index=1, label_smoothing=0.1),
    "GaussianNLLLoss": lambda: nn.GaussianNLLLoss(full=True),
    "HingeEmbeddingLoss": lambda: nn.HingeEmbeddingLoss(2.0),
    "HuberLoss": lambda: nn.HuberLoss(delta=2.0),
    "LinearCrossEntropyLoss": lambda: nn.LinearCrossEntropyLoss(3, 4, bias=True, label_smoothing=0.1),
    "MarginRankingLoss": lambda: nn.MarginRankingLoss(0.5),
    "MultiLabelSoftMarginLoss": lambda: nn.MultiLabelSoftMarginLoss(_WEIGHT),
    "MultiMarginLoss": lambda: nn.MultiMarginLoss(2, 0.5, _WEIGHT),
    "NLLLoss": lambda: nn.NLLLoss(_WEIGHT),
    "PoissonNLLLoss": lambda: nn.PoissonNLLLoss(False, True),
    "SmoothL1Loss": lambda: nn.SmoothL1Loss(beta=2.0),
    "TripletMarginLoss": lambda: nn.TripletMarginLoss(0.5, 1.0, swap=True),
    "TripletMarginWithDistanceLoss": lambda: nn.TripletMarginWithDistanceLoss(distance_function=nn.CosineSimilarity()),
}  # fmt: skip


def layer(name: str) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's advice on the settings above
        return LAYERS[name]()
