"""kakaobrain/align-base: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family align).
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

    vocab_size: int = 30522  # shape: text_model.embeddings.word_embeddings.weight [30522, 768]
    hidden_size: int = 768  # shape: text_projection.weight [640, 768]
    segments: int = 2  # shape: text_model.embeddings.token_type_embeddings.weight [2, 768]
    positions: int = 512  # shape: text_model.embeddings.position_embeddings.weight [512, 768]
    norm_eps: float = 1e-12  # config: text_config.layer_norm_eps
    channels: int = 3  # shape: vision_model.embeddings.convolution.weight [64, 3, 3, 3]
    embedding_size: int = 64  # shape: vision_model.embeddings.convolution.weight [64, 3, 3, 3]
    kernel_size: int = 3  # shape: vision_model.embeddings.convolution.weight [64, 3, 3, 3]
    batch_norm_eps: float = 0.001  # config: vision_config.batch_norm_eps
    # shape: vision_model.encoder.blocks.0.projection.project_conv.weight [32, 64, 1, 1] and 6 more
    output_sizes: tuple[int, ...] = (32, 48, 80, 160, 224, 384, 640)
    # shape: vision_model.encoder.blocks.0.depthwise_conv.depthwise_conv.weight [64, 1, 3, 3] and 6 more
    depthwise_kernel_sizes: tuple[int, ...] = (3, 3, 5, 3, 5, 5, 3)
    heads: int = 12  # config: text_config.num_attention_heads
    # shape and config: text_model.encoder.layer.{0..11}.attention.self.query.weight [768, 768] = heads * ...
    head_dim: int = 64
    # shape: vision_model.encoder.blocks.0.projection.project_conv.weight [32, 64, 1, 1] and 13 more
    vision_expansion: int = 6
    # shape: vision_model.encoder.blocks.0.squeeze_excite.reduce.weight [16, 64, 1, 1] and 13 more
    vision_squeeze_excitation_reduction: int = 4
    # shape: text_model.encoder.layer.{0..11}.intermediate.dense.weight [3072, 768]
    intermediate_size: int = 3072
    text_layers: int = 12  # name: text_model.encoder.layer.*
    depths: tuple[int, ...] = (4, 7, 7, 10, 10, 13, 4)  # name: vision_model.encoder.blocks.{0..3} and 6 more
    projection_size: int = 640  # shape: text_projection.weight [640, 768]


@dataclass
class Output:
    """What the model returns."""

    logits_per_image: Tensor
    logits_per_text: Tensor
    image_embeds: Tensor
    text_embeds: Tensor


torch.export.register_dataclass(Output)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


def position_indices(x: Tensor, position_ids: Tensor | None) -> Tensor:
    """The caller's positions, or 0, 1, 2, ... x (B, T, ...) -> (B or 1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids


