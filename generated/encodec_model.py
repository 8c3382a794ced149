"""facebook/encodec_24khz: written by mapper 0.1.0, rules 085fa52bb6da.

Reading: exact (family encodec).
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

    codes: int = 1024  # shape: quantizer.layers.{0..31}.codebook.embed [1024, 128]
    code_size: int = 128  # shape: quantizer.layers.{0..31}.codebook.embed [1024, 128]
    # shape: encoder.layers.0.conv.parametrizations.weight.original0 [32, 1, 7] and 4 more
    wave_encoder_channels: tuple[int, ...] = (32, 64, 128, 256, 512)
    # shape: decoder.layers.3.conv.parametrizations.weight.original0 [512, 256, 16] and 3 more
    wave_decoder_channels: tuple[int, ...] = (256, 128, 64, 32)
    # shape: encoder.layers.1.block.1.conv.parametrizations.weight.original0 [16, 32, 3] and 3 more
    wave_encoder_inner_channels: tuple[int, ...] = (16, 32, 64, 128)
    # shape: decoder.layers.4.block.1.conv.parametrizations.weight.original0 [128, 256, 3] and 3 more
    wave_decoder_inner_channels: tuple[int, ...] = (128, 64, 32, 16)
    # rule: vocabulary/config_codecs.yaml: 1 + (1 - kernel % 2) * (kernel // 2 - 1)
    wave_decoder_units_stride: int = 1
    channels: int = 512  # shape: decoder.layers.0.conv.parametrizations.weight.original1 [512, 128, 7]
    # rule: vocabulary/config_codecs.yaml: 1 + (1 - kernel % 2) * (kernel // 2 - 1) and 3 more
    wave_encoder_strides: tuple[int, ...] = (2, 4, 5, 8)
    # shape: encoder.layers.3.conv.parametrizations.weight.original1 [64, 32, 4] and 3 more
    wave_encoder_kernels: tuple[int, ...] = (4, 8, 10, 16)
    sound_channels: int = 1  # shape: encoder.layers.0.conv.parametrizations.weight.original1 [32, 1, 7]
    wave_decoder_conv_strides: tuple[int, ...] = (8, 5, 4, 2)  # shape: decoder.layers: conv_stride of each
    # shape: decoder.layers.3.conv.parametrizations.weight.original1 [512, 256, 16] and 3 more
    wave_decoder_kernels: tuple[int, ...] = (16, 10, 8, 4)
    # rule: vocabulary/config_codecs.yaml: floor(1000 * first(codes.bandwidths) / (codes.frames * ...
    codes_codebooks: int = 2


@dataclass
class Output:
    """What the model returns."""

    audio_values: Tensor
    audio_codes: Tensor


torch.export.register_dataclass(Output)


def weight_norm_sizes(shape: tuple[int, ...], dim: int | None) -> list[int]:
    """Shape of a weight-normed kernel's lengths: one for each slice along `dim`, or one for all (None)."""
    return [size if axis == dim else 1 for axis, size in enumerate(shape)]


def weight_norm(length: Tensor, direction: Tensor) -> Tensor:
    """Kernel of a weight-normed layer: the direction scaled to a length per slice (paper 1602.07868)."""
    axes = [axis for axis, size in enumerate(length.shape) if size == 1]
    return direction * (length / torch.linalg.vector_norm(direction, dim=axes, keepdim=True))


class Conv1dParametrized(nn.Module):
    """Conv1d whose kernel is stored as parametrizations.weight: original0 length, original1 direction."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int,
        stride: int = 1,
        padding: int | str = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dim: int | None = 0,
    ):
        super().__init__()
        shape = (out_channels, in_channels // groups, kernel)
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.parametrizations = nn.Module()
        parts = self.parametrizations.weight = nn.Module()
        parts.original0 = nn.Parameter(torch.empty(weight_norm_sizes(shape, dim)))
        parts.original1 = nn.Parameter(torch.empty(shape))

    def forward(self, x: Tensor) -> Tensor:
        length = self.get_parameter("parametrizations.weight.original0")
        direction = self.get_parameter("parametrizations.weight.original1")
        weight = weight_norm(length, direction)
        return F.conv1d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class ConvTranspose1dParametrized(nn.Module):
    """ConvTranspose1d whose kernel is stored as parametrizations.weight, a length and a direction."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        output_padding: int = 0,
        bias: bool = True,
        dim: int | None = 0,
    ):
        super().__init__()
        shape = (in_channels, out_channels, kernel)
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.parametrizations = nn.Module()
        parts = self.parametrizations.weight = nn.Module()
        parts.original0 = nn.Parameter(torch.empty(weight_norm_sizes(shape, dim)))
        parts.original1 = nn.Parameter(torch.empty(shape))

    def forward(self, x: Tensor) -> Tensor:
        length = self.get_parameter("parametrizations.weight.original0")
        direction = self.get_parameter("parametrizations.weight.original1")
        weight = weight_norm(length, direction)
        return F.conv_transpose1d(x, weight, self.bias, self.stride, self.padding, self.output_padding)


