"""Small networks with the names and habits of well-known packages: detectors, wake words, codes of cells, agents, recommenders."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mapper
from tests.unit.test_chains_told import MAPS, PLAIN, asked, given, layers

INPUTS = "inputs"


def conv(size, out, extent=3, **more):
    return nn.Conv2d(size, out, extent, padding=extent // 2, **more)


def places(name, net, hints=None):
    """The layers at which a fact is asked for."""
    found = mapper.inspect(net.state_dict(), hints=hints or {}).architecture.questions
    return next(question.places for question in found if question.name == name)


# ------------------------------------------------------------------------------------------------- what is asked
def test_what_is_no_head_reads_nothing_of_a_head():
    """A detector has heads of several sizes: widths alone would put them between the layers of the network."""
    base = {"base_net.0": conv(3, 8), "base_net.1": conv(8, 8), "base_net.2": conv(8, 16)}
    net = layers(**base, **{"classification_headers.0": conv(8, 8), "classification_headers.1": conv(16, 4)})
    found = mapper.inspect(net.state_dict()).architecture
    lines = [line for line in found.forward if "base_net.2(" in line or "headers.0(" in line]
    assert lines and not any("classification_headers_0" in line for line in lines if "base_net.2(" in line)
    assert "classification_headers.0:chain.reads" in asked(net)


@torch.no_grad()
def test_convolutions_that_another_order_than_the_files_would_fit_are_no_chain():
    """What is hidden in an image stands beside its features and the image: the widths alone begin with the last layers."""
    net = layers(features=conv(3, 6), joined=conv(6 + 3 + 4, 6), final_layer=nn.Conv2d(6, 3, 1))
    missing = mapper.inspect(net.state_dict()).architecture.missing
    assert any("chain.reads" in str(text) for text in missing) or "joined:chain.reads" in asked(net)
    image, message = torch.randn(2, 3, 8, 8), torch.randn(2, 4)
    said = {"features:chain.reads": INPUTS, "final_layer:chain.reads": "relu(joined)"}
    said["joined:chain.reads"] = "repeated(inputs_2) & relu(features) & inputs"
    wide = message[:, :, None, None].expand(-1, -1, 8, 8)
    wanted = torch.relu(net["joined"](torch.cat((wide, torch.relu(net["features"](image)), image), 1)))
    hints = {
        name: value
        for name, value in {**MAPS, **said}.items()
        if name not in ("chain.activation", "chain.pooling")
    }
    found = given(net, {**hints}, image, message)
    torch.testing.assert_close(found, net["final_layer"](wanted))


def test_a_second_network_reads_no_half_of_what_the_first_one_gives():
    net = layers(
        **{
            "_hidden_layers.0": nn.Linear(8, 16),
            "_hidden_layers.1": nn.Linear(16, 16),
            "_value_branch_separate.0": nn.Linear(8, 16),
            "_value_branch_separate.1": nn.Linear(16, 16),
            "_logits": nn.Linear(16, 4),
            "_value_branch": nn.Linear(16, 1),
        }
    )
    found = asked(net)
    assert "chain.halved" not in found
    assert {"_logits:chain.reads", "_value_branch:chain.reads"} <= set(found)


@torch.no_grad()
def test_a_profile_and_counts_of_the_same_maps_are_asked_about():
    """A linear layer as wide as the maps before a narrower convolution may read these; layers of a list may be residual."""
    net = layers(
        iconv=nn.Conv1d(4, 16, 5, padding=2),
        **{f"rconvs.{at}": nn.Conv1d(16, 16, 3, padding=1) for at in range(2)},
    )
    net |= layers(fconv=nn.Conv1d(16, 2, 5, padding=2), linear=nn.Linear(16, 1))
    found = asked(net)
    assert found["linear:chain.reads"] == ("fconv", "rconvs.1")
    assert places("chain.residual", net) == ("rconvs.0", "rconvs.1")
    hints = {
        **MAPS,
        "chain.residual": "after_activation",
        "linear:chain.reads": "mean(rconvs.1)",
        "fconv:chain.reads": "rconvs.1",
    }
    x = torch.randn(2, 4, 20)
    y = torch.relu(net["iconv"](x))
    for at in range(2):
        y = y + torch.relu(net[f"rconvs.{at}"](y))
    found = mapper.build(net.state_dict(), hints=hints)(x)
    torch.testing.assert_close(found.fconv, net["fconv"](y))
    torch.testing.assert_close(found.linear, net["linear"](y.mean(-1)))


def test_layers_between_activations_of_a_list_are_not_asked_about():
    net = nn.Sequential(conv(3, 6), nn.ReLU(), conv(6, 6), nn.ReLU(), conv(6, 6), nn.ReLU(), conv(6, 2))
    assert "chain.residual" not in asked(net)


@torch.no_grad()
def test_scores_by_the_rows_of_the_only_table_are_asked_about():
    net = layers(
        item_embedding=nn.Embedding(30, 6), gru_layers=nn.GRU(6, 9, batch_first=True), dense=nn.Linear(9, 6)
    )
    tied = "dense @ transposed(item_embedding.weight)"
    assert asked(net)["chain.gives"] == ("dense", tied)
    ids, plain = torch.tensor([[1, 4, 8]]), {"chain.positions": "last", "chain.output": "none"}
    wanted = net["dense"](net["gru_layers"](net["item_embedding"](ids))[0][:, -1])
    torch.testing.assert_close(given(net, {**plain, "chain.gives": "dense"}, ids), wanted)
    torch.testing.assert_close(
        given(net, {**plain, "chain.gives": tied}, ids), wanted @ net["item_embedding"].weight.T
    )


def test_the_innermost_pair_of_a_u_net_is_asked_what_it_is():
    """Both have as many channels, and the even kernel that a transposed one has, too."""
    names = ("down", "inner.1", "inner.3", "up")
    made = (
        nn.Conv2d(3, 8, 4, 2, 1),
        nn.Conv2d(8, 8, 4, 2, 1),
        nn.ConvTranspose2d(8, 8, 4, 2, 1),
        nn.ConvTranspose2d(16, 3, 4, 2, 1),
    )
    net = layers(**dict(zip(names, made, strict=True)))
    found = asked(net)
    assert {"inner.1:chain.kind", "inner.3:chain.kind"} <= set(found)


def test_a_norm_behind_the_element_of_its_list_is_of_that():
    def sub(*arguments, **more):
        return nn.ModuleDict({"conv": nn.Conv1d(*arguments, bias=False, **more)})

    block = [sub(6, 6, 5, padding=2, groups=6), sub(6, 8, 1), nn.BatchNorm1d(8)]
    again = [sub(8, 8, 5, padding=2, groups=8), sub(8, 8, 1), nn.BatchNorm1d(8)]
    net = nn.ModuleDict(
        {"stem": nn.Conv1d(2, 6, 3), "mconv": nn.ModuleList([*block, *again]), "fc": nn.Linear(8, 3)}
    )
    assert not any("chain.normed" in name for name in asked(net))


def test_what_is_pooled_before_a_shortcut_is_asked_where_its_number_says_so():
    parts = {"conv1": nn.Conv1d(4, 6, 5, padding=2), "conv2": nn.Conv1d(6, 6, 5, 2, padding=2)}
    block = nn.ModuleDict({**parts, "skip_connection": nn.ModuleList([nn.MaxPool1d(2), nn.Conv1d(4, 6, 1)])})
    net = nn.ModuleDict({"stem": nn.Conv1d(1, 4, 3), "block1": block, "fc": nn.Linear(6, 2)})
    assert "chain.pooling_before" in asked(net, {"chain.residual": "before_activation"})


# --------------------------------------------------------------------------------------------- what is told of layers
@torch.no_grad()
def test_names_with_spaces_are_said_with_lines_below(tmp_path):
    names = {
        "first": "encoder.Layer 0.0",
        "mean": "mean_encoder",
        "var": "var_encoder",
        "last": "decoder.Layer 0.0",
    }
    net = layers(
        **dict(
            zip(
                names.values(),
                (nn.Linear(9, 7), nn.Linear(7, 3), nn.Linear(7, 3), nn.Linear(3, 9)),
                strict=True,
            )
        )
    )
    said = {
        f"{names['mean']}:chain.reads": "encoder.Layer_0.0",
        f"{names['var']}:chain.reads": "encoder.Layer_0.0",
    }
    said |= {
        f"{names['first']}:chain.reads": "log(inputs + 1)",
        f"{names['last']}:chain.reads": "mean_encoder",
    }
    x = torch.rand(2, 9)
    hidden = torch.relu(net[names["first"]](torch.log(x + 1)))
    found = given(net, {**PLAIN, **said, "chain.gives": "decoder.Layer_0.0, mean_encoder, var_encoder"}, x)
    torch.testing.assert_close(
        found, net[names["last"]](net[names["mean"]](hidden))
    )  # a mean has no activation


@torch.no_grad()
def test_what_is_said_of_a_layer_is_of_none_whose_path_ends_so():
    net = layers(
        conv1=conv(1, 4), conv2=conv(4, 4), **{"block1.conv1": conv(4, 6), "block1.conv2": conv(6, 5)}
    )
    x = torch.randn(2, 1, 8, 8)
    y = net["conv2"](torch.tanh(net["conv1"](x)))
    wanted = net["block1.conv2"](net["block1.conv1"](y))
    hints = {**MAPS, "chain.activation": "none", "conv1:chain.activation": "tanh"}
    torch.testing.assert_close(given(net, hints, x), wanted)


@torch.no_grad()
def test_the_others_keep_their_order_where_it_is_said_what_one_reads():
    """`conv8` would stand behind `conv2` by its number alone."""
    net = layers(
        conv1=conv(3, 8, stride=2), conv2=conv(8, 8), **{"block3.0": conv(8, 6), "block3.1": conv(6, 8)}
    )
    net |= layers(conv8=conv(8, 12), fc=nn.Linear(20, 4))
    hints = {**MAPS, "conv1:chain.stride": 2, "fc:chain.reads": "mean(block3.1) & mean(relu(conv8))"}
    x = torch.randn(2, 3, 8, 8)
    y = torch.relu(net["conv2"](torch.relu(net["conv1"](x))))
    y = torch.relu(net["block3.1"](torch.relu(net["block3.0"](y))))
    both = torch.cat((y.mean((2, 3)), torch.relu(net["conv8"](y)).mean((2, 3))), 1)
    torch.testing.assert_close(given(net, hints, x), net["fc"](both))


@torch.no_grad()
def test_an_activation_in_what_is_read_is_the_one_behind_the_layer():
    net = layers(one=nn.Linear(5, 6), two=nn.Linear(5, 4), out=nn.Linear(10, 3))
    said = {"one:chain.reads": INPUTS, "two:chain.reads": INPUTS}
    said["out:chain.reads"] = "softplus_100(one) & elu(two)"
    x = torch.randn(3, 5)
    wanted = net["out"](torch.cat((F.softplus(net["one"](x), beta=100), F.elu(net["two"](x))), 1))
    torch.testing.assert_close(given(net, {**PLAIN, **said, "chain.activation": "softplus_100"}, x), wanted)


@torch.no_grad()
def test_an_activation_around_a_sum_is_that_of_what_is_summed():
    net = layers(one=conv(3, 6), two=conv(3, 6), out=conv(6, 2))
    said = {"one:chain.reads": INPUTS, "two:chain.reads": INPUTS, "out:chain.reads": "relu(one + two)"}
    x = torch.randn(2, 3, 6, 6)
    wanted = net["out"](torch.relu(net["one"](x) + net["two"](x)))
    plain = {"chain.stride": 1, "chain.padding": "half", "chain.output": "none"}
    torch.testing.assert_close(given(net, {**plain, **said}, x), wanted)


@torch.no_grad()
def test_blocks_that_begin_with_an_activation_have_none_before_them():
    stack = {f"stack.{at}.{part}": conv(6, 6) for at in range(2) for part in (1, 3)}
    net = layers(stem=conv(3, 6), **stack, out=conv(6, 2))
    x = torch.randn(2, 3, 8, 8)
    y = net["stem"](x)
    for at in range(2):
        y = y + net[f"stack.{at}.3"](torch.relu(net[f"stack.{at}.1"](torch.relu(y))))
    hints = {
        **MAPS,
        "stem:chain.activation": "none",
        "chain.residual": "activation_first",
    }
    torch.testing.assert_close(given(net, hints, x), net["out"](torch.relu(y)))


@torch.no_grad()
def test_a_shortcut_with_a_stride_may_be_added_behind_the_pooling():
    block = {"sep1": conv(4, 6), "sep2": conv(6, 6), "residual_conv": nn.Conv2d(4, 6, 1, 2)}
    net = layers(
        conv1=conv(1, 4), **{f"module1.{name}": layer for name, layer in block.items()}, out=conv(6, 2)
    )
    x = torch.randn(2, 1, 8, 8)
    y = torch.relu(net["conv1"](x))
    inner = net["module1.sep2"](torch.relu(net["module1.sep1"](y)))
    y = F.max_pool2d(inner, 3, 2, 1) + net["module1.residual_conv"](y)
    hints = {**MAPS, "chain.residual": "after_pooling", "module1.sep2:chain.activation": "none"}
    hints["module1.sep2:chain.pooling"] = "max_3_2_1"
    assert "chain.stride" in asked(net, {"chain.residual": "after_pooling"})
    hints["module1.residual_conv:chain.stride"] = 2
    torch.testing.assert_close(given(net, hints, x), net["out"](y))


@torch.no_grad()
def test_padding_that_is_mirrored_may_be_said_either_way():
    net = layers(conv1=nn.Conv1d(2, 4, 7), conv2=nn.Conv1d(4, 2, 3))
    x = torch.randn(2, 2, 12)
    y = torch.relu(net["conv1"](F.pad(x, (3, 3), mode="reflect")))
    wanted = net["conv2"](F.pad(y, (1, 1), mode="reflect"))
    for first, second in (("reflect_3", "1_reflect"), ("3_reflect", "half_reflect")):
        hints = {**MAPS, "chain.skip": "none", "conv1:chain.padding": first, "conv2:chain.padding": second}
        torch.testing.assert_close(given(net, hints, x), wanted)


@torch.no_grad()
def test_a_first_convolution_may_read_each_channel_by_itself():
    deep = nn.Conv1d(6, 6, 5, padding=2, groups=6, bias=False)
    net = layers(**{"0.conv": deep, "1.conv": nn.Conv1d(6, 4, 1), "2.conv": nn.Conv1d(4, 2, 3, padding=1)})
    assert asked(net)["chain.inputs"] == ("inputs:1", "inputs:6")
    x, hints = torch.randn(2, 6, 9), {**MAPS, "chain.inputs": "inputs:6"}
    y = torch.relu(net["1.conv"](torch.relu(net["0.conv"](x))))
    torch.testing.assert_close(given(net, hints, x), net["2.conv"](y))


@torch.no_grad()
def test_mean_and_deviation_along_the_last_of_two_axes():
    net = layers(conv1=conv(1, 4), seg_1=nn.Linear(4 * 5 * 2, 3))
    x = torch.randn(2, 1, 5, 9)
    y = torch.relu(net["conv1"](x))
    both = torch.cat((y.mean(-1).flatten(1), y.std(-1).flatten(1)), 1)
    hints = {**MAPS, "chain.reduction": "mean_std_of_last", "conv1:chain.pooling": "none"}
    torch.testing.assert_close(given(net, hints, x), net["seg_1"](both))


@torch.no_grad()
def test_a_transposed_convolution_has_the_groups_of_its_bias():
    net = layers(conv1=conv(3, 12), up=nn.ConvTranspose2d(12, 1, 2, 2, groups=1), out=conv(1, 2))
    net["up"] = nn.ConvTranspose2d(12, 3, 2, 2, groups=3)
    net["out"] = conv(3, 2)
    x = torch.randn(2, 3, 6, 6)
    hints = {**MAPS, "chain.up_stride": 2, "chain.up_padding": 0}
    wanted = net["out"](torch.relu(net["up"](torch.relu(net["conv1"](x)))))
    torch.testing.assert_close(given(net, hints, x), wanted)


@torch.no_grad()
def test_statistics_of_inputs_with_their_count_are_no_norm():
    net = layers(mlp=nn.Linear(5, 6), mu=nn.Linear(6, 2))
    stored = {
        "rms.running_mean": torch.randn(5),
        "rms.running_var": torch.rand(5) + 0.5,
        "rms.count": torch.tensor(9.0),
    }
    said = {"mlp:chain.reads": "clipped_5((inputs - rms.running_mean) / sqrt(rms.running_var + 1e-5))"}
    said |= {"mu:chain.reads": "elu(mlp)", "rms.count:chain.gives": "none", "chain.output": "none"}
    x = torch.randn(3, 5)
    y = ((x - stored["rms.running_mean"]) / torch.sqrt(stored["rms.running_var"] + 1e-5)).clamp(-5, 5)
    made = mapper.build({**net.state_dict(), **stored}, hints=said)
    torch.testing.assert_close(made(x).output, net["mu"](F.elu(net["mlp"](y))))


# ---------------------------------------------------------------------------------------------------- recurrent layers
@torch.no_grad()
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_stored_first_states_are_those_of_every_input(kind):
    rnn, emb, out = kind(5, 7, batch_first=True), nn.Embedding(11, 5), nn.Linear(7, 11)
    names = ["rnn.h_init", "rnn.c_init"] if kind is nn.LSTM else ["rnn.h_init"]
    stored = {name: torch.randn(1, 1, 7) for name in names}
    net = layers(char_emb=emb, decoder=out, **{"rnn.lstm": rnn})
    weights = {**net.state_dict(), **stored}
    hints = {"rnn.lstm:chain.reads": "char_emb", "decoder:chain.reads": "rnn.lstm"}
    hints |= {"rnn.lstm:chain.state": ", ".join(names), "chain.positions": "all", "chain.output": "none"}
    ids = torch.tensor([[1, 4, 8], [2, 2, 5]])
    states = [value.expand(1, 2, 7).contiguous() for value in stored.values()]
    wanted = out(rnn(emb(ids), tuple(states) if kind is nn.LSTM else states[0])[0])
    torch.testing.assert_close(mapper.build(weights, hints=hints)(ids).output, wanted)


@torch.no_grad()
def test_a_vector_is_one_step_of_a_recurrent_layer():
    net = layers(conv1=nn.Conv1d(1, 4, 5), rnn=nn.LSTM(4 * 2, 6, batch_first=True), fc=nn.Linear(6, 3))
    hints = {
        "chain.stride": 1,
        "chain.output": "none",
        "chain.padding": 0,
        "conv1:chain.reads": INPUTS,
        "rnn:chain.reads": "flatten(max_4(relu(conv1)))",
    }
    x = torch.randn(3, 1, 12)
    y = F.max_pool1d(torch.relu(net["conv1"](x)), 4).flatten(1)[:, None]
    found = given(net, {**hints, "fc:chain.reads": "last(rnn)"}, x)
    torch.testing.assert_close(found, net["fc"](net["rnn"](y)[0][:, -1]))


@torch.no_grad()
def test_directions_are_summed_and_a_norm_of_the_same_folder_comes_first():
    net = layers(
        **{
            "rnns.0.rnn": nn.GRU(6, 5, bidirectional=True, batch_first=True),
            "rnns.1.rnn": nn.GRU(5, 5, batch_first=True),
        }
    )
    net |= layers(
        **{"rnns.1.norm.module": nn.BatchNorm1d(5), "fc.0.module": nn.Linear(5, 4, bias=False)}
    ).eval()
    hints = {"rnns.1.rnn:chain.reads": "summed_directions(rnns.0.rnn)", "rnns.0.rnn:chain.reads": INPUTS}
    hints |= {"fc.0.module:chain.reads": "rnns.1.rnn", "chain.output": "none", "chain.positions": "all"}
    x = torch.randn(2, 7, 6)
    y = net["rnns.0.rnn"](x)[0].unflatten(-1, (2, 5)).sum(-2)
    y = net["rnns.1.norm.module"](y.movedim(-1, 1)).movedim(1, -1)
    torch.testing.assert_close(given(net, hints, x), net["fc.0.module"](net["rnns.1.rnn"](y)[0]))


# ------------------------------------------------------------------------------------------------------- expressions
@torch.no_grad()
@pytest.mark.parametrize(
    ("text", "size", "wanted"),
    [
        ("channels_1_3(inputs)", 2, lambda x: x[:, 1:3]),
        ("channel_max(inputs) & inputs", 5, lambda x: torch.cat((x.amax(1, keepdim=True), x), 1)),
        ("inputs & channel_mean(inputs)", 5, lambda x: torch.cat((x, x.mean(1, keepdim=True)), 1)),
        ("unshuffled_2(inputs)", 16, lambda x: F.pixel_unshuffle(x, 2)),
        ("softmax_of_channels(inputs) * inputs", 4, lambda x: x.softmax(1) * x),
    ],
)
def test_channels_of_an_image_in_an_expression(text, size, wanted):
    net, x = layers(conv1=conv(size, 6), conv2=conv(6, 2)), torch.randn(2, 4, 6, 6)
    hints = {**MAPS, "conv1:chain.reads": text, "chain.inputs": "inputs:4"}
    torch.testing.assert_close(given(net, hints, x), net["conv2"](torch.relu(net["conv1"](wanted(x)))))


@torch.no_grad()
def test_products_of_each_two_and_boxes_of_each_place():
    net = layers(**{f"emb_l.{at}": nn.Embedding(9, 4) for at in range(3)}, **{"top_l.0": nn.Linear(3, 2)})
    ids = torch.tensor([[1, 2, 3], [4, 4, 8]])
    rows = [net[f"emb_l.{at}"](ids[:, at]) for at in range(3)]
    pairs = [(rows[1] * rows[0]).sum(-1), (rows[2] * rows[0]).sum(-1), (rows[2] * rows[1]).sum(-1)]
    said = {"top_l.0:chain.reads": "products(emb_l.0, emb_l.1, emb_l.2)", "chain.output": "none"}
    torch.testing.assert_close(given(net, said, ids), net["top_l.0"](torch.stack(pairs, 1)))
    heads = layers(body=conv(3, 6), **{"loc.0": conv(6, 8), "loc.1": conv(6, 12)})
    said = {"body:chain.reads": INPUTS, "loc.0:chain.reads": "body", "loc.1:chain.reads": "max_2(relu(body))"}
    said["chain.gives"] = "then(anchors_4(loc.0), anchors_4(loc.1))"
    x = torch.randn(2, 3, 8, 8)
    y = torch.relu(heads["body"](x))
    found = [heads["loc.0"](y), heads["loc.1"](F.max_pool2d(y, 2))]
    wanted = torch.cat([one.permute(0, 2, 3, 1).reshape(2, -1, 4) for one in found], 1)
    torch.testing.assert_close(given(heads, {**MAPS, **said}, x), wanted)


@torch.no_grad()
def test_a_sequence_as_an_image_and_as_maps():
    net = layers(
        emb=nn.Embedding(9, 6), conv1=conv(1, 4), rnn=nn.GRU(24, 24, batch_first=True), out=nn.Conv2d(4, 2, 1)
    )
    said = {
        "conv1:chain.reads": "image(emb)",
        "rnn:chain.reads": "rows(relu(conv1))",
        "out:chain.reads": "maps_4(rnn)",
    }
    ids = torch.tensor([[1, 4, 8], [2, 2, 5]])
    y = torch.relu(net["conv1"](net["emb"](ids)[:, None]))
    y = net["rnn"](y.transpose(1, 2).flatten(2))[0].unflatten(-1, (4, 6)).transpose(1, 2)
    torch.testing.assert_close(given(net, {**MAPS, **said, "chain.positions": "all"}, ids), net["out"](y))


@torch.no_grad()
def test_a_spectrum_by_stored_kernels_and_the_middle_of_an_image():
    basis = torch.randn(10, 1, 8)
    net = layers(encoder=nn.Conv1d(5, 4, 3, padding=1), out=nn.Linear(4, 1))
    said = {
        "encoder:chain.reads": "magnitude(convolved(inputs, stft.basis, 4))",
        "out:chain.reads": "mean(relu(encoder))",
    }
    x = torch.randn(2, 1, 40)
    y = F.conv1d(x, basis, stride=4)
    y = torch.sqrt(y[:, :5] ** 2 + y[:, 5:] ** 2)
    said |= {"chain.stride": 1, "chain.padding": "half", "chain.output": "none", "chain.inputs": "inputs:1"}
    made = mapper.build({**net.state_dict(), "stft.basis": basis}, hints=said)
    torch.testing.assert_close(made(x).output, net["out"](torch.relu(net["encoder"](y)).mean(-1)))
    net, x = layers(conv1=nn.Conv2d(3, 5, 3), conv2=conv(8, 3)), torch.randn(2, 3, 9, 9)
    said = {
        "conv1:chain.reads": INPUTS,
        "conv2:chain.reads": "cropped(inputs, conv1) & relu(conv1)",
        "conv1:chain.padding": 0,
    }
    wanted = net["conv2"](torch.cat((x[:, :, 1:-1, 1:-1], torch.relu(net["conv1"](x))), 1))
    torch.testing.assert_close(given(net, {**MAPS, **said}, x), wanted)


def scaling(home, size, out):
    """A residual block whose channels are scaled (1709.01507), by layers that a norm keeps from being known as such."""
    made = {
        "conv1": conv(size, out),
        "bn1": nn.BatchNorm2d(out),
        "conv2": conv(out, out),
        "bn2": nn.BatchNorm2d(out),
    }
    made |= {
        "se.fc.0": nn.Linear(out, 4),
        "se.fc.1": nn.BatchNorm1d(4),
        "se.fc.3": nn.Linear(4, out),
        "downsample": nn.Conv2d(size, out, 1),
    }
    return {f"{home}.{name}": layer for name, layer in made.items()}


def test_of_layers_that_would_read_one_another_it_is_said_what_to_say():
    """Guesses that go round in a circle are no reading, and what a norm has is asked once for all."""
    blocks = {**scaling("layer1.0", 8, 8), **scaling("layer1.1", 8, 8), **scaling("layer2.0", 8, 16)}
    net = layers(conv1=conv(1, 8), bn1=nn.BatchNorm2d(8), **blocks, fc=nn.Linear(16, 3))
    found = mapper.inspect(net.state_dict()).architecture
    assert any("reads is not known: say --set" in str(text) for text in found.missing)
    names = asked(net)
    assert not any(name.startswith("norm_") for name in names)
    assert names.get("conv1:chain.reads", ("inputs",))[0] == "inputs"
    assert not any("layer2" in text for text in names.get("layer1.0.conv1:chain.reads", ()))


def test_layers_whose_names_no_expression_tells_apart_are_no_network() -> None:
    said = {"out:chain.reads": "Layer_0", "chain.activation": "relu", "chain.output": "none"}
    shapes = {"Layer 0.weight": (8, 4), "Layer_0.weight": (8, 4), "out.weight": (2, 8)}
    state = {name: torch.zeros(shape) for name, shape in shapes.items()}
    assert mapper.inspect(state, said).architecture.reading == "skeleton"


def test_a_bias_of_no_channels_breaks_nothing() -> None:
    shapes = {"c.weight": (8, 3, 3, 3), "up.weight": (8, 4, 2, 2), "up.bias": (0,)}
    state = {name: torch.zeros(shape) for name, shape in shapes.items()}
    assert mapper.inspect(state).architecture.reading == "unverified"


def test_a_stored_state_has_a_row_for_each_layer_and_direction() -> None:
    net = nn.ModuleDict({"rnn": nn.GRU(4, 8, batch_first=True), "out": nn.Linear(8, 2)})
    state = net.state_dict() | {"h": torch.zeros(5, 8)}
    questions = {one.name: one.candidates for one in mapper.inspect(state).architecture.questions}
    assert "h" not in questions.get("rnn:chain.state", ())
