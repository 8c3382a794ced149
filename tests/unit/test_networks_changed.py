"""Networks of libraries that somebody changed: another stem, another head, options that differ from the published ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

import mapper
from mapper.architecture import Architecture
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.emission import emit
from mapper.inference import infer
from mapper.rulebook.examples import header
from tests.shipped import RULEBOOK

WIDTH = 8


class Basic(nn.Module):
    def __init__(self, before: int, width: int):
        super().__init__()
        step = 1 if before == width else 2
        self.conv1, self.bn1 = nn.Conv2d(before, width, 3, step, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        if step == 2:
            self.downsample = nn.Sequential(nn.Conv2d(before, width, 1, 2, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


class Residual(nn.Module):
    """A ResNet in torchvision's names."""

    def __init__(self, kernel: int = 7, head: nn.Module | None = None):
        super().__init__()
        self.is_small = kernel == 3
        self.conv1 = nn.Conv2d(3, WIDTH, kernel, 1 if self.is_small else 2, kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTH)
        for stage in range(4):
            width = WIDTH << stage
            blocks = [Basic(max(WIDTH, width // 2), width), Basic(width, width)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = head or nn.Linear(8 * WIDTH, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = x if self.is_small else F.max_pool2d(x, 3, 2, 1)
        for stage in range(4):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))


def two_layers(activation: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(8 * WIDTH, 12), activation, nn.Dropout(0.1), nn.Linear(12, 5))


def written(
    path: Path, model: nn.Module, settings: dict[str, Any] | None = None, **more: torch.Tensor
) -> Path:
    """A folder with the weights of a model, no vector of which is neutral, and its settings."""
    torch.manual_seed(0)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.copy_(torch.randn(tensor.shape) * (0.2 if tensor.dim() < 2 else tensor[0].numel() ** -0.5))
    path.mkdir(exist_ok=True)
    save_file({**model.eval().state_dict(), **more}, path / "model.safetensors")
    if settings:
        (path / "config.json").write_text(json.dumps(settings))
    return path


def asked(folder: Path, **hints: Any) -> set[str]:
    return {question.fact for question in mapper.inspect(folder, hints=hints).architecture.questions}


def assert_equal(folder: Path, model: nn.Module, side: tuple[int, int] = (64, 64), **hints: Any) -> None:
    x = torch.randn(2, 3, *side)
    with torch.no_grad():
        made = mapper.build(folder, hints=hints)(x)
        made = made if isinstance(made, torch.Tensor) else made.logits
        torch.testing.assert_close(made, model(x), atol=1e-4, rtol=1e-4)


def test_a_head_of_two_layers_is_read_and_its_activation_asked(tmp_path: Path) -> None:
    model = Residual(head=two_layers(nn.Tanh()))
    folder = written(tmp_path, model)
    assert "classifier.activation" in asked(folder)
    assert_equal(folder, model, **{"classifier.activation": "tanh"})


def test_a_small_first_convolution_is_asked_about(tmp_path: Path) -> None:
    model = Residual(kernel=3)
    folder = written(tmp_path, model)
    assert "stem" in asked(folder)
    assert_equal(folder, model, (32, 32), stem="plain")


def test_weights_of_a_loss_are_left(tmp_path: Path) -> None:
    model = Residual()
    assert_equal(written(tmp_path, model, class_weights=torch.rand(5)), model)


class Attention(nn.Module):
    def __init__(self, heads: int, bias: bool):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(16, 48, bias=bias), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, heads: int, bias: bool, activation: str):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(16, 1e-6), nn.LayerNorm(16, 1e-6)
        self.attn, self.activation = Attention(heads, bias), getattr(F, activation)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(16, 24), "fc2": nn.Linear(24, 16)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp["fc2"](self.activation(self.mlp["fc1"](self.norm2(x))))


