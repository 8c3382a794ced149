"""A published model in a module that people write, and a head behind it under any name: its place and sizes show what it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import mapper
from mapper.errors import MapperError
from tests.parity.harness import TOLERANCE

transformers = pytest.importorskip("transformers")
WIDTH, WORDS = 32, 60
SIZES = {
    "vocab_size": WORDS,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
TOLD = {
    "task": "sequence_classification", "attention.heads": 4, "feed_forward.activation": "gelu", "position.counting": "all",
    "attention.similarity": "dot_product",
}  # fmt: skip
READS: dict[str, Callable[[Any], Tensor]] = {
    "null": lambda given: given.pooler_output,
    "first": lambda given: given.last_hidden_state[:, 0],
    "mean": lambda given: given.last_hidden_state.mean(1),
}


def text() -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = transformers.BertModel(transformers.BertConfig(**SIZES))
    return model


class Around(nn.Module):
    """The model under one name, and what reads it under others, in this order."""

    def __init__(self, name: str, read: Callable[[Any], Tensor], **heads: nn.Module) -> None:
        super().__init__()
        self.add_module(name, text())
        self.name, self.read, self.heads = name, read, list(heads)
        for word, head in heads.items():
            self.add_module(word, head)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.read(getattr(self, self.name)(ids))
        for word in self.heads:
            x = getattr(self, word)(x)
        return x


def stored(model: nn.Module, folder: Path) -> Path:
    folder.mkdir()
    for norm in (part for part in model.modules() if isinstance(part, nn.BatchNorm1d)):
        nn.init.normal_(norm.weight)
        assert norm.running_mean is not None
        nn.init.normal_(norm.running_mean)
    save_file(dict(model.state_dict()), folder / "model.safetensors")
    return folder


def two(between: list[nn.Module]) -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, 24), *between, nn.ReLU(), nn.Linear(24, 3))


CASES: list[tuple[str, str, dict[str, nn.Module]]] = [
    ("bert", "null", {"out": nn.Linear(WIDTH, 3)}),
    ("bert", "mean", {"linear": nn.Linear(WIDTH, 1)}),
    ("l1", "first", {"l2": nn.Dropout(0.3), "l3": nn.Linear(WIDTH, 6)}),
    ("encoder", "first", {"regressor": nn.Sequential(nn.Dropout(0.1), nn.Linear(WIDTH, 1))}),
    ("backbone", "mean", {"head": nn.Linear(WIDTH, 4)}),
    ("model", "null", {"fc1": nn.Linear(WIDTH, 16), "act": nn.ReLU(), "fc2": nn.Linear(16, 2)}),
    ("net", "first", {"projection_head": two([])}),
    ("net", "mean", {"projector": two([nn.BatchNorm1d(24)])}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join([case[0], case[1], *case[2]]))
def test_what_stands_behind_a_whole_model_is_its_head(
    tmp_path: Path, case: tuple[str, str, dict[str, nn.Module]]
) -> None:
    name, reads, heads = case
    model = Around(name, READS[reads], **heads).eval()
    folder = stored(model, tmp_path / "model")
    has_two = any(
        key.endswith(("fc2.weight", "0.running_mean", "head.2.weight", "projector.3.weight"))
        for key in model.state_dict()
    )
    told = TOLD | ({"classifier.activation": "relu"} if has_two else {})
    open_ = mapper.inspect(folder, hints=told).architecture.questions
    assert {question.fact for question in open_} == {
        "head.pooling"
    }  # what the head reads nothing stored shows
    built = mapper.build(folder, hints={**told, "head.pooling": None if reads == "null" else reads})
    ids = torch.randint(1, WORDS, (2, 9))
    with torch.no_grad():
        assert (built(ids).logits - model(ids)).abs().max() < TOLERANCE


def test_a_head_of_three_maps_or_with_two_that_read_the_model_is_not_taken_for_less(tmp_path: Path) -> None:
    three = {"a": nn.Linear(WIDTH, 16), "b": nn.Linear(16, 12), "c": nn.Linear(12, 2)}
    beside = {"emotion": nn.Linear(WIDTH, WIDTH), "topic": nn.Linear(WIDTH, 3)}
    for at, heads in enumerate((three, beside)):
        folder = stored(Around("bert", READS["null"], **heads), tmp_path / str(at))
        with pytest.raises(MapperError):
            mapper.build(folder, hints={**TOLD, "classifier.activation": "tanh", "head.pooling": None})


def test_a_recurrent_layer_between_a_model_and_its_head_is_not_left_out(tmp_path: Path) -> None:
    model = Around(
        "bert", READS["null"], lstm=nn.LSTM(WIDTH, WIDTH // 2, bidirectional=True), fc=nn.Linear(WIDTH, 3)
    )
    folder = stored(model, tmp_path / "model")
    for reads in (None, "mean"):
        read = mapper.inspect(folder, hints={**TOLD, "head.pooling": reads}).architecture
        assert any("lstm" in str(line) for line in read.missing)


def test_a_map_with_a_row_for_each_word_predicts_words(tmp_path: Path) -> None:
    folder = stored(Around("bert", READS["null"], out=nn.Linear(WIDTH, WORDS)), tmp_path / "model")
    leaves = {str(leaf.place): leaf.role for leaf in mapper.inspect(folder).architecture.leaves}
    assert leaves["out"] != "classifier"


SEEN = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "image_size": 32, "patch_size": 8}  # fmt: skip


@pytest.mark.parametrize("kind", ["CLIPVision", "SiglipVision"])
@pytest.mark.parametrize("reads", ["null", "mean"])
def test_what_a_head_reads_of_an_encoder_of_images_is_asked(tmp_path: Path, kind: str, reads: str) -> None:
    torch.manual_seed(0)
    encoder = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**SEEN)).eval()
    body = getattr(encoder, "vision_model", encoder)
    head = nn.Linear(WIDTH, 3)
    folder = stored(nn.ModuleDict({"encoder": body, "out": head}), tmp_path / "model")
    told: dict[str, Any] = {"attention.heads": 4}
    open_ = mapper.inspect(folder, hints=told).architecture.questions
    assert "head.pooling" in {question.fact for question in open_}
    built = mapper.build(folder, hints={**told, "head.pooling": None if reads == "null" else reads})
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert (built(x).logits - head(READS[reads](body(x)))).abs().max() < TOLERANCE


class Layer(nn.Module):
    """A layer of a ResNet."""

    def __init__(self, given: int, made: int) -> None:
        super().__init__()
        stride = 1 if given == made else 2
        self.conv1, self.bn1 = nn.Conv2d(given, made, 3, stride, 1, bias=False), nn.BatchNorm2d(made)
        self.conv2, self.bn2 = nn.Conv2d(made, made, 3, 1, 1, bias=False), nn.BatchNorm2d(made)
        if given != made:
            self.downsample = nn.Sequential(nn.Conv2d(given, made, 1, 2, bias=False), nn.BatchNorm2d(made))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.downsample(x) if hasattr(self, "downsample") else x
        return torch.relu(shortcut + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


class Images(nn.Module):
    """A small ResNet (paper 1512.03385) under the usual names, without its head: the mean over the image."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
        self.layer1, self.layer2 = nn.Sequential(Layer(8, 8), Layer(8, 8)), nn.Sequential(Layer(8, 12))

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.layer2(self.layer1(x)).mean((2, 3))


