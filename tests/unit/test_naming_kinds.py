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
from mapper.rulebook.vocabulary import VocabularyFile


@pytest.fixture(scope="module")
def files():
    return Rulebook(kinds=["vocabulary"]).vocabulary


def kinds(files, shapes, overrides=None):
    tensors = {name: TensorInfo(tuple(shape), "F32") for name, shape in shapes.items()}
    leaves = resolve(grow(tensors), Vocabulary(files).below([overrides] if overrides else ()))
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


@pytest.mark.parametrize(
    ("shapes", "kind"),
    [
        ({"a.weight_orig": [3, 4, 5, 5], "a.weight_u": [3], "a.weight_v": [100], "a.bias": [3]}, "Conv2d"),
        ({"a.parametrizations.weight.original": [3, 4], "a.parametrizations.weight.0._u": [3], "a.parametrizations.weight.0._v": [4]}, "Linear"),
        ({"net.0.g": [1, 4, 1, 1], "net.0.b": [1, 4, 1, 1]}, "LayerNorm"),
        ({"in1.weight": [4], "in1.bias": [4]}, "GroupNorm"),
        ({"q_norm.gamma": [3, 1, 4]}, "RMSNorm"),
    ],
)  # fmt: skip
def test_a_module_owns_tensors_of_other_names(files, shapes, kind):
    assert set(kinds(files, shapes).values()) == {kind}


def test_a_scale_and_a_shift_of_colours_are_no_norm(files):
    shapes = {"scaling_layer.scale": [1, 3, 1, 1], "scaling_layer.shift": [1, 3, 1, 1]}
    assert set(kinds(files, shapes).values()) == {"Parameter"}


def test_a_shift_with_several_axes_is_no_bias_of_a_convolution(files):
    assert set(kinds(files, {"gate.weight": [2, 5, 5], "gate.bias": [2, 5]}).values()) == {"Parameter"}


def test_what_stands_beside_in_a_list_tells_slopes_and_norms(files):
    shapes = {"net.0.weight": [1], "net.1.weight": [4, 3, 1], "net.2.weight": [4], "net.2.bias": [4]}
    assert kinds(files, shapes) == {"net.0": "PReLU", "net.1": "Conv1d", "net.2": "GroupNorm"}
    assert kinds(files, {"net.0.weight": [1], "net.1.other": [4]})["net.0.weight"] == "Parameter"


def test_norms_of_torchs_own_layers_have_no_bias_where_maps_have_none(files):
    shapes = {"self_attn.in_proj_weight": [12, 4], "norm1.weight": [4], "linear1.weight": [8, 4]}
    assert kinds(files, shapes)["norm1"] == "LayerNorm"


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


def test_routers_are_maps_and_stacked_experts_tensors_of_their_own(files):
    shapes = {"mlp.gate.weight": [4, 8], "mlp.experts.0.w1.weight": [8, 8], "mlp.experts.1.w1.weight": [8, 8]}
    assert kinds(files, shapes)["mlp.gate"] == "Linear"
    assert kinds(files, {"moe.input_linear.weight": [4, 8, 8]}) == {"moe.input_linear.weight": "Parameter"}


def test_norms_without_bias_follow_the_norms_around_them(files):
    layers = {f"layers.{at}.{word}.weight": [4] for at in range(4) for word in ("norm_1", "norm_2")}
    assert kinds(files, {**layers, "norm_f.weight": [4]})["norm_f"] == "LayerNorm"
    assert kinds(files, {"norm_f.weight": [4], "layers.0.norm.weight": [4]})["norm_f"] == "RMSNorm"


@pytest.mark.parametrize(
    ("shapes", "name", "kind"),
    [
        ({"time_proj.weight": [4], "conv_in.weight": [8, 3, 3, 3]}, "time_proj.weight", "Parameter"),
        ({"mid_block.up.kernel": [8]}, "mid_block.up.kernel", "Parameter"),
        ({"temp_convs.0.conv1.0.weight": [8], "temp_convs.0.conv1.0.bias": [8]}, "temp_convs.0.conv1.0", "GroupNorm"),
        ({"ffn.sg.norm.weight": [8], "ffn.sg.norm.bias": [8], "ffn.sg.conv.weight": [8, 1, 3, 3]}, "ffn.sg.norm", "LayerNorm"),
        ({"initial.act.weight": [8], "initial.cnn.depthwise.weight": [3, 1, 3, 3]}, "initial.act", "PReLU"),
    ],
    ids=["drawn frequencies", "a filter", "a norm between convolutions", "a norm of a gate", "slopes"],
)  # fmt: skip
def test_one_number_for_each_channel_is_no_norm_everywhere(files, shapes, name, kind):
    assert kinds(files, shapes)[name] == kind


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


