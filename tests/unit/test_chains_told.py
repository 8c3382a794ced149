"""Small networks that run once what no size shows is told, and what is told too little or wrongly."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mapper
from mapper.errors import HintError

PLAIN = {"chain.activation": "relu", "chain.output": "none"}
MAPS = {**PLAIN, "chain.stride": 1, "chain.padding": "half", "chain.pooling": "none"}


def asked(net, hints=None):
    """The questions that are left, by name, with what is possible."""
    found = mapper.inspect(net.state_dict(), hints=hints or {}).architecture.questions
    return {question.name: question.candidates for question in found}


@torch.no_grad()
def given(net, hints, *inputs):
    """What the network gives that was read from weights alone, and told so much."""
    made = mapper.build(net.state_dict(), hints=hints)(*inputs)
    return made if isinstance(made, torch.Tensor) else next(iter(vars(made).values()))


class Layers(dict):
    """Layers by their names in the file."""

    def state_dict(self):
        return {
            f"{name}.{key}": value
            for name, layer in self.items()
            for key, value in layer.state_dict().items()
        }

    def eval(self):
        for layer in self.values():
            layer.eval()
        return self


def layers(**made):
    torch.manual_seed(3)
    return Layers(made)


@torch.no_grad()
@pytest.mark.parametrize("value", ["tanh", "relu"])
def test_the_activation_of_a_plain_recurrent_layer_is_asked(value):
    net = layers(
        emb=nn.Embedding(9, 6), rnn=nn.RNN(6, 6, nonlinearity=value, batch_first=True), out=nn.Linear(6, 9)
    )
    assert asked(net)["chain.recurrent_activation"] == ("tanh", "relu")
    ids, hints = torch.tensor([[1, 4, 8]]), {"chain.positions": "all", "chain.output": "none"}
    wanted = net["out"](net["rnn"](net["emb"](ids))[0])
    torch.testing.assert_close(given(net, {**hints, "chain.recurrent_activation": value}, ids), wanted)
    with pytest.raises(HintError, match="allowed: tanh, relu"):
        mapper.build(net.state_dict(), hints={**hints, "chain.recurrent_activation": "gelu"})


@torch.no_grad()
@pytest.mark.parametrize("value", ["tanh", "relu"])
def test_so_is_that_of_a_cell_and_of_a_layer_alone(value):
    cell, inputs = (
        layers(cell=nn.RNNCell(3, 4, nonlinearity=value), out=nn.Linear(4, 2)),
        torch.randn(2, 5, 3),
    )
    state = torch.zeros(2, 4)
    for step in inputs.unbind(1):
        state = cell["cell"](step, state)
    hints = {"chain.positions": "last", "chain.output": "none", "chain.recurrent_activation": value}
    torch.testing.assert_close(given(cell, hints, inputs), cell["out"](state))
    torch.manual_seed(4)
    alone = nn.RNN(3, 4, nonlinearity=value, batch_first=True)
    torch.testing.assert_close(given(alone, {"chain.recurrent_activation": value}, inputs), alone(inputs)[0])


@torch.no_grad()
def test_a_layer_may_be_called_as_a_variable_of_the_forward_is():
    """`linear.0` is the second linear layer of the file, and `gate.1` another one."""
    names = ("gate.0", "gate.1", "linear.0", "linear.1")
    net = layers(inp=nn.Linear(5, 6), **{name: nn.Linear(6, 6) for name in names}, outp=nn.Linear(6, 2))
    inner = "(1 - sigmoid(gate.{0})) * linear.{0} + sigmoid(gate.{0}) * {1}"
    first, second = inner.format(0, "inp"), inner.format(1, "inp")
    hints = {"gate.0:chain.reads": "inp", "linear.0:chain.reads": "inp", "gate.1:chain.reads": first}
    hints |= {"linear.1:chain.reads": first, "outp:chain.reads": second, "inp:chain.reads": "inputs"}
    x = inp = net["inp"](inputs := torch.randn(3, 5))
    for at in range(2):
        gate = torch.sigmoid(net[f"gate.{at}"](x))
        x = (1 - gate) * net[f"linear.{at}"](x) + gate * inp
    torch.testing.assert_close(
        given(net, {**hints, "chain.activation": "none", "chain.output": "none"}, inputs), net["outp"](x)
    )


def test_a_layer_that_nobody_reads_and_that_is_no_output_is_refused():
    net = layers(**{f"pts.{at}": nn.Linear(6 if at else 3, 6) for at in range(3)}, rgb=nn.Linear(6, 4))
    hints = {
        "pts.0:chain.reads": "inputs",
        "rgb:chain.reads": "pts.1",
        "chain.gives": "rgb",
        "chain.activation": "relu",
    }
    hints |= {"chain.residual": "none"}
    with pytest.raises(HintError, match=r"nobody reads 'pts\.2', and it is no output"):
        mapper.build(net.state_dict(), hints=hints)
    mapper.build(net.state_dict(), hints={**hints, "pts.2:chain.gives": "none"})


@torch.no_grad()
def test_a_batch_norm_behind_a_table_reads_rows_or_sequences():
    """The generator of a conditional network (1411.1784): a label for each row of numbers."""
    net = layers(
        label_emb=nn.Embedding(5, 4), fc1=nn.Linear(10, 8), bn1=nn.BatchNorm1d(8), fc2=nn.Linear(8, 3)
    ).eval()
    hints = {"fc1:chain.reads": "label_emb & inputs", "chain.inputs": "input_ids, inputs", **PLAIN}
    hints["chain.activation_before_norm"] = "false"
    for shape in ((7,), (7, 2)):
        ids, inputs = torch.randint(0, 5, shape), torch.randn(*shape, 6)
        x = net["fc1"](torch.cat((net["label_emb"](ids), inputs), -1))
        x = net["bn1"](x.movedim(-1, 1)).movedim(1, -1)
        torch.testing.assert_close(given(net, hints, ids, inputs), net["fc2"](F.relu(x)))


@torch.no_grad()
def test_widths_of_inputs_side_by_side_are_told():
    """Two critics of one module (1802.09477): nothing shows how much of 14 features is the state."""
    sizes = [(14, 8), (8, 8), (8, 1)]
    net = layers(**{f"l{at}": nn.Linear(*sizes[(at - 1) % 3]) for at in range(1, 7)})
    hints = {"l1:chain.reads": "state & action", "l4:chain.reads": "state & action", **PLAIN}
    with pytest.raises(HintError, match=r"say --set 'chain\.inputs=state:N, action:N'|hints="):
        mapper.build(net.state_dict(), hints=hints)
    hints["chain.inputs"] = "state:11, action:3"
    read = mapper.inspect(net.state_dict(), hints=hints).architecture
    assert {name: spec["shape"] for name, spec in read.inputs.items()} == {
        "state": ["batch", 11],
        "action": ["batch", 3],
    }
    state, action = torch.randn(2, 11), torch.randn(2, 3)
    one = torch.cat((state, action), 1)
    for at in (1, 2, 3):
        one = net[f"l{at}"](one if at == 1 else F.relu(one))
    torch.testing.assert_close(given(net, hints, state, action), one)


@torch.no_grad()
def test_words_of_a_bag_may_be_summed():
    net, ids = layers(embeddings=nn.Embedding(9, 5), linear1=nn.Linear(5, 9)), torch.tensor([[1, 2, 2, 7]])
    assert "sum" in asked(net)["chain.positions"]
    wanted = net["linear1"](net["embeddings"](ids).sum(1))
    torch.testing.assert_close(given(net, {"chain.positions": "sum", "chain.output": "none"}, ids), wanted)


@torch.no_grad()
@pytest.mark.parametrize(("word", "more"), [("bilinear", {}), ("aligned", {"align_corners": True})])
def test_maps_may_be_made_larger_between_their_places(word, more):
    net, inputs = (
        layers(conv1=nn.Conv2d(2, 3, 3, padding=1), conv2=nn.Conv2d(3, 1, 3, padding=1)),
        torch.randn(1, 2, 4, 4),
    )
    x = F.interpolate(F.relu(net["conv1"](inputs)), scale_factor=2, mode="bilinear", **more)
    hints = {**MAPS, "conv1:chain.pooling": f"{word}_2"}
    torch.testing.assert_close(given(net, hints, inputs), net["conv2"](x))


@torch.no_grad()
def test_an_activation_may_be_clipped():
    net, inputs = layers(fc1=nn.Linear(3, 4), fc2=nn.Linear(4, 2)), 30 * torch.randn(5, 3)
    hints = {**PLAIN, "chain.activation": "clipped_relu_20"}
    torch.testing.assert_close(given(net, hints, inputs), net["fc2"](F.hardtanh(net["fc1"](inputs), 0, 20)))


def test_a_refusal_has_what_was_said_as_one_value():
    net = layers(fc1=nn.Linear(3, 4), fc2=nn.Linear(4, 2))
    with pytest.raises(
        HintError, match=r"""hints\["chain\.reads"\]: 'inputs & fc9\.a' at fc2: no layer is called"""
    ):
        mapper.build(net.state_dict(), hints={"fc2:chain.reads": "inputs & fc9.a", **PLAIN})


@torch.no_grad()
def test_a_table_is_known_by_what_reads_its_rows():
    """`encoder` may be any layer: nobody reads 9 features, and the recurrent layer reads 6."""
    net = layers(encoder=nn.Embedding(9, 6), lstm=nn.LSTM(6, 5, batch_first=True), dense=nn.Linear(5, 2))
    ids = torch.tensor([[1, 8, 3]])
    wanted = net["dense"](net["lstm"](net["encoder"](ids))[0][:, -1])
    torch.testing.assert_close(given(net, {"chain.positions": "last", "chain.output": "none"}, ids), wanted)


@torch.no_grad()
def test_positions_may_be_weighed_by_a_score_through_several_layers():
    """Attention over the outputs of a recurrent layer (1409.0473)."""
    net = layers(emb=nn.Embedding(9, 6), rnn=nn.GRU(6, 8, batch_first=True), attn_w=nn.Linear(8, 8))
    net |= layers(attn_v=nn.Linear(8, 1, bias=False), fc=nn.Linear(8, 3))
    assert asked(net)["fc:chain.reads"][0] == "sum(softmax(attn_v) * rnn)"
    hints = {"fc:chain.reads": "sum(softmax(attn_v) * rnn)", "chain.positions": "all", "chain.output": "none"}
    states = net["rnn"](net["emb"](ids := torch.tensor([[1, 8, 3, 3]])))[0]
    weights = torch.softmax(net["attn_v"](torch.tanh(net["attn_w"](states))), 1)
    wanted = net["fc"]((weights * states).sum(1))
    torch.testing.assert_close(given(net, {**hints, "chain.activation": "tanh"}, ids), wanted)


@torch.no_grad()
def test_an_output_may_be_put_together_with_an_input():
    """A network that corrects what it reads, beside another (Tacotron 2, 1712.05884)."""
    convs = {"post.0.0.conv": nn.Conv1d(6, 4, 3, padding=1), "post.0.1": nn.BatchNorm1d(4)}
    convs |= {"post.1.0.conv": nn.Conv1d(4, 6, 3, padding=1), "post.1.1": nn.BatchNorm1d(6)}
    net = layers(
        **convs, **{"pre.0.lin": nn.Linear(6, 5, bias=False), "pre.1.lin": nn.Linear(5, 5, bias=False)}
    ).eval()
    hints = {**MAPS, "post.0.0.conv:chain.reads": "inputs", "pre.0.lin:chain.reads": "inputs_2"}
    hints |= {"chain.gives": "inputs + post.1.0.conv, pre.1.lin", "chain.activation_before_norm": "false"}
    maps, rows = torch.randn(2, 6, 7), torch.randn(2, 6)
    first = F.relu(net["post.0.1"](net["post.0.0.conv"](maps)))
    wanted = maps + net["post.1.1"](net["post.1.0.conv"](first))
    del hints["chain.output"]
    torch.testing.assert_close(given(net, hints, maps, rows), wanted)


@torch.no_grad()
@pytest.mark.parametrize("kind", [nn.GRUCell, nn.LSTMCell, nn.RNNCell])
def test_a_cell_begins_in_the_last_state_of_another(kind):
    """An encoder and a decoder of single cells (1406.1078)."""
    net = layers(
        enc_emb=nn.Embedding(9, 4),
        enc=kind(4, 5),
        dec_emb=nn.Embedding(7, 4),
        dec=kind(4, 5),
        fc=nn.Linear(5, 7),
    )
    hints = {
        "enc:chain.reads": "enc_emb",
        "dec:chain.reads": "dec_emb",
        "fc:chain.reads": "dec",
        "chain.output": "none",
    }
    hints |= {"dec:chain.state": "enc", "chain.positions": "all", "chain.inputs": "enc_emb_ids, dec_emb_ids"}
    hints |= {"chain.recurrent_activation": "tanh"} if kind is nn.RNNCell else {}
    source, target, state, wanted = torch.tensor([[1, 8, 3]]), torch.tensor([[6, 0]]), None, []
    for name, ids in (("enc", source), ("dec", target)):
        for step in net[f"{name}_emb"](ids).unbind(1):
            state = net[name](step, state)
            wanted.append(state[0] if kind is nn.LSTMCell else state)
    wanted = net["fc"](torch.stack(wanted[3:], 1))
    torch.testing.assert_close(given(net, hints, source, target), wanted)


@torch.no_grad()
def test_features_of_a_sequence_may_stand_before_its_positions():
    net, x = layers(rnn=nn.GRU(3, 4, batch_first=True), out=nn.Linear(4, 2)), torch.randn(2, 5, 3)
    hints = {"chain.positions": "all", "chain.output": "features_first"}
    torch.testing.assert_close(given(net, hints, x), net["out"](net["rnn"](x)[0]).transpose(1, 2))


@torch.no_grad()
def test_a_row_may_be_given_as_maps():
    """The generator of a lecture's network gives an image (1406.2661)."""
    net, x = layers(fc1=nn.Linear(3, 4), fc2=nn.Linear(4, 24)), torch.randn(5, 3)
    wanted = torch.tanh(net["fc2"](F.relu(net["fc1"](x)))).unflatten(-1, (2, 3, 4))
    torch.testing.assert_close(given(net, {**PLAIN, "chain.output": "tanh+maps_2x3x4"}, x), wanted)
    for wrong in ("maps_2x3x5", "maps", "maps_"):
        with pytest.raises(HintError, match="allowed: none"):
            mapper.build(net.state_dict(), hints={**PLAIN, "chain.output": wrong})