@pytest.mark.parametrize("name", ["backbone", "encoder", "net", "0"])
@pytest.mark.parametrize("has_two", [False, True])
def test_a_network_of_images_gives_its_mean_to_the_head_behind_it(
    tmp_path: Path, name: str, has_two: bool
) -> None:
    torch.manual_seed(0)
    head = (
        nn.Sequential(nn.Linear(12, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 5))
        if has_two
        else nn.Linear(12, 5)
    )
    parts = {name: Images(), "1" if name == "0" else "head": head}
    model = nn.ModuleDict(parts).eval()
    folder = stored(model, tmp_path / "model")
    built = mapper.build(folder, hints={"classifier.activation": "relu"} if has_two else {})
    x = torch.randn(2, 3, 33, 40)
    with torch.no_grad():
        wanted = head(parts[name](x))
        assert (built(x).logits - wanted).abs().max() < TOLERANCE


@pytest.mark.parametrize("name", ["features", "backbone", ""])
def test_a_list_of_the_children_of_a_network_of_images_is_that_network(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    whole, head = Images(), nn.Linear(12, 5)
    children = nn.Sequential(
        whole.conv1, whole.bn1, nn.ReLU(), nn.MaxPool2d(3, 2, 1), whole.layer1, whole.layer2
    )
    model = nn.ModuleDict({name: children, "fc": head}) if name else children
    built = mapper.build(stored(model.eval(), tmp_path / "model"))
    x = torch.randn(2, 3, 33, 40)
    with torch.no_grad():
        given, wanted = built(x), whole.eval()(x)
        if name:
            assert (given.logits - head(wanted)).abs().max() < TOLERANCE
        else:  # a pooling behind the last stage keeps both axes, and nothing flattens what it leaves
            assert (given.pooler_output[:, :, 0, 0] - wanted).abs().max() < TOLERANCE


def test_such_a_list_below_a_number_stays_a_chain_of_layers(tmp_path: Path) -> None:
    whole = Images()
    children = nn.Sequential(
        whole.conv1, whole.bn1, nn.ReLU(), nn.MaxPool2d(3, 2, 1), whole.layer1, whole.layer2
    )
    folder = stored(nn.ModuleDict({"0": children, "2": nn.Linear(12, 5)}), tmp_path / "model")
    architecture = mapper.inspect(folder).architecture
    assert architecture.reading == "unverified"
    assert "chain.stride" in {question.fact for question in architecture.questions}