RECURRENT = {
    "three layers": (
        {f"{word}_l{at}": [16, 4] for at in range(3) for word in ("weight_ih", "weight_hh")},
        "LSTM",
    ),
    "both directions": (
        {f"{word}_l0{side}": [12, 4] for side in ("", "_reverse") for word in ("weight_ih", "weight_hh")},
        "GRU",
    ),
    "a cell": ({"weight_ih": [16, 3], "weight_hh": [16, 4], "bias_ih": [16], "bias_hh": [16]}, "LSTM"),
    "a cell of a GRU": ({"weight_ih": [12, 3], "weight_hh": [12, 4]}, "GRU"),
    "a plain cell": ({"weight_ih": [4, 3], "weight_hh": [4, 4], "bias_ih": [4], "bias_hh": [4]}, "RNN"),
    "with projections": ({"weight_ih_l0": [16, 3], "weight_hh_l0": [16, 2], "weight_hr_l0": [2, 4]}, "LSTM"),
}


@pytest.mark.parametrize("case", RECURRENT)
def test_recurrent_modules_are_told_by_all_their_tensors(files, case):
    from mapper.naming.members import misfit

    tensors, kind = RECURRENT[case]
    assert kinds(files, {f"rnn.{word}": shape for word, shape in tensors.items()}) == {"rnn": kind}
    assert misfit(kind, {word: TensorInfo(tuple(shape), "F32") for word, shape in tensors.items()}) == ""


@pytest.mark.parametrize("shape", [[1, 219], [4, 8], [3, 5, 5]])
def test_a_weight_and_a_bias_of_one_shape_are_a_norms(files, shape):
    assert kinds(files, {"a.weight": shape, "a.bias": shape}) == {"a": "LayerNorm"}


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ({"head.weight": [1, 9], "head.bias": [1]}, {"head": "Linear"}),
        ({"score.weight": [1, 9]}, {"score": "Linear"}),
        ({"norm.weight": [1, 9]}, {"norm": "RMSNorm"}),
        (
            {"body.0.weight": [8, 3, 3, 3], "body.1.weight": [1]},
            {"body.0": "Conv2d", "body.1": "PReLU"},
        ),
        ({"conv.weight": [8, 3, 3, 3], "prelu.weight": [8]}, {"conv": "Conv2d", "prelu": "PReLU"}),
        ({"conv.weight": [8, 3, 3, 3], "relu1.weight": [8]}, {"conv": "Conv2d", "relu1": "PReLU"}),
        ({"q_norm.weight": [1]}, {"q_norm": "RMSNorm"}),
        ({"layers.0.gamma": [8]}, {"layers.0": "LayerNorm"}),
        ({"downs.0.norm.g": [1, 8, 1, 1]}, {"downs.0.norm": "RMSNorm"}),
        ({"beta": [1, 8, 1, 1], "gamma": [1, 8, 1, 1]}, {"beta": "Parameter", "gamma": "Parameter"}),
        ({"net.conv4_up.weight": [8, 8, 2, 2]}, {"net.conv4_up": "ConvTranspose2d"}),
        ({"net.conv4_up.weight": [8, 8, 3, 3]}, {"net.conv4_up": "Conv2d"}),
        ({"decoder.blocks.0.1.weight": [8, 8, 4, 4]}, {"decoder.blocks.0.1": "ConvTranspose2d"}),
    ],
)
def test_what_looks_like_a_linear_or_a_norm_by_one_tensor_alone(files, shapes, expected):
    assert kinds(files, shapes) == expected


CONV = {"weight": [8, 8, 3, 3], "bias": [8]}
NORM = {"weight": [8], "bias": [8]}


