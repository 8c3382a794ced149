"""microsoft/table-transformer-detection: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family detr).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: recalled
about this header: the transformers docstring names this repository, but the defaults differ in num_queries
No dropout is written: training mode computes the same, the batch norms apart; `mapper generate --train`
writes it.

Load the weights with `load(path)`; the attributes are the names in the checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes, each with what it is known from."""

    # shape: model.backbone.conv_encoder.model.layer1.{0..1}.conv1.weight [64, 64, 3, 3] and 3 more
    backbone_hidden_sizes: tuple[int, ...] = (64, 128, 256, 512)
    hidden_size: int = 256  # shape: model.input_projection.weight [256, 512, 1, 1]
    encoder_heads: int = 8  # config: encoder_attention_heads
    # shape and config: model.encoder.layers.{0..5}.self_attn.q_proj.weight [256, 256] = heads * head_dim
    encoder_head_dim: int = 32
    decoder_heads: int = 8  # config: decoder_attention_heads
    # shape and config: model.decoder.layers.{0..5}.encoder_attn.q_proj.weight [256, 256] = heads * head_dim
    decoder_head_dim: int = 32
    stage_stride: int = 2  # rule: families/timm_resnet.yaml (a stage halves the image)
    inner_size: int = 256  # shape: bbox_predictor.layers.0.weight [256, 256]
    intermediate_size: int = 2048  # shape: model.decoder.layers.{0..5}.fc1.weight [2048, 256]
    backbone_layers: int = 2  # name: model.backbone.conv_encoder.model.layer1.*
    encoder_layers: int = 6  # name: model.encoder.layers.*
    decoder_layers: int = 6  # name: model.decoder.layers.*
    channels: int = 3  # shape: model.backbone.conv_encoder.model.conv1.weight [64, 3, 7, 7]
    stem_stride: int = 2  # default: vocabulary/config_maps.yaml (as in most published code)
    kernel_size: int = 7  # shape: model.backbone.conv_encoder.model.conv1.weight [64, 3, 7, 7]
    queries: int = 15  # shape: model.query_position_embeddings.weight [15, 256]
    labels: int = 3  # shape: class_labels_classifier.weight [3, 256]
    sinusoidal_temperature: float = 10000.0  # default: vocabulary/config_objects.yaml (paper 2005.12872)


@dataclass
class Output:
    """What the model returns."""

    logits: Tensor
    pred_boxes: Tensor
    last_hidden_state: Tensor
    encoder_last_hidden_state: Tensor


torch.export.register_dataclass(Output)