def segment_ids(input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
    """The caller's segments, or the first segment everywhere. (B, T)"""
    return torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class TextEmbeddings(nn.Module):
    """text_model.embeddings: token embeddings with token types, learned position embeddings and a norm."""

    def __init__(self, config: Config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.segments, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.positions, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        x = self.word_embeddings(input_ids)
        x = x + self.token_type_embeddings(segment_ids(input_ids, token_type_ids))
        x = x + self.position_embeddings(position_indices(input_ids, position_ids))
        return self.LayerNorm(x)


class VisionEmbeddings(nn.Module):
    """vision_model.embeddings: a stem: a norm and an activation after a convolution of stride two with
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
    """vision_model.encoder.blocks.*.depthwise_conv: depthwise convolution and norm."""

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
    """vision_model.encoder.blocks.*.squeeze_excite: squeeze-and-excitation: channels gated by their means
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
    """vision_model.encoder.blocks.*.projection: convolution and norm."""

    def __init__(self, config: Config, in_channels: int, out_channels: int):
        super().__init__()
        self.project_conv = nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=False)
        self.project_bn = nn.BatchNorm2d(out_channels, eps=config.batch_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.project_bn(self.project_conv(x))


class Expansion(nn.Module):
    """vision_model.encoder.blocks.*.expansion: convolution and norm."""

    def __init__(self, config: Config, in_channels: int, out_channels: int):
        super().__init__()
        self.expand_conv = nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=False)
        self.expand_bn = nn.BatchNorm2d(out_channels, eps=config.batch_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.expand_bn(self.expand_conv(x))


class DepthwiseWithStride(nn.Module):
    """vision_model.encoder.blocks.*.depthwise_conv: depthwise convolution and norm."""

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


class Attention(nn.Module):
    """text_model.encoder.layer.*.attention: self-attention with an attention mask."""

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.self: Any = nn.ModuleDict(
            {
                "query": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "key": nn.Linear(config.hidden_size, config.heads * config.head_dim),
                "value": nn.Linear(config.hidden_size, config.heads * config.head_dim),
            }
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.heads * config.head_dim, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.self.query(x), self.head_dim)
        k = split_heads(self.self.key(x), self.head_dim)
        v = split_heads(self.self.value(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.output.dense(merge_heads(y))


class VisionLayerWithExpansionAndStride(nn.Module):
    """vision_model.encoder.blocks.*: inverted bottleneck with a pointwise convolution to more channels, a
    depthwise convolution, squeeze-and-excitation and a projection.
    """

    def __init__(self, config: Config, input_size: int, kernel_size: int, output_size: int):
        super().__init__()
        inner_size = config.vision_expansion * input_size
        self.expansion = Expansion(config, in_channels=input_size, out_channels=inner_size)
        self.depthwise_conv = DepthwiseWithStride(config, out_channels=inner_size, kernel_size=kernel_size)
        self.squeeze_excite = SqueezeExcitation(
            channels=inner_size, reduced_size=input_size // config.vision_squeeze_excitation_reduction
        )
        self.projection = Contraction(config, in_channels=inner_size, out_channels=output_size)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.expansion(x))
        y = F.silu(self.depthwise_conv(y))
        return self.projection(self.squeeze_excite(y))


class VisionLayerWithExpansionAndResidual(nn.Module):
    """vision_model.encoder.blocks.*: inverted bottleneck with a pointwise convolution to more channels, a
    depthwise convolution, squeeze-and-excitation, a projection and a residual.
    """

    def __init__(self, config: Config, input_size: int, kernel_size: int):
        super().__init__()
        inner_size = config.vision_expansion * input_size
        self.expansion = Expansion(config, in_channels=input_size, out_channels=inner_size)
        self.depthwise_conv = Depthwise(config, out_channels=inner_size, kernel_size=kernel_size)
        self.squeeze_excite = SqueezeExcitation(
            channels=inner_size, reduced_size=input_size // config.vision_squeeze_excitation_reduction
        )
        self.projection = Contraction(config, in_channels=inner_size, out_channels=input_size)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.expansion(x))
        y = self.squeeze_excite(F.silu(self.depthwise_conv(y)))
        return x + self.projection(y)


class VisionLayerWithExpansion(nn.Module):
    """vision_model.encoder.blocks.*: inverted bottleneck with a pointwise convolution to more channels, a
    depthwise convolution, squeeze-and-excitation and a projection.
    """

    def __init__(self, config: Config, input_size: int, kernel_size: int, output_size: int):
        super().__init__()
        inner_size = config.vision_expansion * input_size
        self.expansion = Expansion(config, in_channels=input_size, out_channels=inner_size)
        self.depthwise_conv = Depthwise(config, out_channels=inner_size, kernel_size=kernel_size)
        self.squeeze_excite = SqueezeExcitation(
            channels=inner_size, reduced_size=input_size // config.vision_squeeze_excitation_reduction
        )
        self.projection = Contraction(config, in_channels=inner_size, out_channels=output_size)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.expansion(x))
        y = F.silu(self.depthwise_conv(y))
        return self.projection(self.squeeze_excite(y))


class VisionLayer(nn.Module):
    """vision_model.encoder.blocks.0: inverted bottleneck with a depthwise convolution,
    squeeze-and-excitation and a projection.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.depthwise_conv = Depthwise(
            config, out_channels=config.embedding_size, kernel_size=config.depthwise_kernel_sizes[0]
        )
        self.squeeze_excite = SqueezeExcitation(
            channels=config.embedding_size,
            reduced_size=config.embedding_size // config.vision_squeeze_excitation_reduction,
        )
        self.projection = Contraction(
            config, in_channels=config.embedding_size, out_channels=config.output_sizes[0]
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.depthwise_conv(x))
        return self.projection(self.squeeze_excite(y))


class VisionLayerWithResidual(nn.Module):
    """vision_model.encoder.blocks.*: inverted bottleneck with a depthwise convolution,
    squeeze-and-excitation, a projection and a residual.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.depthwise_conv = Depthwise(
            config, out_channels=config.output_sizes[0], kernel_size=config.depthwise_kernel_sizes[0]
        )
        self.squeeze_excite = SqueezeExcitation(
            channels=config.output_sizes[0],
            reduced_size=config.output_sizes[0] // config.vision_squeeze_excitation_reduction,
        )
        self.projection = Contraction(
            config, in_channels=config.output_sizes[0], out_channels=config.output_sizes[0]
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.squeeze_excite(F.silu(self.depthwise_conv(x)))
        return x + self.projection(y)


class TextLayer(nn.Module):
    """text_model.encoder.layer.*: a layer with attention, post-norm and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.attention = Attention(config)
        self.intermediate: Any = nn.ModuleDict(
            {"dense": nn.Linear(config.hidden_size, config.intermediate_size)}
        )
        self.output: Any = nn.ModuleDict(
            {
                "dense": nn.Linear(config.intermediate_size, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.norm_eps),
            }
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.attention.output.LayerNorm(x + self.attention(x, mask))
        return self.output.LayerNorm(x + self.feed_forward(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.output.dense(F.gelu(self.intermediate.dense(x)))


class TextEncoder(nn.Module):
    """text_model: a stack of layers with a padding mask and pooling."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = TextEmbeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {"layer": nn.ModuleList(TextLayer(config) for _ in range(config.text_layers))}
        )
        # unused: the pooled vector is another, such as that of the first position
        self.pooler = nn.ModuleDict({"dense": nn.Linear(768, 768)})

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        position_ids: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        x = self.embeddings(input_ids, token_type_ids, position_ids)
        mask = padding_mask(attention_mask)
        for layer in self.encoder.layer:
            x = layer(x, mask)
        return x, x[:, 0]


class VisionEncoder(nn.Module):
    """vision_model: an image through stages, each coarser than the one before, with layers of convolutions
    and pooling.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = VisionEmbeddings(config)
        self.encoder: Any = nn.ModuleDict(
            {
                "blocks": nn.ModuleList(
                    [
                        VisionLayer(config),
                        *(VisionLayerWithResidual(config) for _ in range(config.depths[0] - 1)),
                        VisionLayerWithExpansionAndStride(
                            config,
                            input_size=config.output_sizes[0],
                            kernel_size=config.depthwise_kernel_sizes[1],
                            output_size=config.output_sizes[1],
                        ),
                        *(
                            VisionLayerWithExpansionAndResidual(
                                config,
                                input_size=config.output_sizes[1],
                                kernel_size=config.depthwise_kernel_sizes[1],
                            )
                            for _ in range(config.depths[1] - 1)
                        ),
                        VisionLayerWithExpansionAndStride(
                            config,
                            input_size=config.output_sizes[1],
                            kernel_size=config.depthwise_kernel_sizes[2],
                            output_size=config.output_sizes[2],
                        ),
                        *(
                            VisionLayerWithExpansionAndResidual(
                                config,
                                input_size=config.output_sizes[2],
                                kernel_size=config.depthwise_kernel_sizes[2],
                            )
                            for _ in range(config.depths[2] - 1)
                        ),
                        VisionLayerWithExpansionAndStride(
                            config,
                            input_size=config.output_sizes[2],
                            kernel_size=config.depthwise_kernel_sizes[3],
                            output_size=config.output_sizes[3],
                        ),
                        *(
                            VisionLayerWithExpansionAndResidual(
                                config,
                                input_size=config.output_sizes[3],
                                kernel_size=config.depthwise_kernel_sizes[3],
                            )
                            for _ in range(config.depths[3] - 1)
                        ),
                        VisionLayerWithExpansion(
                            config,
                            input_size=config.output_sizes[3],
                            kernel_size=config.depthwise_kernel_sizes[4],
                            output_size=config.output_sizes[4],
                        ),
                        *(
                            VisionLayerWithExpansionAndResidual(
                                config,
                                input_size=config.output_sizes[4],
                                kernel_size=config.depthwise_kernel_sizes[4],
                            )
                            for _ in range(config.depths[4] - 1)
                        ),
                        VisionLayerWithExpansionAndStride(
                            config,
                            input_size=config.output_sizes[4],
                            kernel_size=config.depthwise_kernel_sizes[5],
                            output_size=config.output_sizes[5],
                        ),
                        *(
                            VisionLayerWithExpansionAndResidual(
                                config,
                                input_size=config.output_sizes[5],
                                kernel_size=config.depthwise_kernel_sizes[5],
                            )
                            for _ in range(config.depths[5] - 1)
                        ),
                        VisionLayerWithExpansion(
                            config,
                            input_size=config.output_sizes[5],
                            kernel_size=config.depthwise_kernel_sizes[6],
                            output_size=config.output_sizes[6],
                        ),
                        *(
                            VisionLayerWithExpansionAndResidual(
                                config,
                                input_size=config.output_sizes[6],
                                kernel_size=config.depthwise_kernel_sizes[6],
                            )
                            for _ in range(config.depths[6] - 1)
                        ),
                    ]
                )
            }
        )

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embeddings(pixel_values)
        for layer in self.encoder.blocks:
            x = layer(x)
        return x, x.mean(dim=(-2, -1))


class Model(nn.Module):
    """The model: cosine similarity of text and image embeddings (CLIP) with a learned temperature (ALIGN)."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.vision_model = VisionEncoder(config)
        self.text_model = TextEncoder(config)
        self.text_projection = nn.Linear(config.hidden_size, config.projection_size)
        self.temperature = nn.Parameter(torch.zeros(()))

    def forward(
        self,
        input_ids: Tensor,
        pixel_values: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Output:
        """input_ids (batch, length), pixel_values (batch, channels, height, width), attention_mask (batch,
        length), token_type_ids (batch, length), position_ids (batch, length)
        """
        _, image_embeds = self.vision_model(pixel_values)
        _, text_embeds = self.text_model(input_ids, attention_mask, token_type_ids, position_ids)
        text_embeds = self.text_projection(text_embeds)
        image_embeds = F.normalize(image_embeds, dim=-1)
        text_embeds = F.normalize(text_embeds, dim=-1)
        logits = text_embeds @ image_embeds.t() / self.temperature
        return Output(
            logits_per_image=logits.t(),
            logits_per_text=logits,
            image_embeds=image_embeds,
            text_embeds=text_embeds,
        )


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
# {"config": {"architectures": ["AlignModel"], "model_type": "align", "text_config": {"hidden_act": "gelu",
# "hidden_size": 768, "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
# "model_type": "align_text_model", "num_attention_heads": 12, "num_hidden_layers": 12, "type_vocab_size": 2,
# "vocab_size": 30522}, "vision_config": {"batch_norm_eps": 0.001, "depth_coefficient": 3.1,
# "depthwise_padding": [], "hidden_act": "swish", "model_type": "align_vision_model", "num_block_repeats": [1,
# 2, 2, 3, 3, 4, 1], "num_channels": 3, "strides": [1, 2, 2, 2, 1, 2, 1]}}, "notes": ["header from the bundled
# catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# transformers-default"]}
# sha256 of all above: dffd99fb84d1b169