@pytest.mark.parametrize(
    ("norm", "others"),
    [
        ("in_layers.0", ["in_layers.2"]),
        ("out.0", ["out.2"]),
        ("norm_out", ["conv_out", "conv_in"]),
        ("norm", ["q", "k", "v", "proj_out"]),
        ("block.norm", ["block.conv"]),
        ("gn1", ["conv1"]),
    ],
)
def test_a_norm_among_convolutions_is_a_group_norm(files, norm, others):
    shapes = {f"{norm}.{word}": shape for word, shape in NORM.items()}
    shapes |= {f"{other}.{word}": shape for other in others for word, shape in CONV.items()}
    assert kinds(files, shapes)[norm] == "GroupNorm"


def test_a_norm_behind_a_map_of_patches_or_beside_linear_maps_is_a_layer_norm(files):
    for other in ("patch_embed.proj", "dwconv", "mlp.fc1"):
        shapes = {f"norm.{word}": shape for word, shape in NORM.items()}
        shapes |= {f"{other}.{word}": shape for word, shape in CONV.items()}
        assert kinds(files, shapes)["norm"] == "LayerNorm"


@pytest.mark.parametrize(
    ("norm", "others", "kind"),
    [
        ("block.norm", ["block.conv", "block.fc1"], "LayerNorm"),  # a map of channels reads it
        ("downsample.norm", ["downsample.conv"], "LayerNorm"),
        ("stem.norm2", ["stem.conv1", "stem.conv2"], "LayerNorm"),
        ("body.norm2", ["body.conv1", "body.conv2"], "GroupNorm"),
        ("mixer.pre_norm", ["mixer.qkv.c", "mixer.qkv.bn"], "GroupNorm"),
    ],
)
def test_what_stands_beside_a_norm_and_around_it_tells_its_kind(files, norm, others, kind):
    shapes = {f"{norm}.{word}": shape for word, shape in NORM.items()}
    for other in others:
        held = NORM if other.endswith("bn") else CONV
        shapes |= {f"{other}.{word}": shape for word, shape in held.items()}
    assert kinds(files, shapes)[norm] == kind


def test_a_scale_and_a_shift_beside_an_epsilon_are_no_norm_of_positions(files):
    shapes = {"body.1.weight": [1, 8, 1, 1], "body.1.bias": [1, 8, 1, 1], "body.1.eps": [1]}
    assert set(kinds(files, shapes).values()) == {"Parameter"}


def test_norms_in_the_same_list_tell_convolutions_that_are_transposed(files):
    norm = {f"main.{at}.{name}": [size] for at, size in ((1, 6), (4, 5)) for name in ("weight", "bias", "running_mean", "running_var")}  # fmt: skip
    weights = {"main.0.weight": [8, 6, 4, 4], "main.3.weight": [6, 5, 4, 4], "main.6.weight": [5, 3, 4, 4]}
    found = kinds(files, {**norm, **weights})
    assert [found[f"main.{at}"] for at in (0, 3, 6)] == ["ConvTranspose2d"] * 3
    forward = {"main.0.weight": [6, 8, 3, 3], "main.3.weight": [5, 6, 3, 3], "main.6.weight": [3, 5, 3, 3]}
    found = kinds(files, {**norm, **forward})
    assert [found[f"main.{at}"] for at in (0, 3, 6)] == ["Conv2d"] * 3


def test_slopes_behind_a_depthwise_convolution_are_no_norm(files):
    found = kinds(files, {"main.0.weight": [6, 1, 3], "main.0.bias": [6], "main.1.weight": [1]})
    assert found == {"main.0": "Conv1d", "main.1": "PReLU"}


@pytest.mark.parametrize("word", ["weight", "kernel"])
def test_a_bias_that_no_map_of_this_width_has_is_no_bias_of_it(word: str) -> None:
    """Whatever the map's weight is called."""
    from mapper.naming.members import misfit

    tensors = {word: TensorInfo((16, 8), "F32"), "bias": TensorInfo((7,), "F32")}
    assert misfit("Linear", tensors) == f"bias [7] does not go with {word} [16, 8]"


def test_what_is_called_a_norm_is_said_by_the_words_of_the_vocabularies(files):
    own = VocabularyFile("own", (), {}, {}, {}, {"norm": ("whitening",)})
    shapes = {"whitening.scale": [8]}
    assert kinds(files, shapes) == {"whitening.scale": "Parameter"}
    assert kinds([*files, own], shapes) == {"whitening": "RMSNorm"}
