"""kyutai/mimi: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family mimi).
header from the bundled catalogue (reconstructed with transformers 5.23.0 from config), not from the hub
evidence for its config: transformers-default
No dropout is written: training mode computes the same; `mapper generate --train` writes it.

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

    hidden_size: int = 512  # shape: downsample.conv.weight [512, 512, 4]
    heads: int = 8  # default: num_attention_heads, left out: the default of mimi
    # shape and default: decoder_transformer.layers.{0..7}.self_attn.q_proj.weight [512, 512] = heads * ...
    head_dim: int = 64
    # shape: quantizer.acoustic_residual_vector_quantizer.layers.{0..30}.codebook.embed_sum [2048, 256]
    codes: int = 2048
    # shape: quantizer.acoustic_residual_vector_quantizer.input_proj.weight [256, 512, 1]
    code_size: int = 256
    intermediate_size: int = 2048  # shape: decoder_transformer.layers.{0..7}.mlp.fc1.weight [2048, 512]
    # shape: encoder.layers.0.conv.weight [64, 1, 7] and 4 more
    wave_encoder_channels: tuple[int, ...] = (64, 128, 256, 512, 1024)
    # shape: decoder.layers.2.conv.weight [1024, 512, 16] and 3 more
    wave_decoder_channels: tuple[int, ...] = (512, 256, 128, 64)
    # shape: encoder.layers.1.block.1.conv.weight [32, 64, 3] and 3 more
    wave_encoder_inner_channels: tuple[int, ...] = (32, 64, 128, 256)
    # shape: decoder.layers.3.block.1.conv.weight [256, 512, 3] and 3 more
    wave_decoder_inner_channels: tuple[int, ...] = (256, 128, 64, 32)
    # rule: vocabulary/config_codecs.yaml: 1 + (1 - kernel % 2) * (kernel // 2 - 1)
    wave_decoder_units_stride: int = 1
    channels: int = 1024  # shape: decoder.layers.0.conv.weight [1024, 512, 7]
    # rule: vocabulary/config_codecs.yaml: 1 + (1 - kernel % 2) * (kernel // 2 - 1) and 3 more
    wave_encoder_strides: tuple[int, ...] = (4, 5, 6, 8)
    # shape: encoder.layers.3.conv.weight [128, 64, 8] and 3 more
    wave_encoder_kernels: tuple[int, ...] = (8, 10, 12, 16)
    sound_channels: int = 1  # shape: encoder.layers.0.conv.weight [64, 1, 7]
    wave_decoder_conv_strides: tuple[int, ...] = (8, 6, 5, 4)  # shape: decoder.layers: conv_stride of each
    # shape: decoder.layers.2.conv.weight [1024, 512, 16] and 3 more
    wave_decoder_kernels: tuple[int, ...] = (16, 12, 10, 8)
    encoder_layers: int = 8  # name: encoder_transformer.layers.*
    decoder_layers: int = 8  # name: decoder_transformer.layers.*
    window: int = 250  # default: sliding_window, left out: the default of mimi
    rotary_base: float = 10000.0  # default: rope_parameters.rope_theta, left out: the default of mimi
    down_kernel: int = 4  # shape: downsample.conv.weight [512, 512, 4]
    group_size: int = 1  # shape: upsample.conv.weight [512, 1, 4]
    up_kernel: int = 4  # shape: upsample.conv.weight [512, 1, 4]


@dataclass
class Output:
    """What the model returns."""

    audio_values: Tensor
    audio_codes: Tensor


torch.export.register_dataclass(Output)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates channel i with channel i + D / 2. x (B, H, T, D), cos and sin (B, 1, T, D / 2)"""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def merge_heads(x: Tensor) -> Tensor:
    """Joins the heads again. x (B, H, T, D) -> (B, T, H * D)"""
    return x.transpose(1, 2).flatten(2)


