"""Networks for sounds under the names of other libraries, against the same networks written here with torch alone.

No reading of these is exact: no config names a type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

import mapper
from tests.parity.harness import TOLERANCE, randomise, reference, transformers


def built(folder: Path, model: nn.Module, settings: Mapping[str, Any] | None = None, hints: Any = None) -> nn.Module:  # fmt: skip
    """What is built of a model's tensors, with what its library writes beside them."""
    return built_of(folder, model.state_dict(), settings, hints)


def built_of(folder: Path, state: Mapping[str, Tensor], settings: Mapping[str, Any] | None = None, hints: Any = None) -> nn.Module:  # fmt: skip
    """The same of tensors under other names."""
    save_file({name: value.contiguous() for name, value in state.items()}, folder / "model.safetensors")
    if settings:
        (folder / "config.json").write_text(json.dumps(settings))
    report = mapper.inspect(folder, hints=hints).architecture
    assert report.reading == "unverified", (report.findings, report.missing)
    assert not report.unmapped + report.questions
    return mapper.build(folder, hints=hints)


def saved(folder: Path, model: nn.Module) -> Path:
    save_file(model.state_dict(), folder / "model.safetensors")
    return folder


def assert_near(made: Tensor, wanted: Tensor) -> None:
    assert made.shape == wanted.shape
    assert float((made - wanted).abs().max() / wanted.std()) <= TOLERANCE