@torch.no_grad()
def test_what_a_layer_reads_may_have_factors_and_be_normalised():
    net, x = layers(fc1=nn.Linear(6, 4), fc2=nn.Linear(4, 4), fc3=nn.Linear(4, 2)), torch.randn(5, 6)
    hints = {"fc1:chain.reads": "rms_normalised(inputs)", "fc3:chain.reads": "relu(fc1) + 0.25 * fc2"}
    hints |= {"fc2:chain.reads": "relu(fc1)", "chain.activation": "none", "chain.output": "none"}
    first = F.relu(net["fc1"](x / x.square().mean(1, keepdim=True).sqrt()))
    wanted = net["fc3"](first + 0.25 * net["fc2"](first))
    torch.testing.assert_close(given(net, hints, x), wanted, atol=1e-5, rtol=1e-5)


def test_a_second_network_may_begin_with_a_folder_that_nothing_puts_behind_another():
    net = layers(
        **{
            "post.0": nn.Linear(6, 4),
            "post.1": nn.Linear(4, 6),
            "pre.0": nn.Linear(6, 5),
            "pre.1": nn.Linear(5, 5),
        }
    )
    assert asked(net)["pre.0:chain.reads"] == ("inputs", "pre_inputs", "post.1")
    names = {"post.0": "encoder.0", "post.1": "encoder.1", "pre.0": "decoder.0", "pre.1": "decoder.1"}
    ordered = layers(**{names[name]: layer for name, layer in net.items()})
    assert not any(name.endswith("chain.reads") for name in asked(ordered))


