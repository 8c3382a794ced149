"""google/efficientnet-b7: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family efficientnet).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: transformers-default
No dropout is written: training mode computes the same, the batch norms apart; `mapper generate --train`
writes it.

Load the weights with `load(path)`; the attributes are the names in the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    channels: int = 3  # shape: efficientnet.embeddings.convolution.weight [64, 3, 3, 3]
    embedding_size: int = 64  # shape: efficientnet.embeddings.convolution.weight [64, 3, 3, 3]
    kernel_size: int = 3  # shape: efficientnet.embeddings.convolution.weight [64, 3, 3, 3]
    batch_norm_eps: float = 0.001  # config: batch_norm_eps
    # shape: efficientnet.encoder.blocks.0.projection.project_conv.weight [32, 64, 1, 1] and 6 more
    output_sizes: tuple[int, ...] = (32, 48, 80, 160, 224, 384, 640)
    # shape: efficientnet.encoder.blocks.0.depthwise_conv.depthwise_conv.weight [64, 1, 3, 3] and 6 more
    depthwise_kernel_sizes: tuple[int, ...] = (3, 3, 5, 3, 5, 5, 3)
    # shape: efficientnet.encoder.blocks.0.projection.project_conv.weight [32, 64, 1, 1] and 13 more
    expansion: int = 6
    # shape: efficientnet.encoder.blocks.0.squeeze_excite.reduce.weight [16, 64, 1, 1] and 13 more
    squeeze_excitation_reduction: int = 4
    depths: tuple[int, ...] = (4, 7, 7, 10, 10, 13, 4)  # name: efficientnet.encoder.blocks.{0..3} and 6 more
    pooled_size: int = 2560  # shape: classifier.weight [1000, 2560]
    labels: int = 1000  # shape: classifier.weight [1000, 2560]


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    last_hidden_state: Tensor


torch.export.register_dataclass(Output)


class Embeddings(nn.Module):
    """efficientnet.embeddings: a stem: a norm and an activation after a convolution of stride two with
    padding after the image.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.kernel_size = config.kernel_size
        self.convolution = nn.Conv2d(
            config.channels, config.embedding_size, kernel_size=config.kernel_size, stride=2, bias=False
        )
        self.batchnorm = nn.BatchNorm2d(config.embedding_size, eps=config.batch_norm_eps)

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = pixel_values.type_as(self.convolution.weight)
        before, after = self.kernel_size // 2 - 1, self.kernel_size // 2
        x = F.pad(x, (before, after, before, after))
        return F.silu(self.batchnorm(self.convolution(x)))


