"""Weights of a few bits as the libraries store them that made them: the model is the one of the weights they stand for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import mapper
from mapper.errors import FormatError, MapperError
from mapper.sources import open_source
from mapper.sources.quantised.bits import unsigned
from mapper.sources.quantised.plain import plain
from tests.unit.test_source_gguf import CONFIG, llama
from tests.unit.test_source_scaled import FIELDS, read, stored

GROUP = 16  # inputs that share a scale
NF4 = (
    -1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0, 0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626, 0.723, 1.0,
)  # fmt: skip
Tensors = dict[str, torch.Tensor]


class Quantised(NamedTuple):
    """What a library stores of one map, and what that stands for."""

    tensors: Tensors
    weight: torch.Tensor


def words(numbers: list[int], bits: int) -> list[int]:
    """Numbers one after the other in integers of 32 bits with a sign, the first in the lowest bits."""
    whole = sum(number << at * bits for at, number in enumerate(numbers))
    found = [whole >> at & (2**32 - 1) for at in range(0, len(numbers) * bits, 32)]
    return [word - 2**32 if word >= 2**31 else word for word in found]


def integers(rows: list[list[int]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.int32)


def drawn(shape: tuple[int, int], bits: int, seed: int) -> tuple[Any, Any, Any]:
    """Numbers (outputs, inputs), zeros and scales (outputs, groups)."""
    noise = np.random.default_rng(seed)
    groups = shape[0], shape[1] // GROUP
    numbers, zeros = noise.integers(0, 2**bits, shape), noise.integers(0, 2**bits, groups)
    return numbers, zeros, noise.uniform(0.01, 0.02, groups).astype(np.float32)


def stands_for(numbers: Any, zeros: Any, scales: Any, group_of: list[int]) -> torch.Tensor:
    """Element by element."""
    plain = torch.empty(numbers.shape)
    for out in range(numbers.shape[0]):
        for at, group in enumerate(group_of):
            plain[out, at] = (int(numbers[out, at]) - int(zeros[out, group])) * float(scales[out, group])
    return plain


def gptq(shape: tuple[int, int], seed: int, first: int = 1, ordered: bool = True) -> Quantised:
    numbers, zeros, scales = drawn(shape, 4, seed)
    group_of = [at // GROUP for at in range(shape[1])]
    if not ordered:
        np.random.default_rng(seed).shuffle(group_of)
    tensors = {
        "qweight": integers([words(list(map(int, numbers[out])), 4) for out in range(shape[0])]).T,
        "qzeros": integers([words([(int(zero) - first) % 16 for zero in zeros[:, at]], 4) for at in range(zeros.shape[1])]),
        "scales": torch.from_numpy(scales.T.copy()),
        "g_idx": torch.tensor(group_of, dtype=torch.int32),
    }  # fmt: skip
    return Quantised(tensors, stands_for(numbers, zeros, scales, group_of))


def awq(shape: tuple[int, int], seed: int) -> Quantised:
    numbers, zeros, scales = drawn(shape, 4, seed)

    def packed(row: Any) -> list[int]:
        """Eight columns in an integer: those of even places first."""
        parts = [list(map(int, row[at : at + 8])) for at in range(0, len(row), 8)]
        return [word for part in parts for word in words(part[::2] + part[1::2], 4)]

    tensors = {
        "qweight": integers([packed(numbers[:, at]) for at in range(shape[1])]),
        "qzeros": integers([packed(zeros[:, at]) for at in range(zeros.shape[1])]),
        "scales": torch.from_numpy(scales.T.copy()),
    }
    return Quantised(tensors, stands_for(numbers, zeros, scales, [at // GROUP for at in range(shape[1])]))


def compressed(shape: tuple[int, int], seed: int, has_zeros: bool = True) -> Quantised:
    numbers, zeros, scales = drawn(shape, 4, seed)
    tensors = {
        "weight_packed": integers([words(list(map(int, numbers[out])), 4) for out in range(shape[0])]),
        "weight_scale": torch.from_numpy(scales),
        "weight_shape": torch.tensor(shape),
    }
    if has_zeros:
        columns = [words(list(map(int, zeros[:, at])), 4) for at in range(zeros.shape[1])]
        tensors["weight_zero_point"] = integers(columns).T
    else:
        zeros = np.full_like(zeros, 8)
    return Quantised(tensors, stands_for(numbers, zeros, scales, [at // GROUP for at in range(shape[1])]))


def mlx(shape: tuple[int, int], seed: int) -> Quantised:
    numbers, offsets, scales = drawn(shape, 4, seed)
    group_of = [at // GROUP for at in range(shape[1])]
    rows = [[word % 2**32 for word in words(list(map(int, numbers[out])), 4)] for out in range(shape[0])]
    biases = -offsets.astype(np.float32) * scales
    tensors = {
        "weight": torch.tensor(rows, dtype=torch.uint32),
        "scales": torch.from_numpy(scales),
        "biases": torch.from_numpy(biases),
    }
    return Quantised(tensors, stands_for(numbers, offsets, scales, group_of))


def rows_of_eight(shape: tuple[int, int], seed: int) -> Quantised:
    noise = np.random.default_rng(seed)
    numbers = noise.integers(-127, 128, shape)
    largest = noise.uniform(1, 2, shape[0]).astype(np.float32)
    tensors = {
        "weight": torch.from_numpy(numbers.astype(np.int8)),
        "SCB": torch.from_numpy(largest),
        "weight_format": torch.tensor(0, dtype=torch.uint8),
    }
    plain = torch.tensor(
        [[float(largest[out]) * int(number) / 127 for number in row] for out, row in enumerate(numbers)]
    )
    return Quantised(tensors, plain)


def blocks_of_four(shape: tuple[int, int], seed: int, nested: bool = False) -> Quantised:
    noise = np.random.default_rng(seed)
    size, block = shape[0] * shape[1], 64
    numbers = noise.integers(0, 16, size)
    octets = [int(numbers[at]) << 4 | int(numbers[at + 1]) for at in range(0, size, 2)]
    state = {"quant_type": "nf4", "blocksize": block, "dtype": "float32", "shape": list(shape)}
    scales = noise.uniform(0.1, 0.2, size // block).astype(np.float32)
    tensors = {
        "weight": torch.tensor(octets, dtype=torch.uint8).unsqueeze(1),
        "weight.quant_map": torch.tensor(NF4),
    }
    if nested:
        at, table = noise.integers(0, 256, len(scales)), np.linspace(-1, 1, 256, dtype=np.float32)
        outer = noise.uniform(0.01, 0.02, -(-len(scales) // 4)).astype(np.float32)
        scales = np.array(
            [table[code] * outer[place // 4] + 0.15 for place, code in enumerate(at)], np.float32
        )
        state |= {"nested_blocksize": 4, "nested_dtype": "float32", "nested_offset": 0.15}
        tensors["weight.absmax"] = torch.tensor(at, dtype=torch.uint8)
        tensors["weight.nested_absmax"] = torch.from_numpy(outer)
        tensors["weight.nested_quant_map"] = torch.from_numpy(table)
    else:
        tensors["weight.absmax"] = torch.from_numpy(scales)
    record = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
    tensors["weight.quant_state.bitsandbytes__nf4"] = record
    plain = torch.tensor([NF4[number] * float(scales[at // block]) for at, number in enumerate(numbers)])
    return Quantised(tensors, plain.view(shape))


def says(method: str, **more: Any) -> dict[str, Any]:
    return {"quantization_config": {"quant_method": method, **more}}


PACKED = says("compressed-tensors", format="pack-quantized", config_groups={"group_0": {"weights": {"num_bits": 4, "type": "int"}}})  # fmt: skip
FORMATS: dict[str, tuple[Callable[[tuple[int, int], int], Quantised], dict[str, Any], str]] = {
    "GPTQ": (gptq, says("gptq", bits=4, group_size=GROUP), "4 bits (GPTQ) are unpacked"),
    "GPTQ in another order": (
        lambda shape, seed: gptq(shape, seed, ordered=False),
        says("gptq", bits=4, group_size=GROUP, desc_act=True, checkpoint_format="gptq"),
        "4 bits (GPTQ) are unpacked",
    ),
    "GPTQ with plain zeros": (
        lambda shape, seed: gptq(shape, seed, first=0),
        says("gptq", bits=4, checkpoint_format="gptq_v2"),
        "4 bits (GPTQ) are unpacked",
    ),
    "AWQ": (awq, says("awq", bits=4, version="gemm"), "4 bits (AWQ) are unpacked"),
    "compressed-tensors": (compressed, PACKED, "4 bits (compressed-tensors) are unpacked"),
    "compressed-tensors around zero": (
        lambda shape, seed: compressed(shape, seed, has_zeros=False),
        PACKED,
        "4 bits (compressed-tensors) are unpacked",
    ),
    "MLX": (mlx, {"quantization": {"bits": 4, "group_size": GROUP}}, "4 bits (MLX) are unpacked"),
    "bitsandbytes, 8 bits": (rows_of_eight, says("bitsandbytes", load_in_8bit=True), "are multiplied by their scales"),
    "bitsandbytes, 4 bits": (blocks_of_four, says("bitsandbytes", load_in_4bit=True), "are looked up"),
    "bitsandbytes, scales in 8 bits": (
        lambda shape, seed: blocks_of_four(shape, seed, nested=True),
        says("bitsandbytes", load_in_4bit=True),
        "are looked up",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_a_quantised_model_is_the_one_of_the_weights_that_are_stood_for(name: str, tmp_path: Path) -> None:
    made, config, note = FORMATS[name]
    small: Tensors = {}
    whole: Tensors = {}
    for seed, (key, weight) in enumerate(llama()[1].items()):
        whole[key] = small[key] = weight
        if "_proj" in key:
            found = made((weight.shape[0], weight.shape[1]), seed)
            whole[key] = found.weight
            del small[key]
            small |= {
                f"{key.removesuffix('weight')}{word}": each.contiguous()
                for word, each in found.tensors.items()
            }
    folder = stored(tmp_path / "small", small, {**CONFIG, **config})
    report = mapper.inspect(folder)
    assert report.architecture.reading == "exact"
    assert f"14 weights of {'8' if '8 bits' in name and 'scales' not in name else '4'} bits" in str(report)
    assert note in str(report)
    assert "It reads what `mapper build` writes" in mapper.generate(folder)
    ids = torch.tensor([[1, 2, 3, 40]])
    one, other = mapper.build(folder), mapper.build(stored(tmp_path / "plain", whole, CONFIG))
    assert torch.allclose(one(input_ids=ids).logits, other(input_ids=ids).logits, rtol=1e-5, atol=1e-5)
    for key, value in one.state_dict().items():
        assert torch.allclose(value, other.state_dict()[key], rtol=1e-6, atol=1e-7), key


@pytest.mark.parametrize("bits", range(2, 9))
def test_numbers_of_any_bits_may_go_from_one_integer_to_the_next(bits: int) -> None:
    numbers = np.random.default_rng(bits).integers(0, 2**bits, (3, 64))
    packed = integers([words(list(map(int, row)), bits) for row in numbers])
    assert torch.equal(unsigned(packed, bits), torch.tensor(numbers, dtype=torch.uint8))


UNKNOWN: dict[str, tuple[Quantised, dict[str, Any]]] = {
    "nothing says how zeros were stored": (gptq((32, 32), 0), {}),
    "another layout": (gptq((32, 32), 0), says("gptq", bits=4, checkpoint_format="marlin")),
    "other bits than shapes have": (gptq((32, 32), 0), says("gptq", bits=8)),
    "AWQ for another kernel": (awq((32, 32), 0), says("awq", bits=4, version="gemv")),
    "layers of several bits": (
        compressed((32, 32), 0),
        says("compressed-tensors", format="pack-quantized", config_groups={
            "group_0": {"weights": {"num_bits": 4, "type": "int"}}, "group_1": {"weights": {"num_bits": 8, "type": "int"}},
        }),
    ),
    "floats in 4 bits": (compressed((32, 32), 0), says("compressed-tensors", format="nvfp4-pack-quantized")),
    "groups of another size": (mlx((32, 32), 0), {"quantization": {"bits": 4, "group_size": 32}}),
}  # fmt: skip


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_is_not_understood_stays_refused(case: str, tmp_path: Path) -> None:
    found, config = UNKNOWN[case]
    tensors = {f"a.{word}": each.contiguous() for word, each in found.tensors.items()}
    folder = stored(tmp_path / "x", tensors, config)
    checkpoint = open_source(folder, purpose="weights")
    assert plain(checkpoint, FIELDS) is checkpoint
    with pytest.raises(MapperError, match="quantised"):
        mapper.build(folder)


def damaged(made: Quantised, **other: torch.Tensor | None) -> Tensors:
    tensors = {**made.tensors, **other}
    return {f"a.{word}": each.contiguous() for word, each in tensors.items() if each is not None}


def record(text: str) -> dict[str, torch.Tensor]:
    octets = torch.tensor(list(text.encode()), dtype=torch.uint8)
    return {"weight.quant_state.bitsandbytes__nf4": octets}


DAMAGE: dict[str, tuple[Tensors, dict[str, Any], str]] = {
    "a group that is not there": (
        damaged(gptq((32, 32), 0), g_idx=torch.full((32,), 7, dtype=torch.int32)),
        says("gptq", bits=4),
        "an input is of group 7, and there are 2",
    ),
    "another shape than the packed": (
        damaged(compressed((32, 32), 0), weight_shape=torch.tensor([32, 30])),
        PACKED,
        r"\[32, 30\] do not fill \[32, 32\] places",
    ),
    "rows in another form": (
        damaged(rows_of_eight((32, 32), 0), weight_format=torch.tensor(1, dtype=torch.uint8)),
        {},
        "not that of rows",
    ),
    "no record": (damaged(blocks_of_four((32, 32), 0), **record("{")), {}, "not JSON"),
    "a record of something else": (
        damaged(blocks_of_four((32, 32), 0), **record('{"blocksize": 64, "shape": ["32", 32]}')),
        {},
        "no record of a weight in 4 bits",
    ),
    "a weight that is there plainly, too": (
        damaged(gptq((32, 32), 0), weight=torch.ones(32, 32)),
        says("gptq", bits=4),
        "'a.weight' is there twice: plain, and as 'a.qweight'",
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_said(case: str, tmp_path: Path) -> None:
    tensors, config, message = DAMAGE[case]
    folder = stored(tmp_path / "x", tensors, config)
    with pytest.raises(FormatError, match=message):
        read(plain(open_source(folder, purpose="weights"), FIELDS))


def test_of_a_remote_file_only_the_file_says_shapes_of_blocks(tmp_path: Path) -> None:
    tensors = {f"a.{word}": each for word, each in blocks_of_four((32, 32), 0).tensors.items()}
    checkpoint = open_source(stored(tmp_path / "x", tensors, {}), purpose="headers")
    checkpoint.read = None
    assert plain(checkpoint, FIELDS) is checkpoint


def test_maps_that_are_stored_the_other_way_round_than_by_their_library_are_read_by_shape(
    tmp_path: Path,
) -> None:
    """GPT-2's maps are (inputs, outputs), but those that GPTQ packed stand for (outputs, inputs)."""
    config = {
        "model_type": "gpt2",
        "n_embd": 32,
        "n_head": 2,
        "n_layer": 1,
        "n_positions": 8,
        "vocab_size": 40,
    }
    small: Tensors = {"wte.weight": torch.randn(40, 32), "wpe.weight": torch.randn(8, 32)}
    for norm in ("h.0.ln_1", "h.0.ln_2", "ln_f"):
        small |= {f"{norm}.weight": torch.ones(32), f"{norm}.bias": torch.zeros(32)}
    whole = dict(small)
    sizes = {"attn.c_attn": (96, 32), "attn.c_proj": (32, 32), "mlp.c_fc": (128, 32), "mlp.c_proj": (32, 128)}
    for seed, (name, shape) in enumerate(sizes.items()):
        found, bias = gptq(shape, seed), {f"h.0.{name}.bias": torch.zeros(shape[0])}
        small |= bias | {f"h.0.{name}.{word}": each.contiguous() for word, each in found.tensors.items()}
        whole |= bias | {f"h.0.{name}.weight": found.weight.T.contiguous()}
    one = mapper.build(stored(tmp_path / "small", small, {**config, **says("gptq", bits=4)}))
    other, ids = mapper.build(stored(tmp_path / "plain", whole, config)), torch.tensor([[1, 2, 3]])
    found, expected = (model(input_ids=ids).last_hidden_state for model in (one, other))
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5)


