"""Rotary tables and rotations against complex numbers and against the reference's own functions."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from mapper.operations import rotary

POSITIONS = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [3, 4, 5, 6, 7, 8, 9]])


def config(**rope) -> LlamaConfig:
    rope = {"rope_theta": 10000.0, "rope_type": "default", **rope}
    return LlamaConfig(
        hidden_size=64, num_attention_heads=4, max_position_embeddings=64, rope_parameters=rope
    )


def reference_frequencies(length=None, **rope):
    return ROPE_INIT_FUNCTIONS[rope["rope_type"]](config(**rope), "cpu", seq_len=length)


def test_rotation_is_the_references():
    torch.manual_seed(0)
    q, k = torch.randn(2, 4, 7, 16), torch.randn(2, 4, 7, 16)
    cos, sin = rotary.rotary_tables(q, POSITIONS, rotary.rotary_frequencies(POSITIONS, 16, 10000.0))
    tables = LlamaRotaryEmbedding(config())(q, POSITIONS)
    expected = apply_rotary_pos_emb(q, k, *tables)
    torch.testing.assert_close(
        (rotary.apply_rotary(q, cos, sin), rotary.apply_rotary(k, cos, sin)), expected, rtol=0, atol=0
    )


def test_rotation_in_half_precision_is_the_references():
    q = torch.randn(2, 4, 7, 16).bfloat16()
    cos, sin = rotary.rotary_tables(q, POSITIONS, rotary.rotary_frequencies(POSITIONS, 16, 10000.0))
    expected, _ = apply_rotary_pos_emb(q, q, *LlamaRotaryEmbedding(config())(q, POSITIONS))
    torch.testing.assert_close(rotary.apply_rotary(q, cos, sin), expected, rtol=0, atol=0)


def test_interleaved_rotation_multiplies_complex_numbers():
    q = torch.randn(2, 4, 7, 16)
    frequencies = rotary.rotary_frequencies(POSITIONS, 16, 10000.0)
    cos, sin = rotary.rotary_tables(q, POSITIONS, frequencies)
    turn = torch.polar(torch.ones(2, 1, 7, 8), POSITIONS[:, None, :, None] * frequencies)
    expected = torch.view_as_real(torch.view_as_complex(q.unflatten(-1, (8, 2))) * turn).flatten(-2)
    torch.testing.assert_close(rotary.apply_rotary_interleaved(q, cos, sin), expected)


def test_partial_rotation_keeps_the_rest():
    q = torch.randn(2, 4, 7, 16)
    cos, sin = rotary.rotary_tables(q, POSITIONS, rotary.rotary_frequencies(POSITIONS, 4, 10000.0))
    for partial, whole in (
        (rotary.apply_rotary_partial, rotary.apply_rotary),
        (rotary.apply_rotary_partial_interleaved, rotary.apply_rotary_interleaved),
    ):
        out = partial(q, cos, sin)
        torch.testing.assert_close(out[..., 4:], q[..., 4:], rtol=0, atol=0)
        torch.testing.assert_close(out[..., :4], whole(q[..., :4], cos, sin), rtol=0, atol=0)


def test_an_attention_factor_scales_both_tables():
    q = torch.randn(1, 4, 7, 16)
    frequencies = rotary.rotary_frequencies(POSITIONS, 16, 10000.0)
    plain = rotary.rotary_tables(q, POSITIONS, frequencies)
    scaled = rotary.rotary_tables_scaled(q, POSITIONS, frequencies, 1.5)
    torch.testing.assert_close(scaled, (plain[0] * 1.5, plain[1] * 1.5))


@pytest.mark.parametrize("length", [10, 64, 200])
def test_dynamic_scaling_is_the_references(length):
    expected, _ = reference_frequencies(torch.tensor(length), rope_type="dynamic", factor=4.0)
    out = rotary.rotary_frequencies_dynamic(torch.arange(length)[None], 16, 10000.0, 4.0, 64)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("base", [10000.0, 500000.0])
def test_llama3_scaling_is_the_references(base):
    rope = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    expected, _ = reference_frequencies(
        rope_type="llama3", rope_theta=base, original_max_position_embeddings=512, **rope
    )
    out = rotary.rotary_frequencies_llama3(POSITIONS, 16, base, 8.0, 1.0, 4.0, 512)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize("original", [16, 512, 4096])
def test_yarn_scaling_is_the_references(original, truncate):
    expected, factor = reference_frequencies(
        rope_type="yarn", factor=8.0, original_max_position_embeddings=original, truncate=truncate
    )
    out = rotary.rotary_frequencies_yarn(POSITIONS, 16, 10000.0, 8.0, original, truncate=truncate)
    torch.testing.assert_close(out, expected)
    assert factor == pytest.approx(1.2079, abs=1e-4)  # 0.1 * ln 8 + 1, what a flow passes on


@pytest.mark.parametrize("length", [32, 33])
def test_longrope_scaling_is_the_references(length):
    short, long = [1.0 + i / 10 for i in range(8)], [2.0 + i for i in range(8)]
    expected, _ = reference_frequencies(
        length,
        rope_type="longrope",
        short_factor=short,
        long_factor=long,
        original_max_position_embeddings=32,
    )
    out = rotary.rotary_frequencies_longrope(
        torch.arange(length)[None], 16, 10000.0, tuple(short), tuple(long), 32
    )
    torch.testing.assert_close(out, expected)