class Depthwise(nn.Module):
    """efficientnet.encoder.blocks.*.depthwise_conv: depthwise convolution and norm."""

    def __init__(self, config: Config, out_channels: int, kernel_size: int):
        super().__init__()
        self.depthwise_conv = nn.Conv2d(
            out_channels,
            out_channels,
            kernel_size=kernel_size,
            padding=kernel_size // 2,
            groups=out_channels,
            bias=False,
        )
        self.depthwise_norm = nn.BatchNorm2d(out_channels, eps=config.batch_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.depthwise_norm(self.depthwise_conv(x))


class SqueezeExcitation(nn.Module):
    """efficientnet.encoder.blocks.*.squeeze_excite: squeeze-and-excitation: channels gated by their means
    with two layers.
    """

    def __init__(self, channels: int, reduced_size: int):
        super().__init__()
        self.reduce = nn.Conv2d(channels, reduced_size, kernel_size=1)
        self.expand = nn.Conv2d(reduced_size, channels, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        y = x.mean(dim=(-2, -1), keepdim=True)
        y = self.expand(F.silu(self.reduce(y)))
        return x * torch.sigmoid(y)


class Contraction(nn.Module):
    """efficientnet.encoder.blocks.*.projection: convolution and norm."""

    def __init__(self, config: Config, in_channels: int, out_channels: int):
        super().__init__()
        self.project_conv = nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=False)
        self.project_bn = nn.BatchNorm2d(out_channels, eps=config.batch_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.project_bn(self.project_conv(x))


class Expansion(nn.Module):
    """efficientnet.encoder.blocks.*.expansion: convolution and norm."""

    def __init__(self, config: Config, in_channels: int, out_channels: int):
        super().__init__()
        self.expand_conv = nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=False)
        self.expand_bn = nn.BatchNorm2d(out_channels, eps=config.batch_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.expand_bn(self.expand_conv(x))


class DepthwiseWithStride(nn.Module):
    """efficientnet.encoder.blocks.*.depthwise_conv: depthwise convolution and norm."""

    def __init__(self, config: Config, out_channels: int, kernel_size: int):
        super().__init__()
        self.kernel_size = kernel_size
        self.depthwise_conv = nn.Conv2d(
            out_channels, out_channels, kernel_size=kernel_size, stride=2, groups=out_channels, bias=False
        )
        self.depthwise_norm = nn.BatchNorm2d(out_channels, eps=config.batch_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        before, after = self.kernel_size // 2 - 1, self.kernel_size // 2
        x = F.pad(x, (before, after, before, after))
        return self.depthwise_norm(self.depthwise_conv(x))


class LayerWithExpansionAndStride(nn.Module):
    """efficientnet.encoder.blocks.*: inverted bottleneck with a pointwise convolution to more channels, a
    depthwise convolution, squeeze-and-excitation and a projection.
    """

    def __init__(self, config: Config, input_size: int, kernel_size: int, output_size: int):
        super().__init__()
        inner_size = config.expansion * input_size
        self.expansion = Expansion(config, in_channels=input_size, out_channels=inner_size)
        self.depthwise_conv = DepthwiseWithStride(config, out_channels=inner_size, kernel_size=kernel_size)
        self.squeeze_excite = SqueezeExcitation(
            channels=inner_size, reduced_size=input_size // config.squeeze_excitation_reduction
        )
        self.projection = Contraction(config, in_channels=inner_size, out_channels=output_size)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.expansion(x))
        y = F.silu(self.depthwise_conv(y))
        return self.projection(self.squeeze_excite(y))


class LayerWithExpansionAndResidual(nn.Module):
    """efficientnet.encoder.blocks.*: inverted bottleneck with a pointwise convolution to more channels, a
    depthwise convolution, squeeze-and-excitation, a projection and a residual.
    """

    def __init__(self, config: Config, input_size: int, kernel_size: int):
        super().__init__()
        inner_size = config.expansion * input_size
        self.expansion = Expansion(config, in_channels=input_size, out_channels=inner_size)
        self.depthwise_conv = Depthwise(config, out_channels=inner_size, kernel_size=kernel_size)
        self.squeeze_excite = SqueezeExcitation(
            channels=inner_size, reduced_size=input_size // config.squeeze_excitation_reduction
        )
        self.projection = Contraction(config, in_channels=inner_size, out_channels=input_size)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.expansion(x))
        y = self.squeeze_excite(F.silu(self.depthwise_conv(y)))
        return x + self.projection(y)


class LayerWithExpansion(nn.Module):
    """efficientnet.encoder.blocks.*: inverted bottleneck with a pointwise convolution to more channels, a
    depthwise convolution, squeeze-and-excitation and a projection.
    """

    def __init__(self, config: Config, input_size: int, kernel_size: int, output_size: int):
        super().__init__()
        inner_size = config.expansion * input_size
        self.expansion = Expansion(config, in_channels=input_size, out_channels=inner_size)
        self.depthwise_conv = Depthwise(config, out_channels=inner_size, kernel_size=kernel_size)
        self.squeeze_excite = SqueezeExcitation(
            channels=inner_size, reduced_size=input_size // config.squeeze_excitation_reduction
        )
        self.projection = Contraction(config, in_channels=inner_size, out_channels=output_size)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.expansion(x))
        y = F.silu(self.depthwise_conv(y))
        return self.projection(self.squeeze_excite(y))