def test_numbers_of_no_layer_may_stand_in_what_a_layer_reads():
    torch.manual_seed(0)
    net = nn.ModuleDict({"fc1": nn.Linear(12, 5), "fc2": nn.Linear(5, 2)})
    net.register_buffer("B", torch.randn(6, 3))
    net.register_parameter("scale", nn.Parameter(torch.randn(2)))
    wave = "6.283185307179586 * inputs @ transposed(B)"
    hints = {"fc1:chain.reads": f"sin({wave}) & cos({wave})", "chain.inputs": "inputs:3", **PLAIN}
    inputs = torch.rand(4, 3)
    said = mapper.inspect(net.state_dict(), hints).architecture
    assert any("nobody reads the numbers at 'scale': say who does" in str(each) for each in said.missing)
    assert [question.candidates for question in said.questions] == [("tanh(fc2) * scale", "fc2 * scale")]
    waves = 2 * torch.pi * inputs @ net.B.t()
    wanted = net["fc2"](F.relu(net["fc1"](torch.cat((waves.sin(), waves.cos()), -1))))
    torch.testing.assert_close(given(net, hints | {"scale:chain.gives": "none"}, inputs), wanted)
    scaled = {name: text for name, text in hints.items() if name != "chain.output"} | {
        "chain.gives": "fc2 * scale"
    }
    torch.testing.assert_close(given(net, scaled, inputs), wanted * net.scale)
    said = [str(each) for each in mapper.inspect(net.state_dict()).architecture.missing]
    assert any("numbers that no layer has may stand in it" in each for each in said)


