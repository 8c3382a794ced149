"""TorchScript archives and programs of torch.export: their tensors and constants are read, and nothing in them is run."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

import mapper
from mapper._api import describe
from mapper.checkpoint import Checkpoint
from mapper.errors import FormatError, MapperError
from mapper.sources import open_source

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
ANSWERS = {
    "chain.activation_before_norm": False,
    "chain.pooling": "none",
    "chain.reduction": "flatten",
    "chain.output": "none",
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.bn1 = nn.BatchNorm2d(4, eps=1e-3)
        self.prelu = nn.PReLU(4)
        self.fc = nn.Linear(64, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.prelu(self.bn1(self.conv1(x))).flatten(1))


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    model = Net().eval()
    model.bn1.running_mean.uniform_()  # type: ignore[operator]
    return model


@pytest.fixture(scope="module")
def folder(net: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network as each writer of torch writes it."""
    place, x = tmp_path_factory.mktemp("archives"), torch.randn(1, 1, 8, 8)
    torch.jit.script(net).save(place / "scripted.pt")
    torch.jit.trace(net, x).save(place / "traced.pt")
    torch.jit.freeze(torch.jit.script(net)).save(place / "frozen.pt")
    torch.export.save(torch.export.export(net, (x,)), place / "program.pt2")
    inner = io.BytesIO()
    torch.save(net.state_dict(), inner)
    with zipfile.ZipFile(place / "older.pt2", "w") as archive:  # before torch 2.9
        archive.writestr("version", "5.1")
        archive.writestr("serialized_state_dict.pt", inner.getvalue())
        archive.writestr("serialized_exported_program.json", "{}")
    return place


@pytest.mark.parametrize("name", ["scripted.pt", "traced.pt", "program.pt2", "older.pt2"])
def test_the_tensors_are_those_of_the_state_dict(name: str, net: nn.Module, folder: Path) -> None:
    checkpoint = open_source(folder / name, purpose="weights")
    state = net.state_dict()
    assert set(checkpoint.tensors) == set(state) and checkpoint.read is not None
    assert all(torch.equal(tensor, state[key]) for key, tensor in checkpoint.read(state).items())


@pytest.mark.parametrize("name", ["scripted.pt", "traced.pt", "program.pt2"])
def test_constants_answer_what_no_shape_shows(name: str, net: nn.Module, folder: Path) -> None:
    model = mapper.build(folder / name, hints=ANSWERS)
    facts = {fact.name: (fact.value, fact.evidence) for fact in describe(folder / name, hints=ANSWERS).facts}
    assert facts["chain.stride"] == ("2x2", "graph")
    assert (facts["chain.padding"][0], facts["norm.eps"]) == ("1x1", (0.001, "graph"))
    x = torch.randn(2, 1, 8, 8)
    assert torch.allclose(model(x).output, net(x), atol=1e-6)


def test_constants_of_a_frozen_archive_are_named_by_the_calls_that_read_them(
    net: nn.Module, folder: Path
) -> None:
    hints = {"chain.pooling": "none", "chain.reduction": "flatten", "chain.output": "none"}
    model, x = mapper.build(folder / "frozen.pt", hints=hints), torch.randn(2, 1, 8, 8)
    assert list(dict(model.named_children())) == ["conv2d_1", "prelu_1", "linear_1"]
    assert torch.allclose(model(x).output, net(x), atol=1e-5)


def test_packed_weights_are_named(tmp_path: Path) -> None:
    archive = changed(tmp_path / "x.pt", script(nn.Identity(), tmp_path), {"data.pkl": PACKED})
    with pytest.raises(
        FormatError, match=r"packed in '__torch__.torch.classes.quantized.Linear', which is not read"
    ):
        open_source(archive, purpose="headers")


PACKED = b"\x80\x02c__torch__\nNet\n)\x81}(X\x01\x00\x00\x00pc__torch__.torch.classes.quantized\nLinear\n)\x81}bub."


def script(model: nn.Module, folder: Path) -> Path:
    torch.jit.script(model).save(folder / "made.pt")
    return folder / "made.pt"


def changed(path: Path, archive: Path, change: dict[str, bytes]) -> Path:
    """An archive with other records."""
    with zipfile.ZipFile(archive) as reader:
        records = {name: reader.read(name) for name in reader.namelist()}
    top = next(iter(records)).partition("/")[0]
    with zipfile.ZipFile(path, "w") as writer:
        for name, data in (records | {f"{top}/{name}": data for name, data in change.items()}).items():
            writer.writestr(name, data)
    return path


def test_code_is_text_whatever_it_says(net: nn.Module, folder: Path, tmp_path: Path) -> None:
    code = b"class Net(Module):\n  eps : Final[float] = __import__('os').abort()\n" + b"(" * 10_000
    names = [name.partition("/")[2] for name in zipfile.ZipFile(folder / "scripted.pt").namelist()]
    change = {name: code for name in names if name.endswith(".py")}
    found = open_source(changed(tmp_path / "x.pt", folder / "scripted.pt", change), purpose="headers")
    assert set(found.tensors) == set(net.state_dict())
    assert not any(one.fact == "norm.eps" for one in found.observed)


DAMAGED = {
    "data/weights/model_weights_config.json": [
        b"[]",
        b"{}",
        b'{"config": {"w": {"path_name": "x"}}}',
        b"\xff",
    ],
    "models/model.json": [
        b"{}",
        b'{"graph_module": {"graph": {"nodes": [1]}, "signature": {"input_specs": [2]}}}',
    ],
}


@pytest.mark.parametrize(
    ("record", "data"), [(name, data) for name, each in DAMAGED.items() for data in each]
)
def test_a_damaged_program_is_refused_or_shows_nothing(
    record: str, data: bytes, folder: Path, tmp_path: Path
) -> None:
    def opened() -> Checkpoint | None:
        try:
            return open_source(
                changed(tmp_path / "x.pt2", folder / "program.pt2", {record: data}), purpose="headers"
            )
        except MapperError as error:
            assert "\n" not in str(error)
            return None

    found = opened()
    assert (found is None) == record.endswith("_config.json")
    assert found is None or not found.observed


def test_a_size_that_is_no_number_is_refused(folder: Path, tmp_path: Path) -> None:
    table = "data/weights/model_weights_config.json"
    with zipfile.ZipFile(folder / "program.pt2") as archive:
        said = json.loads(archive.read(f"program/{table}"))
    said["config"]["fc.weight"]["tensor_meta"]["sizes"][0] = {"as_expr": "s0"}
    damaged = changed(tmp_path / "x.pt2", folder / "program.pt2", {table: json.dumps(said).encode()})
    with pytest.raises(FormatError, match=r"'fc.weight' has a size that is no number"):
        open_source(damaged, purpose="headers")