def nearest_codes(x: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """The closest code for every position: its number, and the code.

    x (B, T, D), codes (V, D) -> (B, T), (B, T, D)
    """
    numbers = torch.cdist(x.flatten(0, 1)[None].float(), codes[None].float())[0].argmin(dim=-1)
    numbers = numbers.view(x.shape[:-1])
    return numbers, F.embedding(numbers, codes)


def pad_start(x: Tensor, count: int, stride: int, mode: str = "constant") -> Tensor:
    """So many samples before the first, and behind the last as many as the last step lacks.

    x (B, C, T) -> (B, C, T')
    """
    return F.pad(x, (count, -x.shape[-1] % stride), mode)


def positions_in_order(x: Tensor) -> Tensor:
    """0, 1, 2, ... for every position of x. x (B, T, ...) -> (1, T)"""
    return torch.arange(x.shape[1], device=x.device)[None]


def rotary_frequencies(positions: Tensor, rotary_dim: int, base: float) -> Tensor:
    """Angle per position of each pair of channels. -> (R / 2,) on the device of positions"""
    index = torch.arange(0, rotary_dim, 2, device=positions.device)
    return 1.0 / base ** (index.float() / rotary_dim)


def rotary_tables(x: Tensor, positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every angle, in the dtype of x. positions (B, T) -> two (B, 1, T, R / 2)"""
    angles = positions[:, None, :, None].float() * frequencies
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def sliding_mask(x: Tensor, attention_mask: Tensor | None, window: int, after: int = 0) -> Tensor:
    """Shows each query itself, the window - 1 keys before it and `after` behind. Shapes as in causal_mask"""
    index = torch.arange(x.shape[1], device=x.device)
    mask = ((index <= index[:, None] + after) & (index > index[:, None] - window))[None, None]
    return mask if attention_mask is None else mask & (attention_mask[:, None, None, :] != 0)


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Splits a projection into heads. x (B, T, H * D) -> (B, H, T, D)"""
    return x.unflatten(-1, (-1, head_dim)).transpose(1, 2)


class Attention(nn.Module):
    """encoder_transformer.layers.*.self_attn, decoder_transformer.layers.*.self_attn: self-attention with
    rotary embeddings and a causal mask.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        q = split_heads(self.q_proj(x), self.head_dim)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        q = apply_rotary(q, cos, sin)
        k = apply_rotary(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(merge_heads(y))


class Codebook(nn.Module):
    """quantizer.semantic_residual_vector_quantizer.layers.0.codebook,
    quantizer.acoustic_residual_vector_quantizer.layers.*.codebook: holds what the module around it
    computes with.
    """

    embed_sum: Tensor
    cluster_usage: Tensor

    def __init__(self, config: Config):
        super().__init__()
        self.register_buffer("embed_sum", torch.zeros(config.codes, config.code_size))
        self.register_buffer("cluster_usage", torch.zeros(config.codes))
        self.register_buffer("initialized", torch.zeros(1))  # unused: a mark of training


class FeedForward(nn.Module):
    """encoder_transformer.layers.*.mlp, decoder_transformer.layers.*.mlp: feed-forward network."""

    def __init__(self, config: Config):
        super().__init__()
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class WaveEncoderUnits(nn.Module):
    """encoder.layers.*, decoder.layers.*: residual unit of two convolutions, each after an activation,
    with causal padding.
    """

    def __init__(self, channels: int, out_channels: int):
        super().__init__()
        self.kernel = 3
        self.block: Any = nn.ModuleDict(
            {
                "1": nn.ModuleDict({"conv": nn.Conv1d(channels, out_channels, kernel_size=3)}),
                "3": nn.ModuleDict({"conv": nn.Conv1d(out_channels, channels, kernel_size=1)}),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        before, behind = self.kernel - 1, 0
        y = self.block["1"].conv(F.pad(F.elu(x), (before, behind)))
        y = self.block["3"].conv(F.elu(y))
        return x + y


class WaveEncoderUnitsWithConvolution(nn.Module):
    """encoder.layers.*, decoder.layers.14: activation and convolution, strided where the kernel is even,
    with causal padding.
    """

    def __init__(self, in_channels: int, out_channels: int, units_stride: int, kernel: int):
        super().__init__()
        self.kernel = kernel
        self.units_stride = units_stride
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size=kernel, stride=units_stride)

    def forward(self, x: Tensor) -> Tensor:
        before, behind = self.kernel - self.units_stride, -x.shape[-1] % self.units_stride
        return self.conv(F.pad(F.elu(x), (before, behind)))


class WaveDecoderUnits(nn.Module):
    """decoder.layers.*: activation and transposed convolution with causal trimming."""

    def __init__(self, in_channels: int, out_channels: int, conv_stride: int, kernel: int):
        super().__init__()
        self.kernel = kernel
        self.conv = nn.ConvTranspose1d(in_channels, out_channels, kernel_size=kernel, stride=conv_stride)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(F.elu(x))
        return x[..., : x.shape[-1] - self.kernel // 2]


class Layer(nn.Module):
    """encoder_transformer.layers.*, decoder_transformer.layers.*: a layer with pre-norm, attention, layer
    scale and a feed-forward network.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(config.hidden_size)
        self.self_attn = Attention(config)
        self.self_attn_layer_scale: Any = nn.ParameterDict(
            {"scale": nn.Parameter(torch.zeros(config.hidden_size))}
        )
        self.post_attention_layernorm = nn.LayerNorm(config.hidden_size)
        self.mlp = FeedForward(config)
        self.mlp_layer_scale: Any = nn.ParameterDict({"scale": nn.Parameter(torch.zeros(config.hidden_size))})

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask) * self.self_attn_layer_scale.scale
        return x + self.mlp(self.post_attention_layernorm(x)) * self.mlp_layer_scale.scale


class WaveEncoder(nn.ModuleDict):
    """encoder.layers: codec encoder: convolutions in sequence with causal padding."""

    __getitem__: Any

    def __init__(self, config: Config):
        super().__init__(
            {
                "0": nn.ModuleDict(
                    {"conv": nn.Conv1d(config.sound_channels, config.wave_encoder_channels[0], kernel_size=7)}
                ),
                **{
                    str(place): unit
                    for index, channels, inner_channels, out_channels, stride, kernel in zip(
                        range(1, 13, 3),
                        config.wave_encoder_channels[:-1],
                        config.wave_encoder_inner_channels,
                        config.wave_encoder_channels[1:],
                        config.wave_encoder_strides,
                        config.wave_encoder_kernels,
                        strict=True,
                    )
                    for place, unit in (
                        (index, WaveEncoderUnits(channels=channels, out_channels=inner_channels)),
                        (
                            index + 2,
                            WaveEncoderUnitsWithConvolution(
                                in_channels=channels,
                                out_channels=out_channels,
                                units_stride=stride,
                                kernel=kernel,
                            ),
                        ),
                    )
                },
                "14": WaveEncoderUnitsWithConvolution(
                    in_channels=config.wave_encoder_channels[4],
                    out_channels=config.hidden_size,
                    units_stride=config.wave_decoder_units_stride,
                    kernel=3,
                ),
            }
        )
        self.kernel = 7

    def forward(self, x: Tensor) -> Tensor:
        x = pad_start(x, self.kernel - 1, 1)
        x = self["0"].conv(x)
        for unit in list(self.values())[1:]:
            x = unit(x)
        return x


class Codebooks(nn.Module):
    """quantizer.semantic_residual_vector_quantizer.layers.0,
    quantizer.acoustic_residual_vector_quantizer.layers.*: vector quantization with Euclidean distance,
    the codebook as an exponential moving average.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.codebook = Codebook(config)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        number, code = nearest_codes(
            x, self.codebook.embed_sum / self.codebook.cluster_usage.clamp(min=1e-5)[:, None]
        )
        return number, code


class WaveDecoder(nn.ModuleDict):
    """decoder.layers: codec decoder: convolutions in sequence with causal padding."""

    __getitem__: Any

    def __init__(self, config: Config):
        super().__init__(
            {
                "0": nn.ModuleDict({"conv": nn.Conv1d(config.hidden_size, config.channels, kernel_size=7)}),
                **{
                    str(place): unit
                    for index, in_channels, out_channels, conv_stride, kernel, inner_channels in zip(
                        range(2, 14, 3),
                        [config.channels, *config.wave_decoder_channels[:-1]],
                        config.wave_decoder_channels,
                        config.wave_decoder_conv_strides,
                        config.wave_decoder_kernels,
                        config.wave_decoder_inner_channels,
                        strict=True,
                    )
                    for place, unit in (
                        (
                            index,
                            WaveDecoderUnits(
                                in_channels=in_channels,
                                out_channels=out_channels,
                                conv_stride=conv_stride,
                                kernel=kernel,
                            ),
                        ),
                        (index + 1, WaveEncoderUnits(channels=out_channels, out_channels=inner_channels)),
                    )
                },
                "14": WaveEncoderUnitsWithConvolution(
                    in_channels=config.wave_decoder_channels[3],
                    out_channels=1,
                    units_stride=config.wave_decoder_units_stride,
                    kernel=3,
                ),
            }
        )
        self.kernel = 7

    def forward(self, x: Tensor) -> Tensor:
        x = pad_start(x, self.kernel - 1, 1)
        x = self["0"].conv(x)
        for unit in list(self.values())[1:]:
            x = unit(x)
        return x


class Semantic(nn.Module):
    """quantizer.semantic_residual_vector_quantizer: residual vector quantization: each codebook encodes
    the residual of those before.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.input_proj = nn.Conv1d(config.hidden_size, config.code_size, kernel_size=1, bias=False)
        self.layers = nn.ModuleList([Codebooks(config)])
        self.output_proj = nn.Conv1d(config.code_size, config.hidden_size, kernel_size=1, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.input_proj(x)
        rest = x.transpose(1, 2)
        found = torch.zeros_like(rest)
        numbers = []
        for codebook in self.layers:
            number, code = codebook(rest)
            rest, found = rest - code, found + code
            numbers.append(number)
        x = found.transpose(1, 2)
        x = self.output_proj(x)
        return torch.stack(numbers, dim=1), x


class Acoustic(nn.Module):
    """quantizer.acoustic_residual_vector_quantizer: residual vector quantization: each codebook encodes
    the residual of those before.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.input_proj = nn.Conv1d(config.hidden_size, config.code_size, kernel_size=1, bias=False)
        self.layers = nn.ModuleList(Codebooks(config) for _ in range(31))
        self.output_proj = nn.Conv1d(config.code_size, config.hidden_size, kernel_size=1, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.input_proj(x)
        rest = x.transpose(1, 2)
        found = torch.zeros_like(rest)
        numbers = []
        for codebook in self.layers:
            number, code = codebook(rest)
            rest, found = rest - code, found + code
            numbers.append(number)
        x = found.transpose(1, 2)
        x = self.output_proj(x)
        return torch.stack(numbers, dim=1), x


class Decoder(nn.Module):
    """encoder_transformer, decoder_transformer: a stack of layers with embeddings that are looked up
    outside, a causal mask and rotary embeddings.
    """

    def __init__(self, config: Config, layers: int):
        super().__init__()
        self.window = config.window
        self.rotary_dim = config.head_dim
        self.rotary_base = config.rotary_base
        self.layers = nn.ModuleList(Layer(config) for _ in range(layers))

    def forward(self, embedded: Tensor) -> Tensor:
        x = embedded
        mask = sliding_mask(x, None, self.window)
        cos, sin = self.rotary(x, positions_in_order(x))
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return x

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return rotary_tables(x, positions, rotary_frequencies(positions, self.rotary_dim, self.rotary_base))


class Model(nn.Module):
    """The model: a codec with residual vector quantization and a semantic codebook first."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.down_kernel = config.down_kernel
        self.up_kernel = config.up_kernel
        self.encoder: Any = nn.ModuleDict({"layers": WaveEncoder(config)})
        self.encoder_transformer = Decoder(config, layers=config.encoder_layers)
        self.downsample: Any = nn.ModuleDict(
            {
                "conv": nn.Conv1d(
                    config.hidden_size,
                    config.hidden_size,
                    kernel_size=config.down_kernel,
                    stride=2,
                    bias=False,
                )
            }
        )
        self.quantizer: Any = nn.ModuleDict(
            {
                "semantic_residual_vector_quantizer": Semantic(config),
                "acoustic_residual_vector_quantizer": Acoustic(config),
            }
        )
        self.upsample: Any = nn.ModuleDict(
            {
                "conv": nn.ConvTranspose1d(
                    config.hidden_size,
                    config.hidden_size // config.group_size,
                    kernel_size=config.up_kernel,
                    stride=2,
                    groups=config.hidden_size // config.group_size,
                    bias=False,
                )
            }
        )
        self.decoder_transformer = Decoder(config, layers=config.decoder_layers)
        self.decoder: Any = nn.ModuleDict({"layers": WaveDecoder(config)})

    def forward(self, input_values: Tensor) -> Output:
        """input_values (batch, 1, samples)"""
        x = self.encoder.layers(input_values)
        x = self.encoder_transformer(x.transpose(1, 2)).transpose(1, 2)
        x = self.downsample.conv(pad_start(x, self.down_kernel // 2, self.down_kernel // 2, "replicate"))
        first_codes, first = self.quantizer.semantic_residual_vector_quantizer(x)
        other_codes, others = self.quantizer.acoustic_residual_vector_quantizer(x)
        codes, x = torch.cat((first_codes, other_codes), dim=1), first + others
        x = self.upsample.conv(x)
        x = x[..., : x.shape[-1] - self.up_kernel // 2]
        x = self.decoder_transformer(x.transpose(1, 2)).transpose(1, 2)
        audio = self.decoder.layers(x)[..., : input_values.shape[-1]]
        return Output(audio_values=audio, audio_codes=codes)


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
# {"config": {"architectures": ["MimiModel"], "model_type": "mimi"}, "notes": ["header from the bundled
# catalogue (reconstructed with transformers 5.23.0 from config), not from the hub", "evidence for its config:
# transformers-default"]}
# sha256 of all above: b261eac2609b4102