MISFITS: dict[str, tuple[Quantised, dict[str, Any], dict[str, torch.Tensor]]] = {
    "GPTQ: scales of no group": (gptq((32, 32), 0), says("gptq", bits=4), {"scales": torch.ones(0, 32)}),
    "GPTQ: zeros that are no integers": (gptq((32, 32), 0), says("gptq", bits=4), {"qzeros": torch.ones(2, 4)}),
    "GPTQ: groups that are no integers": (gptq((32, 32), 0), says("gptq", bits=4), {"g_idx": torch.full((32,), torch.nan)}),
    "GPTQ: a part of an integer is left": (gptq((32, 32), 0), says("gptq", bits=3), {}),
    "AWQ: zeros without axes": (awq((32, 32), 0), says("awq", bits=4), {"qzeros": torch.tensor(1, dtype=torch.int32)}),
    "AWQ: scales of no group": (awq((32, 32), 0), says("awq", bits=4), {"scales": torch.ones(0, 32)}),
    "AWQ: zeros that are no integers": (awq((32, 32), 0), says("awq", bits=4), {"qzeros": torch.ones(2, 4)}),
    "compressed-tensors: scales of other rows": (compressed((1, 32), 0, False), PACKED, {"weight_scale": torch.ones(4096, 2)}),
    "compressed-tensors: a scale without axes": (compressed((32, 32), 0), PACKED, {"weight_scale": torch.tensor(1.0)}),
    "compressed-tensors: a shape without axes": (compressed((32, 32), 0), PACKED, {"weight_shape": torch.tensor(1)}),
    "compressed-tensors: zeros as they are": (
        compressed((32, 32), 0), PACKED, {"weight_zero_point": torch.zeros(32, 2, dtype=torch.int8)},
    ),
    "compressed-tensors: bits that are a list": (
        compressed((32, 32), 0),
        says("compressed-tensors", format="pack-quantized", config_groups={"0": {"weights": {"num_bits": [4], "type": "int"}}}),
        {},
    ),
    "MLX: a part of an integer is left": (mlx((32, 32), 0), {"quantization": {"bits": 3, "group_size": 16}}, {}),
    "MLX: a module of its own": (mlx((32, 32), 0), {"quantization": {"bits": 4, "group_size": 16, "a": {"bits": 8, "group_size": 16}}}, {}),
    "bitsandbytes: scales of other rows": (rows_of_eight((32, 32), 0), {}, {"SCB": torch.ones(4)}),
    "bitsandbytes: a form for each row": (rows_of_eight((32, 32), 0), {}, {"weight_format": torch.zeros(3, dtype=torch.uint8)}),
    "bitsandbytes: a record of floats": (
        blocks_of_four((32, 32), 0), {}, {"weight.quant_state.bitsandbytes__nf4": torch.ones(60)},
    ),
    "bitsandbytes: more numbers than bytes": (
        blocks_of_four((32, 32), 0), {}, record('{"blocksize": 64, "shape": [32, 64]}'),
    ),
    "bitsandbytes: blocks without scales": (
        blocks_of_four((32, 32), 0), {}, record('{"blocksize": 32, "shape": [32, 32]}'),
    ),
    "bitsandbytes: a table of other size": (blocks_of_four((32, 32), 0), {}, {"weight.quant_map": torch.ones(8)}),
    "bitsandbytes: scales that are looked up in one": (
        blocks_of_four((32, 32), 0, nested=True), {}, {"weight.nested_quant_map": torch.ones(1)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISFITS)
def test_types_and_shapes_that_do_not_agree_are_left(case: str, tmp_path: Path) -> None:
    made, config, other = MISFITS[case]
    folder = stored(tmp_path / "x", damaged(made, **other), config)
    checkpoint = open_source(folder, purpose="weights")
    assert plain(checkpoint, FIELDS) is checkpoint
    with pytest.raises(MapperError):
        mapper.build(folder)


def test_one_row_and_modules_with_bits_of_their_own(tmp_path: Path) -> None:
    one, other = gptq((8, 32), 0), mlx((8, 32), 1)
    folder = stored(tmp_path / "x", damaged(one), says("gptq", bits=4))
    found = read(plain(open_source(folder, purpose="weights"), FIELDS))
    assert torch.allclose(found["a.weight"].float(), one.weight, rtol=1e-2, atol=1e-2)
    config = {"quantization": {"bits": 8, "group_size": 64, "a": {"bits": 4, "group_size": GROUP}}}
    folder = stored(tmp_path / "y", damaged(other), config)
    found = read(plain(open_source(folder, purpose="weights"), FIELDS))
    assert torch.allclose(found["a.weight"].float(), other.weight, rtol=1e-2, atol=1e-2)
