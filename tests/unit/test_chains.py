"""Small networks that no family knows: read as a chain of layers, and equal to what torch computes once all is answered."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

import mapper
from mapper._trial import made_up_inputs
from mapper.errors import HintError
from tests.unit.chain_cases import CASES, PLAIN, RELU
from tests.unit.small_chains import lenet, u_net


@pytest.mark.parametrize("name", CASES)
def test_a_chain_computes_what_torch_does(tmp_path, name):
    make, answers = CASES[name]
    model, inputs = make()
    for key, tensor in model.state_dict().items():
        tensor.copy_(torch.rand(tensor.shape) + 0.5) if "running" in key else None
    path = tmp_path / "m.safetensors"
    save_file({key: tensor.clone() for key, tensor in model.state_dict().items()}, path)
    built = mapper.build(path, hints=answers)
    assert built.state_dict().keys() == model.state_dict().keys()
    with torch.no_grad():
        expected, found = model(inputs), list(vars(built(inputs)).values())
    torch.testing.assert_close(found, list(expected) if isinstance(expected, tuple) else [expected])
    read = mapper.inspect(path, hints=answers).architecture
    assert read.reading == "unverified"
    if name not in ("tagger", "recognizer", "pitch"):  # a vocabulary of few words, sizes that nothing shows
        built(**made_up_inputs(read, built))


def test_a_chain_is_saved_and_loaded(tmp_path):
    model, inputs = lenet()
    mapper.build(model.state_dict(), hints=CASES["lenet"][1], out=tmp_path / "out")
    loaded, _ = mapper.load(tmp_path / "out")
    torch.testing.assert_close(loaded(inputs).output, model(inputs))


NORM = {f"1.{part}": [6] for part in ("weight", "bias", "running_mean", "running_var")}
BEHIND = {
    "a norm": ({"0.weight": [6, 4], **NORM, "3.weight": [2, 6]}, {"norm.eps": 1e-5}),
    "maps": (
        {"0.weight": [18, 4], "2.weight": [2, 3, 2, 2], "2.bias": [3]},
        {"chain.up_stride": 2, "chain.up_padding": 0},
    ),
}


@pytest.mark.parametrize("behind", BEHIND)
def test_rows_that_a_layer_takes_one_by_one_have_no_positions(behind):
    names, said = BEHIND[behind]
    read = mapper.inspect(names, hints={**RELU, **said, "chain.output": "none"}).architecture
    assert read.inputs["inputs"]["shape"] == ["batch", 4]


def test_numbers_without_gap_show_that_nothing_lies_between():
    names = {"0.weight": (8, 4), "1.weight": (8, 8), "3.weight": (2, 8)}
    read = mapper.inspect(names, hints={**RELU, "chain.output": "none"}).architecture
    assert {fact.at: fact.value for fact in read.facts if fact.name == "chain.activation"} == {
        "0": "none",
        "1": "relu",
    }


def test_a_table_beside_an_input_is_told_of():
    names = {
        "kind_emb.weight": [4, 6],
        "net.0.weight": [8, 18],
        "net.2.weight": [8, 8],
        "net.4.weight": [3, 8],
    }
    (note,) = mapper.inspect(names).architecture.notes
    assert "'net.0' is taken to read 3 words of 'kind_emb' in one row" in note
    fact, _, value = note.partition("--set '")[2].rstrip("'").partition("=")
    told = mapper.inspect(names, hints={fact: value}).architecture
    assert "torch.cat((kind_emb, inputs_2), dim=-1)" in told.forward[1] and not told.notes


def test_settings_of_a_training_script_need_no_type(tmp_path):
    layers = {f"net.{at}.weight": torch.ones(8, 8) for at in (0, 2, 4)}
    settings = {"lr": 1e-3, "activation": "relu"}
    torch.save({"state_dict": layers, "hyper_parameters": settings}, tmp_path / "x.ckpt")
    read = mapper.inspect(tmp_path / "x.ckpt").architecture
    assert not any("model_type" in finding for finding in read.findings)
    assert {question.name for question in read.questions} == {"chain.output"}


def test_an_exception_wins_over_what_is_said_of_all():
    names = {f"fc{at}.weight": [4, 4] for at in range(3)}
    said = {**RELU, "fc1:chain.activation": "tanh", "chain.output": "none"}
    assert "x = torch.tanh(x)\n        x = self.fc2(x)" in mapper.generate(names, hints=said)


def test_one_question_for_all_places():
    read = mapper.inspect({f"conv{at}.weight": [4, 4, 3, 3] for at in range(9)}).architecture
    asked = [question.name for question in read.questions]
    assert len(asked) == len(set(asked)) and "chain.activation" in asked


def test_a_report_shows_the_forward_and_what_is_unknown_in_it():
    names = {"conv1.weight": [6, 1, 5, 5], "conv2.weight": [16, 6, 5, 5], "fc.weight": [4, 256]}
    read = mapper.inspect(names, hints={**RELU, "chain.padding": 0}).architecture
    assert read.forward[:3] == [
        "x = conv1(inputs)  # chain.stride?",
        "x = F.relu(x)",
        "x = ?  # chain.pooling",
    ]


def test_an_input_of_a_known_size_leaves_fewer_answers():
    names = {"conv1.weight": [6, 1, 5, 5], "conv2.weight": [16, 6, 5, 5], "fc.weight": [4, 256]}
    said = {**RELU, "chain.input_size": 28, "chain.stride": 1}
    read = mapper.inspect(names, hints=said).architecture
    asked = {question.fact: question.candidates for question in read.questions}
    assert asked["chain.padding"] == ("0",) and not {"none", "max_3_2"} & {*asked["chain.pooling"]}
    said |= {"chain.padding": "half", "chain.pooling": "max_2", "chain.reduction": "flatten"}
    assert any(
        "an input of 28 leaves 7 x 7" in line
        for line in mapper.inspect(names, hints=said).architecture.missing
    )


def test_sizes_that_do_not_add_up_are_said():
    names = {"conv.weight": [4, 1, 3, 3], "fc.weight": [2, 4 * 7]}
    said = {**RELU, **PLAIN, "chain.pooling": "none", "chain.reduction": "flatten"}
    assert any(
        "reads 28 = 4 channels of 7 places" in line
        for line in mapper.inspect(names, hints=said).architecture.missing
    )


def test_residual_blocks_of_a_chain_are_shown_while_something_is_asked():
    names = {"conv1.weight": [4, 1, 3, 3], "fc.weight": [2, 4]}
    for at in range(2):
        names |= {f"layer1.{at}.conv{n}.weight": [4, 4, 3, 3] for n in (1, 2)}
        names |= {
            f"layer1.{at}.bn{n}.{part}": [4]
            for n in (1, 2)
            for part in ("weight", "bias", "running_mean", "running_var")
        }
    read = mapper.inspect(names).architecture
    shown = {str(place): block.kind for block in read.root.blocks() for place in block.home.expand()}
    assert read.reading == "unverified" and shown["layer1.0"] == shown["layer1.1"] == "convolution"


def test_what_is_no_value_is_refused():
    names = {"conv.weight": [4, 1, 3, 3], "fc.weight": [2, 4]}
    with pytest.raises(HintError, match="max_3_2"):
        mapper.inspect(names, hints={"chain.pooling": "biggest"})


@pytest.mark.parametrize(
    "names",
    [
        {"conv.weight": [4, 1, 3, 3], "fc.weight": [2, 5]},  # sizes that do not go together
        {"fc2.weight": [4, 4], "fc1.weight": [4, 9], "fc3.weight": [9, 3]},  # against their numbers
        {"a.weight": [4, 4], "b.weight": [4, 4], "table": [9, 4]},  # a tensor of nobody
    ],
)
def test_what_is_no_chain_stays_a_skeleton(names):
    assert mapper.inspect(names).architecture.reading == "skeleton"


@pytest.mark.parametrize(
    ("names", "is_told"),
    [
        ({"encode.weight": [4, 4], "project.weight": [4, 4]}, True),
        ({"first.weight": [9, 4], "then.weight": [2, 9]}, False),  # what the one gives the other reads
        ({"0.weight": [4, 4], "2.weight": [4, 4]}, False),  # numbers
    ],
)
def test_an_order_that_names_alone_show_is_told(names, is_told):
    notes = mapper.inspect(names).architecture.notes
    assert any("order of their names" in note for note in notes) is is_told


def test_recurrent_layers_by_attributes_of_the_whole_are_layers(tmp_path):
    gru, table, fc = nn.GRU(3, 4, batch_first=True), torch.randn(9, 3), nn.Linear(4, 2)
    named = {f"enc_{name[0]}_{name[-5:-3]}": tensor for name, tensor in gru.state_dict().items()}
    named |= {"enc_emb": table, "fc_w": fc.weight.detach(), "fc_b": fc.bias.detach()}
    save_file({name: tensor.clone() for name, tensor in named.items()}, tmp_path / "m.safetensors")
    model = mapper.build(tmp_path / "m.safetensors", hints={"chain.positions": "all", "chain.output": "none"})
    assert "enc.weight_ih" in model.state_dict()
    ids = torch.tensor([[1, 5, 2]])
    torch.testing.assert_close(model(ids).output, fc(gru(table[ids])[0]))


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch says that it takes another way
@pytest.mark.parametrize("sides", [1, 2])
def test_an_lstm_may_give_fewer_numbers_than_it_keeps(sides, tmp_path):
    lstm = nn.LSTM(3, 5, 2, batch_first=True, bidirectional=sides == 2, proj_size=2)
    save_file(lstm.state_dict(), tmp_path / "m.safetensors")
    x = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(1))
    out = mapper.build(tmp_path / "m.safetensors")(x)
    wanted, (hidden, cell) = lstm(x)
    for made, right in ((out.output, wanted), (out.hidden, hidden), (out.cell, cell)):
        torch.testing.assert_close(made, right)


def test_single_numbers_of_a_loss_stand_beside_a_chain():
    names = {
        "lstm.weight_ih_l0": [8, 3],
        "lstm.weight_hh_l0": [8, 2],
        "fc.weight": [2, 2],
        "similarity_bias": [1],
    }
    read = mapper.inspect(names, hints={"chain.positions": "last", "chain.output": "none"}).architecture
    assert (read.reading, read.unmapped) == ("unverified", ["similarity_bias"])


def test_layers_of_names_that_are_no_attributes_run():
    weights = {name: torch.randn(4, 4) for name in ("class.weight", "forward.weight", "x.items.weight")}
    model = mapper.build(dict(weights), hints={"chain.activation": "relu", "chain.output": "none"})
    x = torch.randn(2, 4)
    wanted = x @ weights["class.weight"].T
    for name in ("forward.weight", "x.items.weight"):
        wanted = wanted.relu() @ weights[name].T
    assert torch.allclose(model(inputs=x).output, wanted, atol=1e-6)


def test_maps_of_another_size_are_not_joined():
    _, answers = CASES["u_net"]
    model, _ = u_net()
    with pytest.raises(HintError, match="channels of an earlier layer"):
        mapper.build(model.state_dict(), hints={**answers, "down2.3:chain.pooling": "max_2"})


def test_layers_under_two_names_are_asked_about():
    """As in the temporal convolutional network of paper 1803.01271, whose blocks put their layers into a list too."""
    block = nn.Module()
    block.conv1, block.conv2, block.downsample = nn.Conv1d(1, 4, 3), nn.Conv1d(4, 4, 3), nn.Conv1d(1, 4, 1)
    block.net = nn.Sequential(block.conv1, nn.ReLU(), block.conv2)
    model = nn.ModuleDict({"network": nn.ModuleList([block]), "linear": nn.Linear(4, 2)})
    assert "chain.twice" in {each.fact for each in mapper.inspect(model.state_dict()).architecture.questions}
    answers = {**RELU, **PLAIN, "chain.padding": "causal", "chain.dilation": 1, "chain.pooling": "none", "chain.reduction": "last", "chain.residual": "between_activations"}  # fmt: skip
    x = torch.randn(2, 1, 9)
    found = block.conv1(nn.functional.pad(x, (2, 0))).relu()
    found = (block.conv2(nn.functional.pad(found, (2, 0))).relu() + block.downsample(x)).relu()
    built = mapper.build(model.state_dict(), hints={**answers, "chain.twice": "same"})
    torch.testing.assert_close(built(x).output, model["linear"](found[:, :, -1]))
    with pytest.raises(mapper.MapperError, match="whether they are the same"):
        mapper.build(model.state_dict(), hints={**answers, "chain.twice": "apart"})


def test_made_up_inputs_have_the_size_that_a_chain_reads():
    model, _ = lenet()
    answers = {"chain.stride": 1, "chain.padding": 0, "chain.activation": "relu", "chain.pooling": "max_2", "chain.reduction": "flatten", "chain.output": "none"}  # fmt: skip
    built = mapper.build(model.state_dict(), hints=answers)
    made = made_up_inputs(mapper.inspect(model.state_dict(), hints=answers).architecture, built)
    assert built(**made).output.shape == (1, 3)


def test_the_last_layer_may_have_several_things_behind_it():
    weights = {"a.weight": torch.randn(3, 1, 2, 2), "b.weight": torch.randn(5, 3, 2, 2)}
    answers = {**RELU, **PLAIN, "chain.pooling": "none", "chain.output": "flatten+normalised"}
    x = torch.randn(2, 1, 3, 3)
    wanted = torch.conv2d(torch.conv2d(x, weights["a.weight"]).relu(), weights["b.weight"]).flatten(1)
    found = mapper.build(dict(weights), hints=answers)(inputs=x).output
    torch.testing.assert_close(found, torch.nn.functional.normalize(wanted, dim=-1))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_layer_saved_by_itself_gives_what_it_gives(tmp_path, kind):
    layer = kind(6, 4, num_layers=2, batch_first=True, bidirectional=True).eval()
    x = torch.randn(2, 5, 6)
    mapper.build(layer.state_dict(), out=tmp_path / "out")
    loaded, _ = mapper.load(tmp_path / "out")
    assert loaded.state_dict().keys() == layer.state_dict().keys()
    wanted, states = layer(x)
    states = list(states) if isinstance(states, tuple) else [states]
    torch.testing.assert_close(list(vars(loaded(x)).values()), [wanted, *states])


def test_the_order_of_arms_is_asked_where_names_alone_stand():
    """Names of arms that differ in words, in a file that sorts them: no number says which is concatenated first."""
    weights = {
        "in.weight": torch.randn(4, 2, 1, 1),
        "mixed.narrow.weight": torch.randn(3, 4, 1, 1),
        "mixed.wide.weight": torch.randn(2, 4, 3, 3),
        "out.weight": torch.randn(3, 5, 1, 1),
    }
    answers = {**RELU, "chain.pooling": "none", "chain.output": "none"}
    questions = mapper.inspect(weights, hints=answers).architecture.questions
    assert [(each.fact, each.candidates) for each in questions] == [
        ("chain.branches", ("narrow+wide", "wide+narrow"))
    ]
    x = torch.randn(2, 2, 5, 5)
    entered = torch.conv2d(x, weights["in.weight"]).relu()
    wide = torch.conv2d(entered, weights["mixed.wide.weight"], padding=1)
    arms = torch.cat((wide, torch.conv2d(entered, weights["mixed.narrow.weight"])), 1).relu()
    built = mapper.build(dict(weights), hints={**answers, "chain.branches": "wide+narrow"})
    torch.testing.assert_close(built(inputs=x).output, torch.conv2d(arms, weights["out.weight"]))
    with pytest.raises(HintError, match="in any order"):
        mapper.build(dict(weights), hints={**answers, "chain.branches": "wide"})


def _published(places, maps, ends):
    layers = {"features": nn.Sequential(*maps), "pool": nn.AdaptiveAvgPool2d(places), "flat": nn.Flatten()}
    return nn.Sequential(OrderedDict(layers, classifier=nn.Sequential(*ends))).eval()


def vgg(act=nn.ReLU, places=7):
    torch.manual_seed(0)
    maps = [nn.Conv2d(3, 4, 3, padding=1), act(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, padding=1), act()]
    maps += [nn.Conv2d(6, 512, 3, padding=1), act(), nn.MaxPool2d(2)]
    first, second = nn.Linear(512 * places**2, 8), nn.Linear(8, 8)
    return _published(
        places, maps, [first, act(), nn.Dropout(), second, act(), nn.Dropout(), nn.Linear(8, 3)]
    )


def alexnet():
    torch.manual_seed(0)
    maps = [nn.Conv2d(3, 4, 11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)]
    maps += [nn.Conv2d(4, 5, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(5, 6, 3, padding=1)]
    maps += [nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 256, 3, padding=1)]
    maps += [nn.ReLU(), nn.MaxPool2d(3, 2)]
    first, second = nn.Linear(256 * 36, 8), nn.Linear(8, 8)
    ends = [nn.Dropout(), first, nn.ReLU(), nn.Dropout(), second, nn.ReLU(), nn.Linear(8, 3)]
    return _published(6, maps, ends)


@pytest.mark.parametrize("make", [vgg, alexnet])
def test_published_chains_are_read_by_names_and_sizes(make):
    model, x = make(), torch.randn(2, 3, 96, 96)
    torch.testing.assert_close(mapper.build(model.state_dict())(inputs=x).output, model(x))


def test_names_of_a_published_chain_alone_are_those_of_many_networks():
    asked = {question.fact for question in mapper.inspect(vgg(places=1).state_dict()).architecture.questions}
    assert {"chain.activation", "chain.pooling", "chain.padding", "chain.reduction"} <= asked


def test_what_is_told_of_a_published_chain_wins_over_its_names():
    model, x = vgg(nn.Tanh), torch.randn(1, 3, 16, 16)
    built = mapper.build(model.state_dict(), hints={"chain.activation": "tanh"})
    torch.testing.assert_close(built(inputs=x).output, model(x))


def test_a_norm_that_fits_behind_several_layers_is_asked_about():
    """As in EEGNet (1611.08024): names in order say behind which of three layers of one width two norms stand as little as sizes do."""
    torch.manual_seed(0)
    layers = {"conv1": nn.Conv2d(1, 4, (1, 3), bias=False), "bn1": nn.BatchNorm2d(4)}
    layers |= {"depthwise": nn.Conv2d(4, 8, (3, 1), groups=4, bias=False), "bn2": nn.BatchNorm2d(8)}
    layers |= {"separable1": nn.Conv2d(8, 8, (1, 3), groups=8, bias=False)}
    layers |= {"separable2": nn.Conv2d(8, 8, 1, bias=False), "bn3": nn.BatchNorm2d(8), "fc": nn.Linear(16, 3)}
    model = nn.Sequential(OrderedDict(layers))
    for key, tensor in model.state_dict().items():
        tensor.copy_(torch.rand(tensor.shape) + 0.5) if "running" in key else None
    state = dict(sorted(model.state_dict().items()))
    asked = {each.at: each.candidates for each in mapper.inspect(state).architecture.questions}
    for norm in ("bn2", "bn3"):
        assert set(asked[norm]) == {"depthwise", "separable1", "separable2"}
    assert "bn1" not in asked
    said = {
        **PLAIN,
        "chain.padding": 0,
        "chain.activation": "none",
        "chain.pooling": "none",
        "norm.eps": 1e-5,
    }
    said |= {"chain.activation_before_norm": False, "chain.reduction": "flatten", "chain.output": "none"}
    said |= {"bn2:chain.normed": "depthwise", "bn3:chain.normed": "separable2"}
    x = torch.randn(2, 1, 3, 6)
    wanted = model.eval()[:-1](x).flatten(1) @ model.fc.weight.T + model.fc.bias
    torch.testing.assert_close(mapper.build(state, hints=said)(inputs=x).output, wanted)
    with pytest.raises(HintError, match="the sizes allow no norm there"):
        mapper.build(state, hints={**said, "bn3:chain.normed": "conv1"})


def test_it_is_said_that_recurrent_layers_read_the_batch_first():
    """Of a layer of torch's own default the same numbers come out, length first."""
    model = nn.ModuleDict({"lstm": nn.LSTM(3, 4), "fc": nn.Linear(4, 2)})
    said = {"chain.positions": "all", "chain.output": "none"}
    read = mapper.inspect(model.state_dict(), hints=said).architecture
    assert any("batch_first=True" in note for note in read.notes)
    x = torch.randn(5, 2, 3)
    found = mapper.build(model.state_dict(), hints=said)(inputs=x.transpose(0, 1)).output
    torch.testing.assert_close(found.transpose(0, 1), model["fc"](model["lstm"](x)[0]))
    plain = mapper.inspect({"fc1.weight": [4, 4], "fc2.weight": [4, 4]}).architecture
    assert not any("batch_first=True" in note for note in plain.notes)