class Snake(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, size, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + (self.alpha + 1e-9).reciprocal() * torch.sin(self.alpha * x) ** 2


class Whole(nn.Module):
    """A row of modules under a name of its own, added to what it reads where it is a residual unit."""

    def __init__(self, name: str, *parts: nn.Module, is_added: bool = False) -> None:
        super().__init__()
        self.name, self.is_added = name, is_added
        setattr(self, name, nn.Sequential(*parts))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = getattr(self, self.name)(x)
        return x + y if self.is_added else y


def convolution(size: int, out: int, kernel: int, **more: Any) -> nn.Module:
    return weight_norm(nn.Conv1d(size, out, kernel, **more))


def units(size: int, groups: int) -> list[nn.Module]:
    return [
        Whole(
            "block", Snake(size),
            convolution(size, size, 7, dilation=dilation, padding=3 * dilation, groups=groups),
            Snake(size), convolution(size, size, 1), is_added=True,
        )
        for dilation in (1, 3, 9)
    ]  # fmt: skip


class Codec(nn.Module):
    """Steps of 2 and 3 samples to a frame; `rates`: how many frames have one code, book by book."""

    def __init__(self, rates: list[int], is_depthwise: bool, is_later: bool) -> None:
        super().__init__()
        self.rates, self.is_later = rates, is_later
        down, up = [], []
        for size, step in ((8, 2), (16, 3)):
            narrower = convolution(size, 2 * size, 2 * step, stride=step, padding=(step + 1) // 2)
            down.append(Whole("block", *units(size, size if is_depthwise else 1), Snake(size), narrower))
        for size, step in ((32, 3), (16, 2)):
            wider = nn.ConvTranspose1d(
                size, size // 2, 2 * step, stride=step, padding=(step + 1) // 2, output_padding=step % 2 if is_later else 0,
            )  # fmt: skip
            up.append(Whole("block", Snake(size), weight_norm(wider), *units(size // 2, size // 2 if is_depthwise else 1)))  # fmt: skip
        groups = 32 if is_depthwise else 1
        end = [convolution(32, 32, 7, padding=3, groups=groups)] if is_later else [Snake(32), convolution(32, 32, 3, padding=1)]  # fmt: skip
        first = [convolution(32, 32, 7, padding=3, groups=groups)]
        first += [convolution(32, 32, 1)] if is_depthwise else []
        self.encoder = Whole("block", convolution(1, 8, 7, padding=3), *down, *end)
        self.decoder = Whole("model", *first, *up, Snake(8), convolution(8, 1, 7, padding=3), nn.Tanh())
        self.quantizer = nn.Module()
        self.quantizer.quantizers = nn.ModuleList(
            nn.ModuleDict({"in_proj": convolution(32, 4, 1), "out_proj": convolution(4, 32, 1), "codebook": nn.Embedding(12, 4)})
            for _ in rates
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[-1]
        rest: Tensor = self.encoder(F.pad(x, (0, -length % (6 * self.rates[0]))))
        found = torch.zeros_like(rest)
        for rate, book in zip(self.rates, self.quantizer.quantizers, strict=True):
            latent = book["in_proj"](F.avg_pool1d(rest, rate, rate))
            near = F.normalize(latent, dim=1).transpose(1, 2) @ F.normalize(book["codebook"].weight).t()
            code = book["codebook"](near.argmax(-1)).transpose(1, 2)
            code = book["out_proj"](code).repeat_interleave(rate, dim=-1)
            rest, found = rest - code, found + code
        made: Tensor = self.decoder(found)
        return made[..., :length]


@pytest.mark.parametrize("is_depthwise", [False, True])
def test_a_codec_whose_books_have_rates_of_their_own(is_depthwise: bool, tmp_path: Path) -> None:
    model = randomise(Codec([4, 2, 1], is_depthwise, is_later=True))
    made = built(tmp_path, model, {"sampling_rate": 24000, "vq_strides": [4, 2, 1]})
    x = torch.randn(2, 1, 100)
    with torch.no_grad():
        assert_near(made(x).audio_values, model(x))


def test_a_codec_of_the_first_release_hears_whole_frames(tmp_path: Path) -> None:
    model = randomise(Codec([1, 1], is_depthwise=False, is_later=False))
    made, x = built(tmp_path, model), torch.randn(2, 1, 97)
    with torch.no_grad():
        assert_near(made(x).audio_values, model(x))


class Stacked(nn.Module):
    """Stacks of three dilated convolutions that give masks of two sources, over frames of eight samples."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.encoder = nn.Conv1d(1, 16, 8, stride=4, bias=False)
        self.decoder = nn.ConvTranspose1d(16, 1, 8, stride=4, bias=False)
        self.norm, self.entry = nn.GroupNorm(1, 16, eps=1e-8), nn.Conv1d(16, 12, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(12, 20, 1), nn.PReLU(), nn.GroupNorm(1, 20, eps=1e-8),
                nn.Conv1d(20, 20, 3, padding=2 ** (at % 3), dilation=2 ** (at % 3), groups=20), nn.PReLU(),
                nn.GroupNorm(1, 20, eps=1e-8), nn.Conv1d(20, 12, 1), nn.Conv1d(20, 10, 1),
            )
            for at in range(count)
        )  # fmt: skip
        self.end = nn.Sequential(nn.PReLU(), nn.Conv1d(10, 32, 1))

    def forward(self, x: Tensor) -> Tensor:
        frames = self.encoder(x)
        y, skips = self.entry(self.norm(frames)), torch.zeros(())
        for block in self.blocks:
            inner = block[:6](y)  # type: ignore[index]
            y, skips = y + block[6](inner), skips + block[7](inner)  # type: ignore[index]
        masks = torch.sigmoid(self.end(skips)).view(len(x), 2, 16, -1)
        return torch.stack([self.decoder(frames * masks[:, at])[:, 0] for at in range(2)], dim=1)


def of_modules(name: str) -> str:
    """Names of a library whose encoder is a module, and whose norms are torch's."""
    name = re.sub(r"blocks\.(\d+)\.6", r"mask_generator.conv_layers.\1.res_out", name)
    name = re.sub(r"blocks\.(\d+)\.7", r"mask_generator.conv_layers.\1.skip_out", name)
    name = re.sub(r"^blocks\.(\d+)", r"mask_generator.conv_layers.\1.conv_layers", name)
    name = re.sub(r"^(norm|entry)", lambda match: f"mask_generator.input_{'norm' if match[1] == 'norm' else 'conv'}", name)  # fmt: skip
    return name.replace("end.0", "mask_generator.output_prelu").replace("end.1", "mask_generator.output_conv")


def of_filters(name: str) -> str:
    """Names of a library whose encoder is a bank of filters, and whose norms have gamma and beta."""
    name = re.sub(r"blocks\.(\d+)\.6", r"masker.TCN.\1.res_conv", name)
    name = re.sub(r"blocks\.(\d+)\.7", r"masker.TCN.\1.skip_conv", name)
    name = re.sub(r"^blocks\.(\d+)", r"masker.TCN.\1.shared_block", name)
    name = name.replace("norm.", "masker.bottleneck.0.").replace("entry", "masker.bottleneck.1").replace("end", "masker.mask_net")  # fmt: skip
    if re.search(r"shared_block\.[25]|bottleneck\.0", name):
        name = name.replace("weight", "gamma").replace("bias", "beta")
    return re.sub(r"^(en|de)coder\.weight", r"\1coder.filterbank._filters", name)


def test_masks_by_stacks_of_dilated_convolutions(tmp_path: Path) -> None:
    model, x = randomise(Stacked(6)), torch.randn(2, 1, 198)
    state = {of_modules(name): value for name, value in model.state_dict().items()}
    made = built_of(tmp_path, state, hints={"separator.stacked": 3})
    with torch.no_grad():
        wanted = model(F.pad(x, (4, 4 + 2)))[
            ..., 4 : 198 + 4
        ]  # frames around the first sample, and a whole one at the end
        assert_near(made(x).audio_values, wanted)


def test_masks_over_a_bank_of_filters_with_the_settings_beside(tmp_path: Path) -> None:
    model, x = randomise(Stacked(6)), torch.randn(2, 1, 198)
    state = {of_filters(name): value for name, value in model.state_dict().items()}
    settings = {"n_blocks": 3, "n_repeats": 2, "stride": 4, "norm_type": "gLN", "mask_act": "sigmoid", "fb_name": "FreeFB"}  # fmt: skip
    made = built_of(tmp_path, state, settings)
    with torch.no_grad():
        wanted = model(x)
        assert_near(made(x).audio_values, F.pad(wanted, (0, 198 - wanted.shape[-1])))


@pytest.mark.parametrize("is_first", [False, True])
def test_distances_with_gated_biases_beside_one_map(is_first: bool, tmp_path: Path) -> None:
    config = transformers.WavLMConfig(
        vocab_size=20, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=80,
        conv_dim=(16,) * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, num_buckets=32, max_bucket_distance=60,
        do_stable_layer_norm=is_first, feat_extract_norm="layer" if is_first else "group", conv_bias=is_first,
    )  # fmt: skip
    model = reference("WavLMForCTC", config)
    state = {}
    for name, value in model.state_dict().items():
        name = (
            name.removeprefix("wavlm.").replace("lm_head", "aux").replace("encoder.", "encoder.transformer.")
        )
        name = name.replace("feature_projection", "encoder.feature_projection")
        state[name.replace("out_proj", "attention.out_proj")] = value
    del state["masked_spec_embed"]
    for name in [name for name in state if "q_proj" in name]:
        parts = [state.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
        state[name.replace("q_proj.", "attention.in_proj_")] = torch.cat(parts)
    x = torch.randn(2, 1600)
    made = built_of(tmp_path, state, hints={"attention.max_distance": 60})
    with torch.no_grad():
        assert_near(made(x).logits, model(x).logits)


class FrameBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dwconv = nn.Conv1d(16, 16, 7, padding=3, groups=16)
        self.norm = nn.LayerNorm(16, eps=1e-6)
        self.pwconv1, self.pwconv2 = nn.Linear(16, 24), nn.Linear(24, 16)
        self.gamma = nn.Parameter(torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.dwconv(x).mT)
        return x + (self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))).mT


class Spectral(nn.Module):
    """A vocoder of frames of 64 samples, every 20: ConvNeXt's blocks, and the spectrum of each frame."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.ModuleDict(
            {
                "embed": nn.Conv1d(10, 16, 7, padding=3),
                "norm": nn.LayerNorm(16, eps=1e-6),
                "convnext": nn.ModuleList(FrameBlock() for _ in range(2)),
                "final_layer_norm": nn.LayerNorm(16, eps=1e-6),
            }
        )
        self.head = nn.ModuleDict({"out": nn.Linear(16, 66), "istft": nn.Module()})
        self.head["istft"].register_buffer("window", torch.hann_window(64))

    def forward(self, x: Tensor) -> Tensor:
        x = self.backbone["norm"](self.backbone["embed"](x).mT).mT
        for block in self.backbone["convnext"]:  # type: ignore[attr-defined]
            x = block(x)
        size, phase = self.head["out"](self.backbone["final_layer_norm"](x.mT)).mT.chunk(2, dim=1)
        spectra = size.exp().clip(max=100) * torch.exp(1j * phase)
        return torch.istft(spectra, 64, 20, window=self.head["istft"].window)


def test_a_vocoder_gives_the_spectrum_of_each_frame(tmp_path: Path) -> None:
    model, x = randomise(Spectral()), torch.randn(2, 10, 15)
    asked = {question.fact for question in mapper.inspect(saved(tmp_path, model)).architecture.questions}
    assert asked == {"spectrum.padding"}
    made = built(tmp_path, model, hints={"spectrum.padding": "center", "spectrum.hop": 20})
    with torch.no_grad():
        assert_near(made(x).waveform, model(x))


def row(size: int, out: int, kernel: int = 1, dilation: int = 1) -> nn.Module:
    """A convolution with mirrored ends, and a batch norm, each in a module of its own."""
    mapped = nn.Conv1d(size, out, kernel, dilation=dilation, padding="same", padding_mode="reflect")
    return nn.ModuleDict(
        {"conv": nn.ModuleDict({"conv": mapped}), "norm": nn.ModuleDict({"norm": nn.BatchNorm1d(out)})}
    )


def through(part: Any, x: Tensor) -> Tensor:
    made: Tensor = part["norm"]["norm"](F.relu(part["conv"]["conv"](x)))
    return made


class Voice(nn.Module):
    """Blocks of dilated convolutions over three groups of channels, the last blocks joined and pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([row(10, 12, 5)])
        for dilation, (size, out) in enumerate(((12, 18), (18, 18), (18, 18)), start=2):
            scales = nn.ModuleList(row(out // 3, out // 3, 3, dilation) for _ in range(2))
            parts = {
                "tdnn1": row(size, out), "res2net_block": nn.ModuleDict({"blocks": scales}), "tdnn2": row(out, out),
                "se_block": nn.ModuleDict({name: nn.ModuleDict({"conv": nn.Conv1d(*sizes, 1)}) for name, sizes in (("conv1", (out, 5)), ("conv2", (5, out)))}),
            }  # fmt: skip
            if size != out:
                parts["shortcut"] = nn.ModuleDict({"conv": nn.Conv1d(size, out, 1)})
            self.blocks.append(nn.ModuleDict(parts))
        self.mfa = row(54, 20)
        self.asp = nn.ModuleDict({"tdnn": row(60, 7), "conv": nn.ModuleDict({"conv": nn.Conv1d(7, 20, 1)})})
        self.asp_bn = nn.ModuleDict({"norm": nn.BatchNorm1d(40)})
        self.fc = nn.ModuleDict({"conv": nn.Conv1d(40, 9, 1)})

    def forward(self, x: Tensor) -> Tensor:
        x, made = through(self.blocks[0], x.mT), []
        for block in self.blocks[1:]:  # type: ignore[union-attr]
            first, second, third = through(block["tdnn1"], x).chunk(3, dim=1)
            second = through(block["res2net_block"]["blocks"][0], second)
            third = through(block["res2net_block"]["blocks"][1], second + third)
            y = through(block["tdnn2"], torch.cat((first, second, third), dim=1))
            gate = block["se_block"]["conv1"]["conv"](y.mean(-1, keepdim=True)).relu()
            y = y * block["se_block"]["conv2"]["conv"](gate).sigmoid()
            x = y + (block["shortcut"]["conv"](x) if "shortcut" in block else x)
            made.append(x)
        x = through(self.mfa, torch.cat(made, dim=1))
        whole = torch.cat((x.mean(-1, keepdim=True), x.std(-1, unbiased=False, keepdim=True)), dim=1)
        seen = torch.cat((x, whole.expand(-1, -1, x.shape[-1])), dim=1)
        shares = self.asp["conv"]["conv"](torch.tanh(through(self.asp["tdnn"], seen))).softmax(-1)
        mean = (shares * x).sum(-1, keepdim=True)
        spread = (shares * (x - mean) ** 2).sum(-1, keepdim=True).sqrt()
        made_of: Tensor = self.fc["conv"](self.asp_bn["norm"](torch.cat((mean, spread), dim=1)))
        return made_of.mT


def test_who_speaks_by_statistics_of_all_frames(tmp_path: Path) -> None:
    model, x = randomise(Voice().eval()), torch.randn(2, 31, 10)
    made = built(tmp_path, model, {"dilations": [1, 2, 3, 4, 1]})
    with torch.no_grad():
        assert_near(made(x).embeddings, model(x))


class Source(nn.Module):
    """One source of a spectrogram of 33 bins, of which 20 are read."""

    def __init__(self) -> None:
        super().__init__()
        self.input_mean, self.input_scale = (nn.Parameter(torch.ones(20)) for _ in range(2))
        self.output_mean, self.output_scale = (nn.Parameter(torch.ones(33)) for _ in range(2))
        self.fc1, self.bn1 = nn.Linear(40, 16, bias=False), nn.BatchNorm1d(16)
        self.lstm = nn.LSTM(16, 8, num_layers=2, bidirectional=True, batch_first=True)
        self.fc2, self.bn2 = nn.Linear(32, 16, bias=False), nn.BatchNorm1d(16)
        self.fc3, self.bn3 = nn.Linear(16, 66, bias=False), nn.BatchNorm1d(66)

    def forward(self, x: Tensor) -> Tensor:
        rows = []
        for frames in x.permute(0, 3, 1, 2):
            y = (frames[..., :20] + self.input_mean) * self.input_scale
            y = torch.tanh(self.bn1(self.fc1(y.reshape(-1, 40))))
            y = F.relu(self.bn2(self.fc2(torch.cat((y, self.lstm(y)[0]), dim=-1))))
            y = self.bn3(self.fc3(y)).reshape(-1, 2, 33) * self.output_scale + self.output_mean
            rows.append(F.relu(y) * frames)
        return torch.stack(rows).permute(0, 2, 3, 1)


def test_one_source_of_music_by_a_recurrent_network(tmp_path: Path) -> None:
    model, x = randomise(Source().eval()), torch.rand(2, 2, 33, 12)
    made = built(tmp_path, model)
    with torch.no_grad():
        assert_near(made(x).spectrogram, model(x))


class Upsampled(nn.Module):
    """A vocoder of two steps, after each the mean of two residual blocks, every kernel stored as length and direction."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_pre, self.conv_post = convolution(10, 16, 7, padding=3), convolution(4, 1, 7, padding=3)
        self.ups = nn.ModuleList(
            weight_norm(
                nn.ConvTranspose1d(size, size // 2, kernel, stride=rate, padding=(kernel - rate) // 2)
            )
            for size, kernel, rate in ((16, 7, 3), (8, 4, 2))
        )
        self.resblocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "convs1": nn.ModuleList(
                        convolution(size, size, kernel, dilation=by, padding="same") for by in (1, 3)
                    ),
                    "convs2": nn.ModuleList(
                        convolution(size, size, kernel, padding="same") for _ in range(2)
                    ),
                }
            )
            for size in (8, 4)
            for kernel in (3, 5)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_pre(x)
        for at, upsampler in enumerate(self.ups):
            x, made = upsampler(F.leaky_relu(x, 0.1)), []
            for block in self.resblocks[2 * at : 2 * at + 2]:
                y = x
                for first, second in zip(block["convs1"], block["convs2"], strict=True):
                    y = y + second(F.leaky_relu(first(F.leaky_relu(y, 0.1)), 0.1))
                made.append(y)
            x = torch.stack(made).mean(0)
        return torch.tanh(self.conv_post(F.leaky_relu(x)))


def test_a_vocoder_of_transposed_convolutions_with_its_settings(tmp_path: Path) -> None:
    model, x = randomise(Upsampled()), torch.randn(2, 10, 14)
    settings = {
        "upsample_rates": [3, 2],
        "resblock_dilation_sizes": [[1, 3], [1, 3]],
        "resblock_kernel_sizes": [3, 5],
    }
    made = built(tmp_path, model, settings)
    with torch.no_grad():
        assert_near(made(x).waveform, model(x))