def test_a_decoder_may_attend_to_an_encoder():
    net = layers(
        src=nn.Embedding(9, 4), enc=nn.GRU(4, 6, batch_first=True), tgt=nn.Embedding(7, 4), dec=nn.GRU(4, 6, batch_first=True),
        mixed=nn.Linear(12, 6), out=nn.Linear(6, 7),
    )  # fmt: skip
    hints = {
        "enc:chain.reads": "src",
        "dec:chain.reads": "tgt",
        "dec:chain.state": "enc",
        "chain.output": "none",
    }
    hints |= {
        "mixed:chain.reads": "dec & attended(dec, enc)",
        "out:chain.reads": "tanh(mixed)",
        "chain.positions": "all",
    }
    hints |= {"chain.inputs": "src_ids, tgt_ids"}
    source, target = torch.tensor([[1, 8, 3, 2]]), torch.tensor([[6, 0, 5]])
    keys, state = net["enc"](net["src"](source))
    queries = net["dec"](net["tgt"](target), state)[0]
    weights = F.softmax(queries @ keys.transpose(1, 2), -1)
    wanted = net["out"](torch.tanh(net["mixed"](torch.cat((queries, weights @ keys), -1))))
    torch.testing.assert_close(given(net, hints, source, target), wanted)


def test_a_vector_may_stand_before_words():
    net = layers(embed=nn.Embedding(9, 4), rnn=nn.LSTM(4, 5, batch_first=True), out=nn.Linear(5, 9))
    hints = {
        "embed:chain.reads": "input_ids",
        "rnn:chain.reads": "then(inputs, embed)",
        "out:chain.reads": "rnn",
    }
    hints |= {"chain.inputs": "inputs:4, input_ids", "chain.positions": "all", "chain.output": "none"}
    image, ids = torch.rand(2, 4), torch.tensor([[1, 8], [0, 3]])
    words = torch.cat((image[:, None], net["embed"](ids)), 1)
    torch.testing.assert_close(given(net, hints, image, ids), net["out"](net["rnn"](words)[0]))


