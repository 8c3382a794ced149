"""Leaves, convolutions, activations and pooling against torch's and the reference's own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers.activations import ACT2CLS, ACT2FN

from mapper.operations import activations, convolution, leaves, pooling
from mapper.rulebook.rulebook import Rulebook


def filled(module: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            nn.init.uniform_(tensor, 0.5, 1.5)
    return module.eval()


def test_a_transposed_linear_is_the_references():
    from transformers.pytorch_utils import Conv1D

    reference = filled(Conv1D(6, 4))
    leaf = leaves.LinearTransposed(4, 6)
    leaf.load_state_dict(reference.state_dict())
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(leaf(x), reference(x))
    assert set(leaves.LinearTransposed(4, 6, bias=False).state_dict()) == {"weight"}


def test_layer_norms_differ_in_names_and_layout_only():
    norm = filled(nn.LayerNorm(4, eps=1e-6))
    gamma_beta, first = leaves.LayerNormGammaBeta(4, 1e-6), leaves.LayerNormChannelsFirst(4, 1e-6)
    gamma_beta.load_state_dict({"gamma": norm.weight, "beta": norm.bias})
    first.load_state_dict(norm.state_dict())
    x = torch.randn(2, 3, 5, 4)
    torch.testing.assert_close(gamma_beta(x), norm(x), rtol=0, atol=0)
    torch.testing.assert_close(first(x.permute(0, 3, 1, 2)), norm(x).permute(0, 3, 1, 2), rtol=0, atol=0)


def test_a_group_norm_may_be_stored_as_gamma_and_beta():
    norm, x = filled(nn.GroupNorm(2, 4, eps=1e-8)), torch.randn(3, 4, 5)
    gamma_beta = leaves.GroupNormGammaBeta(2, 4, 1e-8)
    gamma_beta.load_state_dict({"gamma": norm.weight, "beta": norm.bias})
    torch.testing.assert_close(gamma_beta(x), norm(x), rtol=0, atol=0)


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_norms_of_one_row_may_be_stored_less_an_offset(offset):
    row, x = torch.rand(4) + 0.5, torch.randn(2, 3, 4)
    layer, root = leaves.LayerNormGamma(4, 1e-6, offset), leaves.RMSNormVector(4, 1e-6, offset)
    layer.load_state_dict({"gamma": row - offset})
    root.load_state_dict({"g": row - offset})
    torch.testing.assert_close(layer(x), F.layer_norm(x, (4,), row, None, 1e-6))
    torch.testing.assert_close(root(x), F.rms_norm(x, (4,), row, 1e-6))


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_a_norm_of_scale_has_one_gain_for_all_channels(offset):
    x, gain = torch.randn(2, 3, 4), torch.tensor([1.5])
    leaf = leaves.ScaleNorm(0.0, offset)
    leaf.load_state_dict({"g": gain - offset})
    torch.testing.assert_close(leaf(x), F.normalize(x, dim=-1) * 2 * gain)


def test_a_layer_norm_with_an_offset_scales_by_one_more():
    norm = filled(nn.LayerNorm(4, eps=1e-6))
    leaf = leaves.LayerNormOffset(4, 1e-6)
    leaf.load_state_dict({"weight": norm.weight - 1, "bias": norm.bias})
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(leaf(x), norm(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_offset_norm_is_the_references(dtype):
    from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm

    reference = filled(Gemma2RMSNorm(8, eps=1e-6)).to(dtype)
    leaf = leaves.RMSNormOffset(8, 1e-6).to(dtype)
    leaf.load_state_dict(reference.state_dict())
    x = torch.randn(2, 3, 8, dtype=dtype)
    torch.testing.assert_close(leaf(x), reference(x))
    gamma = leaves.RMSNormGamma(8, 1e-6)
    gamma.load_state_dict({"gamma": reference.weight.float()})
    expected = F.rms_norm(x.float(), (8,), reference.weight.float(), 1e-6)
    torch.testing.assert_close(gamma(x.float()), expected, rtol=0, atol=0)
    scale = leaves.RMSNormScale(8, 1e-6)
    scale.load_state_dict({"scale": reference.weight.float()})
    torch.testing.assert_close(scale(x.float()), expected, rtol=0, atol=0)


@pytest.mark.parametrize(("kind", "name"), [(leaves.LayerNormVector, "g"), (leaves.LayerNormScale, "scale")])
def test_a_layer_norm_without_a_bias_under_another_name(kind, name):
    norm = filled(nn.LayerNorm(4, eps=1e-6, bias=False))
    leaf = kind(4, 1e-6)
    leaf.load_state_dict({name: norm.weight})
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(leaf(x), norm(x))


def test_a_norm_of_each_head_has_a_row_of_weights_for_each():
    leaf = filled(leaves.RMSNormHeads((3, 1, 4), 1e-6))
    x = torch.randn(2, 3, 5, 4)
    wanted = torch.stack([F.rms_norm(x[:, at], (4,), leaf.gamma[at, 0], 1e-6) for at in range(3)], dim=1)
    torch.testing.assert_close(leaf(x), wanted)


def test_a_frozen_batch_norm_is_batch_norm_in_eval():
    reference = filled(nn.BatchNorm2d(3))
    leaf = leaves.FrozenBatchNorm(3)
    state = reference.state_dict()
    del state["num_batches_tracked"]
    leaf.load_state_dict(state)
    x = torch.randn(2, 3, 4, 4)
    torch.testing.assert_close(leaf.train()(x), reference(x))


@pytest.mark.parametrize("kernel", [4, 5])
def test_weight_normed_convolutions_are_torchs(kernel):
    options = {"padding": kernel // 2, "groups": 2}
    reference = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 6, kernel, **options), dim=2)
    reference = filled(reference)
    state = reference.state_dict()
    parametrized = leaves.Conv1dParametrized(4, 6, kernel, dim=2, **options)
    parametrized.load_state_dict(state)
    x = torch.randn(2, 4, 7)
    torch.testing.assert_close(parametrized(x), reference(x))
    old = leaves.Conv1dWeightNorm(4, 6, kernel, dim=2, **options)
    prefix = "parametrizations.weight.original"
    names = {"bias": state["bias"], "weight_g": state[prefix + "0"], "weight_v": state[prefix + "1"]}
    old.load_state_dict(names)
    torch.testing.assert_close(old(x), reference(x))


@pytest.mark.parametrize("kernel", [4, 5])
def test_position_convolutions_keep_the_length(kernel):
    from transformers import Wav2Vec2Config
    from transformers.models.wav2vec2.modeling_wav2vec2 import Wav2Vec2PositionalConvEmbedding

    config = Wav2Vec2Config(hidden_size=4, num_conv_pos_embeddings=kernel, num_conv_pos_embedding_groups=2)
    reference = filled(Wav2Vec2PositionalConvEmbedding(config))
    leaf = leaves.Conv1dParametrized(4, 4, kernel, dim=2, padding=kernel // 2, groups=2)
    leaf.load_state_dict(reference.conv.state_dict())
    x = torch.randn(2, 7, 4)
    out = F.gelu(convolution.trim_even(leaf(x.transpose(1, 2)), kernel)).transpose(1, 2)
    torch.testing.assert_close(out, reference(x))


def test_weight_norm_per_output_channel():
    direction = torch.randn(6, 4, 3)
    length = torch.rand(6, 1, 1)
    expected = direction / direction.flatten(1).norm(dim=1)[:, None, None] * length
    torch.testing.assert_close(convolution.weight_norm(length, direction), expected)


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 2), (1, 2), (2, 2)])
@pytest.mark.parametrize("side", [6, 7])
def test_same_padding_gives_the_rounded_up_size(kernel, stride, side):
    x = convolution.pad_same(torch.zeros(1, 1, side, side + 1), kernel, stride)
    out = F.conv2d(x, torch.zeros(1, 1, kernel, kernel), stride=stride)
    assert out.shape[2:] == (-(-side // stride), -(-(side + 1) // stride))


def test_a_quick_gelu_is_the_references():
    x = torch.linspace(-12, 12, 101)
    torch.testing.assert_close(activations.quick_gelu(x), ACT2FN["quick_gelu"](x))


# of the reference's table: one keeps a table of slopes for each channel, one has weights, and one is of routers alone
OF_NO_FORMULA = {"prelu", "xielu", "sqrtsoftplus"}


@pytest.mark.parametrize("name", sorted(set(ACT2CLS) - OF_NO_FORMULA))
def test_an_activation_of_the_reference_is_known_by_its_name(name):
    x = torch.linspace(-20, 20, 801)
    known = Rulebook(kinds=["vocabulary"]).activations[name].expression
    made = eval(known, {"F": F, "torch": torch, "x": x, "quick_gelu": activations.quick_gelu})
    torch.testing.assert_close(made, ACT2FN[name](x), atol=1e-6, rtol=1e-5)


def test_a_soft_cap_keeps_values_below_the_cap():
    x = torch.tensor([-1000.0, 0.1, 1000.0])
    torch.testing.assert_close(activations.softcap(x, 30.0), 30 * torch.tanh(x / 30))


X = torch.arange(30.0).view(2, 5, 3)


def test_a_mean_is_of_what_is_real():
    left = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    torch.testing.assert_close(pooling.pool_mean(X, None), X.mean(1))
    torch.testing.assert_close(pooling.pool_mean(X, left)[0], X[0, 2:].mean(0))


def test_frames_of_real_samples_are_the_references():
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, conv_dim=(8, 8),
        conv_kernel=(10, 3), conv_stride=(5, 2), num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
        num_feat_extract_layers=2,
    )  # fmt: skip
    mask = (torch.arange(203) < torch.tensor([[203], [90]])).long()
    frames = 19
    expected = Wav2Vec2Model(config)._get_feature_vector_attention_mask(frames, mask)
    x = torch.zeros(2, frames, 8)
    assert torch.equal(pooling.frame_mask(x, mask, (10, 3), (5, 2)), expected)
    assert pooling.frame_mask(x, None, (10, 3), (5, 2)) is None


def test_an_extended_embedding_reads_both_tables():
    leaf = filled(leaves.EmbeddingExtended(3, 2, 4))
    ids = torch.tensor([[0, 4, 2], [3, 1, 0]])
    assert torch.equal(leaf(ids), F.embedding(ids, torch.cat((leaf.embedding, leaf.new_embedding))))
    assert set(leaf.state_dict()) == {"embedding", "new_embedding"}


def test_a_table_called_pos_enc_gives_its_rows():
    leaf = filled(leaves.EmbeddingEncoded(3, 4))
    assert torch.equal(leaf(torch.tensor([2, 0])), leaf.pos_enc[[2, 0]])


def test_weight_normed_transposed_convolutions_are_torchs():
    reference = filled(
        nn.utils.parametrizations.weight_norm(nn.ConvTranspose1d(4, 1, 6, stride=3, padding=1))
    )
    state = reference.state_dict()
    parametrized = leaves.ConvTranspose1dParametrized(4, 1, 6, stride=3, padding=1)
    parametrized.load_state_dict(state)
    x = torch.randn(2, 4, 7)
    torch.testing.assert_close(parametrized(x), reference(x))
    old = leaves.ConvTranspose1dWeightNorm(4, 1, 6, stride=3, padding=1)
    prefix = "parametrizations.weight.original"
    names = {"bias": state["bias"], "weight_g": state[prefix + "0"], "weight_v": state[prefix + "1"]}
    old.load_state_dict(names)
    torch.testing.assert_close(old(x), reference(x))


def test_a_length_of_one_number_is_of_all_that_it_stands_for():
    direction = torch.randn(1, 4, 3)
    expected = direction / direction.flatten().norm() * 2
    torch.testing.assert_close(convolution.weight_norm(torch.full((1, 1, 1), 2.0), direction), expected)


def test_a_module_holds_what_nothing_reads_beside_its_own():
    torch.manual_seed(0)
    plain = nn.Linear(4, 6)
    held = leaves.with_unused(nn.Linear(4, 6), {"scale": [6], "range.x_min": [1], "range.x_max": [1]})
    held.load_state_dict(plain.state_dict(), strict=False)
    x = torch.randn(2, 4)
    torch.testing.assert_close(held(x), plain(x), rtol=0, atol=0)
    assert set(held.state_dict()) - set(plain.state_dict()) == {"scale", "range.x_min", "range.x_max"}
    assert len(list(held.parameters())) == 2  # nothing trains them


def test_a_scale_and_a_shift_norm_nothing():
    leaf = leaves.Affine(2)
    leaf.load_state_dict({"weight": torch.tensor([2.0, 3.0]), "bias": torch.tensor([0.0, -1.0])})
    assert leaf(torch.tensor([[1.0, 2.0]])).tolist() == [[2.0, 5.0]]
