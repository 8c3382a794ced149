"""Every tensor gets one leaf, and the right kind."""

from __future__ import annotations

from itertools import chain

import pytest

from mapper.architecture import Leaf
from mapper.checkpoint import TensorInfo
from mapper.naming.resolve import resolve
from mapper.naming.tree import grow
from mapper.naming.vocabulary import Overrides, Vocabulary
from mapper.rulebook.rulebook import Rulebook


@pytest.fixture(scope="module")
def files():
    return Rulebook(kinds=["vocabulary"]).vocabulary


def kinds(files, shapes, overrides=None):
    tensors = {name: TensorInfo(tuple(shape), "F32") for name, shape in shapes.items()}
    leaves = resolve(grow(tensors), Vocabulary(files, [overrides] if overrides else ()))
    assert sorted(chain.from_iterable(map(Leaf.keys, leaves))) == sorted(shapes)
    return {str(leaf.place): leaf.kind for leaf in leaves}


CASES = {
    "Linear": {"a.weight": [3, 4], "a.bias": [3]},
    "Embedding": {"word_embeddings.weight": [9, 4]},
    "LayerNorm": {"norm.weight": [4], "norm.bias": [4]},
    "RMSNorm": {"norm.weight": [4]},
    "BatchNorm": {
        "norm.weight": [4], "norm.bias": [4], "norm.running_mean": [4], "norm.running_var": [4],
        "norm.num_batches_tracked": [],
    },
    "GroupNorm": {"group_norm.weight": [4], "group_norm.bias": [4]},
    "Conv1d": {"a.weight": [3, 4, 5], "a.bias": [3]},
    "Conv2d": {"a.weight": [3, 4, 5, 5]},
    "Conv3d": {"a.weight": [3, 4, 5, 5, 5]},
    "ConvTranspose1d": {"a.weight": [3, 4, 5], "a.bias": [4]},
    "ConvTranspose2d": {"a.weight": [3, 4, 5, 5], "a.bias": [4]},
    "LSTM": {"a.weight_ih_l0": [12, 5], "a.weight_hh_l0": [12, 3], "a.bias_ih_l0": [12], "a.bias_hh_l0": [12]},
    "GRU": {"a.weight_ih_l0": [9, 5], "a.weight_hh_l0": [9, 3], "a.weight_hh_l0_reverse": [9, 3]},
    "RNN": {"a.weight_ih_l0": [3, 5], "a.weight_hh_l0": [3, 3]},
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_a_module_owns_its_tensors(files, kind):
    assert set(kinds(files, CASES[kind]).values()) == {kind}


def test_old_names_of_a_norms_tensors(files):
    assert kinds(files, {"LayerNorm.gamma": [4], "LayerNorm.beta": [4]}) == {"LayerNorm": "LayerNorm"}


def test_gamma_alone_is_a_scale(files):
    assert kinds(files, {"blocks.0.gamma": [4], "blocks.0.a.weight": [4, 4]})["blocks.0.gamma"] == "Parameter"


@pytest.mark.parametrize(
    "names",
    [("weight_g", "weight_v"), ("parametrizations.weight.original0", "parametrizations.weight.original1")],
)
def test_a_normalised_weight_belongs_to_its_convolution(files, names):
    shapes = {f"conv.{names[0]}": [1, 1, 16], f"conv.{names[1]}": [32, 8, 16], "conv.bias": [32]}
    assert kinds(files, shapes) == {"conv": "Conv1d"}


def test_bare_tensors_beside_modules(files):
    shapes = {"attn.in_proj_weight": [12, 4], "attn.in_proj_bias": [12], "attn.out_proj.weight": [4, 4]}
    assert kinds(files, shapes) == {
        "attn.in_proj_bias": "Parameter", "attn.in_proj_weight": "Parameter", "attn.out_proj": "Linear"
    }  # fmt: skip


def test_a_lone_bias_belongs_to_a_linear_with_a_tied_weight(files):
    assert kinds(files, {"decoder.bias": [9], "head.bias": [9], "head.dense.weight": [4, 4]}) == {
        "decoder": "Linear", "head.bias": "Parameter", "head.dense": "Linear"
    }  # fmt: skip


def test_routers_and_stacked_experts_are_tensors_of_their_own(files):
    shapes = {"mlp.gate.weight": [4, 8], "mlp.experts.0.w1.weight": [8, 8], "mlp.experts.1.w1.weight": [8, 8]}
    assert kinds(files, shapes)["mlp.gate.weight"] == "Parameter"
    assert kinds(files, {"moe.input_linear.weight": [4, 8, 8]}) == {"moe.input_linear.weight": "Parameter"}


def test_norms_without_bias_follow_the_norms_around_them(files):
    layers = {f"layers.{at}.{word}.weight": [4] for at in range(4) for word in ("norm_1", "norm_2")}
    assert kinds(files, {**layers, "norm_f.weight": [4]})["norm_f"] == "LayerNorm"
    assert kinds(files, {"norm_f.weight": [4], "layers.0.norm.weight": [4]})["norm_f"] == "RMSNorm"


def test_integers_are_buffers(files):
    leaves = resolve(grow({"steps": TensorInfo((), "I64")}), Vocabulary(files))
    assert [leaf.kind for leaf in leaves] == ["Buffer"]


def test_a_family_overrides_the_kind(files):
    overrides = Overrides(kinds={"norm": "GroupNorm"})
    assert kinds(files, {"norm.weight": [4], "norm.bias": [4]}, overrides) == {"norm": "GroupNorm"}


def test_odd_shapes_never_fail(files):
    shapes = {f"m{rank}.{word}": [2] * rank for rank in range(8) for word in ("weight", "bias")}
    kinds(
        files, {**shapes, "z.weight": [0, 4], "r.weight_hh_l0": [], "s.weight_hh_l0": [4, 0], "weight": [2]}
    )


def test_a_transposed_convolution_without_its_weight_fails_nowhere(files):
    overrides = Overrides(kinds={"resize": "ConvTranspose2d"})
    assert kinds(files, {"resize.bias": [8]}, overrides) == {"resize": "ConvTranspose2d"}