def test_a_convolution_may_read_features_that_stand_last():
    net = layers(conv=nn.Conv1d(3, 4, 3), fc=nn.Linear(4, 2))
    hints = {**MAPS, "chain.padding": 0, "chain.input": "channels_last", "chain.reduction": "mean"}
    inputs = torch.rand(2, 7, 3)
    wanted = net["fc"](F.relu(net["conv"](inputs.transpose(1, 2))).mean(2))
    torch.testing.assert_close(given(net, hints, inputs), wanted)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("nonsense(a)", "no function is called nonsense, or it is none of vectors; there are activations"),
        ("a & a", "b reads 4 features, and this is 8 wide"),
        ("a @", "it ends too soon"),
    ],
)
def test_what_cannot_be_read_is_said_in_words(said, why):
    net = layers(a=nn.Linear(3, 4), b=nn.Linear(4, 2))
    with pytest.raises(HintError, match=why):
        mapper.build(net.state_dict(), hints={**PLAIN, "b:chain.reads": said})


@torch.no_grad()
def test_layers_that_are_wrapped_alone_stand_in_the_order_of_their_list():
    """As a time-delay network has them (x-vectors): whose convolutions may be dilated, which is asked."""
    torch.manual_seed(3)
    made = {"0.conv": nn.Conv1d(3, 4, 3, padding=1), "2.norm": nn.BatchNorm1d(4), "3.conv": nn.Conv1d(4, 4, 3, padding=2, dilation=2), "5.norm": nn.BatchNorm1d(4), "10.w": nn.Linear(8, 2)}  # fmt: skip
    for name in ("2.norm", "5.norm"):
        made[name].running_mean.uniform_(-1, 1)
        made[name].eval()
    net = Layers({f"blocks.{name}": made[name] for name in sorted(made)})  # as safetensors has them
    told = {**MAPS, "norm.eps": 1e-5, "chain.activation_before_norm": True, "chain.reduction": "mean_std"}
    assert asked(net, told).keys() == {"chain.dilation"}
    told |= {"chain.dilation": 1, "blocks.3.conv:chain.dilation": 2}
    x = torch.randn(2, 3, 9)
    y = made["2.norm"](made["0.conv"](x).relu())
    y = made["5.norm"](made["3.conv"](y).relu())
    wanted = made["10.w"](torch.cat((y.mean(2), y.std(2)), dim=1))
    torch.testing.assert_close(given(net, told, x), wanted)