class Layer(nn.Module):
    """efficientnet.encoder.blocks.0: inverted bottleneck with a depthwise convolution,
    squeeze-and-excitation and a projection.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.depthwise_conv = Depthwise(
            config, out_channels=config.embedding_size, kernel_size=config.depthwise_kernel_sizes[0]
        )
        self.squeeze_excite = SqueezeExcitation(
            channels=config.embedding_size,
            reduced_size=config.embedding_size // config.squeeze_excitation_reduction,
        )
        self.projection = Contraction(
            config, in_channels=config.embedding_size, out_channels=config.output_sizes[0]
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.depthwise_conv(x))
        return self.projection(self.squeeze_excite(y))


class LayerWithResidual(nn.Module):
    """efficientnet.encoder.blocks.*: inverted bottleneck with a depthwise convolution,
    squeeze-and-excitation, a projection and a residual.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.depthwise_conv = Depthwise(
            config, out_channels=config.output_sizes[0], kernel_size=config.depthwise_kernel_sizes[0]
        )
        self.squeeze_excite = SqueezeExcitation(
            channels=config.output_sizes[0],
            reduced_size=config.output_sizes[0] // config.squeeze_excitation_reduction,
        )
        self.projection = Contraction(
            config, in_channels=config.output_sizes[0], out_channels=config.output_sizes[0]
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.squeeze_excite(F.silu(self.depthwise_conv(x)))
        return x + self.projection(y)


class Encoder(nn.Module):
    """efficientnet: an image through stages, each coarser than the one before, with layers of
    convolutions, a last convolution and pooling.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {
                "blocks": nn.ModuleList(
                    [
                        Layer(config),
                        *(LayerWithResidual(config) for _ in range(config.depths[0] - 1)),
                        LayerWithExpansionAndStride(
                            config,
                            input_size=config.output_sizes[0],
                            kernel_size=config.depthwise_kernel_sizes[1],
                            output_size=config.output_sizes[1],
                        ),
                        *(
                            LayerWithExpansionAndResidual(
                                config,
                                input_size=config.output_sizes[1],
                                kernel_size=config.depthwise_kernel_sizes[1],
                            )
                            for _ in range(config.depths[1] - 1)
                        ),
                        LayerWithExpansionAndStride(
                            config,
                            input_size=config.output_sizes[1],
                            kernel_size=config.depthwise_kernel_sizes[2],
                            output_size=config.output_sizes[2],
                        ),
                        *(
                            LayerWithExpansionAndResidual(
                                config,
                                input_size=config.output_sizes[2],
                                kernel_size=config.depthwise_kernel_sizes[2],
                            )
                            for _ in range(config.depths[2] - 1)
                        ),
                        LayerWithExpansionAndStride(
                            config,
                            input_size=config.output_sizes[2],
                            kernel_size=config.depthwise_kernel_sizes[3],
                            output_size=config.output_sizes[3],
                        ),
                        *(
                            LayerWithExpansionAndResidual(
                                config,
                                input_size=config.output_sizes[3],
                                kernel_size=config.depthwise_kernel_sizes[3],
                            )
                            for _ in range(config.depths[3] - 1)
                        ),
                        LayerWithExpansion(
                            config,
                            input_size=config.output_sizes[3],
                            kernel_size=config.depthwise_kernel_sizes[4],
                            output_size=config.output_sizes[4],
                        ),
                        *(
                            LayerWithExpansionAndResidual(
                                config,
                                input_size=config.output_sizes[4],
                                kernel_size=config.depthwise_kernel_sizes[4],
                            )
                            for _ in range(config.depths[4] - 1)
                        ),
                        LayerWithExpansionAndStride(
                            config,
                            input_size=config.output_sizes[4],
                            kernel_size=config.depthwise_kernel_sizes[5],
                            output_size=config.output_sizes[5],
                        ),
                        *(
                            LayerWithExpansionAndResidual(
                                config,
                                input_size=config.output_sizes[5],
                                kernel_size=config.depthwise_kernel_sizes[5],
                            )
                            for _ in range(config.depths[5] - 1)
                        ),
                        LayerWithExpansion(
                            config,
                            input_size=config.output_sizes[5],
                            kernel_size=config.depthwise_kernel_sizes[6],
                            output_size=config.output_sizes[6],
                        ),
                        *(
                            LayerWithExpansionAndResidual(
                                config,
                                input_size=config.output_sizes[6],
                                kernel_size=config.depthwise_kernel_sizes[6],
                            )
                            for _ in range(config.depths[6] - 1)
                        ),
                    ]
                ),
                "top_conv": nn.Conv2d(config.output_sizes[6], config.pooled_size, kernel_size=1, bias=False),
                "top_bn": nn.BatchNorm2d(config.pooled_size, eps=config.batch_norm_eps),
            }
        )

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embeddings(pixel_values)
        for layer in self.encoder.blocks:
            x = layer(x)
        x = F.silu(self.encoder.top_bn(self.encoder.top_conv(x)))
        return x, x.mean(dim=(-2, -1))


class Model(nn.Module):
    """The model with an image classification head."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.efficientnet = Encoder(config)
        self.classifier = nn.Linear(config.pooled_size, config.labels)

    def forward(self, pixel_values: Tensor) -> Output:
        """pixel_values (batch, channels, height, width)"""
        x, pooled = self.efficientnet(pixel_values)
        return Output(logits=self.classifier(pooled), last_hidden_state=x)


def load(path: str | Path, config: Config = Config()) -> Model:
    """The model with the weights of a .safetensors file or of a directory of them, ready to evaluate."""
    from safetensors.torch import load_file

    files = [Path(path)] if Path(path).is_file() else sorted(Path(path).glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"no .safetensors file in {path}")
    tensors = {
        name: tensor
        for file in files
        for name, tensor in load_file(file).items()
        if not name.startswith("__aux__.")  # what is saved beside a model, for training to go on
    }
    with torch.device("meta"):
        model = Model(config)
    model.load_state_dict(tensors, strict=True, assign=True)
    return model.eval()


# What this was read from besides the weights. While the file is as it was written, `mapper.save` stores the
# architecture of its models by it; once you have edited it, their weights alone.
# {"config": {"architectures": ["EfficientNetForImageClassification"], "batch_norm_eps": 0.001,
# "depth_coefficient": 3.1, "depthwise_padding": [], "hidden_act": "swish", "model_type": "efficientnet",
# "num_block_repeats": [1, 2, 2, 3, 3, 4, 1], "num_channels": 3, "strides": [1, 2, 2, 2, 1, 2, 1]}, "notes":
# ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub",
# "evidence for its config: transformers-default"]}
# sha256 of all above: 35a12167a450c6a3