def way_up(second, third):
    """A decoder whose first layer gives as many channels as it reads, and the settings of all of its layers."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, 2, 1))
    decoder = nn.Sequential(nn.ConvTranspose2d(4, 4, 3, 2, 1, 1), nn.ReLU(), second, nn.ReLU(), third)
    said = {**RELU, "chain.stride": 2, "chain.padding": 1, "chain.up_stride": 2, "chain.up_padding": "exact"}
    said |= {"chain.pooling": "none", "chain.output": "none", "chain.skip": "none"}
    said |= {"encoder.2:chain.activation": "relu"}
    model = nn.Sequential(OrderedDict(encoder=encoder, act=nn.ReLU(), decoder=decoder))
    return model, said


def test_layers_on_the_way_up_are_transposed_where_the_others_there_show_it():
    second, third = nn.ConvTranspose2d(4, 3, 3, 2, 1, 1), nn.ConvTranspose2d(3, 1, 3, 2, 1, 1)
    model, said = way_up(second, third)
    x = torch.randn(2, 1, 8, 12)
    torch.testing.assert_close(mapper.build(model.state_dict(), hints=said)(inputs=x).output, model(x))


def test_it_is_asked_whether_layers_are_transposed_where_the_others_differ():
    model, said = way_up(nn.ConvTranspose2d(4, 3, 3, 2, 1, 1), nn.Conv2d(3, 1, 3, 1, 1))
    said |= {"decoder.4:chain.stride": 1}
    asked = mapper.inspect(model.state_dict(), hints=said).architecture.questions
    assert [(each.fact, each.at) for each in asked] == [("chain.kind", "decoder.0")]
    x = torch.randn(2, 1, 8, 12)
    built = mapper.build(model.state_dict(), hints={**said, "decoder.0:chain.kind": "transposed"})
    torch.testing.assert_close(built(inputs=x).output, model(x))
    with pytest.raises(HintError, match="neither transposed nor plain"):
        mapper.inspect(model.state_dict(), hints={**said, "decoder.2:chain.kind": "plain"})


def test_recurrent_layers_read_maps_column_by_column_or_frame_by_frame():
    """Convolutions, a map and a recurrent layer: of one line of text (1507.05717), or of many images."""
    torch.manual_seed(0)
    net = nn.ModuleDict({"conv": nn.Conv2d(1, 6, 3, padding=1), "fc": nn.Linear(6 * 4, 10), "rnn": nn.GRU(10, 7, batch_first=True), "out": nn.Linear(7, 5)})  # fmt: skip
    said = {**RELU, "chain.padding": "half", "chain.stride": 1, "chain.pooling": "max_2", "fc:chain.activation": "none", "chain.positions": "all", "chain.output": "none"}  # fmt: skip
    read = mapper.inspect(net.state_dict(), hints=said).architecture
    asked = next(question for question in read.questions if question.fact == "chain.reduction")
    assert {"columns", "flatten"} <= {*asked.candidates}
    lines = torch.randn(2, 1, 8, 12)
    maps = F.max_pool2d(F.relu(net["conv"](lines)), 2)
    wanted = net["out"](net["rnn"](net["fc"](maps.flatten(1, 2).transpose(1, 2)))[0])
    model = mapper.build(net.state_dict(), hints=said | {"chain.reduction": "columns"})
    torch.testing.assert_close(model(lines).output, wanted)


def test_a_layer_whose_reader_is_behind_its_run_is_asked_about():
    """A branch ends where a norm reads it beside others: the norm is no layer of the branch."""
    branch = ["layer2.0.downsample.0", "layer3.0.downsample.0", "layer4.0.downsample.0"]
    names = {"attention.0": nn.Conv1d(80, 128, 1), "norm_stats": nn.BatchNorm1d(160)}
    names |= {name: nn.Conv2d(16, 16, 1, bias=False) for name in branch}
    state = {
        f"{name}.{key}": value for name, layer in names.items() for key, value in layer.state_dict().items()
    }
    asked = mapper.inspect(state).architecture.questions
    assert {"chain.reads", "chain.activation"} <= {each.fact for each in asked}


class PreNormBlock(nn.Module):
    """Norm, convolution, norm, slopes, convolution, norm, and a sum (as face recognition has it, 1801.07698)."""

    def __init__(self, width, out, stride):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(width), nn.Conv2d(width, out, 3, 1, 1, bias=False)
        self.bn2, self.prelu = nn.BatchNorm2d(out), nn.PReLU(out)
        self.conv2, self.bn3 = nn.Conv2d(out, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        shortcut = nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out)
        self.downsample = nn.Sequential(*shortcut) if stride > 1 else None

    def forward(self, x):
        found = self.bn3(self.conv2(self.prelu(self.bn2(self.conv1(self.bn1(x))))))
        return found + (x if self.downsample is None else self.downsample(x))


def test_a_block_may_begin_with_a_norm_behind_the_norm_of_the_last_one():
    torch.manual_seed(0)
    blocks = nn.Sequential(PreNormBlock(4, 4, 2), PreNormBlock(4, 4, 1), PreNormBlock(4, 6, 2))
    stem = OrderedDict(conv1=nn.Conv2d(3, 4, 3, 1, 1, bias=False), bn1=nn.BatchNorm2d(4), prelu=nn.PReLU(4))
    end = OrderedDict(layer1=blocks, bn2=nn.BatchNorm2d(6), flat=nn.Flatten(), fc=nn.Linear(96, 5))
    model = nn.Sequential(stem | end).eval()
    strides = [f"layer1.{at}.{name}" for at in (0, 2) for name in ("conv2", "downsample.0")]
    said = {**{f"{name}:chain.stride": 2 for name in strides}, "chain.stride": 1, "chain.padding": "half"}
    said |= {"chain.activation": "none", "chain.activation_before_norm": False, "chain.pooling": "none"}
    said |= {
        "chain.residual_branch": "input",
        "chain.residual": "after_activation",
        "chain.reduction": "flatten",
        "chain.output": "none",
    }
    open_at_first = {question.name for question in mapper.inspect(model.state_dict()).architecture.questions}
    assert "norm.eps" not in open_at_first, "torch's own in a shortcut, too"
    inputs = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(mapper.build(model.state_dict(), hints=said)(inputs).output, model(inputs))


@pytest.mark.parametrize(("names", "is_cell"), [(("gru", "h2o"), False), (("i2h", "h2o"), True)])
def test_maps_of_a_cell_are_those_of_two_names_at_least(names, is_cell):
    first, last = nn.GRU(8, 8) if names[0] == "gru" else nn.Linear(16, 8), nn.Linear(8, 9)
    model = nn.ModuleDict({"embedding": nn.Embedding(9, 8), names[0]: first, names[1]: last})
    questions = mapper.inspect(model.state_dict()).architecture.questions
    assert ("chain.joined" in [question.fact for question in questions]) is is_cell