@torch.no_grad()
@pytest.mark.parametrize("value", ["columns_mean", "rows_mean"])
def test_a_recurrent_layer_may_read_the_mean_of_each_column_of_maps(value):
    net = layers(conv=nn.Conv2d(1, 6, 3, padding=1), rnn=nn.LSTM(6, 5, batch_first=True), out=nn.Linear(5, 4))
    assert asked(net)["chain.reduction"] == ("columns", "rows", "columns_mean", "rows_mean")
    x = torch.randn(2, 1, 4, 7)
    maps = net["conv"](x).relu().mean(2 if value == "columns_mean" else 3).mT
    told = {**MAPS, "chain.reduction": value, "chain.positions": "all"}
    torch.testing.assert_close(given(net, told, x), net["out"](net["rnn"](maps)[0]))


def test_an_output_may_be_scaled_by_vectors_beside_its_layers():
    """An actor's bounds (1802.09477) are no layers: the others stand in their order, and what is given is asked."""
    net = nn.ModuleDict({"fc1": nn.Linear(5, 8), "fc2": nn.Linear(8, 8), "fc_mu": nn.Linear(8, 3)})
    net.register_buffer("action_scale", torch.tensor([[2.0, 0.5, 3.0]]))
    net.register_buffer("action_bias", torch.tensor([[0.5, -1.0, 0.0]]))
    questions = {one.name: one.candidates for one in mapper.inspect(net.state_dict()).architecture.questions}
    said = {"chain.gives": questions["chain.gives"][0], "chain.activation": "relu", "chain.output": "none"}
    assert not any(name.endswith("chain.reads") for name in questions)
    x = torch.randn(4, 5)
    y = net["fc_mu"](F.relu(net["fc2"](F.relu(net["fc1"](x)))))
    wanted = torch.tanh(y) * net.action_scale + net.action_bias
    torch.testing.assert_close(given(net, said, x), wanted)


def test_a_vector_beside_two_branches_does_not_make_one_chain_of_them():
    """Square layers that read two inputs could stand one behind the other: what is given names layers within."""
    net = nn.ModuleDict(
        {side: nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)) for side in ("user", "item")}
    )
    net.register_buffer("scale", torch.rand(6))
    said = {"chain.gives": "dot(user.2, item.2) * scale"}
    asked = {question.name for question in mapper.inspect(net.state_dict(), said).architecture.questions}
    assert "item.0:chain.reads" in asked