class Vision(nn.Module):
    """timm's vision transformer with some of its options."""

    def __init__(
        self, patches: int, is_mean: bool = False, alone: bool = False, bias: bool = True, act: str = "gelu"
    ):
        super().__init__()
        self.is_mean, self.alone = is_mean, alone
        self.cls_token = nn.Parameter(torch.randn(1, 1, 16))
        self.pos_embed = nn.Parameter(torch.randn(1, patches + (not alone), 16))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, 16, 8, 8)})
        self.blocks = nn.ModuleList(Block(4, bias, act) for _ in range(2))
        setattr(self, "fc_norm" if is_mean else "norm", nn.LayerNorm(16, 1e-6))
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch_embed["proj"](x).flatten(2).transpose(1, 2)
        x = x + self.pos_embed if self.alone else x
        x = torch.cat((self.cls_token.expand(len(x), -1, -1), x), 1)
        x = x if self.alone else x + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.fc_norm(x[:, 1:].mean(1)) if self.is_mean else self.norm(x)[:, 0])


class Pooled(nn.Module):
    """Attention of one learned query over the patches alone."""

    def __init__(self) -> None:
        super().__init__()
        self.latent = nn.Parameter(torch.randn(1, 1, 16))
        self.q, self.kv, self.proj = nn.Linear(16, 16), nn.Linear(16, 32), nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16, 1e-6)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(16, 24), "fc2": nn.Linear(24, 16)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.q(self.latent.expand(len(x), -1, -1)).unflatten(-1, (4, -1)).transpose(1, 2)
        k, v = self.kv(x).unflatten(-1, (2, 4, -1)).permute(2, 0, 3, 1, 4)
        x = self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return (x + self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.norm(x)))))[:, 0]


class PooledVision(Vision):
    """The same with attention that pools, which its classifier reads."""

    def __init__(self) -> None:
        super().__init__(16)
        self.attn_pool = Pooled()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch_embed["proj"](x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(len(x), -1, -1), x), 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.attn_pool(self.norm(x)[:, 1:]))


def settings(**more: Any) -> dict[str, Any]:
    pool, name = more.pop("pool", "token"), more.pop("name", "vit_small_patch16_224")
    return {"architecture": name, "num_classes": 5, "global_pool": pool, "model_args": {"num_heads": 4, **more}}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "side", "said"),
    [
        ({"patches": 16, "is_mean": True}, (32, 32), {"global_pool": "avg", "pool": "avg"}),
        ({"patches": 8, "alone": True, "bias": False}, (16, 32), {"qkv_bias": False, "no_embed_class": True, "img_size": [16, 32]}),
        ({"patches": 16, "act": "relu"}, (32, 32), {"act_layer": "relu"}),
        ({"patches": 16, "act": "hardswish"}, (32, 32), {"name": "vit_small_patch14_dinov2", "act_layer": "hard_swish"}),
    ],
)  # fmt: skip
def test_what_settings_change_of_a_published_network_is_read(
    tmp_path: Path, options: dict[str, Any], side: tuple[int, int], said: dict[str, Any]
) -> None:
    model = Vision(**options)
    assert_equal(written(tmp_path, model, settings(**said)), model, side)


@pytest.mark.parametrize(
    ("said", "options", "field"),
    [
        ({"norm_layer": "rmsnorm2d"}, {}, "norm_layer"),
        ({"pool": "max", "global_pool": "max"}, {}, "global_pool"),  # a word that no rule knows
        ({"pool": "token", "fc_norm": True}, {"is_mean": True}, "head.pooling"),  # with which no flow goes
    ],
)
def test_what_no_rule_knows_of_a_changed_network_is_not_passed_over(
    tmp_path: Path, said: dict[str, Any], options: dict[str, Any], field: str
) -> None:
    folder = written(tmp_path, Vision(16, **options), settings(**said))
    with pytest.raises(mapper.MapperError, match=field):
        mapper.build(folder)


