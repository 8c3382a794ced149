"""Torch's own files, read without unpickling: what torch.load would give, and nothing of what a pickle can do."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mapper import limits
from mapper.errors import FormatError, MapperError
from mapper.sources import open_source, pickles

LEGACY = {"_use_new_zipfile_serialization": False}


def refusal(path: Path, kind: type[MapperError] = MapperError) -> str:
    with pytest.raises(kind) as caught:
        open_source(path, purpose="weights")
    text = str(caught.value)
    assert text.startswith(path.name) and "\n" not in text and len(text) < 600
    return text


def saved(path: Path, value: object, **options: Any) -> Path:
    torch.save(value, path, **options)
    return path


def views() -> dict[str, torch.Tensor]:
    base = torch.arange(42.0).view(6, 7)
    return {
        "whole": base,
        "part": base[2:, 1:3],
        "transposed": base.t(),
        "expanded": torch.randn(1, 4).expand(3, 4),
        "scalar": torch.tensor(3.5),
        "none": torch.zeros(0, 4),
        "parameter": torch.nn.Parameter(torch.randn(3)),
        **{
            str(dtype): torch.randint(0, 2, (3,)).to(dtype)
            for dtype in (torch.float64, torch.float16, torch.bfloat16)
        },
        **{
            str(dtype): torch.randint(0, 2, (3,)).to(dtype)
            for dtype in (torch.int64, torch.int32, torch.int16, torch.int8)
        },
        **{
            str(dtype): torch.randint(0, 2, (3,)).to(dtype)
            for dtype in (torch.uint8, torch.bool, torch.complex64, torch.complex128)
        },
    }


@pytest.mark.parametrize(
    "options", [{"pickle_protocol": 2}, {"pickle_protocol": 4}, {"pickle_protocol": 5}, LEGACY]
)
def test_tensors_are_what_was_saved(options: dict[str, Any], tmp_path: Path) -> None:
    tensors = views()
    if options != LEGACY:
        tensors |= {
            "u16": torch.tensor([1, 2]).to(torch.uint16),
            "f8": torch.tensor([1.0, 2.0]).to(torch.float8_e5m2),
        }
    file = saved(tmp_path / "pytorch_model.bin", tensors, **options)
    checkpoint = open_source(file, purpose="weights")
    assert (checkpoint.container, list(checkpoint.tensors)) == ("torch", list(tensors))
    assert checkpoint.read is not None
    read = checkpoint.read(checkpoint.tensors)
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype and read[name].shape == tensor.shape
        assert (
            read[name]
            .contiguous()
            .view(-1)
            .view(torch.uint8)
            .equal(tensor.contiguous().view(-1).view(torch.uint8))
        )


def test_reading_maps_the_file_and_keeps_shared_storage_shared(tmp_path: Path) -> None:
    weight = torch.ones(1000)
    file = saved(tmp_path / "x.pt", {"a": weight, "b": weight[10:]})
    before = file.read_bytes()
    checkpoint = open_source(file, purpose="weights")
    assert checkpoint.read is not None
    tensors = checkpoint.read(["a", "b"])
    tensors["a"].fill_(2)
    assert tensors["b"][0] == 2 and file.read_bytes() == before


WRAPPED: dict[str, tuple[Callable[[dict[str, Any]], Any], list[str], list[str]]] = {
    "plain": (lambda state: state, ["w", "b"], []),
    "ordered": (OrderedDict, ["w", "b"], []),
    "lightning": (
        lambda state: {"epoch": 3, "state_dict": state, "hyper_parameters": {"a": {1}}},
        ["w", "b"],
        ["x.pt: the tensors are those under 'state_dict'; not read: 'epoch', 'hyper_parameters'"],
    ),
    "twice": (lambda state: {"model": {"state_dict": state}}, ["w", "b"], ["x.pt: the tensors are those under 'model.state_dict'"]),
    "beside an optimizer": (lambda state: {"model_state": state, "step": 3}, ["w", "b"], ["x.pt: the tensors are those under 'model_state'; not read: 'step'"]),
    "two models": (lambda state: {"generator": state, "judge": state}, ["generator.w", "generator.b", "judge.w", "judge.b"], []),
    "optimizer": (lambda state: {"state": {0: state}, "param_groups": [{"lr": 0.1}]}, ["state.0.w", "state.0.b"], []),
    "with other values": (lambda state: {**state, "step": 3, "name": "x", "default": defaultdict(list)}, ["w", "b"], []),
    "list": (lambda state: list(state.values()), ["0", "1"], []),
}  # fmt: skip


@pytest.mark.parametrize("case", WRAPPED)
@pytest.mark.parametrize("options", [{}, LEGACY])
def test_a_state_dict_is_found_inside_what_was_saved(
    case: str, options: dict[str, Any], tmp_path: Path
) -> None:
    wrap, names, notes = WRAPPED[case]
    file = saved(tmp_path / "x.pt", wrap({"w": torch.ones(2, 2), "b": torch.zeros(2)}), **options)
    checkpoint = open_source(file, purpose="headers")
    assert list(checkpoint.tensors) == names
    assert checkpoint.notes == notes


def test_shards_of_torch_files_are_one_checkpoint(tmp_path: Path) -> None:
    saved(tmp_path / "pytorch_model-1.bin", {"a": torch.ones(2)})
    saved(tmp_path / "pytorch_model-2.bin", {"b": torch.ones(2)})
    table = {"a": "pytorch_model-1.bin", "b": "pytorch_model-2.bin"}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": table}))
    checkpoint = open_source(tmp_path, purpose="weights")
    assert checkpoint.read is not None and set(checkpoint.read(["b", "a"])) == {"a", "b"}


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, target: Path):
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("options", [{}, LEGACY])
@pytest.mark.parametrize("place", ["value", "key", "top"])
def test_a_malicious_pickle_runs_nothing(place: str, options: dict[str, Any], tmp_path: Path) -> None:
    evil = Evil(tmp_path / "executed")
    value: Any = {
        "value": {"w": torch.ones(2), "x": evil},
        "key": {"w": torch.ones(2), evil: 1},
        "top": evil,
    }[place]
    file = saved(tmp_path / "x.pt", value, **options)
    if place == "top":
        assert "no state dict in the file" in refusal(file, FormatError)
    else:
        checkpoint = open_source(file, purpose="headers")
        assert list(checkpoint.tensors) == ["w"]
        assert checkpoint.foreign == [f"{os.system.__module__}.system"]
    assert not (tmp_path / "executed").exists()


CALLS = [
    b"cos\nsystem\n(S'touch executed'\ntR.",
    b"(S'touch executed'\nios\nsystem\n.",
    b"(cos\nsystem\nS'touch executed'\no.",
    b'c__builtin__\neval\n(S\'open("executed", "w")\'\ntR.',
    b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0etouch executed\x85R.",
    b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0etouch executed\x85}\x92.",
    b"cbuiltins\nexec\n(S'x'\nt\x81.",
    b"ctorch._utils\n_rebuild_parameter\n(cos\nsystem\ntR(S'touch executed'\ntR.",
    b"ctorch._tensor\n_rebuild_from_type_v2\n(cos\nsystem\nN(S'touch executed'\nttR.",
    b"(dcos\nsystem\nb.",
]


@pytest.mark.parametrize("program", CALLS)
def test_no_opcode_calls_anything(program: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = set(sys.modules)
    try:
        value = pickles.interpret(program, "x").value
        assert isinstance(value, (pickles.Opaque, pickles.Global, dict))
    except FormatError:
        pass
    assert not list(tmp_path.iterdir())
    assert set(sys.modules) == loaded


NESTED = b"\x80\x02" + b"(" * (limits.PICKLE_DEPTH + 1) + b"."
TUPLE_BOMB = b"\x80\x02K\x01\x85" + b"2\x86" * 60 + b"."  # pairs of pairs: 2 ** 60 leaves if anybody looked
KEY_BOMB = b"\x80\x02}K\x01\x85" + b"2\x86" * 60 + b"K\x01s."
TABLE_BOMB = b"\x80\x02}K\x01N" + b"s" + b"".join(b"q\x00}K\x01h\x00sK\x02h\x00s" for _ in range(60)) + b"."
SELF = b"\x80\x02}q\x00K\x01h\x00s."
DAMAGED = {
    "empty": b"",
    "no stop": b"\x80\x02}",
    "nothing on the stack": b".",
    "unknown opcode": b"\x80\x02\xff.",
    "unknown memo entry": b"h\x05.",
    "long string": b"X\xff\xff\xff\xff.",
    "huge byte array": b"\x80\x05\x96" + b"\xff" * 8 + b".",
    "huge integer": b"\x8b\xff\xff\xff\x7f.",
    "long number": b"I" + b"9" * 5000 + b"\n.",
    "endless line": b"c" + b"x" * 10_000,
    "extension": b"\x82\x01.",
    "out of band": b"\x97.",
    "marks": NESTED,
    "not a number": b"Ix\n.",
    "items without a table": b"K\x01K\x02s.",
    "odd items": b"}(K\x01u.",
    "key twice": b"}K\x01K\x02sK\x01K\x02s.",
    "storage without key": b"(S'storage'\nctorch\nFloatStorage\nK\x01S'cpu'\nK\x01tQ.",
    "tensor without storage": b"ctorch._utils\n_rebuild_tensor_v2\n(K\x01K\x00)))tR.",
    "tensor without arguments": b"ctorch._utils\n_rebuild_tensor_v2\n)R.",
    "not UTF-8": b"X\x01\x00\x00\x00\xff.",
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_pickle_is_refused(case: str) -> None:
    with pytest.raises(FormatError, match=r"^x\.pt: "):
        pickles.interpret(DAMAGED[case], "x.pt")


@pytest.mark.parametrize("program", [TUPLE_BOMB, KEY_BOMB, TABLE_BOMB, SELF])
def test_a_small_pickle_that_unfolds_without_end_is_refused_soon(
    program: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TENSORS", 20_000)
    archive(tmp_path / "x.pt", {"x/data.pkl": program})
    refusal(tmp_path / "x.pt")


def test_the_number_of_opcodes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PICKLE_OPCODES", 10)
    with pytest.raises(FormatError, match="more than 10 pickle opcodes"):
        pickles.interpret(b"N0" * 20 + b".", "x")


def test_what_pickle_writes_is_read(tmp_path: Path) -> None:
    value = {
        "a": [1, -1, 300, 70_000, 2**40, 1.5, None, True, False, "ü", "x" * 300],
        "b": (1,),
        "c": (1, 2, 3, 4),
        "d": {},
    }
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        read, end, _, foreign = pickles.interpret(data := pickle.dumps(value, protocol), "x")
        assert not foreign
        assert end == len(data)
        assert {key: read[key] for key in "bcd"} == {key: value[key] for key in "bcd"}
        assert read["a"][:9] == value["a"][:9]  # type: ignore[index]


def archive(path: Path, records: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as writer:
        for name, data in records.items():
            writer.writestr(name, data)
    return path


def rewritten(path: Path, change: dict[str, bytes | None], method: int = zipfile.ZIP_STORED) -> Path:
    """The torch file at `path` with other records; None leaves one out."""
    with zipfile.ZipFile(path) as reader:
        records = {name: reader.read(name) for name in reader.namelist()}
    merged = {**records, **{f"{path.stem}/{name}": data for name, data in change.items()}}
    return archive(path, {name: data for name, data in merged.items() if data is not None}, method)


CHANGED: dict[str, tuple[dict[str, bytes | None], str]] = {
    "record missing": ({"data/0": None}, "the bytes of tensor 'w', record '0', are missing"),
    "record short": ({"data/0": bytes(8)}, "has 8 bytes where its storage has 16"),
    "pickle missing": ({"data.pkl": None}, "a zip file without data.pkl"),
    "pickle cut": ({"data.pkl": b"\x80\x02}"}, "the pickle is damaged at byte 3: it is cut short"),
    "pickle empty": ({"data.pkl": b""}, "the pickle is damaged at byte 0"),
    "big-endian": ({"byteorder": b"big"}, "written by a big-endian machine"),
    "TorchScript": ({"constants.pkl": b"x"}, "the pickle is damaged at byte 1"),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_changed_archive_is_refused(case: str, tmp_path: Path) -> None:
    change, expected = CHANGED[case]
    assert expected in refusal(rewritten(saved(tmp_path / "x.pt", {"w": torch.ones(4)}), change))


def test_compressed_records_are_refused_before_they_unfold(tmp_path: Path) -> None:
    file = saved(tmp_path / "x.pt", {"w": torch.ones(4)})
    assert "is compressed or encrypted" in refusal(rewritten(file, {}, zipfile.ZIP_DEFLATED), FormatError)
    archive(file, {"x/data.pkl": bytes(200_000_000)}, zipfile.ZIP_DEFLATED)
    assert "at most 100,000,000 are read" in refusal(file, FormatError)


@pytest.mark.parametrize("options", [{}, LEGACY])
def test_a_torch_file_cut_anywhere_is_refused(options: dict[str, Any], tmp_path: Path) -> None:
    file = saved(tmp_path / "x.pt", {"w": torch.ones(4), "b": torch.ones(2)}, **options)
    whole = file.read_bytes()
    for length in range(0, len(whole), 1 if options else 7):
        file.write_bytes(whole[:length])
        refusal(file)


def test_a_torch_file_with_any_byte_changed_gives_an_error_or_a_table(tmp_path: Path) -> None:
    file = saved(tmp_path / "x.pt", {"w": torch.ones(4)}, **LEGACY)
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x11]) + whole[at + 1 :])
        try:
            open_source(file, purpose="headers")
        except MapperError as error:
            assert "\n" not in str(error)


def test_names_of_records_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    file = saved(tmp_path / "in" / "x.pt", {"w": torch.ones(4)})
    with zipfile.ZipFile(file, "a") as writer:
        writer.writestr("../../escaped", b"x")
        writer.writestr("/tmp-escaped", b"x")
    assert list(open_source(file, purpose="headers").tensors) == ["w"]
    assert [entry.name for entry in tmp_path.rglob("*")] == ["in", "x.pt"]


def test_a_tensor_larger_than_its_storage_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path / "x.pt", {"w": torch.ones(4)})
    with zipfile.ZipFile(file) as reader:
        program = reader.read("x/data.pkl")
    assert program.count(b"K\x04\x85") == 1  # the shape (4,)
    rewritten(file, {"data.pkl": program.replace(b"K\x04\x85", b"K\x09\x85")})
    assert "tensor 'w' needs 36 bytes of storage '0', which has 16" in refusal(file, FormatError)


@pytest.mark.filterwarnings("ignore")
def test_tensors_of_other_kinds_are_named(tmp_path: Path) -> None:
    kinds = {
        "is quantised": torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8),
        "is sparse": torch.eye(3).to_sparse(),
        "is on the meta device": torch.ones(3, device="meta"),
    }
    for expected, tensor in kinds.items():
        assert f"tensor 'w' {expected}" in refusal(saved(tmp_path / "x.pt", {"w": tensor}), FormatError)


LINEAR = "a whole module (torch.nn.modules.linear.Linear) that torch.save(model) pickled"


@pytest.mark.parametrize(
    ("value", "said", "how"),
    [
        (lambda model: model, LINEAR, ""),
        (lambda model: {"epoch": 3, "model": model}, f"{LINEAR} under 'model'", "['model']"),
        (lambda model: {"ema": model, "opt": stepped(model)}, f"{LINEAR} under 'ema'", "['ema']"),
    ],
    ids=["alone", "in a table", "beside an optimizer"],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_a_whole_module_is_named_and_what_to_do(value, said, how, zipped, tmp_path):
    file = tmp_path / "x.pt"
    torch.save(value(torch.nn.Linear(2, 2)), file, _use_new_zipfile_serialization=zipped)
    text = refusal(file, FormatError)
    assert said in text and "\n" not in text
    command = text.partition("is trusted: ")[2]
    assert command == f"torch.save(torch.load('x.pt', weights_only=False){how}.state_dict(), 'weights.pt')"


def test_a_tensor_alone_is_no_state_dict(tmp_path):
    text = refusal(saved(tmp_path / "x.pt", torch.ones(2)), FormatError)
    assert text == "x.pt: one tensor without a name, and no state dict; save model.state_dict()"


def test_a_module_beside_its_state_dict_is_no_harm(tmp_path):
    model = torch.nn.Linear(2, 2)
    torch.save({"ema": model, "state_dict": model.state_dict()}, tmp_path / "x.pt")
    assert sorted(open_source(tmp_path / "x.pt", purpose="headers").tensors) == ["bias", "weight"]


def stepped(model: torch.nn.Module) -> dict[str, Any]:
    """The state of an optimizer that has made a step."""
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    return optimizer.state_dict()


def test_other_files_with_these_suffixes_are_named(tmp_path: Path) -> None:
    assert "no state dict in the file (its entries: 'lr')" in refusal(
        saved(tmp_path / "x.pt", {"lr": 0.1}), FormatError
    )
    (tmp_path / "y.bin").write_bytes(pickle.dumps({"a": 1}))
    assert "a pickle that torch.save did not write" in refusal(tmp_path / "y.bin", FormatError)
    assert "without data.pkl" in refusal(archive(tmp_path / "z.pt", {"a": b"b"}), FormatError)
    assert "'a' is no array of NumPy" in refusal(archive(tmp_path / "z.pt", {"a.npy": b"b"}), FormatError)
    (tmp_path / "w.bin").write_bytes(b"\x01\x02\x03\x04 something")
    assert "no known container of weights; it starts with '\\x01\\x02\\x03\\x04 som'" in refusal(
        tmp_path / "w.bin", FormatError
    )


def test_headers_need_no_torch(tmp_path: Path) -> None:
    file = saved(tmp_path / "x.pt", {"w": torch.ones(4)})
    program = (
        "import sys; from mapper.sources import open_source; open_source(sys.argv[1], purpose='headers');"
        "print('torch' in sys.modules, 'numpy' in sys.modules, 'pickle' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[:2] == ["False", "False"]


def test_a_file_object_of_ranges_reads_like_a_file() -> None:
    from mapper.sources.remote import BLOCK, RangeFile

    data = os.urandom(5 * BLOCK + 123)
    asked: list[tuple[int, int]] = []

    def fetch(start: int, end: int) -> bytes:
        asked.append((start, end))
        return data[start:end]

    file, plain = RangeFile(fetch, len(data), data[:BLOCK]), io.BytesIO(data)
    for whence, offset, size in (
        (0, 10, 20),
        (2, -22, 22),
        (0, BLOCK - 1, 2),
        (1, 3, BLOCK),
        (0, 0, -1),
        (0, len(data) + 5, 1),
    ):
        assert file.seek(offset, whence) == plain.seek(offset, whence)
        assert file.read(size) == plain.read(size)
    assert sum(end - start for start, end in asked) <= len(data)