class FrozenBatchNorm(nn.Module):
    """BatchNorm with fixed statistics, all four stored as buffers. (B, C, Y, X) -> (B, C, Y, X)"""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, size: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", torch.empty(size))
        self.register_buffer("bias", torch.empty(size))
        self.register_buffer("running_mean", torch.empty(size))
        self.register_buffer("running_var", torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        mean, var = self.running_mean, self.running_var
        return F.batch_norm(x, mean, var, self.weight, self.bias, False, 0.0, self.eps)


def masked_sinusoids(
    x: Tensor, seen: Tensor, temperature: float, temperature_across: float | None = None
) -> Tensor:
    """Sines and cosines of where a place stands among the real rows and columns (paper 2005.12872).

    x (B, C, Y, X), seen (B, Y, X) -> (B, Y * X, C): rows first, then columns
    """
    size = x.shape[1] // 2
    down, across = seen.cumsum(1, dtype=torch.float32), seen.cumsum(2, dtype=torch.float32)
    down = down / (down[:, -1:] + 1e-6) * 2 * math.pi
    across = across / (across[:, :, -1:] + 1e-6) * 2 * math.pi
    index = torch.arange(size // 2, dtype=torch.float32, device=x.device)
    share = 2 * index / size
    temperature_across = temperature_across or temperature
    angles = torch.stack(  # (B, Y, X, 2, size / 2)
        (down[..., None] / temperature**share, across[..., None] / temperature_across**share), dim=-2
    )
    waves = torch.stack((angles.sin(), angles.cos()), dim=-1)
    return waves.flatten(3).flatten(1, 2).to(x.dtype)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def unmasked_positions(x: Tensor, pixel_mask: Tensor | None) -> Tensor:
    """Which places of a map hold pixels. x (B, C, Y, X), pixel_mask (B, rows, columns) -> (B, Y, X)"""
    if pixel_mask is None:
        return torch.ones_like(x[:, 0], dtype=torch.bool)
    return F.interpolate(pixel_mask[None].float(), size=x.shape[-2:])[0].bool()


class BackboneLayer(nn.Module):
    """model.backbone.conv_encoder.model.layer1.*, model.backbone.conv_encoder.model.layer2.1 and 2 more:
    two convolutions with a residual (ResNet).
    """

    def __init__(self, channels: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.bn1 = FrozenBatchNorm(channels)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.bn2 = FrozenBatchNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(x + y)


class EncoderAttention(nn.Module):
    """model.encoder.layers.*.self_attn: self-attention with position embeddings added to queries and keys
    and an attention mask.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.encoder_head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.encoder_heads * config.encoder_head_dim)
        self.out_proj = nn.Linear(config.encoder_heads * config.encoder_head_dim, config.hidden_size)

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        q = split_heads(self.q_proj(x + positions), self.head_dim)
        k = split_heads(self.k_proj(x + positions), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out_proj(merge_heads(y))


class DecoderAttention(nn.Module):
    """model.decoder.layers.*.self_attn: self-attention with position embeddings added to queries and keys
    and an attention mask.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.decoder_head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.out_proj = nn.Linear(config.decoder_heads * config.decoder_head_dim, config.hidden_size)

    def forward(self, x: Tensor, positions: Tensor, mask: None) -> Tensor:
        q = split_heads(self.q_proj(x + positions), self.head_dim)
        k = split_heads(self.k_proj(x + positions), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out_proj(merge_heads(y))


class CrossAttention(nn.Module):
    """model.decoder.layers.*.encoder_attn: cross-attention with position embeddings added to queries and
    keys and an attention mask over the source.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.decoder_head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.k_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.v_proj = nn.Linear(config.hidden_size, config.decoder_heads * config.decoder_head_dim)
        self.out_proj = nn.Linear(config.decoder_heads * config.decoder_head_dim, config.hidden_size)

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        encoder_hidden_states: Tensor,
        encoder_positions: Tensor,
        cross_attention_mask: Tensor | None,
    ) -> Tensor:
        q = split_heads(self.q_proj(x + positions), self.head_dim)
        k = split_heads(self.k_proj(encoder_hidden_states + encoder_positions), self.head_dim)
        v = split_heads(self.v_proj(encoder_hidden_states), self.head_dim)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=cross_attention_mask)
        return self.out_proj(merge_heads(y))


class Shortcut(nn.Sequential):
    """model.backbone.conv_encoder.model.layer2.0.downsample,
    model.backbone.conv_encoder.model.layer3.0.downsample and 1 more: convolution and norm.
    """

    def __init__(self, config: Config, in_channels: int, out_channels: int):
        super().__init__(
            nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=config.stage_stride, bias=False),
            FrozenBatchNorm(out_channels),
        )


class FeedForward(nn.ModuleList):
    """bbox_predictor.layers: feed-forward of three linear layers with ReLU."""

    def __init__(self, config: Config):
        super().__init__(
            [
                nn.Linear(config.hidden_size, config.inner_size),
                nn.Linear(config.inner_size, config.inner_size),
                nn.Linear(config.inner_size, 4),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return self[2](F.relu(self[1](F.relu(self[0](x)))))


class DecoderLayer(nn.Module):
    """model.decoder.layers.*: a layer with pre-norm, attention, cross-attention and a feed-forward
    network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.self_attn = DecoderAttention(config)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.encoder_attn = CrossAttention(config)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        mask: None,
        encoder_hidden_states: Tensor,
        encoder_positions: Tensor,
        cross_attention_mask: Tensor | None,
    ) -> Tensor:
        x = x + self.self_attn(self.self_attn_layer_norm(x), positions, mask)
        x = x + self.encoder_attn(
            self.encoder_attn_layer_norm(x),
            positions,
            encoder_hidden_states,
            encoder_positions,
            cross_attention_mask,
        )
        return x + self.feed_forward(self.final_layer_norm(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.relu(self.fc1(x)))


class BackboneLayerWithShortcut(nn.Module):
    """model.backbone.conv_encoder.model.layer2.0, model.backbone.conv_encoder.model.layer3.0 and 1 more:
    two convolutions with a projected shortcut (ResNet).
    """

    def __init__(self, config: Config, input_size: int, hidden_size: int):
        super().__init__()
        self.conv1 = nn.Conv2d(
            input_size, hidden_size, kernel_size=3, stride=config.stage_stride, padding=1, bias=False
        )
        self.bn1 = FrozenBatchNorm(hidden_size)
        self.conv2 = nn.Conv2d(hidden_size, hidden_size, kernel_size=3, padding=1, bias=False)
        self.bn2 = FrozenBatchNorm(hidden_size)
        self.downsample = Shortcut(config, in_channels=input_size, out_channels=hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(self.downsample(x) + y)


class EncoderLayer(nn.Module):
    """model.encoder.layers.*: a layer with pre-norm, attention and a feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.self_attn = EncoderAttention(config)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.self_attn_layer_norm(x), positions, mask)
        return x + self.feed_forward(self.final_layer_norm(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.relu(self.fc1(x)))


class Stage(nn.Sequential):
    """model.backbone.conv_encoder.model.layer1: a stage of layers in sequence."""

    def __init__(self, config: Config):
        super().__init__(
            *(BackboneLayer(channels=config.backbone_hidden_sizes[0]) for _ in range(config.backbone_layers))
        )


class PositionedEncoder(nn.Module):
    """model.encoder: an encoder of the places of feature maps, with position embeddings added to queries
    and keys.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.layernorm = nn.LayerNorm(config.hidden_size)

    def forward(
        self, places: Tensor, encoder_positions: Tensor, cross_attention_mask: Tensor | None
    ) -> Tensor:
        x = places
        positions = encoder_positions
        mask = cross_attention_mask
        for layer in self.layers:
            x = layer(x, positions, mask)
        return self.layernorm(x)


class QueryDecoder(nn.Module):
    """model.decoder: learned queries, layers with self-attention and cross-attention to
    encoder_hidden_states.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.layernorm = nn.LayerNorm(config.hidden_size)

    def forward(
        self,
        queries: Tensor,
        query_places: Tensor,
        encoder_hidden_states: Tensor,
        encoder_positions: Tensor,
        cross_attention_mask: Tensor | None,
    ) -> Tensor:
        x = queries
        positions = query_places
        mask = None
        for layer in self.layers:
            x = layer(x, positions, mask, encoder_hidden_states, encoder_positions, cross_attention_mask)
        return self.layernorm(x)


class StageWithShortcut(nn.Sequential):
    """model.backbone.conv_encoder.model.layer2, model.backbone.conv_encoder.model.layer3 and 1 more: a
    stage of layers in sequence.
    """

    def __init__(self, config: Config, input_size: int, hidden_size: int):
        super().__init__(
            BackboneLayerWithShortcut(config, input_size=input_size, hidden_size=hidden_size),
            *(BackboneLayer(channels=hidden_size) for _ in range(config.backbone_layers - 1)),
        )


class StagedEncoder(nn.Module):
    """model.backbone.conv_encoder.model: an image through stages, each coarser than the one before."""

    def __init__(self, config: Config):
        super().__init__()
        self.conv1 = nn.Conv2d(
            config.channels,
            config.backbone_hidden_sizes[0],
            kernel_size=config.kernel_size,
            stride=config.stem_stride,
            padding=config.kernel_size // 2,
            bias=False,
        )
        self.bn1 = FrozenBatchNorm(config.backbone_hidden_sizes[0])
        self.layer1 = Stage(config)
        self.layer2 = StageWithShortcut(
            config, input_size=config.backbone_hidden_sizes[0], hidden_size=config.backbone_hidden_sizes[1]
        )
        self.layer3 = StageWithShortcut(
            config, input_size=config.backbone_hidden_sizes[1], hidden_size=config.backbone_hidden_sizes[2]
        )
        self.layer4 = StageWithShortcut(
            config, input_size=config.backbone_hidden_sizes[2], hidden_size=config.backbone_hidden_sizes[3]
        )

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.embeddings(pixel_values)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return x

    def embeddings(self, pixel_values: Tensor) -> Tensor:
        x = self.conv1(pixel_values.type_as(self.conv1.weight))
        x = F.relu(self.bn1(x))
        return F.max_pool2d(x, 3, stride=2, padding=1)


class Model(nn.Module):
    """The model with an encoder with 2D sinusoidal position embeddings, the coarsest feature map, a
    decoder of learned object queries (DETR) and labels and boxes.
    """

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.sinusoidal_temperature = config.sinusoidal_temperature
        self.model: Any = nn.ModuleDict(
            {
                "backbone": nn.ModuleDict({"conv_encoder": nn.ModuleDict({"model": StagedEncoder(config)})}),
                "input_projection": nn.Conv2d(
                    config.backbone_hidden_sizes[3], config.hidden_size, kernel_size=1
                ),
                "encoder": PositionedEncoder(config),
                "query_position_embeddings": nn.Embedding(config.queries, config.hidden_size),
                "decoder": QueryDecoder(config),
            }
        )
        self.class_labels_classifier = nn.Linear(config.hidden_size, config.labels)
        self.bbox_predictor: Any = nn.ModuleDict({"layers": FeedForward(config)})

    def forward(self, pixel_values: Tensor, pixel_mask: Tensor | None = None) -> Output:
        """pixel_values (batch, channels, height, width), pixel_mask (batch, height, width)"""
        x = self.model.input_projection(self.model.backbone.conv_encoder.model(pixel_values))
        seen = unmasked_positions(x, pixel_mask)
        encoder_positions = masked_sinusoids(
            x, seen, self.sinusoidal_temperature, self.sinusoidal_temperature
        )
        cross_attention_mask = padding_mask(seen.flatten(1))
        places = x.flatten(2).transpose(1, 2)
        encoder_hidden_states = self.model.encoder(places, encoder_positions, cross_attention_mask)
        query_places = self.model.query_position_embeddings.weight.expand(
            encoder_hidden_states.shape[0], -1, -1
        )
        queries = torch.zeros_like(query_places)
        x = self.model.decoder(
            queries, query_places, encoder_hidden_states, encoder_positions, cross_attention_mask
        )
        scores = self.class_labels_classifier(x)
        offsets = self.bbox_predictor.layers(x)
        return Output(
            logits=scores,
            pred_boxes=offsets.sigmoid(),
            last_hidden_state=x,
            encoder_last_hidden_state=encoder_hidden_states,
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
# {"config": {"activation_function": "relu", "architectures": ["TableTransformerForObjectDetection"],
# "d_model": 256, "decoder_attention_heads": 8, "decoder_ffn_dim": 2048, "decoder_layers": 6,
# "encoder_attention_heads": 8, "encoder_ffn_dim": 2048, "model_type": "table-transformer", "num_channels": 3,
# "num_hidden_layers": 6, "num_queries": 15, "position_embedding_type": "sine"}, "notes": ["header from the
# bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its
# config: recalled", "about this header: the transformers docstring names this repository, but the defaults
# differ in num_queries"]}
# sha256 of all above: 3dd3c0dbf7467cf6