def test_what_a_family_does_otherwise_than_settings_say_is_not_passed_over(tmp_path: Path) -> None:
    """An activation that a network's name settles, whatever a field of another block may say."""
    said = {"architecture": "resnet18", "num_classes": 5, "model_args": {"act_layer": "silu"}}
    with pytest.raises(mapper.MapperError, match="act_layer"):
        mapper.build(written(tmp_path, Residual(), said))


def test_settings_that_say_once_more_what_is_known_ask_nothing(tmp_path: Path) -> None:
    model = Residual()
    said = {"architecture": "resnet18", "num_classes": 5, "global_pool": "avg", "model_args": {"global_pool": "avg"}}  # fmt: skip
    folder = written(tmp_path, model, said)
    assert not mapper.inspect(folder).architecture.findings
    assert_equal(folder, model)


def test_attention_that_pools_reads_the_patches_alone(tmp_path: Path) -> None:
    model = PooledVision()
    assert_equal(
        written(tmp_path, model, settings(name="vit_small_patch16_reg_map", pool="map", global_pool="map")),
        model,
        (32, 32),
    )


def first_example(family: str) -> Checkpoint:
    return header(next(item for item in RULEBOOK.families if item.name == family).examples[0])


def test_a_step_that_is_conditioned_on_the_scale_of_guidance_is_read() -> None:
    source = first_example("diffusers_unet")
    width = source.tensors["time_embedding.linear_1.weight"].shape[1]
    more = {"time_embedding.cond_proj.weight": TensorInfo((width, 12), "F32")}
    read = infer(replace(source, tensors={**source.tensors, **more}), RULEBOOK)
    assert "timestep_cond" in read.inputs
    assert not read.missing


def codec(entry: int, **hints: Any) -> Architecture:
    """The codec of the first release, with so many channels of its first convolution."""
    source = first_example("encodec_first")
    tensors = dict(source.tensors)
    for name, (_, *others) in ((name, info.shape) for name, info in source.tensors.items()):
        if name.startswith("encoder.model.0."):
            tensors[name] = TensorInfo((entry, *others), "F32")
    return infer(replace(source, tensors=tensors), RULEBOOK, hints=hints)


def test_a_codec_of_another_size_is_asked_which_samples_it_sees() -> None:
    assert not codec(32).questions
    assert "convolution.causal" in {question.fact for question in codec(64).questions}
    told = codec(64, **{"convolution.causal": False})
    assert (told.reading, told.questions) == ("unverified", [])
    assert "both ends" in " ".join(emit(told).split())


def test_a_word_that_any_word_would_repeat_is_no_repetition() -> None:
    """That there are rotary embeddings, whatever their type, says nothing of the type."""
    source = first_example("qwen2_5_vl_vision")
    assert infer(source, RULEBOOK).reading == "exact"
    config = {**source.config, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "yarn"}}
    read = infer(replace(source, config=config), RULEBOOK)
    assert read.reading == "unverified"
    assert any("rope_type" in line for line in read.missing)


@pytest.mark.parametrize("pool", ["token", "avg"])
def test_what_is_pooled_where_the_class_token_comes_behind_the_patches_layers(pool: str) -> None:
    """A head of the patches' mean has the same tensors as one of the class token."""
    source = first_example("timm_cait")
    said = {"architecture": "cait_xxs24_224", "num_classes": 5, "global_pool": pool}
    read = infer(replace(source, config=said), RULEBOOK)
    assert read.reading == "unverified"
    said_of_head = read.root.facts.get("head.pooling")
    assert (said_of_head and said_of_head.value) == ("patches" if pool == "avg" else None)


@pytest.mark.parametrize("family", ["timm_mobilevit", "timm_mobilevitv2"])
def test_an_activation_of_the_whole_network_is_that_of_its_convolutions_too(family: str) -> None:
    said = {
        "architecture": family.removeprefix("timm_"),
        "num_classes": 5,
        "model_args": {"act_layer": "relu"},
    }
    read = infer(replace(first_example(family), config=said), RULEBOOK)
    found = {known.value for known in read.facts if known.name.rpartition(".")[2] == "activation"}
    assert found == {"relu"}