def nearest_codes(x: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """The closest code for every position: its number, and the code.

    x (B, T, D), codes (V, D) -> (B, T), (B, T, D)
    """
    numbers = torch.cdist(x.flatten(0, 1)[None].float(), codes[None].float())[0].argmin(dim=-1)
    numbers = numbers.view(x.shape[:-1])
    return numbers, F.embedding(numbers, codes)


def pad_mirrored(x: Tensor, start: int, end: int) -> Tensor:
    """So many samples before the first and behind the last in reverse order, zeros behind where they are few.

    x (B, C, T) -> (B, C, T + start + end)
    """
    lacking = max(0, max(start, end) + 1 - x.shape[-1])
    padded = F.pad(F.pad(x, (0, lacking)), (start, end), "reflect")
    return padded[..., : padded.shape[-1] - lacking]


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Hides padded keys from every query; None hides nothing. attention_mask (B, S) -> (B, 1, 1, S)"""
    return None if attention_mask is None else attention_mask[:, None, None, :] != 0


class Codebook(nn.Module):
    """quantizer.layers.*.codebook: holds what the module around it computes with."""

    embed: Tensor

    def __init__(self, config: Config):
        super().__init__()
        self.register_buffer("embed", torch.zeros(config.codes, config.code_size))
        self.register_buffer("cluster_size", torch.zeros(config.codes))  # unused: of training alone
        # unused: of training alone
        self.register_buffer("embed_avg", torch.zeros(config.codes, config.code_size))
        self.register_buffer("inited", torch.zeros(1))  # unused: of training alone


class WaveEncoderUnits(nn.Module):
    """encoder.layers.*, decoder.layers.*: residual unit of two convolutions, each after an activation,
    with causal padding.
    """

    def __init__(self, channels: int, out_channels: int):
        super().__init__()
        self.kernel = 3
        self.block: Any = nn.ModuleDict(
            {
                "1": nn.ModuleDict({"conv": Conv1dParametrized(channels, out_channels, 3)}),
                "3": nn.ModuleDict({"conv": Conv1dParametrized(out_channels, channels, 1)}),
            }
        )
        self.shortcut: Any = nn.ModuleDict({"conv": Conv1dParametrized(channels, channels, 1)})

    def forward(self, x: Tensor) -> Tensor:
        before, behind = self.kernel - 1, 0
        y = self.block["1"].conv(pad_mirrored(F.elu(x), before, behind))
        y = self.block["3"].conv(F.elu(y))
        x = self.shortcut.conv(x)
        return x + y


class WaveEncoderUnitsWithConvolution(nn.Module):
    """encoder.layers.*, decoder.layers.15: activation and convolution, strided where the kernel is even,
    with causal padding.
    """

    def __init__(self, in_channels: int, out_channels: int, units_stride: int, kernel: int):
        super().__init__()
        self.kernel = kernel
        self.units_stride = units_stride
        self.conv = Conv1dParametrized(in_channels, out_channels, kernel, stride=units_stride)

    def forward(self, x: Tensor) -> Tensor:
        before, behind = self.kernel - self.units_stride, -x.shape[-1] % self.units_stride
        return self.conv(pad_mirrored(F.elu(x), before, behind))


class WaveEncoderUnitsWithRecurrent(nn.Module):
    """encoder.layers.13, decoder.layers.1: a recurrent network over time, added to what it reads."""

    def __init__(self, size: int):
        super().__init__()
        self.lstm = nn.LSTM(size, size, num_layers=2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.lstm(x.transpose(1, 2))
        return x + y.transpose(1, 2)


class WaveDecoderUnits(nn.Module):
    """decoder.layers.*: activation and transposed convolution with causal trimming."""

    def __init__(self, in_channels: int, out_channels: int, conv_stride: int, kernel: int):
        super().__init__()
        self.kernel = kernel
        self.conv = ConvTranspose1dParametrized(in_channels, out_channels, kernel, stride=conv_stride)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(F.elu(x))
        return x[..., : x.shape[-1] - self.kernel // 2]


class WaveEncoder(nn.ModuleDict):
    """encoder.layers: codec encoder: convolutions in sequence with causal padding."""

    __getitem__: Any

    def __init__(self, config: Config):
        super().__init__(
            {
                "0": nn.ModuleDict(
                    {"conv": Conv1dParametrized(config.sound_channels, config.wave_encoder_channels[0], 7)}
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
                "13": WaveEncoderUnitsWithRecurrent(size=config.wave_encoder_channels[4]),
                "15": WaveEncoderUnitsWithConvolution(
                    in_channels=config.wave_encoder_channels[4],
                    out_channels=config.code_size,
                    units_stride=config.wave_decoder_units_stride,
                    kernel=7,
                ),
            }
        )
        self.kernel = 7

    def forward(self, x: Tensor) -> Tensor:
        x = pad_mirrored(x, self.kernel - 1, 0)
        x = self["0"].conv(x)
        for unit in list(self.values())[1:]:
            x = unit(x)
        return x


class Codebooks(nn.Module):
    """quantizer.layers.*: vector quantization with the nearest vector of the codebook by Euclidean
    distance.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.codebook = Codebook(config)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        number, code = nearest_codes(x, self.codebook.embed)
        return number, code


class WaveDecoder(nn.ModuleDict):
    """decoder.layers: codec decoder: convolutions in sequence with causal padding."""

    __getitem__: Any

    def __init__(self, config: Config):
        super().__init__(
            {
                "0": nn.ModuleDict({"conv": Conv1dParametrized(config.code_size, config.channels, 7)}),
                "1": WaveEncoderUnitsWithRecurrent(size=config.channels),
                **{
                    str(place): unit
                    for index, in_channels, out_channels, conv_stride, kernel, inner_channels in zip(
                        range(3, 15, 3),
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
                "15": WaveEncoderUnitsWithConvolution(
                    in_channels=config.wave_decoder_channels[3],
                    out_channels=1,
                    units_stride=config.wave_decoder_units_stride,
                    kernel=7,
                ),
            }
        )
        self.kernel = 7

    def forward(self, x: Tensor) -> Tensor:
        x = pad_mirrored(x, self.kernel - 1, 0)
        x = self["0"].conv(x)
        for unit in list(self.values())[1:]:
            x = unit(x)
        return x


class Quantizer(nn.Module):
    """quantizer: residual vector quantization: each codebook encodes the residual of those before with as
    many codebooks as the first bandwidth takes.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.codes_codebooks = config.codes_codebooks
        self.layers = nn.ModuleList(Codebooks(config) for _ in range(32))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rest = x.transpose(1, 2)
        found = torch.zeros_like(rest)
        numbers = []
        for codebook in self.layers[: self.codes_codebooks]:
            number, code = codebook(rest)
            rest, found = rest - code, found + code
            numbers.append(number)
        x = found.transpose(1, 2)
        return torch.stack(numbers, dim=1), x


class Model(nn.Module):
    """The model: a codec with residual vector quantization."""

    def __init__(self, config: Config = Config()):
        super().__init__()
        self.encoder: Any = nn.ModuleDict({"layers": WaveEncoder(config)})
        self.quantizer = Quantizer(config)
        self.decoder: Any = nn.ModuleDict({"layers": WaveDecoder(config)})

    def forward(self, input_values: Tensor, padding_mask: Tensor | None = None) -> Output:
        """input_values (batch, 1, samples), padding_mask (batch, 1, samples)"""
        heard = input_values if padding_mask is None else input_values * padding_mask
        x = self.encoder.layers(heard)
        codes, x = self.quantizer(x)
        audio = self.decoder.layers(x)[..., : input_values.shape[-1]]
        return Output(audio_values=audio, audio_codes=codes[None])


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
# {"config": {"architectures": ["EncodecModel"], "codebook_size": 1024, "model_type": "encodec", "norm_type":
# "weight_norm", "normalize": false, "pad_mode": "reflect", "sampling_rate": 24000, "target_bandwidths": [1.5,
# 3.0, 6.0, 12.0, 24.0], "upsampling_ratios": [8, 5, 4, 2], "use_causal_conv": true, "use_conv_shortcut":
# true}, "notes": ["header from the bundled catalogue (reconstructed with transformers 5.23.0 from config),
# not from the hub", "evidence for its config: transformers-default"]}
# sha256 of all above: 0f0a2a85783522df
